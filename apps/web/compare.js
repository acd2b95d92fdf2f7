// Two answers to one prompt side by side: two models, or one with two settings. Each side has fields of its own; an empty one
// has the value of the open conversation. The answers are written one after the other, so that neither slows the other down,
// unless both are wanted at the same time.

import {
    emptyAnswer, endStream, failAnswer, followAnswer, pacedDrawing, requestMessages, takeChunk,
} from "./answers.js";
import { chatHooks, openConversation } from "./chat.js";
import { openSide } from "./conversations.js";
import { byId, entersMessage, fieldById, fitHeight, make, speak } from "./dom.js";
import { partsOf, partsSum, timingsView } from "./figures.js";
import { finite, firstLine, inCount, inFigures, inTime, say } from "./language.js";
import { decorateBlocks, renderMarkdown } from "./markdown.js";
import { FINISH_NOTES, showPartsBefore } from "./message.js";
import { selectModel } from "./models.js";
import { loadPictures } from "./pictures.js";
import { cancelStream, openStream } from "./server.js";
import { fieldValue, SAMPLING_FIELDS, samplingSettings } from "./settings.js";
import {
    addMessage, cleanText, conversationSettings, emptyConversation, lasting, listOf, readJson, saveConversation,
    systemMessage,
} from "./store.js";

/** @import { Field } from "./settings.js" */
/** @import { Answer } from "./answers.js" */
/** @import { Message, Said, StoredDocument, Timings } from "./store.js" */

const COMPARE_FIELDS = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "max_tokens", "seed"];

/**
 * @typedef {object} Side one of the two answers, with its elements
 * @property {Answer} answer
 * @property {HTMLElement} element
 * @property {HTMLSelectElement} model
 * @property {HTMLTextAreaElement} system
 * @property {HTMLSelectElement} thinking
 * @property {HTMLElement} wrong
 * @property {HTMLButtonElement} before
 * @property {HTMLElement} text
 * @property {HTMLElement} note
 * @property {HTMLElement} figures
 * @property {HTMLButtonElement} keep
 */

const compared = {
    /** @type {Message[]} */
    before: [], // messages in front of the prompt
    /** @type {StoredDocument[] | undefined} */
    documents: undefined, // of the prompt
    /** @type {Side[]} */
    sides: [],
    /** @type {string[]} */
    models: [], // names, also of models that draft for others
    /** @type {AbortController | null} */
    abort: null, // while answers are written
};

// ---- sides ---------------------------------------------------------------------------------------------------------

/** @param {number} at @param {Field} field */
function compareField(at, field) {
    return make(
        "label",
        { class: "field" },
        say(field.word),
        make("input", {
            id: `c${at}-${field.name}`,
            inputMode: "text",
            placeholder: say("as in the chat"),
            autocomplete: "off",
        }),
    );
}

// A side of the comparison, number 0 or 1.
/** @param {number} at @returns {Side} */
function makeSide(at) {
    /** @param {string} value @param {string} words */
    const choice = (value, words) => make("option", { value }, say(words));
    const side = {
        model: make("select", { id: `c${at}-model`, "aria-label": say("Model") }),
        system: make("textarea", { id: `c${at}-system`, rows: 2, dir: "auto", placeholder: say("as in the chat") }),
        thinking: make(
            "select",
            { id: `c${at}-thinking` },
            choice("", "as in the chat"),
            choice("on", "on"),
            choice("off", "off"),
        ),
        wrong: make("p", { class: "error", role: "alert", hidden: true }),
        before: make("button", { type: "button", class: "quiet", hidden: true }),
        text: make("div", { class: "text" }),
        note: make("p", { class: "note", hidden: true }),
        figures: make("div", { class: "figures" }),
        keep: make("button", { type: "button", class: "quiet", hidden: true, onclick: () => keepCompared(at) }, say("Go on in the chat")),
        answer: emptyAnswer("assistant"),
        element: make("section", { class: "panel", "aria-label": say("Answer {0}", at + 1) }),
    };
    const fields = SAMPLING_FIELDS.filter(field => COMPARE_FIELDS.includes(field.name));
    side.element.append(
        make("div", { class: "side-top" }, make("b", {}, String(at + 1)), side.model),
        make(
            "details",
            {},
            make("summary", {}, say("Settings")),
            make(
                "div",
                { class: "fields" },
                ...fields.map(field => compareField(at, field)),
                make("label", { class: "field" }, say("Thinking"), side.thinking),
            ),
            make("label", { class: "field" }, say("System message"), side.system),
        ),
        side.wrong,
        side.before,
        side.text,
        side.note,
        side.figures,
        side.keep,
    );
    return side;
}

