// Reading answers aloud: sentence by sentence while the answer is written, the spoken one is marked. Sound comes from
// /v1/audio/speech as samples of 16 bits, 24,000 a second.

const SPEECH_RATE = 24000;
const reading = { on: false, sound: null, item: null, taken: 0, waiting: [], heard: null, source: null, turn: 0 };
reading.busy = false;

// The text of an answer as it is read: without code. `places` are its text nodes with the offset of each.
function readableText(item) {
    const walker = document.createTreeWalker(item.querySelector(".text"), NodeFilter.SHOW_TEXT);
    const places = [];
    let text = "";
    let last = null; // paragraph, item, cell
    while (walker.nextNode()) {
        const parent = walker.currentNode.parentElement;
        const block = parent.closest("p, li, h1, h2, h3, h4, h5, h6, td, th, .code");
        text += last && block !== last ? "\n" : "";
        last = block;
        if (block && !block.matches(".code")) {
            places.push({ node: walker.currentNode, at: text.length });
            text += walker.currentNode.data;
        }
    }
    return { text, places };
}

// The end of the first sentence of `text`, or 0 while it may go on.
function sentenceEnd(text, complete) {
    const end = text.match(/[.!?\u3002\uff01\uff1f]["')\]\u201d]*(?=\s)|\n/);
    return end ? end.index + end[0].length : complete ? text.length : 0;
}

// Marks the sentence that is heard. Drawing more of the answer may replace its nodes, so it is marked again then.
function markHeard() {
    if (!reading.heard || !window.CSS?.highlights) {
        return;
    }
    const { item, sentence, from } = reading.heard;
    const { text, places } = readableText(item);
    const begin = text.indexOf(sentence, from) >= 0 ? text.indexOf(sentence, from) : text.indexOf(sentence);
    const place = at => {
        const { node, at: start } = places.findLast(one => one.at <= at);
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

async function fetchSpeech(sentence) {
    const response = await callServer("/v1/audio/speech", { input: sentence, response_format: "pcm" });
    const samples = new Int16Array(await response.arrayBuffer());
    const buffer = reading.sound.createBuffer(1, Math.max(samples.length, 1), SPEECH_RATE);
    buffer.copyToChannel(Float32Array.from(samples, sample => sample / 32768), 0);
    return buffer;
}

function playBuffer(buffer) {
    return new Promise(resolve => {
        reading.source = new AudioBufferSourceNode(reading.sound, { buffer });
        reading.source.connect(reading.sound.destination);
        reading.source.onended = resolve;
        reading.source.start();
    });
}

// Speaks what waits; the next sentence is fetched while one is heard.
async function readOn() {
    const turn = reading.turn;
    reading.busy = true;
    try {
        while (turn === reading.turn && reading.waiting.length) {
            const entry = reading.waiting.shift();
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
function readAnswer(item, complete) {
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

const isReading = () => reading.busy;

function stopReading() {
    reading.turn++;
    reading.waiting = [];
    reading.busy = false;
    reading.item = null;
    reading.taken = 0;
    reading.source?.stop();
    reading.source = null;
    unmark();
}

function toggleReading(on = !reading.on) {
    reading.on = on;
    reading.sound ??= on ? new AudioContext() : null;
    reading.sound?.resume();
    byId("speaker").setAttribute("aria-pressed", String(on));
    byId("speaker").title = on ? say("Answers are read aloud") : say("Read answers aloud");
    if (!on) {
        stopReading();
    }
}
