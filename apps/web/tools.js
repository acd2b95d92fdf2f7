// Tools of a conversation: the settings declare them, the model calls them, and the user pastes what they return, or the server
// asks a tool of its machine that it allows (`--allow-tool`). The calls are stored in the answer that made them: {id, name, arguments,
// result} and, where one was sent to a tool, {url, note, failed}; `returned` says that the results were sent.

import { byId, childrenIn, inside, make } from "./dom.js";
import { finite, say } from "./language.js";
import { decisionButtons, isMcpPlace, mcpEntries, mcpOffInPanel, showServers, takeServers, waitsForUser } from "./mcp.js";
import { callServer, parseAnswer } from "./server.js";
import { cleanText, cleanTool, cleanTools, conversationSettings, listOf, TOOLS_MAX } from "./store.js";

/** @import { Actions } from "./message.js" */
/** @import { Call, Message, Said, Settings, Tool } from "./store.js" */

// ---- JSON schemas --------------------------------------------------------------------------------------------------

const SCHEMA_TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"];
/** @param {any} value */
const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
/** @param {any} value */
const isSchema = value => typeof value === "boolean" || isObject(value);
/** @param {any} value */
const isCount = value => Number.isInteger(value) && value >= 0;
/** @param {any} value */
const isPattern = value => {
    try {
        return typeof value === "string" && Boolean(new RegExp(value, "u"));
    } catch {
        return false;
    }
};

/** @type {Record<string, (value: any) => boolean>} */
const SCHEMA_CHECKS = {
    type: value => [value].flat().length > 0 && [value].flat().every(name => SCHEMA_TYPES.includes(name)),
    properties: isObject,
    required: value => Array.isArray(value) && value.every(name => typeof name === "string"),
    enum: value => Array.isArray(value) && value.length > 0,
    items: isSchema,
    prefixItems: value => Array.isArray(value) && value.every(isSchema),
    additionalProperties: isSchema,
    anyOf: value => Array.isArray(value) && value.length > 0 && value.every(isSchema),
    oneOf: value => Array.isArray(value) && value.length > 0 && value.every(isSchema),
    allOf: value => Array.isArray(value) && value.length > 0 && value.every(isSchema),
    $defs: isObject,
    $ref: value => typeof value === "string",
    pattern: isPattern,
    minimum: Number.isFinite,
    maximum: Number.isFinite,
    minLength: isCount,
    maxLength: isCount,
    minItems: isCount,
    maxItems: isCount,
};

// The schemas directly inside a schema, with the place of each.
/** @param {any} schema */
const innerSchemas = schema => [
    ...["properties", "$defs"].flatMap(name => (isObject(schema[name]) ? Object.entries(schema[name]).map(([key, inner]) => [`${name}.${key}`, inner]) : [])),
    ...["anyOf", "oneOf", "allOf", "prefixItems"].flatMap(name => listOf(schema[name]).map((inner, at) => [`${name}.${at}`, inner])),
    ...["items", "additionalProperties"].filter(name => isObject(schema[name])).map(name => [name, schema[name]]),
];

// The place of the first value that has a wrong form, such as "properties.age.type"; "": none.
/** @param {any} schema @param {string} [place] @param {number} [depth] @returns {string} */
function schemaFault(schema, place = "", depth = 0) {
    if (typeof schema === "boolean" || depth > 50) {
        return "";
    }
    if (!isObject(schema)) {
        return place;
    }
    const wrong = Object.keys(SCHEMA_CHECKS).find(name => Object.hasOwn(schema, name) && !SCHEMA_CHECKS[name](schema[name]));
    if (wrong) {
        return place + wrong;
    }
    for (const [name, inner] of innerSchemas(schema)) {
        const fault = schemaFault(inner, place + name + ".", depth + 1);
        if (fault) {
            return fault.replace(/\.$/, "");
        }
    }
    return "";
}

// {value, wrong}: the schema in a text (undefined: none), and an error message or "".
/** @param {string} text */
export function schemaOf(text) {
    if (text.trim() === "") {
        return { value: undefined, wrong: "" };
    }
    let value = null;
    try {
        value = JSON.parse(text);
    } catch (error) {
        return { value: undefined, wrong: say("The schema is not JSON: {0}", error.message) };
    }
    if (!isObject(value)) {
        return { value: undefined, wrong: say("The schema has to be a JSON object.") };
    }
    const fault = schemaFault(value);
    return fault ? { value: undefined, wrong: say("The schema is wrong at {0}.", fault) } : { value, wrong: "" };
}

