// The list of conversations: open, pin, rename, delete, search, export, import; on a narrow page it slides over the content. Their
// copies on the server, and their files.

import { changeConversation, chatHooks, forgetConversation, openConversation, showConversation } from "./chat.js";
import { documentPictures, documentTexts, plainContent, takeDocumentTexts } from "./documents.js";
import { byId, download, iconButton, inside, make, showHash, toast } from "./dom.js";
import { finite, firstLine, inDay, say, several } from "./language.js";
import { loadPictures } from "./pictures.js";
import { callServer, parseAnswer, serverFeatures } from "./server.js";
import {
    addMessage, changeSetting, childrenOf, chooseMessage, cleanConversation, cleanMessage, cleanText,
    conversationSettings, current, emptyConversation, listConversations, listOf, loadConversation, pathOf,
    readSettings, saveConversation, systemMessage,
} from "./store.js";

/** @import { Conversation, Entry, Message, Said } from "./store.js" */

const sideIsOver = () => matchMedia("(max-width: 859px)").matches;

/** @param {boolean} open */
export function openSide(open) {
    const leaving = !open && byId("side").contains(document.activeElement);
    byId("side").classList.toggle("open", open);
    byId("shade").hidden = !open;
    hideSideFromKeys();
    if (sideIsOver() && (open || leaving)) {
        byId(open ? "new-chat" : "menu").focus();
    }
}

// A hidden list must not take the keyboard focus.
function hideSideFromKeys() {
    const over = sideIsOver();
    const shown = over ? byId("side").classList.contains("open") : !readSettings().folded;
    byId("side").inert = over && !shown;
    byId("side").classList.toggle("folded", !over && !shown);
    byId("menu").setAttribute("aria-expanded", String(shown));
}

// Shows or hides the list: on a wide page it is folded away until it is shown again, also on later visits.
export function toggleSide() {
    if (sideIsOver()) {
        openSide(!byId("side").classList.contains("open"));
    } else {
        changeSetting("folded", !readSettings().folded);
        hideSideFromKeys();
    }
}

// ---- one entry -----------------------------------------------------------------------------------------------------

/** @param {() => unknown} work */
const attempt = work => Promise.resolve(work()).catch(error => toast(error.message));

/** @param {Entry} entry @param {HTMLElement} item */
function renameItem(entry, item) {
    const input = make("input", {
        class: "rename",
        value: entry.title,
        "aria-label": say("New name"),
        maxLength: 200,
        dir: "auto",
    });
    let over = false;
    /** @param {boolean} keep */
    const finish = keep => {
        if (over) {
            return;
        }
        over = true;
        const title = input.value.trim();
        if (keep && title !== "" && title !== entry.title) {
            if (entry.id) {
                changeConversation(entry.id, changed => {
                    changed.title = title;
                });
            }
            attempt(() => renameStored(entry, title));
        }
        input.remove();
        showConversations();
        inside(byId("chats"), `[data-key="${entryKey(entry)}"] button`)?.focus();
    };
    input.addEventListener("keydown", event => {
        if (event.key === "Enter" || event.key === "Escape") {
            event.preventDefault();
            event.stopPropagation();
            finish(event.key === "Enter");
        }
    });
    input.addEventListener("blur", () => finish(true));
    item.replaceChildren(input);
    input.select();
}

/** @param {Entry} entry */
async function deleteItem(entry) {
    const id = entry.id || (await adoptStored(entry));
    const kept = loadConversation(id);
    forgetConversation(id);
    showConversations();
    attempt(() => deleteStored(entry.stored?.id));
    toast(say("Deleted."), say("Undo"), () => {
        if (kept) {
            kept.stored = undefined;
            saveConversation(kept);
            storeConversation(kept);
        }
        showConversations();
    });
}

/** @param {Entry} entry */
async function pinItem(entry) {
    const id = entry.id || (await adoptStored(entry));
    changeConversation(id, changed => {
        changed.pinned = !entry.pinned;
    });
    showConversations();
    inside(byId("chats"), `[data-key="${id}"] [aria-pressed]`)?.focus();
}

/** @param {Entry} entry */
async function openItem(entry) {
    const id = entry.id || (await adoptStored(entry));
    openConversation(id);
    openSide(false);
    await catchUp(id);
}

