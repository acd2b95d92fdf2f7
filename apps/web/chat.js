// The chat view: what is shown of a conversation, what the user does with it, and the answers. One answer is written at a time.

import {
    emptyAnswer, endStream, failAnswer, followAnswer, pacedDrawing, requestBody, requestMessages, takeChunk,
} from "./answers.js";
import { attachedReady, hasAttached, noteDocuments, takeAttached } from "./documents.js";
import { byId, entersMessage, fitHeight, inside, speak, toast } from "./dom.js";
import { showContext } from "./figures.js";
import { firstLine, say } from "./language.js";
import { decide, isAllowed, mcpPlace, waitsForUser } from "./mcp.js";
import { editMessage, messageItem, showAnswer } from "./message.js";
import { loadPictures } from "./pictures.js";
import { cancelStream, continueStream, openStream, readStream, ServerError, serverFeatures } from "./server.js";
import {
    addMessage, childrenOf, chooseMessage, cleanTools, conversationSettings, current, emptyConversation, endAt,
    lasting, listConversations, listOf, loadConversation, newId, passing, pathOf, removeConversation, removeTurn,
    saveConversation, STORE_PREFIX, versionsOf, withoutMessages,
} from "./store.js";
import { allowedUrls, callTool } from "./tools.js";
import { readAnswer, stopReading } from "./voice.js";

/** @import { Call, Conversation, Message, StoredDocument, Writing } from "./store.js" */

const ROUNDS_MAX = 20; // answers to results of tools that are sent without the user

const SHOWN_STEP = 60; // messages that are made at a time; earlier ones when the user scrolls up to them

// What other modules do when something happens in the chat; they register at the start.
export const chatHooks = {
    listChanged: () => {}, // the list of conversations has to be drawn again
    /** @param {Conversation} own */
    answered: own => {},
    /** @param {Message[]} path @param {Message | undefined} question */
    compare: (path, question) => {},
};

/** @param {Message} message @returns {HTMLElement | null} */
const itemOf = message => byId("messages").querySelector(`[data-id="${message.id}"]`);

// ---- showing -------------------------------------------------------------------------------------------------------

// Shows the conversation anew, at its end or, with `stay`, where it was scrolled to.
/** @param {boolean} [stay] */
export function showConversation(stay = false) {
    const path = pathOf(current.conversation);
    const top = byId("scroller").scrollTop;
    current.from = stay ? Math.min(current.from, path.length) : Math.max(0, path.length - SHOWN_STEP);
    current.path = path;
    byId("messages").replaceChildren(...path.slice(current.from).map(shownMessage));
    byId("earlier").hidden = current.from === 0;
    byId("welcome").hidden = path.length > 0;
    showBranchNote();
    showContext(path);
    if (stay) {
        byId("scroller").scrollTop = top;
    } else {
        scrollDown();
    }
}

// Makes the messages before the first one that is shown; the text on the screen stays in its place.
function showEarlier() {
    const scroller = byId("scroller");
    const below = scroller.scrollHeight - scroller.scrollTop;
    const from = Math.max(0, current.from - SHOWN_STEP);
    byId("messages").prepend(...current.path.slice(from, current.from).map(shownMessage));
    current.from = from;
    byId("earlier").hidden = from === 0;
    scroller.scrollTop = scroller.scrollHeight - below;
}

/** @param {Message} message */
function appendMessage(message) {
    const item = shownMessage(message);
    current.path.push(message);
    byId("welcome").hidden = true;
    byId("branch-note").hidden = true;
    byId("messages").append(item);
    return item;
}

/** @param {Message} message */
function shownMessage(message) {
    const own = current.conversation;
    const question = () => own.messages.find(other => other.id === message.parent);
    return messageItem(message, versionsOf(own, message), {
        edit: () => editShown(message),
        again: () => answerAgain(message),
        remove: () => removeShown(message),
        version: step => showVersion(message, step),
        from: () => continueFrom(message),
        compare: () => chatHooks.compare(current.path, question()),
        more: () => continueAnswer(message),
        results: () => sendResults(message),
        decide: (call, decision) => {
            own.settings = decide(own.settings ?? conversationSettings(own), call, decision);
            callTools(own, message);
        },
        letGo: () => answerWith(message, "slide"),
        keepAll: () => answerWith(message, "error"),
        summarise: () => summariseBefore(message),
        fresh: () => byId("new-chat").click(),
        shorten: () => answerWith(message, "truncate_middle"),
        bare: () => askWithout(message),
        alone: () => question()?.parent === "",
        documents: () => Boolean(question()?.documents?.length),
    });
}

