// How full the context is: a meter at the message box, and what can be done when older turns no longer fit.

// {used, size} of the last answer with figures; null: not known.
function contextUse(path) {
    const timings = path.findLast(message => message.timings?.context_tokens > 0)?.timings;
    if (!timings) {
        return null;
    }
    const size = timings.context_tokens;
    return { used: Math.min(size, finite(timings.prompt_tokens) + finite(timings.generated_tokens)), size };
}

function showContext(path) {
    const use = contextUse(path);
    byId("context").hidden = !use;
    if (use) {
        const words = say("{0} of {1} tokens of context", inCount(use.used), inCount(use.size));
        byId("context").classList.toggle("nearly-full", use.used > 0.8 * use.size);
        setText(byId("context-words"), words);
        drawMeter(byId("context-bar"), [{ share: use.used / use.size, kind: "k-used" }], words);
    }
}

// The notice below an answer for which older turns did not fit; null: all did.
function contextNotice(message, actions) {
    const dropped = finite(message.timings?.dropped_tokens);
    const full = message.finish === "full";
    if (!full && !dropped) {
        return null;
    }
    const button = (words, onclick) => make("button", { type: "button", class: "quiet", onclick }, words);
    return make(
        "div",
        { class: "notice", role: "note" },
        make(
            "p",
            {},
            full
                ? say("The whole conversation does not fit into the context any more.")
                : say("Older turns no longer fit: {0} tokens were left out.", inCount(dropped)),
        ),
        make(
            "div",
            { class: "notice-actions" },
            button(say("Summarise what came before"), actions.summarise),
            full ? button(say("Leave older turns out"), actions.letGo) : button(say("Keep all"), actions.keepAll),
            button(say("Start fresh"), actions.fresh),
        ),
    );
}
