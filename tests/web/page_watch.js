// The watch view: what the server really sends, and what is made of snapshots that are made up.
"use strict";
const { KEY, answered, assert, closePage, openPage, send, test } = require("./page_support.js");

const headers = { Authorization: "Bearer " + KEY };

// The first `count` snapshots of the server.
async function snapshots(world, count) {
    const abort = new AbortController();
    const found = [];
    const answer = await fetch(world.url + "/watch", { headers, signal: abort.signal });
    assert.equal(answer.status, 200);
    assert.ok(answer.headers.get("content-type").startsWith("text/event-stream"));
    let rest = "";
    for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
        const events = (rest + part).split("\n\n");
        rest = events.pop();
        found.push(...events.filter(event => event.startsWith("data: ")).map(event => JSON.parse(event.slice(6))));
        if (found.length >= count) {
            break;
        }
    }
    abort.abort();
    return found;
}

function ask(world, content, max_tokens) {
    return fetch(world.url + "/v1/chat/completions", {
        method: "POST",
        headers: { ...headers, "Content-Type": "application/json" },
        body: JSON.stringify({ messages: [{ role: "user", content }], max_tokens, temperature: 0 }),
    }).then(answer => answer.json());
}

const numbers = (object, names, where) =>
    names.forEach(name => assert.equal(typeof object[name], "number", where + "." + name));

test("a snapshot is as WATCH.md says", async world => {
    const answer = await ask(world, "Tell me about a bear.", 16);
    const [snapshot] = await snapshots(world, 1);
    numbers(snapshot, ["now_ms"], "snapshot");
    numbers(snapshot.pool, ["bytes", "max_bytes"], "pool");
    const request = snapshot.requests.find(one => one.id === answer.id);
    assert.ok(request, "the request is in " + JSON.stringify(snapshot.requests));
    assert.equal(request.state, "done");
    numbers(
        request,
        ["start_ms", "prompt_tokens", "cached_tokens", "generated_tokens", "tokens_per_second"],
        "request",
    );
    numbers(request.parts_ms, ["read", "template", "tokenize", "queue", "lookup", "prefill", "decode"], "parts_ms");
    for (const name of ["cpu_joules", "gpu_joules"])
        assert.ok(snapshot.energy[name] === null || snapshot.energy[name] >= 0, `energy.${name}`);
    assert.equal(snapshot.energy.why === "", snapshot.energy.cpu_joules + snapshot.energy.gpu_joules > 0);
    assert.equal(request.generated_tokens, answer.usage.completion_tokens);
    assert.equal(request.prompt_tokens, answer.usage.prompt_tokens);
    const model = snapshot.models.find(one => one.name === request.model);
    assert.equal(model.state, "loaded");
    numbers(
        model,
        ["bytes", "running", "waiting", "hit_tokens", "miss_tokens", "span_tokens", "tokens_per_second"],
        "model",
    );
    numbers(model.kv, ["pages", "free", "cached", "idle", "page_bytes"], "kv");
    assert.equal(model.pinned, false);
    assert.equal(model.together.limit, 8);
    assert.match(model.together.why, /^interactive: /);
    assert.ok(
        model.kv.pages > 0 && model.kv.free + model.kv.idle <= model.kv.pages && model.kv.idle <= model.kv.cached,
    );
    assert.ok(snapshot.pool.bytes >= model.bytes && snapshot.pool.bytes <= snapshot.pool.max_bytes);
    assert.equal(JSON.stringify(snapshot).includes("bear"), false);
});

test("snapshots keep coming, the clock goes forward", async world => {
    const found = await snapshots(world, 3);
    assert.ok(found[0].now_ms < found[1].now_ms && found[1].now_ms < found[2].now_ms);
});

test("a request of the chat shows up in the waterfall, its pages in the map", async world => {
    const page = await openPage(world, { settings: { temperature: 0, max_tokens: 40 } });
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, "Tell me about a whale.");
    await answered(page);
    await page.click("#tab-watch");
    const row = page.locator("#waterfall li").first();
    await row.waitFor();
    assert.match(await row.innerText(), /done[^]*\d+ in.*40 out.*a second[^]*reading [\d.]+ m?s.*writing [\d.]+ m?s/);
    assert.ok((await row.locator(".p-decode").evaluate(part => part.getBoundingClientRect().width)) > 0);
    assert.ok((await page.locator(".kv i").count()) > 10);
    assert.match(await page.getAttribute(".kv", "aria-label"), /^Pages: \d+ in use, \d+ kept, [\d,]+ free$/);
    assert.match(await page.innerText("#watch-pool-words"), /of at most [\d.]+ GB/);
    assert.match(await page.locator(".together").first().innerText(), /^Together: interactive: .* up to 8 together$/);
    await closePage(page);
});

// Runs in the page: /watch sends these snapshots, 30 ms apart, and then nothing more.
function madeUpWatch(list) {
    const real = window.fetch;
    window.fetch = (url, options) => {
        if (url !== "/watch") {
            return real(url, options);
        }
        const encoder = new TextEncoder();
        const body = new ReadableStream({
            start(stream) {
                list.forEach((one, at) =>
                    setTimeout(() => stream.enqueue(encoder.encode("data: " + JSON.stringify(one) + "\n\n")), 30 * at),
                );
            },
        });
        window.watching = !options.signal.aborted;
        options.signal.addEventListener("abort", () => {
            window.watching = false;
        });
        return Promise.resolve(new Response(body));
    };
}

