// Writing answers: one is streamed at a time. The server keeps the stream under the id that is chosen here (docs/SERVER.md,
// "Streams that go on"), so an answer goes on when the page is reloaded or the connection breaks.

const RECONNECT_MS = [200, 1000, 3000, 6000];

let writing = null; // {abort, message, own} of the answer in progress

// ---- the request ----------------------------------------------------------------------------------------------------

// What is sent of a conversation: from its last summary on.
function requestMessages(path, own = systemMessage()) {
    const at = path.findLastIndex(message => message.role === "summary");
    const before = at < 0 ? "" : "Summary of the conversation so far:\n" + path[at].content;
    const system = [own, before].filter(Boolean).join("\n\n");
    const said = path
        .slice(at + 1)
        .filter(message => message.role === "user" || message.content !== "" || message.returned);
    const slides = conversationSettings().context_overflow === "slide";
    return [
        ...(system ? [{ role: "system", content: system }] : []),
        ...said.flatMap(message => (message.returned ? callTurns(message) : [requestMessage(message, slides)])),
    ];
}

function requestBody(path) {
    return {
        model: byId("model").value || undefined,
        messages: requestMessages(path),
        stream: true,
        stream_options: { include_usage: true },
        context_overflow: "slide",
        ...samplingSettings(),
    };
}

// ---- streaming ------------------------------------------------------------------------------------------------------

function takeChunk(message, chunk) {
    const choice = chunk.choices?.[0];
    message.content += cleanText(choice?.delta?.content);
    message.reasoning += cleanText(choice?.delta?.reasoning_content);
    takeCalls(message, choice?.delta?.tool_calls);
    message.finish = choice?.finish_reason ?? message.finish;
    message.timings = cleanTimings(chunk.timings) ?? message.timings;
    message.model ||= cleanText(chunk.model, 200);
}

// Follows a stream from its request `begin` on, or from where it broke, to its end.
async function followAnswer(message, signal, begin, onChunk) {
    let open = begin;
    for (let tries = 0; ;) {
        try {
            await readStream(await open(), message, chunk => {
                tries = 0;
                onChunk(chunk);
            });
            return;
        } catch (error) {
            if (error.status !== 0 || tries >= RECONNECT_MS.length) {
                throw error;
            }
            if (tries > 0) {
                noteFailure(error);
            }
            await pause(RECONNECT_MS[tries++], signal);
            open = () =>
                continueStream(message, signal).catch(other => {
                    throw other.status === 404 ? new ServerError(error.message, 500) : other;
                });
        }
    }
}

// Draws when asked, at most once a frame. Drawing that takes long, which includes the layout, is followed by a pause three times as
// long, so that the page stays usable.
function pacedDrawing(draw) {
    let timer = 0;
    let frame = 0;
    let pauseMs = 0;
    const run = () => {
        const began = performance.now();
        frame = 0;
        draw();
        pauseMs = 3 * (performance.now() - began);
    };
    const next = () => {
        timer = 0;
        frame = requestAnimationFrame(run);
    };
    return {
        ask: () => {
            if (!timer && !frame && pauseMs > 50) {
                timer = setTimeout(next, pauseMs);
            } else if (!timer && !frame) {
                next();
            }
        },
        stop: () => {
            clearTimeout(timer);
            cancelAnimationFrame(frame);
        },
    };
}

