// The settings panel: sampling, the system message, the form of the answer, tools, and the server's key. They belong to the conversation. An
// empty field means the default of the server or the model.

import { byId, fieldById, make, toast } from "./dom.js";
import { LANGUAGES, say } from "./language.js";
import {
    changeSetting, cleanText, conversationSettings, current, passing, readSettings, saveConversation, writeSettings,
} from "./store.js";
import { checkTools, requestTools, schemaOf, showTools, startTools, toolsInPanel } from "./tools.js";

/** @import { Settings } from "./store.js" */

/** @typedef {{ name: string, word: string, least: number, most: number, whole?: boolean }} Field */

/** @type {Field[]} */
export const SAMPLING_FIELDS = [
    { name: "temperature", word: "Temperature", least: 0, most: 5 },
    { name: "top_k", word: "Top k", least: 0, most: 1e6, whole: true },
    { name: "top_p", word: "Top p", least: 0, most: 1 },
    { name: "min_p", word: "Min p", least: 0, most: 1 },
    { name: "repeat_penalty", word: "Repeat penalty", least: 0.1, most: 10 },
    { name: "presence_penalty", word: "Presence penalty", least: -2, most: 2 },
    { name: "frequency_penalty", word: "Frequency penalty", least: -2, most: 2 },
    { name: "max_tokens", word: "Most tokens", least: 1, most: 1e9, whole: true },
    { name: "seed", word: "Seed", least: 0, most: Number.MAX_SAFE_INTEGER, whole: true },
];
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
    checkFields();
}

// {value, wrong}: the number in a field (undefined: empty), and an error message or "". A decimal comma is accepted.
/** @param {Field} field @param {string} [id] */
export function fieldValue(field, id = "s-" + field.name) {
    const text = fieldById(id).value.trim().replace(",", ".");
    const value = text === "" ? undefined : Number(text);
    const wrong =
        value !== undefined &&
        !(value >= field.least && value <= field.most && (!field.whole || Number.isInteger(value)));
    const sentence = field.whole
        ? "{0} has to be a whole number, at least {1}."
        : "{0} has to be a number from {1} to {2}.";
    return { value, wrong: wrong ? say(sentence, say(field.word), field.least, field.most) : "" };
}

// Shows errors; returns the settings of the valid fields, and whether all are valid.
function checkFields() {
    /** @type {Settings} */
    const settings = { context_overflow: conversationSettings().context_overflow };
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

// The settings of this conversation become those of new ones; the colours, the model and the language stay.
function keepAsDefaults() {
    const { theme, model, language, folded } = readSettings();
    writeSettings({ ...checkFields().settings, theme, model, language, folded });
    toast(say("New conversations begin with these settings."));
}

export function openSettings() {
    showSettings();
    byId("settings").showModal();
}

// Everything is said anew, so the page is loaded again; an answer in progress goes on.
function changeLanguage() {
    changeSetting("language", byId("s-language").value);
    location.reload();
}

/** @param {(key: string) => void} useKey */
export function startSettings(useKey) {
    const dialog = byId("settings");
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
