// Words of the field. Each explains itself in a bubble: on hover, on focus and on tap; Escape closes it.

const TERMS = {
    receive: "Receiving the request and reading its fields.",
    template: "Writing the messages as one prompt, in the form that the model was trained with.",
    tokenize: "Cutting the prompt into tokens, the units that the model reads.",
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
function term(word, explanation = TERMS[word]) {
    const button = make("button", { type: "button", class: "term" }, say(word));
    button.explanation = explanation;
    return button;
}

function showTip(button) {
    const tip = byId("tip");
    hideTip();
    tip.textContent = say(button.explanation);
    tip.hidden = false;
    button.setAttribute("aria-describedby", "tip");
    const place = button.getBoundingClientRect();
    const { width, height } = tip.getBoundingClientRect();
    const below = place.bottom + 6 + height < innerHeight;
    tip.style.left = Math.max(8, Math.min(place.left, innerWidth - width - 8)) + "px";
    tip.style.top = Math.max(8, below ? place.bottom + 6 : place.top - height - 6) + "px";
}

function hideTip() {
    byId("tip").hidden = true;
    document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
}

function startTerms() {
    const on = (event, work) =>
        document.addEventListener(
            event,
            ({ target }) => {
                const button = target instanceof Element && target.closest(".term");
                if (button) {
                    work(button);
                }
            },
            true,
        );
    on("mouseover", showTip);
    on("mouseout", hideTip);
    on("focus", showTip);
    on("blur", hideTip);
    on("click", showTip);
    document.addEventListener("scroll", hideTip, true);
    document.addEventListener(
        "keydown",
        event => {
            if (event.key === "Escape" && !byId("tip").hidden) {
                event.stopPropagation();
                hideTip();
            }
        },
        true,
    );
}
