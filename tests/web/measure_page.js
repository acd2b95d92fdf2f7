// Measures the page in chromium: `test_page.sh measure` prints scripting and all work of the main thread for each token of an
// answer in a long conversation, the same for awkward answers, the time to load, and the compressed size. It judges nothing:
// the figures depend on the machine.
"use strict";
const zlib = require("node:zlib");
const { answered, launchBrowser, madeUp, openPage, send, startServer } = require("./page_support.js");

const TURNS = 2000;
const WORDS = "The fox went down to the river, where it met a hen that could read. ";

// A stored conversation of many turns, made before the page starts.
function longConversation(turns) {
    const messages = [];
    for (let at = 0; at < turns; at++) {
        messages.push({ id: `q${at}`, parent: at ? `a${at - 1}` : "", role: "user", content: `Question ${at}: what happened then?` });
        messages.push({ id: `a${at}`, parent: `q${at}`, role: "assistant", content: `Answer ${at}. ` + "It went on for a while. ".repeat(8) });
    }
    if (!localStorage.getItem("spry.chats")) {
        localStorage.setItem("spry.chat.long", JSON.stringify({ id: "long", title: "Long", updated: 1, messages, chosen: {} }));
        localStorage.setItem("spry.chats", JSON.stringify([{ id: "long", title: "Long", updated: 1, saved: 0 }]));
        localStorage.setItem("spry.open", "long");
    }
}

async function metrics(session) {
    const { metrics: list } = await session.send("Performance.getMetrics");
    return Object.fromEntries(list.map(({ name, value }) => [name, 1000 * value]));
}

// Answers once and prints the work of the main thread for it.
async function measureAnswer(world, name, { before, prepare = null, pieces }) {
    const page = await openPage(world, { before, lazy: true });
    if (prepare) {
        await page.addInitScript(prepare.script, prepare.argument);
        await page.reload();
        await page.waitForFunction(() => document.querySelectorAll(".message").length === 60);
    }
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable");
    const began = await metrics(session);
    await page.evaluate(() => {
        window.longest = 0;
        new PerformanceObserver(list => {
            window.longest = Math.max(window.longest, ...list.getEntries().map(entry => entry.duration));
        }).observe({ type: "longtask" });
    });
    await send(page, "Go on.");
    await answered(page);
    const ended = await metrics(session);
    const longest = await page.evaluate(() => window.longest);
    const each = key => (ended[key] - began[key]) / pieces;
    const [script, all] = [each("ScriptDuration"), each("TaskDuration")];
    console.log(
        `${name}: scripting ${script.toFixed(2)} ms and all work ${all.toFixed(2)} ms a piece, ` +
            `longest task ${Math.round(longest)} ms`,
    );
    await page.context().close();
}

async function measureLoad(world) {
    const times = [];
    for (let run = 0; run < 7; run++) {
        const page = await openPage(world, { lazy: true });
        await page.waitForSelector("#model option", { state: "attached" });
        times.push(
            await page.evaluate(() => {
                const [entry] = performance.getEntriesByType("navigation");
                const [paint] = performance.getEntriesByName("first-contentful-paint");
                return [entry.loadEventEnd, paint?.startTime ?? 0];
            }),
        );
        await page.context().close();
    }
    const median = at => times.map(one => one[at]).sort((a, b) => a - b)[3].toFixed(0);
    console.log(`load from loopback, median of 7, nothing cached: loaded after ${median(0)} ms, first paint after ${median(1)} ms`);
}

async function measureSize(world) {
    let bytes = 0;
    const html = await (await fetch(world.url + "/")).text();
    const linked = [...html.matchAll(/(?:href|src)="(\/[\w.]+)"/g)].map(([, path]) => path);
    for (const path of ["/", ...new Set(linked)]) {
        bytes += zlib.gzipSync(Buffer.from(await (await fetch(world.url + path)).arrayBuffer()), { level: 9 }).length;
    }
    console.log(`size: ${bytes} bytes compressed`);
}

const tokens = count => WORDS.repeat(Math.ceil((count * 5) / WORDS.length)).slice(0, count * 5);

async function main() {
    const server = await startServer();
    const browser = await launchBrowser();
    const world = { browser, url: server.url };
    const long = { script: longConversation, argument: TURNS };
    const streamed = (text, size, delay = 5) => madeUp(text, { size, delay });
    try {
        await measureSize(world);
        await measureLoad(world);
        await measureAnswer(world, "an empty conversation, 5 characters a piece", { before: streamed(tokens(400), 5), pieces: 400 });
        await measureAnswer(world, `${TURNS} turns, 5 characters a piece`, { before: streamed(tokens(400), 5), prepare: long, pieces: 400 });
        await measureAnswer(world, "1 MB without a space, 4 kB a piece", { before: streamed("x".repeat(1e6), 4000), pieces: 250 });
        await measureAnswer(world, "10,000 code blocks, 400 characters a piece", {
            before: streamed("```c\nint x;\n```\n\n".repeat(10000), 400, 0),
            pieces: 425,
        });
        await measureAnswer(world, "broken Markdown, 1 MB, 4 kB a piece", {
            before: streamed("**[x](`<b> | ".repeat(77000), 4000, 0),
            pieces: 251,
        });
    } finally {
        await browser.close();
        await server.stop();
    }
}

main().catch(error => {
    console.log(error.stack);
    process.exit(1);
});