const TOOL_NAME = /^[A-Za-z0-9_-]{1,64}$/;

// ---- the request ---------------------------------------------------------------------------------------------------

/** @param {Tool} tool @param {Tool[]} all */
function toolFault(tool, all) {
    if (!TOOL_NAME.test(tool.name)) {
        return say("The name of a tool has only letters, digits, _ and -.");
    }
    if (all.filter(other => other.name === tool.name).length > 1) {
        return say("Two tools have the name {0}.", tool.name);
    }
    const { wrong } = schemaOf(tool.schema);
    return wrong && tool.name + ": " + wrong;
}

/** @param {Settings} settings */
export const requestTools = settings => {
    const tools = cleanTools(settings.tools);
    const declared = tools
        .filter(tool => toolFault(tool, tools) === "")
        .map(({ name, description, schema }) => ({
            type: "function",
            function: { name, description, parameters: schemaOf(schema).value ?? { type: "object", properties: {} } },
        }));
    return [...declared, ...mcpEntries(settings)];
};

// An answer with calls and their results, as messages of a request. Calls without results are not sent.
/** @param {Said} message @returns {{ role: string, [member: string]: any }[]} */
export function callTurns({ content, calls: made = [] }) {
    const calls = made.map(call => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
    }));
    const results = made.map(call => ({ role: "tool", tool_call_id: call.id, content: call.result }));
    return [{ role: "assistant", content, tool_calls: calls }, ...results];
}

// Takes the part of a call that a chunk of the stream has.
/** @param {{ calls?: Call[] }} message @param {any} deltas */
export function takeCalls(message, deltas) {
    for (const delta of listOf(deltas)) {
        const at = finite(delta?.index);
        if (Number.isInteger(at) && at >= 0 && at <= (message.calls?.length ?? 0) && at < TOOLS_MAX) {
            message.calls ??= [];
            const call = (message.calls[at] ??= { id: "", name: "", arguments: "", result: "" });
            call.id ||= cleanText(delta.id, 200);
            call.name ||= cleanText(delta.function?.name, 200);
            call.arguments += cleanText(delta.function?.arguments);
        }
    }
}

// ---- tools of the server's machine ---------------------------------------------------------------------------------

/** @type {string[]} */
export let allowedUrls = []; // addresses of tools that the server calls

// Whether the tools of MCP servers are others than before.
export async function learnTools() {
    const answer = parseAnswer(await callServer("/v1/tools").then(response => response.text(), () => "{}"));
    const changed = takeServers(answer.servers);
    if (changed) {
        showServers(conversationSettings());
    }
    const urls = listOf(answer.urls).map(url => cleanText(url, 2000));
    if (String(urls) !== String(allowedUrls)) {
        allowedUrls = urls;
        childrenIn(byId("tool-list")).forEach(showChoice);
    }
    return changed;
}

/** @param {Call} call @param {AbortSignal} signal */
export async function callTool(call, signal) {
    try {
        const place = isMcpPlace(call.url) ? { name: call.name } : { url: call.url };
        const body = { ...place, arguments: JSON.parse(call.arguments || "{}") };
        call.result = cleanText(parseAnswer(await (await callServer("/v1/tools/call", body, signal)).text()).result);
        call.note = say("From {0}", call.url ?? "");
    } catch (error) {
        call.failed = true;
        call.note =
            error.name === "AbortError"
                ? say("Stopped.")
                : error instanceof SyntaxError
                  ? say("The model's arguments are not valid JSON.")
                  : error.message;
    }
}

// ---- calls in an answer --------------------------------------------------------------------------------------------

// Where a call was sent, and what came of it.
/** @param {Call} call @param {boolean} writing */
function callNote(call, writing) {
    const text = call.note || (writing && call.url ? say("Calling {0}\u2026", call.url) : "");
    return text ? make("p", { class: "note" + (call.failed ? " error" : ""), dir: "auto" }, text) : null;
}

/** @param {Call} call @param {boolean} open @param {boolean} writing @param {Actions} actions */
function callItem(call, open, writing, actions) {
    const waits = open && waitsForUser(call);
    const result = waits
        ? decisionButtons(call, actions.decide)
        : open
        ? make("textarea", { rows: 2, dir: "auto", class: "mono", value: call.result, "aria-label": say("Result of {0}", call.name), placeholder: say("Paste the result") })
        : call.result
          ? make("pre", { tabIndex: 0, dir: "auto", "aria-label": say("Result of {0}", call.name) }, call.result)
          : null;
    return make("li", {}, make("code", { dir: "ltr" }, `${call.name}(${call.arguments})`), callNote(call, writing), result);
}

