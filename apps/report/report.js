// The files of a report as a document: {title, notes, verdict, sections: [{title, blocks}], footer}. A block is a
// sentence or a table {heading, about, columns, rows, charts, cards, closed}; a cell is a text, or a number with its text.
// `spry report` has checked every value; a value that is missing or null was not measured.
"use strict";

const ROWS_MAX = 272;
const PARTS =
    "read template tokenize queue lookup restore prefill draft decode sampling grammar detokenize write others".split(" ");
const OPS = "layout embed norm qkv rope attend out add gate_up gate down route logits exchange others".split(" ");
const KERNELS = ["qkv", "attend", "out", "gate_up", "down", "logits"];

// ---- values and tables ----------------------------------------------------------------------------------------------

const at = (object, path) => path.split(".").reduce((value, key) => value?.[key], object) ?? undefined;
const num = (object, path) => at(object, path) ?? NaN;
const sum = values => values.filter(Number.isFinite).reduce((all, value) => all + value, 0);
const most = (list, rank) => list.reduce((best, one) => (best && rank(best) >= rank(one) ? best : one), undefined);
const plural = (count, what) => `${show("count", count)} ${what}${count === 1 ? "" : "s"}`;

const UNITS = { ms: [" ms", " s"], bytes: [" bytes", " kB", " MB", " GB", " TB"], count: [""], speed: [""] };

// A number with its unit, in three digits or whole.
function show(unit, value) {
    const names = UNITS[unit] ?? [" " + unit];
    let scale = 0;
    if (!Number.isFinite(value)) {
        return "–";
    }
    if (unit === "share" || unit === "off") {
        const digits = unit === "share" && value >= 0.9995 ? 0 : 1;
        return (unit === "off" && value >= 0 ? "+" : "") + (100 * value).toFixed(digits) + " %";
    }
    if (unit === "times" || (unit === "ms" && value > 0 && value < 0.1)) {
        return unit === "times" ? value.toFixed(2) + "×" : show("speed", value * 1000) + " µs";
    }
    for (; value >= 999.5 && scale + 1 < names.length; scale++) {
        value /= 1000;
    }
    const digits = unit === "count" || value >= 99.95 || value === 0 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
    return value.toFixed(digits).replace(/\B(?=(\d{3})+$)/g, ",") + names[scale];
}

// A cell. `first` is the value to compare with; `better` is 1 when more is better, -1 when less is better, or 0.
function cell(unit, value, first = NaN, better = 0) {
    return { text: show(unit, value), value, ...(first > 0 && value / first >= 0 && { ratio: value / first, better }) };
}

// Columns are "Title = path unit; ...", without a unit for text; rows are the items of the list.
function tableOf(heading, list, columns, more = {}) {
    const specs = columns.split("; ").map(one => one.match(/^(.*) = (\S+) ?(\S*)$/).slice(1));
    const cellOf = (item, path, unit) => (unit ? cell(unit, num(item, path)) : String(at(item, path) ?? "–"));
    const rows = (list ?? []).map(item => specs.map(([, path, unit]) => cellOf(item, path, unit)));
    return { heading, columns: specs.map(([title]) => title.trim()), rows, ...more };
}

// ---- points ---------------------------------------------------------------------------------------------------------

const isPrefill = point => point.depth === undefined;

function pointName(point) {
    const several = point.batch === 1 ? "" : `, ${point.batch} at once`;
    return isPrefill(point) ? `prefill of ${point.tokens} tokens` : `decode at depth ${point.depth}${several}`;
}

// The sum over the ops of a name, NaN if there are none; "others" are the ops that this page does not know.
function opSum(ops, name, key) {
    const own = (ops ?? []).filter(op => (OPS.includes(op.op) ? op.op : "others") === name).map(op => num(op, key));
    return own.some(Number.isFinite) ? sum(own) : NaN;
}

// The representative points: the longest prefill; the shallowest decode of one sequence, and of the largest batch.
function mainPoints(bench) {
    const prefill = most(bench.prefill, point => point.tokens);
    const decode = most(bench.decode.filter(point => point.batch === 1), point => -point.depth);
    const together = bench.decode.filter(point => point.batch > 1 && point.depth === decode?.depth);
    return { prefill, decode, together: most(together, point => point.batch) };
}

// All distinct points of all benches, prefills first: a map from names to maps from files to points.
function allPoints(benches) {
    const points = new Map();
    let leftOut = 0;
    for (const bench of ["prefill", "decode"].flatMap(list => benches.map(one => ({ name: one._name, list: one[list] })))) {
        for (const point of bench.list) {
            const name = pointName(point);
            if (!points.has(name) && points.size < ROWS_MAX) {
                points.set(name, new Map());
            }
            leftOut += points.has(name) ? 0 : 1;
            points.get(name)?.set(bench.name, points.get(name).get(bench.name) ?? point);
        }
    }
    return { points, leftOut };
}

