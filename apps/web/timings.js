// Where the time of an answer went: the phases, their words and colours (in page.css, by name), and the bar.

const PHASES = [
    { name: "template", word: "preparing" },
    { name: "queue", word: "waiting" },
    { name: "lookup", word: "looking up" },
    { name: "prefill", word: "reading" },
    { name: "first", word: "first token" },
    { name: "decode", word: "writing" },
];

// Milliseconds by phase from an answer's timings, where looking up and restoring are parts of prefill_ms.
function phasesOf(timings) {
    const lookup = finite(timings.lookup_ms) + finite(timings.restore_ms);
    return {
        template: finite(timings.template_ms) + finite(timings.tokenize_ms),
        queue: finite(timings.queue_ms),
        lookup,
        prefill: Math.max(0, finite(timings.prefill_ms) - lookup),
        first: finite(timings.first_step_ms),
        decode: finite(timings.decode_ms),
    };
}

const phaseWords = phases =>
    PHASES.filter(({ name }) => phases[name] > 0)
        .map(({ name, word }) => word + " " + inTime(phases[name]))
        .join(", ");

function phaseBar(phases) {
    return make(
        "span",
        { class: "bar", role: "img", "aria-label": phaseWords(phases) },
        ...PHASES.map(({ name }) => {
            const part = make("i", { class: "p-" + name });
            part.style.flexGrow = phases[name];
            return part;
        }),
    );
}

// What is worth saying besides the phases, one sentence each.
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
    return facts;
}

// The bar with a few words, folding out to all of it.
function timingsView(timings) {
    const phases = phasesOf(timings);
    const generated = finite(timings.generated_tokens);
    const speed =
        phases.decode > 0 && generated > 1
            ? " \u00b7 " + inFigures((1000 * (generated - 1)) / phases.decode) + " a second"
            : "";
    const first = finite(timings.ttft_ms) || PHASES.slice(0, 5).reduce((sum, { name }) => sum + phases[name], 0);
    return make(
        "details",
        { class: "timings" },
        make(
            "summary",
            {},
            phaseBar(phases),
            make("span", {}, `${inTime(first)} to the first token \u00b7 ${several(generated, "token")}${speed}`),
        ),
        make(
            "ul",
            { class: "legend" },
            ...PHASES.map(({ name, word }) =>
                make("li", { class: "p-" + name }, word + " ", make("b", {}, inTime(phases[name]))),
            ),
        ),
        make("p", {}, timingFacts(timings).join(" ")),
    );
}
