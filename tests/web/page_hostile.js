// Text of a model is text: nothing in it runs, loads, leads astray or breaks the page.
"use strict";
const { PHONE, answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

const ATTACKS = [
    "<script>window.hit = 1</script>",
    '<img src=x onerror="window.hit = 1">',
    "<svg onload=window.hit=1><iframe src=javascript:alert(1)></iframe>",
    "```html\n<script>window.hit = 1</script>\n</code></pre><script>window.hit = 1</script>\n```",
    "```<script>window.hit=1</script>\ncode\n```",
    "`<img src=x onerror=alert(1)>` **<b onmouseover=alert(1)>** [<img src=x onerror=alert(1)>](https://example.com)",
    "| <script>window.hit=1</script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | c |",
    "# <style>*{display:none}</style>\n> <link rel=stylesheet href=//example.com>\n- <meta http-equiv=refresh content=0>",
    "![picture](https://example.com/track.png) ![x](data:image/png;base64,AAAA)",
    "&lt;script&gt; &#60;script&#62; \u0000 \ufffe \ud800",
];
const BAD_LINKS = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\tscript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:x",
    "//example.com",
    "/settings",
    "https://user:pass@example.com",
    "https:",
    "ftp://example.com",
];

// Answers with a text and gives the elements that the answer became.
async function elementsOf(page) {
    return page
        .locator(".assistant .text *")
        .evaluateAll(all => [...new Set(all.map(one => one.tagName.toLowerCase()))]);
}

test("html in an answer is shown, not obeyed", async world => {
    const allowed = new Set(
        "p h3 h4 h5 h6 ul ol li blockquote hr div span pre code table thead tbody tr th td strong em del a button svg use".split(
            " ",
        ),
    );
    const page = await openPage(world, { before: madeUp(ATTACKS, { reasoning: ATTACKS.join("\n") }) });
    for (const attack of ATTACKS) {
        await page.click("#new-chat");
        await send(page, attack);
        await answered(page);
        for (const tag of await elementsOf(page)) {
            assert.ok(allowed.has(tag), tag + " from " + attack);
        }
        assert.equal(await page.evaluate(() => window.hit), undefined);
        assert.equal(await page.locator(".reasoning div *, .bubble *, #chats img, #chats script").count(), 0);
        const attributes = await page
            .locator(".assistant .text *")
            .evaluateAll(all => all.flatMap(one => one.getAttributeNames()));
        assert.deepEqual(
            attributes.filter(name => name.startsWith("on") || name === "style" || name === "src"),
            [],
        );
    }
    await closePage(page);
});

test("links lead to http and https only, and say where", async world => {
    const text =
        BAD_LINKS.map(link => `[click](${link})`).join("\n\n") +
        "\n\n[good](https://example.com/a?b=c) and https://example.org/x_y. [https://bank.example](https://evil.example/)";
    const page = await openPage(world, { before: madeUp(text) });
    await send(page, "links");
    await answered(page);
    const links = await page
        .locator(".assistant .text a")
        .evaluateAll(all => all.map(one => [one.href, one.rel, one.target]));
    assert.deepEqual(links, [
        ["https://example.com/a?b=c", "noopener noreferrer", "_blank"],
        ["https://example.org/x_y", "noopener noreferrer", "_blank"],
        ["https://evil.example/", "noopener noreferrer", "_blank"],
    ]);
    assert.deepEqual(await page.locator(".host").allTextContents(), [" (example.com)", " (evil.example)"]);
    assert.ok((await page.innerText(".assistant .text")).includes("[click](javascript:alert(1))"));
    await closePage(page);
});

test("marks of direction stay inside their block", async world => {
    const marks = "\u202e\u2066\u200f";
    const text = `${marks}evil\n\nplain words here\n\n\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd`;
    const page = await openPage(world, { before: madeUp(text) });
    await send(page, marks + " title");
    await answered(page);
    const directions = await page
        .locator(".assistant .text p")
        .evaluateAll(all => all.map(one => getComputedStyle(one).direction));
    assert.deepEqual(directions.slice(1), ["ltr", "rtl"]);
    const box = await page
        .locator(".assistant .text p")
        .nth(1)
        .evaluate(one => {
            const range = document.createRange();
            const place = at => (
                range.setStart(one.firstChild, at),
                range.setEnd(one.firstChild, at + 1),
                range.getBoundingClientRect().left
            );
            return [place(0), place(5)];
        });
    assert.ok(box[0] < box[1]);
    const time = await page
        .locator("#chats small")
        .first()
        .evaluate(one => getComputedStyle(one).direction);
    assert.equal(time, "ltr");
    await closePage(page);
});

test("a line of 200,000 characters does not widen the page", async world => {
    const texts = [
        "x".repeat(200000),
        "```\n" + "y".repeat(200000) + "\n```",
        "| " + "z".repeat(5000) + " | b |\n|---|---|\n",
    ];
    const page = await openPage(world, { viewport: PHONE, before: madeUp(texts) });
    for (const text of texts) {
        await send(page, "w".repeat(2000));
        await answered(page);
        assert.ok((await page.locator(".assistant .text").last().textContent()).includes(text.slice(10, 1000)));
        assert.ok(
            await page.evaluate(
                () =>
                    document.documentElement.scrollWidth <= innerWidth &&
                    document.getElementById("scroller").scrollWidth <= innerWidth,
            ),
        );
    }
    await closePage(page);
});

