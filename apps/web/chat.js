// The chat view: what is shown of a conversation, and what the user does with it. answers.js writes the answers.

const SHOWN_STEP = 60; // messages that are made at a time; earlier ones when the user scrolls up to them

let conversation = emptyConversation();
const shown = { path: [], from: 0 };

const currentConversation = () => conversation;
const itemOf = message => byId("messages").querySelector(`[data-id="${message.id}"]`);

// ---- showing --------------------------------------------------------------------------------------------------------

// Shows the conversation anew, at its end or, with `stay`, where it was scrolled to.
function showConversation(stay = false) {
    const path = pathOf(conversation);
    const top = byId("scroller").scrollTop;
    shown.from = stay ? Math.min(shown.from, path.length) : Math.max(0, path.length - SHOWN_STEP);
    shown.path = path;
    byId("messages").replaceChildren(...path.slice(shown.from).map(shownMessage));
    byId("earlier").hidden = shown.from === 0;
    byId("welcome").hidden = path.length > 0;
    showBranchNote();
    showContext(path);
    if (stay) {
        byId("scroller").scrollTop = top;
    } else {
        scrollDown();
    }
}

// Makes the messages before those that are shown; what is read stays in its place.
function showEarlier() {
    const scroller = byId("scroller");
    const below = scroller.scrollHeight - scroller.scrollTop;
    const from = Math.max(0, shown.from - SHOWN_STEP);
    byId("messages").prepend(...shown.path.slice(from, shown.from).map(shownMessage));
    shown.from = from;
    byId("earlier").hidden = from === 0;
    scroller.scrollTop = scroller.scrollHeight - below;
}

function appendMessage(message) {
    const item = shownMessage(message);
    shown.path.push(message);
    byId("welcome").hidden = true;
    byId("branch-note").hidden = true;
    byId("messages").append(item);
    return item;
}

function shownMessage(message) {
    return messageItem(message, versionsOf(conversation, message), {
        edit: () => editShown(message),
        again: () => answerAgain(message),
        remove: () => removeShown(message),
        version: step => showVersion(message, step),
        from: () => continueFrom(message),
        compare: () => compareQuestion(shown.path, shown.path.find(other => other.id === message.parent)),
        more: () => continueAnswer(message),
        results: () => sendResults(message),
        letGo: () => answerWith(message, "slide"),
        keepAll: () => answerWith(message, "error"),
        summarise: () => summariseBefore(message),
        fresh: () => byId("new-chat").click(),
    });
}

// Where the user went back to an earlier message: what followed it can be shown again.
function showBranchNote() {
    const last = shown.path.at(-1);
    byId("branch-note").hidden = childrenOf(conversation, last?.id ?? "").length === 0;
}

const atBottom = () => byId("scroller").scrollHeight - byId("scroller").scrollTop - byId("scroller").clientHeight < 60;

function scrollDown() {
    byId("scroller").scrollTop = byId("scroller").scrollHeight;
    byId("latest").hidden = true;
}

// ---- conversations --------------------------------------------------------------------------------------------------

// Shows a saved conversation; for null, or an id that no longer exists, a new one.
function openConversation(id) {
    stopWriting();
    stopReading();
    conversation = (id && loadConversation(id)) || emptyConversation();
    location.hash = "#chat";
    lasting.write("open", conversation.id);
    showConversation();
    showConversations();
    resumeAnswer();
}

function keepConversation() {
    const [first] = pathOf(conversation);
    conversation.updated = Date.now();
    conversation.title ||= firstLine(first?.content || first?.documents?.[0].name || "", 60);
    saveConversation(conversation);
    lasting.write("open", conversation.id);
}

function changeConversation(id, change) {
    const changed = id === conversation.id ? conversation : loadConversation(id);
    if (changed) {
        change(changed);
        saveConversation(changed);
    }
    return changed;
}

function forgetConversation(id) {
    removeConversation(id);
    if (id === conversation.id) {
        openConversation(null);
    }
}

// Another tab has saved something: its messages are shown here, too.
function takeFromOtherTab(event) {
    showConversations();
    if (event.key === STORE_PREFIX + "chat." + conversation.id && event.newValue && !writing) {
        conversation = loadConversation(conversation.id) ?? conversation;
        showConversation(true);
    }
}

