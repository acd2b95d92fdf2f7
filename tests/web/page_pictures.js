// Pictures: dropped, pasted, picked and taken; seen by a model with eyes, kept with the conversation, refused for other models.
"use strict";
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { DESK, PHONE, answered, assert, closePage, madeUp, openPage, send, test, withServer } = require("./page_support.js");

const MODEL = path.join(__dirname, "..", "data", "models", "qwen3-vl");
const QUICK = { temperature: 0, max_tokens: 8 };
const PICTURES = [0, 1].map(at => fs.readFileSync(path.join(MODEL, `image${at}.png`)).toString("base64"));
const urlOf = base64 => "data:image/png;base64," + base64;
const withEyes = (world, work) => withServer(world, [MODEL], work);
const names = page => page.locator("#attachments .document-name").allInnerTexts();
const says = (page, words) =>
    page.waitForFunction(pattern => new RegExp(pattern).test(document.getElementById("toast-text").textContent), words.source);
const shown = page =>
    page.waitForFunction(() => [...document.querySelectorAll(".user .thumbnail")].every(image => image.naturalWidth > 0));

async function attach(page, ...files) {
    await page.setInputFiles("#attach-file", files);
    await page.waitForFunction(() => !document.querySelector("#attachments [aria-busy=true]"));
}

// Runs in the page: drops or pastes a picture.
function transfer([kind, target, name, base64]) {
    const data = new DataTransfer();
    const bytes = Uint8Array.from(atob(base64), letter => letter.charCodeAt(0));
    data.items.add(new File([bytes], name, { type: "image/png" }));
    const event =
        kind === "paste"
            ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })
            : new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
    return !document.querySelector(target).dispatchEvent(event);
}

const openEyes = async (world, context = {}) => {
    const page = await openPage(world, { settings: QUICK, ...context });
    await page.waitForSelector("#model option[data-sees=yes]", { state: "attached" });
    return page;
};
const pictureUrls = message => message.content.filter(part => part.type === "image_url").map(part => part.image_url.url);

test("a picture is dropped, seen, kept and found again; another is pasted", world =>
    withEyes(world, async eyes => {
        const page = await openEyes(eyes);
        assert.ok(await page.evaluate(transfer, ["drop", "#messages", "cat.png", PICTURES[0]]));
        await page.waitForSelector("#attachments [aria-busy=false] .thumbnail");
        assert.deepEqual(await names(page), ["cat.png"]);
        assert.match(await page.innerText("#attachments li"), /\d+ \u00d7 \d+/);
        await send(page, "What is it?");
        const first = await answered(page);
        assert.deepEqual(page.asked.at(-1).messages.at(-1).content, [
            { type: "image_url", image_url: { url: urlOf(PICTURES[0]) } },
            { type: "text", text: "What is it?" },
        ]);
        await shown(page);
        await first.locator(".timings summary").click();
        const figures = await first.locator(".timings").innerText();
        assert.match(figures, /pictures\s+6 tokens/);
        assert.match(figures, /preprocess\s+[\d.]+ ms\s+encode pictures\s+[\d.]+ ms\s+template/);

        await page.reload();
        await page.waitForSelector("#model option[data-sees=yes]", { state: "attached" });
        await shown(page);
        await page.click(".user .document");
        await page.waitForFunction(() => document.querySelector("#document-text img").naturalWidth > 0);
        await page.click("#close-document");
        assert.ok(await page.evaluate(transfer, ["paste", "#input", "image.png", PICTURES[1]]));
        await page.waitForSelector("#attachments [aria-busy=false] .thumbnail");
        await send(page, "And this?");
        await answered(page);
        const { messages } = page.asked.at(-1);
        assert.deepEqual(messages.filter(message => Array.isArray(message.content)).map(pictureUrls), PICTURES.map(one => [urlOf(one)]));
        const timings = await page.evaluate(() => {
            const open = JSON.parse(localStorage["spry.chat." + localStorage["spry.open"]]);
            return open.messages.at(-1).timings;
        });
        assert.ok(timings.cached_tokens > 10 && timings.picture_tokens > 6, JSON.stringify(timings));
        await closePage(page);
    }));

