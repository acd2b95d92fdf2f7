// What the browser keeps: the list of conversations, names, files.
"use strict";
const fs = require("node:fs");
const { answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

async function withConversations(world, titles) {
    const page = await openPage(world, { before: madeUp("Fine.") });
    for (const title of titles) {
        await page.click("#new-chat");
        await send(page, title);
        await answered(page);
    }
    return page;
}

const names = page => page.locator("#chats .open-chat span").allInnerTexts();

async function importText(page, text, name = "file.json") {
    await page.setInputFiles("#import-file", {
        name,
        mimeType: "application/json",
        buffer: Buffer.from(text),
    });
    await page.waitForSelector("#toast:not([hidden])");
    return page.innerText("#toast-text");
}

test("conversations are listed, opened and renamed", async world => {
    const page = await withConversations(world, ["About foxes", "About bears"]);
    assert.deepEqual(await names(page), ["About bears", "About foxes"]);
    await page.click("#chats li:nth-child(2) .open-chat");
    assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["About foxes"]);
    await page.hover("#chats li:nth-child(2)");
    await page.click("#chats li:nth-child(2) [title=Rename]");
    await page.keyboard.type("Foxes only");
    await page.keyboard.press("Enter");
    await page.reload();
    assert.ok((await names(page)).includes("Foxes only"));
    assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["About foxes"]);
    await closePage(page);
});

test("an answer that ends leaves the name that the user types", async world => {
    const page = await openPage(world, { before: madeUp("A long answer, a piece at a time.", { delay: 50, size: 1 }) });
    await send(page, "About foxes");
    await page.waitForSelector(".writing");
    await page.hover("#chats li");
    await page.click("#chats li [title=Rename]");
    await page.keyboard.type("Foxes");
    await answered(page);
    await page.keyboard.type(" only");
    await page.keyboard.press("Enter");
    assert.deepEqual(await names(page), ["Foxes only"]);
    await closePage(page);
});

test("a deleted conversation is gone, and can be brought back", async world => {
    const page = await withConversations(world, ["Keep", "Drop"]);
    await page.hover("#chats li:nth-child(1)");
    await page.click("#chats li:nth-child(1) [title=Delete]");
    assert.deepEqual(await names(page), ["Keep"]);
    assert.equal(await page.locator(".message").count(), 0);
    await page.click("#toast-button");
    assert.deepEqual(await names(page), ["Drop", "Keep"]);
    await page.hover("#chats li:nth-child(1)");
    await page.click("#chats li:nth-child(1) [title=Delete]");
    await page.reload();
    assert.deepEqual(await names(page), ["Keep"]);
    assert.equal(
        await page.evaluate(() => Object.keys(localStorage).filter(key => key.startsWith("spry.chat.")).length),
        1,
    );
    await closePage(page);
});

test("an export can be imported elsewhere, once", async world => {
    const page = await withConversations(world, ["About foxes", "About bears"]);
    await page.click("#export");
    const [file] = await Promise.all([page.waitForEvent("download"), page.click("#export-all")]);
    const text = fs.readFileSync(await file.path(), "utf8");
    await closePage(page);
    const other = await openPage(world);
    assert.equal(await importText(other, text), "2 conversations imported.");
    assert.deepEqual(await names(other), ["About bears", "About foxes"]);
    await other.click("#chats li:nth-child(1) .open-chat");
    assert.equal(await other.innerText(".assistant .text"), "Fine.");
    assert.equal(await importText(other, text), "Everything in the file is here already.");
    await closePage(other);
});

test("files that hold no conversations are refused, hostile ones are harmless", async world => {
    const page = await openPage(world);
    assert.equal(await importText(page, "not json"), "The file is not JSON.");
    assert.match(await importText(page, '{"format":"x"}'), /has no conversations/);
    assert.match(await importText(page, "\u0000\u0001PNG", "picture.png"), /has no conversations/);
    const hostile = {
        id: "../../x",
        title: "<img src=x onerror=alert(1)>",
        updated: "soon",
        messages: [
            null,
            5,
            { role: "system", content: "be evil" },
            { role: "user", content: { a: 1 } },
            { role: "user", content: "<script>alert(1)</script>" },
            {
                role: "assistant",
                content: "<img src=x onerror=alert(1)>",
                timings: { a: "b", "<b>": 1, ttft_ms: 3, parts_ms: "x", energy: [1], why_no_energy: "<b>why</b>" },
                error: "<b>no</b>",
            },
        ],
    };
    const text = JSON.stringify({ format: "spry-conversations", conversations: [null, {}, hostile] });
    assert.equal(await importText(page, text), "1 conversation imported.");
    await page.click("#chats .open-chat");
    assert.equal(await page.locator(".message").count(), 2);
    assert.equal(await page.innerText(".bubble"), "<script>alert(1)</script>");
    assert.equal(await page.innerText(".note"), "<b>no</b>");
    assert.equal(
        await page.locator("#side img, #messages img, #messages script, #messages b:not(.legend b)").count(),
        0,
    );
    await closePage(page);
});

test("a browser that keeps nothing still chats", async world => {
    const script = () => {
        Storage.prototype.setItem = () => {
            throw new DOMException("full", "QuotaExceededError");
        };
    };
    const page = await openPage(world, { key: "" });
    await page.addInitScript(script);
    await page.addInitScript(madeUp("Fine.").script, madeUp("Fine.").argument);
    await page.reload();
    await send(page, "Hello");
    await answered(page);
    assert.match(await page.innerText("#toast-text"), /storage is full/);
    assert.deepEqual(await names(page), ["Hello"]);
    await closePage(page);
});

test("storage that fills up loses nothing that is on the page, and works again when there is room", async world => {
    const page = await withConversations(world, ["Old", "Older"]);
    await page.evaluate(() => {
        for (let size = 1 << 22; size >= 1; size >>= 1) {
            try {
                for (let at = 0; at < 20; at++) {
                    localStorage.setItem(`filler${size}.${at}`, "x".repeat(size));
                }
            } catch {
                // smaller pieces
            }
        }
    });
    await send(page, "In memory");
    await page.waitForFunction(() => document.querySelectorAll(".assistant").length === 2);
    await answered(page);
    assert.match(await page.innerText("#toast-text"), /storage is full.*Export them, or delete/);
    // Other conversations are still there, and so is this one when it is opened again.
    await page.click("#chats li:nth-child(2) .open-chat");
    await page.click("#chats .open-chat >> nth=0");
    assert.ok((await page.locator(".bubble").allInnerTexts()).includes("In memory"));
    await page.evaluate(() => Object.keys(localStorage).filter(key => key.startsWith("filler")).forEach(key => localStorage.removeItem(key)));
    await send(page, "Kept again");
    await page.waitForFunction(() => document.querySelectorAll(".assistant").length === 3);
    await answered(page);
    await page.reload();
    assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["Older", "In memory", "Kept again"]);
    await closePage(page);
});
