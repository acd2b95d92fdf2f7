// The pages of `spry report`, opened as files: what they say and draw for each kind of input, that nothing scrolls
// sideways, that everything can be read in light, dark, on paper and without the charting library, and hostile input.
"use strict";
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { faintTexts } = require("./page_looks.js");
const { assert, test } = require("./page_support.js");

const DATA = path.join(__dirname, "..", "data", "report");
const PAPER = { width: 687, height: 1017 }; // A4 within its margins
const DESK = { viewport: { width: 1280, height: 900 } };
const WIDTHS = [360, 768, 1280];
const REPORTS = [["after"], ["before", "after", "laptop", "trace", "machine"]];

const load = name => JSON.parse(fs.readFileSync(path.join(DATA, name + ".json"), "utf8"));

// Makes the report of files, given by name or as {name: content}, opens it, and lets `work` look at it. The page must
// stay without faults and make no requests. `change` may change the page's text before.
async function withReport(world, inputs, context, work, change = text => text) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "spry-report-"));
    const file = path.join(folder, "report.html");
    const paths = inputs.flatMap(one =>
        typeof one === "string"
            ? [path.join(DATA, one + ".json")]
            : Object.entries(one).map(([name, content]) => {
                  const made = path.join(folder, name + ".json");
                  fs.writeFileSync(made, typeof content === "string" ? content : JSON.stringify(content));
                  return made;
              }),
    );
    execFileSync(process.env.SPRY, ["report", ...paths, "-o", file]);
    fs.writeFileSync(file, change(fs.readFileSync(file, "utf8")));
    const browserContext = await world.browser.newContext(context);
    const page = await browserContext.newPage();
    const faults = [];
    page.on("console", message => faults.push(message.text()));
    page.on("pageerror", error => faults.push(error.message));
    page.on("request", request => {
        if (request.url() !== "file://" + file) {
            faults.push(request.url());
        }
    });
    await page.goto("file://" + file);
    try {
        await work(page);
        assert.deepEqual(faults, []);
    } finally {
        await browserContext.close();
        fs.rmSync(folder, { recursive: true, force: true });
    }
}

// Runs in the page: everything it shows, as texts; charts with the data that the library draws.
function readPage() {
    const text = one => one.textContent.replace(/\s+/g, " ").trim();
    const texts = (root, selector) => [...root.querySelectorAll(selector)].map(text);
    return {
        title: document.title,
        heading: text(document.querySelector("h1")),
        notes: texts(document, ".note"),
        verdict: texts(document, ".verdict li"),
        contents: texts(document, "nav a"),
        sections: [...document.querySelectorAll("section")].map(section => ({
            title: text(section.querySelector("h2")),
            text: texts(section, "p").join("\n"),
            tables: [...section.querySelectorAll("table")].map(table => ({
                heading: table.closest(".scroll").getAttribute("aria-label"),
                columns: texts(table, "th"),
                rows: [...table.querySelectorAll("tbody tr")].map(row => texts(row, "td")),
                looks: [...table.querySelectorAll("tbody tr")].map(row =>
                    [...row.querySelectorAll("small")].map(one => one.className),
                ),
            })),
        })),
        charts: drawn.map(({ chart, made }) => ({
            caption: chart.caption,
            labels: made.data.labels,
            x: made.options.scales.x.type,
            ticks: made.scales.x.ticks.map(tick => tick.value),
            sets: made.data.datasets.map(set => ({ name: set.label, data: set.data, radius: set.pointRadius })),
            inside: made.data.datasets.every((_, i) =>
                made.getDatasetMeta(i).data.every(
                    item =>
                        !Number.isFinite(item.x) ||
                        (item.x >= 0 && item.x <= made.width + 1 && item.y >= 0 && item.y <= made.height + 1),
                ),
            ),
        })),
    };
}