// Every point of every bench; `row` has the file's name if there are several.
function pointRows(benches, points) {
    const rowName = (name, file) => (benches.length > 1 ? `${name}: ${file}` : name);
    return [...points].flatMap(([name, same]) =>
        [...same].map(([file, point]) => ({ name, file, point, row: rowName(name, file) })));
}

// ---- summary --------------------------------------------------------------------------------------------------------

// Title, path, unit, and whether more (1) or less (-1) is better.
const BENCH_FIGURES = [
    ["Between steps, 95 % within", "_same.decode.p95_ms", "ms", -1],
    ["Energy of 100 tokens", "_same.decode.energy.joules_per_100_tokens", "J", -1],
    ["Prefill, time in kernels", "_same.prefillKernels", "share", 1],
    ["Decode, time in kernels", "_same.decodeKernels", "share", 1],
    ["Decode, time on the GPU", "_same.decode.places.gpu", "share", 1],
    ["Decode, time on the CPU", "_same.decode.places.cpu", "share"],
    ["Decode, time of the host that prepares and waits", "_same.decode.places.host", "share", -1],
    ["Decode, time of copies", "_same.decode.places.copies", "share", -1],
    ["Why the CPU computes", "why_cpu"],
    ["GPU busy while decoding (NVML)", "_same.busy", "share", 1],
    ["First token, nothing known before", "ttft.cold_ms", "ms", -1],
    ["First token, prompt known before", "ttft.warm_ms", "ms", -1],
    ["First token of a new process", "first_token_ms", "ms", -1],
    ["First call of a tool", "first_call.ms", "ms", -1],
    ["Answer with draws on the device, tokens/s", "answer.tps", "speed", 1],
    ["Waits for the device, a token", "answer.waits_per_token", "speed", -1],
    ["Steps begun ahead", "answer.ahead_share", "share", 1],
    ["Loading", "load_ms", "ms", -1],
    ["Memory, one sequence", "peak_rss_bytes", "bytes", -1],
    ["Memory, most of it", "peak_rss_batch_bytes", "bytes", -1],
    ["Machine reads", "machine.read_gb_s", "GB/s", 1],
    ["Machine multiplies", "machine.multiply_g_s", "G/s", 1],
    ["Model", "model"], ["Processor", "machine.cpu"], ["GPU", "machine.gpu"], ["Threads", "machine.threads"],
    ["Kernels", "machine.kernels"], ["Keys and values", "settings.kv_type"],
];
const TRACE_FIGURES = [
    ["First token, median", "first.p50", "ms", -1],
    ["First token, 95 % within", "first.p95", "ms", -1],
    ["Between steps, median", "between.p50", "ms", -1],
    ["Between steps, 95 % within", "between.p95", "ms", -1],
    ["Generated tokens", "generated_tokens", "count", 0],
    ["Rows a step", "rows_a_step", "speed", 0],
    ["Waits for the device, a token", "waits_a_token", "speed", -1],
    ["Steps begun ahead", "ahead_share", "share", 1],
];

// Says how each file compares with the first; in rows the cells of the files follow the name of the figure.
function compareWithFirst(files, rows, verdict) {
    files.slice(1).forEach((file, i) => {
        const cells = rows.map(row => ({ title: row[0], ...row[i + 2] })).filter(one => one.better && one.ratio > 0);
        const count = test => cells.filter(one => test(one.better * (one.ratio - 1))).length;
        const largest = most(cells, one => Math.abs(Math.log(one.ratio)));
        verdict.push(`${file._name} compared with ${files[0]._name}: ${plural(count(gain => gain > 0.02), "figure")} better, ` +
            `${count(gain => gain < -0.02)} worse, ${count(gain => Math.abs(gain) <= 0.02)} within 2 %.` +
            (largest ? ` Largest change: ${largest.title}, ${show("times", largest.ratio)}.` : ""));
    });
}

// One column per file, one row per figure that a file has; says in the verdict how each file compares with the first.
function figureTable(title, files, figures, verdict) {
    const known = figures.filter(([, path]) => files.some(file => at(file, path) !== undefined));
    const first = path => num(files[0], path);
    const rows = known.map(([name, path, unit, better]) => [name, ...files.map((file, i) =>
        unit ? cell(unit, num(file, path), i ? first(path) : NaN, better) : String(at(file, path) ?? "–"))]);
    compareWithFirst(files, rows, verdict);
    return { columns: [title, ...files.map(file => file._name)], rows, cards: files.length === 1 };
}

