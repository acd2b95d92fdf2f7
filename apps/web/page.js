// Starts the page: colours, views, keys, and the server.

import { resumeAnswer, sendMessage, showConversation, showVersion, startChat, stopWriting } from "./chat.js";
import { openComparison, startComparison } from "./compare.js";
import { openSearch, refreshStored, startConversations, toggleSide } from "./conversations.js";
import { startAttachments } from "./documents.js";
import { byId, make, showHash, speak, startTerms } from "./dom.js";
import { say, translatePage } from "./language.js";
import { showModels, startModels } from "./models.js";
import { fetchModels, noteFailure, retryWith, showBanner } from "./server.js";
import { learnSettings, openSettings, startSettings } from "./settings.js";
import { changeSetting, current, passing, readSettings } from "./store.js";
import { learnTools } from "./tools.js";
import { isReading, offerSpeech, startSpeech, stopReading } from "./voice.js";
import { startWatch, watchWhileSeen } from "./watch.js";

// ---- colours -------------------------------------------------------------------------------------------------------

/** @type {Record<string, string>} */
const THEMES = { auto: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" };

function showTheme() {
    const theme = readSettings().theme in THEMES ? readSettings().theme : "auto";
    document.documentElement.dataset.theme = theme;
    byId("s-theme").value = theme;
    byId("theme").title = say(THEMES[theme]);
    byId("theme").setAttribute("aria-label", say(THEMES[theme]));
    return theme;
}

function nextTheme() {
    const names = Object.keys(THEMES);
    changeSetting("theme", names[(names.indexOf(showTheme()) + 1) % names.length]);
    speak(say(THEMES[showTheme()]));
}

// ---- views ---------------------------------------------------------------------------------------------------------

const VIEWS = /** @type {const} */ (["chat", "watch", "compare"]);

function showView() {
    const shownView = VIEWS.find(name => location.hash === "#" + name) ?? "chat";
    for (const name of VIEWS) {
        byId(`${name}-view`).hidden = name !== shownView;
        if (name === shownView) {
            byId(`tab-${name}`).setAttribute("aria-current", "page");
        } else {
            byId(`tab-${name}`).removeAttribute("aria-current");
        }
    }
    document.body.classList.toggle("watching", shownView === "watch");
    watchWhileSeen();
    if (shownView === "compare") {
        openComparison();
    }
}

// ---- the server ----------------------------------------------------------------------------------------------------

async function reachServer() {
    try {
        showModels(await fetchModels());
        showBanner("");
        offerSpeech();
        learnSettings();
        refreshStored();
        if ((await learnTools()) && current.path.at(-1)?.calls?.length && !current.writing) {
            showConversation(true); // calls that wait for the user
        }
        resumeAnswer();
    } catch (error) {
        noteFailure(error);
    }
}

/** @param {string} key */
function useKey(key) {
    passing.write("key", key);
    reachServer();
}

// ---- keys ----------------------------------------------------------------------------------------------------------

/** @param {Element | null} element */
const typesText = element => element instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) || element.isContentEditable);

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
    { shown: "l", key: "l", words: "Show or hide the list", action: () => toggleSide() },
    { shown: "s", key: "s", words: "Settings", action: () => openSettings() },
    { shown: "m", key: "m", words: "Models", action: () => byId("open-models").click() },
    { shown: "?", key: "?", words: "This list", action: () => openKeys() },
];

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

/** @param {number} step */
function stepVersion(step) {
    const last = current.path.findLast(message => message.role === "assistant");
    if (last) {
        showVersion(last, step);
    }
}

/** @param {KeyboardEvent} event */
function onKey(event) {
    if (document.querySelector("dialog[open]")) {
        return;
    }
    if (event.key === "Escape" && (current.writing || isReading())) {
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
        found.action?.();
    } else if (!ctrl && (event.key === "[" || event.key === "]")) {
        stepVersion(event.key === "[" ? -1 : 1);
    }
}

function startKeys() {
    addEventListener("keydown", onKey);
    byId("open-keys").addEventListener("click", openKeys);
    byId("side-keys").addEventListener("click", openKeys);
    byId("close-keys").addEventListener("click", () => byId("keys").close());
}

// ---- starting ------------------------------------------------------------------------------------------------------

await translatePage(readSettings().language);
showTheme();
startSettings(useKey);
startChat();
startAttachments();
startTerms();
startSpeech(sendMessage, stopWriting);
startConversations();
startModels();
startWatch();
startComparison();
startKeys();
showView();
byId("theme").addEventListener("click", nextTheme);
byId("s-theme").addEventListener("change", () => {
    changeSetting("theme", byId("s-theme").value);
    showTheme();
});
byId("model").addEventListener("change", () => changeSetting("model", byId("model").value));
byId("skip").addEventListener("click", event => {
    event.preventDefault(); // the address says which view is shown
    byId("main").focus();
});
byId("banner-key").addEventListener("submit", event => {
    event.preventDefault();
    useKey(byId("banner-key-text").value.trim());
});
addEventListener("hashchange", showView);
addEventListener("offline", reachServer);
addEventListener("online", reachServer);
retryWith(reachServer);
reachServer();
if (location.hash !== "#watch" && matchMedia("(pointer: fine)").matches) {
    byId("input").focus();
}

document.documentElement.dataset.ready = "yes"; // everything above has its handlers; for tests, which click at once