/** @param {Entry} entry */
const entryKey = entry => entry.id || "stored-" + entry.stored?.id;

/** @param {Entry & { found?: Found | null }} entry */
function conversationItem(entry) {
    const item = make("li", { "data-key": entryKey(entry) });
    const name = entry.title || say("Without a name");
    const open = make(
        "button",
        { class: "open-chat", title: name, onclick: () => attempt(() => openItem(entry)) },
        make("span", { dir: "auto" }, name),
        entry.found ? foundWords(entry.found) : make("small", {}, inDay(entry.updated)),
    );
    if (entry.id && entry.id === current.conversation.id) {
        item.classList.add("current");
        open.setAttribute("aria-current", "true");
    }
    const pin = iconButton("pin", entry.pinned ? say("Unpin") : say("Pin"), () => attempt(() => pinItem(entry)));
    pin.setAttribute("aria-pressed", String(entry.pinned));
    item.append(
        open,
        pin,
        iconButton("edit", say("Rename"), () => renameItem(entry, item)),
        iconButton("delete", say("Delete"), () => attempt(() => deleteItem(entry))),
    );
    return item;
}

// ---- the list and the search ---------------------------------------------------------------------------------------

/** @typedef {{ before: string, match: string, after: string }} Found the words around a place that has the text */

const search = { text: "", stored: new Set(), timer: 0 };

// The words around the first place in a conversation that has the text: {before, match, after}; null: none has.
/** @param {Conversation | null} own @param {string} text */
function findIn(own, text) {
    for (const { content } of own?.messages ?? []) {
        const at = content.toLowerCase().indexOf(text);
        if (at >= 0) {
            return {
                before: (at > 30 ? "\u2026" : "") + content.slice(Math.max(0, at - 30), at),
                match: content.slice(at, at + text.length),
                after: content.slice(at + text.length, at + text.length + 60),
            };
        }
    }
    return null;
}

/** @param {Found} options */
function foundWords({ before, match, after }) {
    return make("small", { class: "found", dir: "auto" }, before, make("mark", {}, match), after);
}

// The entries that have the text: here in names and messages, on the server by its own search.
/** @param {Entry[]} entries */
function matching(entries) {
    const text = search.text.toLowerCase();
    return entries
        .map(entry => ({ ...entry, found: entry.id ? findIn(loadConversation(entry.id), text) : null }))
        .filter(
            entry =>
                entry.found || entry.title.toLowerCase().includes(text) || search.stored.has(entry.stored?.id),
        );
}

function showConversations() {
    if (byId("chats").querySelector(".rename")) {
        return; // the user is typing a name; the list is drawn when that is done
    }
    const local = listConversations();
    const all = [...local, ...storedEntries(local)].sort(
        (one, other) => Number(other.pinned) - Number(one.pinned) || other.updated - one.updated,
    );
    const list = search.text ? matching(all) : all;
    byId("chats").replaceChildren(...list.map(conversationItem));
    byId("chats-none").hidden = !search.text || list.length > 0;
    byId("export").disabled = local.length === 0;
}

function onSearch() {
    search.text = byId("search").value.trim();
    search.stored = new Set();
    showConversations();
    clearTimeout(search.timer);
    search.timer = setTimeout(async () => {
        const text = search.text;
        const stored = text ? await searchStored(text).catch(() => new Set()) : new Set();
        if (text === search.text && stored.size) {
            search.stored = stored;
            showConversations();
        }
    }, 150);
}

export function openSearch() {
    showHash("#chat");
    if (sideIsOver()) {
        openSide(true);
    } else if (readSettings().folded) {
        toggleSide();
    }
    byId("search").focus();
    byId("search").select();
}

// ---- files ---------------------------------------------------------------------------------------------------------

async function importFile() {
    const picker = byId("import-file");
    const file = picker.files?.[0];
    picker.value = "";
    if (!file) {
        return;
    }
    try {
        const count = importConversations(await file.text(), file.name);
        toast(
            count
                ? several(count, "{0} conversation imported.", "{0} conversations imported.")
                : say("Everything in the file is here already."),
        );
    } catch (error) {
        toast(error.message);
    }
    showConversations();
}