// {model, system, set, wrong}: what a side asks for, and the sentences for fields that are not valid.
/** @param {number} at */
function sideRequest(at) {
    const { model, system, thinking } = compared.sides[at];
    /** @type {Record<string, any>} */
    const set = {};
    const wrong = [];
    for (const field of SAMPLING_FIELDS.filter(one => COMPARE_FIELDS.includes(one.name))) {
        const read = fieldValue(field, `c${at}-${field.name}`);
        if (read.wrong) {
            wrong.push(read.wrong);
        } else if (read.value !== undefined) {
            set[field.name] = read.value;
        }
    }
    if (thinking.value) {
        set.chat_template_kwargs = { enable_thinking: thinking.value === "on" };
    }
    return { model: model.value || undefined, system: system.value.trim(), set, wrong: wrong.join(" ") };
}

/** @param {number} at @param {string} prompt */
function sideBody(at, prompt) {
    const { model, system, set } = sideRequest(at);
    /** @type {Said} */
    const question = { role: "user", content: prompt, documents: compared.documents };
    const before = byId("compare-context").checked ? compared.before : [];
    return {
        stream: true,
        stream_options: { include_usage: true },
        context_overflow: "slide",
        ...samplingSettings(),
        ...set,
        model,
        messages: requestMessages([...before, question], system || systemMessage()),
    };
}

// ---- answers -------------------------------------------------------------------------------------------------------

/** @param {Side} side @param {boolean} writing */
function showSide(side, writing) {
    const { answer } = side;
    renderMarkdown(side.text, answer.content, true);
    showPartsBefore(side.before, side.text);
    decorateBlocks(side.text, writing);
    const words = answer.error || say(FINISH_NOTES[answer.finish] ?? "");
    side.note.textContent = writing && answer.content === "" ? say(answer.reasoning ? "Thinking\u2026" : "Waiting\u2026") : words;
    side.note.hidden = side.note.textContent === "";
    side.note.classList.toggle("error", Boolean(answer.error));
    side.element.setAttribute("aria-busy", String(writing));
    side.figures.replaceChildren(...(answer.timings && !writing ? [timingsView(answer.timings)] : []));
    side.keep.hidden = writing || answer.content === "";
}

/** @param {Side} side @param {any} body @param {AbortSignal} signal */
async function writeSide(side, body, signal) {
    const { answer } = side;
    const drawing = pacedDrawing(() => showSide(side, true));
    showSide(side, true);
    try {
        await followAnswer(
            answer,
            signal,
            () => openStream({ ...body, stream_id: answer.stream }, signal),
            chunk => {
                takeChunk(answer, chunk);
                drawing.ask();
            },
        );
    } catch (error) {
        cancelStream(answer);
        failAnswer(answer, error);
        answer.error = answer.finish === "full" ? error.message : answer.error;
    }
    endStream(answer);
    drawing.stop();
    showSide(side, false);
}

