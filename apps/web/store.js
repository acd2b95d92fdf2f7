// Conversations: a tree of messages, its validation, and its storage. Conversations and settings are stored permanently in the
// browser, the API key until the tab is closed. When the browser refuses storage or it is full, memory is used until the page is
// closed. Everything that is read back or imported is validated.

import { toast } from "./dom.js";
import { finite, say } from "./language.js";

/**
 * @typedef {Record<string, number>} Numbers
 * @typedef {Record<string, any>} Settings validated where they are used
 * @typedef {"user" | "assistant" | "summary"} Role
 *
 * @typedef {object} StoredDocument whose text is stored once, under its hash
 * @property {string} doc the hash
 * @property {string} name
 * @property {number} size characters, or bytes of a picture
 * @property {number} [width] of a picture
 * @property {number} [height]
 *
 * @typedef {object} Tool declared in the settings
 * @property {string} name
 * @property {string} description
 * @property {string} schema of its parameters, as text
 * @property {string} url where the server calls it; "": the user pastes its results
 *
 * @typedef {object} Call of a tool, in the answer that made it
 * @property {string} id
 * @property {string} name
 * @property {string} arguments JSON
 * @property {string} result
 * @property {string} [url] where it was sent
 * @property {string} [note] what came of it
 * @property {boolean} [failed]
 *
 * @typedef {object} Timings of an answer (docs/SERVER.md)
 * @property {number} [ttft_ms]
 * @property {number} [decode_ms]
 * @property {number} [restore_ms]
 * @property {number} [prompt_tokens]
 * @property {number} [cached_tokens]
 * @property {number} [span_tokens]
 * @property {number} [picture_tokens]
 * @property {number} [repaired_tokens]
 * @property {number} [drafted_tokens]
 * @property {number} [accepted_tokens]
 * @property {number} [generated_tokens]
 * @property {number} [context_tokens]
 * @property {number} [dropped_tokens]
 * @property {Numbers} [parts_ms]
 * @property {Numbers} [first_parts_ms]
 * @property {Numbers} [energy]
 * @property {string} [why_no_energy]
 *
 * @typedef {object} Said what a message of a request is made of
 * @property {Role} role
 * @property {string} content
 * @property {StoredDocument[]} [documents] of a question
 * @property {Call[]} [calls] of an answer
 * @property {boolean} [returned] the results of the calls were sent
 *
 * @typedef {object} Answered what an answer has besides
 * @property {string} [reasoning]
 * @property {string} [finish]
 * @property {string} [error]
 * @property {Timings} [timings]
 * @property {string} [model]
 * @property {Numbers} [read] how many documents it was given with, and how many of them the server knew
 * @property {string} [stream] its id on the server, while it is streamed
 * @property {string} [event] the last one of the stream
 *
 * @typedef {{ id: string, parent: string } & Said & Answered} Message
 * @typedef {{ at: number, all: Message[] }} Versions of a message, and which one it is
 *
 * @typedef {object} Stored the copy of a conversation on the server
 * @property {number} id 0: it was deleted there
 * @property {number} revision
 *
 * @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {number} updated
 * @property {boolean} pinned
 * @property {number} saved how often it was written
 * @property {Message[]} messages
 * @property {Record<string, string | undefined>} chosen
 * @property {Settings | null} settings
 * @property {Stored} [stored]
 *
 * @typedef {object} Entry of the list of conversations
 * @property {string} id "": only on the server
 * @property {string} title
 * @property {number} updated
 * @property {boolean} pinned
 * @property {number} saved
 * @property {Stored} [stored]
 *
 * @typedef {{ abort: AbortController, message: Message, own: Conversation }} Writing the answer in progress
 */

export const STORE_PREFIX = "spry.";
const STORE_TEXT_MAX = 4 << 20;

