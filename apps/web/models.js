// The models of the server: what they are and whether they are loaded; loading, unloading and pulling (docs/SERVER.md).

import { sendMessage } from "./chat.js";
import { byId, childrenIn, inside, make, setText } from "./dom.js";
import { finite, inBytes, say } from "./language.js";
import {
    callServer, errorSentence, noteFailure, parseAnswer, seesOf, ServerError, serverFeatures, textReader,
} from "./server.js";
import { cleanText, listOf, readSettings } from "./store.js";

/**
 * @typedef {object} Model
 * @property {string} name
 * @property {boolean} loaded
 * @property {boolean} loading
 * @property {boolean} pinned
 * @property {string} sees pictures (seesOf)
 * @property {number} size bytes on disk
 * @property {string} parameters
 * @property {string} type
 * @property {string} family
 * @property {number} memory
 * @property {number} limit
 */

/** @type {{ list: Model[], busy: Set<string>, pull: AbortController | null, timer: number }} */
const models = { list: [], busy: new Set(), pull: null, timer: 0 }; // busy: names that are being loaded or unloaded

/** @param {string} path @param {string} member */
async function readList(path, member) {
    const answer = parseAnswer(await (await callServer(path)).text());
    return listOf(answer[member]);
}

/** @returns {Promise<Model[]>} */
async function fetchModelList() {
    const [all, described, running] = await Promise.all([
        readList("/v1/models", "data"),
        readList("/api/tags", "models"),
        readList("/api/ps", "models"),
    ]);
    return all.map(model => {
        const name = cleanText(model?.id, 200);
        const details = described.find(one => one?.name === name)?.details;
        const memory = running.find(one => one?.name === name);
        return {
            name,
            loaded: model.state === "loaded",
            loading: model.state === "loading",
            pinned: model.pinned === true,
            sees: seesOf(model),
            size: finite(model.size),
            parameters: cleanText(details?.parameter_size, 40),
            type: cleanText(details?.quantization_level, 40),
            family: cleanText(details?.family, 40),
            memory: finite(memory?.size),
            limit: finite(memory?.size_limit),
        };
    });
}

// Whether a model only drafts for others, by its name: Spry-Tales-Draft-4M.
/** @param {string} name */
const isDrafter = name => /(^|[-_.:/ ])draft(er)?([-_.:/ ]|$)/i.test(name);

// ---- the list ------------------------------------------------------------------------------------------------------

/** @param {Model} model */
function modelWords(model) {
    return [
        model.parameters && say("{0} parameters", model.parameters),
        model.type,
        model.family,
        isDrafter(model.name) && say("guesses tokens for other models"),
        say("{0} on disk", inBytes(model.size)),
        model.loaded && say("{0} of memory in use, at most {1}", inBytes(model.memory), inBytes(model.limit)),
    ]
        .filter(Boolean)
        .join(" \u00b7 ");
}

/** @param {Model} model */
function modelItem(model) {
    const chosen = byId("model").value === model.name;
    const busy = models.busy.has(model.name) || model.loading;
    const state = say(busy ? "working" : model.loaded ? "loaded" : "on disk");
    /** @param {string} words @param {() => void} action @param {boolean} disabled */
    const button = (words, action, disabled) =>
        make("button", { type: "button", class: "quiet", disabled, onclick: action }, say(words));
    return make(
        "li",
        { "data-state": model.loaded ? "loaded" : "disk", "data-name": model.name },
        make(
            "div",
            { class: "row-words" },
            make("b", { dir: "auto" }, model.name),
            make("span", { class: "state" }, model.pinned ? say("{0}, pinned", state) : state),
        ),
        make("p", { class: "muted" }, modelWords(model)),
        make(
            "div",
            { class: "model-actions" },
            isDrafter(model.name) && !chosen
                ? null
                : button(chosen ? "Chosen" : "Use this model", () => chooseModel(model.name), chosen),
            model.loaded
                ? button("Unload", () => changeModel("/models/unload", model.name), busy)
                : button("Load", () => changeModel("/models/load", model.name), busy),
        ),
    );
}