// What a bench says by itself.
function introduce(bench, { prefill, decode }, verdict) {
    const share = (point, key) => show("share", num(point, key));
    const ms = path => show("ms", num(bench, path));
    if (decode) {
        verdict.push(`Decode: ${show("speed", decode.tps)} tokens/s, ${share(decode, "read_share")} of the memory bandwidth.`);
    }
    if (prefill) {
        verdict.push(`Prefill: ${show("speed", prefill.tps)} tokens/s, ${share(prefill, "multiply_share")} of the peak of products.`);
    }
    if (bench.ttft) {
        verdict.push(`First token: ${ms("ttft.cold_ms")} for a new prompt, ${ms("ttft.warm_ms")} for a cached one.`);
    }
    return modelAndMachine(bench);
}

function modelAndMachine(bench) {
    return `${bench.model}: ${bench.architecture ?? "unknown architecture"}, ${show("speed", num(bench, "parameters") / 1e6)} ` +
        `million parameters, ${show("bytes", num(bench, "weight_bytes"))} of weights. ${bench.machine.cpu}, ` +
        `${plural(bench.machine.threads, "thread")}, ${bench.machine.kernels} kernels${bench.when ? "; measured at " + bench.when : ""}.`;
}

const FIGURE_KINDS = {
    "spry-draft-1": "Drafts", "spry-reuse-1": "Reuse of cached text", "spry-without-1": "What a part is worth",
    "spry-chunk-1": "Prefill by chunk", "spry-image-1": "Questions on a picture", "spry-mix-report-1": "Workload", "spry-agent-report-1": "Session of a coding agent",
};
const FIGURE_UNITS = { "tok/s": "tokens/s", x: "times", us: "µs" };

// Measurements that are lists of figures, those of one kind side by side.
function figureSections(files, verdict) {
    return Object.entries(FIGURE_KINDS).map(([format, title]) => {
        const own = files.filter(file => file.format === format);
        const figures = own.map(file => new Map(file.figures.map(one => [one.what, one])));
        const rows = [...new Set(figures.flatMap(one => [...one.keys()]))].map(name => [name, ...figures.map((of, i) => {
            const one = of.get(name);
            const first = i ? (figures[0].get(name)?.value ?? NaN) : NaN;
            return one ? cell(FIGURE_UNITS[one.unit] ?? one.unit, one.value, first, one.better === "more" ? 1 : -1) : "–";
        })]);
        compareWithFirst(own, rows, verdict);
        return { title, blocks: [...(own.length === 1 ? own.map(modelAndMachine) : []),
            { columns: ["Figure", ...own.map(file => file._name)], rows, cards: own.length === 1 }] };
    });
}

const DESCRIBE = {
    figures: file => `${FIGURE_KINDS[file.format]}: ${file.model} on ${file.machine.cpu}`,
    bench: file => `${file.model} on ${file.machine.cpu}`,
    machine: file => file.cpu.name,
    trace: file => `${plural(file.requests, "request")}, ${plural(file.steps, "step")}` +
        (file.cut ? "; its last line is not whole and was left out" : ""),
};

function summary(files, benches, traces, verdict) {
    const main = benches.length ? mainPoints(benches[0]) : {};
    const named = files.map(file => ({ ...file, of: DESCRIBE[file._kind](file) }));
    const figures = [
        [`Prefill of ${main.prefill?.tokens} tokens, tokens/s`, "_same.prefill.tps", "speed", 1],
        [`Decode at depth ${main.decode?.depth}, tokens/s`, "_same.decode.tps", "speed", 1],
        [`Decode of ${main.together?.batch} at once, tokens/s`, "_same.together.tps", "speed", 1],
        ...BENCH_FIGURES,
    ];
    const blocks = benches.length === 1 ? [introduce(benches[0], main, verdict)] : [];
    if (files.length > 1 || !benches.length) {
        blocks.unshift(tableOf("", named, "File = _name; Kind = _kind; Of what = of; When = when"));
    }
    for (const [title, list, rows] of [["Figure", benches, figures], ["Trace", traces, TRACE_FIGURES]]) {
        blocks.push(...(list.length ? [figureTable(title, list, rows, verdict)] : []));
        blocks.push(...(list.length > 1 ? [`Ratios are to ${list[0]._name}, the first.`] : []));
    }
    return { title: "Summary", blocks };
}

// ---- first token, requests ------------------------------------------------------------------------------------------

const partPieces = parts => PARTS.filter(part => parts[part] > 0).map(part => [part, parts[part]]);

