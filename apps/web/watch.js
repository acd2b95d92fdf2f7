// The watch view: a snapshot of the server (documented in WATCH.md) about twice a second, while the view is visible. Each chart keeps
// its elements, so that an update costs little.

import { byId, inside, make, setText } from "./dom.js";
import { drawBar, drawMeter, fallView, makeBar, PART_WORDS, PARTS, partsOf, partsSum, term } from "./figures.js";
import { finite, inBytes, inCount, inFigures, inPercent, inPromptTokens, say, several } from "./language.js";
import { callServer, noteFailure, parseAnswer, ServerError, serverEvents } from "./server.js";
import { cleanText, listOf } from "./store.js";

/** @import { Numbers } from "./store.js" */

const WATCH_KEEP_MS = 120000;
const SPARK_MS = 60000;
const EARLIER_STEP_MS = 500;
const WATTS_MS = 5000;
const HITS_MS = 5000;
const WATCH_ROWS_MAX = 60;

/**
 * @typedef {ReturnType<typeof cleanSnapshot>} Snapshot
 * @typedef {Snapshot["requests"][number]} WatchedRequest
 * @typedef {Snapshot["models"][number]} WatchedModel
 * @typedef {{ time: number, value: number }} Point
 * @typedef {Point & { hits: number, asked: number }} HitPoint counts since the models were loaded; value: the share before
 * @typedef {ReturnType<typeof requestRow>} RequestRow
 * @typedef {ReturnType<typeof modelCard>} ModelCard
 */

const watch = {
    /** @type {AbortController | null} */
    abort: null,
    now: 0,
    /** @type {Map<string, WatchedRequest>} */
    requests: new Map(), // id: its last known state, kept longer than the server sends it
    chosen: false, // the time that is shown
    /** @type {Point[]} */
    speeds: [],
    /** @type {HitPoint[]} */
    hits: [],
    /** @type {Point[]} */
    joules: [],
    rows: new Map(),
    cards: new Map(),
};

// ---- snapshots -----------------------------------------------------------------------------------------------------

/** @template {string} Name @param {any} value @param {Name[]} names @returns {Record<Name, number>} */
const numbersOf = (value, names) =>
    /** @type {any} */ (Object.fromEntries(names.map(name => [name, Math.max(0, finite(value?.[name]))])));

// A snapshot with every member present and of its type.
/** @param {any} value */
function cleanSnapshot(value) {
    return {
        now_ms: finite(value?.now_ms),
        requests: listOf(value?.requests).map(request => ({
            id: cleanText(request?.id, 100),
            model: cleanText(request?.model, 200),
            state: cleanText(request?.state, 20),
            parts: partsOf(request?.parts_ms),
            ...numbersOf(request, [
                "start_ms",
                "prompt_tokens",
                "cached_tokens",
                "generated_tokens",
                "tokens_per_second",
            ]),
        })),
        models: listOf(value?.models).map(model => ({
            name: cleanText(model?.name, 200),
            state: cleanText(model?.state, 20),
            pinned: model?.pinned === true,
            why: cleanText(model?.together?.why, 300),
            kv: numbersOf(model?.kv, ["pages", "free", "cached", "idle", "pinned", "page_bytes"]),
            memory: numbersOf(model?.memory, ["used", "limit", "kv_used", "kv_limit"]),
            ...numbersOf(model, [
                "bytes",
                "running",
                "waiting",
                "hit_tokens",
                "miss_tokens",
                "span_tokens",
                "tokens_per_second",
            ]),
        })),
        pool: numbersOf(value?.pool, ["bytes", "max_bytes"]),
        energy: { ...numbersOf(value?.energy, ["cpu_joules", "gpu_joules"]), why: cleanText(value?.energy?.why, 300) },
    };
}