// Where the user went back to an earlier message: what followed it can be shown again.
function showBranchNote() {
    const last = current.path.at(-1);
    byId("branch-note").hidden = childrenOf(current.conversation, last?.id ?? "").length === 0;
}

const atBottom = () => byId("scroller").scrollHeight - byId("scroller").scrollTop - byId("scroller").clientHeight < 60;

// Whether the user reads the end. Then the end stays in sight when the view or the messages change their size: figures and the
// context's meter appear after an answer, code and formulas when they come into sight.
let following = true;

function scrollDown() {
    following = true;
    byId("scroller").scrollTop = byId("scroller").scrollHeight;
    byId("latest").hidden = true;
}

// ---- conversations -------------------------------------------------------------------------------------------------

// Shows a saved conversation; for null, or an id that no longer exists, a new one.
/** @param {string | null} id */
export function openConversation(id) {
    stopWriting();
    stopReading();
    current.conversation = (id && loadConversation(id)) || emptyConversation();
    location.hash = "#chat";
    lasting.write("open", current.conversation.id);
    showConversation();
    chatHooks.listChanged();
    resumeAnswer();
}

function keepConversation() {
    current.conversation.updated = Date.now();
    current.conversation.title ||= questionTitle(current.conversation);
    saveConversation(current.conversation);
    lasting.write("open", current.conversation.id);
}

/** @param {string} id @param {(changed: Conversation) => void} change */
export function changeConversation(id, change) {
    const changed = id === current.conversation.id ? current.conversation : loadConversation(id);
    if (changed) {
        change(changed);
        saveConversation(changed);
    }
    return changed;
}

/** @param {string} id */
export function forgetConversation(id) {
    removeConversation(id);
    if (id === current.conversation.id) {
        openConversation(null);
    }
}

// Another tab has saved something: its messages are shown here, too.
/** @param {StorageEvent} event */
function takeFromOtherTab(event) {
    chatHooks.listChanged();
    if (event.key === STORE_PREFIX + "chat." + current.conversation.id && event.newValue && !current.writing) {
        current.conversation = loadConversation(current.conversation.id) ?? current.conversation;
        showConversation(true);
    }
}

// ---- actions of the user -------------------------------------------------------------------------------------------

/** @param {string} text @param {StoredDocument[] | undefined} [documents] */
export function sendMessage(text, documents = undefined) {
    stopWriting();
    stopReading();
    naming?.abort();
    const message = addMessage(current.conversation, current.path.at(-1) ?? null, { role: "user", content: text, documents });
    appendMessage(message);
    keepConversation();
    chatHooks.listChanged();
    writeAnswer(message);
}

