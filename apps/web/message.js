// One message on the page. While an answer is streamed, showAnswer is called repeatedly and updates only what changed.

const FINISH_NOTES = { length: "The answer reached its length limit.", stopped: "Stopped." };

// `actions`: {edit, again}, the handlers of the buttons.
function messageItem(message, actions) {
    const item = message.role === "user" ? userItem(message, actions) : answerItem(message, actions);
    item.classList.add("message", message.role);
    return item;
}

function userItem(message, actions) {
    const copy = iconButton("copy", "Copy", () => copyText(message.content, copy));
    return make(
        "li",
        {},
        make("h2", { class: "hidden" }, "You"),
        make("div", { class: "bubble", dir: "auto" }, message.content),
        make("div", { class: "actions" }, copy, iconButton("edit", "Edit and send again", actions.edit)),
    );
}

function answerItem(message, actions) {
    const copy = iconButton("copy", "Copy", () => copyText(message.content, copy));
    const item = make(
        "li",
        {},
        make("h2", { class: "hidden" }, "Answer"),
        make(
            "details",
            { class: "reasoning", hidden: true },
            make("summary", {}, "Thoughts"),
            make("div", { dir: "auto" }),
        ),
        make("div", { class: "text" }),
        make("p", { class: "pending" }, make("i"), make("i"), make("i")),
        make("p", { class: "note", hidden: true }),
        make("div", { class: "figures" }),
        make("div", { class: "actions" }, copy, iconButton("again", "Answer again", actions.again)),
    );
    showAnswer(item, message, false);
    return item;
}

// Shows an answer; `writing`: it is still being streamed.
function showAnswer(item, message, writing) {
    const part = name => item.querySelector("." + name);
    const reasoning = part("reasoning");
    const thought = cleanText(message.reasoning);
    reasoning.hidden = thought === "";
    if (reasoning.lastChild.textContent !== thought) {
        reasoning.lastChild.textContent = thought;
    }
    reasoning.firstChild.textContent = writing && message.content === "" ? "Thinking\u2026" : "Thoughts";
    renderMarkdown(part("text"), message.content);
    item.classList.toggle("writing", writing);
    item.setAttribute("aria-busy", String(writing));
    part("pending").hidden = !writing || message.content !== "" || thought !== "";
    item.querySelector(".actions button").hidden = message.content === "";
    const note = message.error || FINISH_NOTES[message.finish] || "";
    part("note").textContent = note;
    part("note").hidden = writing || note === "";
    part("note").classList.toggle("error", Boolean(message.error));
    part("figures").replaceChildren(...(message.timings && !writing ? [timingsView(message.timings)] : []));
}

// Replaces a message's text by an editor; calls done(text) with the new text, or null when it is not changed.
function editMessage(item, message, done) {
    const area = make("textarea", { value: message.content, dir: "auto", "aria-label": "Message", rows: 2 });
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
            make("button", { type: "button", class: "quiet", onclick: () => finish(null) }, "Cancel"),
            make("button", { class: "solid" }, "Send"),
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
