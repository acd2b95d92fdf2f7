// The charts of the watch view: throughput, bars of requests, maps of pages. Each keeps its elements, so that an update
// twice a second costs little.

const KV_CELLS_MAX = 240;

// ---- speed ----------------------------------------------------------------------------------------------------------

// A line through [{time, value}] of the last `span` ms, up to `most`, in an image 240 wide and 40 high.
function drawSpark(svg, points, now, span, most, label) {
    const place = point =>
        (240 * (1 - (now - point.time) / span)).toFixed(1) + " " + (38 - (35 * point.value) / most).toFixed(1);
    const line = points.length > 1 ? "M" + points.map(place).join("L") : "";
    svg.querySelector(".line").setAttribute("d", line);
    const left = points.length > 1 ? place(points[0]).split(" ")[0] : "0";
    svg.querySelector(".area").setAttribute("d", line && line + "L240 40L" + left + " 40Z");
    svg.setAttribute("aria-label", label);
}

// ---- requests -------------------------------------------------------------------------------------------------------

const STATE_WORDS = {
    queue: "queue",
    prefill: "prefill",
    decode: "decode",
    done: "done",
    cancelled: "cancelled",
    failed: "failed",
};
const hasEnded = request => !["queue", "prefill", "decode"].includes(request.state);

// A row is {element, ...elements inside it}; it unfolds to the waterfall of the request.
function requestRow() {
    const row = {
        bar: makeBar(),
        name: make("b", { dir: "auto" }),
        state: make("span", { class: "state" }),
        figures: make("span", { class: "row-figures" }),
        parts: make("div", { class: "row-parts" }),
    };
    row.folds = make(
        "details",
        {},
        make(
            "summary",
            {},
            make("div", { class: "row-words" }, row.name, row.state, row.figures),
            make("div", { class: "track" }, row.bar),
        ),
        row.parts,
    );
    row.folds.addEventListener("toggle", () => drawRowParts(row));
    row.element = make("li", {}, row.folds);
    return row;
}

// The waterfall is made only while the row is open, and anew only when it changes: what has the focus in it keeps it.
function drawRowParts(row) {
    const drawn = row.folds.open ? JSON.stringify(row.request) : "";
    if (drawn !== row.drawn) {
        row.drawn = drawn;
        const { request } = row;
        row.parts.replaceChildren(
            ...(drawn
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

const requestFact = (word, value) => make("div", {}, make("dt", {}, term(word)), make("dd", {}, value));

function setText(element, text) {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}

// The bar shows when the request ran within the last `span` ms; the length of each part is its duration.
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

function requestFigures(request) {
    const known = request.cached_tokens > 0 ? say("{0} reused", inCount(request.cached_tokens)) : "";
    const speed = request.tokens_per_second > 0 ? say("{0} a second", inFigures(request.tokens_per_second)) : "";
    const joined = (...parts) => parts.filter(Boolean).join(", ");
    return (
        joined(say("{0} in", inCount(request.prompt_tokens)), known) +
        " \u00b7 " +
        joined(say("{0} out", inCount(request.generated_tokens)), speed)
    );
}

// ---- models ---------------------------------------------------------------------------------------------------------

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
    };
    card.element = make(
        "li",
        {},
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

const PAGE_WORDS = {
    "k-used": "in use",
    "k-shared": "shared",
    "k-pinned": "pinned",
    "k-kept": "cached",
    "k-free": "free",
}; // keys of TERMS

// Pages by kind, each counted once: pinned ones are not counted as cached or in use, shared ones not as in use.
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
function kvCells(kv, kinds) {
    const scale = Math.max(1, Math.ceil(kv.pages / KV_CELLS_MAX));
    const all = Math.ceil(kv.pages / scale);
    const cells = Object.entries(kinds).flatMap(([kind, pages]) => Array(Math.ceil(pages / scale)).fill(kind));
    return { scale, cells: cells.slice(0, all) };
}

function drawModel(card, model) {
    const kv = model.kv;
    const kinds = pageKinds(kv);
    const { scale, cells } = kvCells(kv, kinds);
    const asked = model.hit_tokens + model.miss_tokens;
    const loaded = model.state === "loaded";
    setText(card.name, model.name);
    card.element.dataset.state = model.state;
    const state = say({ disk: "on disk", loading: "loading" }[model.state] ?? (model.running ? "working" : "ready"));
    setText(card.state, model.pinned ? say("{0}, pinned", state) : state);
    setText(card.together, model.why && say("Together: {0}", model.why));
    card.together.hidden = model.why === "";
    const load = loaded && say("{0} running, {1} waiting", inCount(model.running), inCount(model.waiting));
    const reuse = asked > 0 && say("{0} of {1} reused", inPercent(model.hit_tokens, asked), inPromptTokens(asked));
    const spans = model.span_tokens > 0 && say("{0} from fragments", inCount(model.span_tokens));
    setText(card.words, [inBytes(model.bytes), load, loaded && reuse, loaded && spans].filter(Boolean).join(" \u00b7 "));
    drawMemory(card, model);
    while (card.map.children.length > cells.length) {
        card.map.lastChild.remove();
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

// ---- lists and bars -------------------------------------------------------------------------------------------------

// Shows entries [{key, ...}] as a list in their order and keeps the elements by key: create() makes one, draw(part, entry)
// updates it.
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

// A bar of parts [{share (0 to 1), kind}].
function drawMeter(meter, parts, label) {
    while (meter.children.length < parts.length) {
        meter.append(make("i"));
    }
    while (meter.children.length > parts.length) {
        meter.lastChild.remove();
    }
    parts.forEach(({ share, kind }, at) => {
        meter.children[at].className = kind;
        meter.children[at].style.width = 100 * Math.min(1, Math.max(0, share)) + "%";
    });
    meter.setAttribute("aria-label", label);
}
