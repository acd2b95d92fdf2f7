// Formatting of numbers, in the way of the page's language.

const finite = value => (Number.isFinite(value) ? value : 0);

// At most three significant digits: 0.12, 4.5, 118, 12,300.
function inFigures(value) {
    const places = value >= 100 || value === 0 ? 0 : value >= 10 ? 1 : 2;
    return finite(value).toLocaleString(pageLocale, { maximumFractionDigits: places });
}

const inCount = value => Math.round(finite(value)).toLocaleString(pageLocale);

function inTime(ms) {
    return finite(ms) < 1000 ? inFigures(finite(ms)) + " ms" : inFigures(ms / 1000) + " s";
}

function inBytes(bytes) {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let value = finite(bytes);
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) {
        value /= 1000;
        unit++;
    }
    return inFigures(value) + " " + units[unit];
}

const inPercent = (part, whole) => Math.round(whole > 0 ? (100 * part) / whole : 0) + " %";

// A count with its noun: `one` and `many` are messages with {0}.
const several = (count, one, many) => say(count === 1 ? one : many, inCount(count));
const inTokens = count => several(count, "{0} token", "{0} tokens");
const inPromptTokens = count => several(count, "{0} prompt token", "{0} prompt tokens");

// The first `length` characters of a text's first line that is not empty.
function firstLine(text, length) {
    const line = text.trim().split("\n", 1)[0];
    const characters = Array.from(line.slice(0, 2 * length));
    return characters.length > length ? characters.slice(0, length - 1).join("") + "\u2026" : line;
}
