// The page's language: messages, numbers and dates. The key of a message is its English text; translations/LANGUAGE.json has the
// same keys and is loaded for that language only.

export const LANGUAGES = { en: "English", de: "Deutsch", fr: "Fran\u00e7ais", es: "Espa\u00f1ol", zh: "\u4e2d\u6587", ja: "\u65e5\u672c\u8a9e" };

// The first language of the browser that the page has.
const browserLanguage = () =>
    (navigator.languages ?? [navigator.language])
        .map(name => name.slice(0, 2).toLowerCase())
        .find(name => Object.hasOwn(LANGUAGES, name)) ?? "en";

let pageLanguage = "en";
let pageLocale = "en"; // with the browser's region, for numbers and dates
/** @type {Record<string, string>} */
let translations = {}; // English text: text in the page's language; empty for English

// The message in the page's language, with the values in place of {0}, {1}, ...
/** @param {string} text @param {...(string | number)} values */
export function say(text, ...values) {
    const words = translations[text] ?? text;
    return values.length ? words.replace(/\{(\d)\}/g, (all, /** @type {string} */ at) => String(values[Number(at)] ?? all)) : words;
}

// The translations of a language; without them the page is in English.
/** @param {string} language */
async function loadTranslations(language) {
    try {
        const response = await fetch(`/translations/${language}.json`);
        return response.ok ? await response.json() : {};
    } catch {
        return {};
    }
}

// Translates the texts and names of page.html; `chosen` is the language that the user has set, if any.
/** @param {string | undefined} chosen */
export async function translatePage(chosen) {
    pageLanguage = chosen && Object.hasOwn(LANGUAGES, chosen) ? chosen : browserLanguage();
    pageLocale = (navigator.languages ?? []).find(name => name.slice(0, 2).toLowerCase() === pageLanguage) ?? pageLanguage;
    translations = pageLanguage === "en" ? {} : await loadTranslations(pageLanguage);
    document.documentElement.lang = pageLanguage;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = /** @type {Text} */ (walker.currentNode);
        const text = node.data.trim();
        if (Object.hasOwn(translations, text)) {
            node.data = node.data.replace(text, () => say(text));
        }
    }
    for (const name of ["title", "aria-label", "placeholder"]) {
        for (const element of document.body.querySelectorAll(`[${name}]`)) {
            const text = element.getAttribute(name) ?? "";
            if (Object.hasOwn(translations, text)) {
                element.setAttribute(name, say(text));
            }
        }
    }
}

// ---- numbers and dates ---------------------------------------------------------------------------------------------

/** @param {unknown} value @returns {number} */
export const finite = value => (typeof value === "number" && Number.isFinite(value) ? value : 0);

// At most three significant digits: 0.12, 4.5, 118, 12,300.
/** @param {unknown} value */
export function inFigures(value) {
    const number = finite(value);
    const places = number >= 100 || number === 0 ? 0 : number >= 10 ? 1 : 2;
    return number.toLocaleString(pageLocale, { maximumFractionDigits: places });
}

/** @param {unknown} value */
export const inCount = value => Math.round(finite(value)).toLocaleString(pageLocale);

/** @param {unknown} ms */
export function inTime(ms) {
    return finite(ms) < 1000 ? inFigures(ms) + " ms" : inFigures(finite(ms) / 1000) + " s";
}

/** @param {unknown} bytes */
export function inBytes(bytes) {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let value = finite(bytes);
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) {
        value /= 1000;
        unit++;
    }
    return inFigures(value) + " " + units[unit];
}

/** @param {number} part @param {number} whole */
export const inPercent = (part, whole) => Math.round(whole > 0 ? (100 * part) / whole : 0) + " %";

// A count with its noun: `one` and `many` are messages with {0}.
/** @param {number} count @param {string} one @param {string} many */
export const several = (count, one, many) => say(count === 1 ? one : many, inCount(count));
/** @param {number} count */
export const inTokens = count => several(count, "{0} token", "{0} tokens");
/** @param {number} count */
export const inPromptTokens = count => several(count, "{0} prompt token", "{0} prompt tokens");

// The first `length` characters of a text's first line that is not empty.
/** @param {string} text @param {number} length */
export function firstLine(text, length) {
    const line = text.trim().split("\n", 1)[0];
    const characters = Array.from(line.slice(0, 2 * length));
    return characters.length > length ? characters.slice(0, length - 1).join("") + "\u2026" : line;
}

let dayFormats = null; // made once: making one takes longer than using it a thousand times

// The date or, for today, the time.
/** @param {number} time */
export function inDay(time) {
    const date = new Date(time);
    dayFormats ??= {
        today: new Intl.DateTimeFormat(pageLocale, { hour: "2-digit", minute: "2-digit" }),
        other: new Intl.DateTimeFormat(pageLocale, { day: "numeric", month: "short" }),
    };
    return dayFormats[date.toDateString() === new Date().toDateString() ? "today" : "other"].format(date);
}
