// One message on the page. While an answer is streamed, showAnswer is called repeatedly and updates only what changed.

const FINISH_NOTES = { length: "The answer reached its length limit.", stopped: "Stopped." }; // keys of messages.js
const MESSAGE_MAKERS = { user: userItem, assistant: answerItem, summary: summaryItem };

// `versions`: {at, all} of tree.js. `actions`: the handlers of the buttons, by name.
function messageItem(message, versions, actions) {
    const item = MESSAGE_MAKERS[message.role](message, versions, actions);
    item.classList.add("message", message.role);
    item.dataset.id = message.id;
    return item;
}

// "< 2/3 >", or nothing for a message with one version.
function versionButtons({ at, all }, actions) {
    if (all.length < 2) {
        return [];
    }
    const step = (name, label, by) => {
        const button = iconButton(name, label, () => actions.version(by));
        button.classList.add(by < 0 ? "earlier-version" : "later-version");
        button.disabled = !all[at + by];
        return button;
    };
    return [
        step("left", say("Former version"), -1),
        make("span", { class: "version" }, `${at + 1}/${all.length}`),
        step("right", say("Next version"), 1),
    ];
}

const copyButton = message => {
    const copy = iconButton("copy", say("Copy"), () => copyText(message.content, copy));
    return copy;
};

function userItem(message, versions, actions) {
    return make(
        "li",
        {},
        make("h2", { class: "hidden" }, say("You")),
        documentList(message.documents),
        make("div", { class: "bubble", dir: "auto" }, message.content),
        make(
            "div",
            { class: "actions" },
            ...versionButtons(versions, actions),
            copyButton(message),
            iconButton("edit", say("Edit and send again"), actions.edit),
            iconButton("delete", say("Delete this turn"), actions.remove),
        ),
    );
}

function summaryItem(message, versions, actions) {
    const item = make(
        "li",
        {},
        make("h2", {}, say("Summary of what came before")),
        make("button", { type: "button", class: "quiet parts-before", hidden: true }),
        make("div", { class: "text" }),
        make("p", { class: "pending" }, make("i"), make("i"), make("i")),
        make("p", { class: "note", hidden: true }),
        make(
            "div",
            { class: "actions" },
            copyButton(message),
            iconButton("edit", say("Edit the summary"), actions.edit),
            iconButton("delete", say("Delete the summary"), actions.remove),
        ),
    );
    showAnswer(item, message, false);
    return item;
}

const answerActions = new WeakMap(); // of an answer's item, for what appears when it is complete

function answerItem(message, versions, actions) {
    const item = make(
        "li",
        {},
        make("h2", { class: "hidden" }, say("Answer")),
        make(
            "details",
            { class: "reasoning", hidden: true },
            make("summary", {}, say("Thoughts")),
            make("div", { dir: "auto" }),
        ),
        make("button", { type: "button", class: "quiet parts-before", hidden: true }),
        make("div", { class: "text" }),
        make("p", { class: "pending" }, make("i"), make("i"), make("i")),
        make("p", { class: "note", hidden: true }),
        make("div", { class: "calls" }),
        make("div", { class: "offers" }),
        make("div", { class: "figures" }),
        make(
            "div",
            { class: "actions" },
            ...versionButtons(versions, actions),
            copyButton(message),
            iconButton("again", say("Answer again"), actions.again),
            iconButton("branch", say("Continue from here"), actions.from),
            iconButton("compare", say("Compare answers to this question"), actions.compare),
            versions.all.length > 1 ? iconButton("delete", say("Delete this version"), actions.remove) : null,
        ),
    );
    answerActions.set(item, actions);
    showAnswer(item, message, false);
    return item;
}

// A very long answer has its beginning on demand.
function showPartsBefore(button, text) {
    const count = blocksBefore(text);
    button.hidden = count === 0;
    setText(button, count ? several(count, "Show {0} part before", "Show {0} parts before") : "");
    button.onclick = () => {
        renderMoreBefore(text);
        decorateBlocks(text, false);
        showPartsBefore(button, text);
    };
}