// Writes both answers. An invalid field is shown at its side, and nothing is asked.
async function runComparison() {
    const prompt = byId("compare-prompt").value.trim();
    await loadPictures([...compared.before, { role: "user", content: prompt, documents: compared.documents }]);
    const bodies = compared.sides.map((side, at) => sideBody(at, prompt));
    const wrong = compared.sides.map((side, at) => sideRequest(at).wrong);
    compared.sides.forEach((side, at) => {
        side.wrong.textContent = wrong[at];
        side.wrong.hidden = wrong[at] === "";
    });
    if (prompt === "" || wrong.some(Boolean)) {
        byId("compare-prompt").focus();
        return;
    }
    keepComparison();
    const abort = (compared.abort = new AbortController());
    compared.sides.forEach(side => {
        side.answer = emptyAnswer("assistant");
        showSide(side, false);
    });
    showComparing(true);
    /** @param {number} at */
    const write = at => (abort.signal.aborted ? null : writeSide(compared.sides[at], bodies[at], abort.signal));
    if (byId("compare-together").checked) {
        await Promise.all([write(0), write(1)]);
    } else {
        await write(0);
        await write(1);
    }
    compared.abort = null;
    showComparing(false);
    speak(say("Both answers are complete."));
}

/** @param {boolean} busy */
function showComparing(busy) {
    byId("compare-run").hidden = busy;
    byId("compare-stop").hidden = !busy;
    byId("compare-table").replaceChildren(...(busy ? [] : comparisonRows()));
}

// ---- figures -------------------------------------------------------------------------------------------------------

/** @param {Timings} timings */
const speedOf = timings =>
    finite(timings.decode_ms) > 0 && finite(timings.generated_tokens) > 1
        ? (1000 * (finite(timings.generated_tokens) - 1)) / finite(timings.decode_ms)
        : 0;

/**
 * @typedef {object} Figure
 * @property {string} word
 * @property {(timings: Timings) => number} of the number
 * @property {(value: number) => string} shown its text
 * @property {number} better 1: more is better, -1: less, 0: neither
 */

/** @type {Figure[]} */
const COMPARED_FIGURES = [
    { word: "To the first token", of: timings => finite(timings.ttft_ms), shown: inTime, better: -1 },
    { word: "Tokens per second", of: speedOf, shown: inFigures, better: 1 },
    { word: "Whole time", of: timings => partsSum(partsOf(timings.parts_ms)), shown: inTime, better: -1 },
    { word: "Tokens of the answer", of: timings => finite(timings.generated_tokens), shown: inCount, better: 0 },
    { word: "Tokens of the prompt", of: timings => finite(timings.prompt_tokens), shown: inCount, better: 0 },
    { word: "Prefix reused", of: timings => finite(timings.cached_tokens), shown: inCount, better: 0 },
    { word: "Joules for 100 tokens", of: timings => finite(timings.energy?.joules_per_100_tokens), shown: inFigures, better: -1 },
];

// The table of both sides, the better figure of each row marked; figures that neither has are left out.
function comparisonRows() {
    const timings = compared.sides.map(side => side.answer.timings ?? {});
    if (compared.sides.some(side => !side.answer.timings)) {
        return [];
    }
    const rows = COMPARED_FIGURES.map(figure => ({ ...figure, values: timings.map(figure.of) })).filter(({ values }) =>
        values.some(value => value > 0),
    );
    /** @param {Figure & { values: number[] }} row @param {number} at */
    const cell = ({ values, shown, better }, at) => {
        const wins = better !== 0 && values.every(value => value > 0) && better * (values[at] - values[1 - at]) > 0;
        return make(
            "td",
            { class: wins ? "better" : "" },
            values[at] > 0 ? shown(values[at]) : "\u2013",
            wins ? make("span", { class: "hidden" }, " " + say("better")) : null,
        );
    };
    return [
        make("caption", { class: "hidden" }, say("Figures of both answers")),
        make("tr", {}, make("td", {}), ...[0, 1].map(at => make("th", { scope: "col", "aria-label": say("Answer {0}", at + 1) }, String(at + 1)))),
        ...rows.map(row => make("tr", {}, make("th", { scope: "row" }, say(row.word)), cell(row, 0), cell(row, 1))),
    ];
}

