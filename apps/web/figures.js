// Figures of an answer: words of the field with their explanations, the parts of its time as a bar and a waterfall, how full the
// context is.

import { byId, childrenIn, make, setText } from "./dom.js";
import { finite, inCount, inFigures, inPercent, inPromptTokens, inTime, inTokens, say } from "./language.js";

/** @import { Message, Numbers, Timings } from "./store.js" */

/** @type {Record<string, string>} */
const TERMS = {
    receive: "Receiving the request and reading its fields.",
    template: "Writing the messages as one prompt, in the form that the model was trained with.",
    tokenize: "Cutting the prompt into tokens, the units that the model reads.",
    preprocess: "Decoding and resizing pictures.",
    "encode pictures": "Turning pictures into tokens, with the model's vision tower.",
    queue: "Waiting for the model to be loaded, and for other requests.",
    "cache lookup": "Finding what is already computed of the prompt.",
    restore: "Reading cached pages from disk.",
    prefill: "Computing the part of the prompt that is not cached.",
    draft: "Guessing tokens ahead; the model checks several of them in one step.",
    decode: "Computing the answer, token by token.",
    sampling: "Choosing each token among the probable ones.",
    grammar: "Leaving only tokens that the JSON schema or grammar allows.",
    detokenize: "Turning tokens into text.",
    send: "Sending the text to this browser.",
    "other requests": "Time in shared steps that went to other requests.",
    "prefix reused": "Tokens at the beginning of the prompt that were cached and not computed again.",
    pictures: "Tokens of the prompt that are pictures.",
    spans: "Documents and other fragments that were reused at another place; some of their tokens are computed again there.",
    "drafts accepted": "Guessed tokens that the model agreed with; each saves a step.",
    energy: "Energy of processor and GPU during the request, as far as this machine measures it.",
    "in use": "Pages of running requests and open sessions.",
    shared: "Pages in use that are cached, too: other prompts with the same beginning use them as well.",
    pinned: "Pages that are never evicted.",
    cached: "Pages that nothing uses now, kept for the next prompt with the same beginning.",
    free: "Pages without content.",
};

// A button with the word, which shows the explanation.
/** @param {string} word @param {string} [explanation] */
export function term(word, explanation = TERMS[word]) {
    const button = make("button", { type: "button", class: "term" }, say(word));
    button.dataset.explanation = explanation;
    return button;
}

/** @type {Record<string, string>} */
export const PART_WORDS = {
    read: "receive",
    preprocess: "preprocess",
    encode: "encode pictures",
    template: "template",
    tokenize: "tokenize",
    queue: "queue",
    lookup: "cache lookup",
    restore: "restore",
    prefill: "prefill",
    draft: "draft",
    decode: "decode",
    sampling: "sampling",
    grammar: "grammar",
    detokenize: "detokenize",
    write: "send",
    others: "other requests",
}; // keys of TERMS
export const PARTS = Object.keys(PART_WORDS);

// Milliseconds of every part, from the timings of a reply.
/** @param {any} value */
export const partsOf = value => Object.fromEntries(PARTS.map(name => [name, Math.max(0, finite(value?.[name]))]));
/** @param {Numbers} parts */
export const partsSum = parts => PARTS.reduce((sum, name) => sum + parts[name], 0);

// The parts that are long enough to be named.
/** @param {Numbers} parts */
const partWords = parts =>
    PARTS.filter(name => parts[name] > partsSum(parts) / 200)
        .map(name => say(PART_WORDS[name]) + " " + inTime(parts[name]))
        .join(", ");

export const makeBar = () =>
    make("span", { class: "bar", role: "img" }, ...PARTS.map(name => make("i", { class: "p-" + name })));

/** @param {HTMLElement} bar @param {Numbers} parts */
export function drawBar(bar, parts) {
    PARTS.forEach((name, at) => {
        childrenIn(bar)[at].style.flexGrow = String(parts[name]);
    });
    bar.setAttribute("aria-label", partWords(parts));
}

// ---- the waterfall -------------------------------------------------------------------------------------------------

/** @typedef {{ name: string, start: number, ms: number }} FallRow */

// Rows of parts one after the other, from `start` on. What is shorter than a thousandth of the whole is
// not shown.
/** @param {Numbers} parts @param {number} start @param {number} whole */
function fallRows(parts, start, whole) {
    let at = start;
    const rows = [];
    for (const name of PARTS) {
        if (parts[name] > whole / 1000) {
            rows.push({ name, start: at, ms: parts[name] });
        }
        at += parts[name];
    }
    return rows;
}

/** @param {string} title @param {number} ms @param {FallRow[]} rows @param {number} whole */
const fallGroup = (title, ms, rows, whole) => [
    make("p", { class: "fall-title" }, title + " ", make("b", {}, inTime(ms))),
    make(
        "ul",
        {},
        ...rows.map(({ name, start, ms: length }) => {
            const bar = make("i", { class: "p-" + name });
            bar.style.left = (100 * start) / whole + "%";
            bar.style.width = (100 * length) / whole + "%";
            return make("li", {}, term(PART_WORDS[name]), make("span", {}, bar), make("b", {}, inTime(length)));
        }),
    ),
];

