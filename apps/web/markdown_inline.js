// Markdown inside a line: code, bold, italic, struck text, links, formulas. Time is linear in the length of the text, because a
// search that failed is not repeated.

const LINK = /!?\[([^[\]\n]{0,1000})\]\(([^\s()<>]{1,2000})\)/y;
const BARE_LINK = /https?:\/\/[^\s<>"'`*\])]{1,2000}/y;

// The address as the browser parses it, or null when links to it are not allowed.
function linkAddress(text) {
    try {
        const url = new URL(text);
        return /^https?:$/.test(url.protocol) && !url.username && !url.password ? url : null;
    } catch {
        return null;
    }
}

// A link shows its host behind its text, unless the text contains it.
function linkNodes(url, label) {
    const link = make("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title: url.href }, label);
    return label.includes(url.host) ? [link] : [link, make("span", { class: "host" }, " (" + url.host + ")")];
}

// The end of a span that began with `marker`: the next marker after a character that is not a space; -1: none.
function closingMarker(text, marker, from) {
    for (let at = text.indexOf(marker, from); at >= 0; at = text.indexOf(marker, at + marker.length)) {
        if (marker.length === 1 && text[at + 1] === marker) {
            at++;
        } else if (
            at > from &&
            !/\s/.test(text[at - 1]) &&
            (marker[0] === "*" || !/\w/.test(text[at + marker.length] || " "))
        ) {
            return at;
        }
    }
    return -1;
}

// Each parser reads a text from `at` on and returns {end, nodes}; without nodes the text up to `end` is shown as written.
// Null: the character has no meaning.
const inlineTakers = {
    "\\": takeEscape,
    "`": takeCode,
    $: takeDollars,
    "*": takeEmphasis,
    _: takeEmphasis,
    "~": takeStruck,
    "[": takeLink,
    "!": takeLink,
    h: takeBareLink,
};

function takeEscape(text, at, vain) {
    const next = text[at + 1] || "";
    const close = { "(": "\\)", "[": "\\]" }[next];
    const end = close && !vain.has(close) ? text.indexOf(close, at + 2) : -1;
    if (end > at + 2) {
        return { end: end + 2, nodes: [formula(text.slice(at + 2, end), text.slice(at, end + 2), next === "[")] };
    }
    if (close) {
        vain.add(close);
    }
    return /[!-/:-@[-`{-~]/.test(next) ? { end: at + 2, nodes: [next] } : null;
}

// $x$: no space inside the dollars, and no digit behind them, so that prices are not formulas.
function takeDollars(text, at, vain) {
    const marker = text[at + 1] === "$" ? "$$" : "$";
    const begin = at + marker.length;
    const none = { end: begin };
    if (vain.has(marker) || /\s/.test(text[begin] || " ")) {
        return none;
    }
    const end = text.indexOf(marker, begin);
    if (end < 0) {
        vain.add(marker);
        return none;
    }
    const fits = end > begin && !/[\s\\]/.test(text[end - 1]) && !/\d/.test(text[end + marker.length] || "");
    const whole = text.slice(at, end + marker.length);
    return fits && !whole.includes("\n\n")
        ? { end: end + marker.length, nodes: [formula(text.slice(begin, end), whole, marker.length === 2)] }
        : none;
}

// A formula as it was written; libraries.js typesets it.
function formula(tex, written, display) {
    const node = make("span", { class: display ? "math display" : "math", dir: "ltr" }, written);
    node.dataset.tex = tex;
    return node;
}

function takeStruck(text, at, vain, depth) {
    if (text[at + 1] !== "~" || text[at + 2] === "~" || vain.has("~~") || depth > MARKDOWN_DEPTH) {
        return null;
    }
    const end = /\s/.test(text[at + 2] || " ") ? -1 : text.indexOf("~~", at + 3);
    if (end < 0) {
        vain.add("~~");
        return null;
    }
    return { end: end + 2, nodes: [inline(make("del"), text.slice(at + 2, end), depth + 1)] };
}

function takeCode(text, at, vain) {
    const ticks = /`+/g;
    ticks.lastIndex = at;
    const marker = ticks.exec(text)[0];
    const begin = at + marker.length;
    for (let found = vain.has(marker) ? null : ticks.exec(text); found; found = ticks.exec(text)) {
        if (found[0] === marker) {
            return { end: ticks.lastIndex, nodes: [make("code", {}, text.slice(begin, found.index))] };
        }
    }
    vain.add(marker);
    return { end: begin };
}

function takeEmphasis(text, at, vain, depth) {
    const marker = text[at + 1] === text[at] ? text[at] + text[at] : text[at];
    const begin = at + marker.length;
    const none = { end: begin };
    if (
        depth > MARKDOWN_DEPTH ||
        vain.has(marker) ||
        /\s/.test(text[begin] || " ") ||
        (marker[0] === "_" && /\w/.test(text[at - 1] || " "))
    ) {
        return none;
    }
    const end = closingMarker(text, marker, begin);
    if (end < 0) {
        vain.add(marker);
        return none;
    }
    const node = make(marker.length === 2 ? "strong" : "em");
    return { end: end + marker.length, nodes: [inline(node, text.slice(begin, end), depth + 1)] };
}

function takeLink(text, at) {
    LINK.lastIndex = at;
    const found = LINK.exec(text);
    const url = found && linkAddress(found[2]);
    return url ? { end: at + found[0].length, nodes: linkNodes(url, found[1] || url.href) } : null;
}

function takeBareLink(text, at) {
    BARE_LINK.lastIndex = at;
    const found = /\w/.test(text[at - 1] || " ") ? null : BARE_LINK.exec(text);
    const words = found && found[0].replace(/[.,;:!?]+$/, "");
    const url = found && linkAddress(words);
    return url ? { end: at + words.length, nodes: linkNodes(url, words) } : null;
}

function inline(parent, text, depth = 0) {
    const special = /[\\`$*_~[!h]/g;
    const vain = new Set();
    let plain = 0;
    for (let found = special.exec(text); found; found = special.exec(text)) {
        const taken = inlineTakers[found[0]](text, found.index, vain, depth);
        if (taken?.nodes) {
            parent.append(text.slice(plain, found.index), ...taken.nodes);
            plain = taken.end;
        }
        special.lastIndex = taken?.end ?? special.lastIndex;
    }
    parent.append(text.slice(plain));
    return parent;
}
