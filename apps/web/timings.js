// The parts of an answer's time: their names and colours (by name in page.css), the bar, and the waterfall.

const PART_WORDS = {
    read: "receive",
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
const PARTS = Object.keys(PART_WORDS);

// Milliseconds of every part, from the timings of a reply.
const partsOf = value => Object.fromEntries(PARTS.map(name => [name, Math.max(0, finite(value?.[name]))]));
const partsSum = parts => PARTS.reduce((sum, name) => sum + parts[name], 0);

// The parts that are long enough to be named.
const partWords = parts =>
    PARTS.filter(name => parts[name] > partsSum(parts) / 200)
        .map(name => say(PART_WORDS[name]) + " " + inTime(parts[name]))
        .join(", ");

const makeBar = () =>
    make("span", { class: "bar", role: "img" }, ...PARTS.map(name => make("i", { class: "p-" + name })));

function drawBar(bar, parts) {
    PARTS.forEach((name, at) => {
        bar.children[at].style.flexGrow = parts[name];
    });
    bar.setAttribute("aria-label", partWords(parts));
}

// ---- the waterfall --------------------------------------------------------------------------------------------------

// Rows [{name, start, ms}] of parts one after the other, from `start` on. What is shorter than a thousandth of the whole is
// not shown.
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

// The parts until the first token, and then those of the rest; without `first` all of them in one group.
function fallView(parts, first = null) {
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

// ---- facts ----------------------------------------------------------------------------------------------------------

function energyFact(timings) {
    if (timings.energy?.joules > 0) {
        const { joules, joules_per_100_tokens, watts } = timings.energy;
        return say("{0} J, {1} J for 100 tokens, at {2} W", inFigures(joules), inFigures(joules_per_100_tokens), inFigures(watts));
    }
    return timings.why_no_energy ? term("unmeasured", timings.why_no_energy) : null;
}

// [word, value]: the word is one of TERMS, the value a text or an element.
function timingFacts(timings) {
    const { prompt_tokens, cached_tokens, span_tokens, drafted_tokens } = timings;
    return [
        [
            "prefix reused",
            say("{0} of {1}, {2}", inCount(cached_tokens), inPromptTokens(finite(prompt_tokens)), inPercent(finite(cached_tokens), finite(prompt_tokens))),
        ],
        timings.restore_ms > 0 ? ["restore", inTime(timings.restore_ms)] : null,
        span_tokens > 0
            ? ["spans", say("{0}, {1} of them computed again", inTokens(span_tokens + finite(timings.repaired_tokens)), inCount(timings.repaired_tokens))]
            : null,
        drafted_tokens > 0
            ? ["drafts accepted", say("{0} of {1}", inCount(timings.accepted_tokens), inCount(drafted_tokens))]
            : null,
        ["energy", energyFact(timings)],
    ].filter(fact => fact && fact[1] !== null);
}

// "213 ms to the first token, 60 tokens, 37 a second".
function timingWords(timings) {
    const decode = finite(timings.decode_ms);
    const generated = finite(timings.generated_tokens);
    const speed =
        decode > 0 && generated > 1 ? say("{0} a second", inFigures((1000 * (generated - 1)) / decode)) : "";
    return [say("{0} to the first token", inTime(timings.ttft_ms)), inTokens(generated), speed].filter(Boolean).join(" \u00b7 ");
}

// The bar with a summary. Pointing at it or focusing it shows the waterfall above; opening it shows waterfall and facts.
function timingsView(timings) {
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