// Requests remain on the page after the server has stopped sending them. A clock that goes back means a new server.
/** @param {Snapshot} snapshot */
function rememberSnapshot(snapshot) {
    if (snapshot.now_ms < watch.now) {
        watch.requests.clear();
        watch.speeds = [];
        watch.hits = [];
        watch.joules = [];
    }
    watch.now = snapshot.now_ms;
    const sent = new Set(snapshot.requests.map(request => request.id));
    for (const [id, request] of watch.requests) {
        if (!sent.has(id) && !hasEnded(request)) {
            request.state = "done";
        }
        if (watch.now - request.start_ms > WATCH_KEEP_MS && hasEnded(request)) {
            watch.requests.delete(id);
        }
    }
    for (const request of snapshot.requests) {
        watch.requests.set(request.id, request);
    }
    watch.speeds.push({
        time: watch.now,
        value: snapshot.models.reduce((sum, model) => sum + model.tokens_per_second, 0),
    });
    watch.speeds = watch.speeds.filter(point => watch.now - point.time <= SPARK_MS);
    rememberHits(snapshot);
    watch.joules.push({ time: watch.now, value: snapshot.energy.cpu_joules + snapshot.energy.gpu_joules });
    watch.joules = watch.joules.filter(point => watch.now - point.time <= WATTS_MS);
}

// The share of prompt tokens that were cached, over the last seconds in which there were prompts. Counts that go back mean
// that a model was unloaded.
/** @param {Snapshot} snapshot */
function rememberHits(snapshot) {
    /** @param {"hit_tokens" | "miss_tokens" | "tokens_per_second" | "running" | "waiting"} name */
    const sum = name => snapshot.models.reduce((total, model) => total + model[name], 0);
    const hits = sum("hit_tokens");
    const asked = hits + sum("miss_tokens");
    if (finite(watch.hits.at(-1)?.asked) > asked) {
        watch.hits = [];
    }
    const before = watch.hits.findLast(point => watch.now - point.time >= HITS_MS) ?? watch.hits[0];
    const fresh = asked - (before?.asked ?? 0);
    const value = fresh > 0 ? (hits - (before?.hits ?? 0)) / fresh : (watch.hits.at(-1)?.value ?? 0);
    watch.hits.push({ time: watch.now, hits, asked, value: Math.min(1, Math.max(0, value)) });
    watch.hits = watch.hits.filter(point => watch.now - point.time <= SPARK_MS);
}

// ---- showing -------------------------------------------------------------------------------------------------------

/** @param {Snapshot} snapshot */
function drawTiles(snapshot) {
    /** @param {"hit_tokens" | "miss_tokens" | "tokens_per_second" | "running" | "waiting"} name */
    const sum = name => snapshot.models.reduce((total, model) => total + model[name], 0);
    const hits = sum("hit_tokens");
    const asked = hits + sum("miss_tokens");
    const { bytes, max_bytes } = snapshot.pool;
    setText(byId("watch-speed"), inFigures(sum("tokens_per_second")));
    const most = Math.max(1, ...watch.speeds.map(point => point.value));
    const fastest = say("at most {0} in the last minute", inFigures(most));
    setText(byId("watch-speed-words"), fastest);
    drawSpark(byId("watch-spark"), watch.speeds, watch.now, SPARK_MS, most, fastest);
    setText(byId("watch-load"), inCount(sum("running")));
    setText(byId("watch-load-words"), say("running, {0} waiting", inCount(sum("waiting"))));
    setText(byId("watch-hits"), inPercent(hits, asked));
    setText(byId("watch-hits-words"), say("{0} of {1}", inCount(hits), inPromptTokens(asked)));
    const rate = watch.hits.at(-1)?.value ?? 0;
    drawSpark(byId("watch-hits-spark"), watch.hits, watch.now, SPARK_MS, 1, say("last prompts: {0}", inPercent(rate, 1)));
    setText(byId("watch-pool"), inBytes(bytes));
    setText(byId("watch-pool-words"), max_bytes > 0 ? say("of at most {0}", inBytes(max_bytes)) : "");
    const loaded = snapshot.models.filter(model => model.state === "loaded");
    drawMeter(
        byId("watch-pool-bar"),
        loaded.map((model, at) => ({ share: model.bytes / Math.max(1, max_bytes), kind: "m-" + (at % 3) })),
        loaded.map(model => model.name + " " + inBytes(model.bytes)).join(", "),
    );
    drawEnergy(snapshot.energy);
}

