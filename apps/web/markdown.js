// A small part of markdown, as DOM nodes: paragraphs, headings, lists, quotes, code, tables, rules; in a line: code,
// bold, italic, links. Anything else is shown as written. The model's text is not trusted: it only becomes text nodes,
// links only lead to http and https, nothing is fetched, and the time is linear in its length, because a search that
// failed is not repeated.

const MARKDOWN_DEPTH = 6;
const LIST_ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])( {1,4}|$)/;

// ---- blocks ---------------------------------------------------------------------------------------------------------

// Each parser reads lines from `at` on and returns a block {kind, end, ...}, where `end` is the line after it, or null.
const blockTakers = [takeFence, takeHeading, takeRule, takeQuote, takeList, takeTable];

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
    return { kind: "table", end, head: tableCells(lines[at]), rows: lines.slice(at + 2, end).map(tableCells) };
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
    const close = () => {
        if (paragraph.length) {
            blocks.push({ kind: "paragraph", text: paragraph.join("\n"), source: paragraph.join("\n") });
        }
        paragraph = [];
    };
    for (let at = 0; at < lines.length;) {
        const block = takeBlock(lines, at);
        if (block) {
            close();
            block.source = lines.slice(at, block.end).join("\n");
            blocks.push(block);
            at = block.end;
        } else {
            if (lines[at].trim() === "") {
                close();
            } else {
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
    heading: block => directed(inline(make("h" + Math.min(block.level + 2, 6)), block.text)),
    rule: () => make("hr"),
    quote: (block, depth) => directed(make("blockquote", {}, ...blockNodes(block.lines, depth + 1))),
    list: (block, depth) =>
        make(
            block.ordered ? "ol" : "ul",
            block.ordered ? { start: block.start } : {},
            ...block.items.map(item => directed(make("li", {}, ...blockNodes(item, depth + 1)))),
        ),
    code: block => {
        const copy = iconButton("copy", "Copy the code", () => copyText(block.text, copy));
        return make(
            "div",
            { class: "code", dir: "ltr" },
            make("div", { class: "code-head" }, make("span", {}, block.language || "code"), copy),
            make("pre", { tabIndex: 0, "aria-label": "Code" }, make("code", {}, block.text)),
        );
    },
    table: block =>
        make(
            "div",
            { class: "table", tabIndex: 0, role: "region", "aria-label": "Table" },
            make(
                "table",
                {},
                make("thead", {}, tableRow("th", block.head)),
                make("tbody", {}, ...block.rows.map(row => tableRow("td", row))),
            ),
        ),
};

function tableRow(tag, cells) {
    return make("tr", {}, ...cells.map(cell => directed(inline(make(tag), cell))));
}

function blockNodes(lines, depth) {
    if (depth > MARKDOWN_DEPTH) {
        return [make("p", {}, lines.join("\n"))];
    }
    return markdownBlocks(lines).map(block => blockMakers[block.kind](block, depth));
}

// ---- inside a line --------------------------------------------------------------------------------------------------

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
    "\\": (text, at) => (/[!-/:-@[-`{-~]/.test(text[at + 1] || "") ? { end: at + 2, nodes: [text[at + 1]] } : null),
    "`": takeCode,
    "*": takeEmphasis,
    _: takeEmphasis,
    "[": takeLink,
    "!": takeLink,
    h: takeBareLink,
};

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
    const special = /[\\`*_[!h]/g;
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

// ---- rendering ------------------------------------------------------------------------------------------------------

const blockSources = new WeakMap();

// Renders a text in a container. Blocks that have not changed keep their elements, so that a text may grow many times a
// second and a selection in its older part is kept.
function renderMarkdown(container, text) {
    const blocks = markdownBlocks(text.replace(/\r\n?/g, "\n").split("\n"));
    let same = 0;
    while (
        same < blocks.length &&
        same < container.children.length &&
        blockSources.get(container.children[same]) === blocks[same].kind + blocks[same].source
    ) {
        same++;
    }
    while (container.children.length > same) {
        container.lastChild.remove();
    }
    for (const block of blocks.slice(same)) {
        const node = blockMakers[block.kind](block, 0);
        blockSources.set(node, block.kind + block.source);
        container.append(node);
    }
}