// An edited question becomes a branch beside the former one; a summary is changed in its place.
/** @param {Message} message */
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
            const parent = current.conversation.messages.find(other => other.id === message.parent) ?? null;
            const edited = addMessage(current.conversation, parent, {
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
/** @param {Message} message */
function answerAgain(message) {
    stopWriting();
    const question = current.conversation.messages.find(other => other.id === message.parent) ?? null;
    endAt(current.conversation, question);
    showConversation();
    writeAnswer(question);
    byId("input").focus();
}

/** @param {Message} message @param {number} step */
export function showVersion(message, step) {
    const { at, all } = versionsOf(current.conversation, message);
    const other = all[at + step];
    if (!other) {
        return;
    }
    stopWriting();
    chooseMessage(current.conversation, other);
    saveConversation(current.conversation);
    showConversation(true);
    const item = itemOf(other);
    if (item) {
        inside(item, step < 0 ? ".earlier-version" : ".later-version")?.focus();
    }
    speak(say("Version {0} of {1}", at + step + 1, all.length));
}

/** @param {Message} message */
function removeShown(message) {
    stopWriting();
    const own = current.conversation;
    const kept = structuredClone({ messages: own.messages, chosen: own.chosen });
    removeTurn(own, message);
    saveConversation(own);
    showConversation(true);
    toast(say("Deleted."), say("Undo"), () => {
        Object.assign(own, kept);
        saveConversation(own);
        if (own === current.conversation) {
            showConversation(true);
        }
    });
}

// The next message follows this one; what followed so far stays as a branch.
/** @param {Message} message */
function continueFrom(message) {
    stopWriting();
    endAt(current.conversation, message);
    saveConversation(current.conversation);
    showConversation();
    byId("input").focus();
}

function showBranch() {
    delete current.conversation.chosen[current.path.at(-1)?.id ?? ""];
    saveConversation(current.conversation);
    showConversation(true);
}

function editLast() {
    const last = current.path.findLast(message => message.role === "user");
    if (last) {
        editShown(last);
    }
}

// ---- writing an answer ---------------------------------------------------------------------------------------------

// Streams into a message and its item, which is drawn at most once per frame; it is saved at intervals, so that closing the
// page loses little.
/** @param {Conversation} own @param {Message} message @param {(signal: AbortSignal) => Promise<Response>} begin */
async function runAnswer(own, message, begin) {
    const item = /** @type {HTMLElement} */ (itemOf(message));
    const mine = (current.writing = { abort: new AbortController(), message, own });
    let saved = Date.now();
    const draw = () => {
        const follow = own === current.conversation && atBottom();
        showAnswer(item, message, current.writing === mine, follow || current.writing !== mine);
        readAnswer(item, current.writing !== mine);
        if (follow) {
            scrollDown();
        }
    };
    const drawing = pacedDrawing(draw);
    showWriting(true);
    showAnswer(item, message, true);
    scrollDown();
    try {
        await followAnswer(message, mine.abort.signal, () => begin(mine.abort.signal), chunk => {
            takeChunk(message, chunk);
            drawing.ask();
            if (Date.now() - saved > 2000) {
                saved = Date.now();
                saveConversation(own);
            }
        });
        endStream(message);
        noteDocuments(own, message);
    } catch (error) {
        failAnswer(message, error);
    }
    drawing.stop();
    endWriting(mine);
    draw();
    finishAnswer(own, message);
    if (own === current.conversation) {
        callTools(own, message);
    }
}

// ---- the title of a conversation -----------------------------------------------------------------------------------

const TITLE_REQUEST = "Write a title for this conversation, of two to six words, in its language. Write only the title.";

/** @type {AbortController | null} */
let naming = null; // while a title is written

// A conversation is named after its first question until there is a better name.
/** @param {Conversation} own */
function questionTitle(own) {
    const [first] = pathOf(own);
    return firstLine(first?.content || first?.documents?.[0].name || "", 60);
}

// The title in a model's answer: its first line, without marks and quotes; "" where that is no title.
/** @param {string} text */
function cleanTitle(text) {
    const line = firstLine(text.replace(/^[\s#*_"'\u201c\u201e\u00ab]+/, ""), 80);
    const title = line.replace(/^title: */i, "").replace(/[\s*_"'\u201c\u201d\u00bb.]+$/, "");
    return title.length >= 3 && title.length <= 70 ? title : "";
}

// Lets the model name a conversation after its first answer, from which the prompt's cached prefix is reused. The bundled model
// knows stories only, and its conversations keep their first question. The user's next message comes first.
/** @param {Conversation} own @param {Message} message */
async function nameConversation(own, message) {
    const path = pathOf(own);
    const model = byId("model").value;
    const due = path.length === 2 && path[1] === message && message.finish === "stop" && own.title === questionTitle(own);
    if (!due || !model || model === (await serverFeatures()).bundled) {
        return;
    }
    const abort = (naming = new AbortController());
    await loadPictures(path);
    const answer = emptyAnswer("assistant");
    const body = {
        model,
        messages: [...requestMessages(path), { role: "user", content: TITLE_REQUEST }],
        stream: true,
        max_tokens: 24,
        temperature: 0,
        chat_template_kwargs: { enable_thinking: false },
    };
    await readStream(await openStream(body, abort.signal), answer, chunk => takeChunk(answer, chunk));
    const title = cleanTitle(answer.content);
    if (title && own.title === questionTitle(own)) {
        own.title = title;
        saveConversation(own);
        chatHooks.listChanged();
    }
}

/** @param {Conversation} own @param {Message} message */
function finishAnswer(own, message) {
    if (listConversations().some(entry => entry.id === own.id)) {
        own.updated = Date.now();
        saveConversation(own);
        nameConversation(own, message)
            .catch(() => {}) // it keeps its name
            .then(() => chatHooks.answered(own));
    }
    if (own === current.conversation) {
        showContext(current.path);
    }
    chatHooks.listChanged();
    speak(message.error || say("The answer is complete."));
}

/** @param {boolean} busy */
function showWriting(busy) {
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
}

/** @param {Writing} mine */
function endWriting(mine) {
    if (current.writing === mine) {
        current.writing = null;
        showWriting(false);
    }
}

export function stopWriting() {
    if (current.writing) {
        const { abort, message } = current.writing;
        abort.abort();
        cancelStream(message);
        endWriting(current.writing);
    }
}

function saveWriting() {
    if (current.writing) {
        saveConversation(current.writing.own);
    }
}

// ---- kinds of answers ----------------------------------------------------------------------------------------------

// Answers a question (null: an empty conversation).
/** @param {Message | null} question */
function writeAnswer(question) {
    const own = current.conversation;
    const body = requestBody([...current.path]);
    const message = addMessage(own, question, emptyAnswer("assistant"));
    appendMessage(message);
    saveConversation(own);
    return runAnswer(own, message, async signal => openStream({ ...(await body), stream_id: message.stream }, signal));
}

// Answers what the tools that an answer called have returned.
/** @param {Message} message */
function sendResults(message) {
    stopWriting();
    message.returned = true;
    saveConversation(current.conversation);
    showConversation(true);
    writeAnswer(message);
    byId("input").focus();
}

// Goes on with an answer that was cut.
/** @param {Message} message */
function continueAnswer(message) {
    stopWriting();
    const own = current.conversation;
    const at = current.path.indexOf(message);
    const body = requestBody(current.path.slice(0, at + 1));
    Object.assign(message, { finish: "", error: "", stream: newId(), event: "" });
    byId("input").focus();
    return runAnswer(own, message, async signal =>
        openStream({ ...(await body), continue_final_message: true, stream_id: message.stream }, signal),
    );
}

// Reads on in the stream of an answer that was being written when the page was left.
export function resumeAnswer() {
    const message = current.path.at(-1);
    if (!message?.stream || current.writing) {
        return;
    }
    message.error = "";
    runAnswer(current.conversation, message, signal =>
        continueStream(message, signal).catch(error => {
            throw error.status === 404
                ? new ServerError(say("The answer was interrupted."), 500)
                : error;
        }),
    );
}

// ---- a full context ------------------------------------------------------------------------------------------------

// Answers again with another way to treat a full context, which the conversation keeps.
/** @param {Message} message @param {string} overflow */
function answerWith(message, overflow) {
    current.conversation.settings = { ...conversationSettings(), context_overflow: overflow };
    answerAgain(message);
}

// Asks a question again without its documents; the former question stays as a branch.
/** @param {Message} message its answer */
function askWithout(message) {
    stopWriting();
    const own = current.conversation;
    const question = own.messages.find(other => other.id === message.parent);
    if (question) {
        const parent = own.messages.find(other => other.id === question.parent) ?? null;
        const content = question.content || question.documents?.map(one => one.name).join(", ") || "";
        const asked = addMessage(own, parent, { role: "user", content });
        keepConversation();
        showConversation();
        writeAnswer(asked);
        byId("input").focus();
    }
}

const SUMMARY_REQUEST =
    "Summarise this conversation so far in at most 200 words, so that it can go on from the summary alone. Keep names, " +
    "numbers, decisions and open questions. Write only the summary.";

// Replaces the turns before by a summary, which the user can edit. A question without an answer is asked again after it.
/** @param {Message} message */
async function summariseBefore(message) {
    stopWriting();
    const own = current.conversation;
    const at = current.path.indexOf(message);
    const open = message.finish === "full" && at > 0 ? current.path[at - 1] : null;
    const before = current.path.slice(0, open ? at - 1 : at + 1);
    const body = requestBody([...before, { role: "user", content: SUMMARY_REQUEST }]);
    const summary = addMessage(own, before.at(-1) ?? null, emptyAnswer("summary"));
    showConversation();
    const limits = { context_overflow: "truncate_middle", max_tokens: 400 };
    await runAnswer(own, summary, async signal =>
        openStream({ ...(await body), ...limits, stream_id: summary.stream }, signal),
    );
    if (summary.content === "" && own === current.conversation) {
        const sentence = summary.error || say("The answer was interrupted.");
        withoutMessages(own, new Set([summary.id]));
        delete own.chosen[summary.parent];
        showConversation();
        toast(sentence);
    } else if (open && own === current.conversation && !summary.error) {
        sendMessage(open.content, open.documents);
    }
}

// ---- calls of tools ------------------------------------------------------------------------------------------------

// Sends the calls of a complete answer to their tools, one after the other. When all have results, these are sent on; else
// the user pastes the others.
/** @param {Conversation} own @param {Message} message */
async function callTools(own, message) {
    const settings = conversationSettings(own);
    const urls = new Map(cleanTools(settings.tools).map(tool => [tool.name, tool.url]));
    /** @param {Call} call */
    const placeOf = call => {
        const url = urls.get(call.name) ?? "";
        return allowedUrls.includes(url) ? url : isAllowed(settings, call) ? mcpPlace(call) : "";
    };
    const all = listOf(message.calls);
    const calls = all.filter(call => !call.url && placeOf(call));
    if (message.role !== "assistant" || message.finish !== "tool_calls" || !all.some(call => call.url || mcpPlace(call) || placeOf(call))) {
        return;
    }
    const mine = (current.writing = { abort: new AbortController(), message, own });
    /** @param {boolean} busy */
    const draw = busy => {
        const item = itemOf(message);
        if (item) {
            showAnswer(item, message, busy);
        }
    };
    showWriting(true);
    calls.forEach(call => Object.assign(call, { url: placeOf(call), note: "", failed: false }));
    for (const call of calls) {
        draw(true);
        await callTool(call, mine.abort.signal);
    }
    const stopped = current.writing !== mine;
    endWriting(mine);
    if (listConversations().some(entry => entry.id === own.id)) {
        saveConversation(own);
    }
    if (own !== current.conversation) {
        return;
    }
    draw(false);
    const rounds = current.path.length - 1 - current.path.findLastIndex(one => one.role === "user");
    const waiting = all.find(waitsForUser);
    if (!stopped && rounds <= ROUNDS_MAX && all.every(call => call.url && !call.failed)) {
        sendResults(message);
    } else {
        speak(waiting ? say("May the model call {0}?", waiting.name) : say("Results of tools are missing."));
    }
}

// ---- starting ------------------------------------------------------------------------------------------------------

function startComposer() {
    const input = byId("input");
    byId("composer").addEventListener("submit", event => {
        event.preventDefault();
        const text = input.value.trim();
        if ((text !== "" || hasAttached()) && !current.writing && attachedReady()) {
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
        } else if (event.key === "ArrowUp" && input.value === "" && !current.writing) {
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

export function startChat() {
    startComposer();
    byId("latest").addEventListener("click", scrollDown);
    byId("earlier").addEventListener("click", showEarlier);
    byId("show-branch").addEventListener("click", showBranch);
    byId("scroller").addEventListener("scroll", () => {
        following = atBottom();
        byId("latest").hidden = following;
        if (byId("scroller").scrollTop < 200 && current.from > 0) {
            showEarlier();
        }
    });
    const resized = new ResizeObserver(() => following && scrollDown());
    resized.observe(byId("scroller"));
    resized.observe(byId("messages"));
    addEventListener("storage", takeFromOtherTab);
    addEventListener("pagehide", () => {
        saveWriting();
        passing.write("unsent", byId("input").value);
    });
    byId("input").value = passing.read("unsent") ?? "";
    fitHeight(byId("input"));
    current.conversation = loadConversation(lasting.read("open")) ?? current.conversation;
    showConversation();
    resumeAnswer();
}
