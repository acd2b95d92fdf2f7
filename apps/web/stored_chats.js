// Conversations on the server (docs/CHATS.md, "In the server"): the same file that the terminal uses, so that a chat begun
// there goes on here and the other way round. The server has the messages that are shown; branches, versions and figures
// stay in this browser. A server without --allow-chats stores nothing, and nothing is said about it.

const storedChats = { allowed: null, list: [] }; // allowed is null until the server has said it

const storedPath = id => "/api/chats/" + id;
const callStored = async (path, body = null, method = undefined) =>
    parseAnswer(await (await callServer(path, body, null, method ? { method } : {})).text());

// Reads the list; called when the server is reached and when the page becomes visible.
async function refreshStored() {
    try {
        const answer = await callStored("/api/chats?limit=1000");
        storedChats.list = listOf(answer.chats).filter(chat => Number.isInteger(chat?.id));
        storedChats.allowed = true;
    } catch (error) {
        storedChats.allowed = error.status === 403 ? false : storedChats.allowed;
    }
    showConversations();
}

// Numbers of the stored chats that have this text.
async function searchStored(text) {
    if (!storedChats.allowed) {
        return new Set();
    }
    const answer = await callStored("/api/chats?limit=1000&search=" + encodeURIComponent(text));
    return new Set(listOf(answer.chats).map(chat => chat?.id));
}

// Stored chats that this browser does not have, as entries of the list.
function storedEntries(local) {
    const known = new Set(local.map(entry => entry.stored?.id));
    return storedChats.list
        .filter(chat => !known.has(chat.id))
        .map(chat => ({
            id: "",
            title: cleanText(chat.title, 200),
            updated: finite(chat.updated),
            pinned: false,
            stored: { id: chat.id, revision: finite(chat.revision) },
        }));
}

// ---- from the server ------------------------------------------------------------------------------------------------

function takeStored(target, chat) {
    const messages = listOf(chat.messages).map(cleanMessage).filter(Boolean);
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
async function adoptStored(entry) {
    const adopted = emptyConversation();
    takeStored(adopted, await callStored(storedPath(entry.stored.id)));
    return adopted.id;
}

// What the terminal, or another browser, has added since.
async function catchUp(id) {
    const own = loadConversation(id);
    const chat = storedChats.list.find(one => one.id === own?.stored?.id);
    if (!chat || chat.revision <= own.stored.revision) {
        return;
    }
    takeStored(own, await callStored(storedPath(chat.id)));
    if (currentConversation().id === id && !writing) {
        conversation = own;
        showConversation();
    }
}

// ---- to the server --------------------------------------------------------------------------------------------------

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

async function createStored(own) {
    const model = pathOf(own).findLast(message => message.model)?.model || byId("model").value;
    return callStored("/api/chats", { ...storedBody(own), model });
}

// One that was changed elsewhere goes on as a new chat; one that was deleted elsewhere is not stored any more (id 0).
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

async function renameStored(entry, title) {
    if (storedChats.allowed && entry.stored?.id) {
        const chat = await callStored(storedPath(entry.stored.id), { title });
        if (entry.id) {
            changeConversation(entry.id, changed => {
                changed.stored = { id: chat.id, revision: finite(chat.revision) };
            });
        }
        await refreshStored();
    }
}

async function deleteStored(id) {
    if (storedChats.allowed && id) {
        await callStored(storedPath(id), null, "DELETE");
        await refreshStored();
    }
}