// Shows an answer; `writing`: it is still being streamed; `follow`: the user reads its end.
function showAnswer(item, message, writing, follow = true) {
    const part = name => item.querySelector("." + name);
    const thought = cleanText(message.reasoning);
    if (part("reasoning")) {
        showThought(part("reasoning"), thought, writing && message.content === "");
    }
    renderMarkdown(part("text"), message.content, follow);
    showPartsBefore(part("parts-before"), part("text"));
    decorateBlocks(part("text"), writing);
    item.classList.toggle("writing", writing);
    item.setAttribute("aria-busy", String(writing));
    if (part("calls")) {
        showCalls(part("calls"), message, writing, answerActions.get(item));
    }
    part("pending").hidden = !writing || message.content !== "" || thought !== "" || Boolean(message.calls);
    item.querySelector(".actions [title='" + say("Copy") + "']").hidden = message.content === "";
    const note = message.error || say(FINISH_NOTES[message.finish] ?? "");
    part("note").textContent = note;
    part("note").hidden = writing || note === "";
    part("note").classList.toggle("error", Boolean(message.error));
    part("figures")?.replaceChildren(
        ...(message.timings && !writing ? [documentsNote(message), timingsView(message.timings)].filter(Boolean) : []),
    );
    part("offers")?.replaceChildren(...(writing ? [] : answerOffers(message, answerActions.get(item))));
}

function showThought(reasoning, thought, thinking) {
    reasoning.hidden = thought === "";
    if (reasoning.lastChild.textContent !== thought) {
        reasoning.lastChild.textContent = thought;
    }
    setText(reasoning.firstChild, thinking ? say("Thinking\u2026") : say("Thoughts"));
}

// What can be done about an answer that was cut, failed, or for which older turns did not fit.
function answerOffers(message, actions) {
    const cut = message.content !== "" && (["length", "stopped"].includes(message.finish) || message.error);
    const button = (name, words, onclick) =>
        make("button", { type: "button", class: "quiet " + name, onclick }, words);
    return [
        cut ? button("continue", say("Continue"), actions.more) : null,
        message.error && message.content === "" ? button("retry", say("Try again"), actions.again) : null,
        contextNotice(message, actions),
    ].filter(Boolean);
}

// Replaces a message's text by an editor; calls done(text) with the new text, or null when it is not changed.
function editMessage(item, message, done) {
    const area = make("textarea", { value: message.content, dir: "auto", "aria-label": say("Message"), rows: 2 });
    const finish = text => {
        form.remove();
        item.classList.remove("editing");
        done(text);
    };
    const form = make(
        "form",
        {
            class: "editor",
            onsubmit: event => {
                event.preventDefault();
                if (area.value.trim() !== "") {
                    finish(area.value.trim());
                }
            },
        },
        area,
        make(
            "div",
            { class: "editor-foot" },
            make("button", { type: "button", class: "quiet", onclick: () => finish(null) }, say("Cancel")),
            make("button", { class: "solid" }, say("Send")),
        ),
    );
    area.addEventListener("keydown", event => {
        if (event.key === "Escape") {
            event.stopPropagation();
            finish(null);
        } else if (entersMessage(event)) {
            event.preventDefault();
            form.requestSubmit();
        }
    });
    area.addEventListener("input", () => fitHeight(area));
    item.classList.add("editing");
    item.append(form);
    fitHeight(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
}

// Enter sends; with shift, during input method composition, and on touch keyboards it inserts a new line.
function entersMessage(event) {
    return event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
}

// Sets the height of a text area to that of its text; page.css limits it.
function fitHeight(area) {
    area.style.height = "auto";
    area.style.height = area.scrollHeight + area.offsetHeight - area.clientHeight + "px";
}
