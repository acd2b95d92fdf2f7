// Looks that can be measured: names for everything one can press, contrast, no sideways scrolling, keys, colours.
"use strict";
const fs = require("node:fs");
const zlib = require("node:zlib");
const { DESK, PAGE_FOLDER, PHONE, answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

const TIMINGS = {
    ttft_ms: 46,
    decode_ms: 500,
    parts_ms: {
        read: 1,
        preprocess: 2,
        encode: 9,
        template: 1,
        tokenize: 1,
        queue: 2,
        lookup: 3,
        restore: 2,
        prefill: 40,
        draft: 1,
        decode: 490,
        sampling: 3,
        grammar: 2,
        detokenize: 1,
        write: 4,
        others: 1,
    },
    energy: { joules: 21.5, joules_per_100_tokens: 35.8, watts: 39 },
    generated_tokens: 60,
    prompt_tokens: 100,
    cached_tokens: 64,
    drafted_tokens: 10,
    accepted_tokens: 7,
};
const TEXT =
    "## Head\n\nWords, `code`, [a link](https://example.com) and\n\n> a quote\n\n```c\nint x;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |";

async function filledPage(world, context) {
    const page = await openPage(world, {
        ...context,
        before: madeUp(TEXT, { reasoning: "Thoughts.", timings: TIMINGS }),
    });
    await send(page, "A question");
    await answered(page);
    await page.click(".timings summary");
    await page.click(".reasoning summary");
    return page;
}

// Runs in the page: texts whose colour is too near their ground's, as "ratio text".
function faintTexts() {
    const channels = colour => colour.match(/[\d.]+/g).map(Number);
    const light = colour => {
        const [r, g, b] = colour.map(value =>
            value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4,
        );
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = element => {
        for (let one = element; one; one = one.parentElement) {
            const colour = channels(getComputedStyle(one).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.99) {
                return colour;
            }
        }
        return [255, 255, 255];
    };
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (
            !walker.currentNode.data.trim() ||
            !element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) ||
            element.closest(".hidden, :disabled")
        ) {
            continue;
        }
        const [one, other] = [
            light(channels(getComputedStyle(element).color).slice(0, 3)),
            light(ground(element).slice(0, 3)),
        ];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) {
            faint.push(ratio.toFixed(2) + " " + walker.currentNode.data.trim().slice(0, 40));
        }
    }
    return faint;
}

// Runs in the page: what can be reached or seen but has no name.
function nameless() {
    const named = one =>
        one.getAttribute("aria-label") ||
        one.labels?.length ||
        one.textContent.trim() ||
        one.getAttribute("aria-labelledby");
    return [
        ...document.querySelectorAll(
            "button, input, select, textarea, a, [role=img], [tabindex='0'], dialog, section, aside, nav",
        ),
    ]
        .filter(one => one.checkVisibility() && !named(one))
        .map(one => one.outerHTML.slice(0, 100));
}

const isWide = () =>
    [...document.querySelectorAll("html, body, main, #scroller, #watch-view, #side, dialog[open]")]
        .filter(one => one.scrollWidth > one.clientWidth + 1)
        .map(one => one.id || one.tagName);

test("every text can be read, everything has a name, nothing scrolls sideways", async world => {
    for (const colorScheme of ["light", "dark"]) {
        for (const viewport of [PHONE, DESK]) {
            const page = await filledPage(world, { colorScheme, viewport });
            const check = async what => {
                const where = `${what} ${colorScheme} ${viewport.width}`;
                assert.deepEqual(await page.evaluate(faintTexts), [], where);
                assert.deepEqual(await page.evaluate(nameless), [], where);
                assert.deepEqual(await page.evaluate(isWide), [], where);
            };
            await check("chat");
            await page.click("#open-settings");
            await check("settings");
            await page.keyboard.press("Escape");
            await page.click("#tab-watch");
            await page.waitForSelector("#watch-models li");
            await check("watch");
            await closePage(page);
        }
    }
});

test("the switch of colours goes round and is remembered", async world => {
    const page = await openPage(world, { colorScheme: "dark" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    await page.click("#theme");
    const light = await ground();
    assert.notEqual(light, dark);
    assert.equal(await page.getAttribute("#theme", "aria-label"), "Colours: light");
    await page.reload();
    assert.equal(await ground(), light);
    await page.click("#theme");
    assert.equal(await ground(), dark);
    await page.click("#theme");
    assert.equal(await page.getAttribute("#theme", "aria-label"), "Colours: as the system");
    // The settings have it, too, for phones.
    await page.setViewportSize(PHONE);
    assert.ok(await page.isHidden("#theme"));
    await page.click("#open-settings");
    await page.selectOption("#s-theme", "light");
    assert.equal(await ground(), light);
    await closePage(page);
});

test("the keyboard reaches everything, and what has the focus shows it", async world => {
    const page = await filledPage(world, {});
    const seen = new Set();
    await page.evaluate(() => document.activeElement.blur());
    for (let step = 0; step < 80; step++) {
        await page.keyboard.press("Tab");
        const [name, outlined] = await page.evaluate(() => {
            const one = document.activeElement;
            const style = getComputedStyle(one);
            const framed = one.closest("#composer, .editor")
                ? getComputedStyle(one.closest("#composer, .editor")).borderColor !== ""
                : false;
            return [
                one === document.body
                    ? ""
                    : one.id || one.getAttribute("aria-label") || one.textContent.trim().slice(0, 20),
                style.outlineStyle !== "none" || framed,
            ];
        });
        assert.ok(outlined || name === "", name);
        seen.add(name);
    }
    for (const name of [
        "skip",
        "tab-chat",
        "tab-watch",
        "model",
        "theme",
        "open-settings",
        "new-chat",
        "Rename",
        "Delete",
        "export",
        "import",
        "Copy",
        "Edit and send again",
        "Answer again",
        "Copy the code",
        "input",
        "send",
    ]) {
        assert.ok(seen.has(name), name + " was not reached");
    }
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "input");
    assert.equal(await page.inputValue("#input"), "");
    await closePage(page);
});

test("on a phone the list slides over and cannot be reached while away", async world => {
    const page = await openPage(world, { viewport: PHONE, before: madeUp("Fine."), reducedMotion: "reduce" });
    assert.ok(await page.locator("#side").evaluate(side => side.inert));
    await send(page, "Hello");
    await answered(page);
    await page.click("#menu");
    assert.equal(await page.getAttribute("#menu", "aria-expanded"), "true");
    assert.equal(await page.evaluate(() => document.activeElement.id), "new-chat");
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.id), "menu");
    await page.click("#menu");
    await page.click("#shade", { position: { x: 380, y: 400 } });
    assert.ok(await page.locator("#side").evaluate(side => side.inert));
    await closePage(page);
});