test("a megabyte without a blank is cut into paragraphs, and nothing of it is lost", async world => {
    const text = "\u{1f98a}x".repeat(333333);
    const page = await openPage(world, { viewport: PHONE, before: madeUp(text, { size: 40000 }) });
    await send(page, "go");
    await answered(page);
    const [lengths, whole] = await page
        .locator(".assistant .text")
        .evaluate((root, expected) => [[...root.children].map(one => one.textContent.length), root.textContent === expected], text);
    assert.ok(Math.max(...lengths) <= 8000 && lengths.length > 100);
    assert.ok(whole);
    assert.ok(await page.evaluate(() => document.getElementById("scroller").scrollWidth <= innerWidth));
    await closePage(page);
});

test("of 10,000 code blocks the last ones are shown, and the others on demand", async world => {
    const block = at => `\`\`\`c\nint x${at};\n\`\`\`\n\n`;
    const text = Array.from({ length: 10000 }, (_, at) => block(at)).join("");
    const page = await openPage(world, { before: madeUp(text, { size: 2000 }) });
    await send(page, "go");
    await answered(page);
    const codes = page.locator(".assistant .text code");
    const count = await codes.count();
    assert.ok(count >= 400 && count <= 800, String(count));
    assert.equal(await codes.last().textContent(), "int x9999;");
    assert.equal(await codes.first().textContent(), `int x${10000 - count};`);
    assert.match(await page.innerText(".parts-before"), /^Show 9,\d\d\d parts before$/);
    await page.click(".parts-before");
    assert.equal(await codes.count(), 800);
    assert.equal(await codes.last().textContent(), "int x9999;");
    // It is the same after a reload, and a copy has everything.
    await page.reload();
    await page.waitForSelector(".parts-before:not([hidden])");
    assert.equal(await codes.count(), 400);
    await page.evaluate(() => {
        navigator.clipboard.writeText = async copied => {
            window.copied = copied;
        };
    });
    await page.locator(".assistant .actions [title=Copy]").click();
    assert.equal(await page.evaluate(() => window.copied), text);
    await closePage(page);
});

test("awkward text takes no longer than its length", async world => {
    const parts = [
        "**a ",
        "*a ",
        "_a ",
        "`",
        "`` ` ",
        "**a** ",
        "[a](",
        "[[",
        "http://",
        "> ",
        "- ",
        "|",
        "\\",
        "<",
        "![",
        "  - a\n",
        "```\n",
        "# a\n",
    ];
    // Quadratic time would take longer than the limit even on a quick machine; linear time is far from it on a slow one.
    const texts = parts.map(part => part.repeat((part.includes("\n") ? 10000 : 150000) / part.length));
    const page = await openPage(world, { before: madeUp(texts, { size: 1e6 }) });
    page.setDefaultTimeout(600000);
    for (const part of parts) {
        await page.click("#new-chat");
        await send(page, "go");
        await answered(page);
    }
    await closePage(page);
});

test("markdown becomes elements, also while it grows", async world => {
    const text =
        "## Head\n\nSome **bold**, *italic* and `co*de*`.\nSame paragraph, snake_case_name, 2 * 3 * 4.\n\n" +
        "1. one\n```sh\nmake\n\nmake test\n```\n" +
        "2. two\n   - inner\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\n```c\n\tint x; // <b>\n```\n";
    const page = await openPage(world, { before: madeUp(text, { size: 3, delay: 2 }) });
    await send(page, "go");
    await answered(page);
    const shape = await page.locator(".assistant .text").evaluate(root => {
        const describe = node =>
            node.nodeType === 3
                ? node.data.trim() && "'" + node.data.trim() + "'"
                : node.tagName === "BUTTON"
                  ? ""
                  : node.tagName === "CODE"
                    ? "code('" + node.textContent.trim() + "')" // its colours do not matter here
                    : node.tagName.toLowerCase() +
                    "(" +
                    [...node.childNodes].map(describe).filter(Boolean).join(" ") +
                    ")";
        return [...root.children].map(describe);
    });
    assert.deepEqual(shape, [
        "h3('Head')",
        "p('Some' strong('bold') ',' em('italic') 'and' code('co*de*') '.\nSame paragraph, snake_case_name, 2 * 3 * 4.')",
        "ol(li(p('one') div(div(span('sh')) pre(code('make\n\nmake test')))) li(p('two') ul(li(p('inner')))))",
        "blockquote(p('quoted'))",
        "div(table(thead(tr(th('a') th('b'))) tbody(tr(td('1') td('2')))))",
        "hr()",
        "div(div(span('c')) pre(code('int x; // <b>')))",
    ]);
    assert.equal(
        await page
            .locator(".code code")
            .last()
            .evaluate(code => code.textContent),
        "\tint x; // <b>",
    );
    await closePage(page);
});

test("names of models and words of errors are text too", async world => {
    const name = "<img src=x onerror=window.hit=1>";
    const page = await openPage(world);
    await page.route("**/v1/models", route => route.fulfill({ json: { data: [{ id: name }] } }));
    await page.route("**/v1/chat/completions", route =>
        route.fulfill({ status: 400, json: { error: { message: name } } }),
    );
    await page.reload();
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, name);
    assert.equal(await (await answered(page)).locator(".note").innerText(), name);
    assert.equal(await page.locator("#model option").innerText(), name);
    assert.equal(await page.locator("img").count(), 0);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    await closePage(page);
});
