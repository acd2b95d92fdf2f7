// The request for an answer and its stream. The server keeps the stream under the id that is chosen here (docs/SERVER.md, "Streams
// that go on"), so an answer goes on when the page is reloaded or the connection breaks.

import { requestMessage } from "./documents.js";
import { byId } from "./dom.js";
import { say } from "./language.js";
import { loadPictures } from "./pictures.js";
import { continueStream, noteFailure, pause, readStream, ServerError } from "./server.js";
import { samplingSettings } from "./settings.js";
import { cleanText, cleanTimings, conversationSettings, newId, systemMessage } from "./store.js";
import { callTurns, takeCalls } from "./tools.js";

/** @import { Call, Message, Role, Said, Timings } from "./store.js" */

/**
 * @typedef {object} Answer that is streamed; it need not be part of a conversation
 * @property {Role} role
 * @property {string} content
 * @property {string} reasoning
 * @property {string} finish
 * @property {string} model
 * @property {string} [error]
 * @property {Timings} [timings]
 * @property {string} [stream]
 * @property {string} [event]
 * @property {Call[]} [calls]
 */

const RECONNECT_MS = [200, 1000, 3000, 6000];

// ---- the request ---------------------------------------------------------------------------------------------------

// What is sent of a conversation: from its last summary on.
/** @param {Said[]} path @param {string} [own] */
export function requestMessages(path, own = systemMessage()) {
    const at = path.findLastIndex(message => message.role === "summary");
    const before = at < 0 ? "" : "Summary of the conversation so far:\n" + path[at].content;
    const system = [own, before].filter(Boolean).join("\n\n");
    const said = path
        .slice(at + 1)
        .filter(message => message.role === "user" || message.content !== "" || message.returned);
    const slides = ["slide", "truncate_middle"].includes(conversationSettings().context_overflow);
    return [
        ...(system ? [{ role: "system", content: system }] : []),
        ...said.flatMap(message => (message.returned ? callTurns(message) : [requestMessage(message, slides)])),
    ];
}

/** @param {Said[]} path */
export async function requestBody(path) {
    await loadPictures(path);
    return {
        model: byId("model").value || undefined,
        messages: requestMessages(path),
        stream: true,
        stream_options: { include_usage: true },
        context_overflow: "slide",
        ...samplingSettings(),
    };
}

// ---- streaming -----------------------------------------------------------------------------------------------------

/** @param {Message | Answer} message @param {any} chunk */
export function takeChunk(message, chunk) {
    const choice = chunk.choices?.[0];
    message.content += cleanText(choice?.delta?.content);
    message.reasoning += cleanText(choice?.delta?.reasoning_content);
    takeCalls(message, choice?.delta?.tool_calls);
    message.finish = choice?.finish_reason ?? message.finish;
    message.timings = cleanTimings(chunk.timings) ?? message.timings;
    message.model ||= cleanText(chunk.model, 200);
}

// Follows a stream from its request `begin` on, or from where it broke, to its end.
/**
 * @param {Message | Answer} message
 * @param {AbortSignal} signal
 * @param {() => Promise<Response>} begin
 * @param {(chunk: any) => void} onChunk
 */
export async function followAnswer(message, signal, begin, onChunk) {
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
/** @param {() => void} draw */
export function pacedDrawing(draw) {
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

/** @param {Role} role @returns {Answer} */
export const emptyAnswer = role => ({ role, content: "", reasoning: "", finish: "", model: "", stream: newId(), event: "" });

/** @param {Message | Answer} message */
export const endStream = message => {
    delete message.stream;
    delete message.event;
};

// A server that does not answer may still have the stream: then it is continued when the server is back.
/** @param {Message | Answer} message @param {any} error */
export function failAnswer(message, error) {
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