// Functions over localStorage, sessionStorage, or a map when the browser refuses them.
/** @param {"localStorage" | "sessionStorage"} kind */
function openStore(kind) {
    /** @type {Map<string, string>} */
    const memory = new Map();
    let refused = false;
    /** @template T @param {(area: Storage) => T} work @returns {T | null} */
    const attempt = work => {
        try {
            return work(window[kind]);
        } catch {
            return null;
        }
    };
    return {
        /** @param {string} key @returns {string | null} */
        read: key => memory.get(key) ?? attempt(area => area.getItem(STORE_PREFIX + key)),
        /** @param {string} key @param {string} text */
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
        /** @param {string} key */
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

export const lasting = openStore("localStorage");
export const passing = openStore("sessionStorage");

/** @param {string} key */
export function readJson(key) {
    try {
        return JSON.parse(lasting.read(key) ?? "null");
    } catch {
        return null;
    }
}

// ---- validation of single values -----------------------------------------------------------------------------------

export const newId = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(9)), byte => byte.toString(36).padStart(2, "0")).join("");
/** @param {unknown} value @returns {value is string} */
const isId = value => typeof value === "string" && /^[a-z0-9]{1,40}$/.test(value);
/** @param {unknown} value @param {number} [most] */
export const cleanText = (value, most = STORE_TEXT_MAX) => (typeof value === "string" ? value.slice(0, most) : "");

/** @param {unknown} value @returns {any[]} */
export const listOf = value => (Array.isArray(value) ? value : []);
export const TOOLS_MAX = 64;
export const DOCUMENTS_MAX = 20; // of one message

// The members of an object that are numbers and have plain names.
/** @param {any} value */
const cleanNumbers = value =>
    Object.fromEntries(
        Object.entries(value ?? {})
            .filter(([name, number]) => /^[a-z0-9_]{1,40}$/.test(name) && Number.isFinite(number))
            .slice(0, 40),
    );

