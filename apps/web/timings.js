// The parts of an answer's time: their names and colours (by name in page.css), and the bar.

const PART_WORDS = {
    read: "receiving",
    template: "template",
    tokenize: "tokens",
    queue: "waiting",
    lookup: "looking up",
    restore: "restoring",
    prefill: "reading",
    draft: "guessing",
    decode: "writing",
    sampling: "choosing",
    grammar: "grammar",
    detokenize: "spelling",
    write: "sending",
    others: "others",
};
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

// Further facts, one sentence each.
function timingFacts(timings) {
    const known = finite(timings.cached_tokens);
    const prompt = finite(timings.prompt_tokens);
    const facts = [];
    facts.push(
        known > 0
            ? say("{0} of {1} did not have to be computed.", inCount(known), inPromptTokens(prompt))
            : say("{0} computed.", inPromptTokens(prompt)),
    );
    if (timings.restore_ms > 0) {
        facts.push(say("Restoring from disk took {0}.", inTime(timings.restore_ms)));
    }
    if (timings.span_tokens > 0) {
        facts.push(
            say(
                "{0} came from fragments, {1} computed again in place.",
                inTokens(timings.span_tokens),
                inCount(timings.repaired_tokens),
            ),
        );
    }
    if (timings.drafted_tokens > 0) {
        facts.push(
            say("{0} of {1} guessed were right.", inCount(timings.accepted_tokens), inTokens(timings.drafted_tokens)),
        );
    }
    if (timings.energy?.joules > 0) {
        const { joules, joules_per_100_tokens, watts } = timings.energy;
        facts.push(
            say(
                "{0} J, {1} J for 100 tokens, at {2} W.",
                inFigures(joules),
                inFigures(joules_per_100_tokens),
                inFigures(watts),
            ),
        );
    } else if (timings.why_no_energy) {
        facts.push(say("Energy not measured: {0}.", timings.why_no_energy));
    }
    return facts;
}

// The bar with a summary, which unfolds to all figures.
function timingsView(timings) {
    const parts = partsOf(timings.parts_ms);
    const bar = makeBar();
    drawBar(bar, parts);
    const decode = finite(timings.decode_ms);
    const generated = finite(timings.generated_tokens);
    const speed =
        decode > 0 && generated > 1 ? say("{0} a second", inFigures((1000 * (generated - 1)) / decode)) : "";
    const first = inTime(timings.ttft_ms);
    return make(
        "details",
        { class: "timings" },
        make(
            "summary",
            {},
            bar,
            make("span", {}, [say("{0} to the first token", first), inTokens(generated), speed].filter(Boolean).join(" \u00b7 ")),
        ),
        make(
            "ul",
            { class: "legend" },
            ...PARTS.filter(name => parts[name] > 0).map(name =>
                make("li", { class: "p-" + name }, say(PART_WORDS[name]) + " ", make("b", {}, inTime(parts[name]))),
            ),
        ),
        make("p", {}, timingFacts(timings).join(" ")),
    );
}
