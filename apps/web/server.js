// Requests to the server of this page. Every failure becomes a ServerError with a message for the user.

import { byId, setText } from "./dom.js";
import { say } from "./language.js";
import { cleanText, listOf, passing } from "./store.js";

/** @typedef {{ stream?: string, event?: string }} Streamed a message with the id of its stream and its last event */

export class ServerError extends Error {
    /** @param {string} sentence @param {number} status */
    constructor(sentence, status) {
        super(sentence);
        this.status = status; // 0: it did not answer
        this.code = ""; // the server's own name for the error
    }
}

// What the user can do about an error, by its status.
/** @type {Record<number, string>} */
const NEXT_STEPS = {
    413: "Send less at once.",
    429: "Wait a moment, then try again.",
    503: "Wait a moment, then try again.",
    507: "Unload a model, or choose a smaller one.",
};

// The server's own sentence (in English), and the next step.
/** @param {number} status @param {string} text */
export function errorSentence(status, text) {
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

/** @param {string} text */
export function parseAnswer(text) {
    try {
        return JSON.parse(text);
    } catch {
        throw new ServerError(say("The server sent an invalid response."), 500);
    }
}

/** @param {string} text */
function errorCode(text) {
    try {
        return cleanText(JSON.parse(text).error?.code, 100);
    } catch {
        return "";
    }
}

// Returns a response or throws a ServerError. With `body` it is a POST unless `method` says otherwise; an AbortSignal cancels
// it.
/**
 * @param {string} path
 * @param {any} [body]
 * @param {AbortSignal | null} [signal]
 * @param {{ method?: string, more?: Record<string, string> }} [options]
 */
export async function callServer(path, body = null, signal = null, { method = body ? "POST" : "GET", more = {} } = {}) {
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

// Reads the body of a response as text.
/** @param {Response} response @returns {ReadableStreamDefaultReader<string>} */
export function textReader(response) {
    const body = response.body ?? new ReadableStream({ start: stream => stream.close() });
    return body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
}

// Yields {id, data} of each server-sent event of a response; without an id of its own it has that of the last one.
/** @param {Response} response */
export async function* serverEvents(response) {
    const reader = textReader(response);
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
            rest = lines.pop() ?? "";
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

/** @typedef {{ libraries: string[], bundled: string, chats: boolean, pull: boolean }} Features */

/** @type {Promise<Features> | null} */
let features = null;

// What the server has and allows: the paths of its libraries, the model that comes with the program,
// stored chats, pulling models. It is asked once.
/** @returns {Promise<Features>} */
export function serverFeatures() {
    features ??= callServer("/page.json").then(async response => {
        const answer = parseAnswer(await response.text());
        return {
            libraries: listOf(answer.libraries),
            bundled: cleanText(answer.bundled, 200),
            chats: answer.chats === true,
            pull: answer.pull === true,
        };
    });
    return features;
}

// The names of all models.
export async function fetchModels() {
    const answer = parseAnswer(await (await callServer("/v1/models")).text());
    return listOf(answer.data).map(model => ({ name: String(model?.id), sees: seesOf(model) }));
}

// Whether a model of /v1/models can see pictures: "yes" or "no"; "": it is not loaded, so this is not known.
/** @param {any} model */
export function seesOf(model) {
    const inputs = listOf(model?.architecture?.input_modalities);
    return inputs.length === 0 ? "" : inputs.includes("image") ? "yes" : "no";
}

// ---- streams of answers --------------------------------------------------------------------------------------------

/** @param {Streamed} message */
const streamPath = message => "/v1/streams/" + encodeURIComponent(message.stream ?? "");

/** @param {object} request @param {AbortSignal} signal */
export const openStream = (request, signal) => callServer("/v1/chat/completions", request, signal);

// The stream after the last event that the message has.
/** @param {Streamed} message @param {AbortSignal} signal */
export const continueStream = (message, signal) =>
    callServer(streamPath(message), null, signal, { more: message.event ? { "Last-Event-ID": message.event } : {} });

// Ends an answer on the server; it does not matter whether there is one.
/** @param {Streamed} message */
export function cancelStream(message) {
    if (message.stream) {
        callServer(streamPath(message), null, null, { method: "DELETE" }).catch(() => {});
    }
}

// Reads a stream to its end: calls onChunk with each chunk, and notes the event in the message.
/** @param {Response} response @param {Streamed} message @param {(chunk: any) => void} onChunk */
export async function readStream(response, message, onChunk) {
    for await (const { id, data } of serverEvents(response)) {
        if (data === "[DONE]") {
            return;
        }
        const chunk = parseAnswer(data);
        if (chunk.error) {
            throw Object.assign(new ServerError(errorSentence(500, data), 500), { code: errorCode(data) });
        }
        message.event = id || message.event;
        onChunk(chunk);
    }
    throw new ServerError(say("The connection to the server broke before the answer was complete."), 0);
}

// Waits; rejects when the signal is aborted.
/** @param {number} ms @param {AbortSignal} signal */
export function pause(ms, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        signal.addEventListener("abort", () => {
            clearTimeout(timer);
            reject(new DOMException("", "AbortError"));
        });
    });
}

// ---- the banner for a server that does not answer ------------------------------------------------------------------

let retryTimer = 0;
let reachAgain = () => {};

// `reach` is called to try again after a failure.
/** @param {() => void} reach */
export const retryWith = reach => {
    reachAgain = reach;
};

// With `wantsKey` the banner has a field for it instead of a button.
/** @param {string} text @param {{ button?: string, action?: (() => void) | null, wantsKey?: boolean }} [options] */
export function showBanner(text, { button = "", action = null, wantsKey = false } = {}) {
    const opened = wantsKey && byId("banner-key").hidden;
    clearTimeout(retryTimer);
    byId("banner").hidden = text === "";
    setText(byId("banner-text"), text);
    byId("banner-button").textContent = button;
    byId("banner-button").onclick = action;
    byId("banner-key").hidden = !wantsKey;
    if (opened) {
        byId("banner-key-text").value = "";
    }
}

// Called with every error. An error of the whole server is shown in the banner until it is resolved.
/** @param {any} error */
export function noteFailure(error) {
    if (error.status === 401) {
        const wrong = passing.read("key");
        showBanner(wrong ? say("This server does not accept the key. Enter another one.") : say("This server wants a key."), {
            wantsKey: true,
        });
    } else if (error.status === 0) {
        features = null; // another server may answer next
        showBanner(say("The server does not answer. Is it running? The page tries again every few seconds."), {
            button: say("Try now"),
            action: reachAgain,
        });
        retryTimer = setTimeout(reachAgain, 3000);
    }
}