function firstToken(benches) {
    const measured = benches.filter(bench => bench.ttft);
    const times = measured.flatMap(bench => ["cold", "warm"].map(kind => ({
        kind, column: `${bench._name}, ${kind}`, bar: measured.length > 1 ? `${kind}: ${bench._name}` : kind,
        whole: num(bench.ttft, `${kind}_ms`), parts: bench.ttft[kind === "cold" ? "parts_ms" : "warm_parts_ms"],
        first: bench === measured[0] ? NaN : num(measured[0].ttft, `${kind}_ms`),
    })));
    const chart = (caption, list) => ({ type: "bars", unit: "ms", caption, bars: list.filter(one => one.whole > 0).map(one =>
        ({ name: one.bar, sum: show("ms", one.whole), pieces: one.parts ? partPieces(one.parts) : [["others", one.whole]] })) });
    const [cold, warm] = ["cold", "warm"].map(kind => times.filter(one => one.kind === kind));
    const longest = list => Math.max(0, ...list.map(one => one.whole || 0));
    const charts = [chart("From the request to its first token", [...cold, ...warm])];
    if (longest(warm) > 0 && longest(warm) < 0.4 * longest(cold)) {
        charts.push(chart("Warm ones, enlarged", warm));
    }
    const rows = PARTS.filter(part => times.some(one => one.parts?.[part] > 0))
        .map(part => [part, ...times.map(one => cell("ms", num(one.parts, part)))]);
    rows.push(...(longest(times) > 0 ? [["whole", ...times.map(one => cell("ms", one.whole, one.first, -1))]] : []));
    const about = benches.filter(bench => bench.ttft ?? bench.why_no_ttft).map(bench => bench._name + (bench.ttft
        ? `: a prompt of ${show("count", num(bench.ttft, "prompt_tokens"))} tokens, first uncached (cold), then again (warm).`
        : `: not measured: ${bench.why_no_ttft}`));
    return { title: "Time to the first token", blocks: [...about, { columns: ["Part", ...times.map(one => one.column)], rows, charts }] };
}

function requests(trace) {
    const used = PARTS.filter(part => trace.shown.some(one => one.parts_ms[part] > 0));
    const bars = trace.shown.map(one => ({ name: one.request, sum: show("ms", num(one, "first_ms")), pieces: partPieces(one.parts_ms) }));
    const charts = [{ type: "bars", unit: "ms", caption: "From each request to its first token", bars }];
    const blocks = [
        `${plural(trace.requests, "request")}; the parts below are ${show("share", num(trace, "covered_share"))} of the time.`,
        ...(trace.requests > trace.shown.length ? [`The first ${trace.shown.length} are shown one by one.`] : []),
        tableOf("Parts until the first token", trace.shown,
            ["Request = request", ...used.map(part => `${part} = parts_ms.${part} ms`)].join("; "), { charts, closed: true }),
        tableOf("One by one", trace.shown, "Request = request; Prompt tokens = prompt_tokens count; " +
            "Generated = generated_tokens count; First token = first_ms ms; Whole = whole_ms ms; Tokens/s = tps speed"),
        tableOf("What all of them spent their time on", trace.parts, "Part = part; In all = sum ms; Share = share share; " +
            "Requests = count count; Median = p50 ms; 95 % within = p95 ms; Longest = most ms"),
        tableOf("Spoken turns", trace.turns,
            "After the end of speech = turn; Turns = count count; Median = p50 ms; 95 % within = p95 ms; Longest = most ms"),
    ];
    return { title: `Requests of ${trace._name}`, blocks: trace.requests ? blocks : [] };
}

// ---- speed, time between tokens -------------------------------------------------------------------------------------

// Speeds of the points for which `value` is a number, in its order.
function speedTable(benches, points, heading, axis, column, value) {
    const found = [...points.values()].map(same => ({ same, x: value([...same.values()][0]) }))
        .filter(one => Number.isFinite(one.x)).sort((one, other) => one.x - other.x);
    const tps = (one, bench) => num(one.same.get(bench._name), "tps");
    const compared = (one, bench) => cell("speed", tps(one, bench), bench === benches[0] ? NaN : tps(one, benches[0]), 1);
    const series = benches.map(bench => ({ name: bench._name,
        points: found.map(one => ({ x: one.x, y: tps(one, bench) })).filter(point => Number.isFinite(point.y)) }));
    return {
        heading, columns: [column, ...benches.map(bench => bench._name)],
        rows: found.map(one => [cell("count", one.x), ...benches.map(bench => compared(one, bench))]),
        charts: found.length > 1 ? [{ type: "xy", caption: heading, axis, line: true, series }] : [],
    };
}

