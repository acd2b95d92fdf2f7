// The models of the server: what they are, loading and unloading, pulling with progress.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const { answered, assert, closePage, openPage, send, test, withServer } = require("./page_support.js");

const DRAFTER = path.join(__dirname, "..", "..", "models", "Spry-Tales-Draft-4M.gguf");
const TALES = "[data-name='Spry-Tales-29M']";

// The list comes from the server, and moves what is below it.
async function openModels(page) {
    await page.click("#open-models");
    await page.waitForSelector("#model-list li");
}

test("models show what they are, and are loaded and unloaded", async world => {
    const folder = fs.mkdtempSync(path.join(process.env.WEB_FOLDER, "models-"));
    const other = path.join(folder, "Small-4M.gguf");
    fs.copyFileSync(DRAFTER, other);
    await withServer(world, ["Spry-Tales-29M", other], async own => {
        const page = await openPage(own, { settings: { temperature: 0, max_tokens: 4 } });
        await openModels(page);
        await page.waitForSelector(`${TALES}[data-state=loaded]`);
        assert.match(await page.innerText(`${TALES} p`), /^29\.4M parameters · Q4_0 · qwen3 · 18\.9 MB on disk · .* of memory in use, at most /);
        await page.locator(TALES).getByRole("button", { name: "Unload" }).click();
        await page.waitForSelector(`${TALES}[data-state=disk]`);
        assert.ok(!/memory/.test(await page.innerText(`${TALES} p`)));
        await page.locator(TALES).getByRole("button", { name: "Load", exact: true }).click();
        await page.waitForSelector(`${TALES}[data-state=loaded]`);
        // The choice is the one of the list at the top.
        await page.locator("[data-name='Small-4M']").getByRole("button", { name: "Use this model" }).click();
        assert.equal(await page.inputValue("#model"), "Small-4M");
        await page.keyboard.press("Escape");
        await send(page, "Hello");
        await answered(page);
        assert.equal(page.asked.findLast(body => body.messages).model, "Small-4M");
        await closePage(page);
    });
    fs.rmSync(folder, { recursive: true });
});

test("a model that drafts for others is not offered for chats", async world => {
    const page = await openPage(world);
    await page.waitForSelector("#model option", { state: "attached" });
    assert.deepEqual(await page.locator("#model option").allInnerTexts(), ["Spry-Tales-29M"]);
    await openModels(page);
    const drafter = page.locator("[data-name='Spry-Tales-Draft-4M']");
    assert.match(await drafter.locator("p").innerText(), /guesses tokens for other models/);
    assert.deepEqual(await drafter.locator("button").allInnerTexts(), ["Load"]);
    assert.deepEqual(await page.locator(TALES).locator("button").first().innerText(), "Chosen");
    await closePage(page);
});

test("a model that cannot be unloaded says why", async world => {
    const page = await openPage(world);
    await page.route("**/models/unload", route =>
        route.fulfill({ status: 503, json: { error: { message: "The model is in use." } } }),
    );
    await openModels(page);
    await page.locator(TALES).getByRole("button", { name: "Unload" }).click();
    await page.waitForSelector("#models-state.error:not(:empty)");
    assert.equal(await page.innerText("#models-state"), "The model is in use. Wait a moment, then try again.");
    await closePage(page);
});

test("a server that does not allow pulling says how it would", async world => {
    const page = await openPage(world);
    await openModels(page);
    await page.fill("#pull-source", DRAFTER);
    await page.click("#pull-start");
    await page.waitForSelector("#pull-words.error");
    assert.match(await page.innerText("#pull-words"), /--allow-pull/);
    assert.ok(await page.isEnabled("#pull-start"));
    await closePage(page);
});

