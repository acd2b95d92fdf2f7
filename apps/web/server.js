// Requests to the server of this page. Every failure becomes a ServerError with a message for the user.

class ServerError extends Error {
    constructor(sentence, status) {
        super(sentence);
        this.status = status; // 0: it did not answer
        this.code = ""; // the server's own name for the error
    }
}

// What the user can do about an error, by its status.
const NEXT_STEPS = {
    413: "Send less at once.",
    429: "Wait a moment, then try again.",
    503: "Wait a moment, then try again.",
    507: "Unload a model, or choose a smaller one.",
};

// The server's own sentence (in English), and the next step.
function errorSentence(status, text) {
    let sentence = "";
    try {
        const error = JSON.parse(text).error;
        sentence = cleanText(typeof error === "string" ? error : error.message, 2000);
    } catch {
        // The error is not JSON: only its status is known.
    }
    if (status === 401) {
        return say("This server wants a key.");
    }
    const next = NEXT_STEPS[status] ?? (sentence ? "" : "Try again; the server's log says more.");
    return [sentence || say("The server answered with error {0}.", status), say(next)].filter(Boolean).join(" ");
}

function parseAnswer(text) {
    try {
        return JSON.parse(text);
    } catch {
        throw new ServerError(say("The server sent an invalid response."), 500);
    }
}

function errorCode(text) {
    try {
        return cleanText(JSON.parse(text).error?.code, 100);
    } catch {
        return "";
    }
}

// Returns a response or throws a ServerError. With `body` it is a POST unless `method` says otherwise; an AbortSignal cancels
// it.
async function callServer(path, body = null, signal = null, { method = body ? "POST" : "GET", more = {} } = {}) {
    const key = passing.read("key");
    const headers = { ...more };
    if (key) {
        headers.Authorization = "Bearer " + key;
    }
    const form = body instanceof FormData;
    if (body && !form) {
        headers["Content-Type"] = "application/json";
    }
    let response = null;
    try {
        response = await fetch(path, {
            method,
            headers,
            signal,
            body: form ? body : body && JSON.stringify(body),
            cache: "no-store",
        });
    } catch (error) {
        throw error.name === "AbortError" ? error : new ServerError(say("The server does not answer."), 0);
    }
    if (!response.ok) {
        const text = await response.text().catch(() => "");
        throw Object.assign(new ServerError(errorSentence(response.status, text), response.status), {
            code: errorCode(text),
        });
    }
    return response;
}

// Yields {id, data} of each server-sent event of a response; without an id of its own it has that of the last one.
async function* serverEvents(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let data = [];
    let id = "";
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done) {
                return;
            }
            const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
            rest = lines.pop();
            for (const line of lines) {
                if (line.startsWith("id:")) {
                    id = line.slice(3).trim();
                } else if (line.startsWith("data:")) {
                    data.push(line.slice(line[5] === " " ? 6 : 5));
                } else if (line === "" && data.length) {
                    yield { id, data: data.join("\n") };
                    data = [];
                }
            }
        }
    } catch (error) {
        throw error.name === "AbortError" ? error : new ServerError(say("The connection to the server broke."), 0);
    } finally {
        reader.cancel().catch(() => {});
    }
}

// The names of all models.
async function fetchModels() {
    const answer = parseAnswer(await (await callServer("/v1/models")).text());
    return (answer.data ?? []).map(model => String(model.id));
}

// ---- streams of answers ---------------------------------------------------------------------------------------------

const streamPath = message => "/v1/streams/" + encodeURIComponent(message.stream);

const openStream = (request, signal) => callServer("/v1/chat/completions", request, signal);

// The stream behind the last event that the message has.
const continueStream = (message, signal) =>
    callServer(streamPath(message), null, signal, { more: message.event ? { "Last-Event-ID": message.event } : {} });

// Ends an answer on the server; it does not matter whether there is one.
function cancelStream(message) {
    if (message.stream) {
        callServer(streamPath(message), null, null, { method: "DELETE" }).catch(() => {});
    }
}

// Reads a stream to its end: calls onChunk with each chunk, and notes the event in the message.
async function readStream(response, message, onChunk) {
    for await (const { id, data } of serverEvents(response)) {
        if (data === "[DONE]") {
            return;
        }
        const chunk = parseAnswer(data);
        if (chunk.error) {
            throw new ServerError(errorSentence(500, data), 500);
        }
        message.event = id || message.event;
        onChunk(chunk);
    }
    throw new ServerError(say("The connection to the server broke before the answer was complete."), 0);
}

// Waits; rejects when the signal is aborted.
function pause(ms, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        signal.addEventListener("abort", () => {
            clearTimeout(timer);
            reject(new DOMException("", "AbortError"));
        });
    });
}
