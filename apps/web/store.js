// Storage in the browser: conversations and settings permanently, the API key until the tab is closed. When the browser
// refuses storage or it is full, memory is used until the page is closed. Everything that is read back or imported is
// validated.

const STORE_PREFIX = "spry.";
const STORE_TEXT_MAX = 4 << 20;

// Four functions over localStorage, sessionStorage, or a map when the browser refuses them.
function openStore(kind) {
    const memory = new Map();
    let refused = false;
    const attempt = work => {
        try {
            return work(window[kind]);
        } catch {
            return null;
        }
    };
    return {
        read: key => memory.get(key) ?? attempt(area => area.getItem(STORE_PREFIX + key)),
        write: (key, text) => {
            if (attempt(area => (area.setItem(STORE_PREFIX + key, text), true))) {
                memory.delete(key);
                return;
            }
            memory.set(key, text);
            if (!refused) {
                toast("The browser's storage is full or not available: new messages are lost when the tab is closed.");
            }
            refused = true;
        },
        remove: key => {
            memory.delete(key);
            attempt(area => area.removeItem(STORE_PREFIX + key));
        },
    };
}

const lasting = openStore("localStorage");
const passing = openStore("sessionStorage");

function readJson(key) {
    try {
        return JSON.parse(lasting.read(key));
    } catch {
        return null;
    }
}

// ---- conversations --------------------------------------------------------------------------------------------------

// A conversation is {id, title, updated, messages}; a message is {role, content} and, for an answer, {reasoning, finish,
// error, timings, model}. The list of conversations is stored separately, so that saving one writes only that one.

const newId = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(9)), byte => byte.toString(36).padStart(2, "0")).join("");
const cleanText = (value, most = STORE_TEXT_MAX) => (typeof value === "string" ? value.slice(0, most) : "");

// The members of an object that are numbers and have plain names.
const cleanNumbers = value =>
    Object.fromEntries(
        Object.entries(value ?? {})
            .filter(([name, number]) => /^[a-z0-9_]{1,40}$/.test(name) && Number.isFinite(number))
            .slice(0, 40),
    );

function cleanTimings(value) {
    const timings = cleanNumbers(value);
    return Object.keys(timings).length
        ? {
              ...timings,
              parts_ms: cleanNumbers(value.parts_ms),
              energy: cleanNumbers(value.energy),
              why_no_energy: cleanText(value.why_no_energy, 300),
          }
        : undefined;
}

function cleanMessage(value) {
    if (typeof value?.content !== "string" || !["user", "assistant"].includes(value.role)) {
        return null;
    }
    const message = { role: value.role, content: cleanText(value.content) };
    if (value.role === "assistant") {
        message.reasoning = cleanText(value.reasoning);
        message.finish = cleanText(value.finish, 40);
        message.error = cleanText(value.error, 2000);
        message.model = cleanText(value.model, 200);
        message.timings = cleanTimings(value.timings);
    }
    return message;
}

// A validated conversation from any value, or null.
function cleanConversation(value) {
    if (!Array.isArray(value?.messages)) {
        return null;
    }
    const messages = value.messages.map(cleanMessage).filter(message => message);
    return {
        id: /^[a-z0-9]{1,40}$/.test(value.id) ? value.id : newId(),
        title: cleanText(value.title, 200),
        updated: finite(value.updated) || Date.now(),
        messages,
    };
}

// The newest first: [{id, title, updated}].
function listConversations() {
    const list = readJson("chats");
    return (Array.isArray(list) ? list : [])
        .filter(entry => /^[a-z0-9]{1,40}$/.test(entry?.id))
        .map(entry => ({ id: entry.id, title: cleanText(entry.title, 200), updated: finite(entry.updated) }))
        .sort((one, other) => other.updated - one.updated);
}

const writeList = list => lasting.write("chats", JSON.stringify(list));
const loadConversation = id => cleanConversation(readJson("chat." + id));

function saveConversation(conversation) {
    const { id, title, updated } = conversation;
    lasting.write("chat." + id, JSON.stringify(conversation));
    writeList([{ id, title, updated }, ...listConversations().filter(entry => entry.id !== id)]);
}

function removeConversation(id) {
    lasting.remove("chat." + id);
    writeList(listConversations().filter(entry => entry.id !== id));
}

function exportConversations() {
    const conversations = listConversations()
        .map(entry => loadConversation(entry.id))
        .filter(one => one);
    return JSON.stringify({ format: "spry-conversations", version: 1, conversations }, null, 1);
}

// Imports the conversations of a file and returns how many; one that exists is replaced only by a newer one. Throws an
// error with a message when the file has another format.
function importConversations(text) {
    let file = null;
    try {
        file = JSON.parse(text);
    } catch {
        throw new Error("The file is not JSON.");
    }
    if (file?.format !== "spry-conversations" || !Array.isArray(file.conversations)) {
        throw new Error("The file has no conversations exported by this page.");
    }
    const known = new Map(listConversations().map(entry => [entry.id, entry.updated]));
    const added = file.conversations.map(cleanConversation).filter(one => one && !(known.get(one.id) >= one.updated));
    added.forEach(saveConversation);
    return added.length;
}

// ---- settings -------------------------------------------------------------------------------------------------------

const readSettings = () => Object(readJson("settings"));
const writeSettings = settings => lasting.write("settings", JSON.stringify(settings));
const changeSetting = (name, value) => writeSettings({ ...readSettings(), [name]: value });
