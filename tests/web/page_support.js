// What the tests of the page share: a server with a key, a browser, answers that are made up, and counting.
"use strict";
const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { chromium } = require("playwright-core");

const KEY = "a-key-for-the-page-tests";
const PAGE_FOLDER = path.join(__dirname, "..", "..", "apps", "web");
const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 900 };

// ---- server and browser ---------------------------------------------------------------------------------------------

function freePort() {
    return new Promise((resolve, reject) => {
        const server = net.createServer();
        server.on("error", reject);
        server.listen(0, "127.0.0.1", () => {
            const { port } = server.address();
            server.close(() => resolve(port));
        });
    });
}

// Starts `spry serve` with the bundled model and more arguments; gives {url, stop, kill, log}. `again`: a server that was
// killed, whose port and files it takes over.
async function startServer(more = [], again = null) {
    const home = again?.home ?? fs.mkdtempSync(path.join(os.tmpdir(), "spry-web-"));
    const port = again?.port ?? (await freePort());
    const keyFile = path.join(home, "keys");
    fs.writeFileSync(keyFile, KEY + " admin\n", { mode: 0o600 });
    const child = spawn(process.env.SPRY, ["serve", "--port", String(port), "--api-key-file", keyFile, ...more], {
        env: { ...process.env, HOME: home },
        stdio: ["ignore", "pipe", "pipe"],
    });
    const server = { url: `http://127.0.0.1:${port}`, log: "", ended: false, home, port };
    child.stdout.on("data", data => {
        server.log += data;
    });
    child.stderr.on("data", data => {
        server.log += data;
    });
    const gone = new Promise(resolve => {
        child.on("exit", resolve);
    });
    gone.then(() => {
        server.ended = true;
    });
    server.stop = async () => {
        child.kill("SIGTERM");
        await gone;
        fs.rmSync(home, { recursive: true, force: true });
    };
    server.kill = async () => {
        child.kill("SIGKILL");
        await gone;
    };
    for (let tries = 0; tries < 1200 && !server.ended; tries++) {
        if (
            await fetch(server.url + "/").then(
                answer => answer.ok,
                () => false,
            )
        ) {
            return server;
        }
        await new Promise(resolve => {
            setTimeout(resolve, 100);
        });
    }
    await server.stop();
    throw new Error("spry serve did not start: " + server.log);
}

// Runs a test against a server of its own.
async function withServer(world, more, work) {
    const server = await startServer(more);
    try {
        await work({ ...world, url: server.url, server });
    } finally {
        await server.stop();
    }
}

function launchBrowser(...more) {
    return chromium.launch({ executablePath: process.env.BROWSER, args: ["--no-sandbox", ...more] });
}

// A fresh page of the server, which knows the key unless told otherwise. page.outside collects requests to anywhere
// else, page.faults what went wrong in it: scripts that threw, words of the content security policy, dialogs; page.logged what the
// console says. `lazy`: messages off the screen are not laid out, as for users.
async function openPage(world, { key = KEY, view = "", before = null, settings = null, lazy = false, ...context } = {}) {
    const browserContext = await world.browser.newContext({ viewport: DESK, ...context });
    const page = await browserContext.newPage();
    page.setDefaultTimeout(Number(process.env.PAGE_TIMEOUT_MS ?? 600000)); // the machine may be busy
    Object.assign(page, { outside: [], faults: [], asked: [], logged: [] });
    page.on("request", request => {
        const url = request.url();
        if (!url.startsWith(world.url) && !/^(data|blob):/.test(url)) {
            page.outside.push(url);
        }
        if (request.headers()["content-type"] === "application/json") {
            page.asked.push(request.postDataJSON());
        }
    });
    page.on("pageerror", error => page.faults.push(error.message));
    page.on("dialog", dialog => {
        page.faults.push("dialog " + dialog.message());
        dialog.dismiss();
    });
    page.on("console", message => {
        page.logged.push(`${message.type()}: ${message.text()} ${message.location().url}`);
        if (/Content Security Policy|Refused to/i.test(message.text())) {
            page.faults.push(message.text());
        }
    });
    await page.addInitScript(
        ([name, chosen]) => {
            if (name && !sessionStorage.getItem("spry.key")) {
                sessionStorage.setItem("spry.key", name);
            }
            if (chosen && !localStorage.getItem("spry.settings")) {
                localStorage.setItem("spry.settings", JSON.stringify(chosen));
            }
        },
        [key, settings],
    );
    if (before) {
        await page.addInitScript(before.script, before.argument);
    }
    if (!lazy) {
        await page.addInitScript(layOutAtOnce);
    }
    await page.goto(world.url + "/" + view);
    if (context.javaScriptEnabled !== false) {
        await page.waitForSelector("html[data-ready]", { state: "attached" }); // the page loads its translation after "load"
    }
    return page;
}