function speed(benches, points) {
    const depth = benches.length ? mainPoints(benches[0]).decode?.depth : NaN;
    const blocks = [
        ["Prefill, tokens/s", "tokens of the prompt", "tokens", point => (isPrefill(point) ? point.tokens : NaN)],
        ["Decode of one sequence, tokens/s", "depth: tokens before it", "depth", point => (point.batch === 1 ? point.depth : NaN)],
        ["Decode of several at once, tokens/s", `sequences at once, at depth ${depth}`, "at once",
            point => (!isPrefill(point) && point.depth === depth ? point.batch : NaN)],
    ].map(one => speedTable(benches, points, ...one));
    return { title: "Speed", blocks };
}

function betweenTokens(benches, traces, points) {
    const rows = [
        ...pointRows(benches, points).map(({ row, point }) => ({ name: row, p50: point.p50_ms, p95: point.p95_ms, p99: point.p99_ms })),
        ...traces.map(trace => ({ ...trace.between, name: `all answers: ${trace._name}` })),
    ].filter(row => Number.isFinite(row.p50));
    const bars = rows.slice(0, ROWS_MAX).map(row => ({ name: row.name, marks: [row.p50, row.p95, row.p99] }));
    const charts = [{ type: "marks", unit: "ms", caption: "From one step of an answer to the next", names: ["p50: half within", "p95", "p99"], bars }];
    const about = "A step gives an answer one token, or several where guesses were right.";
    return { title: "Between tokens", blocks: [tableOf("", rows, "Answers = name; p50 = p50 ms; p95 = p95 ms; p99 = p99 ms", { about, charts })] };
}

// ---- ops ------------------------------------------------------------------------------------------------------------

function compareOps(benches, points, name) {
    const lists = benches.map(bench => ({ file: bench._name, ops: points.get(name)?.get(bench._name)?.ops })).filter(one => one.ops?.length);
    const names = lists.length < 2 ? [] : OPS.filter(op => lists.some(one => opSum(one.ops, op, "ms") > 0));
    const compared = (op, one) => cell("ms", opSum(one.ops, op, "ms"), one === lists[0] ? NaN : opSum(lists[0].ops, op, "ms"), -1);
    return { heading: `Time of ops: ${name}`, columns: ["Op", ...lists.map(one => one.file)],
        rows: names.map(op => [op, ...lists.map(one => compared(op, one))]) };
}

function residency(benches, traces, points) {
    const steps = [
        ...pointRows(benches, points).map(({ row, point }) => ({ name: row, ops: point.ops })),
        ...traces.map(trace => ({ name: `all steps: ${trace._name}`, ops: trace.ops })),
    ].filter(one => one.ops?.length).map(one => ({ ...one, ms: sum(one.ops.map(op => num(op, "ms"))) || NaN }));
    const names = OPS.filter(op => steps.some(one => opSum(one.ops, op, "share") > 0));
    const shares = one => names.map(op => [op, opSum(one.ops, op, "share")]);
    const bars = steps.slice(0, ROWS_MAX).map(one =>
        ({ name: one.name, sum: show("ms", one.ms), pieces: shares(one).filter(([, share]) => share > 0) }));
    const mains = benches.flatMap(bench => [mainPoints(bench).prefill, mainPoints(bench).decode].filter(Boolean).map(point => ({ bench, point })));
    const blocks = [
        { heading: "Share of the time by op", columns: ["Steps", "Time", ...names], closed: true,
            rows: steps.map(one => [one.name, cell("ms", one.ms), ...shares(one).map(([, share]) => cell("share", share))]),
            charts: [{ type: "bars", unit: "share", caption: "Share of the time of one prefill, and of one step, by op", bars }] },
        ...mains.filter(one => one.bench === benches[0]).map(one => compareOps(benches, points, pointName(one.point))),
        ...mains.map(one => tableOf(`${one.bench._name}: ${pointName(one.point)}`, one.point.ops, "Op = op; Device = device; Kernel = kernel; " +
            "Time = ms ms; Share = share share; Calls = calls count; Reads = gb_s GB/s; Multiplies = multiply_g_s G/s")),
        ...traces.map(trace => tableOf(`${trace._name}: all steps`, trace.ops,
            "Op = op; Kernel = kernel; Time = ms ms; Share = share share; Calls = calls count")),
    ];
    return { title: "Where the steps' time goes", blocks };
}

const ROOF = "The line is what the machine can do: on its slope memory is the limit, on its flat part arithmetic, at the peak of the " +
    "products of the model's main type; attention multiplies floats and stays below it. Weights and keys that stay in a cache are " +
    "read faster than memory, and may be above it.";

