// Keys for the whole page, and the list of them under "?".

const typesText = element => /^(INPUT|TEXTAREA|SELECT)$/.test(element?.tagName) || element?.isContentEditable;

// {keys as shown, key of the event, with Ctrl or Cmd, words, action}; without Ctrl only where no text is typed.
const SHORTCUTS = [
    { shown: "/", key: "/", words: "Write a message", action: () => focusChat() },
    { shown: "Enter", words: "Send" },
    { shown: "Shift+Enter", words: "New line" },
    { shown: "Esc", words: "Stop the answer, or close what is open" },
    { shown: "\u2191", words: "Edit the last question, when the box is empty" },
    { shown: "Ctrl+K", key: "k", ctrl: true, words: "Find in all conversations", action: () => openSearch() },
    { shown: "Ctrl+Shift+O", key: "o", ctrl: true, shift: true, words: "New conversation", action: () => byId("new-chat").click() },
    { shown: "[  ]", words: "Former and next version of the last answer" },
    { shown: "c", key: "c", words: "Chat", action: () => focusChat() },
    { shown: "w", key: "w", words: "Watch", action: () => showHash("#watch") },
    { shown: "s", key: "s", words: "Settings", action: () => openSettings() },
    { shown: "m", key: "m", words: "Models", action: () => byId("open-models").click() },
    { shown: "?", key: "?", words: "This list", action: () => openKeys() },
];

const showHash = hash => {
    location.hash = hash;
};

function focusChat() {
    showHash("#chat");
    byId("chat-view").hidden = false;
    byId("input").focus();
}

function openKeys() {
    byId("keys-list").replaceChildren(
        ...SHORTCUTS.map(({ shown: keys, words }) =>
            make("li", {}, make("kbd", {}, keys), make("span", {}, say(words))),
        ),
    );
    byId("keys").showModal();
}

function stepVersion(step) {
    const last = shown.path.findLast(message => message.role === "assistant");
    if (last) {
        showVersion(last, step);
    }
}

function onKey(event) {
    if (document.querySelector("dialog[open]")) {
        return;
    }
    if (event.key === "Escape" && (writing || isReading())) {
        stopWriting();
        stopReading();
        return;
    }
    const ctrl = event.ctrlKey || event.metaKey;
    if (!ctrl && (typesText(document.activeElement) || event.altKey)) {
        return;
    }
    const found = SHORTCUTS.find(
        ({ key, ctrl: wanted = false, shift }) =>
            key === event.key.toLowerCase() && wanted === ctrl && (shift === undefined || shift === event.shiftKey),
    );
    if (found) {
        event.preventDefault();
        found.action();
    } else if (!ctrl && (event.key === "[" || event.key === "]")) {
        stepVersion(event.key === "[" ? -1 : 1);
    }
}

function startKeys() {
    addEventListener("keydown", onKey);
    byId("open-keys").addEventListener("click", openKeys);
    byId("close-keys").addEventListener("click", () => byId("keys").close());
}