async function contentOf(world, ...inputs) {
    let content;
    await withReport(world, inputs, DESK, async page => {
        content = await page.evaluate(readPage);
    });
    content.text = content.sections.map(section => section.text).join("\n");
    content.section = title => content.sections.find(section => section.title === title);
    content.chart = caption => content.charts.find(chart => chart.caption === caption);
    // The cells after the first ones of a row, in any table or in that of a heading.
    content.cells = (first, heading) => {
        const row = content.sections
            .flatMap(section => section.tables)
            .filter(table => heading === undefined || table.heading === heading)
            .flatMap(table => table.rows)
            .find(cells => first.every((one, i) => cells[i] === one));
        assert.ok(row, `no row ${first}`);
        return row.slice(first.length);
    };
    // {piece: value} of a bar.
    content.bar = (caption, name) => {
        const chart = content.chart(caption);
        const i = chart.labels.findIndex(label => [label].flat()[0] === name);
        return Object.fromEntries(
            chart.sets.filter(set => set.data[i] !== null).map(set => [set.name, set.data[i]]),
        );
    };
    return content;
}

// ---- what is shown for what -----------------------------------------------------------------------------------------

test("drafts and workloads are tables of figures, side by side by kind", async world => {
    const faster = { ...load("mix"), figures: load("mix").figures.map(one => ({ ...one, value: one.value * 2 })) };
    const odd = { ...load("draft"), figures: [{ what: "__proto__", unit: "us", better: "less", value: 7 }] };
    await withReport(world, ["mix", { faster }, "draft", { odd }], DESK, async page => {
        const text = await page.innerText("body");
        assert.match(text, /Workload/);
        assert.match(text, /Drafts/);
        assert.match(text, /faster compared with mix: 3 figures better, 6 worse/);
        assert.match(text, /__proto__[^]*7\.00 µs/);
    });
});

test("reports have the sections that their files have data for, and a list of them", async world => {
    const bench = [
        "Time to the first token",
        "Speed",
        "Between tokens",
        "Where the steps' time goes",
        "How near the machine's limits",
        "Cache",
        "Memory",
        "Energy",
    ];
    for (const [name, sections] of [
        ["before", bench],
        ["after", [...bench, "How many at once"]],
        ["laptop", ["Time to the first token", "Speed", "Between tokens", "Memory", "Energy"]],
        ["trace", ["Requests of trace", "Between tokens", "Where the steps' time goes"]],
        ["machine", ["Machine: machine"]],
    ]) {
        const content = await contentOf(world, name);
        assert.deepEqual(
            content.sections.map(section => section.title),
            ["Summary", ...sections],
        );
        assert.deepEqual(content.contents, ["Summary", ...sections]);
        assert.equal(content.title, content.heading);
        assert.ok(content.verdict.length > 0, name);
        assert.doesNotMatch(JSON.stringify(content.sections), /NaN|undefined|null|Infinity/);
    }
});

test("reports have these charts, each with its numbers in a table", async world => {
    const content = await contentOf(world, "before", "after", "laptop", "trace", "machine");
    assert.deepEqual(
        content.charts.map(chart => chart.caption),
        [
            "From the request to its first token",
            "Warm ones, enlarged",
            "From each request to its first token",
            "Prefill, tokens/s",
            "Decode of one sequence, tokens/s",
            "Decode of several at once, tokens/s",
            "From one step of an answer to the next",
            "Share of the time of one prefill, and of one step, by op",
            "before: G products/s",
            "after: G products/s",
            "Tokens of the warm prompt that were not computed again",
            "Memory by part",
            "Energy of 100 tokens",
            "All sequences together, tokens/s",
            "95 % of the steps within, ms",
        ],
    );
    assert.ok(content.charts.every(chart => chart.inside));
});