// Watts: the average over the last seconds.
/** @param {Snapshot["energy"]} energy */
function drawEnergy(energy) {
    const [first] = watch.joules;
    const last = watch.joules.at(-1) ?? first;
    const watts = last.time > first.time ? (1000 * (last.value - first.value)) / (last.time - first.time) : 0;
    setText(byId("watch-power"), energy.why ? "\u2013" : inFigures(watts) + " W");
    const words = byId("watch-power-words");
    if (!energy.why) {
        setText(words, say("{0} J since the server began", inFigures(last.value)));
    } else if (words.firstElementChild?.getAttribute("data-explanation") !== energy.why) {
        words.replaceChildren(term("unmeasured", energy.why));
    }
}

function drawRequests() {
    const span = 1000 * Number(/** @type {HTMLInputElement} */ (inside(byId("window"), "input:checked")).value);
    const shown = [...watch.requests.values()]
        .filter(request => !hasEnded(request) || requestEnd(request) > watch.now - span)
        .sort((one, other) => other.start_ms - one.start_ms)
        .slice(0, WATCH_ROWS_MAX);
    drawList(
        byId("waterfall"),
        watch.rows,
        shown.map(request => ({ key: request.id, request })),
        requestRow,
        (row, { request }) => drawRequest(row, request, watch.now, span),
    );
    byId("waterfall-none").hidden = shown.length > 0;
    setText(
        byId("waterfall-none"),
        watch.requests.size
            ? say("Nothing in this time.")
            : say("No requests yet. Ask something in the chat, or send one with curl."),
    );
}

/** @param {WatchedRequest} request */
const requestEnd = request => request.start_ms + partsSum(request.parts);

// The speed before the view was opened, from the requests that ended then: tokens of the second before each time.
/** @returns {Point[]} */
function earlierSpeeds() {
    const wrote = [...watch.requests.values()]
        .filter(request => hasEnded(request) && request.tokens_per_second > 0)
        .map(request => ({ end: requestEnd(request), ms: (1000 * request.generated_tokens) / request.tokens_per_second, request }));
    const points = [];
    for (let before = SPARK_MS; before > 0; before -= EARLIER_STEP_MS) {
        const time = watch.now - before;
        const value = wrote.reduce((sum, { end, ms, request }) => {
            const within = Math.min(time, end) - Math.max(time - 1000, end - ms);
            return sum + (request.tokens_per_second * Math.max(0, within)) / 1000;
        }, 0);
        points.push({ time, value });
    }
    return wrote.length ? points : [];
}

// Until a time is chosen, the view shows the shortest one that has a request, so that what happened before it was opened is
// seen, and stays.
function widenWindow() {
    if (watch.chosen) {
        return;
    }
    const choices = /** @type {NodeListOf<HTMLInputElement>} */ (byId("window").querySelectorAll("input"));
    const requests = [...watch.requests.values()];
    const fits = [...choices].find(one => requests.some(request => requestEnd(request) > watch.now - 1000 * Number(one.value)));
    if (fits) {
        fits.checked = true;
    }
}

/** @param {Snapshot} snapshot */
function showSnapshot(snapshot) {
    const first = watch.now === 0;
    rememberSnapshot(snapshot);
    if (first) {
        watch.speeds.unshift(...earlierSpeeds());
    }
    widenWindow();
    drawTiles(snapshot);
    drawRequests();
    drawList(
        byId("watch-models"),
        watch.cards,
        snapshot.models.map(model => ({ key: model.name, model })),
        modelCard,
        (card, { model }) => drawModel(card, model),
    );
}

// ---- the stream ----------------------------------------------------------------------------------------------------

const isWatched = () => !byId("watch-view").hidden && document.visibilityState === "visible";