function startExport() {
    const dialog = byId("export-choice");
    /** @param {"export-markdown" | "export-json" | "export-all"} id @param {() => [string, string] | Promise<[string, string]>} work */
    const save = (id, work) =>
        byId(id).addEventListener("click", async () => {
            dialog.close();
            download(...(await work()));
        });
    byId("export").addEventListener("click", () => {
        const empty = current.conversation.messages.length === 0;
        byId("export-markdown").disabled = byId("export-json").disabled = empty;
        dialog.showModal();
    });
    byId("close-export").addEventListener("click", () => dialog.close());
    save("export-markdown", () => [fileName(current.conversation, ".md"), markdownTranscript(current.conversation)]);
    save("export-json", () => [fileName(current.conversation, ".json"), jsonTranscript(current.conversation)]);
    save("export-all", async () => ["spry-conversations.json", await exportConversations()]);
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", importFile);
}

export function startConversations() {
    chatHooks.listChanged = showConversations;
    chatHooks.answered = storeConversation;
    byId("menu").addEventListener("click", toggleSide);
    byId("close-side").addEventListener("click", () => openSide(false));
    byId("shade").addEventListener("click", () => openSide(false));
    byId("side").addEventListener("keydown", event => {
        if (event.key === "Escape") {
            openSide(false);
        }
    });
    byId("new-chat").addEventListener("click", () => {
        openConversation(null);
        openSide(false);
        byId("input").focus();
    });
    byId("search").addEventListener("input", onSearch);
    document.addEventListener("visibilitychange", () => {
        if (document.visibilityState === "visible" && storedChats.allowed) {
            refreshStored().then(() => catchUp(current.conversation.id)).catch(() => {});
        }
    });
    addEventListener("resize", hideSideFromKeys);
    startExport();
    hideSideFromKeys();
    showConversations();
}

// ---- conversations on the server -----------------------------------------------------------------------------------

// Conversations on the server (docs/CHATS.md, "In the server"): the same file that the terminal uses, so that a chat begun
// there goes on here and the other way round. The server has the messages that are shown; branches, versions and figures
// stay in this browser. A server without --allow-chats stores nothing, and nothing is said about it.

/** @type {{ allowed: boolean | null, list: any[] }} */
const storedChats = { allowed: null, list: [] }; // allowed is null until the server has said it

/** @param {number} id */
const storedPath = id => "/api/chats/" + id;
/** @param {string} path @param {any} [body] @param {string | undefined} [method] */
const callStored = async (path, body = null, method = undefined) =>
    parseAnswer(await (await callServer(path, body, null, method ? { method } : {})).text());

// Reads the list; called when the server is reached and when the page becomes visible.
export async function refreshStored() {
    try {
        storedChats.allowed = (await serverFeatures()).chats;
        const answer = storedChats.allowed ? await callStored("/api/chats?limit=1000") : {};
        storedChats.list = listOf(answer.chats).filter(chat => Number.isInteger(chat?.id));
    } catch (error) {
        storedChats.allowed = error.status === 403 ? false : storedChats.allowed;
    }
    showConversations();
}

// Numbers of the stored chats that have this text.
/** @param {string} text */
async function searchStored(text) {
    if (!storedChats.allowed) {
        return new Set();
    }
    const answer = await callStored("/api/chats?limit=1000&search=" + encodeURIComponent(text));
    return new Set(listOf(answer.chats).map(chat => chat?.id));
}

// Stored chats that this browser does not have, as entries of the list.
/** @param {Entry[]} local */
function storedEntries(local) {
    const known = new Set(local.map(entry => entry.stored?.id));
    return storedChats.list
        .filter(chat => !known.has(chat.id))
        .map(chat => ({
            id: "",
            title: cleanText(chat.title, 200),
            updated: finite(chat.updated),
            pinned: false,
            saved: 0,
            stored: { id: chat.id, revision: finite(chat.revision) },
        }));
}

// ---- from the server -----------------------------------------------------------------------------------------------

/** @param {Conversation} target @param {any} chat */
function takeStored(target, chat) {
    const messages = listOf(chat.messages).map(cleanMessage).filter(message => message !== null);
    const [first] = listOf(chat.messages);
    graftMessages(target, messages);
    target.title = cleanText(chat.title, 200);
    target.updated = finite(chat.updated) || Date.now();
    target.stored = { id: chat.id, revision: finite(chat.revision) };
    if (first?.role === "system") {
        target.settings = { ...conversationSettings(target), system: cleanText(first.content) };
    }
    saveConversation(target);
}

