// The words of the page in the language that is set, or that of the browser. The key of a message is its English text;
// MESSAGES (messages.js, messages_views.js) has a row with the other languages for each.

const LANGUAGES = { en: "English", de: "Deutsch", fr: "Fran\u00e7ais", es: "Espa\u00f1ol", zh: "\u4e2d\u6587", ja: "\u65e5\u672c\u8a9e" };
const LANGUAGE_NAMES = Object.keys(LANGUAGES);

// The first language of the browser that the page has.
const browserLanguage = () =>
    (navigator.languages ?? [navigator.language])
        .map(name => name.slice(0, 2).toLowerCase())
        .find(name => Object.hasOwn(LANGUAGES, name)) ?? "en";

let pageLanguage = "en";
let pageLocale = "en"; // with the browser's region, for numbers and dates

// The message in the page's language, with the values in place of {0}, {1}, ...
function say(text, ...values) {
    const words = MESSAGES[text]?.[LANGUAGE_NAMES.indexOf(pageLanguage) - 1] ?? text;
    return values.length ? words.replace(/\{(\d)\}/g, (all, at) => values[at] ?? all) : words;
}

// Translates the texts and names of page.html; `chosen` is the language that the user has set, if any.
function translatePage(chosen) {
    pageLanguage = Object.hasOwn(LANGUAGES, chosen) ? chosen : browserLanguage();
    pageLocale = (navigator.languages ?? []).find(name => name.slice(0, 2).toLowerCase() === pageLanguage) ?? pageLanguage;
    document.documentElement.lang = pageLanguage;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode.data.trim();
        if (Object.hasOwn(MESSAGES, text)) {
            walker.currentNode.data = walker.currentNode.data.replace(text, () => say(text));
        }
    }
    for (const name of ["title", "aria-label", "placeholder"]) {
        for (const element of document.body.querySelectorAll(`[${name}]`)) {
            const text = element.getAttribute(name);
            if (Object.hasOwn(MESSAGES, text)) {
                element.setAttribute(name, say(text));
            }
        }
    }
}