// The calls of an answer, with places for their results once it is complete.
/** @param {HTMLElement} part @param {Message} message @param {boolean} writing @param {Actions} actions */
export function showCalls(part, message, writing, actions) {
    const calls = message.calls ?? [];
    const open = !writing && !message.returned;
    const pasted = !calls.some(waitsForUser);
    const state = JSON.stringify([open, writing, pasted, calls]);
    if (part.dataset.state === state || (!calls.length && !part.dataset.state)) {
        return; // what the user types stays
    }
    part.dataset.state = state;
    const list = make("ul", { "aria-label": say("Calls of tools") }, ...calls.map(call => callItem(call, open, writing, actions)));
    const send = () => {
        list.querySelectorAll("textarea").forEach((area, at) => {
            calls[at].result = area.value;
        });
        actions.results();
    };
    const button = make("button", { type: "button", class: "quiet", onclick: send }, say("Send the results"));
    part.replaceChildren(...(calls.length ? [list, ...(open && pasted ? [button] : [])] : []));
}

// ---- the settings --------------------------------------------------------------------------------------------------

/** @param {string} word @param {HTMLElement} element */
const fieldOf = (word, element) => make("label", { class: "field" }, say(word), element);

/** @param {HTMLElement} item @param {string} name @returns {HTMLInputElement} */
const toolField = (item, name) => /** @type {any} */ (inside(item, ".tool-" + name));

/** @param {HTMLElement} item */
const chosenUrl = item => toolField(item, "url")?.value ?? item.dataset.url ?? "";

// Where the result of a tool comes from, among the allowed addresses. The other fields stay: the user may be typing.
/** @param {HTMLElement} item */
function showChoice(item) {
    const url = (item.dataset.url = chosenUrl(item));
    const options = allowedUrls.map(one => make("option", { value: one }, one));
    const choice = make("select", { class: "tool-url", dir: "ltr" }, make("option", { value: "" }, say("I paste it")), ...options);
    choice.value = allowedUrls.includes(url) ? url : "";
    toolField(item, "url")?.parentElement?.remove();
    if (options.length) {
        item.lastElementChild?.before(fieldOf("Where its result comes from", choice));
    }
}

/** @param {Tool} [tool] */
function toolFields(tool = cleanTool({})) {
    const item = make(
        "li",
        {},
        fieldOf("Name", make("input", { class: "tool-name", value: tool.name, spellcheck: false, dir: "ltr" })),
        fieldOf("What it does", make("input", { class: "tool-description", value: tool.description, dir: "auto" })),
        fieldOf(
            "JSON schema of its parameters",
            make("textarea", { class: "tool-schema mono", rows: 3, value: tool.schema, spellcheck: false, dir: "ltr", placeholder: '{"type": "object", "properties": {}}' }),
        ),
        make(
            "button",
            {
                type: "button",
                class: "quiet",
                onclick: () => {
                    item.remove();
                    byId("add-tool").focus();
                    byId("settings-form").dispatchEvent(new Event("input"));
                },
            },
            say("Remove the tool"),
        ),
    );
    item.dataset.url = tool.url;
    showChoice(item);
    return item;
}

/** @param {any} tools */
export const showTools = tools => byId("tool-list").replaceChildren(...cleanTools(tools).map(toolFields));

export { mcpOffInPanel, showServers };

export const toolsInPanel = () =>
    childrenIn(byId("tool-list")).map(item => ({
        name: toolField(item, "name").value.trim(),
        description: toolField(item, "description").value,
        schema: toolField(item, "schema").value,
        url: chosenUrl(item),
    }));

// The errors of all tools, one sentence each; marks their fields.
/** @param {Tool[]} tools */
export function checkTools(tools) {
    const items = childrenIn(byId("tool-list"));
    return tools
        .map((tool, at) => {
            const wrong = toolFault(tool, tools);
            const schemaWrong = Boolean(schemaOf(tool.schema).wrong);
            toolField(items[at], "schema").setAttribute("aria-invalid", String(schemaWrong));
            toolField(items[at], "name").setAttribute("aria-invalid", String(Boolean(wrong) && !schemaWrong));
            return wrong;
        })
        .filter(Boolean);
}

export function startTools() {
    byId("add-tool").addEventListener("click", () => {
        const item = toolFields();
        byId("tool-list").append(item);
        toolField(item, "name").focus();
    });
}
