// The list of conversations: open, rename, delete, export, import. On a narrow page it slides over the content.

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

function renameItem(entry, item) {
    const input = make("input", {
        class: "rename",
        value: entry.title,
        "aria-label": "New name",
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
        if (keep && title !== "") {
            renameConversation(entry.id, title);
        }
        showConversations();
        byId("chats").querySelector(`[data-id="${entry.id}"] button`)?.focus();
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

function deleteItem(entry) {
    const kept = loadConversation(entry.id);
    forgetConversation(entry.id);
    showConversations();
    toast("Deleted.", "Undo", () => {
        if (kept) {
            saveConversation(kept);
        }
        showConversations();
    });
}

// The date or, for today, the time.
function inDay(time) {
    const date = new Date(time);
    const today = date.toDateString() === new Date().toDateString();
    return today
        ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
        : date.toLocaleDateString([], { day: "numeric", month: "short" });
}

function conversationItem(entry) {
    const item = make("li", { "data-id": entry.id });
    const name = entry.title || "Without a name";
    const open = make(
        "button",
        {
            class: "open-chat",
            title: name,
            onclick: () => {
                openConversation(entry.id);
                openSide(false);
            },
        },
        make("span", { dir: "auto" }, name),
        make("small", {}, inDay(entry.updated)),
    );
    if (entry.id === currentConversation().id) {
        item.classList.add("current");
        open.setAttribute("aria-current", "true");
    }
    item.append(
        open,
        iconButton("edit", "Rename", () => renameItem(entry, item)),
        iconButton("delete", "Delete", () => deleteItem(entry)),
    );
    return item;
}

function showConversations() {
    const list = listConversations();
    byId("chats").replaceChildren(...list.map(conversationItem));
    byId("export").disabled = list.length === 0;
}

async function importFile(event) {
    const file = event.target.files[0];
    event.target.value = "";
    if (!file) {
        return;
    }
    try {
        const count = importConversations(await file.text());
        toast(count ? several(count, "conversation") + " imported." : "Everything in the file is here already.");
    } catch (error) {
        toast(error.message);
    }
    showConversations();
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
    byId("export").addEventListener("click", () => download("spry-conversations.json", exportConversations()));
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", importFile);
    addEventListener("resize", hideSideFromKeys);
    addEventListener("storage", showConversations); // another tab changed something
    hideSideFromKeys();
    showConversations();
}