test("reports say first what is not the same: machines, models, settings", async world => {
    assert.deepEqual((await contentOf(world, "before", "after")).notes, []);
    const { notes } = await contentOf(world, "before", "laptop", "machine");
    assert.equal(notes.length, 2);
    assert.match(notes[0], /2 different machines.*before: AMD EPYC 9B14; laptop: Intel\(R\) Core\(TM\)/);
    assert.match(notes[1], /2 different models/);
    for (const [key, value, words] of [
        ["chunk", 64, "chunk 64, kv f16, 64 tokens"],
        ["tokens", 5, "chunk 512, kv f16, 5 tokens"],
        ["kv_type", "q8_0", "chunk 512, kv q8_0, 64 tokens"],
        ["quantize", "q4_0", "chunk 512, kv f16, 64 tokens, quantized to q4_0"],
    ]) {
        const other = load("after");
        other.settings[key] = value;
        const content = await contentOf(world, "after", { other });
        assert.equal(content.notes.length, 1);
        assert.ok(content.notes[0].includes("2 different settings"));
        assert.ok(content.notes[0].includes(`(after: chunk 512, kv f16, 64 tokens; other: ${words})`));
    }
});

test("the verdict of a report compares files, and says what one file shows", async world => {
    const { verdict } = await contentOf(world, "before", "after");
    assert.deepEqual(verdict, [
        "after compared with before: 6 figures better, 0 worse, 9 within 2 %. " +
            "Largest change: Prefill of 2048 tokens, tokens/s, 1.21×.",
    ]);
    assert.deepEqual((await contentOf(world, "after", "machine", "trace")).verdict, [
        "Decode: 104 tokens/s, 89.1 % of the memory bandwidth.",
        "Prefill: 1,532 tokens/s, 99.2 % of the peak of products.",
        "First token: 615 ms for a new prompt, 26.0 ms for a cached one.",
        "machine: Two threads share one core, so the second adds little.",
        "trace: half of the first tokens within 213 ms; most of the time is prefill (62.4 %).",
    ]);
});

function many(prefills, depths, batches) {
    const bench = load("after");
    bench.prefill = prefills.map(tokens => ({ ...bench.prefill[0], tokens }));
    bench.decode = depths.flatMap(depth => batches.map(batch => ({ ...bench.decode[0], depth, batch })));
    return bench;
}
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

test("all points are shown in a report, and what is left out is said", async world => {
    const all = await contentOf(world, { many: many(range(1, 17), range(0, 16), range(1, 17)) });
    assert.equal(all.chart("Share of the time of one prefill, and of one step, by op").labels.length, 272);
    assert.equal(all.section("Energy").tables[0].rows.filter(row => row[1].startsWith("decode")).length, 256);
    assert.equal(all.section("Between tokens").tables[0].rows.length, 256);
    assert.ok(!all.text.includes("Left out"));
    const cut = await contentOf(world, {
        a: many(range(1, 17), range(0, 16), range(1, 17)),
        b: many(range(21, 27), range(0, 16), range(1, 17)),
    });
    assert.deepEqual(cut.notes, ["Left out: 12 points of the files, as a report shows at most 272 different ones."]);
    assert.ok(cut.section("Between tokens").text.includes("Left out: 228 rows more")); // of 2 x 250 decodes
    assert.ok(cut.section("Where the steps' time goes").text.includes("Left out: 250 rows more"));
    const files = Object.fromEntries(range(0, 15).map(i => [`f${i}`, many(range(1, 17), range(0, 16), [1])]));
    const sixteen = await contentOf(world, { ...files, last: many(range(17, 33), range(0, 16), [1]) });
    assert.equal(sixteen.section("Speed").tables[0].rows.length, 32);
});

// ---- figures --------------------------------------------------------------------------------------------------------