test("a model is pulled, and appears", async world => {
    await withServer(world, ["--allow-pull"], async own => {
        const page = await openPage(own);
        await openModels(page);
        await page.fill("#pull-source", "/no/such/file.gguf");
        await page.click("#pull-start");
        await page.waitForSelector("#pull-words.error");
        assert.match(await page.innerText("#pull-words"), /no such file/);
        await page.fill("#pull-source", DRAFTER);
        await page.fill("#pull-name", "another");
        await page.click("#pull-start");
        await page.waitForFunction(() => /The model is here/.test(document.getElementById("pull-words").textContent));
        await page.waitForSelector("#model-list [data-name^=another]");
        assert.ok((await page.locator("#model option").allInnerTexts()).some(name => name.startsWith("another")));
        await closePage(page);
    });
});

test("the catalogue shows what fits, and pulls by name", async world => {
    const page = await openPage(world);
    await openModels(page);
    const entries = [
        { name: "huge:1t", bytes: 1e12, licence: "MIT", use: "much", fits: false, here: null },
        { name: "small:1b", bytes: 8e8, licence: "Apache-2.0", use: "chat <b>now</b>", fits: true, here: null },
        { name: "here:4m", bytes: 5e6, fits: true, here: "here-Q4_0" },
    ];
    await page.route("**/v1/catalogue", route => route.fulfill({ json: { models: entries, pull: true } }));
    const asked = [];
    await page.route("**/api/pull", route => {
        asked.push(route.request().postDataJSON());
        entries[1].here = "small-Q4_K_M";
        return route.fulfill({ body: '{"status":"success"}\n' });
    });
    await page.click("#catalogue summary");
    await page.waitForSelector("#catalogue-list [data-name='small:1b']");
    const items = await page.locator("#catalogue-list li").allInnerTexts();
    assert.match(items[0], /^small:1b\s+fits this machine\s+800 MB · Apache-2.0 · chat <b>now<\/b>\s+Pull$/);
    assert.match(items[1], /^here:4m\s+on disk\s+5 MB$/);
    assert.match(items[2], /^huge:1t\s+too large for this machine/);
    await page.locator("[data-name='small:1b']").getByRole("button", { name: "Pull" }).click();
    await page.waitForFunction(() => /on disk/.test(document.querySelector("[data-name='small:1b'] .state").textContent));
    assert.deepEqual(asked, [{ model: "small:1b" }]);
    assert.match(await page.innerText("#pull-words"), /The model is here/);
    await page.unroute("**/v1/catalogue");
    await page.route("**/v1/catalogue", route => route.fulfill({ status: 500, json: { error: { message: "broken file" } } }));
    await page.click("#catalogue summary");
    await page.click("#catalogue summary");
    await page.waitForSelector("#catalogue-list .error");
    await closePage(page);
});

test("the server's own catalogue is listed", async world => {
    const page = await openPage(world);
    await openModels(page);
    await page.click("#catalogue summary");
    await page.waitForSelector("#catalogue-list [data-name='qwen3:0.6b']");
    assert.ok((await page.locator("#catalogue-list li").count()) > 20);
    await closePage(page);
});

test("pulling shows how far it is, and can be cancelled", async world => {
    const page = await openPage(world);
    // A pull that stays in the middle until it is cancelled.
    await page.evaluate(() => {
        const real = window.fetch;
        window.fetch = (url, options) => {
            if (url !== "/api/pull") {
                return real(url, options);
            }
            const line = JSON.stringify({ status: "pulling x", total: 4000, completed: 1000 }) + "\n";
            const body = new ReadableStream({
                start(stream) {
                    stream.enqueue(new TextEncoder().encode(line));
                    options.signal.addEventListener("abort", () => stream.error(new DOMException("", "AbortError")));
                },
            });
            return Promise.resolve(new Response(body));
        };
    });
    await openModels(page);
    await page.fill("#pull-source", "https://example.com/x.gguf");
    await page.click("#pull-start");
    await page.waitForFunction(() => document.getElementById("pull-progress").value === 1000);
    assert.equal(await page.innerText("#pull-words"), "1 KB of 4 KB");
    assert.ok(await page.isDisabled("#pull-start"));
    await page.click("#pull-cancel");
    await page.waitForFunction(() => /^Cancelled/.test(document.getElementById("pull-words").textContent));
    assert.ok(await page.isHidden("#pull-progress"));
    await closePage(page);
});
