// Speech. Talking to the page: held, the microphone's button records until it is released; clicked, it listens until it is clicked
// again and takes each utterance as a message. While an utterance is spoken its words so far are shown. Reading answers aloud:
// sentence by sentence while the answer is written, the spoken one is marked.

import { byId, inside, toast } from "./dom.js";
import { finite, say } from "./language.js";
import { callServer, noteFailure, parseAnswer } from "./server.js";
import { cleanText } from "./store.js";

// ---- reading answers aloud -----------------------------------------------------------------------------------------

const SPEECH_RATE = 24000;
/**
 * @typedef {{ item: HTMLElement, sentence: string, from: number, sound?: Promise<AudioBuffer> }} Sentence
 *
 * @typedef {object} Reading
 * @property {boolean} on
 * @property {boolean} busy
 * @property {AudioContext | null} sound
 * @property {HTMLElement | null} item the answer that is read
 * @property {number} taken characters of it that are queued
 * @property {Sentence[]} waiting
 * @property {Sentence | null} heard
 * @property {AudioBufferSourceNode | null} source
 * @property {number} turn changes when reading is stopped
 */

/** @type {Reading} */
const reading = { on: false, sound: null, item: null, taken: 0, waiting: [], heard: null, source: null, turn: 0, busy: false };

// The context for sounds, made when it is first needed: the browser wants a click before.
const openSound = () => (reading.sound ??= new AudioContext());

// The text of an answer as it is read: without code. `places` are its text nodes with the offset of each.
/** @param {HTMLElement} item */
function readableText(item) {
    const walker = document.createTreeWalker(inside(item, ".text"), NodeFilter.SHOW_TEXT);
    const places = [];
    let text = "";
    let last = null; // paragraph, item, cell
    while (walker.nextNode()) {
        const node = /** @type {Text} */ (walker.currentNode);
        const block = node.parentElement?.closest("p, li, h1, h2, h3, h4, h5, h6, td, th, .code");
        text += last && block !== last ? "\n" : "";
        last = block;
        if (block && !block.matches(".code")) {
            places.push({ node, at: text.length });
            text += node.data;
        }
    }
    return { text, places };
}

