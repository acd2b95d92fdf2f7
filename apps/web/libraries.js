// Code is coloured by highlight.js and formulas are typeset by KaTeX, as MathML. The server has both when they were there when
// it was built; they are loaded when an answer first needs them. Without them code and TeX are shown as they are. What they
// return is not trusted: only their elements for colours, and MathML without links, get into the page.

const CODE_MAX = 100000; // characters of code that are coloured
const TEX_MAX = 5000;

const libraries = new Map();

// The library's global object; null: the server does not have it.
function loadLibrary(path, name) {
    if (!libraries.has(path)) {
        libraries.set(
            path,
            new Promise(resolve => {
                const script = make("script", { src: path });
                script.addEventListener("load", () => resolve(window[name] ?? null));
                script.addEventListener("error", () => resolve(null));
                document.head.append(script);
            }),
        );
    }
    return libraries.get(path);
}

// ---- code -----------------------------------------------------------------------------------------------------------

// Copies text and coloured spans of parsed HTML, which is in a document of its own and never runs.
function copyColours(target, source) {
    for (const node of source.childNodes) {
        if (node.nodeType === Node.TEXT_NODE) {
            target.append(node.data);
        } else if (node.nodeName === "SPAN") {
            const kinds = [...node.classList].filter(kind => kind.startsWith("hljs-"));
            target.append(copyColours(make("span", { class: kinds.join(" ") }), node));
        }
    }
    return target;
}

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

// ---- formulas -------------------------------------------------------------------------------------------------------

async function typesetFormula(node) {
    const tex = node.dataset.tex;
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

// ---- what is seen ---------------------------------------------------------------------------------------------------

const DECORATED = "code[data-language], .math";

const seen = new IntersectionObserver(
    entries => {
        for (const { isIntersecting, target } of entries) {
            if (isIntersecting) {
                seen.unobserve(target);
                (target.classList.contains("math") ? typesetFormula : colourCode)(target);
            }
        }
    },
    { rootMargin: "400px" },
);

const decorated = new WeakSet(); // blocks

// Colours and typesets the new blocks when they come into sight; not the last one while it still grows.
function decorateBlocks(container, growing) {
    const last = container.lastElementChild;
    for (let block = growing ? last?.previousElementSibling : last; block && !decorated.has(block); block = block.previousElementSibling) {
        decorated.add(block);
        for (const part of block.querySelectorAll(DECORATED)) {
            seen.observe(part);
        }
    }
}
