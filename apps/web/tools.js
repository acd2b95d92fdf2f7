// Tools of a conversation: the settings declare them, the model calls them, and the user pastes what they return, or the server
// asks a tool of its machine that it allows (`--allow-tool`). The calls lie in the answer that made them: {id, name, arguments,
// result} and, where one was sent to a tool, {url, note, failed}; `returned` says that the results were sent.

const TOOLS_MAX = 64;
const ROUNDS_MAX = 20; // answers to results that are sent without the user
const TOOL_NAME = /^[A-Za-z0-9_-]{1,64}$/;

const cleanTool = value => ({
    name: cleanText(value?.name, 200),
    description: cleanText(value?.description, 4000),
    schema: cleanText(value?.schema, 100000),
    url: cleanText(value?.url, 2000),
});
const cleanTools = value => listOf(value).slice(0, TOOLS_MAX).map(cleanTool);

const cleanCalls = value =>
    listOf(value)
        .slice(0, TOOLS_MAX)
        .map(call => ({
            id: cleanText(call?.id, 200),
            name: cleanText(call?.name, 200),
            arguments: cleanText(call?.arguments),
            result: cleanText(call?.result),
            url: cleanText(call?.url, 2000),
            note: cleanText(call?.note, 2000),
            failed: call?.failed === true,
        }));

// ---- the request ----------------------------------------------------------------------------------------------------

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

const requestTools = settings => {
    const tools = cleanTools(settings.tools);
    return tools
        .filter(tool => toolFault(tool, tools) === "")
        .map(({ name, description, schema }) => ({
            type: "function",
            function: { name, description, parameters: schemaOf(schema).value ?? { type: "object", properties: {} } },
        }));
};

// An answer with calls and their results, as messages of a request. Calls without results are not sent.
function callTurns(message) {
    const calls = message.calls.map(call => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
    }));
    const results = message.calls.map(call => ({ role: "tool", tool_call_id: call.id, content: call.result }));
    return [{ role: "assistant", content: message.content, tool_calls: calls }, ...results];
}

