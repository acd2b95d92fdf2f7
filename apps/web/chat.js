// The chat view: sending, streaming, stopping, editing, answering again. One answer is streamed at a time.

let conversation = emptyConversation();
let writing = null; // {abort, item, message} of the answer in progress

function emptyConversation() {
    return { id: newId(), title: "", updated: 0, messages: [] };
}

const currentConversation = () => conversation;

// ---- showing --------------------------------------------------------------------------------------------------------

function showConversation() {
    byId("messages").replaceChildren(...conversation.messages.map(shownMessage));
    byId("welcome").hidden = conversation.messages.length > 0;
    scrollDown();
}

function shownMessage(message) {
    const item = messageItem(message, { edit: () => editAndSend(item, message), again: () => answerAgain(message) });
    return item;
}

const atBottom = () => byId("scroller").scrollHeight - byId("scroller").scrollTop - byId("scroller").clientHeight < 60;

function scrollDown() {
    byId("scroller").scrollTop = byId("scroller").scrollHeight;
    byId("latest").hidden = true;
}

function showWriting(busy) {
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
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
}

function keepConversation() {
    conversation.updated = Date.now();
    conversation.title ||= firstLine(conversation.messages[0].content, 60);
    saveConversation(conversation);
    lasting.write("open", conversation.id);
}

function renameConversation(id, title) {
    const renamed = id === conversation.id ? conversation : loadConversation(id);
    if (renamed) {
        renamed.title = title;
        saveConversation(renamed);
    }
}

function forgetConversation(id) {
    removeConversation(id);
    if (id === conversation.id) {
        openConversation(null);
    }
}

// ---- answers --------------------------------------------------------------------------------------------------------

function requestBody(messages) {
    const system = systemMessage();
    const said = messages.filter(message => message.role === "user" || message.content !== "");
    return {
        model: byId("model").value || undefined,
        messages: [
            ...(system ? [{ role: "system", content: system }] : []),
            ...said.map(({ role, content }) => ({ role, content })),
        ],
        stream: true,
        stream_options: { include_usage: true },
        ...samplingSettings(),
    };
}

function takeChunk(message, chunk) {
    const choice = chunk.choices?.[0];
    message.content += cleanText(choice?.delta?.content);
    message.reasoning += cleanText(choice?.delta?.reasoning_content);
    message.finish = choice?.finish_reason ?? message.finish;
    message.timings = cleanTimings(chunk.timings) ?? message.timings;
    message.model ||= cleanText(chunk.model, 200);
}

// Requests an answer to the messages. It is drawn at most once per frame and saved at intervals, so that closing the page
// loses little.
async function writeAnswer() {
    const own = conversation;
    const body = requestBody(own.messages);
    const message = { role: "assistant", content: "", reasoning: "", finish: "", model: "" };
    const item = shownMessage(message);
    const mine = (writing = { abort: new AbortController() });
    let frame = 0;
    let saved = Date.now();
    const draw = () => {
        const follow = atBottom();
        frame = 0;
        showAnswer(item, message, writing === mine);
        readAnswer(item, writing !== mine);
        if (follow && own === conversation) {
            scrollDown();
        }
    };
    own.messages.push(message);
    byId("messages").append(item);
    showWriting(true);
    showAnswer(item, message, true);
    scrollDown();
    try {
        await streamAnswer(body, mine.abort.signal, chunk => {
            takeChunk(message, chunk);
            frame ||= requestAnimationFrame(draw);
            if (Date.now() - saved > 2000) {
                saved = Date.now();
                saveConversation(own);
            }
        });
    } catch (error) {
        failAnswer(message, error);
    }
    cancelAnimationFrame(frame);
    endWriting(mine);
    draw();
    if (listConversations().some(entry => entry.id === own.id)) {
        own.updated = Date.now();
        saveConversation(own);
    }
    showConversations();
    speak(message.error || "The answer is complete.");
}

function failAnswer(message, error) {
    if (error.name === "AbortError") {
        message.finish = "stopped";
    } else {
        message.error = error.message;
        noteFailure(error);
    }
}

function endWriting(mine) {
    if (writing === mine) {
        writing = null;
        showWriting(false);
    }
}

function stopWriting() {
    if (writing) {
        writing.abort.abort();
        endWriting(writing);
    }
}

// ---- actions of the user --------------------------------------------------------------------------------------------

function sendMessage(text) {
    stopWriting();
    stopReading();
    const message = { role: "user", content: text };
    conversation.messages.push(message);
    byId("welcome").hidden = true;
    byId("messages").append(shownMessage(message));
    keepConversation();
    showConversations();
    writeAnswer();
}

// Removes this message and all after it. When that is more than one question and its answer, it can be undone.
function cutBefore(message) {
    stopWriting();
    const own = conversation;
    const at = own.messages.indexOf(message);
    const cut = own.messages.splice(at);
    if (cut.length > 2) {
        toast("Later messages were removed.", "Undo", () => bringBack(own, at, cut));
    }
    while (byId("messages").children.length > at) {
        byId("messages").lastChild.remove();
    }
}

function bringBack(own, at, cut) {
    if (own !== conversation) {
        openConversation(own.id);
    }
    stopWriting();
    conversation.messages.splice(at, Infinity, ...cut);
    saveConversation(conversation);
    showConversation();
}

function editAndSend(item, message) {
    if (item.classList.contains("editing")) {
        return;
    }
    editMessage(item, message, text => {
        if (text === null) {
            byId("input").focus();
            return;
        }
        cutBefore(message);
        sendMessage(text);
        byId("input").focus();
    });
}

function answerAgain(message) {
    cutBefore(message);
    writeAnswer();
    byId("input").focus();
}

function editLast() {
    const items = byId("messages").querySelectorAll(".user");
    const last = conversation.messages.findLast(message => message.role === "user");
    if (last) {
        editAndSend(items[items.length - 1], last);
    }
}

function startChat() {
    const input = byId("input");
    byId("composer").addEventListener("submit", event => {
        event.preventDefault();
        const text = input.value.trim();
        if (text !== "" && !writing) {
            input.value = "";
            fitHeight(input);
            sendMessage(text);
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
    addEventListener("keydown", event => {
        if (event.key === "Escape" && (writing || isReading()) && !byId("settings").open) {
            stopWriting();
            stopReading();
        } else if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName)) {
            event.preventDefault();
            location.hash = "#chat";
            input.focus();
        }
    });
    byId("stop").addEventListener("click", () => {
        stopWriting();
        stopReading();
        input.focus();
    });
    byId("latest").addEventListener("click", scrollDown);
    byId("scroller").addEventListener("scroll", () => {
        byId("latest").hidden = atBottom();
    });
    conversation = loadConversation(lasting.read("open")) ?? conversation;
    showConversation();
}
