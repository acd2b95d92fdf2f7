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
        .map(name => PART_WORDS[name] + " " + inTime(parts[name]))
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
            ? `${inCount(known)} of ${several(prompt, "prompt token")} did not have to be computed.`
            : `${several(prompt, "prompt token")} computed.`,
    );
    if (timings.restore_ms > 0) {
        facts.push(`Restoring from disk took ${inTime(timings.restore_ms)}.`);
    }
    if (timings.span_tokens > 0) {
        facts.push(
            `${several(timings.span_tokens, "token")} came from fragments,` +
                ` ${inCount(timings.repaired_tokens)} computed again in place.`,
        );
    }
    if (timings.drafted_tokens > 0) {
        facts.push(
            `${inCount(timings.accepted_tokens)} of ${several(timings.drafted_tokens, "guessed token")} were right.`,
        );
    }
    if (timings.energy?.joules > 0) {
        const { joules, joules_per_100_tokens, watts } = timings.energy;
        facts.push(
            `${inFigures(joules)} J, ${inFigures(joules_per_100_tokens)} J for 100 tokens, at ${inFigures(watts)} W.`,
        );
    } else if (timings.why_no_energy) {
        facts.push(`Energy not measured: ${timings.why_no_energy}.`);
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
        decode > 0 && generated > 1 ? " \u00b7 " + inFigures((1000 * (generated - 1)) / decode) + " a second" : "";
    const first = inTime(timings.ttft_ms);
    return make(
        "details",
        { class: "timings" },
        make(
            "summary",
            {},
            bar,
            make("span", {}, `${first} to the first token \u00b7 ${several(generated, "token")}${speed}`),
        ),
        make(
            "ul",
            { class: "legend" },
            ...PARTS.filter(name => parts[name] > 0).map(name =>
                make("li", { class: "p-" + name }, PART_WORDS[name] + " ", make("b", {}, inTime(parts[name]))),
            ),
        ),
        make("p", {}, timingFacts(timings).join(" ")),
    );
}