// Takes the part of a call that a chunk of the stream has.
function takeCalls(message, deltas) {
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

// ---- tools of the server's machine ----------------------------------------------------------------------------------

let allowedUrls = []; // those that the server calls

async function learnTools() {
    const answer = await callServer("/v1/tools").then(response => response.text(), () => "{}");
    const urls = listOf(parseAnswer(answer).urls).map(url => cleanText(url, 2000));
    if (String(urls) !== String(allowedUrls)) {
        allowedUrls = urls;
        [...byId("tool-list").children].forEach(showChoice);
    }
}

async function callTool(call, signal) {
    try {
        const body = { url: call.url, arguments: JSON.parse(call.arguments || "{}") };
        call.result = cleanText(parseAnswer(await (await callServer("/v1/tools/call", body, signal)).text()).result);
        call.note = say("From {0}", call.url);
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

// Sends the calls of a complete answer to their tools, one after the other. When all have results, these are sent on; else
// the user pastes the others.
async function callTools(own, message) {
    const urls = new Map(cleanTools(conversationSettings(own).tools).map(tool => [tool.name, tool.url]));
    const calls = listOf(message.calls).filter(call => allowedUrls.includes(urls.get(call.name)));
    if (message.role !== "assistant" || message.finish !== "tool_calls" || !calls.length) {
        return;
    }
    const mine = (writing = { abort: new AbortController(), message, own });
    const draw = busy => itemOf(message) && showAnswer(itemOf(message), message, busy);
    showWriting(true);
    calls.forEach(call => Object.assign(call, { url: urls.get(call.name), note: "", failed: false }));
    for (const call of calls) {
        draw(true);
        await callTool(call, mine.abort.signal);
    }
    const stopped = writing !== mine;
    endWriting(mine);
    if (listConversations().some(entry => entry.id === own.id)) {
        saveConversation(own);
    }
    if (own !== conversation) {
        return;
    }
    draw(false);
    const rounds = shown.path.length - 1 - shown.path.findLastIndex(one => one.role === "user");
    if (!stopped && rounds <= ROUNDS_MAX && message.calls.every(call => call.url && !call.failed)) {
        sendResults(message);
    } else {
        speak(say("Results of tools are missing."));
    }
}

// ---- calls in an answer ---------------------------------------------------------------------------------------------

// Where a call was sent, and what came of it.
function callNote(call, writing) {
    const text = call.note || (writing && call.url ? say("Calling {0}\u2026", call.url) : "");
    return text ? make("p", { class: "note" + (call.failed ? " error" : ""), dir: "auto" }, text) : null;
}

function callItem(call, open, writing) {
    const result = open
        ? make("textarea", { rows: 2, dir: "auto", class: "mono", value: call.result, "aria-label": say("Result of {0}", call.name), placeholder: say("Paste the result") })
        : call.result
          ? make("pre", { tabIndex: 0, dir: "auto", "aria-label": say("Result of {0}", call.name) }, call.result)
          : null;
    return make("li", {}, make("code", { dir: "ltr" }, `${call.name}(${call.arguments})`), callNote(call, writing), result);
}

// The calls of an answer, with places for their results once it is complete.
function showCalls(part, message, writing, actions) {
    const calls = message.calls ?? [];
    const open = !writing && !message.returned;
    const state = JSON.stringify([open, writing, calls]);
    if (part.dataset.state === state || (!calls.length && !part.dataset.state)) {
        return; // what the user types stays
    }
    part.dataset.state = state;
    const list = make("ul", { "aria-label": say("Calls of tools") }, ...calls.map(call => callItem(call, open, writing)));
    const send = () => {
        list.querySelectorAll("textarea").forEach((area, at) => {
            calls[at].result = area.value;
        });
        actions.results();
    };
    const button = make("button", { type: "button", class: "quiet", onclick: send }, say("Send the results"));
    part.replaceChildren(...(calls.length ? [list, ...(open ? [button] : [])] : []));
}

// ---- the settings ---------------------------------------------------------------------------------------------------

const fieldOf = (word, element) => make("label", { class: "field" }, say(word), element);

const chosenUrl = item => item.querySelector(".tool-url")?.value ?? item.dataset.url;

// Where the result of a tool comes from, among the allowed addresses. The other fields stay: the user may be typing.
function showChoice(item) {
    const url = (item.dataset.url = chosenUrl(item));
    const options = allowedUrls.map(one => make("option", { value: one }, one));
    const choice = make("select", { class: "tool-url", dir: "ltr" }, make("option", { value: "" }, say("I paste it")), ...options);
    choice.value = allowedUrls.includes(url) ? url : "";
    item.querySelector(".tool-url")?.parentElement.remove();
    if (options.length) {
        item.lastElementChild.before(fieldOf("Where its result comes from", choice));
    }
}

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
                    checkSettings();
                },
            },
            say("Remove the tool"),
        ),
    );
    item.dataset.url = tool.url;
    showChoice(item);
    return item;
}

const showTools = tools => byId("tool-list").replaceChildren(...cleanTools(tools).map(toolFields));

const toolsInPanel = () =>
    [...byId("tool-list").children].map(item => ({
        name: item.querySelector(".tool-name").value.trim(),
        description: item.querySelector(".tool-description").value,
        schema: item.querySelector(".tool-schema").value,
        url: chosenUrl(item),
    }));

// The errors of all tools, one sentence each; marks their fields.
function checkTools(tools) {
    const items = byId("tool-list").children;
    return tools
        .map((tool, at) => {
            const wrong = toolFault(tool, tools);
            const schemaWrong = Boolean(schemaOf(tool.schema).wrong);
            items[at].querySelector(".tool-schema").setAttribute("aria-invalid", String(schemaWrong));
            items[at].querySelector(".tool-name").setAttribute("aria-invalid", String(Boolean(wrong) && !schemaWrong));
            return wrong;
        })
        .filter(Boolean);
}

function startTools() {
    byId("add-tool").addEventListener("click", () => {
        const item = toolFields();
        byId("tool-list").append(item);
        item.querySelector("input").focus();
    });
}