// Brings a stored chat into this browser and returns its id here.
/** @param {Entry} entry */
async function adoptStored(entry) {
    const adopted = emptyConversation();
    takeStored(adopted, await callStored(storedPath(entry.stored?.id ?? 0)));
    return adopted.id;
}

// What the terminal, or another browser, has added since.
/** @param {string} id */
async function catchUp(id) {
    const own = loadConversation(id);
    const chat = storedChats.list.find(one => one.id === own?.stored?.id);
    if (!own?.stored || !chat || chat.revision <= own.stored.revision) {
        return;
    }
    takeStored(own, await callStored(storedPath(chat.id)));
    if (current.conversation.id === id && !current.writing) {
        current.conversation = own;
        showConversation();
    }
}

// ---- to the server -------------------------------------------------------------------------------------------------

/** @param {Conversation} own */
function storedBody(own) {
    const system = systemMessage(own);
    const messages = pathOf(own)
        .filter(message => message.role !== "summary")
        .map(message => ({ role: message.role, content: plainContent(message) }))
        .filter(message => message.content !== "");
    return {
        title: own.title,
        messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    };
}

/** @param {Conversation} own */
async function createStored(own) {
    const model = pathOf(own).findLast(message => message.model)?.model || byId("model").value;
    return callStored("/api/chats", { ...storedBody(own), model });
}

// One that was changed elsewhere goes on as a new chat; one that was deleted elsewhere is not stored any more (id 0).
/** @param {Conversation} own */
async function writeStored(own) {
    if (!own.stored) {
        return createStored(own);
    }
    try {
        return await callStored(storedPath(own.stored.id), { ...storedBody(own), revision: own.stored.revision });
    } catch (error) {
        if (error.status === 409) {
            toast(say("This conversation was changed elsewhere; it goes on as a copy."));
            return createStored(own);
        }
        if (error.status === 404) {
            return { id: 0 };
        }
        throw error;
    }
}

/** @param {Conversation} own */
async function storeConversation(own) {
    if (storedChats.allowed === false || own.stored?.id === 0 || pathOf(own).length === 0) {
        return;
    }
    try {
        const chat = await writeStored(own);
        own.stored = { id: chat.id, revision: finite(chat.revision) };
        saveConversation(own);
        await refreshStored();
    } catch (error) {
        if (![0, 401, 403].includes(error.status)) {
            toast(error.message); // the banner has the others
        }
    }
}

/** @param {Entry} entry @param {string} title */
async function renameStored(entry, title) {
    if (storedChats.allowed && entry.stored?.id) {
        const chat = await callStored(storedPath(entry.stored?.id ?? 0), { title });
        if (entry.id) {
            changeConversation(entry.id, changed => {
                changed.stored = { id: chat.id, revision: finite(chat.revision) };
            });
        }
        await refreshStored();
    }
}

/** @param {number | undefined} id */
async function deleteStored(id) {
    if (storedChats.allowed && id) {
        await callStored(storedPath(id), null, "DELETE");
        await refreshStored();
    }
}

// Shows these messages [{role, content}], and adds the ones that the tree does not have.
/** @param {Conversation} conversation @param {Said[]} messages */
function graftMessages(conversation, messages) {
    /** @type {Message | null} */
    let parent = null;
    for (const { role, content } of messages) {
        const before = /** @type {Message | null} */ (parent);
        const known = childrenOf(conversation, before?.id ?? "").find(
            other => other.role === role && plainContent(other) === content,
        );
        parent = known ?? addMessage(conversation, parent, { role, content });
        chooseMessage(conversation, parent);
    }
    const last = /** @type {Message | null} */ (parent);
    conversation.chosen[last?.id ?? ""] = undefined;
}

// ---- conversations as files ----------------------------------------------------------------------------------------

// Conversations as files. JSON of one conversation is what `spry chats export` writes and /load reads; Markdown has the same
// headings as there. A file of all conversations has their branches, too. Everything that is read is validated.

/** @type {Record<string, string>} */
const HEADINGS = { System: "system", User: "user", Assistant: "assistant" };
const HEADING = /^## (System|User|Assistant)$/;

// ---- writing -------------------------------------------------------------------------------------------------------

/** @param {Conversation} own */
const shownTurns = own => pathOf(own).filter(message => message.role !== "summary");