// An op is shown when its number of products per byte is plausible.
function roofline(benches) {
    const isPlausible = intensity => intensity > 1e-6 && intensity < 1e9;
    const blocks = benches.map(bench => {
        const { read_gb_s: read, multiply_g_s: multiply } = bench.machine;
        const found = [mainPoints(bench).prefill, mainPoints(bench).decode].filter(Boolean).flatMap(point => (point.ops ?? []).map(op => {
            const [x, y] = [num(op, "multiply_g_s") / num(op, "gb_s"), num(op, "multiply_g_s")];
            return { label: op.op, of: pointName(point), x, y, possible: Math.min(multiply, read * x), share: y / Math.min(multiply, read * x) };
        })).filter(one => one.y > 0 && isPlausible(one.x) && isPlausible(multiply / read));
        const series = [...new Set(found.map(one => one.of))].map(name => ({ name, points: found.filter(one => one.of === name) }));
        const charts = [{ type: "xy", caption: `${bench._name}: G products/s`, axis: "products for each byte that is read", log: true, roof: [read, multiply], series }];
        return tableOf(bench._name, found, "Op = label; Of = of; Products a byte = x speed; Reached = y G/s; Possible = possible G/s; Share = share share", { charts });
    }).filter(table => table.rows.length);
    return { title: "How near the machine's limits", blocks: blocks.length ? [ROOF, ...blocks] : [] };
}

// ---- cache, memory, energy, batches ---------------------------------------------------------------------------------

function cache(benches) {
    const rows = benches.filter(bench => bench.ttft).map(({ _name: file, ttft }) => {
        const [hits, misses, cold, warm] = ["hit_tokens", "miss_tokens", "cold_ms", "warm_ms"].map(key => num(ttft, key));
        return { file, hits, misses, cold, warm, found: hits / (hits + misses), saved: warm > 0 ? cold / warm : NaN };
    });
    const known = rows.filter(row => Number.isFinite(row.found));
    const bars = known.map(row => ({ name: row.file, sum: show("share", row.found), pieces: [["found", row.found], ["computed", 1 - row.found]] }));
    const charts = [{ type: "bars", unit: "share", caption: "Tokens of the warm prompt that were not computed again", bars }];
    return { title: "Cache", blocks: [tableOf("", known.length ? rows : [], "File = file; Found = hits count; Computed = misses count; " +
        "Cached, share = found share; Cold = cold ms; Warm = warm ms; Saved = saved times", { charts })] };
}

const MEMORY_PARTS = { weights: "weights", kv: "keys and values", cache: "cache", scratch: "scratch", program: "program", whole: "whole" };

function memory(benches) {
    const rows = benches.flatMap(bench => Object.entries(MEMORY_PARTS).map(([key, part]) => {
        const [estimated, measured] = [num(bench, `memory.estimated.${key}`), num(bench, `memory.measured.${key}`)];
        return { file: bench._name, part, estimated, measured, off: measured > 0 ? estimated / measured - 1 : NaN };
    })).filter(row => Number.isFinite(row.estimated) || Number.isFinite(row.measured));
    const bars = [...new Set(rows.map(row => row.file))].flatMap(file => ["estimated", "measured"].map(kind => {
        const own = rows.filter(row => row.file === file && row[kind] > 0);
        const whole = own.find(row => row.part === "whole")?.[kind] ?? sum(own.map(row => row[kind]));
        return { name: benches.length > 1 ? `${kind}: ${file}` : kind, sum: show("bytes", whole),
            pieces: own.filter(row => row.part !== "whole").map(row => [row.part, row[kind]]) };
    }));
    const any = rows.some(row => row.estimated > 0 || row.measured > 0);
    return { title: "Memory", blocks: [tableOf("", any ? rows : [], "File = file; Part = part; Estimated = estimated bytes; " +
        "Measured = measured bytes; Estimate is off by = off off", { charts: [{ type: "bars", unit: "bytes", caption: "Memory by part", bars }] })] };
}

function energy(benches, points) {
    const meters = benches.flatMap(bench => [["Processor", "cpu"], ["GPU", "gpu"]].map(([device, key]) => {
        const [meter, why] = [at(bench, `energy.${key}`), at(bench, `energy.why_no_${key}`)];
        return meter || why ? `${bench._name}, ${device}: ${meter ? meter + "." : "not measured: " + why}` : "";
    })).filter(Boolean);
    const rows = pointRows(benches, points)
        .map(one => ({ ...one, joules: num(one.point, "energy.joules_per_100_tokens"), watts: num(one.point, "energy.watts") }))
        .filter(one => Number.isFinite(one.joules) || Number.isFinite(one.watts));
    const bars = rows.slice(0, ROWS_MAX).filter(one => one.joules > 0)
        .map(one => ({ name: one.row, sum: show("J", one.joules), pieces: [[isPrefill(one.point) ? "prefill" : "decode", one.joules]] }));
    return { title: "Energy", blocks: [...meters, tableOf("", rows, "File = file; Work = name; Of 100 tokens = joules J; Power = watts W; " +
        "Tokens/s = point.tps speed", { charts: [{ type: "bars", unit: "J", caption: "Energy of 100 tokens", bars }] })] };
}