/** @param {string} text @param {boolean} [failed] */
function sayWatch(text, failed = false) {
    setText(byId("watch-state"), text);
    byId("watch-state").classList.toggle("error", failed);
}

// Reads the stream until `abort`; throws when it breaks or ends.
/** @param {AbortController} abort */
async function followWatch(abort) {
    const response = await callServer("/watch", null, abort.signal);
    for await (const { data } of serverEvents(response)) {
        sayWatch("");
        showSnapshot(cleanSnapshot(parseAnswer(data)));
    }
    throw new ServerError(say("The server ended the connection."), 0);
}

// Starts or stops the stream when the page becomes visible or hidden; retries after an error.
export async function watchWhileSeen() {
    if (!isWatched() || watch.abort) {
        if (!isWatched()) {
            watch.abort?.abort();
            watch.abort = null;
        }
        return;
    }
    const abort = (watch.abort = new AbortController());
    sayWatch(say("Connecting\u2026"));
    while (watch.abort === abort) {
        try {
            await followWatch(abort);
        } catch (error) {
            if (watch.abort !== abort) {
                return;
            }
            noteFailure(error);
            sayWatch(say("{0} Trying again.", error.message), true);
        }
        await new Promise(resolve => {
            setTimeout(resolve, 2000);
        });
    }
}

export function startWatch() {
    byId("part-legend").append(...PARTS.map(name => make("li", { class: "p-" + name }, term(PART_WORDS[name]))));
    byId("page-legend").append(...Object.keys(PAGE_WORDS).map(name => make("li", { class: name }, term(PAGE_WORDS[name]))));
    byId("window").addEventListener("change", () => {
        watch.chosen = true;
        drawRequests();
    });
    document.addEventListener("visibilitychange", watchWhileSeen);
}

// ---- charts --------------------------------------------------------------------------------------------------------

const KV_CELLS_MAX = 240;

// ---- speed ---------------------------------------------------------------------------------------------------------

// A line through [{time, value}] of the last `span` ms, up to `most`, in an image 240 wide and 40 high.
/**
 * @param {Element} svg
 * @param {Point[]} points
 * @param {number} now
 * @param {number} span
 * @param {number} most
 * @param {string} label
 */
function drawSpark(svg, points, now, span, most, label) {
    /** @param {Point} point */
    const place = point =>
        (240 * (1 - (now - point.time) / span)).toFixed(1) + " " + (38 - (35 * point.value) / most).toFixed(1);
    const line = points.length > 1 ? "M" + points.map(place).join("L") : "";
    inside(svg, ".line").setAttribute("d", line);
    const left = points.length > 1 ? place(points[0]).split(" ")[0] : "0";
    inside(svg, ".area").setAttribute("d", line && line + "L240 40L" + left + " 40Z");
    svg.setAttribute("aria-label", label);
}

// ---- requests ------------------------------------------------------------------------------------------------------

/** @type {Record<string, string>} */
const STATE_WORDS = {
    queue: "queue",
    prefill: "prefill",
    decode: "decode",
    done: "done",
    cancelled: "cancelled",
    failed: "failed",
};
/** @param {WatchedRequest} request */
const hasEnded = request => !["queue", "prefill", "decode"].includes(request.state);

// A row is {element, ...elements inside it}; it unfolds to the waterfall of the request.
function requestRow() {
    const row = {
        bar: makeBar(),
        name: make("b", { dir: "auto" }),
        state: make("span", { class: "state" }),
        figures: make("span", { class: "row-figures" }),
        parts: make("div", { class: "row-parts" }),
        folds: make("details"),
        element: make("li"),
        drawn: "", // the request as it was drawn last
        /** @type {WatchedRequest | null} */
        request: null,
    };
    row.folds.append(
        make(
            "summary",
            {},
            make("div", { class: "row-words" }, row.name, row.state, row.figures),
            make("div", { class: "track" }, row.bar),
        ),
        row.parts,
    );
    row.folds.addEventListener("toggle", () => drawRowParts(row));
    row.element.append(row.folds);
    return row;
}