test("ratios of a report are to the first file", async world => {
    const content = await contentOf(world, "before", "after");
    const cold = [load("before"), load("after")].map(bench => bench.ttft.cold_ms);
    assert.deepEqual(content.cells(["Prefill of 2048 tokens, tokens/s"]), ["1,266", "1,532 ▲ 1.21×"]);
    assert.deepEqual(content.cells(["First token, nothing known before"]), [
        `${cold[0].toFixed(0)} ms`,
        `${cold[1].toFixed(0)} ms ▼ ${(cold[1] / cold[0]).toFixed(2)}×`,
    ]);
    assert.deepEqual(content.cells(["16"], "Decode of several at once, tokens/s"), ["561", "608 ▲ 1.08×"]);
    assert.deepEqual(content.cells(["Decode of 16 at once, tokens/s"]), ["561", "608 ▲ 1.08×"]);
    assert.deepEqual(content.cells(["Memory, one sequence"]), ["732 MB", "732 MB = 1.00×"]);
    assert.deepEqual(content.cells(["Memory, most of it"]), ["906 MB", "906 MB = 1.00×"]);
    assert.ok(content.text.includes("Ratios are to before, the first."));
    const slow = load("before");
    slow.prefill[slow.prefill.length - 1].tps /= 2;
    slow.load_ms /= 2;
    const table = (await contentOf(world, "before", { slow })).section("Summary").tables[1];
    const look = name => table.looks[table.rows.findIndex(row => row[0] === name)];
    assert.deepEqual(look("Prefill of 2048 tokens, tokens/s"), ["bad"]);
    assert.deepEqual(look("Loading"), ["good"]);
    assert.deepEqual(look("Memory, most of it"), ["soft"]);
});

test("lines and bars of a report have the values of its files", async world => {
    const content = await contentOf(world, "before", "after");
    const speed = content.chart("Prefill, tokens/s");
    for (const [i, name] of ["before", "after"].entries()) {
        assert.deepEqual(
            speed.sets[i].data,
            load(name).prefill.map(point => ({ x: point.tokens, y: point.tps })),
        );
    }
    assert.equal(content.chart("Decode of one sequence, tokens/s").x, "linear");
    assert.deepEqual(content.chart("Decode of one sequence, tokens/s").ticks, [0, 512, 2048, 4096]);
    assert.equal(content.chart("Decode of several at once, tokens/s").x, "logarithmic");
    const alone = await contentOf(world, "after");
    const { ttft, prefill } = load("after");
    assert.deepEqual(alone.bar("From the request to its first token", "cold"), ttft.parts_ms);
    assert.deepEqual(alone.bar("From the request to its first token", "warm"), ttft.warm_parts_ms);
    assert.deepEqual(
        alone.bar("Share of the time of one prefill, and of one step, by op", "prefill of 32 tokens"),
        Object.fromEntries(prefill[0].ops.map(op => [op.op, op.share])),
    );
    assert.equal(alone.chart("Share of the time of one prefill, and of one step, by op").labels.length, 12);
});

test("ops of a report are side by side, and near the machine's limits", async world => {
    const content = await contentOf(world, "before", "after");
    const table = content.section("Where the steps' time goes").tables.find(
        one => one.heading === "Time of ops: decode at depth 0",
    );
    const [before, after] = ["before", "after"].map(name =>
        Object.fromEntries(load(name).decode[0].ops.map(op => [op.op, op.ms])),
    );
    assert.deepEqual(content.cells(["gate_up"], table.heading), [
        `${before.gate_up.toFixed(2)} ms`,
        `${after.gate_up.toFixed(2)} ms ▼ ${(after.gate_up / before.gate_up).toFixed(2)}×`,
    ]);
    assert.equal(table.rows.length, Object.keys(before).length);
    const laptop = await contentOf(world, "before", "laptop");
    assert.ok(!JSON.stringify(laptop.sections).includes("Time of ops"));
    const chart = content.chart("after: G products/s");
    assert.deepEqual(
        chart.sets.map(set => [set.name, set.data.length]),
        [
            ["prefill of 2048 tokens", 6],
            ["decode at depth 0", 6],
            ["limit", 3],
        ],
    );
    const { machine, decode } = load("after");
    const op = decode[0].ops.find(one => one.op === "gate_up");
    const perByte = op.multiply_g_s / op.gb_s;
    const possible = Math.min(machine.multiply_g_s, perByte * machine.read_gb_s);
    assert.deepEqual(content.cells(["gate_up", "decode at depth 0"], "after"), [
        perByte.toFixed(2),
        `${op.multiply_g_s.toFixed(1)} G/s`,
        `${possible.toFixed(1)} G/s`,
        `${((100 * op.multiply_g_s) / possible).toFixed(1)} %`,
    ]);
});

