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

const rendered = new WeakMap(); // of a container: {text, sources, levels, lastLine}

// The level of a heading on the page, below that of the message (2); it descends by one at a time, for screen readers.
const headingLevel = (block, before) => (block.kind === "heading" ? Math.min(block.level + 2, before + 1, 6) : before);

// Renders a text in a container. Blocks that have not changed keep their elements, so that a text may grow many times a
// second and a selection in its older part is kept. Of a text that only has grown, the last block and what follows are
// parsed again. Returns how many blocks in front have not changed since the last call.
function renderMarkdown(container, text) {
    const clean = text.replace(/\r\n?/g, "\n");
    const last = rendered.get(container) ?? { text: "", sources: [], levels: [] };
    const grown = last.sources.length > 1 && clean.startsWith(last.text);
    const kept = grown ? last.sources.slice(0, -1) : [];
    const lines = clean.split("\n");
    const from = grown ? last.lastLine : 0;
    const blocks = markdownBlocks(lines.slice(from));
    let same = kept.length;
    for (const block of blocks) {
        if (last.sources[same] !== block.kind + block.source) {
            break;
        }
        same++;
    }
    while (container.children.length > same) {
        container.lastChild.remove();
    }
    const levels = last.levels.slice(0, same);
    for (const block of blocks.slice(same - kept.length)) {
        levels.push(headingLevel(block, levels.at(-1) ?? 2));
        container.append(blockMakers[block.kind](block, 0, levels.at(-1)));
    }
    const sources = [...kept, ...blocks.map(block => block.kind + block.source)];
    const lastLine = blocks.length ? from + blocks.at(-1).begin : from;
    rendered.set(container, { text: clean, sources, levels, lastLine });
    return same;
}
