// A small part of markdown, as DOM nodes: paragraphs, headings, lists, tasks, quotes, code, formulas, tables, rules;
// markdown_inline.js has what stands inside a line. Anything else is shown as written. The model's text is not trusted: it only becomes text nodes,
// links only lead to http and https, nothing is fetched, and the time is linear in its length, because a search that
// failed is not repeated.

const MARKDOWN_DEPTH = 6;
const FORMULA_LINES_MAX = 100;
const LIST_ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])( {1,4}|$)/;

// ---- blocks ---------------------------------------------------------------------------------------------------------

// Each parser reads lines from `at` on and returns a block {kind, end, ...}, where `end` is the line after it, or null.
const blockTakers = [takeFence, takeFormula, takeHeading, takeRule, takeQuote, takeList, takeTable];

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

function takeHeading(lines, at) {
    const found = /^ {0,3}(#{1,6})\s+(.*)$/.exec(lines[at]);
    return found && { kind: "heading", end: at + 1, level: found[1].length, text: found[2].replace(/\s+#+\s*$/, "") };
}

function takeRule(lines, at) {
    return /^ {0,3}([-*_])( *\1){2,} *$/.test(lines[at]) ? { kind: "rule", end: at + 1 } : null;
}

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

const tableCells = line =>
    line
        .trim()
        .replace(/^\|/, "")
        .replace(/\|$/, "")
        .split("|")
        .map(cell => cell.trim());

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

function takeBlock(lines, at) {
    for (const taker of blockTakers) {
        const block = taker(lines, at);
        if (block) {
            return block;
        }
    }
    return null;
}

function markdownBlocks(lines) {
    const blocks = [];
    let paragraph = [];
    let begin = 0; // the first line of the paragraph
    const close = () => {
        if (paragraph.length) {
            blocks.push({ kind: "paragraph", begin, text: paragraph.join("\n"), source: paragraph.join("\n") });
        }
        paragraph = [];
    };
    for (let at = 0; at < lines.length;) {
        const block = takeBlock(lines, at);
        if (block) {
            close();
            block.begin = at;
            block.source = lines.slice(at, block.end).join("\n");
            blocks.push(block);
            at = block.end;
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
function directed(element) {
    element.dir = "auto";
    return element;
}

const blockMakers = {
    paragraph: (block, depth) => (depth ? inline(make("p"), block.text) : directed(inline(make("p"), block.text))),
    heading: (block, depth, level) =>
        directed(inline(make(depth ? "p" : "h" + level, { class: (depth ? "heading " : "") + "level-" + block.level }), block.text)),
    rule: () => make("hr"),
    quote: (block, depth) => directed(make("blockquote", {}, ...blockNodes(block.lines, depth + 1))),
    list: (block, depth) =>
        make(
            block.ordered ? "ol" : "ul",
            block.ordered ? { start: block.start } : {},
            ...block.items.map(item => listItem(item, depth + 1)),
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
                make("tbody", {}, ...block.rows.map(row => tableRow("td", row, block.align))),
            ),
        ),
};

function tableRow(tag, cells, align) {
    const cell = (text, at) => directed(inline(make(tag, align[at] ? { class: "to-" + align[at] } : {}), text));
    return make("tr", {}, ...cells.map(cell));
}

// An item that begins with [ ] or [x] is a task.
function listItem(lines, depth) {
    const task = /^\[([ xX])\] +(?=\S)/.exec(lines[0]);
    if (!task) {
        return directed(make("li", {}, ...blockNodes(lines, depth)));
    }
    const done = task[1] !== " ";
    const box = make("span", { class: "box", role: "img", "aria-label": done ? say("done") : say("to do") }, done ? "\u2611" : "\u2610");
    return directed(make("li", { class: "task" }, box, ...blockNodes([lines[0].slice(task[0].length), ...lines.slice(1)], depth)));
}

function blockNodes(lines, depth) {
    if (depth > MARKDOWN_DEPTH) {
        return [make("p", {}, lines.join("\n"))];
    }
    return markdownBlocks(lines).map(block => blockMakers[block.kind](block, depth));
}

// ---- rendering ------------------------------------------------------------------------------------------------------

const BLOCKS_SHOWN = 400; // of a long text, at its end; twice as many before the first of them are taken away
const PARAGRAPH_MAX = 8000; // characters of a paragraph: the browser lays it out again whenever it grows

// Of a container: the text, and of each of its blocks the source, where it begins, and the level of headings behind it; the
// first block that has an element, and how many may have one.
const rendered = new WeakMap();
const nothingRendered = () => ({ text: "", sources: [], places: [], levels: [], from: 0, most: BLOCKS_SHOWN });

// The level of a heading on the page, below that of the message (2); it descends by one at a time, for screen readers.
const headingLevel = (block, before) => (block.kind === "heading" ? Math.min(block.level + 2, before + 1, 6) : before);

// A long paragraph becomes several, each cut at a blank if there is one near its end.
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
function renderMarkdown(container, text, trim = true) {
    const clean = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    const last = rendered.get(container) ?? nothingRendered();
    const place = last.places.length && clean.startsWith(last.text) ? last.places.at(-1) : 0;
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
        container.lastChild.remove();
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
const blocksBefore = container => rendered.get(container)?.from ?? 0;

function renderMoreBefore(container) {
    const { text, most } = rendered.get(container);
    rendered.set(container, { ...nothingRendered(), most: 2 * most });
    container.replaceChildren();
    renderMarkdown(container, text);
}