test("a large picture is made smaller; files that only look like pictures are refused; the camera is for touch", world =>
    withEyes(world, async eyes => {
        const page = await openEyes(eyes, { viewport: PHONE, hasTouch: true, isMobile: true });
        const large = await page.evaluate(() => {
            const canvas = document.createElement("canvas");
            canvas.width = 4000;
            canvas.height = 3000;
            canvas.getContext("2d").fillRect(0, 0, 2000, 3000);
            return canvas.toDataURL("image/png").split(",")[1];
        });
        await attach(page, { name: "large.png", mimeType: "image/png", buffer: Buffer.from(large, "base64") });
        assert.match(await page.innerText("#attachments li"), /2365 \u00d7 1774/);
        await attach(page, { name: "plan.png", mimeType: "image/png", buffer: Buffer.from("\x89PNG\r\n\x1a\nnot really", "latin1") });
        await says(page, /^plan\.png is no picture that can be read\.$/);
        assert.equal(await page.getAttribute("#camera-file", "capture"), "environment");
        assert.ok(await page.isVisible("#camera"));
        await page.setInputFiles("#camera-file", { name: "photo.png", mimeType: "image/png", buffer: Buffer.from(PICTURES[0], "base64") });
        await page.waitForFunction(() => document.querySelectorAll("#attachments [aria-busy=false]").length === 2);
        await page.fill("#input", "Both?");
        await page.click("#send");
        await answered(page);
        const urls = pictureUrls(page.asked.at(-1).messages.at(-1));
        assert.match(urls[0], /^data:image\/jpeg;base64,/);
        assert.equal(urls[1], urlOf(PICTURES[0]));
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
        await closePage(page);
        const desk = await openEyes(eyes, { viewport: DESK });
        assert.equal(await desk.isVisible("#camera"), false);
        await closePage(desk);
    }));

test("a model without eyes gets no pictures", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.waitForSelector("#model option[data-sees=no]", { state: "attached" });
    await page.evaluate(transfer, ["drop", "#messages", "cat.png", PICTURES[0]]);
    await says(page, /^cat\.png is a picture, and Spry-Tales-29M cannot see pictures\.$/);
    assert.equal(await page.locator("#attachments li").count(), 0);
    await closePage(page);
});

test("pages of a PDF are pictures for a model with eyes", async world => {
    try {
        execFileSync("sh", ["-c", "command -v pdftoppm && command -v pdftotext"]);
    } catch {
        console.log("SKIPPED page_pictures: poppler-utils is not installed");
        return;
    }
    const printer = await world.browser.newPage();
    await printer.setContent("<p>The fox.</p><p style='break-before:page'>The hen.</p>");
    const written = await printer.pdf();
    await printer.setContent("<svg width='300' height='300'><circle cx='99' cy='99' r='80'/></svg>");
    const drawn = await printer.pdf();
    await printer.close();
    await withEyes(world, async eyes => {
        const page = await openEyes(eyes);
        await attach(page, { name: "scan.pdf", mimeType: "application/pdf", buffer: drawn });
        assert.deepEqual(await names(page), ["scan.pdf 1"]);
        await attach(page, { name: "paper.pdf", mimeType: "application/pdf", buffer: written });
        await says(page, /^paper\.pdf was attached as text\.$/);
        assert.deepEqual(await names(page), ["scan.pdf 1", "paper.pdf"]);
        await page.click("#toast-button");
        await page.waitForFunction(() => document.querySelectorAll("#attachments .thumbnail").length === 3);
        assert.deepEqual(await names(page), ["scan.pdf 1", "paper.pdf 1", "paper.pdf 2"]);
        await send(page, "What is in it?");
        await answered(page);
        assert.equal(pictureUrls(page.asked.at(-1).messages.at(-1)).length, 3);
        await closePage(page);
    });
});

test("files of conversations carry the pictures", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.evaluate(() => document.querySelectorAll("#model option").forEach(option => option.removeAttribute("data-sees")));
    await attach(page, { name: "cat.png", mimeType: "image/png", buffer: Buffer.from(PICTURES[0], "base64") });
    await send(page, "What is it?");
    await answered(page);
    const save = async id => {
        await page.click("#export");
        const [download] = await Promise.all([page.waitForEvent("download"), page.click(id)]);
        return fs.readFileSync(await download.path(), "utf8");
    };
    assert.match(await save("#export-markdown"), /## User\n\n\[image: cat\.png\]\nWhat is it\?/);
    const all = await save("#export-all");
    assert.deepEqual(Object.values(JSON.parse(all).pictures), [urlOf(PICTURES[0])]);
    await page.evaluate(
        () => new Promise(resolve => {
            localStorage.clear();
            const request = indexedDB.open("spry");
            request.onsuccess = () => {
                const store = request.result.transaction("pictures", "readwrite").objectStore("pictures");
                store.clear().onsuccess = resolve;
            };
        }),
    );
    await page.reload();
    await page.setInputFiles("#import-file", { name: "all.json", mimeType: "application/json", buffer: Buffer.from(all) });
    await page.waitForSelector("#chats li");
    await page.click("#chats li button");
    await page.waitForSelector(".user .thumbnail");
    await shown(page);
    await page.reload();
    await page.waitForSelector(".user .thumbnail");
    await shown(page);
    await closePage(page);
});