function drawModels() {
    const focused = document.activeElement?.closest("#model-list li")?.getAttribute("data-name");
    byId("model-list").replaceChildren(...models.list.map(modelItem));
    const item = childrenIn(byId("model-list")).find(one => one.dataset.name === focused);
    if (item) {
        inside(item, "button:enabled")?.focus();
    }
}

// Asks again while a model is being loaded.
async function refreshModels() {
    clearTimeout(models.timer);
    try {
        models.list = await fetchModelList();
        showModels(models.list);
        sayModels("");
    } catch (error) {
        noteFailure(error);
        sayModels(error.message, true);
    }
    drawModels();
    if (byId("models").open && models.list.some(model => model.loading)) {
        models.timer = setTimeout(refreshModels, 1000);
    }
}

/** @param {string} text @param {boolean} [failed] */
function sayModels(text, failed = false) {
    setText(byId("models-state"), text);
    byId("models-state").classList.toggle("error", failed);
}

/** @param {string} name */
function chooseModel(name) {
    byId("model").value = name;
    byId("model").dispatchEvent(new Event("change"));
    drawModels();
}

/** @param {string} path @param {string} name */
async function changeModel(path, name) {
    models.busy.add(name);
    drawModels();
    let failure = "";
    try {
        await callServer(path, { model: name });
    } catch (error) {
        noteFailure(error);
        failure = error.message;
    }
    models.busy.delete(name);
    await refreshModels();
    if (failure) {
        sayModels(failure, true);
    }
}

// ---- the catalogue -------------------------------------------------------------------------------------------------

/** @param {any} entry */
function catalogueItem(entry) {
    const name = cleanText(entry?.name, 100);
    const fits = entry?.fits === true;
    const facts = [inBytes(finite(entry?.bytes)), cleanText(entry?.licence, 60), cleanText(entry?.use, 200)];
    return make(
        "li",
        { "data-name": name },
        make(
            "div",
            { class: "row-words" },
            make("b", { dir: "auto" }, name),
            make("span", { class: "state" }, say(entry?.here ? "on disk" : fits ? "fits this machine" : "too large for this machine")),
        ),
        make("p", { class: "muted", dir: "auto" }, facts.filter(Boolean).join(" \u00b7 ")),
        entry?.here
            ? null
            : make("button", { type: "button", class: "quiet", disabled: !!models.pull, onclick: () => pullModel(name, "") }, say("Pull")),
    );
}

// What fits comes first.
async function drawCatalogue() {
    try {
        const entries = await readList("/v1/catalogue", "models");
        const ordered = [...entries.filter(one => one?.fits === true), ...entries.filter(one => one?.fits !== true)];
        byId("catalogue-list").replaceChildren(...ordered.map(catalogueItem));
    } catch (error) {
        noteFailure(error);
        byId("catalogue-list").replaceChildren(make("li", { class: "error" }, error.message));
    }
}

// ---- pulling -------------------------------------------------------------------------------------------------------

// The lines of a response, as they come.
/** @param {Response} response */
async function* responseLines(response) {
    const reader = textReader(response);
    let rest = "";
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
        const lines = (rest + read.value).split("\n");
        rest = lines.pop() ?? "";
        yield* lines.filter(Boolean);
    }
    if (rest) {
        yield rest;
    }
}

/** @param {boolean} pulling @param {string} text @param {boolean} [failed] */
function showPull(pulling, text, failed = false) {
    byId("pull-progress").hidden = byId("pull-cancel").hidden = !pulling;
    byId("pull-start").disabled = pulling;
    setText(byId("pull-words"), text);
    byId("pull-words").classList.toggle("error", failed);
}

/** @param {any} report */
function showPullReport(report) {
    const total = finite(report.total);
    if (total > 0) {
        byId("pull-progress").max = total;
        byId("pull-progress").value = finite(report.completed);
        showPull(true, say("{0} of {1}", inBytes(report.completed), inBytes(total)));
    }
}