/** @param {any} value */
export function cleanTimings(value) {
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

/** @param {any} value @returns {Message | null} */
export function cleanMessage(value) {
    if (typeof value?.content !== "string" || !TREE_ROLES.includes(value.role)) {
        return null;
    }
    const message = /** @type {Message} */ ({ role: value.role, content: cleanText(value.content) });
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
/** @param {any} value @returns {Conversation | null} */
export function cleanConversation(value) {
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

/** @param {any} value */
const cleanSettings = value => (value && typeof value === "object" && !Array.isArray(value) ? value : null);
/** @param {any} value */
const cleanStored = value =>
    Number.isInteger(value?.id) ? { id: value.id, revision: finite(value.revision) } : undefined;

/** @param {any} value */
export const cleanTool = value => ({
    name: cleanText(value?.name, 200),
    description: cleanText(value?.description, 4000),
    schema: cleanText(value?.schema, 100000),
    url: cleanText(value?.url, 2000),
});
/** @param {any} value */
export const cleanTools = value => listOf(value).slice(0, TOOLS_MAX).map(cleanTool);

/** @param {any} value */
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

// A hash of two halves and the length.
/** @param {string} text */
export function hashText(text) {
    let one = 0x811c9dc5;
    let other = 0x2545f491;
    for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        one = Math.imul(one ^ unit, 0x01000193);
        other = Math.imul((other ^ (other >>> 15)) + unit, 0x5bd1e995);
    }
    return [one >>> 0, other >>> 0, text.length].map(part => part.toString(36)).join("x");
}

// A file's name as one short line, without folders, control characters and marks that change the direction of text.
/** @param {unknown} name */
export function documentName(name) {
    const line = cleanText(name, 2000)
        .replace(/^.*[\\/]/s, "")
        .replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ")
        .replace(/\s+/g, " ")
        .trim();
    const characters = Array.from(line);
    return characters.length > 80
        ? characters.slice(0, 60).join("") + "\u2026" + characters.slice(-16).join("")
        : line || say("document");
}

/** @param {any} value */
const cleanDocuments = value =>
    listOf(value)
        .filter(one => isId(one?.doc))
        .slice(0, DOCUMENTS_MAX)
        .map(one => ({
            doc: one.doc,
            name: documentName(one.name),
            size: finite(one.size),
            ...(finite(one.width) > 0 ? { width: finite(one.width), height: finite(one.height) } : {}),
        }));

// ---- conversations -------------------------------------------------------------------------------------------------

// A conversation is a tree of messages: an answer has versions beside it, an edited question begins a branch. Each message
// has an `id` and the id of its `parent` ("" at the beginning). `chosen` maps a message to the child that is shown: an id, or
// NO_CHILD where the user goes back to that message; without an entry it is the newest child.

const NO_CHILD = "-";
const TREE_ROLES = ["user", "assistant", "summary"];

/** @returns {Conversation} */
export function emptyConversation() {
    return { id: newId(), title: "", updated: 0, pinned: false, saved: 0, messages: [], chosen: {}, settings: null };
}

/** @param {Conversation} conversation @param {string} id */
export const childrenOf = (conversation, id) => conversation.messages.filter(message => message.parent === id);

// The messages that are shown, from the first to the last.
/** @param {Conversation} conversation @returns {Message[]} */
export function pathOf(conversation) {
    /** @type {Map<string, Message[]>} */
    const children = new Map();
    for (const message of conversation.messages) {
        children.set(message.parent, [...(children.get(message.parent) ?? []), message]);
    }
    const path = [];
    const seen = new Set();
    for (let id = ""; !seen.has(id);) {
        seen.add(id);
        const choice = conversation.chosen[id];
        const versions = children.get(id) ?? [];
        const next = versions.find(message => message.id === choice) ?? versions.at(-1);
        if (!next || choice === NO_CHILD) {
            break;
        }
        path.push(next);
        id = next.id;
    }
    return path;
}

// Adds a message after `parent` (null: at the beginning) and shows it.
/** @param {Conversation} conversation @param {Message | null} parent @param {Omit<Message, "id" | "parent">} fields */
export function addMessage(conversation, parent, fields) {
    const message = { id: newId(), parent: parent?.id ?? "", ...fields };
    conversation.messages.push(message);
    conversation.chosen[message.parent] = message.id;
    return message;
}

// {at, all}: the versions of a message, and which one it is.
/** @param {Conversation} conversation @param {Message} message */
export function versionsOf(conversation, message) {
    const all = childrenOf(conversation, message.parent).filter(other => other.role === message.role);
    return { at: all.indexOf(message), all };
}

/** @param {Conversation} conversation @param {Message} message */
export function chooseMessage(conversation, message) {
    conversation.chosen[message.parent] = message.id;
}

// Nothing is shown after this message; what followed stays as a branch.
/** @param {Conversation} conversation @param {Message | null} message */
export function endAt(conversation, message) {
    conversation.chosen[message?.id ?? ""] = NO_CHILD;
}

/** @param {Conversation} conversation @param {Set<string>} ids */
export function withoutMessages(conversation, ids) {
    conversation.messages = conversation.messages.filter(message => !ids.has(message.id));
}

// Deletes a question with its answers; what followed them follows what came before.
/** @param {Conversation} conversation @param {Message} message */
export function removeTurn(conversation, message) {
    const gone = new Set([message.id]);
    for (const id of message.role === "user" ? gone : []) {
        childrenOf(conversation, id)
            .filter(child => child.role === "assistant")
            .forEach(child => gone.add(child.id)); // and the answers to results of tools, which follow it
    }
    const next = pathOf(conversation).find(other => gone.has(other.parent) && !gone.has(other.id));
    for (const other of conversation.messages) {
        if (gone.has(other.parent) && !gone.has(other.id)) {
            other.parent = message.parent;
        }
    }
    withoutMessages(conversation, gone);
    delete conversation.chosen[message.parent];
    if (next) {
        conversation.chosen[message.parent] = next.id;
    }
}

// Adds the messages of another copy of the same conversation, which another tab has saved. Of an answer that one of the two
// has streamed further, that one counts; `mine` is the one that is streamed here.
/** @param {Conversation} conversation @param {Conversation} other @param {Message | undefined} mine */
function mergeConversation(conversation, other, mine) {
    const known = new Map(conversation.messages.map(message => [message.id, message]));
    for (const message of other.messages) {
        const own = known.get(message.id);
        if (!own) {
            conversation.messages.push(message);
        } else if (own !== mine && own.stream && message.content.length >= own.content.length) {
            delete own.stream;
            Object.assign(own, message);
        }
    }
}

// Messages without ids, of older versions and of files, form a single line. What cannot be reached is dropped.
/** @param {any[]} messages @param {any} chosen */
function cleanTree(messages, chosen) {
    /** @param {unknown} value */
    const plainId = value => (isId(value) ? value : "");
    let last = "";
    const all = new Map();
    for (const message of messages) {
        const id = plainId(message.id) || newId();
        const parent = message.id ? plainId(message.parent) : last;
        if ((parent === "" || all.has(parent)) && !all.has(id)) {
            all.set(id, { ...message, id, parent });
            last = id;
        }
    }
    const pairs = Object.entries(Object(chosen)).filter(
        ([parent, child]) =>
            (parent === "" || all.has(parent)) && (child === NO_CHILD || all.get(child)?.parent === parent),
    );
    return { messages: [...all.values()], chosen: Object.fromEntries(pairs) };
}

// ---- the list of conversations -------------------------------------------------------------------------------------

/**
 * What the chat view shows: the open conversation, the messages of it that are shown, the first one that has an element, and
 * the answer in progress.
 * @type {{ conversation: Conversation, path: Message[], from: number, writing: Writing | null }}
 */
export const current = { conversation: emptyConversation(), path: [], from: 0, writing: null };

// The list is stored separately, so that saving a conversation writes only that one. Pinned ones are first, then the newest.
/** @returns {Entry[]} */
export function listConversations() {
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
        .sort((one, other) => Number(other.pinned) - Number(one.pinned) || other.updated - one.updated);
}

/** @param {Entry[]} list */
const writeList = list => lasting.write("chats", JSON.stringify(list));
/** @param {string | null} id */
export const loadConversation = id => cleanConversation(readJson("chat." + id));

// When another tab has saved the conversation meanwhile, its messages are added first.
/** @param {Conversation} conversation */
export function saveConversation(conversation) {
    const list = listConversations();
    const before = list.find(entry => entry.id === conversation.id);
    if (before && before.saved !== conversation.saved) {
        const other = loadConversation(conversation.id);
        if (other) {
            mergeConversation(conversation, other, current.writing?.message);
        }
    }
    conversation.saved = Math.max(conversation.saved, before?.saved ?? 0) + 1;
    const { id, title, updated, pinned, saved, stored } = conversation;
    lasting.write("chat." + id, JSON.stringify(conversation));
    writeList([{ id, title, updated, pinned, saved, stored }, ...list.filter(entry => entry.id !== id)]);
}

/** @param {string} id */
export function removeConversation(id) {
    lasting.remove("chat." + id);
    writeList(listConversations().filter(entry => entry.id !== id));
}

// ---- settings ------------------------------------------------------------------------------------------------------

/** @returns {Settings} */
export const readSettings = () => Object(readJson("settings"));
/** @param {Settings} settings */
export const writeSettings = settings => lasting.write("settings", JSON.stringify(settings));
/** @param {string} name @param {unknown} value */
export const changeSetting = (name, value) => writeSettings({ ...readSettings(), [name]: value });

// The settings of a conversation; one without its own has those for new conversations.
/** @param {Conversation} [own] */
export const conversationSettings = (own = current.conversation) => own.settings ?? readSettings();
/** @param {Conversation} [own] */
export const systemMessage = own => cleanText(conversationSettings(own).system).trim();
