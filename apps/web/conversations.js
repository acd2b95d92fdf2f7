// The list of conversations: open, pin, rename, delete, search, export, import. On a narrow page it slides over the content.

const sideIsOver = () => matchMedia("(max-width: 859px)").matches;

function openSide(open) {
    const leaving = !open && byId("side").contains(document.activeElement);
    byId("side").classList.toggle("open", open);
    byId("shade").hidden = !open;
    byId("menu").setAttribute("aria-expanded", String(open));
    hideSideFromKeys();
    if (open || leaving) {
        byId(open ? "new-chat" : "menu").focus();
    }
}

// A hidden list must not take the keyboard focus.
function hideSideFromKeys() {
    byId("side").inert = sideIsOver() && !byId("side").classList.contains("open");
}

// ---- one entry ------------------------------------------------------------------------------------------------------

const attempt = work => Promise.resolve(work()).catch(error => toast(error.message));

function renameItem(entry, item) {
    const input = make("input", {
        class: "rename",
        value: entry.title,
        "aria-label": say("New name"),
        maxLength: 200,
        dir: "auto",
    });
    let over = false;
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
        byId("chats").querySelector(`[data-key="${entryKey(entry)}"] button`)?.focus();
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

async function pinItem(entry) {
    const id = entry.id || (await adoptStored(entry));
    changeConversation(id, changed => {
        changed.pinned = !entry.pinned;
    });
    showConversations();
    byId("chats").querySelector(`[data-key="${id}"] [aria-pressed]`)?.focus();
}

async function openItem(entry) {
    const id = entry.id || (await adoptStored(entry));
    openConversation(id);
    openSide(false);
    await catchUp(id);
}

let dayFormats = null; // made once: making one takes longer than using it a thousand times

// The date or, for today, the time.
function inDay(time) {
    const date = new Date(time);
    dayFormats ??= {
        today: new Intl.DateTimeFormat(pageLocale, { hour: "2-digit", minute: "2-digit" }),
        other: new Intl.DateTimeFormat(pageLocale, { day: "numeric", month: "short" }),
    };
    return dayFormats[date.toDateString() === new Date().toDateString() ? "today" : "other"].format(date);
}

const entryKey = entry => entry.id || "stored-" + entry.stored.id;

function conversationItem(entry) {
    const item = make("li", { "data-key": entryKey(entry) });
    const name = entry.title || say("Without a name");
    const open = make(
        "button",
        { class: "open-chat", title: name, onclick: () => attempt(() => openItem(entry)) },
        make("span", { dir: "auto" }, name),
        entry.found ? foundWords(entry.found) : make("small", {}, inDay(entry.updated)),
    );
    if (entry.id && entry.id === currentConversation().id) {
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

// ---- the list and the search ----------------------------------------------------------------------------------------

const search = { text: "", stored: new Set(), timer: 0 };

// The words around the first place in a conversation that has the text: {before, match, after}; null: none has.
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

function foundWords({ before, match, after }) {
    return make("small", { class: "found", dir: "auto" }, before, make("mark", {}, match), after);
}

// The entries that have the text: here in names and messages, on the server by its own search.
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
        (one, other) => other.pinned - one.pinned || other.updated - one.updated,
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

function openSearch() {
    showHash("#chat");
    if (sideIsOver()) {
        openSide(true);
    }
    byId("search").focus();
    byId("search").select();
}

// ---- files ----------------------------------------------------------------------------------------------------------

async function importFile(event) {
    const file = event.target.files[0];
    event.target.value = "";
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
    const save = (id, work) =>
        byId(id).addEventListener("click", () => {
            dialog.close();
            download(...work());
        });
    byId("export").addEventListener("click", () => {
        const empty = currentConversation().messages.length === 0;
        byId("export-markdown").disabled = byId("export-json").disabled = empty;
        dialog.showModal();
    });
    byId("close-export").addEventListener("click", () => dialog.close());
    save("export-markdown", () => [fileName(currentConversation(), ".md"), markdownTranscript(currentConversation())]);
    save("export-json", () => [fileName(currentConversation(), ".json"), jsonTranscript(currentConversation())]);
    save("export-all", () => ["spry-conversations.json", exportConversations()]);
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", importFile);
}

function startConversations() {
    byId("menu").addEventListener("click", () => openSide(!byId("side").classList.contains("open")));
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
            refreshStored().then(() => catchUp(currentConversation().id)).catch(() => {});
        }
    });
    addEventListener("resize", hideSideFromKeys);
    startExport();
    hideSideFromKeys();
    showConversations();
}