function snapshotAt(now, requests, kv = { pages: 10, free: 4, cached: 5, idle: 3, page_bytes: 1000 }) {
    return {
        now_ms: now,
        requests,
        pool: { bytes: 50, max_bytes: 100 },
        models: [
            {
                name: "m",
                state: "loaded",
                bytes: 50,
                running: 1,
                waiting: 2,
                kv,
                hit_tokens: 30,
                miss_tokens: 10,
                span_tokens: 0,
                tokens_per_second: 12.5,
            },
        ],
    };
}

function requestOf(id, state, start, decode) {
    return {
        id,
        model: "m",
        state,
        start_ms: start,
        parts_ms: { queue: 500, prefill: 1000, sampling: 500, decode },
        prompt_tokens: 9,
        cached_tokens: 0,
        generated_tokens: 5,
        tokens_per_second: 2,
    };
}

test("the waterfall places parts in time and remembers what has ended", async world => {
    const list = [
        snapshotAt(20000, [requestOf("a", "decode", 15000, 3000)]),
        snapshotAt(20500, [requestOf("b", "done", 17000, 500)]),
    ];
    const page = await openPage(world, {
        view: "#watch",
        before: { script: madeUpWatch, argument: list },
        reducedMotion: "reduce",
    });
    await page.waitForFunction(() => document.querySelectorAll("#waterfall li").length === 2);
    assert.deepEqual(await page.locator("#waterfall .state").allInnerTexts(), ["done", "done"]);
    const [track, bar, part] = await page
        .locator("#waterfall li")
        .first()
        .evaluate(row =>
            [".track", ".bar", ".p-prefill"]
                .map(name => row.querySelector(name).getBoundingClientRect())
                .map(({ left, width }) => ({ left, width })),
        );
    assert.ok(Math.abs((bar.left - track.left) / track.width - 0.65) < 0.01); // began 3.5 s ago, 10 s are shown
    assert.ok(Math.abs(bar.width / track.width - 0.25) < 0.01);
    assert.ok(Math.abs(part.width / track.width - 0.1) < 0.01);
    assert.deepEqual(
        [await page.innerText("#watch-load"), await page.innerText("#watch-load-words")],
        ["1", "running, 2 waiting"],
    );
    assert.equal(await page.innerText("#watch-hits"), "75 %");
    assert.equal(await page.innerText("#watch-speed"), "12.5");
    const kinds = await page.locator(".kv i").evaluateAll(cells => cells.map(cell => cell.className));
    assert.deepEqual(kinds, [...Array(3).fill("k-used"), ...Array(3).fill("k-kept"), ...Array(4).fill("k-free")]);
    await closePage(page);
});

test("many pages are drawn together", async world => {
    const kv = { pages: 100001, free: 99990, cached: 1, idle: 1, page_bytes: 4096 };
    const page = await openPage(world, {
        view: "#watch",
        before: { script: madeUpWatch, argument: [snapshotAt(1, [], kv)] },
    });
    await page.waitForSelector(".kv i");
    const kinds = await page.locator(".kv i").evaluateAll(cells => cells.map(cell => cell.className));
    assert.ok(kinds.length <= 240 && kinds.includes("k-used") && kinds.includes("k-kept"));
    assert.match(
        await page.innerText("#watch-models .muted"),
        /^10 in use, 1 kept, 99,990 free; a square is 417 pages of 4.1 KB$/,
    );
    await closePage(page);
});

test("odd snapshots are harmless", async world => {
    const name = "<img src=x onerror=window.hit=1>";
    const list = [
        {},
        null,
        [],
        { now_ms: "x", requests: {}, models: 5 },
        { requests: [null, { id: 7, parts_ms: null }], models: [null, { name, kv: null, bytes: -5 }] },
        {
            now_ms: 1e300,
            requests: [{ id: name, model: name, state: name, parts_ms: { decode: 1e300, queue: -1 } }],
            models: [{ name, state: name, kv: { pages: 1e9, free: 2e9 } }],
        },
    ];
    const page = await openPage(world, { view: "#watch", before: { script: madeUpWatch, argument: list } });
    await page.waitForFunction(text => document.querySelector("#watch-models b")?.textContent === text, name);
    assert.equal(await page.locator("img").count(), 0);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    await closePage(page);
});

test("power is what the joules come to, or why there are none", async world => {
    const energy = (cpu_joules, gpu_joules, why = "") => ({ cpu_joules, gpu_joules, why });
    const list = [
        { ...snapshotAt(10000, []), energy: energy(100, 50) },
        { ...snapshotAt(12000, []), energy: energy(160, 70) },
    ];
    const page = await openPage(world, { view: "#watch", before: { script: madeUpWatch, argument: list } });
    await page.waitForFunction(() => document.querySelector("#watch-power").textContent === "40 W");
    assert.equal(await page.innerText("#watch-power-words"), "230 J since the server began");
    await closePage(page);
    const none = [{ ...snapshotAt(10000, []), energy: energy(0, 0, "only root may read it") }];
    const other = await openPage(world, { view: "#watch", before: { script: madeUpWatch, argument: none } });
    await other.waitForFunction(() => document.querySelector("#watch-power").textContent === "\u2013");
    assert.equal(await other.innerText("#watch-power-words"), "not measured: only root may read it");
    await closePage(other);
});

test("the page stops watching when it is not shown", async world => {
    const page = await openPage(world, {
        view: "#watch",
        before: { script: madeUpWatch, argument: [snapshotAt(1, [])] },
    });
    await page.waitForFunction(() => window.watching === true);
    await page.click("#tab-chat");
    await page.waitForFunction(() => window.watching === false);
    await page.click("#tab-watch");
    await page.waitForFunction(() => window.watching === true);
    await closePage(page);
});