// Runs in the page: messages are laid out at once. With content-visibility: auto, innerText is empty until the browser has
// drawn a frame, which a busy machine may do late.
function layOutAtOnce() {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(".message { content-visibility: visible !important; }");
    document.adoptedStyleSheets.push(sheet);
}

// Ends a page, which has to have behaved.
async function closePage(page) {
    assert.deepEqual(page.faults, []);
    assert.deepEqual(page.outside, []);
    await page.context().close();
}

// ---- answers that are made up ---------------------------------------------------------------------------------------

// Runs in the page: each request to /v1/chat/completions is answered with the next of `answers`, in the end always with
// the last: chunks, one every `delay` ms. The rest is the server's.
function madeUpAnswers({ answers, delay }) {
    const real = window.fetch;
    let at = 0;
    window.fetch = (url, options) => {
        if (url !== "/v1/chat/completions") {
            return real(url, options);
        }
        const chunks = answers[Math.min(at++, answers.length - 1)];
        const encoder = new TextEncoder();
        const texts = [...chunks.map(chunk => JSON.stringify(chunk)), "[DONE]"];
        let read = true;
        const body = new ReadableStream({
            start(stream) {
                const next = () => {
                    if (options.signal.aborted && read) {
                        stream.error(new DOMException("", "AbortError"));
                    } else if (!read) {
                        texts.length = 0;
                    } else if (texts.length === 0) {
                        stream.close();
                    } else {
                        stream.enqueue(encoder.encode("data: " + texts.shift() + "\r\n\r\n"));
                        setTimeout(next, delay);
                    }
                };
                next();
            },
            cancel() {
                read = false;
            },
        });
        return Promise.resolve(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
    };
}

// For openPage: the answers are these texts, one after the other (each after these thoughts), in pieces.
function madeUp(contents, { reasoning = "", delay = 0, size = 4000, timings = undefined } = {}) {
    const pieces = text => text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];
    const delta = part => ({ choices: [{ index: 0, delta: part }] });
    const answers = [contents]
        .flat()
        .map(content => [
            ...pieces(reasoning).map(text => delta({ reasoning_content: text })),
            ...pieces(content).map(text => delta({ content: text })),
            { choices: [{ index: 0, delta: {}, finish_reason: "stop" }], timings },
        ]);
    return { script: madeUpAnswers, argument: { answers, delay } };
}

// Runs in the page: answers of the model do not end by themselves.
function endlessAnswers() {
    const real = window.fetch;
    window.fetch = (url, options) => {
        if (url === "/v1/chat/completions") {
            options.body = JSON.stringify({ ...JSON.parse(options.body), ignore_eos: true });
        }
        return real(url, options);
    };
}

async function send(page, text) {
    await page.fill("#input", text);
    await page.keyboard.press("Enter");
}

// Waits for the answer in progress, and gives its item.
async function answered(page) {
    await page.waitForSelector(".message.assistant");
    await page.waitForFunction(() => !document.querySelector(".writing"));
    return page.locator(".message.assistant").last();
}

// ---- counting -------------------------------------------------------------------------------------------------------

const cases = [];
const test = (name, work) => cases.push({ name, work });

class Skipped extends Error {}

function skip(why) {
    throw new Skipped(why);
}

async function runAll() {
    const server = process.env.PAGE_URL
        ? { url: process.env.PAGE_URL, log: "", stop: async () => {} }
        : await startServer();
    const browser = await launchBrowser();
    const only = process.argv[3] ?? "";
    let passed = 0;
    let failed = 0;
    let skipped = 0;
    for (const { name, work } of cases.filter(one => one.name.includes(only))) {
        try {
            const began = Date.now();
            await work({ browser, url: server.url });
            passed++;
            console.log(`passed ${name} (${Date.now() - began} ms)`);
        } catch (error) {
            if (error instanceof Skipped) {
                skipped++;
                console.log(`SKIPPED ${name}: ${error.message}`);
                continue;
            }
            failed++;
            console.log(`FAILED ${name}: ${error.stack}`);
        }
    }
    await browser.close();
    await server.stop();
    if (failed) {
        console.log(server.log.slice(-4000));
    }
    console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
    process.exitCode = failed || !(passed + skipped) ? 1 : 0;
}

module.exports = {
    DESK,
    KEY,
    PAGE_FOLDER,
    PHONE,
    answered,
    assert,
    closePage,
    endlessAnswers,
    launchBrowser,
    madeUp,
    openPage,
    runAll,
    send,
    skip,
    startServer,
    test,
    withServer,
};
