// How answers look: coloured code, formulas, tables, tasks; with and without the libraries; hostile ones.
"use strict";
const { answered, assert, closePage, madeUp, openPage, send, skip, test } = require("./page_support.js");

async function withAnswer(world, text, options = {}) {
    const page = await openPage(world, { before: madeUp(text, options), ...options.page });
    await send(page, "go");
    await answered(page);
    return page;
}

// Whether the program was built with the library.
async function has(world, path) {
    return (await fetch(world.url + path)).ok;
}

const CODE = "Some code:\n\n```c\nint main(void) { return 42; } // <b>end</b>\n```\n\nand `x`";
const TEX = "Inline $x^2 + \\frac{1}{2}$ and \\(\\alpha\\).\n\n$$\n\\sum_{i=1}^n i\n$$\n\nIt costs $5 and $6.";

test("code is coloured when it is complete, and stays the same text", async world => {
    if (!(await has(world, "/highlight.js"))) {
        skip("the program was built without libjs-highlight.js");
    }
    const page = await withAnswer(world, CODE);
    await page.waitForSelector(".code .hljs-keyword");
    assert.equal(await page.textContent(".code code"), "int main(void) { return 42; } // <b>end</b>");
    assert.equal(await page.locator(".code b, .code [style]").count(), 0);
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.click(".code [title='Copy the code']");
    await page.waitForSelector(".code use[href='#i-done']");
    assert.equal(
        await page.evaluate(() => navigator.clipboard.readText()),
        "int main(void) { return 42; } // <b>end</b>",
    );
    await closePage(page);
});

test("formulas are typeset, prices are not", async world => {
    if (!(await has(world, "/katex.js"))) {
        skip("the program was built without libjs-katex");
    }
    const page = await withAnswer(world, TEX);
    await page.waitForFunction(() => document.querySelectorAll(".math math").length === 3);
    assert.equal(await page.locator(".math.display math").count(), 1);
    assert.match(await page.locator(".text p").last().innerText(), /It costs \$5 and \$6\./);
    await closePage(page);
});

test("the libraries are loaded only when they are needed, and the page works without them", async world => {
    const plain = await openPage(world, { before: madeUp("Just words and `code`.") });
    const loaded = [];
    plain.on("request", request => loaded.push(new URL(request.url()).pathname));
    await send(plain, "go");
    await answered(plain);
    assert.deepEqual(
        loaded.filter(path => /highlight|katex/.test(path)),
        [],
    );
    await closePage(plain);
    const page = await openPage(world, { before: madeUp(CODE + "\n\n" + TEX) });
    await page.route(/highlight\.js|katex\.js/, route => route.fulfill({ status: 404, body: "" }));
    const refused = ["highlight", "katex"].map(name => page.waitForResponse(answer => answer.url().includes(name)));
    await send(page, "go");
    await answered(page);
    await Promise.all(refused);
    assert.equal(await page.textContent(".code code"), "int main(void) { return 42; } // <b>end</b>");
    assert.match(await page.textContent(".text"), /Inline \$x\^2 \+ \\frac\{1\}\{2\}\$ and \\\(\\alpha\\\)/);
    await closePage(page);
});

test("tables are aligned, tasks have boxes, struck text is struck, mermaid is code", async world => {
    const text =
        "| a | b | c |\n|:--|:-:|--:|\n| 1 | 2 | 3 |\n\n- [x] done\n- [ ] to do\n- [link](https://example.com)\n\n~~gone~~ and ~kept~\n\n" +
        "```mermaid\ngraph TD\n```";
    const page = await withAnswer(world, text);
    const align = await page
        .locator(".table td")
        .evaluateAll(cells => cells.map(cell => getComputedStyle(cell).textAlign));
    assert.deepEqual(align, ["start", "center", "end"]);
    assert.deepEqual(
        await page.locator(".task .box").evaluateAll(boxes => boxes.map(box => box.getAttribute("aria-label"))),
        ["done", "to do"],
    );
    assert.equal(await page.textContent("del"), "gone");
    assert.match(await page.textContent(".text"), /~kept~/);
    assert.equal(await page.textContent(".code code"), "graph TD");
    await closePage(page);
});

test("hostile code and formulas run nothing and fetch nothing", async world => {
    const attacks = [
        "$\\href{javascript:window.hit=1}{x}$ $\\url{javascript:alert(1)}$ $\\includegraphics{https://example.com/a.png}$",
        "$\\htmlClass{x}{y}$ $\\htmlData{a=b}{y}$ $\\htmlStyle{color:red}{y}$",
        "$\\def\\a{\\a\\a}\\a$ $\\rule{1000000em}{1000000em}$ $" + "{".repeat(2000) + "$",
        "```html\n<script>window.hit=1</script><img src=x onerror=window.hit=1>\n```\n\n```xml\n<![CDATA[<script>]]>\n```",
        "```constructor\nx\n```\n\n```__proto__\nx\n```\n\n```../../etc\nx\n```",
    ];
    const page = await openPage(world, { before: madeUp(attacks) });
    for (const attack of attacks) {
        await page.click("#new-chat");
        await send(page, attack.slice(0, 100));
        await answered(page);
        assert.equal(await page.evaluate(() => window.hit), undefined);
        assert.equal(await page.locator(".text a, .text img, .text script, .text iframe").count(), 0);
    }
    await closePage(page);
});

test("the policy of the page is enforced by the browser", async world => {
    const page = await openPage(world, { before: madeUp("x") });
    const results = await page.evaluate(async () => {
        const script = document.createElement("script");
        script.textContent = "window.hit = 1";
        document.body.append(script);
        const tried = await fetch("https://example.com/").then(
            () => "fetched",
            () => "refused",
        );
        const image = await new Promise(resolve => {
            const one = new Image();
            one.onload = () => resolve("loaded");
            one.onerror = () => resolve("refused");
            one.src = "https://example.com/a.png";
        });
        const frame = document.createElement("iframe");
        frame.src = "https://example.com/";
        document.body.append(frame);
        return [window.hit, tried, image];
    });
    assert.deepEqual(results, [undefined, "refused", "refused"]);
    assert.ok(page.faults.length >= 3, page.faults.join("\n"));
    await page.context().close();
});

test("a growing answer keeps its finished blocks, and ends as one that came at once", async world => {
    const text =
        "# Head\n\nPara one\nline two\n\n- a\n- b\n\n  more\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nlet x;\n\nlet y;\n```\n\n" +
        "> quote\n\n1. one\n\n   two\n\nText | with | bars\nend **bold** $x$\n\n$$\nx\n$$\n\nlast";
    const shape = page =>
        page.locator(".assistant .text").evaluate(root => {
            const clone = root.cloneNode(true);
            clone.querySelectorAll("math, .hljs-keyword").forEach(one => one.remove());
            return [...clone.children].map(one => one.outerHTML.replace(/<span class="math.*?<\/span>/gs, "M"));
        });
    const whole = await withAnswer(world, text, { size: 1e6 });
    const grown = await openPage(world, { before: madeUp(text, { size: 1, delay: 1 }) });
    await send(grown, "go");
    await grown.waitForSelector(".text h3 + *"); // the heading itself grows until the next block begins
    await grown.evaluate(() => {
        document.querySelector(".text h3").kept = true;
    });
    await answered(grown);
    assert.equal(await grown.evaluate(() => document.querySelector(".text h3").kept), true);
    const clean = list => list.map(html => html.replace(/<span class="hljs[^>]*>|<\/span>/g, ""));
    assert.deepEqual(clean(await shape(grown)), clean(await shape(whole)));
    await closePage(whole);
    await closePage(grown);
});