test("memory, cache, energy, batches and machines of a report", async world => {
    const content = await contentOf(world, "after", "laptop", "machine");
    assert.deepEqual(content.cells(["after", "scratch"]), ["61.9 MB", "64.5 MB", "-4.1 %"]);
    assert.deepEqual(content.cells(["after", "992"]), ["8", "99.2 %", "615 ms", "26.0 ms", "23.70×"]);
    assert.deepEqual(content.cells(["after", "decode at depth 0"]).slice(0, 2), ["39.3 J", "41.0 W"]);
    assert.ok(content.text.includes("GPU: not measured: there is no NVIDIA driver"));
    assert.ok(content.text.includes("laptop, Processor: not measured: /sys/class/powercap has no RAPL zone"));
    assert.ok(content.text.includes("laptop: not measured: the model has no chat template"));
    assert.equal(content.cells(["8", "490", "16.3 ms"]).pop(), "taken");
    for (const caption of ["All sequences together, tokens/s", "95 % of the steps within, ms"]) {
        const [set] = content.chart(caption).sets;
        assert.deepEqual(
            set.data.filter((_, i) => set.radius[i] > 5).map(point => [point.x, point.label]),
            [[8, "taken"]],
        );
    }
    assert.equal(content.cells(["⚠ warning"])[1], "give the machine whole cores");
    assert.deepEqual(content.cells(["Llama-3.2-3B", "q4_k"]), ["3.2B", "2.62 GB", "214", "9.40", "4.82 s"]);
    assert.ok(!JSON.stringify(content.sections).includes("70B"));
    assert.ok(content.text.includes("Left out: 1 that need more than 70 %"));
    assert.deepEqual(content.cells(["Cache of level 2, unified"]), ["1 MiB, shared by 2"]);
    assert.deepEqual(content.cells(["q8_0"]), ["344 G/s", "20.1 GB/s"]);
    assert.deepEqual(content.cells(["fast", "Qwen3-0.6B", "q4_0"]), ["95 tokens/s, faster than anybody reads"]);
});

test("a report of a trace: requests, parts, one by one, steps and ops", async world => {
    const content = await contentOf(world, "trace");
    assert.ok(content.text.includes("5 requests; the parts below are 100 % of the time."));
    assert.deepEqual(content.cells(["request 3"], "One by one").slice(0, 2), ["280", "7"]);
    assert.deepEqual(content.cells(["prefill"], "What all of them spent their time on"), [
        "644 ms",
        "62.4 %",
        "5",
        "188 ms",
        "220 ms",
        "220 ms",
    ]);
    const chart = content.chart("From each request to its first token");
    assert.deepEqual(
        chart.labels.map(label => label[0]),
        range(1, 6).map(i => `request ${i}`),
    );
    assert.deepEqual(Object.keys(content.bar(chart.caption, "request 4")).sort(), [
        "lookup",
        "prefill",
        "queue",
        "read",
        "restore",
        "sampling",
        "template",
        "tokenize",
    ]);
    assert.deepEqual(content.cells(["trace", "trace"]), ["5 requests, 35 steps", "–"]);
    assert.deepEqual(content.cells(["gate_up", "avx512 Q4_0"]).slice(1), ["35.0 %", "5"]);
    const turn = (name, ms) =>
        JSON.stringify({ name, cat: "turn", ph: "X", ts: 0, dur: ms * 1000, tid: 1 }) + ",\n";
    const step = '{"name":"request","cat":"request","ph":"X","ts":0,"dur":9,"pid":1,"tid":1}\n';
    const spoken = await contentOf(world, { spoken: "[\n" + turn("words", 100) + turn("first sound", 700) + step });
    assert.deepEqual(spoken.cells(["first sound"], "Spoken turns"), ["1", "700 ms", "700 ms", "700 ms"]);
});