/** @param {Conversation} own */
function markdownTranscript(own) {
    const sections = [
        ...(systemMessage(own) ? [["System", systemMessage(own)]] : []),
        ...shownTurns(own).map(message => [message.role === "user" ? "User" : "Assistant", plainContent(message)]),
    ];
    const body = sections.map(([heading, text]) => {
        const lines = text.split("\n").map(line => (HEADING.test(line.replace(/^\\+/, "")) ? "\\" + line : line));
        return `\n## ${heading}\n\n${lines.join("\n")}\n`;
    });
    return `# ${own.title.replace(/\s+/g, " ")}\n${body.join("")}`;
}

/** @param {Conversation} own */
function jsonTranscript(own) {
    const model = shownTurns(own).findLast(message => message.model)?.model ?? "";
    return JSON.stringify(
        {
            title: own.title,
            model,
            system: systemMessage(own) || null,
            messages: shownTurns(own).map(message => ({ role: message.role, content: plainContent(message) })),
        },
        null,
        2,
    );
}

async function exportConversations() {
    const conversations = listConversations()
        .map(entry => loadConversation(entry.id))
        .filter(own => own !== null);
    await loadPictures(conversations.flatMap(own => own.messages));
    const documents = documentTexts(conversations);
    const pictures = documentPictures(conversations);
    return JSON.stringify({ format: "spry-conversations", version: 2, conversations, documents, pictures }, null, 1);
}

// A name for the file of a conversation.
/** @param {Conversation} own @param {string} ending */
const fileName = (own, ending) =>
    (own.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation") + ending;

// ---- reading -------------------------------------------------------------------------------------------------------

// {title, system, messages} of a transcript in Markdown; without sections there are no messages.
/** @param {string} text */
function readMarkdown(text) {
    const lines = text.replace(/\r\n?/g, "\n").split("\n");
    /** @type {{ role: string, lines: string[] }[]} */
    const sections = [];
    for (const line of lines) {
        const heading = HEADING.exec(line);
        if (heading) {
            sections.push({ role: HEADINGS[heading[1]], lines: [] });
        } else {
            sections.at(-1)?.lines.push(line.replace(/^\\(?=\\*## (System|User|Assistant)$)/, ""));
        }
    }
    const turns = sections.map(({ role, lines: own }) => ({ role, content: own.join("\n").trim() }));
    return {
        title: /^# (.*)$/.exec(lines[0])?.[1] ?? "",
        system: turns.find(turn => turn.role === "system")?.content ?? "",
        messages: turns.filter(turn => turn.role !== "system"),
    };
}

// A conversation of {title, system, messages}, or null.
/** @param {any} value */
function fromTranscript(value) {
    const read = cleanConversation({ title: value?.title, messages: value?.messages });
    if (!read?.messages.length) {
        return null;
    }
    read.title ||= firstLine(read.messages[0].content, 60);
    if (typeof value.system === "string" && value.system) {
        read.settings = { ...readSettings(), system: cleanText(value.system) };
    }
    return read;
}

// The conversations in a file; throws an error with a message when there are none.
/** @param {string} text @param {string} name */
function readConversations(text, name) {
    let file = null;
    try {
        file = JSON.parse(text);
    } catch {
        if (/\.json$/i.test(name)) {
            throw new Error(say("The file is not JSON."));
        }
    }
    const read =
        file?.format === "spry-conversations" && Array.isArray(file.conversations)
            ? listOf(file.conversations).map(cleanConversation).filter(own => own !== null)
            : [fromTranscript(file ?? readMarkdown(text))].filter(own => own !== null);
    takeDocumentTexts(file?.documents, file?.pictures);
    if (read.length === 0) {
        throw new Error(say("The file has no conversations: no turns in JSON, and no headings \u201c## User\u201d in Markdown."));
    }
    return read;
}

// Imports the conversations of a file and returns how many; one that exists is replaced only by a newer one.
/** @param {string} text @param {string} name */
function importConversations(text, name) {
    const known = new Map(listConversations().map(entry => [entry.id, entry.updated]));
    const added = readConversations(text, name).filter(one => !(finite(known.get(one.id)) >= one.updated));
    added.forEach(one => saveConversation({ ...one, stored: undefined }));
    return added.length;
}