// The waterfall is made only while the row is open, and anew only when it changes: what has the focus in it keeps it.
/** @param {RequestRow} row */
function drawRowParts(row) {
    const { request } = row;
    const drawn = row.folds.open ? JSON.stringify(request) : "";
    if (drawn !== row.drawn) {
        row.drawn = drawn;
        row.parts.replaceChildren(
            ...(drawn && request
                ? [
                      fallView(request.parts),
                      make(
                          "dl",
                          { class: "facts" },
                          requestFact("prefix reused", say("{0} of {1}", inCount(request.cached_tokens), inPromptTokens(request.prompt_tokens))),
                      ),
                      make("p", { class: "muted" }, make("code", {}, request.id)),
                  ]
                : []),
        );
    }
}

/** @param {string} word @param {string} value */
const requestFact = (word, value) => make("div", {}, make("dt", {}, term(word)), make("dd", {}, value));

// The bar shows when the request ran within the last `span` ms; the length of each part is its duration.
/** @param {RequestRow} row @param {WatchedRequest} request @param {number} now @param {number} span */
function drawRequest(row, request, now, span) {
    row.bar.style.left = 100 * (1 - (now - request.start_ms) / span) + "%";
    row.bar.style.width = (100 * partsSum(request.parts)) / span + "%";
    drawBar(row.bar, request.parts);
    row.element.dataset.state = request.state;
    setText(row.name, request.model);
    setText(row.state, say(STATE_WORDS[request.state] ?? request.state));
    setText(row.figures, requestFigures(request));
    row.request = request;
    drawRowParts(row);
}

/** @param {WatchedRequest} request */
function requestFigures(request) {
    const known = request.cached_tokens > 0 ? say("{0} reused", inCount(request.cached_tokens)) : "";
    const speed = request.tokens_per_second > 0 ? say("{0} a second", inFigures(request.tokens_per_second)) : "";
    /** @param {string[]} parts */
    const joined = (...parts) => parts.filter(Boolean).join(", ");
    return (
        joined(say("{0} in", inCount(request.prompt_tokens)), known) +
        " \u00b7 " +
        joined(say("{0} out", inCount(request.generated_tokens)), speed)
    );
}

// ---- models --------------------------------------------------------------------------------------------------------

function modelCard() {
    const card = {
        name: make("b", { dir: "auto" }),
        state: make("span", { class: "state" }),
        words: make("p", {}),
        memory: make("p", {}),
        meter: make("div", { class: "meter", role: "img" }),
        together: make("p", { class: "together" }),
        map: make("div", { class: "kv", role: "img" }),
        scale: make("p", { class: "muted" }),
        element: make("li"),
    };
    card.element.append(
        make("div", { class: "row-words" }, card.name, card.state),
        card.words,
        card.together,
        card.memory,
        card.meter,
        card.map,
        card.scale,
    );
    return card;
}

/** @type {Record<string, string>} */
const PAGE_WORDS = {
    "k-used": "in use",
    "k-shared": "shared",
    "k-pinned": "pinned",
    "k-kept": "cached",
    "k-free": "free",
}; // keys of TERMS

// Pages by kind, each counted once: pinned ones are not counted as cached or in use, shared ones not as in use.
/** @param {Numbers} kv */
function pageKinds(kv) {
    const held = Math.max(0, kv.pages - kv.free);
    const pinned = Math.min(held, kv.pinned);
    const kept = Math.min(held - pinned, Math.max(0, kv.idle - pinned));
    const shared = Math.min(held - pinned - kept, Math.max(0, kv.cached - pinned - kept));
    return {
        "k-used": held - pinned - kept - shared,
        "k-shared": shared,
        "k-pinned": pinned,
        "k-kept": kept,
        "k-free": kv.pages - held,
    };
}

// Squares in proportion to the pages, free ones last. A kind with at least one page has at least one square.
/** @param {Numbers} kv @param {Numbers} kinds */
function kvCells(kv, kinds) {
    const scale = Math.max(1, Math.ceil(kv.pages / KV_CELLS_MAX));
    const all = Math.ceil(kv.pages / scale);
    const cells = Object.entries(kinds).flatMap(([kind, pages]) => Array(Math.ceil(pages / scale)).fill(kind));
    return { scale, cells: cells.slice(0, all) };
}

