// Tools of MCP servers that the server runs (`--mcp`, docs/MCP.md): which servers a conversation offers to the model, and which calls
// the user allows. A call of the model waits until the user has allowed it, once or for the conversation, or has not.

import { byId, make } from "./dom.js";
import { say } from "./language.js";
import { cleanText, listOf } from "./store.js";

/** @import { Call, Settings } from "./store.js" */

/** @typedef {{ name: string, state: string, error: string, tools: string[] }} McpServer */
/** @typedef {"once" | "always" | "never"} Decision */

const PLACE = "mcp:"; // with the server's name: where a call was sent
const REFUSAL = "The user did not allow this call."; // for the model

/** @type {McpServer[]} */
let servers = [];

// Takes the servers of /v1/tools; whether they are others than before.
/** @param {any} list */
export function takeServers(list) {
    const before = JSON.stringify(servers);
    servers = listOf(list).map(one => ({
        name: cleanText(one?.name, 200),
        state: cleanText(one?.state, 40),
        error: cleanText(one?.error, 1000),
        tools: listOf(one?.tools).map(tool => cleanText(tool?.name, 200)),
    }));
    return JSON.stringify(servers) !== before;
}

/** @param {Settings} settings @param {McpServer} server */
const isOffered = (settings, { name, state, tools }) =>
    state === "ready" && tools.length > 0 && !listOf(settings.mcpOff).includes(name);

// What a request has among its tools.
/** @param {Settings} settings */
export const mcpEntries = settings =>
    servers.filter(server => isOffered(settings, server)).map(({ name }) => ({ type: "mcp", server_label: name }));

// ---- calls ---------------------------------------------------------------------------------------------------------

// Where a call goes; "": it is none of a server.
/** @param {Call} call */
export function mcpPlace(call) {
    const server = servers.find(({ tools }) => tools.includes(call.name));
    return server ? PLACE + server.name : "";
}

/** @param {string} [place] */
export const isMcpPlace = place => Boolean(place?.startsWith(PLACE));

/** @type {WeakSet<Call>} */
const allowed = new WeakSet(); // each once

/** @param {Settings} settings @param {Call} call */
export const isAllowed = (settings, call) => allowed.has(call) || listOf(settings.mcpAllowed).includes(call.name);

// Whether the user is to say whether a call is made.
/** @param {Call} call */
export const waitsForUser = call => !call.url && mcpPlace(call) !== "";

// The settings with what the user has decided about a call.
/** @param {Settings | null} settings @param {Call} call @param {Decision} decision */
export function decide(settings, call, decision) {
    if (decision === "never") {
        Object.assign(call, { url: mcpPlace(call), note: say("Not allowed."), result: REFUSAL, failed: false });
    } else if (decision === "once") {
        allowed.add(call);
    } else {
        return { ...settings, mcpAllowed: [...listOf(settings?.mcpAllowed), call.name] };
    }
    return settings;
}

// The buttons below a call that waits.
/** @param {Call} call @param {(call: Call, decision: Decision) => void} answer */
export function decisionButtons(call, answer) {
    /** @param {Decision} decision @param {string} word */
    const button = (decision, word) =>
        make("button", { type: "button", class: decision === "once" ? "solid" : "quiet", onclick: () => answer(call, decision) }, word);
    return make(
        "div",
        { class: "row", role: "group", "aria-label": say("May the model call {0}?", call.name) },
        button("once", say("Allow")),
        button("always", say("Allow in this conversation")),
        button("never", say("Do not allow")),
    );
}

// ---- the settings --------------------------------------------------------------------------------------------------

/** @param {Settings} settings */
export function showServers(settings) {
    byId("mcp-list").replaceChildren(
        ...servers.map(({ name, state, error, tools }) => {
            const box = make("input", { type: "checkbox", checked: !listOf(settings.mcpOff).includes(name), value: name });
            const note = state === "ready" ? say("{0} tools", tools.length) : say("It does not run: {0}", error);
            return make("li", {}, make("label", {}, box, " ", name), make("p", { class: "help", dir: "auto" }, note));
        }),
    );
}

// The names of the servers that the conversation does not offer.
export const mcpOffInPanel = () =>
    [...byId("mcp-list").querySelectorAll("input")].filter(box => !box.checked).map(box => box.value);
