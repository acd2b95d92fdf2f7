// Storage in the browser: conversations and settings permanently, the API key until the tab is closed. When the browser
// refuses storage or it is full, memory is used until the page is closed. Everything that is read back or imported is
// validated.

const STORE_PREFIX = "spry.";
const STORE_TEXT_MAX = 4 << 20;

// Functions over localStorage, sessionStorage, or a map when the browser refuses them.
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
                toast(say("The browser's storage is full or not available: new messages are lost when the tab is closed. Export them, or delete old conversations."));
            }
            refused = true;
        },
        remove: key => {
            memory.delete(key);
            attempt(area => area.removeItem(STORE_PREFIX + key));
        },
        keys: () =>
            (attempt(area => Object.keys(area)) ?? [])
                .filter(key => key.startsWith(STORE_PREFIX))
                .map(key => key.slice(STORE_PREFIX.length)),
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

// A conversation is {id, title, updated, pinned, saved, settings, stored} and a tree of messages (tree.js); `saved` counts how
// often it was written, `stored` is {id, revision} of its copy on the server (stored_chats.js). A message is {id, parent,
// role, content} and, for a question, {documents}, for an answer {reasoning, finish, error, timings, model, read}, {calls, returned} (tools.js)
// and {stream, event} while it is streamed. The list of conversations is stored separately, so that saving one writes only
// that one.

const newId = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(9)), byte => byte.toString(36).padStart(2, "0")).join("");
const isId = value => typeof value === "string" && /^[a-z0-9]{1,40}$/.test(value);
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
              first_parts_ms: cleanNumbers(value.first_parts_ms),
              energy: cleanNumbers(value.energy),
              why_no_energy: cleanText(value.why_no_energy, 300),
          }
        : undefined;
}

function cleanMessage(value) {
    if (typeof value?.content !== "string" || !TREE_ROLES.includes(value.role)) {
        return null;
    }
    const message = { role: value.role, content: cleanText(value.content) };
    if (value.id) {
        Object.assign(message, { id: value.id, parent: value.parent });
    }
    if (value.role === "assistant") {
        if (/^[\w-]{16,64}$/.test(value.stream)) {
            Object.assign(message, { stream: value.stream, event: cleanText(value.event, 20) });
        }
        message.reasoning = cleanText(value.reasoning);
        message.finish = cleanText(value.finish, 40);
        message.error = cleanText(value.error, 2000);
        message.model = cleanText(value.model, 200);
        message.timings = cleanTimings(value.timings);
        if (listOf(value.calls).length) {
            Object.assign(message, { calls: cleanCalls(value.calls), returned: value.returned === true });
        }
        message.read = value.read ? cleanNumbers(value.read) : undefined;
    } else if (value.documents) {
        message.documents = cleanDocuments(value.documents);
    }
    return message;
}

// A validated conversation from any value, or null.
function cleanConversation(value) {
    if (!Array.isArray(value?.messages)) {
        return null;
    }
    return {
        id: isId(value.id) ? value.id : newId(),
        title: cleanText(value.title, 200),
        updated: finite(value.updated) || Date.now(),
        pinned: value.pinned === true,
        saved: finite(value.saved),
        settings: cleanSettings(value.settings),
        stored: cleanStored(value.stored),
        ...cleanTree(value.messages.map(cleanMessage).filter(Boolean), value.chosen),
    };
}

const cleanSettings = value => (value && typeof value === "object" && !Array.isArray(value) ? value : null);
const cleanStored = value =>
    Number.isInteger(value?.id) ? { id: value.id, revision: finite(value.revision) } : undefined;

// Pinned ones first, then the newest: [{id, title, updated, pinned, saved, stored}].
function listConversations() {
    const list = readJson("chats");
    return (Array.isArray(list) ? list : [])
        .filter(entry => isId(entry?.id))
        .map(entry => ({
            id: entry.id,
            title: cleanText(entry.title, 200),
            updated: finite(entry.updated),
            pinned: entry.pinned === true,
            saved: finite(entry.saved),
            stored: cleanStored(entry.stored),
        }))
        .sort((one, other) => other.pinned - one.pinned || other.updated - one.updated);
}

const writeList = list => lasting.write("chats", JSON.stringify(list));
const loadConversation = id => cleanConversation(readJson("chat." + id));

// When another tab has saved the conversation meanwhile, its messages are added first.
function saveConversation(conversation) {
    const list = listConversations();
    const before = list.find(entry => entry.id === conversation.id);
    if (before && before.saved !== conversation.saved) {
        const other = loadConversation(conversation.id);
        if (other) {
            mergeConversation(conversation, other, writing?.message);
        }
    }
    conversation.saved = Math.max(conversation.saved, before?.saved ?? 0) + 1;
    const { id, title, updated, pinned, saved, stored } = conversation;
    lasting.write("chat." + id, JSON.stringify(conversation));
    writeList([{ id, title, updated, pinned, saved, stored }, ...list.filter(entry => entry.id !== id)]);
}

function removeConversation(id) {
    lasting.remove("chat." + id);
    writeList(listConversations().filter(entry => entry.id !== id));
}

// ---- settings -------------------------------------------------------------------------------------------------------

const readSettings = () => Object(readJson("settings"));
const writeSettings = settings => lasting.write("settings", JSON.stringify(settings));
const changeSetting = (name, value) => writeSettings({ ...readSettings(), [name]: value });