// Streams into a message and its item, which is drawn at most once per frame; it is saved at intervals, so that closing the
// page loses little.
async function runAnswer(own, message, begin) {
    const item = itemOf(message);
    const mine = (writing = { abort: new AbortController(), message, own });
    let saved = Date.now();
    const draw = () => {
        const follow = own === conversation && atBottom();
        showAnswer(item, message, writing === mine, follow || writing !== mine);
        readAnswer(item, writing !== mine);
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
    if (own === conversation) {
        callTools(own, message);
    }
}

function finishAnswer(own, message) {
    if (listConversations().some(entry => entry.id === own.id)) {
        own.updated = Date.now();
        saveConversation(own);
        storeConversation(own);
    }
    if (own === conversation) {
        showContext(shown.path);
    }
    showConversations();
    speak(message.error || say("The answer is complete."));
}

const endStream = message => {
    delete message.stream;
    delete message.event;
};

// A server that does not answer may still have the stream: then it is continued when the server is back.
function failAnswer(message, error) {
    if (error.name === "AbortError") {
        message.finish = "stopped";
        endStream(message);
        return;
    }
    if (error.status !== 0) {
        endStream(message);
    }
    if (error.code === "context_length_exceeded") {
        message.finish = "full";
        return;
    }
    const next = error.status === 404 ? say("Choose another model at the top, or reload the page.") : "";
    message.error = [error.message, next].filter(Boolean).join(" ");
    noteFailure(error);
}

function showWriting(busy) {
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
}

function endWriting(mine) {
    if (writing === mine) {
        writing = null;
        showWriting(false);
    }
}

function stopWriting() {
    if (writing) {
        const { abort, message } = writing;
        abort.abort();
        cancelStream(message);
        endWriting(writing);
    }
}

function saveWriting() {
    if (writing) {
        saveConversation(writing.own);
    }
}

// ---- kinds of answers -----------------------------------------------------------------------------------------------

const emptyAnswer = role => ({ role, content: "", reasoning: "", finish: "", model: "", stream: newId(), event: "" });

// Answers a question (null: an empty conversation).
function writeAnswer(question) {
    const own = conversation;
    const body = requestBody(shown.path);
    const message = addMessage(own, question, emptyAnswer("assistant"));
    appendMessage(message);
    saveConversation(own);
    return runAnswer(own, message, signal => openStream({ ...body, stream_id: message.stream }, signal));
}

// Answers what the tools that an answer called have returned.
function sendResults(message) {
    stopWriting();
    message.returned = true;
    saveConversation(conversation);
    showConversation(true);
    writeAnswer(message);
    byId("input").focus();
}

// Goes on with an answer that was cut.
function continueAnswer(message) {
    stopWriting();
    const own = conversation;
    const at = shown.path.indexOf(message);
    const body = { ...requestBody(shown.path.slice(0, at + 1)), continue_final_message: true };
    Object.assign(message, { finish: "", error: "", stream: newId(), event: "" });
    byId("input").focus();
    return runAnswer(own, message, signal => openStream({ ...body, stream_id: message.stream }, signal));
}

// Reads on in the stream of an answer that was being written when the page was left.
function resumeAnswer() {
    const message = shown.path.at(-1);
    if (!message?.stream || writing) {
        return;
    }
    message.error = "";
    runAnswer(conversation, message, signal =>
        continueStream(message, signal).catch(error => {
            throw error.status === 404
                ? new ServerError(say("The answer was interrupted."), 500)
                : error;
        }),
    );
}

// ---- a full context -------------------------------------------------------------------------------------------------

// Answers again with another way to treat a full context, which the conversation keeps.
function answerWith(message, overflow) {
    conversation.settings = { ...conversationSettings(), context_overflow: overflow };
    answerAgain(message);
}

const SUMMARY_REQUEST =
    "Summarise this conversation so far in at most 200 words, so that it can go on from the summary alone. Keep names, " +
    "numbers, decisions and open questions. Write only the summary.";

// Replaces what came before by a summary, which the user can edit. A question without an answer is asked again behind it.
async function summariseBefore(message) {
    stopWriting();
    const own = conversation;
    const at = shown.path.indexOf(message);
    const open = message.finish === "full" && at > 0 ? shown.path[at - 1] : null;
    const before = shown.path.slice(0, open ? at - 1 : at + 1);
    const body = {
        ...requestBody([...before, { role: "user", content: SUMMARY_REQUEST }]),
        context_overflow: "truncate_middle",
        max_tokens: 400,
    };
    const summary = addMessage(own, before.at(-1) ?? null, emptyAnswer("summary"));
    showConversation();
    await runAnswer(own, summary, signal => openStream({ ...body, stream_id: summary.stream }, signal));
    if (summary.content === "" && own === conversation) {
        const sentence = summary.error || say("The answer was interrupted.");
        withoutMessages(own, new Set([summary.id]));
        delete own.chosen[summary.parent];
        showConversation();
        toast(sentence);
    } else if (open && own === conversation && !summary.error) {
        sendMessage(open.content, open.documents);
    }
}