// The parts until the first token, and then the parts of the rest; without `first` all of them in one group.
/** @param {Numbers} parts @param {Numbers | null} [first] */
export function fallView(parts, first = null) {
    const whole = Math.max(1e-6, partsSum(parts));
    if (!first) {
        return make("div", { class: "fall" }, ...fallGroup(say("All of it"), whole, fallRows(parts, 0, whole), whole));
    }
    const until = Math.min(whole, partsSum(first));
    const rest = Object.fromEntries(PARTS.map(name => [name, Math.max(0, parts[name] - first[name])]));
    return make(
        "div",
        { class: "fall" },
        ...fallGroup(say("To the first token"), until, fallRows(first, 0, whole), whole),
        ...fallGroup(say("The rest"), whole - until, fallRows(rest, until, whole), whole),
    );
}

// ---- facts ---------------------------------------------------------------------------------------------------------

/** @param {Timings} timings */
function energyFact(timings) {
    const { joules, joules_per_100_tokens, watts } = timings.energy ?? {};
    if (joules > 0) {
        return say("{0} J, {1} J for 100 tokens, at {2} W", inFigures(joules), inFigures(joules_per_100_tokens), inFigures(watts));
    }
    return timings.why_no_energy ? term("unmeasured", timings.why_no_energy) : null;
}

// [word, value]: the word is one of TERMS, the value a text or an element.
/** @param {Timings} timings @returns {[string, string | HTMLElement][]} */
function timingFacts(timings) {
    const { prompt_tokens, cached_tokens, span_tokens = 0, drafted_tokens = 0 } = timings;
    /** @type {([string, string | HTMLElement | null] | null)[]} */
    const facts = [
        [
            "prefix reused",
            say("{0} of {1}, {2}", inCount(cached_tokens), inPromptTokens(finite(prompt_tokens)), inPercent(finite(cached_tokens), finite(prompt_tokens))),
        ],
        finite(timings.picture_tokens) > 0 ? ["pictures", inTokens(finite(timings.picture_tokens))] : null,
        finite(timings.restore_ms) > 0 ? ["restore", inTime(timings.restore_ms)] : null,
        span_tokens > 0
            ? ["spans", say("{0}, {1} of them computed again", inTokens(span_tokens + finite(timings.repaired_tokens)), inCount(timings.repaired_tokens))]
            : null,
        drafted_tokens > 0
            ? ["drafts accepted", say("{0} of {1}", inCount(timings.accepted_tokens), inCount(drafted_tokens))]
            : null,
        ["energy", energyFact(timings)],
    ];
    return /** @type {[string, string | HTMLElement][]} */ (facts.filter(fact => fact && fact[1] !== null));
}

// "213 ms to the first token, 60 tokens, 37 a second".
/** @param {Timings} timings */
function timingWords(timings) {
    const decode = finite(timings.decode_ms);
    const generated = finite(timings.generated_tokens);
    const speed =
        decode > 0 && generated > 1 ? say("{0} a second", inFigures((1000 * (generated - 1)) / decode)) : "";
    return [say("{0} to the first token", inTime(timings.ttft_ms)), inTokens(generated), speed].filter(Boolean).join(" \u00b7 ");
}

// The bar with a summary. Pointing at it or focusing it shows the waterfall above; opening it shows waterfall and facts.
/** @param {Timings} timings */
export function timingsView(timings) {
    const parts = partsOf(timings.parts_ms);
    const bar = makeBar();
    drawBar(bar, parts);
    const first = timings.first_parts_ms ? partsOf(timings.first_parts_ms) : null;
    return make(
        "div",
        { class: "timings" },
        make(
            "details",
            {},
            make("summary", {}, bar, make("span", {}, timingWords(timings))),
            make(
                "dl",
                { class: "facts" },
                ...timingFacts(timings).map(([word, value]) =>
                    make("div", {}, make("dt", {}, term(word)), make("dd", {}, value)),
                ),
            ),
        ),
        partsSum(parts) > 0 ? fallView(parts, first && partsSum(first) > 0 ? first : null) : null,
    );
}

// ---- bars ----------------------------------------------------------------------------------------------------------

// A bar of parts [{share (0 to 1), kind}].
/** @param {HTMLElement} meter @param {{ share: number, kind: string }[]} parts @param {string} label */
export function drawMeter(meter, parts, label) {
    while (meter.children.length < parts.length) {
        meter.append(make("i"));
    }
    while (meter.children.length > parts.length) {
        meter.lastChild?.remove();
    }
    parts.forEach(({ share, kind }, at) => {
        childrenIn(meter)[at].className = kind;
        childrenIn(meter)[at].style.width = 100 * Math.min(1, Math.max(0, share)) + "%";
    });
    meter.setAttribute("aria-label", label);
}

// ---- the context ---------------------------------------------------------------------------------------------------

// {used, size} of the last answer with figures; null: not known.
/** @param {Message[]} path */
function contextUse(path) {
    const timings = path.findLast(message => finite(message.timings?.context_tokens) > 0)?.timings;
    if (!timings?.context_tokens) {
        return null;
    }
    const size = timings.context_tokens;
    return { used: Math.min(size, finite(timings.prompt_tokens) + finite(timings.generated_tokens)), size };
}

/** @param {Message[]} path */
export function showContext(path) {
    const use = contextUse(path);
    byId("context").hidden = !use;
    if (use) {
        const words = say("{0} of {1} tokens of context", inCount(use.used), inCount(use.size));
        byId("context").classList.toggle("nearly-full", use.used > 0.8 * use.size);
        setText(byId("context-words"), words);
        drawMeter(byId("context-bar"), [{ share: use.used / use.size, kind: "k-used" }], words);
    }
}
