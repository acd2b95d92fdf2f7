// The settings panel: sampling, the system message, the form of the answer, tools, and the server's key. They belong to the conversation. An
// empty field means the default of the server or the model.

import { byId, fieldById, make, toast } from "./dom.js";
import { LANGUAGES, say } from "./language.js";
import { callServer, parseAnswer } from "./server.js";
import {
    changeSetting, cleanText, conversationSettings, current, listOf, passing, readSettings, saveConversation, writeSettings,
} from "./store.js";
import { checkTools, mcpOffInPanel, requestTools, schemaOf, showServers, showTools, startTools, toolsInPanel } from "./tools.js";

/** @import { Settings } from "./store.js" */

/** @typedef {{ name: string, word: string, none: string, slider?: [number, number] }} Field */
/** @typedef {{ name: string, help: string, integer: boolean, min: number, max?: number, value: number | null }} Known */

// `slider`: the values that a slider reaches; others are typed. `none`: shown while the server names no value.
/** @type {Field[]} */
export const SAMPLING_FIELDS = [
    { name: "temperature", word: "Temperature", none: "model's own", slider: [0, 2] },
    { name: "top_k", word: "Top k", none: "model's own", slider: [0, 200] },
    { name: "top_p", word: "Top p", none: "model's own", slider: [0, 1] },
    { name: "min_p", word: "Min p", none: "model's own", slider: [0, 1] },
    { name: "repeat_penalty", word: "Repeat penalty", none: "model's own", slider: [0.5, 2] },
    { name: "presence_penalty", word: "Presence penalty", none: "none", slider: [-2, 2] },
    { name: "frequency_penalty", word: "Frequency penalty", none: "none", slider: [-2, 2] },
    { name: "max_tokens", word: "Most tokens", none: "no limit" },
    { name: "seed", word: "Seed", none: "random" },
];

// Ranges, help and values of the chosen model, as the server's tables have them.
/** @type {Map<string, Known>} */
let known = new Map();

const TEXT_FIELDS = ["system", "stop", "schema", "thinking", "draft"];

// Sets of values to begin with.
/** @type {Record<string, Record<string, number>>} */
const PRESETS = {
    exact: { temperature: 0 },
    balanced: { temperature: 0.7, top_p: 0.95 },
    inventive: { temperature: 1.1, min_p: 0.05 },
};

// ---- the request ---------------------------------------------------------------------------------------------------

// The fields that the settings add to a request.
export function samplingSettings() {
    const settings = conversationSettings();
    /** @type {Record<string, any>} */
    const chosen = {};
    for (const { name } of SAMPLING_FIELDS) {
        if (Number.isFinite(settings[name])) {
            chosen[name] = settings[name];
        }
    }
    const stops = cleanText(settings.stop).split("\n").filter(Boolean).slice(0, 16);
    const schema = schemaOf(cleanText(settings.schema)).value;
    if (stops.length) {
        chosen.stop = stops;
    }
    if (schema) {
        chosen.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
    }
    if (["on", "off"].includes(settings.thinking)) {
        chosen.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
    }
    if (settings.draft === "off") {
        chosen.draft = false;
    }
    const tools = requestTools(settings);
    if (tools.length) {
        chosen.tools = tools;
    }
    if (["slide", "error", "truncate_middle"].includes(settings.context_overflow)) {
        chosen.context_overflow = settings.context_overflow;
    }
    return chosen;
}

// ---- the panel -----------------------------------------------------------------------------------------------------

/** @param {Settings} [settings] */
function showSettings(settings = conversationSettings()) {
    byId("s-key").value = passing.read("key") ?? "";
    byId("s-language").value = readSettings().language ?? "";
    for (const name of TEXT_FIELDS) {
        fieldById("s-" + name).value = cleanText(settings[name]);
    }
    for (const { name } of SAMPLING_FIELDS) {
        fieldById("s-" + name).value = settings[name] ?? "";
    }
    showTools(settings.tools);
    showServers(settings);
    checkFields();
}

/** @param {Field} field */
function settingRow({ name, word, slider }) {
    const input = make("input", { id: "s-" + name, inputMode: "text", autocomplete: "off", "aria-describedby": "h-" + name });
    const range = slider && make("input", {
        id: "r-" + name, type: "range", min: String(slider[0]), max: String(slider[1]), "aria-label": say(word),
        oninput: (/** @type {InputEvent} */ event) => {
            input.value = /** @type {HTMLInputElement} */ (event.target).value;
        },
    });
    return make(
        "div",
        { class: "field" },
        make("label", { htmlFor: "s-" + name }, say(word)),
        make("div", { class: "valued" }, input, range),
        make("p", { id: "h-" + name, class: "help" }),
    );
}

// Empty fields show the values that a request has without them; sliders are where the values are.
function showKnown() {
    for (const { name, none, slider } of SAMPLING_FIELDS) {
        const { help = "", integer = false, value = null } = known.get(name) ?? {};
        const usual = value === null ? "" : String(Number(value.toPrecision(6)));
        const input = fieldById("s-" + name);
        input.placeholder = usual || say(none);
        byId(/** @type {any} */ ("h-" + name)).textContent = say(help);
        if (slider) {
            fieldById("r-" + name).step = integer ? "1" : "0.01";
            fieldById("r-" + name).value = input.value.replace(",", ".") || usual || String(slider[0]);
        }
    }
}

