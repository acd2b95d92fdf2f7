// Speaking to the page and being read to: chromium's fake microphone hears a sentence that spry's own voice says; the
// server's recogniser writes it down.
"use strict";
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { KEY, answered, assert, closePage, launchBrowser, madeUp, openPage, send, skip, test } = require("./page_support.js");

const QUESTION = "Hello, tell me a story about the fox and the river.";
const QUICK = { temperature: 0, max_tokens: 12 };

async function speechParts(world) {
    const answer = await fetch(world.url + "/v1/audio", { headers: { Authorization: "Bearer " + KEY } });
    return answer.json();
}

const SILENCE_S = 60;

// Makes a WAV file end with silence.
function addSilence(file) {
    const sound = fs.readFileSync(file);
    const silence = Buffer.alloc(SILENCE_S * sound.readUInt32LE(28)); // bytes a second
    sound.writeUInt32LE(sound.readUInt32LE(4) + silence.length, 4);
    sound.writeUInt32LE(sound.readUInt32LE(40) + silence.length, 40);
    fs.writeFileSync(file, Buffer.concat([sound, silence]));
}

// Calls work(world) with a browser whose microphone hears the question, then silence, and this again: a busy machine may listen
// too late for the first time.
async function withMicrophone(world, work) {
    const parts = await speechParts(world);
    if (!parts.recogniser || !parts.synthesiser) {
        skip("the server was built without a recogniser or a synthesiser");
    }
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "spry-voice-"));
    const file = path.join(folder, "question.wav");
    execFileSync(process.env.SPRY, ["voice", "--say", QUESTION, "--out", file], { stdio: "ignore" });
    addSilence(file);
    const browser = await launchBrowser(
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        `--use-file-for-fake-audio-capture=${file}`,
    );
    try {
        await work({ ...world, browser });
    } finally {
        await browser.close();
        fs.rmSync(folder, { recursive: true });
    }
}

// Collects everything that is shown as heard, and the levels of the meter.
function watchListening(page) {
    return page.evaluate(() => {
        window.seen = { heard: [], levels: [] };
        const look = () => {
            window.seen.heard.push(document.getElementById("heard").textContent);
            window.seen.levels.push(Number(document.getElementById("microphone").style.getPropertyValue("--level")));
            requestAnimationFrame(look);
        };
        look();
    });
}

test("a click listens, shows the words so far, and sends the utterance", world =>
    withMicrophone(world, async own => {
        const page = await openPage(own, { settings: QUICK });
        await page.waitForSelector("#microphone:not([hidden])");
        await watchListening(page);
        await page.click("#microphone");
        const item = await answered(page);
        const said = await page.innerText(".message.user .bubble");
        assert.match(said, /story/i, said);
        assert.match(said, /river/i, said);
        assert.ok((await item.locator(".text").innerText()).trim());
        const seen = await page.evaluate(() => window.seen);
        assert.ok(seen.heard.includes("Listening\u2026"));
        assert.ok(Math.max(...seen.levels) > 0.1 && Math.min(...seen.levels) < 0.05);
        assert.equal(await page.getAttribute("#microphone", "aria-pressed"), "true");
        await page.click("#microphone");
        assert.equal(await page.getAttribute("#microphone", "aria-pressed"), "false");
        assert.equal(await page.isHidden("#heard"), true);
        await closePage(page);
    }));

test("held, the microphone sends what was said until it is released", world =>
    withMicrophone(world, async own => {
        const page = await openPage(own, { settings: QUICK });
        await page.waitForSelector("#microphone:not([hidden])");
        await page.hover("#microphone");
        await page.mouse.down();
        await page.waitForFunction(() => /\w \w.*\u2026$/.test(document.getElementById("heard").textContent));
        await page.mouse.move(5, 5);
        await page.mouse.up();
        await page.waitForSelector(".message.user");
        assert.ok((await page.innerText(".message.user .bubble")).trim());
        assert.equal(await page.getAttribute("#microphone", "aria-pressed"), "false");
        await closePage(page);
    }));

test("without a microphone a sentence says so", async world => {
    if (!(await speechParts(world)).recogniser) {
        skip("the server was built without a recogniser");
    }
    const page = await openPage(world);
    await page.waitForSelector("#microphone:not([hidden])");
    await page.click("#microphone");
    await page.waitForSelector("#toast:not([hidden])");
    assert.match(await page.innerText("#toast-text"), /microphone/);
    assert.equal(await page.getAttribute("#microphone", "aria-pressed"), "false");
    await closePage(page);
});

// Records the sentence that is marked, whenever it changes.
function watchMarks(page) {
    return page.evaluate(() => {
        window.marks = [];
        const look = () => {
            const mark = [...(CSS.highlights.get("spoken") ?? [])].map(String).join("");
            if (mark && window.marks.at(-1) !== mark) {
                window.marks.push(mark);
            }
            requestAnimationFrame(look);
        };
        look();
    });
}

test("answers are read sentence by sentence, the spoken one is marked, code is left out", async world => {
    if (!(await speechParts(world)).synthesiser) {
        skip("the server was built without a synthesiser");
    }
    const text = "One **bold** fox. Two!\n\n```\nnot = this\n```\n\n- A last item";
    const page = await openPage(world, { before: madeUp(text, { size: 5, delay: 20 }) });
    await page.waitForSelector("#speaker:not([hidden])");
    await page.click("#speaker");
    assert.equal(await page.getAttribute("#speaker", "aria-pressed"), "true");
    await watchMarks(page);
    await send(page, "Read to me.");
    await page.waitForFunction(() => window.marks.length >= 3 && !CSS.highlights.has("spoken"));
    assert.deepEqual(await page.evaluate(() => window.marks), ["One bold fox.", "Two!", "A last item"]);
    assert.deepEqual(
        page.asked.filter(body => body.input).map(body => body.input),
        ["One bold fox.", "Two!", "A last item"],
    );
    await closePage(page);
});

test("Escape and a new message stop the reading", async world => {
    if (!(await speechParts(world)).synthesiser) {
        skip("the server was built without a synthesiser");
    }
    const long = "This is a sentence that takes a while to say aloud. ".repeat(20);
    const page = await openPage(world, { before: madeUp(long) });
    await page.waitForSelector("#speaker:not([hidden])");
    await page.click("#speaker");
    await send(page, "Read to me.");
    await page.waitForFunction(() => CSS.highlights.has("spoken"));
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !CSS.highlights.has("spoken"));
    const count = page.asked.length;
    await page.waitForTimeout(600);
    assert.equal(page.asked.length, count);
    await send(page, "And again.");
    await page.waitForFunction(() => CSS.highlights.has("spoken"));
    await page.click("#speaker");
    await page.waitForFunction(() => !CSS.highlights.has("spoken"));
    await closePage(page);
});
