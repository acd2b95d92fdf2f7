// Starts the page: colours, views, the list of models, and the banner for a server that does not answer.

// ---- colours --------------------------------------------------------------------------------------------------------

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

// ---- views ----------------------------------------------------------------------------------------------------------

const VIEWS = ["chat", "watch", "compare"];

function showView() {
    const shownView = VIEWS.find(name => location.hash === "#" + name) ?? "chat";
    for (const name of VIEWS) {
        byId(name + "-view").hidden = name !== shownView;
        if (name === shownView) {
            byId("tab-" + name).setAttribute("aria-current", "page");
        } else {
            byId("tab-" + name).removeAttribute("aria-current");
        }
    }
    document.body.classList.toggle("watching", shownView === "watch");
    watchWhileSeen();
    if (shownView === "compare") {
        openComparison();
    }
}

// ---- the server -----------------------------------------------------------------------------------------------------

let retryTimer = 0;

// With `wantsKey` the banner has a field for it instead of a button.
function showBanner(text, { button = "", action = null, wantsKey = false } = {}) {
    const opened = wantsKey && byId("banner-key").hidden;
    byId("banner").hidden = text === "";
    setText(byId("banner-text"), text);
    byId("banner-button").textContent = button;
    byId("banner-button").onclick = action;
    byId("banner-key").hidden = !wantsKey;
    if (opened) {
        byId("banner-key-text").value = "";
    }
}

function useKey(key) {
    passing.write("key", key);
    reachServer();
}

// Called with every error. An error of the whole server is shown in the banner until it is resolved.
function noteFailure(error) {
    if (error.status === 401) {
        const wrong = passing.read("key");
        showBanner(wrong ? say("This server does not accept the key. Enter another one.") : say("This server wants a key."), {
            wantsKey: true,
        });
    } else if (error.status === 0) {
        showBanner(say("The server does not answer. Is it running? The page tries again every few seconds."), {
            button: say("Try now"),
            action: reachServer,
        });
        clearTimeout(retryTimer);
        retryTimer = setTimeout(reachServer, 3000);
    }
}

function showModels(names) {
    const select = byId("model");
    const chosen = select.value || readSettings().model;
    select.replaceChildren(...names.map(name => make("option", { value: name }, name)));
    select.value = names.includes(chosen) ? chosen : (names[0] ?? "");
    select.disabled = names.length === 0;
    fillSides();
}

async function reachServer() {
    clearTimeout(retryTimer);
    try {
        showModels(await fetchModels());
        showBanner("");
        offerSpeech();
        refreshStored();
        await learnTools();
        resumeAnswer();
    } catch (error) {
        noteFailure(error);
    }
}

translatePage(readSettings().language);
showTheme();
startSettings(useKey);
startChat();
startAttachments();
startTerms();
startSpeech();
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
reachServer();
if (location.hash !== "#watch" && matchMedia("(pointer: fine)").matches) {
    byId("input").focus();
}