// ---- actions of the user --------------------------------------------------------------------------------------------

function sendMessage(text, documents = undefined) {
    stopWriting();
    stopReading();
    const message = addMessage(conversation, shown.path.at(-1) ?? null, { role: "user", content: text, documents });
    appendMessage(message);
    keepConversation();
    showConversations();
    writeAnswer(message);
}

// An edited question becomes a branch beside the former one; a summary is changed in its place.
function editShown(message) {
    const item = itemOf(message);
    if (!item || item.classList.contains("editing")) {
        return;
    }
    editMessage(item, message, text => {
        if (text !== null && message.role === "summary") {
            message.content = text;
            keepConversation();
            showConversation(true);
        } else if (text !== null) {
            stopWriting();
            const parent = conversation.messages.find(other => other.id === message.parent) ?? null;
            const edited = addMessage(conversation, parent, {
                role: "user",
                content: text,
                documents: message.documents,
            });
            keepConversation();
            showConversation();
            writeAnswer(edited);
        }
        byId("input").focus();
    });
}

// The former answer stays as a version.
function answerAgain(message) {
    stopWriting();
    const question = conversation.messages.find(other => other.id === message.parent) ?? null;
    endAt(conversation, question);
    showConversation();
    writeAnswer(question);
    byId("input").focus();
}

function showVersion(message, step) {
    const { at, all } = versionsOf(conversation, message);
    const other = all[at + step];
    if (!other) {
        return;
    }
    stopWriting();
    chooseMessage(conversation, other);
    saveConversation(conversation);
    showConversation(true);
    itemOf(other)?.querySelector(step < 0 ? ".earlier-version" : ".later-version")?.focus();
    speak(say("Version {0} of {1}", at + step + 1, all.length));
}

function removeShown(message) {
    stopWriting();
    const own = conversation;
    const kept = structuredClone({ messages: own.messages, chosen: own.chosen });
    removeTurn(own, message);
    saveConversation(own);
    showConversation(true);
    toast(say("Deleted."), say("Undo"), () => {
        Object.assign(own, kept);
        saveConversation(own);
        if (own === conversation) {
            showConversation(true);
        }
    });
}

// The next message follows this one; what followed so far stays as a branch.
function continueFrom(message) {
    stopWriting();
    endAt(conversation, message);
    saveConversation(conversation);
    showConversation();
    byId("input").focus();
}

function showBranch() {
    delete conversation.chosen[shown.path.at(-1)?.id ?? ""];
    saveConversation(conversation);
    showConversation(true);
}

function editLast() {
    const last = shown.path.findLast(message => message.role === "user");
    if (last) {
        editShown(last);
    }
}

// ---- starting -------------------------------------------------------------------------------------------------------

function startComposer() {
    const input = byId("input");
    byId("composer").addEventListener("submit", event => {
        event.preventDefault();
        const text = input.value.trim();
        if ((text !== "" || hasAttached()) && !writing && attachedReady()) {
            input.value = "";
            fitHeight(input);
            sendMessage(text, takeAttached());
        }
    });
    input.addEventListener("input", () => fitHeight(input));
    input.addEventListener("keydown", event => {
        if (entersMessage(event)) {
            event.preventDefault();
            byId("composer").requestSubmit();
        } else if (event.key === "ArrowUp" && input.value === "" && !writing) {
            event.preventDefault();
            editLast();
        }
    });
    byId("stop").addEventListener("click", () => {
        stopWriting();
        stopReading();
        input.focus();
    });
}

function startChat() {
    startComposer();
    byId("latest").addEventListener("click", scrollDown);
    byId("earlier").addEventListener("click", showEarlier);
    byId("show-branch").addEventListener("click", showBranch);
    byId("scroller").addEventListener("scroll", () => {
        byId("latest").hidden = atBottom();
        if (byId("scroller").scrollTop < 200 && shown.from > 0) {
            showEarlier();
        }
    });
    addEventListener("storage", takeFromOtherTab);
    addEventListener("pagehide", () => {
        saveWriting();
        passing.write("unsent", byId("input").value);
    });
    byId("input").value = passing.read("unsent") ?? "";
    fitHeight(byId("input"));
    conversation = loadConversation(lasting.read("open")) ?? conversation;
    showConversation();
    resumeAnswer();
}