/** @param {ModelCard} card @param {WatchedModel} model */
function drawModel(card, model) {
    const kv = model.kv;
    const kinds = pageKinds(kv);
    const { scale, cells } = kvCells(kv, kinds);
    const asked = model.hit_tokens + model.miss_tokens;
    const loaded = model.state === "loaded";
    setText(card.name, model.name);
    card.element.dataset.state = model.state;
    const busy = model.running ? "working" : "ready";
    const state = say(model.state === "disk" ? "on disk" : model.state === "loading" ? "loading" : busy);
    setText(card.state, model.pinned ? say("{0}, pinned", state) : state);
    setText(card.together, model.why && say("Together: {0}", model.why));
    card.together.hidden = model.why === "";
    const load = loaded && say("{0} running, {1} waiting", inCount(model.running), inCount(model.waiting));
    const reuse = asked > 0 && say("{0} of {1} reused", inPercent(model.hit_tokens, asked), inPromptTokens(asked));
    const spans = model.span_tokens > 0 && say("{0} from fragments", inCount(model.span_tokens));
    setText(card.words, [inBytes(model.bytes), load, loaded && reuse, loaded && spans].filter(Boolean).join(" \u00b7 "));
    drawMemory(card, model);
    while (card.map.children.length > cells.length) {
        card.map.lastChild?.remove();
    }
    cells.forEach((kind, at) => {
        const cell = card.map.children[at] ?? card.map.appendChild(make("i"));
        if (cell.className !== kind) {
            cell.className = kind;
        }
    });
    const words = Object.entries(kinds)
        .filter(([kind, pages]) => pages > 0 || kind === "k-free")
        .map(([kind, pages]) => inCount(pages) + " " + say(PAGE_WORDS[kind]))
        .join(", ");
    card.map.hidden = card.scale.hidden = cells.length === 0;
    card.map.setAttribute("aria-label", say("Pages: {0}", words));
    const square = several(scale, "a square is {0} page", "a square is {0} pages");
    setText(card.scale, say("{0}; {1} of {2}", words, square, inBytes(kv.page_bytes)));
}

// Memory that the model uses, and its limit; of it the KV memory.
/** @param {ModelCard} card @param {WatchedModel} model */
function drawMemory(card, model) {
    const { used, limit, kv_used, kv_limit } = model.memory;
    const shown = model.state === "loaded" && limit > 0;
    card.memory.hidden = card.meter.hidden = !shown;
    if (shown) {
        const words = say("Memory: {0} of {1}, of it KV: {2} of {3}", inBytes(used), inBytes(limit), inBytes(kv_used), inBytes(kv_limit));
        setText(card.memory, words);
        drawMeter(
            card.meter,
            [
                { share: (used - kv_used) / limit, kind: "m-1" },
                { share: kv_used / limit, kind: "m-0" },
            ],
            words,
        );
    }
}

// ---- lists and bars ------------------------------------------------------------------------------------------------

// Shows entries [{key, ...}] as a list in their order and keeps the elements by key: create() makes one, draw(part, entry)
// updates it.
/**
 * @param {HTMLElement} list
 * @param {Map<string, any>} parts
 * @param {any[]} entries
 * @param {() => any} create
 * @param {(part: any, entry: any) => void} draw
 */
function drawList(list, parts, entries, create, draw) {
    const keys = new Set(entries.map(entry => entry.key));
    for (const [key, part] of parts) {
        if (!keys.has(key)) {
            part.element.remove();
            parts.delete(key);
        }
    }
    entries.forEach((entry, at) => {
        const part = parts.get(entry.key) ?? create();
        parts.set(entry.key, part);
        draw(part, entry);
        if (list.children[at] !== part.element) {
            list.insertBefore(part.element, list.children[at] ?? null);
        }
    });
}
