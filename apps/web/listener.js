// Talking to the page. Held, the microphone's button records until it is released; clicked, it listens until it is
// clicked again and takes each utterance as a message. While an utterance is spoken its words so far are shown.

const HOLD_MS = 350; // a longer press is holding
const QUIET_MS = 700; // an utterance ends after this
const PARTIAL_MS = 900; // between two looks at the words so far
const BEFORE_BLOCKS = 15; // of sound, kept from before the first loud one
const LONGEST_S = 120;

// mode: "" (off), "hold" or "free"; blocks: the samples of the utterance, or of the last moment before one.
const listening = { mode: "", context: null, stream: null, blocks: [], speaking: false, loudAt: 0, askedAt: 0 };
listening.noise = 1;
listening.asking = false;
listening.turn = 0;

function wavOf(blocks, rate) {
    const count = blocks.reduce((sum, block) => sum + block.length, 0);
    const view = new DataView(new ArrayBuffer(44 + 2 * count));
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

async function recognise(blocks) {
    const form = new FormData();
    form.append("file", wavOf(blocks, listening.context.sampleRate), "speech.wav");
    const answer = parseAnswer(await (await callServer("/v1/audio/transcriptions", form)).text());
    return cleanText(answer.text).trim();
}

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
            sendMessage(words);
        }
    } catch (error) {
        showHeard("");
        noteFailure(error);
        toast(error.message);
    }
}

function levelOf(block) {
    return Math.sqrt(block.reduce((sum, sample) => sum + sample * sample, 0) / block.length);
}

// A block is loud when it is well above the least level of the last seconds.
function isLoud(level) {
    listening.noise = Math.min(Math.max(level, 1e-4), listening.noise * 1.005);
    return level > Math.max(4 * listening.noise, 0.008);
}

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
            stopWriting();
            stopReading();
        }
    }
    listening.quietAt = loud ? listening.quietAt : now;
    const seconds = (listening.blocks.length * block.length) / listening.context.sampleRate;
    if (!listening.speaking) {
        listening.blocks.splice(0, listening.blocks.length - BEFORE_BLOCKS);
    } else if ((listening.mode === "free" && now - listening.loudAt > QUIET_MS) || seconds > LONGEST_S) {
        endUtterance();
    } else if (!listening.asking && now - listening.askedAt > PARTIAL_MS) {
        showWordsSoFar();
    }
}

async function startListening(mode) {
    const constraints = { audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } };
    listening.mode = mode;
    showListening();
    try {
        listening.stream = await navigator.mediaDevices.getUserMedia(constraints);
        listening.context = new AudioContext();
        await listening.context.audioWorklet.addModule("/microphone.js");
    } catch (error) {
        stopListening();
        toast(
            error.name === "NotAllowedError"
                ? say("The browser does not allow the microphone. Allow it beside the address.")
                : say("No microphone was found."),
        );
        return;
    }
    if (!listening.mode) {
        stopListening(); // released before the microphone was open
        return;
    }
    Object.assign(listening, { blocks: [], speaking: false, noise: 1, quietAt: 0, loudAt: 0 });
    const node = new AudioWorkletNode(listening.context, "microphone", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => listening.mode && takeSound(data);
    listening.context.createMediaStreamSource(listening.stream).connect(node);
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
async function offerSpeech() {
    try {
        const parts = parseAnswer(await (await callServer("/v1/audio")).text());
        byId("speaker").hidden = !parts.synthesiser;
        byId("microphone").hidden = !parts.recogniser || !navigator.mediaDevices;
    } catch {
        // Without an answer there are no buttons; the banner says why.
    }
}

function startSpeech() {
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