function batches(benches) {
    const blocks = benches.filter(bench => bench.policy).map(({ _name: name, policy }) => {
        const rows = policy.batches.map(one => ({ ...one, label: one.batch === policy.taken ? "taken" : "" }));
        const points = key => rows.map(one => ({ x: one.batch, y: num(one, key), label: one.label })).filter(one => Number.isFinite(one.y));
        const chart = (caption, key) =>
            ({ type: "xy", caption, axis: "sequences at once (batch)", line: true, series: [{ name, points: points(key) }] });
        return tableOf(`${name}: ${policy.taken} at once`, rows, "At once = batch count; Tokens/s = tps speed; Half within = p50_ms ms; " +
            "95 % within = p95_ms ms; Gain = gain times; Slower = slower times;  = label", { about: policy.why,
            charts: [chart("All sequences together, tokens/s", "tps"), chart("95 % of the steps within, ms", "p95_ms")] });
    });
    return { title: "How many at once", blocks };
}

// ---- machines -------------------------------------------------------------------------------------------------------

const FACTS = "Processor = cpu.name; Cores = cpu.cores; Processors = cpu.processors; Usable here = cpu.usable; Processors the container may " +
    "use = cpu.cgroup_cpus; Kernels = cpu.kernels; Governor = cpu.governor; NUMA nodes = cpu.numa_nodes; Memory = memory.bytes bytes; " +
    "Memory that can be used = memory.usable_bytes bytes; Huge pages = memory.huge_pages; Swap = memory.swap_bytes bytes; " +
    "Reads = speeds.read_gb_s GB/s; Attention = speeds.attend_g_s G/s; Processor energy = energy.cpu; Processor energy not measured = " +
    "energy.why_no_cpu; GPU energy = energy.gpu; GPU energy not measured = energy.why_no_gpu; No GPU = why_no_gpu";

function factRows(machine) {
    const { columns, rows: [values] } = tableOf("", [machine], FACTS);
    const size = bytes => (bytes < 1 << 20 ? `${+(bytes / 1024).toPrecision(4)} KiB` : `${+(bytes / (1 << 20)).toPrecision(4)} MiB`);
    return [
        ...columns.map((name, i) => [name, values[i].text ?? values[i]]).filter(([, text]) => text !== "–"),
        ...(machine.cpu.isa?.length ? [["Instruction sets", machine.cpu.isa.join(", ")]] : []),
        ...(machine.cpu.caches ?? []).map(one => [`Cache of level ${one.level ?? "–"}${one.kind ? ", " + one.kind : ""}`,
            `${Number.isFinite(one.bytes) ? size(one.bytes) : "–"}, shared by ${one.shared_by ?? "–"}`]),
        ...(machine.gpu ?? []).map(one => ["GPU", `${one.name}: ${show("bytes", num(one, "bytes"))}, reads ${show("GB/s", num(one, "read_gb_s"))}`]),
    ];
}

function machineSection(machine, verdict) {
    const size = count => (count >= 1e9 ? (count / 1e9).toFixed(1) + "B" : count > 0 ? (count / 1e6).toFixed(0) + "M" : "–");
    const models = (machine.models ?? []).map(one => ({ ...one, size: size(one.parameters) }));
    const fitting = models.filter(one => one.fits !== false);
    const findings = (machine.findings ?? []).map(one => ({ ...one, mark: one.level === "warn" ? "⚠ warning" : "note" }));
    const types = Object.entries(at(machine, "speeds.types") ?? {}).map(([name, one]) => ({ ...one, name }));
    const choices = (machine.choices ?? []).map(one => ({ ...one, shape: one.model ?? one.shape }));
    verdict.push(...findings.filter(one => one.level === "warn").map(one => `${machine._name}: ${one.what}.`));
    const blocks = [
        tableOf("What could be better", findings, " = mark; Found = what; What to do = fix"),
        tableOf("What to choose", choices, "For = use; Model = shape; Type = type; Why = why"),
        tableOf("What to expect", fitting, "Model = shape; Type = type; Parameters = size; Memory = memory_bytes bytes; " +
            "Prefill, tokens/s = prefill_tps speed; Decode, tokens/s = decode_tps speed; First token of 1k = ttft_1k_ms ms"),
        ...(fitting.length < models.length ? [`Left out: ${models.length - fitting.length} that need more than 70 % of this machine's memory.`] : []),
        tableOf("Speeds by type", types, "Type of weights = name; Multiplies = multiply_g_s G/s; Reads when decoding = decode_gb_s GB/s"),
        { heading: "Facts", columns: ["Fact", ""], rows: factRows(machine) },
    ];
    return { title: `Machine: ${machine._name}`, blocks };
}