// The end of the first sentence of `text`, or 0 while it may go on.
/** @param {string} text @param {boolean} complete */
function sentenceEnd(text, complete) {
    const end = text.match(/[.!?\u3002\uff01\uff1f]["')\]\u201d]*(?=\s)|\n/);
    return end ? finite(end.index) + end[0].length : complete ? text.length : 0;
}

// Marks the sentence that is heard. Drawing more of the answer may replace its nodes, so it is marked again then.
function markHeard() {
    if (!reading.heard || !window.CSS?.highlights) {
        return;
    }
    const { item, sentence, from } = reading.heard;
    const { text, places } = readableText(item);
    const begin = text.indexOf(sentence, from) >= 0 ? text.indexOf(sentence, from) : text.indexOf(sentence);
    /** @param {number} at @returns {[Text, number]} */
    const place = at => {
        const { node, at: start } = places.findLast(one => one.at <= at) ?? places[0];
        return [node, Math.min(at - start, node.length)];
    };
    const range = document.createRange();
    if (begin < 0 || places.length === 0) {
        return;
    }
    range.setStart(...place(begin));
    range.setEnd(...place(begin + sentence.length));
    CSS.highlights.set("spoken", new Highlight(range));
}

function unmark() {
    reading.heard = null;
    window.CSS?.highlights?.delete("spoken");
}

/** @param {string} sentence */
async function fetchSpeech(sentence) {
    const response = await callServer("/v1/audio/speech", { input: sentence, response_format: "pcm" });
    const samples = new Int16Array(await response.arrayBuffer());
    const buffer = openSound().createBuffer(1, Math.max(samples.length, 1), SPEECH_RATE);
    buffer.copyToChannel(Float32Array.from(samples, sample => sample / 32768), 0);
    return buffer;
}

/** @param {AudioBuffer} buffer */
function playBuffer(buffer) {
    return new Promise(resolve => {
        const source = (reading.source = new AudioBufferSourceNode(openSound(), { buffer }));
        source.connect(openSound().destination);
        source.onended = resolve;
        source.start();
    });
}

// Speaks what waits; the next sentence is fetched while one is heard.
async function readOn() {
    const turn = reading.turn;
    reading.busy = true;
    try {
        while (turn === reading.turn && reading.waiting.length) {
            const entry = /** @type {Sentence} */ (reading.waiting.shift());
            const buffer = await (entry.sound ?? fetchSpeech(entry.sentence));
            const next = reading.waiting[0];
            if (next) {
                next.sound ??= fetchSpeech(next.sentence);
                next.sound.catch(() => {});
            }
            if (turn === reading.turn) {
                reading.heard = entry;
                markHeard();
                await playBuffer(buffer);
            }
        }
    } catch (error) {
        noteFailure(error);
        toast(error.message);
        stopReading();
    }
    if (turn === reading.turn) {
        reading.busy = false;
        unmark();
    }
}

// Called whenever more of an answer is shown. Sentences that are whole are queued.
/** @param {HTMLElement} item @param {boolean} complete */
export function readAnswer(item, complete) {
    if (!reading.on) {
        return;
    }
    if (reading.item !== item) {
        stopReading();
        reading.item = item;
    }
    markHeard();
    const { text } = readableText(item);
    for (let end; (end = sentenceEnd(text.slice(reading.taken), complete)); reading.taken += end) {
        const sentence = text.slice(reading.taken, reading.taken + end).trim();
        if (/[\p{L}\p{N}]/u.test(sentence)) {
            /** @type {Sentence} */
            const entry = { item, sentence, from: reading.taken };
            if (reading.waiting.length === 0) {
                entry.sound = fetchSpeech(sentence);
                entry.sound.catch(() => {});
            }
            reading.waiting.push(entry);
        }
    }
    if (!reading.busy && reading.waiting.length) {
        readOn();
    }
}

export const isReading = () => reading.busy;

export function stopReading() {
    reading.turn++;
    reading.waiting = [];
    reading.busy = false;
    reading.item = null;
    reading.taken = 0;
    reading.source?.stop();
    reading.source = null;
    unmark();
}

/** @param {boolean} [on] */
function toggleReading(on = !reading.on) {
    reading.on = on;
    if (on) {
        openSound();
    }
    reading.sound?.resume();
    byId("speaker").setAttribute("aria-pressed", String(on));
    byId("speaker").title = on ? say("Answers are read aloud") : say("Read answers aloud");
    if (!on) {
        stopReading();
    }
}

// ---- listening -----------------------------------------------------------------------------------------------------

const voiceHooks = { take: (/** @type {string} */ words) => {}, interrupt: () => {} };

const HOLD_MS = 350; // a longer press is holding
const QUIET_MS = 700; // an utterance ends after this
const PARTIAL_MS = 900; // between two looks at the words so far
const BEFORE_BLOCKS = 15; // of sound, kept from before the first loud one
const LONGEST_S = 120;

/**
 * @typedef {object} Listening
 * @property {string} mode "" (off), "hold" or "free"
 * @property {AudioContext | null} context
 * @property {MediaStream | null} stream
 * @property {Float32Array[]} blocks the samples of the utterance, or of the last moment before one
 * @property {boolean} speaking
 * @property {number} loudAt
 * @property {number} quietAt
 * @property {number} askedAt when the words so far were asked for
 * @property {number} noise the least level of the last seconds
 * @property {boolean} asking
 * @property {number} turn the number of the utterance
 */

/** @type {Listening} */
const listening = {
    mode: "",
    context: null,
    stream: null,
    blocks: [],
    speaking: false,
    loudAt: 0,
    quietAt: 0,
    askedAt: 0,
    noise: 1,
    asking: false,
    turn: 0,
};

const sampleRate = () => listening.context?.sampleRate ?? 48000;

/** @param {Float32Array[]} blocks @param {number} rate */
function wavOf(blocks, rate) {
    const count = blocks.reduce((sum, block) => sum + block.length, 0);
    const view = new DataView(new ArrayBuffer(44 + 2 * count));
    /** @param {number} at @param {string} letters */
    const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
    text(0, "RIFF");
    view.setUint32(4, 36 + 2 * count, true);
    text(8, "WAVEfmt ");
    view.setUint32(16, 16, true);
    view.setUint16(20, 1, true);
    view.setUint16(22, 1, true);
    view.setUint32(24, rate, true);
    view.setUint32(28, 2 * rate, true);
    view.setUint16(32, 2, true);
    view.setUint16(34, 16, true);
    text(36, "data");
    view.setUint32(40, 2 * count, true);
    let at = 44;
    for (const block of blocks) {
        for (const sample of block) {
            view.setInt16(at, Math.max(-1, Math.min(1, sample)) * 32767, true);
            at += 2;
        }
    }
    return new Blob([view], { type: "audio/wav" });
}

/** @param {Float32Array[]} blocks */
async function recognise(blocks) {
    const form = new FormData();
    form.append("file", wavOf(blocks, sampleRate()), "speech.wav");
    const answer = parseAnswer(await (await callServer("/v1/audio/transcriptions", form)).text());
    return cleanText(answer.text).trim();
}

/** @param {string} text */
function showHeard(text) {
    byId("heard").textContent = text;
    byId("heard").hidden = text === "" && !listening.mode;
}

async function showWordsSoFar() {
    const turn = listening.turn;
    listening.asking = true;
    listening.askedAt = performance.now();
    try {
        const words = await recognise(listening.blocks);
        if (turn === listening.turn && listening.speaking) {
            showHeard(words + "\u2026");
        }
    } catch {
        // The whole utterance is recognised in the end, and its failure is shown.
    }
    listening.asking = false;
}

async function endUtterance() {
    const blocks = listening.blocks;
    const turn = ++listening.turn;
    listening.speaking = false;
    listening.blocks = [];
    if (blocks.length <= BEFORE_BLOCKS) {
        showHeard("");
        return;
    }
    try {
        const words = await recognise(blocks);
        if (turn === listening.turn) {
            showHeard("");
        }
        if (words) {
            voiceHooks.take(words);
        }
    } catch (error) {
        showHeard("");
        noteFailure(error);
        toast(error.message);
    }
}

/** @param {Float32Array} block */
function levelOf(block) {
    return Math.sqrt(block.reduce((sum, sample) => sum + sample * sample, 0) / block.length);
}

// A block is loud when it is well above the least level of the last seconds.
/** @param {number} level */
function isLoud(level) {
    listening.noise = Math.min(Math.max(level, 1e-4), listening.noise * 1.005);
    return level > Math.max(4 * listening.noise, 0.008);
}

/** @param {Float32Array} block */
function takeSound(block) {
    const now = performance.now();
    const level = levelOf(block);
    const loud = isLoud(level);
    byId("microphone").style.setProperty("--level", Math.min(1, level * 8).toFixed(2));
    listening.blocks.push(block);
    listening.loudAt = loud ? now : listening.loudAt;
    if (!listening.speaking && (listening.mode === "hold" || (loud && now - listening.quietAt > 60))) {
        listening.speaking = true;
        listening.askedAt = now;
        if (isReading()) {
            voiceHooks.interrupt();
            stopReading();
        }
    }
    listening.quietAt = loud ? listening.quietAt : now;
    const seconds = (listening.blocks.length * block.length) / sampleRate();
    if (!listening.speaking) {
        listening.blocks.splice(0, listening.blocks.length - BEFORE_BLOCKS);
    } else if ((listening.mode === "free" && now - listening.loudAt > QUIET_MS) || seconds > LONGEST_S) {
        endUtterance();
    } else if (!listening.asking && now - listening.askedAt > PARTIAL_MS) {
        showWordsSoFar();
    }
}

/** @param {string} mode */
async function startListening(mode) {
    const constraints = { audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } };
    listening.mode = mode;
    showListening();
    try {
        listening.stream = await navigator.mediaDevices.getUserMedia(constraints);
        const context = (listening.context = new AudioContext());
        await context.audioWorklet.addModule("/microphone.js");
    } catch (error) {
        stopListening();
        toast(
            error.name === "NotAllowedError"
                ? say("The browser does not allow the microphone. Allow it beside the address.")
                : say("No microphone was found."),
        );
        return;
    }
    const { context, stream } = listening;
    if (!listening.mode || !context || !stream) {
        stopListening(); // released before the microphone was open
        return;
    }
    Object.assign(listening, { blocks: [], speaking: false, noise: 1, quietAt: 0, loudAt: 0 });
    const node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => listening.mode && takeSound(data);
    context.createMediaStreamSource(stream).connect(node);
}

function stopListening() {
    listening.mode = "";
    listening.speaking = false;
    listening.stream?.getTracks().forEach(track => track.stop());
    listening.stream = null;
    byId("microphone").style.removeProperty("--level");
    showListening();
}

function showListening() {
    const on = listening.mode !== "";
    const label = on ? say("Stop listening") : say("Speak (hold, or click to keep listening)");
    byId("microphone").setAttribute("aria-pressed", String(on));
    byId("microphone").setAttribute("aria-label", label);
    byId("microphone").title = label;
    showHeard(on ? say("Listening\u2026") : "");
}

async function releaseMicrophone() {
    if (listening.speaking) {
        const ended = endUtterance();
        stopListening();
        await ended;
    } else {
        stopListening();
    }
}

// Shows the buttons for what the server can do.
export async function offerSpeech() {
    try {
        const parts = parseAnswer(await (await callServer("/v1/audio")).text());
        byId("speaker").hidden = !parts.synthesiser;
        byId("microphone").hidden = !parts.recogniser || !navigator.mediaDevices;
    } catch {
        // Without an answer there are no buttons; the banner says why.
    }
}

// `take` is called with the words of each utterance, `interrupt` when the user speaks while an answer is read.
/** @param {(words: string) => void} take @param {() => void} interrupt */
export function startSpeech(take, interrupt) {
    Object.assign(voiceHooks, { take, interrupt });
    const button = byId("microphone");
    let pressedAt = 0;
    button.addEventListener("pointerdown", event => {
        pressedAt = performance.now();
        button.setPointerCapture(event.pointerId); // a release elsewhere counts, too
        if (!listening.mode) {
            startListening("hold");
        }
    });
    button.addEventListener("click", () => {
        const held = pressedAt && performance.now() - pressedAt > HOLD_MS;
        const fresh = pressedAt && listening.mode === "hold";
        pressedAt = 0;
        if (held || listening.mode === "free") {
            releaseMicrophone();
        } else if (fresh) {
            Object.assign(listening, { mode: "free", speaking: false });
        } else {
            startListening("free"); // by the keyboard
        }
    });
    button.addEventListener("pointercancel", releaseMicrophone);
    byId("speaker").addEventListener("click", () => toggleReading());
}