// ---- looks ----------------------------------------------------------------------------------------------------------

// Runs in the page: what is wider than the window and does not scroll by itself.
function overflowing() {
    const wide = [...document.querySelectorAll("body *")].filter(
        one => !one.closest(".scroll") && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1,
    );
    if (document.documentElement.scrollWidth > document.documentElement.clientWidth) {
        wide.unshift(document.documentElement);
    }
    return wide.map(one => one.outerHTML.slice(0, 120));
}

test("reports fit every width", async world => {
    for (const names of REPORTS) {
        for (const width of WIDTHS) {
            await withReport(world, names, { viewport: { width, height: 900 } }, async page => {
                assert.deepEqual(await page.evaluate(overflowing), [], `${names} at ${width}`);
                assert.equal(await page.evaluate(() => drawn.every(one => one.made.width > 250)), true);
            });
        }
    }
});

test("reports can be read in light and dark, and change with the system", async world => {
    const grounds = [];
    await withReport(world, REPORTS[1], { ...DESK, colorScheme: "light" }, async page => {
        for (const colorScheme of ["light", "dark"]) {
            await page.emulateMedia({ colorScheme });
            assert.deepEqual(await page.evaluate(faintTexts), [], colorScheme);
            grounds.push(
                await page.evaluate(() => [
                    getComputedStyle(document.body).backgroundColor,
                    drawn[0].made.options.color ?? Chart.defaults.color,
                    drawn[3].made.data.datasets[0].borderColor,
                ]),
            );
            const nameless = await page.evaluate(() =>
                [...document.querySelectorAll("[role=img], [tabindex='0'], nav")]
                    .filter(one => !one.getAttribute("aria-label"))
                    .map(one => one.outerHTML.slice(0, 80)),
            );
            assert.deepEqual(nameless, []);
        }
    });
    grounds[0].forEach((colour, i) => assert.notEqual(colour, grounds[1][i]));
});

test("reports are printed whole, on white", async world => {
    await withReport(world, REPORTS[1], { colorScheme: "dark", viewport: PAPER }, async page => {
        await page.emulateMedia({ media: "print", colorScheme: "dark" });
        assert.deepEqual(await page.evaluate(overflowing), []);
        assert.equal(
            await page.evaluate(() => getComputedStyle(document.body).backgroundColor),
            "rgb(255, 255, 255)",
        );
        assert.equal(await page.evaluate(() => drawn[3].made.data.datasets[0].borderColor), "#0b62a4");
        const cut = await page.evaluate(
            height =>
                [...document.querySelectorAll("figure")]
                    .filter(
                        one =>
                            getComputedStyle(one).breakInside !== "avoid" ||
                            one.getBoundingClientRect().height > height,
                    )
                    .map(one => one.textContent.slice(0, 60)),
            PAPER.height,
        );
        assert.deepEqual(cut, []);
        const wideTables = await page.evaluate(() =>
            [...document.querySelectorAll(".scroll")]
                .filter(one => one.scrollWidth > one.clientWidth + 1)
                .map(one => one.textContent.slice(0, 60)),
        );
        assert.deepEqual(wideTables, []);
        assert.ok((await page.pdf({ format: "A4" })).length > 10000);
    });
});

test("without the charting library a report has its tables and says which package adds charts", async world => {
    const without = text => text.replace(/<script>\n\/\*![\s\S]*?<\/script>/, "<script></script>");
    await withReport(
        world,
        ["after"],
        DESK,
        async page => {
            const content = await page.evaluate(readPage);
            assert.ok(content.notes[0].includes("libjs-chart.js"));
            assert.equal(content.sections.length, 10);
            assert.equal(await page.locator("canvas").count(), 0);
            assert.ok(await page.locator("table").count() > 10);
        },
        without,
    );
});

// ---- hostile input --------------------------------------------------------------------------------------------------