/** @param {string} source @param {string} name */
async function pullModel(source, name) {
    const { signal } = (models.pull = new AbortController());
    byId("pull-progress").removeAttribute("value");
    showPull(true, say("Connecting\u2026"));
    for (const button of byId("catalogue-list").querySelectorAll("button")) {
        button.disabled = true;
    }
    try {
        const body = name ? { model: name, source } : { model: source };
        for await (const line of responseLines(await callServer("/api/pull", body, signal))) {
            const report = parseAnswer(line);
            if (report.error) {
                throw new ServerError(errorSentence(400, line), 400);
            }
            showPullReport(report);
        }
        showPull(false, say("The model is here."));
        byId("pull-form").reset();
    } catch (error) {
        if (error.name === "AbortError") {
            showPull(false, say("Cancelled. Pulling again goes on where it ended, if the other server allows."));
        } else {
            noteFailure(error);
            const refused = say("This server does not let pages pull models. Start it with --allow-pull.");
            showPull(false, /--allow-pull/.test(error.message) ? refused : error.message, true);
        }
    }
    models.pull = null;
    await refreshModels();
    if (byId("catalogue").open) {
        await drawCatalogue();
    }
}

export function startModels() {
    const dialog = byId("models");
    byId("open-models").addEventListener("click", () => {
        drawModels();
        dialog.showModal();
        refreshModels();
    });
    byId("real-model").addEventListener("click", () => {
        byId("open-models").click();
        byId("pull-source").focus();
    });
    for (const event of ["change", "listed"]) {
        byId("model").addEventListener(event, () => showSamples().catch(noteFailure));
    }
    byId("close-models").addEventListener("click", () => dialog.close());
    byId("pull-form").addEventListener("submit", event => {
        event.preventDefault();
        pullModel(byId("pull-source").value.trim(), byId("pull-name").value.trim());
    });
    byId("catalogue").addEventListener("toggle", () => byId("catalogue").open && drawCatalogue());
    byId("pull-cancel").addEventListener("click", () => models.pull?.abort());
}

// ---- the empty page ------------------------------------------------------------------------------------------------

// Prompts to begin with. Those for the bundled model are sent in English, which is the only language that it knows.
const TALE_SAMPLES = [
    "Tell me a story about a brave little fox.",
    "Tell me a story about a boat in a storm.",
    "Tell me a story about a dragon who is afraid of mice.",
];
const SAMPLES = [
    "Explain in five sentences how a rainbow forms.",
    "Write a polite e-mail that moves a meeting to next week.",
    "Write a C function that reverses a linked list.",
];

// Shows what the chosen model is for, and how to begin.
async function showSamples() {
    const { bundled, pull } = await serverFeatures();
    const tales = byId("model").value === bundled;
    byId("bundled-note").hidden = !tales;
    byId("pull-refused").hidden = pull;
    byId("samples").replaceChildren(
        ...(tales ? TALE_SAMPLES : SAMPLES).map(text =>
            make("li", {}, make("button", { type: "button", onclick: () => sendMessage(tales ? text : say(text)) }, say(text))),
        ),
    );
}

// ---- the choice at the top -----------------------------------------------------------------------------------------

/** @param {{ name: string, sees: string }[]} all */
export function showModels(all) {
    const select = byId("model");
    const chosen = select.value || readSettings().model;
    const wanted = all.filter(({ name }) => !isDrafter(name) || name === select.value);
    const chatting = wanted.length ? wanted : all;
    select.replaceChildren(...chatting.map(({ name, sees }) => make("option", { value: name, "data-sees": sees }, name)));
    select.value = chatting.some(({ name }) => name === chosen) ? chosen : (chatting[0]?.name ?? "");
    select.disabled = all.length === 0;
    select.dispatchEvent(new CustomEvent("listed", { detail: all.map(({ name }) => name) }));
}

// Chooses a model, also one that is not offered.
/** @param {string} name */
export function selectModel(name) {
    const select = byId("model");
    if (![...select.options].some(option => option.value === name)) {
        select.append(make("option", { value: name }, name));
    }
    select.value = name;
}