// Asks the server for the settings of the chosen model; without them every number is accepted.
export async function learnSettings() {
    try {
        const path = "/v1/settings?model=" + encodeURIComponent(byId("model").value);
        const answer = parseAnswer(await (await callServer(path)).text());
        known = new Map(listOf(answer.settings).map(one => [cleanText(one?.name), one]));
    } catch {
        known = new Map();
    }
    if (byId("settings").open) {
        checkFields();
    }
}

// {value, wrong}: the number in a field (undefined: empty), and an error message or "". A decimal comma is accepted.
/** @param {Field} field @param {string} [id] */
export function fieldValue(field, id = "s-" + field.name) {
    const text = fieldById(id).value.trim().replace(",", ".");
    const value = text === "" ? undefined : Number(text);
    const { integer = false, min = -Infinity, max = Number.MAX_SAFE_INTEGER } = known.get(field.name) ?? {};
    const wrong = value !== undefined && !(value >= min && value <= max && (!integer || Number.isInteger(value)));
    const sentence = integer
        ? "{0} has to be a whole number, at least {1}."
        : "{0} has to be a number from {1} to {2}.";
    return { value, wrong: wrong ? say(sentence, say(field.word), min, max) : "" };
}

// Shows errors; returns the settings of the valid fields, and whether all are valid.
function checkFields() {
    /** @type {Settings} */
    const settings = { context_overflow: conversationSettings().context_overflow, mcpAllowed: conversationSettings().mcpAllowed, mcpOff: mcpOffInPanel() };
    const sentences = [];
    /** @param {string} name @param {string} wrong */
    const note = (name, wrong) => {
        fieldById("s-" + name).setAttribute("aria-invalid", String(Boolean(wrong)));
        if (wrong) {
            sentences.push(wrong);
        }
    };
    for (const field of SAMPLING_FIELDS) {
        const { value, wrong } = fieldValue(field);
        note(field.name, wrong);
        settings[field.name] = wrong ? conversationSettings()[field.name] : value;
    }
    for (const name of TEXT_FIELDS) {
        settings[name] = fieldById("s-" + name).value;
    }
    note("schema", schemaOf(settings.schema).wrong);
    settings.tools = toolsInPanel();
    sentences.push(...checkTools(settings.tools));
    showKnown();
    byId("settings-error").textContent = sentences.join(" ");
    byId("settings-error").hidden = sentences.length === 0;
    return { settings, fine: sentences.length === 0 };
}

// Keeps the settings of the open conversation, which need not be saved yet.
function checkSettings() {
    const { settings, fine } = checkFields();
    const own = current.conversation;
    own.settings = settings;
    if (own.messages.length) {
        saveConversation(own);
    }
    return fine;
}

// The settings of this conversation become the settings of new ones; the colours, the model and the language stay.
function keepAsDefaults() {
    const { theme, model, language, folded } = readSettings();
    writeSettings({ ...checkFields().settings, mcpAllowed: undefined, theme, model, language, folded });
    toast(say("New conversations begin with these settings."));
}

export function openSettings() {
    showSettings();
    byId("settings").showModal();
    learnSettings();
}

// Everything is said anew, so the page is loaded again; an answer in progress goes on.
function changeLanguage() {
    changeSetting("language", byId("s-language").value);
    location.reload();
}

/** @param {(key: string) => void} useKey */
export function startSettings(useKey) {
    const dialog = byId("settings");
    byId("sampling").append(...SAMPLING_FIELDS.map(settingRow));
    byId("s-language").append(...Object.entries(LANGUAGES).map(([value, name]) => make("option", { value, lang: value }, name)));
    byId("s-language").addEventListener("change", changeLanguage);
    byId("open-settings").addEventListener("click", () => openSettings());
    byId("close-settings").addEventListener("click", () => dialog.close());
    byId("settings-form").addEventListener("input", checkSettings);
    byId("settings-form").addEventListener("submit", event => {
        if (!checkSettings()) {
            event.preventDefault();
        }
    });
    byId("settings-reset").addEventListener("click", () => {
        showSettings({});
        checkSettings();
    });
    startTools();
    byId("settings-default").addEventListener("click", keepAsDefaults);
    byId("s-preset").addEventListener("change", () => {
        const preset = PRESETS[byId("s-preset").value];
        if (preset) {
            for (const name of ["temperature", "top_k", "top_p", "min_p"]) {
                fieldById("s-" + name).value = String(preset[name] ?? "");
            }
            checkSettings();
        }
    });
    dialog.addEventListener("click", event => {
        if (event.target === dialog) {
            dialog.close();
        }
    });
    dialog.addEventListener("close", () => {
        const key = byId("s-key").value.trim();
        if (key !== (passing.read("key") ?? "")) {
            useKey(key);
        }
    });
}
