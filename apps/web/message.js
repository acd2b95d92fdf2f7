// One message on the page. While an answer is streamed, showAnswer is called repeatedly and updates only what changed.

import { documentList, documentsNote } from "./documents.js";
import { copyText, entersMessage, fitHeight, iconButton, inside, make, setText } from "./dom.js";
import { timingsView } from "./figures.js";
import { finite, inCount, say, several } from "./language.js";
import { blocksBefore, decorateBlocks, renderMarkdown, renderMoreBefore } from "./markdown.js";
import { cleanText } from "./store.js";
import { showCalls } from "./tools.js";

/** @import { Call, Message, Versions } from "./store.js" */

/**
 * @typedef {object} Actions of the buttons of a message
 * @property {() => void} edit
 * @property {() => void} again
 * @property {() => void} remove
 * @property {(step: number) => void} version
 * @property {() => void} from
 * @property {() => void} compare
 * @property {() => void} more
 * @property {() => void} results
 * @property {(call: Call, decision: "once" | "always" | "never") => void} decide whether a tool is called
 * @property {() => void} letGo
 * @property {() => void} keepAll
 * @property {() => void} summarise
 * @property {() => void} fresh
 * @property {() => void} shorten
 * @property {() => void} bare
 * @property {() => boolean} alone whether nothing came before the question
 * @property {() => boolean} documents whether the question has some
 */

/** @type {Record<string, string>} */
export const FINISH_NOTES = { length: "The answer reached its length limit.", stopped: "Stopped." };
const MESSAGE_MAKERS = { user: userItem, assistant: answerItem, summary: summaryItem };

/** @param {Message} message @param {Versions} versions @param {Actions} actions */
export function messageItem(message, versions, actions) {
    const item = MESSAGE_MAKERS[message.role](message, versions, actions);
    item.classList.add("message", message.role);
    item.dataset.id = message.id;
    return item;
}

// "< 2/3 >", or nothing for a message with one version.
/** @param {Versions} options @param {Actions} actions */
function versionButtons({ at, all }, actions) {
    if (all.length < 2) {
        return [];
    }
    /** @param {string} name @param {string} label @param {number} by */
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

/** @param {Message} message */
const copyButton = message => {
    const copy = iconButton("copy", say("Copy"), () => copyText(message.content, copy));
    return copy;
};

/** @param {Message} message @param {Versions} versions @param {Actions} actions */
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

/** @param {Message} message @param {Versions} versions @param {Actions} actions */
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

/** @type {WeakMap<HTMLElement, Actions>} */
const answerActions = new WeakMap(); // of an answer's item, for what appears when it is complete
/** @param {HTMLElement} item */
const actionsOf = item => /** @type {Actions} */ (answerActions.get(item));

/** @param {Message} message @param {Versions} versions @param {Actions} actions */
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
/** @param {HTMLButtonElement} button @param {HTMLElement} text */
export function showPartsBefore(button, text) {
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
/** @param {HTMLElement} item @param {Message} message @param {boolean} writing @param {boolean} [follow] */
export function showAnswer(item, message, writing, follow = true) {
    /** @param {string} name */
    const part = name => inside(item, "." + name);
    const thought = cleanText(message.reasoning);
    if (part("reasoning")) {
        showThought(part("reasoning"), thought, writing && message.content === "");
    }
    renderMarkdown(part("text"), message.content, follow);
    showPartsBefore(/** @type {HTMLButtonElement} */ (part("parts-before")), part("text"));
    decorateBlocks(part("text"), writing);
    item.classList.toggle("writing", writing);
    item.setAttribute("aria-busy", String(writing));
    if (part("calls")) {
        showCalls(part("calls"), message, writing, actionsOf(item));
    }
    part("pending").hidden = !writing || message.content !== "" || thought !== "" || Boolean(message.calls);
    inside(item, ".actions [title='" + say("Copy") + "']").hidden = message.content === "";
    const note = message.error || say(FINISH_NOTES[message.finish ?? ""] ?? "");
    part("note").textContent = note;
    part("note").hidden = writing || note === "";
    part("note").classList.toggle("error", Boolean(message.error));
    part("figures")?.replaceChildren(
        ...(message.timings && !writing ? [documentsNote(message), timingsView(message.timings)].filter(figure => figure !== null) : []),
    );
    part("offers")?.replaceChildren(...(writing ? [] : answerOffers(message, actionsOf(item))));
}

/** @param {HTMLElement} reasoning @param {string} thought @param {boolean} thinking */
function showThought(reasoning, thought, thinking) {
    reasoning.hidden = thought === "";
    setText(inside(reasoning, "div"), thought);
    setText(inside(reasoning, "summary"), thinking ? say("Thinking\u2026") : say("Thoughts"));
}

// What can be done about an answer that was cut, failed, or for which older turns did not fit.
/** @param {Message} message @param {Actions} actions */
function answerOffers(message, actions) {
    const cut = message.content !== "" && (["length", "stopped"].includes(message.finish ?? "") || message.error);
    /** @param {string} name @param {string} words @param {() => void} onclick */
    const button = (name, words, onclick) =>
        make("button", { type: "button", class: "quiet " + name, onclick }, words);
    return [
        cut ? button("continue", say("Continue"), actions.more) : null,
        message.error && message.content === "" ? button("retry", say("Try again"), actions.again) : null,
        contextNotice(message, actions),
    ].filter(offer => offer !== null);
}

// Replaces a message's text by an editor; calls done(text) with the new text, or null when it is not changed.
/** @param {HTMLElement} item @param {Message} message @param {(text: string | null) => void} done */
export function editMessage(item, message, done) {
    const area = make("textarea", { value: message.content, dir: "auto", "aria-label": say("Message"), rows: 2 });
    /** @param {string | null} text */
    const finish = text => {
        form.remove();
        item.classList.remove("editing");
        done(text);
    };
    const form = make(
        "form",
        {
            class: "editor",
            onsubmit: (/** @type {Event} */ event) => {
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

// The notice below an answer for which older turns did not fit; null: all did.
/** @param {Message} message @param {Actions} actions */
function contextNotice(message, actions) {
    const dropped = finite(message.timings?.dropped_tokens);
    const full = message.finish === "full";
    if (!full && !dropped) {
        return null;
    }
    /** @param {string} words @param {() => void} onclick */
    const button = (words, onclick) => make("button", { type: "button", class: "quiet", onclick }, words);
    const alone = actions.alone();
    const sentence = full
        ? alone
            ? say("The question and its documents do not fit into the context of this model.")
            : say("The whole conversation does not fit into the context any more.")
        : alone
          ? say("The prompt is longer than the context: {0} tokens in its middle were left out.", inCount(dropped))
          : say("Older turns no longer fit: {0} tokens were left out.", inCount(dropped));
    return make(
        "div",
        { class: "notice", role: "note" },
        make("p", {}, sentence),
        make(
            "div",
            { class: "notice-actions" },
            alone ? null : button(say("Summarise what came before"), actions.summarise),
            alone || !full ? null : button(say("Leave older turns out"), actions.letGo),
            full ? button(say("Leave out the middle"), actions.shorten) : null,
            full && actions.documents() ? button(say("Ask without the documents"), actions.bare) : null,
            alone || full ? null : button(say("Keep all"), actions.keepAll),
            button(say("Start fresh"), actions.fresh),
        ),
    );
}
