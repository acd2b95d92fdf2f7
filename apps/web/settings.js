// The settings panel: sampling, the system message, and the API key. An empty field means the default of the server or
// the model.

const SAMPLING_FIELDS = [
    { name: "temperature", word: "Temperature", least: 0, most: 5 },
    { name: "top_p", word: "Top p", least: 0, most: 1 },
    { name: "min_p", word: "Min p", least: 0, most: 1 },
    { name: "max_tokens", word: "Most tokens", least: 1, most: 1e9, whole: true },
    { name: "seed", word: "The seed", least: 0, most: Number.MAX_SAFE_INTEGER, whole: true },
];

// The settings of the open conversation; one without settings of its own has those for new conversations.
const conversationSettings = (own = currentConversation()) => own.settings ?? {};

// The fields that the settings add to a request.
function samplingSettings() {
    const settings = { ...readSettings(), ...conversationSettings() };
    const chosen = {};
    for (const { name } of SAMPLING_FIELDS) {
        if (Number.isFinite(settings[name])) {
            chosen[name] = settings[name];
        }
    }
    if (["slide", "error", "truncate_middle"].includes(settings.context_overflow)) {
        chosen.context_overflow = settings.context_overflow;
    }
    return chosen;
}

const systemMessage = own => cleanText({ ...readSettings(), ...conversationSettings(own) }.system).trim();

function showSettings() {
    const settings = readSettings();
    byId("s-system").value = cleanText(settings.system);
    byId("s-key").value = passing.read("key") ?? "";
    for (const { name } of SAMPLING_FIELDS) {
        byId("s-" + name).value = settings[name] ?? "";
    }
    checkSettings();
}

// {value, wrong}: the number in a field (undefined: empty), and an error message or "". A decimal comma is accepted.
function fieldValue(field) {
    const text = byId("s-" + field.name)
        .value.trim()
        .replace(",", ".");
    const value = text === "" ? undefined : Number(text);
    const wrong =
        value !== undefined &&
        !(value >= field.least && value <= field.most && (!field.whole || Number.isInteger(value)));
    const kind = field.whole ? "a whole number" : "a number";
    const range =
        field.most > 10 ? kind + ", at least " + field.least : kind + " from " + field.least + " to " + field.most;
    return { value, wrong: wrong ? field.word + " has to be " + range + "." : "" };
}

// Stores valid fields, shows errors of the others, and returns whether all are valid.
function checkSettings() {
    const settings = readSettings();
    const sentences = [];
    for (const field of SAMPLING_FIELDS) {
        const { value, wrong } = fieldValue(field);
        byId("s-" + field.name).setAttribute("aria-invalid", String(Boolean(wrong)));
        if (wrong) {
            sentences.push(wrong);
        } else {
            settings[field.name] = value;
        }
    }
    settings.system = byId("s-system").value;
    writeSettings(settings);
    byId("settings-error").textContent = sentences.join(" ");
    byId("settings-error").hidden = sentences.length === 0;
    return sentences.length === 0;
}

function openSettings(focus = null) {
    showSettings();
    byId("settings").showModal();
    if (focus) {
        byId(focus).focus();
    }
}

function startSettings(onKeyChange) {
    const dialog = byId("settings");
    byId("open-settings").addEventListener("click", () => openSettings());
    byId("close-settings").addEventListener("click", () => dialog.close());
    byId("settings-form").addEventListener("input", checkSettings);
    byId("settings-form").addEventListener("submit", event => {
        if (!checkSettings()) {
            event.preventDefault();
        }
    });
    byId("settings-reset").addEventListener("click", () => {
        for (const { name } of SAMPLING_FIELDS) {
            byId("s-" + name).value = "";
        }
        byId("s-system").value = "";
        checkSettings();
    });
    dialog.addEventListener("click", event => {
        if (event.target === dialog) {
            dialog.close();
        }
    });
    dialog.addEventListener("close", () => {
        const key = byId("s-key").value.trim();
        if (key !== (passing.read("key") ?? "")) {
            passing.write("key", key);
            onKeyChange();
        }
    });
}
