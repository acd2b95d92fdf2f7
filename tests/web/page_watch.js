// The watch view: what the server really sends, and what is made of snapshots that are made up.
"use strict";
const { DESK, KEY, PHONE, answered, assert, closePage, madeUp, openPage, test, withServer } = require("./page_support.js");

const TOUCH = { viewport: PHONE, hasTouch: true, isMobile: true, colorScheme: "dark" };

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
    numbers(model.kv, ["pages", "free", "cached", "idle", "pinned", "page_bytes"], "kv");
    numbers(model.memory, ["used", "limit", "kv_used", "kv_limit"], "memory");
    assert.equal(model.pinned, false);
    assert.equal(model.together.limit, 8);
    assert.match(model.together.why, /^auto: /);
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

// Runs in the page: the texts of a request that has ended, unfolded; null: there is none yet, or it was unfolded just now.
function openRow() {
    document.querySelector("#window [value='120']").click();
    const row = [...document.querySelectorAll("#waterfall > li")].find(one => /done.*40 out/.test(one.textContent));
    const fall = row?.querySelector(".fall");
    if (row && !fall) {
        row.querySelector("details").open = true;
    }
    return fall
        ? {
              row: row.innerText,
              fall: fall.innerText,
              facts: row.querySelector(".facts").innerText,
              width: row.querySelector(".track .p-decode").getBoundingClientRect().width,
          }
        : null;
}

test("a request shows up in the waterfall, its pages in the map", async world => {
    const page = await openPage(world, { view: "#watch" });
    await page.waitForSelector("#watch-models li");
    let seen = null;
    while (!seen) {
        await ask(world, "Tell me about a whale.", 40); // it is shown for seconds only, in which a busy machine may do nothing
        seen = await page.evaluate(openRow);
    }
    assert.match(seen.row, /done[^]*\d+ in.*40 out.*a second/);
    assert.match(seen.fall, /decode\s+[\d.]+ m?s/);
    assert.match(seen.facts, /prefix reused\s+\d+ of \d+ prompt tokens/);
    assert.ok(seen.width > 0);
    assert.ok((await page.locator(".kv i").count()) > 10);
    assert.match(await page.getAttribute(".kv", "aria-label"), /^Pages: (\d+ in use, )?(\d+ shared, )?\d+ cached, [\d,]+ free$/);
    assert.match(await page.innerText("#watch-pool-words"), /of at most [\d.]+ GB/);
    assert.match(
        await page.innerText("#watch-models li >> nth=0"),
        /Memory: [\d.]+ MB of [\d.]+ [MG]B, of it KV: [\d.]+ [KM]B of [\d.]+ [MG]B/,
    );
    assert.match(await page.locator(".together").first().innerText(), /^Together: auto: .* up to 8 together$/);
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
    assert.deepEqual(kinds, ["k-used", "k-shared", "k-shared", ...Array(3).fill("k-kept"), ...Array(4).fill("k-free")]);
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
        /^10 in use, 1 cached, 99,990 free; a square is 417 pages of 4.1 KB$/,
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
    assert.equal(await other.innerText("#watch-power-words"), "unmeasured");
    assert.equal(await other.isVisible("#tip"), false);
    await other.click("#watch-power-words .term");
    assert.equal(await other.innerText("#tip"), "only root may read it");
    await other.keyboard.press("Escape");
    assert.equal(await other.isVisible("#tip"), false);
    await closePage(other);
});

