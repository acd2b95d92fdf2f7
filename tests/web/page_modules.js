// The page's files: all are served, the modules import each other without a cycle, and TypeScript finds nothing in their types,
// which are JSDoc comments. The type of byId(id) comes from page.html: an id that does not exist there is a mistake, and so is a
// property that the element does not have.
"use strict";
const { execFile } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { PAGE_FOLDER, answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

// ---- types ----------------------------------------------------------------------------------------------------------

// The tags whose elements have a type with another name.
const ELEMENT_TYPES = {
    a: "HTMLAnchorElement",
    button: "HTMLButtonElement",
    details: "HTMLDetailsElement",
    dialog: "HTMLDialogElement",
    form: "HTMLFormElement",
    input: "HTMLInputElement",
    progress: "HTMLProgressElement",
    select: "HTMLSelectElement",
    svg: "SVGSVGElement",
    symbol: "SVGSymbolElement",
    table: "HTMLTableElement",
    textarea: "HTMLTextAreaElement",
};

// The declaration of PageElements: the type of each element of page.html that has an id.
function elementTypes(html) {
    const rows = [...html.matchAll(/<([a-z0-9]+)\b[^>]*? id="([^"]+)"/g)].map(
        ([, tag, id]) => `    "${id}": ${ELEMENT_TYPES[tag] ?? "HTMLElement"};`,
    );
    return `interface PageElements {\n${rows.join("\n")}\n}\n`;
}

// What TypeScript finds in the modules of `folder`, one line each. Meanwhile connections to the server that it closes are noticed.
async function mistakes(folder) {
    const work = fs.mkdtempSync(path.join(process.env.WEB_FOLDER, "types-"));
    try {
        fs.writeFileSync(path.join(work, "elements.d.ts"), elementTypes(fs.readFileSync(path.join(folder, "page.html"), "utf8")));
        const config = {
            compilerOptions: {
                allowJs: true,
                checkJs: true,
                lib: ["esnext", "dom", "dom.iterable", "dom.asynciterable"],
                module: "esnext",
                noEmit: true,
                useUnknownInCatchVariables: false,
                noUnusedLocals: true,
                strict: true,
                target: "esnext",
                types: [],
            },
            files: ["elements.d.ts", path.join(folder, "page.js")],
        };
        fs.writeFileSync(path.join(work, "tsconfig.json"), JSON.stringify(config));
        const tsc = require.resolve("typescript/bin/tsc");
        const [code, text] = await new Promise(resolve => {
            execFile(process.execPath, [tsc, "--pretty", "false", "-p", work], { cwd: folder, maxBuffer: 1 << 26 }, (error, stdout) =>
                resolve([error?.code ?? 0, stdout]),
            );
        });
        assert.ok(code <= 2, text); // tsc ended by itself; with mistakes its code is 1 or 2
        return text.split("\n").filter(Boolean);
    } finally {
        fs.rmSync(work, { recursive: true });
    }
}

test("the types of the modules are right", async () => {
    assert.deepEqual(await mistakes(PAGE_FOLDER), []);
});

test("the types find a wrong id, a wrong property and a missing argument", async () => {
    const folder = fs.mkdtempSync(path.join(process.env.WEB_FOLDER, "wrong-"));
    const script = [
        'import { byId, toast } from "./dom.js";',
        'byId("no-such-id").focus();',
        'byId("send").checked = true;',
        "toast();",
    ];
    try {
        for (const name of fs.readdirSync(PAGE_FOLDER).filter(one => /\.(js|html)$/.test(one))) {
            fs.copyFileSync(path.join(PAGE_FOLDER, name), path.join(folder, name));
        }
        fs.writeFileSync(path.join(folder, "page.js"), script.join("\n"));
        const lines = (await mistakes(folder)).map(line => Number(/^page\.js\((\d+),/.exec(line)?.[1]));
        assert.deepEqual([...new Set(lines.filter(line => line > 0))], [2, 3, 4]);
    } finally {
        fs.rmSync(folder, { recursive: true });
    }
});

// ---- files ----------------------------------------------------------------------------------------------------------

const TYPES = { ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".json": "application/json" };

// The files of a folder and the folders in it, as paths.
const filesIn = (folder, before = "") =>
    fs
        .readdirSync(folder, { withFileTypes: true })
        .flatMap(one => (one.isDirectory() ? filesIn(path.join(folder, one.name), before + one.name + "/") : [before + one.name]));

test("every file of the page is served as it is, with its type", async world => {
    const names = filesIn(PAGE_FOLDER).filter(name => path.extname(name) in TYPES);
    assert.ok(names.length > 20);
    for (const name of names) {
        const answer = await fetch(world.url + "/" + (name === "page.html" ? "" : name));
        assert.equal(answer.status, 200, name);
        assert.equal(answer.headers.get("content-type"), TYPES[path.extname(name)] + "; charset=utf-8", name);
        assert.match(answer.headers.get("content-security-policy"), /default-src 'none'; script-src 'self';/, name);
        assert.equal(await answer.text(), fs.readFileSync(path.join(PAGE_FOLDER, name), "utf8"), name);
    }
});

const importsOf = name =>
    [...fs.readFileSync(path.join(PAGE_FOLDER, name), "utf8").matchAll(/^(?:import|\}) [^;]*?from "\.\/([^"]+)";$/gms)].map(([, other]) => other);

test("the modules import each other without a cycle, and page.html names all of them", async () => {
    const seen = new Set();
    const visit = (name, before) => {
        assert.ok(!before.includes(name), [...before, name].join(" > "));
        if (!seen.has(name)) {
            importsOf(name).forEach(other => visit(other, [...before, name]));
            seen.add(name);
        }
    };
    visit("page.js", []);
    const html = fs.readFileSync(path.join(PAGE_FOLDER, "page.html"), "utf8");
    const named = [...html.matchAll(/(?:modulepreload" href|module" src)="\/([^"]+)"/g)].map(([, name]) => name);
    assert.deepEqual(named.sort(), [...seen].sort());
    const scripts = fs.readdirSync(PAGE_FOLDER).filter(name => name.endsWith(".js") && name !== "microphone.js");
    assert.deepEqual(scripts.sort(), [...seen].sort());
});

test("a server without the libraries is asked for none, and the console stays empty", async world => {
    const page = await openPage(world, { before: madeUp("```c\nint x;\n```\n\nand $x^2$") });
    const loaded = [];
    page.on("request", request => loaded.push(new URL(request.url()).pathname));
    await page.route("**/page.json", route => route.fulfill({ json: { libraries: [], chats: false, pull: false } }));
    await page.reload();
    await send(page, "go");
    await answered(page);
    await page.evaluate(() => new Promise(resolve => setTimeout(resolve, 200)));
    assert.deepEqual(loaded.filter(one => /highlight|katex/.test(one)), []);
    assert.equal(await page.textContent(".code code"), "int x;");
    assert.deepEqual(page.logged, []);
    await closePage(page);
});

test("a translation that cannot be loaded leaves the page in English", async world => {
    const page = await openPage(world, { locale: "de-DE" });
    await page.waitForSelector('#send:not([aria-label="Send"])', { state: "attached" });
    await page.route("**/translations/de.json", route => route.abort());
    await page.reload();
    await page.waitForSelector("#model option", { state: "attached" });
    assert.equal(await page.getAttribute("#send", "aria-label"), "Send");
    await closePage(page);
});
