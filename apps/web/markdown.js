// A small part of markdown, as DOM nodes: paragraphs, headings, lists, tasks, quotes, code, formulas, tables, rules. Anything
// else is shown as written. The model's text is not trusted: it only becomes text nodes, links only lead to http and https,
// nothing is fetched, and the time is linear in its length, because a search that failed is not repeated.
//
// Code is coloured by highlight.js and formulas are typeset by KaTeX, as MathML, where the server was built with them. What they
// return is not trusted either: only their elements for colours, and MathML without links, get into the page.

import { copyText, iconButton, make } from "./dom.js";
import { say } from "./language.js";
import { serverFeatures } from "./server.js";

// ---- inside a line -------------------------------------------------------------------------------------------------

const LINK = /!?\[([^[\]\n]{0,1000})\]\(([^\s()<>]{1,2000})\)/y;
const BARE_LINK = /https?:\/\/[^\s<>"'`*\])]{1,2000}/y;

// The address as the browser parses it, or null when links to it are not allowed.
/** @param {string} text */
function linkAddress(text) {
    try {
        const url = new URL(text);
        return /^https?:$/.test(url.protocol) && !url.username && !url.password ? url : null;
    } catch {
        return null;
    }
}

// A link shows its host after its text, unless the text contains it.
/** @param {URL} url @param {string} label */
function linkNodes(url, label) {
    const link = make("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title: url.href }, label);
    return label.includes(url.host) ? [link] : [link, make("span", { class: "host" }, " (" + url.host + ")")];
}

// The end of a span that began with `marker`: the next marker after a character that is not a space; -1: none.
/** @param {string} text @param {string} marker @param {number} from */
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
/** @typedef {{ end: number, nodes?: (Node | string)[] }} Inline */

/** @type {Record<string, (text: string, at: number, vain: Set<string>, depth: number) => Inline | null>} */
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

/** @param {string} text @param {number} at @param {Set<string>} vain */
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

// $x$: no space inside the dollars, and no digit after them, so that prices are not formulas.
/** @param {string} text @param {number} at @param {Set<string>} vain */
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

// A formula as it was written; typesetFormula typesets it.
/** @param {string} tex @param {string} written @param {boolean} display */
function formula(tex, written, display) {
    const node = make("span", { class: display ? "math display" : "math", dir: "ltr" }, written);
    node.dataset.tex = tex;
    return node;
}

/** @param {string} text @param {number} at @param {Set<string>} vain @param {number} depth */
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

/** @param {string} text @param {number} at @param {Set<string>} vain */
function takeCode(text, at, vain) {
    const ticks = /`+/g;
    ticks.lastIndex = at;
    const marker = ticks.exec(text)?.[0] ?? "`";
    const begin = at + marker.length;
    for (let found = vain.has(marker) ? null : ticks.exec(text); found; found = ticks.exec(text)) {
        if (found[0] === marker) {
            return { end: ticks.lastIndex, nodes: [make("code", {}, text.slice(begin, found.index))] };
        }
    }
    vain.add(marker);
    return { end: begin };
}

/** @param {string} text @param {number} at @param {Set<string>} vain @param {number} depth */
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

/** @param {string} text @param {number} at */
function takeLink(text, at) {
    LINK.lastIndex = at;
    const found = LINK.exec(text);
    const url = found && linkAddress(found[2]);
    return url ? { end: at + found[0].length, nodes: linkNodes(url, found[1] || url.href) } : null;
}

/** @param {string} text @param {number} at */
function takeBareLink(text, at) {
    BARE_LINK.lastIndex = at;
    const found = /\w/.test(text[at - 1] || " ") ? null : BARE_LINK.exec(text);
    const words = (found?.[0] ?? "").replace(/[.,;:!?]+$/, "");
    const url = found && linkAddress(words);
    return url ? { end: at + words.length, nodes: linkNodes(url, words) } : null;
}

/** @param {HTMLElement} parent @param {string} text @param {number} [depth] */
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

const MARKDOWN_DEPTH = 6;
const FORMULA_LINES_MAX = 100;
const LIST_ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])( {1,4}|$)/;

// ---- blocks --------------------------------------------------------------------------------------------------------

// Each parser reads lines from `at` on and returns a block {kind, end, ...}, where `end` is the line after it, or null.
/** @typedef {{ kind: string, end: number, begin: number, source: string, [member: string]: any }} Block */