test("requests that ended before the view was opened are shown", async world => {
    await withServer(world, [], async own => {
        const body = { messages: [{ role: "user", content: "Hello" }], max_tokens: 8 };
        const answer = await fetch(own.url + "/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body) });
        const { id } = await answer.json();
        await new Promise(resolve => {
            setTimeout(resolve, 12000); // longer than ended requests stay in later snapshots, and than the shortest time shown
        });
        const page = await openPage(own, { view: "#watch" });
        await page.waitForSelector("#waterfall > li");
        assert.equal(await page.locator("#waterfall > li").count(), 1);
        assert.notEqual(await page.locator("#window input:checked").inputValue(), "10");
        await page.click("#waterfall summary");
        assert.equal(await page.innerText("#waterfall .row-parts code"), id);
        await closePage(page);
    });
});

test("the speed before the view was opened is drawn, and what is shown of it stays", async world => {
    const ended = requestOf("a", "done", 88000, 2000); // until 92000, of it 2.5 s with 2 tokens a second
    const list = [snapshotAt(100000, [ended]), snapshotAt(103000, []), snapshotAt(125000, [])];
    list.forEach(({ models }) => Object.assign(models[0], { tokens_per_second: 0 }));
    const page = await openPage(world, { view: "#watch", before: { script: madeUpWatch, argument: list } });
    await page.waitForFunction(() => document.querySelector("#window input:checked").value === "120");
    assert.equal(await page.innerText("#watch-speed-words"), "at most 2 in the last minute");
    assert.equal(await page.locator("#waterfall > li").count(), 1);
    const heights = await page.getAttribute("#watch-spark .line", "d").then(line => line.match(/ [\d.]+/g).map(Number));
    assert.deepEqual([heights[0], Math.min(...heights), heights.at(-1)], [38, 3, 38]);
    await closePage(page);
    const chosen = await openPage(world, { view: "#watch", before: { script: madeUpWatch, argument: list.slice(0, 1) } });
    await chosen.waitForSelector("#waterfall > li");
    assert.equal(await chosen.locator("#window input:checked").inputValue(), "10");
    await closePage(chosen);
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

test("kinds of pages are told apart, and each word explains itself", async world => {
    const kv = { pages: 12, free: 3, cached: 7, idle: 4, pinned: 2, page_bytes: 1000 };
    for (const context of [{ viewport: DESK }, TOUCH]) {
        const page = await openPage(world, {
            ...context,
            view: "#watch",
            before: { script: madeUpWatch, argument: [snapshotAt(1, [], kv)] },
        });
        await page.waitForSelector(".kv i");
        const kinds = await page.locator(".kv i").evaluateAll(cells => cells.map(cell => cell.className));
        const expected = { "k-used": 2, "k-shared": 3, "k-pinned": 2, "k-kept": 2, "k-free": 3 };
        assert.deepEqual(kinds, Object.entries(expected).flatMap(([kind, count]) => Array(count).fill(kind)));
        assert.match(await page.innerText("#watch-models .muted"), /^2 in use, 3 shared, 2 pinned, 2 cached, 3 free;/);
        for (const word of await page.locator("#watch-view .legend .term").all()) {
            await (context === TOUCH ? word.tap() : word.hover());
            assert.equal(await word.getAttribute("aria-describedby"), "tip");
            assert.match(await page.innerText("#tip"), /^[A-Z].*\.$/);
            const box = await page.locator("#tip").boundingBox();
            assert.ok(box.x >= 0 && box.x + box.width <= context.viewport.width, JSON.stringify(box));
        }
        await closePage(page);
    }
});

test("an answer shows its waterfall on hover, on focus and opened", async world => {
    const timings = {
        ttft_ms: 50,
        decode_ms: 400,
        first_parts_ms: { queue: 10, prefill: 40 },
        parts_ms: { queue: 10, prefill: 40, decode: 350, sampling: 50, write: 0.01 },
        generated_tokens: 41,
        prompt_tokens: 100,
        cached_tokens: 64,
        why_no_energy: "no meter on this machine",
    };
    for (const context of [{ viewport: DESK }, TOUCH]) {
        const page = await openPage(world, { ...context, before: madeUp("Fine. ".repeat(200), { timings }) });
        await page.fill("#input", "A question");
        await page.click("#send");
        await answered(page);
        const fall = page.locator(".timings .fall");
        assert.equal(await fall.isVisible(), false);
        if (context !== TOUCH) {
            await page.hover(".timings summary");
            assert.ok(await fall.isVisible());
            await page.mouse.move(0, 0);
            assert.equal(await fall.isVisible(), false);
            await page.keyboard.press("Tab");
            await page.evaluate(() => document.querySelector(".timings summary").focus({ focusVisible: true }));
            assert.ok(await fall.isVisible());
        }
        await page.locator(".timings summary").click();
        assert.match(
            await fall.innerText(),
            /^To the first token 50 ms\s+queue\s+10 ms\s+prefill\s+40 ms\s+The rest 400 ms\s+decode\s+350 ms\s+sampling\s+50 ms$/,
        );
        const bars = await fall.locator("i").evaluateAll(all => all.map(bar => [bar.style.left, bar.style.width].map(parseFloat)));
        assert.deepEqual(bars.map(([left]) => Math.round(left)), [0, 2, 11, 89]);
        assert.match(await page.innerText(".timings .facts"), /^prefix reused\s+64 of 100 prompt tokens, 64 %\s+energy\s+unmeasured$/);
        await page.locator(".timings .facts .term", { hasText: "unmeasured" }).click();
        assert.equal(await page.innerText("#tip"), "no meter on this machine");
        await page.locator(".timings .facts .term", { hasText: "prefix reused" }).click();
        assert.match(await page.innerText("#tip"), /^Tokens at the beginning of the prompt/);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
        await closePage(page);
    }
});

test("reuse and speed are drawn over time", async world => {
    const list = [0, 1, 2, 3].map(at => {
        const snapshot = snapshotAt(10000 + 10000 * at, []);
        Object.assign(snapshot.models[0], { hit_tokens: [0, 0, 100, 150][at], miss_tokens: [0, 100, 100, 150][at] });
        snapshot.models[0].tokens_per_second = 10 * at;
        return snapshot;
    });
    const page = await openPage(world, { view: "#watch", before: { script: madeUpWatch, argument: list } });
    await page.waitForSelector("#watch-hits-spark[aria-label='last prompts: 50 %']");
    assert.equal(await page.innerText("#watch-hits"), "50 %");
    const heights = await page.evaluate(() =>
        ["#watch-hits-spark", "#watch-spark"].map(id =>
            document
                .querySelector(id + " .line")
                .getAttribute("d")
                .match(/ [\d.]+/g)
                .map(Number),
        ),
    );
    assert.deepEqual(heights[0], [38, 38, 3, 20.5]); // none, none, all and half of the prompts since the point before
    assert.equal(heights[1].at(0), 38);
    assert.equal(heights[1].at(-1), 3);
    assert.equal(await page.innerText("#watch-speed-words"), "at most 30 in the last minute");
    await closePage(page);
});

test("a request unfolds to its parts and stays open while new snapshots come", async world => {
    const list = [
        snapshotAt(20000, [requestOf("a", "decode", 15000, 3000)]),
        snapshotAt(20500, [requestOf("a", "decode", 15000, 3500)]),
        snapshotAt(21000, [requestOf("a", "done", 15000, 4000)]),
    ];
    const page = await openPage(world, { ...TOUCH, view: "#watch", before: { script: madeUpWatch, argument: list } });
    await page.waitForSelector("#waterfall li");
    assert.equal(await page.locator("#waterfall .fall").count(), 0);
    await page.tap("#waterfall summary");
    await page.waitForFunction(() => /decode\s+4 s/.test(document.querySelector("#waterfall .fall")?.innerText));
    assert.match(await page.innerText("#waterfall .fall"), /All of it 6 s\s+queue\s+500 ms\s+prefill\s+1 s\s+decode\s+4 s\s+sampling\s+500 ms/);
    const places = await page.locator("#waterfall .fall i").evaluateAll(bars => bars.map(bar => Math.round(parseFloat(bar.style.left))));
    assert.deepEqual(places, [0, 8, 25, 92]);
    await page.tap("#waterfall summary");
    assert.equal(await page.locator("#waterfall .fall").isVisible(), false);
    await closePage(page);
});
