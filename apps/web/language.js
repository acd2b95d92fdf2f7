// The words of the page in the language of the browser. The key of a message is its English text; MESSAGES (messages.js) has
// a row with the other languages for each. What has no row stays English.

const LANGUAGES = ["en", "de", "fr", "es", "zh", "ja"];
const pageLanguage = (navigator.languages ?? [])
    .map(name => name.slice(0, 2).toLowerCase())
    .find(name => LANGUAGES.includes(name)) ?? "en";

// The message in the page's language, with the values in place of {0}, {1}, ...
function say(text, ...values) {
    const words = MESSAGES[text]?.[LANGUAGES.indexOf(pageLanguage) - 1] ?? text;
    return values.length ? words.replace(/\{(\d)\}/g, (all, at) => values[at] ?? all) : words;
}

const TOLD_ATTRIBUTES = ["title", "aria-label", "placeholder"];

// Translates the texts and names of page.html.
function translatePage() {
    document.documentElement.lang = pageLanguage;
    if (pageLanguage === "en") {
        return;
    }
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode.data.trim();
        if (Object.hasOwn(MESSAGES, text)) {
            walker.currentNode.data = walker.currentNode.data.replace(text, () => say(text));
        }
    }
    for (const element of document.body.querySelectorAll("[title], [aria-label], [placeholder]")) {
        for (const name of TOLD_ATTRIBUTES) {
            const text = element.getAttribute(name);
            if (text && Object.hasOwn(MESSAGES, text)) {
                element.setAttribute(name, say(text));
            }
        }
    }
}