test("reports show hostile names as they are", async world => {
    const name = '</script><img src=x onerror="window.hit=1">'.repeat(3);
    const spoil = value => {
        if (Array.isArray(value)) {
            return value.map(spoil);
        }
        if (value && typeof value === "object") {
            return Object.fromEntries(
                Object.entries(value).map(([key, one]) => [key, key === "format" ? one : spoil(one)]),
            );
        }
        return typeof value === "string" ? name : value;
    };
    const long = "a-very-long-name-of-a-file-that-has-no-end-".repeat(3) + "<b>";
    const inputs = [{ [long]: spoil(load("after")), machine: spoil(load("machine")) }, "before"];
    await withReport(world, inputs, { viewport: { width: 360, height: 800 } }, async page => {
        assert.equal(await page.evaluate(() => window.hit), undefined);
        assert.equal(await page.locator("img, section b, section a").count(), 0);
        assert.deepEqual(await page.evaluate(overflowing), []);
        assert.ok((await page.textContent("body section")).includes(name));
    });
    const op = { name: "<b>|`", cat: "op", ph: "X", ts: 0, dur: 5, tid: 1, args: { kernel: "</td>" } };
    const step = { name: "step", cat: "step", ph: "X", ts: 0, dur: 5, tid: 1 };
    const trace = `[\n${JSON.stringify(op)},\n${JSON.stringify(step)}\n]`;
    const content = await contentOf(world, { trace });
    assert.deepEqual(content.cells(["<b>|`", "</td>"]).slice(1), ["100 %", "1"]);
});

test("any number can be shown in a report", async world => {
    const all = (value, number) => {
        if (value && typeof value === "object") {
            const entries = Object.entries(value).map(([key, one]) => [key, all(one, number)]);
            return Array.isArray(value) ? entries.map(([, one]) => one) : Object.fromEntries(entries);
        }
        return typeof value === "number" ? number : value;
    };
    for (const name of ["after", "machine"]) {
        for (const number of [0, 1e-300, 0.5, 1e15]) {
            const content = await contentOf(world, { x: all(load(name), number) });
            assert.doesNotMatch(JSON.stringify(content.sections), /NaN|undefined|Infinity/);
        }
    }
    for (const [read, multiply] of [
        [1e-320, 1e15],
        [1e15, 1e-320],
        [1e-300, 1e-300],
        [1e15, 1e15],
    ]) {
        const bench = load("after");
        Object.assign(bench.machine, { read_gb_s: read, multiply_g_s: multiply });
        bench.prefill[bench.prefill.length - 1].ops.forEach(op => Object.assign(op, { gb_s: 1e-300, multiply_g_s: 1e15 }));
        await contentOf(world, { bench });
    }
});

test("a report needs nothing but what every file has", async world => {
    const { format, model, machine } = load("after");
    const least = { format, model, prefill: [], decode: [], machine: { ...machine, id: null, memory_bytes: null } };
    const titles = async (...inputs) => (await contentOf(world, ...inputs)).sections.map(one => one.title);
    assert.deepEqual(await titles({ least }), ["Summary"]);
    assert.deepEqual((await titles({ least }, "after")).slice(0, 2), ["Summary", "Time to the first token"]);
    await contentOf(world, { m: { format: "spry-machine-1", cpu: { name: "x" } } });
    const few = load("after");
    few.prefill = few.prefill.slice(0, 1);
    few.decode = few.decode.slice(4, 5);
    await contentOf(world, { few });
    const without = name => {
        const keys = Object.keys(load(name)).filter(key => !/^(format|model|machine|prefill|decode|cpu)$/.test(key));
        return Object.fromEntries(keys.map((key, i) => [`${name}${i}`, { ...load(name), [key]: null }]));
    };
    const benches = Object.entries(without("after"));
    await contentOf(world, Object.fromEntries(benches.slice(0, 12)));
    await contentOf(world, Object.fromEntries(benches.slice(12)), without("machine"));
});