// ---- the document ---------------------------------------------------------------------------------------------------

// Says that files differ in a property: `id` tells values apart, `name` is shown.
function mixture(files, what, id, name) {
    const kept = new Map();
    for (const file of files.filter(one => id(one) ?? name(one))) {
        const key = id(file) ?? name(file);
        kept.set(key, kept.get(key) ?? `${file._name}: ${name(file)}`);
    }
    return kept.size < 2 ? [] : [`These files come from ${kept.size} different ${what}, so differences between them may be the ${what} ` +
        `(${[...kept.values()].join("; ")}).`];
}

function settingsOf({ settings: s }) {
    const quantized = s?.quantize ? `, quantized to ${s.quantize}` : "";
    return s && `chunk ${s.chunk ?? "–"}, kv ${s.kv_type ?? "–"}, ${s.tokens ?? "–"} tokens${quantized}`;
}

function titleOf(files, benches) {
    if (benches.length !== 1 && files.length > 1) {
        return `${files[0]._name} and ${files.length === 2 ? files[1]._name : files.length - 1 + " others"} side by side`;
    }
    if (files[0]._kind === "figures") {
        return `${files[0].model}: ${FIGURE_KINDS[files[0].format].toLowerCase()}`;
    }
    return files[0]._kind === "machine" ? files[0].cpu.name : `${benches[0]?.model ?? files[0]._name}: where the time goes`;
}

// Gives every bench its points like the main ones of the first bench, and the share of their time in kernels.
function addSame(benches) {
    const main = benches.length ? mainPoints(benches[0]) : {};
    const kernels = point => (point?.ops?.length ? sum(KERNELS.map(op => opSum(point.ops, op, "share"))) : NaN);
    for (const bench of benches) {
        const find = point => point && [...bench.prefill, ...bench.decode].find(one => pointName(one) === pointName(point));
        const [prefill, decode, together] = [find(main.prefill), find(main.decode), find(main.together)];
        const known = value => (Number.isFinite(value) ? value : undefined);
        bench._same = { prefill, decode, together, prefillKernels: known(kernels(prefill)), decodeKernels: known(kernels(decode)),
            busy: known(num(decode, "gpu_busy_percent") / 100) };
    }
}

// Tables without rows and sections without content are not shown; long tables are cut.
function finish(sections) {
    const cut = table => (table.rows?.length > ROWS_MAX ? { ...table, rows: table.rows.slice(0, ROWS_MAX), leftOut: table.rows.length - ROWS_MAX } : table);
    return sections.map(({ title, blocks }) => ({ title, blocks: blocks.filter(block => !block.rows || block.rows.length).map(cut) }))
        .filter(section => section.blocks.length);
}

function reportDocument(files, version) {
    const [benches, traces, machines, lists] = ["bench", "trace", "machine", "figures"].map(kind => files.filter(file => file._kind === kind));
    const { points, leftOut } = allPoints(benches);
    const verdict = [];
    addSame(benches);
    const sections = finish([
        summary(files, benches, traces, verdict), firstToken(benches), ...traces.map(requests), speed(benches, points),
        betweenTokens(benches, traces, points), residency(benches, traces, points), roofline(benches), cache(benches), memory(benches),
        energy(benches, points), batches(benches), ...figureSections(lists, verdict), ...machines.map(machine => machineSection(machine, verdict)),
    ]);
    for (const trace of traces.filter(one => one.parts.length)) {
        const part = most(trace.parts, one => one.share);
        verdict.push(`${trace._name}: half of the first tokens within ${show("ms", num(trace, "first.p50"))}; most of the time is ` +
            `${part.part} (${show("share", part.share)}).`);
    }
    const notes = [
        ...mixture(files, "machines", file => at(file, "machine.id") ?? file.id, file => at(file, "machine.cpu") ?? at(file, "cpu.name")),
        ...mixture([...benches, ...lists], "models", file => file.model_id, file => file.model),
        ...mixture(benches, "settings", settingsOf, settingsOf),
        ...(leftOut ? [`Left out: ${plural(leftOut, "point")} of the files, as a report shows at most ${ROWS_MAX} different ones.`] : []),
    ];
    return { title: titleOf(files, benches), notes, verdict, sections, footer: `Written by spry ${version} report.` };
}