test("on a wide page the list folds away, and stays so", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    const left = () => page.locator("#main").evaluate(main => main.getBoundingClientRect().left);
    assert.ok((await left()) > 200);
    assert.equal(await page.getAttribute("#menu", "aria-expanded"), "true");
    await page.click("#menu");
    assert.equal(await left(), 0);
    assert.ok(await page.isHidden("#new-chat"));
    assert.equal(await page.getAttribute("#menu", "aria-expanded"), "false");
    await page.reload();
    await page.waitForSelector("#model option", { state: "attached" });
    assert.equal(await left(), 0);
    // Searching shows it again, and so does its key.
    await page.keyboard.press("Control+k");
    assert.equal(await page.evaluate(() => document.activeElement.id), "search");
    assert.ok((await left()) > 200);
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("l");
    assert.equal(await left(), 0);
    await closePage(page);
});

test("a toast covers nothing that one can press", async world => {
    for (const viewport of [PHONE, { width: 1024, height: 768 }]) {
        const page = await openPage(world, { viewport, before: madeUp("Long. ".repeat(800)) });
        await page.fill("#input", "Hello");
        await page.click("#send");
        await answered(page);
        await page.locator(".user").hover();
        await page.locator(".user .actions [title='Delete this turn']").click();
        await page.waitForSelector("#toast:not([hidden])");
        const covered = () =>
            page.evaluate(() => {
                const toast = document.getElementById("toast").getBoundingClientRect();
                const seen = document.querySelector("dialog[open]") ?? document; // what is below a dialog cannot be pressed
                return [...seen.querySelectorAll("button, a, input, textarea, select")]
                    .filter(one => one.checkVisibility() && !one.closest("#toast"))
                    .filter(one => {
                        const box = one.getBoundingClientRect();
                        return box.bottom > toast.top + 1 && box.top < toast.bottom - 1 && box.right > toast.left && box.left < toast.right;
                    })
                    .map(one => one.id || one.title || one.className);
            });
        assert.deepEqual(await covered(), [], `at ${viewport.width}`);
        assert.ok(await page.locator("#toast").evaluate(one => one.getBoundingClientRect().bottom <= innerHeight));
        // In a dialog it is part of the dialog.
        await page.click("#open-settings");
        await page.click("#settings-default");
        await page.waitForFunction(() => /New conversations/.test(document.getElementById("toast-text").textContent));
        assert.equal(await page.locator("#settings #toast").count(), 1);
        assert.deepEqual(await covered(), [], `in the settings at ${viewport.width}`);
        await closePage(page);
    }
});

test("who wants no motion gets none", async world => {
    const page = await openPage(world, {
        reducedMotion: "reduce",
        before: madeUp("x".repeat(50), { size: 1, delay: 20 }),
    });
    await send(page, "Hello");
    await page.waitForSelector(".writing");
    assert.equal(
        await page
            .locator(".pending i")
            .first()
            .evaluate(dot => getComputedStyle(dot).animationName),
        "none",
    );
    await answered(page);
    await closePage(page);
});

// [path, type] of the files of apps/web that an English page loads.
function pageFiles() {
    const modules = fs.readdirSync(PAGE_FOLDER).filter(name => name.endsWith(".js"));
    return [["/", "text/html"], ["/page.css", "text/css"], ...modules.map(name => ["/" + name, "text/javascript"])];
}

test("the page is served small, typed and with its policy", async world => {
    const policy = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ];
    let bytes = 0;
    for (const [path, type] of pageFiles()) {
        const answer = await fetch(world.url + path);
        assert.equal(answer.status, 200, path);
        assert.ok(answer.headers.get("content-type").startsWith(type), path);
        bytes += zlib.gzipSync(Buffer.from(await answer.arrayBuffer())).length;
        if (path === "/") {
            assert.deepEqual(
                answer.headers.get("content-security-policy").split(/;\s*/).filter(Boolean).sort(),
                policy.sort(),
            );
        }
    }
    assert.ok(bytes < 150000, bytes + " bytes compressed");
});

module.exports = { faintTexts };