/** @type {((lines: string[], at: number) => Record<string, any> | null)[]} */
const blockTakers = [takeFence, takeFormula, takeHeading, takeRule, takeQuote, takeList, takeTable];

/** @param {string[]} lines @param {number} at */
function takeFence(lines, at) {
    const open = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/.exec(lines[at]);
    if (!open) {
        return null;
    }
    const closing = new RegExp("^ {0,3}" + open[1][0] + "{" + open[1].length + ",}\\s*$");
    let end = at + 1;
    while (end < lines.length && !closing.test(lines[end])) {
        end++;
    }
    const language = open[2].trim().split(/\s/, 1)[0].slice(0, 30);
    return { kind: "code", end: Math.min(end + 1, lines.length), language, text: lines.slice(at + 1, end).join("\n") };
}

// A formula on lines of its own, between $$ and $$ or \\[ and \\].
/** @param {string[]} lines @param {number} at */
function takeFormula(lines, at) {
    const open = /^ {0,3}(\$\$|\\\[)/.exec(lines[at]);
    if (!open) {
        return null;
    }
    const close = open[1] === "$$" ? "$$" : "\\]";
    const most = Math.min(lines.length, at + FORMULA_LINES_MAX);
    for (let end = at; end < most && lines[end].trim() !== ""; end++) {
        const from = end === at ? open[0].length : 0;
        const found = lines[end].indexOf(close, from);
        if (found >= 0) {
            const whole = lines.slice(at, end + 1).join("\n");
            const isWhole = lines[end].slice(found + 2).trim() === "";
            const tex = whole.trim().slice(2, -2);
            return isWhole ? { kind: "formula", end: end + 1, tex, written: whole } : null;
        }
    }
    return null;
}

/** @param {string[]} lines @param {number} at */
function takeHeading(lines, at) {
    const found = /^ {0,3}(#{1,6})\s+(.*)$/.exec(lines[at]);
    return found && { kind: "heading", end: at + 1, level: found[1].length, text: found[2].replace(/\s+#+\s*$/, "") };
}

/** @param {string[]} lines @param {number} at */
function takeRule(lines, at) {
    return /^ {0,3}([-*_])( *\1){2,} *$/.test(lines[at]) ? { kind: "rule", end: at + 1 } : null;
}

/** @param {string[]} lines @param {number} at */
function takeQuote(lines, at) {
    let end = at;
    while (end < lines.length && /^ {0,3}>/.test(lines[end])) {
        end++;
    }
    return end === at
        ? null
        : { kind: "quote", end, lines: lines.slice(at, end).map(line => line.replace(/^ {0,3}> ?/, "")) };
}

// Items begin at the indent of the first one. Deeper lines, lines that follow without an empty line, and code blocks that
// begin so belong to the item.
/** @param {string[]} lines @param {number} at */
function takeList(lines, at) {
    const first = LIST_ITEM.exec(lines[at]);
    if (!first) {
        return null;
    }
    const indent = first[1].length;
    const inner = first[0].trimEnd().length + 1;
    const ordered = /\d/.test(first[2]);
    const items = [];
    let end = at;
    let empty = false;
    let fenced = false;
    for (; end < lines.length; end++) {
        const line = lines[end].replace(/^\t+/, tabs => "    ".repeat(tabs.length));
        const depth = line.search(/\S/);
        const item = fenced ? null : LIST_ITEM.exec(line);
        if (item && item[1].length <= indent + 1) {
            if (item[1].length < indent || /\d/.test(item[2]) !== ordered) {
                break;
            }
            items.push([line.slice(item[0].length)]);
        } else if (depth < 0 || depth > indent || fenced || !empty) {
            items[items.length - 1].push(line.slice(Math.max(0, Math.min(depth, inner))));
        } else {
            break;
        }
        fenced = fenced !== /^\s*(`{3,}|~{3,})[^`]*$/.test(line);
        empty = depth < 0;
    }
    return { kind: "list", end, ordered, start: ordered ? parseInt(first[2], 10) : 1, items };
}

/** @param {string} line */
const tableCells = line =>
    line
        .trim()
        .replace(/^\|/, "")
        .replace(/\|$/, "")
        .split("|")
        .map(cell => cell.trim());

/** @param {string[]} lines @param {number} at */
function takeTable(lines, at) {
    if (
        !lines[at].includes("|") ||
        at + 1 >= lines.length ||
        !/^\s*\|?[\s:|-]*-[\s:|-]*$/.test(lines[at + 1]) ||
        !lines[at + 1].includes("|")
    ) {
        return null;
    }
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|")) {
        end++;
    }
    const align = tableCells(lines[at + 1]).map(
        cell => (/^:.*:$/.test(cell) ? "center" : /:$/.test(cell) ? "end" : /^:/.test(cell) ? "start" : ""),
    );
    const rows = lines.slice(at + 2, end).map(tableCells);
    return { kind: "table", end, align, head: tableCells(lines[at]), rows };
}

/** @param {string[]} lines @param {number} at */
function takeBlock(lines, at) {
    for (const taker of blockTakers) {
        const block = taker(lines, at);
        if (block) {
            return block;
        }
    }
    return null;
}

/** @param {string[]} lines */
function markdownBlocks(lines) {
    /** @type {Block[]} */
    const blocks = [];
    /** @type {string[]} */
    let paragraph = [];
    let begin = 0; // the first line of the paragraph
    const close = () => {
        if (paragraph.length) {
            blocks.push({ kind: "paragraph", begin, end: begin + paragraph.length, text: paragraph.join("\n"), source: paragraph.join("\n") });
        }
        paragraph = [];
    };
    for (let at = 0; at < lines.length;) {
        const block = takeBlock(lines, at);
        if (block) {
            close();
            const { kind, end } = block;
            blocks.push({ ...block, kind, end, begin: at, source: lines.slice(at, end).join("\n") });
            at = end;
        } else {
            if (lines[at].trim() === "") {
                close();
            } else {
                begin = paragraph.length ? begin : at;
                paragraph.push(lines[at]);
            }
            at++;
        }
    }
    close();
    return blocks;
}

// Sets the text direction from the element's text. Only once it has its children: with each child that is added later
// the browser would scan all of them.
/** @param {HTMLElement} element */
function directed(element) {
    element.dir = "auto";
    return element;
}

/** @type {Record<string, (block: Block, depth: number, level?: number) => HTMLElement>} */
const blockMakers = {
    paragraph: (block, depth) => (depth ? inline(make("p"), block.text) : directed(inline(make("p"), block.text))),
    heading: (block, depth, level) =>
        directed(inline(make(/** @type {"p"} */ (depth ? "p" : "h" + level), { class: (depth ? "heading " : "") + "level-" + block.level }), block.text)),
    rule: () => make("hr"),
    quote: (block, depth) => directed(make("blockquote", {}, ...blockNodes(block.lines, depth + 1))),
    list: (block, depth) =>
        make(
            block.ordered ? "ol" : "ul",
            block.ordered ? { start: block.start } : {},
            ...block.items.map((/** @type {string[]} */ item) => listItem(item, depth + 1)),
        ),
    formula: block => make("p", {}, formula(block.tex, block.written, true)),
    code: block => {
        const copy = iconButton("copy", say("Copy the code"), () => copyText(block.text, copy));
        return make(
            "div",
            { class: "code", dir: "ltr" },
            make("div", { class: "code-head" }, make("span", {}, block.language || say("code")), copy),
            make("pre", { tabIndex: 0, "aria-label": say("Code") }, make("code", block.language ? { "data-language": block.language.toLowerCase() } : {}, block.text)),
        );
    },
    table: block =>
        make(
            "div",
            { class: "table", tabIndex: 0, role: "region", "aria-label": say("Table") },
            make(
                "table",
                {},
                make("thead", {}, tableRow("th", block.head, block.align)),
                make("tbody", {}, ...block.rows.map((/** @type {string[]} */ row) => tableRow("td", row, block.align))),
            ),
        ),
};

/** @param {"td" | "th"} tag @param {string[]} cells @param {string[]} align */
function tableRow(tag, cells, align) {
    /** @param {string} text @param {number} at */
    const cell = (text, at) => directed(inline(make(tag, align[at] ? { class: "to-" + align[at] } : {}), text));
    return make("tr", {}, ...cells.map(cell));
}

// An item that begins with [ ] or [x] is a task.
/** @param {string[]} lines @param {number} depth */
function listItem(lines, depth) {
    const task = /^\[([ xX])\] +(?=\S)/.exec(lines[0]);
    if (!task) {
        return directed(make("li", {}, ...blockNodes(lines, depth)));
    }
    const done = task[1] !== " ";
    const box = make("span", { class: "box", role: "img", "aria-label": done ? say("done") : say("to do") }, done ? "\u2611" : "\u2610");
    return directed(make("li", { class: "task" }, box, ...blockNodes([lines[0].slice(task[0].length), ...lines.slice(1)], depth)));
}

/** @param {string[]} lines @param {number} depth */
function blockNodes(lines, depth) {
    if (depth > MARKDOWN_DEPTH) {
        return [make("p", {}, lines.join("\n"))];
    }
    return markdownBlocks(lines).map(block => blockMakers[block.kind](block, depth));
}

// ---- rendering -----------------------------------------------------------------------------------------------------

const BLOCKS_SHOWN = 400; // of a long text, at its end; twice as many before the first of them are taken away
const PARAGRAPH_MAX = 8000; // characters of a paragraph: the browser lays it out again whenever it grows

/**
 * @typedef {object} Rendered what was drawn in a container
 * @property {string} text
 * @property {string[]} sources of its blocks
 * @property {number[]} places where the blocks begin in the text
 * @property {number[]} levels of the headings, after each block
 * @property {number} from the first block that has an element
 * @property {number} most how many blocks may have elements
 */

/** @type {WeakMap<HTMLElement, Rendered>} */
const rendered = new WeakMap();
/** @returns {Rendered} */
const nothingRendered = () => ({ text: "", sources: [], places: [], levels: [], from: 0, most: BLOCKS_SHOWN });

// The level of a heading on the page, below that of the message (2); it descends by one at a time, for screen readers.
/** @param {Block} block @param {number} before */
const headingLevel = (block, before) => (block.kind === "heading" ? Math.min(block.level + 2, before + 1, 6) : before);

// A long paragraph becomes several, each cut at a blank if there is one near its end.
/** @param {Block} block */
function cutParagraph(block) {
    if (block.kind !== "paragraph" || block.text.length <= PARAGRAPH_MAX) {
        return [block];
    }
    const parts = [];
    for (let at = 0, end = 0; at < block.text.length; at = end) {
        end = Math.min(at + PARAGRAPH_MAX, block.text.length);
        const blank = end < block.text.length ? block.text.slice(end - 1000, end).search(/\s\S*$/) : -1;
        end = blank >= 0 ? end - 1000 + blank + 1 : end;
        end -= end < block.text.length && /[\ud800-\udbff]/.test(block.text[end - 1]) ? 1 : 0;
        const text = block.text.slice(at, end);
        parts.push({ ...block, text, source: text });
    }
    return parts;
}

// The blocks of a text from `place` on, each with the place where it begins.
/** @param {string} text @param {number} place */
function placedBlocks(text, place) {
    const lines = text.slice(place).split("\n");
    let line = 0;
    let at = place;
    return markdownBlocks(lines).flatMap(block => {
        for (; line < block.begin; line++) {
            at += lines[line].length + 1;
        }
        return cutParagraph({ ...block, place: at });
    });
}

// Renders a text in a container. Blocks that have not changed keep their elements, so that a text may grow many times a
// second and a selection in its older part is kept. Of a text that only has grown, the last block and what follows are
// parsed again. With `trim` the first blocks of a very long text have no elements.
/** @param {HTMLElement} container @param {string} text @param {boolean} [trim] */
export function renderMarkdown(container, text, trim = true) {
    const clean = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    const last = rendered.get(container) ?? nothingRendered();
    const place = clean.startsWith(last.text) ? (last.places.at(-1) ?? 0) : 0;
    const n_kept = place ? last.places.indexOf(place) : 0;
    const blocks = placedBlocks(clean, place);
    const total = n_kept + blocks.length;
    const sources = [...last.sources.slice(0, n_kept), ...blocks.map(block => block.kind + block.source)];
    let same = n_kept;
    while (same < total && sources[same] === last.sources[same]) {
        same++;
    }
    const before = Math.min(last.from, same);
    const from = trim && total - before > 2 * last.most ? total - last.most : before;
    while (container.children.length > Math.max(0, same - before)) {
        container.lastChild?.remove();
    }
    for (let at = before; at < from && container.firstChild; at++) {
        container.firstChild.remove();
    }
    const levels = last.levels.slice(0, same);
    for (const [at, block] of blocks.entries()) {
        if (n_kept + at >= same) {
            levels.push(headingLevel(block, levels.at(-1) ?? 2));
        }
        if (n_kept + at >= Math.max(same, from)) {
            container.append(blockMakers[block.kind](block, 0, levels.at(-1)));
        }
    }
    const places = [...last.places.slice(0, n_kept), ...blocks.map(block => block.place)];
    rendered.set(container, { ...last, text: clean, sources, places, levels, from });
}

// How many blocks at the beginning have no elements.
/** @param {HTMLElement} container */
export const blocksBefore = container => rendered.get(container)?.from ?? 0;

/** @param {HTMLElement} container */
export function renderMoreBefore(container) {
    const { text, most } = rendered.get(container) ?? nothingRendered();
    rendered.set(container, { ...nothingRendered(), most: 2 * most });
    container.replaceChildren();
    renderMarkdown(container, text);
}

const CODE_MAX = 100000; // characters of code that are coloured
const TEX_MAX = 5000;

/** @type {Map<string, Promise<any>>} */
const libraries = new Map(); // path: promise of the library's global object, or of null

/** @param {string} path @param {string} name */
function loadScript(path, name) {
    return new Promise(resolve => {
        const script = make("script", { src: path });
        script.addEventListener("load", () => resolve(/** @type {any} */ (window)[name] ?? null));
        script.addEventListener("error", () => resolve(null));
        document.head.append(script);
    });
}

// The library's global object; null: the server does not have it.
/** @param {string} path @param {string} name */
function loadLibrary(path, name) {
    if (!libraries.has(path)) {
        libraries.set(
            path,
            serverFeatures().then(
                ({ libraries: paths }) => (paths.includes(path) ? loadScript(path, name) : null),
                () => null,
            ),
        );
    }
    return libraries.get(path);
}

// ---- code ----------------------------------------------------------------------------------------------------------

// Copies text and coloured spans of parsed HTML, which is in a document of its own and never runs.
/** @param {HTMLElement} target @param {Node} source */
function copyColours(target, source) {
    for (const node of source.childNodes) {
        if (node instanceof Text) {
            target.append(node.data);
        } else if (node instanceof HTMLSpanElement) {
            const kinds = [...node.classList].filter(kind => kind.startsWith("hljs-"));
            target.append(copyColours(make("span", { class: kinds.join(" ") }), node));
        }
    }
    return target;
}

/** @param {HTMLElement} code */
async function colourCode(code) {
    const text = code.textContent;
    if (text.length > CODE_MAX) {
        return;
    }
    const hljs = await loadLibrary("/highlight.js", "hljs");
    const language = code.dataset.language;
    if (!hljs?.getLanguage(language) || code.textContent !== text) {
        return;
    }
    const html = hljs.highlight(language, text, true).value;
    const parsed = new DOMParser().parseFromString(html, "text/html").body;
    if (parsed.textContent === text) {
        code.replaceChildren(...copyColours(make("code"), parsed).childNodes);
    }
}

// ---- formulas ------------------------------------------------------------------------------------------------------

/** @param {HTMLElement} node */
async function typesetFormula(node) {
    const tex = node.dataset.tex ?? "";
    if (tex.length > TEX_MAX) {
        return;
    }
    const katex = await loadLibrary("/katex.js", "katex");
    if (!katex || node.dataset.tex !== tex) {
        return;
    }
    const options = {
        output: "mathml",
        displayMode: node.classList.contains("display"),
        throwOnError: true,
        trust: false,
        strict: "ignore",
        maxExpand: 500,
        maxSize: 20,
    };
    const made = make("span");
    try {
        katex.render(tex, made, options);
    } catch {
        return; // it stays as it was written
    }
    if (!made.querySelector("a, img, script, [href], [src]")) {
        node.title = tex;
        node.replaceChildren(...made.childNodes);
    }
}

// ---- what is seen --------------------------------------------------------------------------------------------------

const DECORATED = "code[data-language], .math";

const seen = new IntersectionObserver(
    entries => {
        for (const { isIntersecting, target } of entries) {
            if (isIntersecting) {
                seen.unobserve(target);
                (target.classList.contains("math") ? typesetFormula : colourCode)(/** @type {HTMLElement} */ (target));
            }
        }
    },
    { rootMargin: "400px" },
);

const decorated = new WeakSet(); // blocks

// Colours and typesets the new blocks when they come into sight; not the last one while it still grows.
/** @param {HTMLElement} container @param {boolean} growing */
export function decorateBlocks(container, growing) {
    const last = container.lastElementChild;
    for (let block = growing ? last?.previousElementSibling : last; block && !decorated.has(block); block = block.previousElementSibling) {
        decorated.add(block);
        for (const part of block.querySelectorAll(DECORATED)) {
            seen.observe(part);
        }
    }
}