// ---- opening and keeping -------------------------------------------------------------------------------------------

// The fields of both sides, until the next visit.
function keepComparison() {
    const names = ["model", "system", "thinking", ...COMPARE_FIELDS];
    const kept = [0, 1].map(at => Object.fromEntries(names.map(name => [name, fieldById(`c${at}-${name}`).value])));
    lasting.write("compare", JSON.stringify(kept));
}

// The models are from the list; the second side begins with another one where there is one.
function fillSides() {
    const kept = listOf(readJson("compare"));
    const { models } = compared;
    compared.sides.forEach(({ model }, at) => {
        const chosen = model.value || kept[at]?.model;
        const first = byId("model").value;
        const other = models.find(name => name !== first) ?? first;
        model.replaceChildren(...models.map(name => make("option", { value: name }, name)));
        model.value = models.includes(chosen) ? chosen : at === 0 ? first : other;
    });
}

// The sides are made when they are first needed.
function makeSides() {
    compared.sides = [0, 1].map(makeSide);
    byId("compare-sides").append(...compared.sides.map(side => side.element));
    const kept = listOf(readJson("compare"));
    [0, 1].forEach(at =>
        ["system", "thinking", ...COMPARE_FIELDS].forEach(name => {
            fieldById(`c${at}-${name}`).value = cleanText(kept[at]?.[name], 10000);
        }),
    );
}

export function openComparison() {
    if (compared.sides.length === 0) {
        makeSides();
    }
    fillSides();
    byId("compare-context-label").hidden = compared.before.length === 0;
    if (matchMedia("(pointer: fine)").matches) {
        byId("compare-prompt").focus();
    }
}

// Compares answers to a question of the conversation, with what came before it.
/** @param {Message[]} path @param {Message | undefined} question */
function compareQuestion(path, question) {
    if (!question) {
        return;
    }
    compared.before = path.slice(0, path.indexOf(question));
    compared.documents = question.documents;
    byId("compare-prompt").value = question.content;
    byId("compare-context").checked = compared.before.length > 0;
    location.hash = "#compare";
}

// The prompt and one of the answers become a conversation.
/** @param {number} at */
function keepCompared(at) {
    const { answer, model } = compared.sides[at];
    const own = emptyConversation();
    const before = byId("compare-context").checked ? compared.before : [];
    let last = null;
    for (const { id: _id, parent: _parent, ...message } of before) {
        last = addMessage(own, last, message);
    }
    last = addMessage(own, last, { role: "user", content: byId("compare-prompt").value.trim(), documents: compared.documents });
    addMessage(own, last, { ...answer });
    own.title = firstLine(byId("compare-prompt").value, 60);
    own.updated = Date.now();
    own.settings = { ...conversationSettings(), ...sideRequest(at).set };
    saveConversation(own);
    selectModel(model.value);
    openConversation(own.id);
}

export function startComparison() {
    chatHooks.compare = compareQuestion;
    byId("model").addEventListener("listed", event => {
        compared.models = /** @type {CustomEvent<string[]>} */ (event).detail;
        fillSides();
    });
    byId("compare-form").addEventListener("submit", event => {
        event.preventDefault();
        if (!compared.abort) {
            runComparison();
        }
    });
    byId("compare-prompt").addEventListener("keydown", event => {
        if (entersMessage(event)) {
            event.preventDefault();
            byId("compare-form").requestSubmit();
        }
    });
    byId("compare-prompt").addEventListener("input", () => fitHeight(byId("compare-prompt")));
    byId("tab-compare").addEventListener("click", () => openSide(false));
    byId("compare-stop").addEventListener("click", () => {
        compared.abort?.abort();
        byId("compare-prompt").focus();
    });
}
