// Finding conversations: search here and on the server, pins, files in Markdown and JSON, and chats that the terminal and the
// browser share.
"use strict";
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { KEY, PHONE, answered, assert, closePage, madeUp, openPage, send, test, withServer } = require("./page_support.js");

const names = page => page.locator("#chats .open-chat > span").allTextContents();

async function talkAbout(page, ...questions) {
    for (const question of questions) {
        await page.click("#new-chat");
        await send(page, question);
        await answered(page);
    }
}

async function saved(page, id) {
    await page.click("#export");
    const [file] = await Promise.all([page.waitForEvent("download"), page.click(id)]);
    return { name: file.suggestedFilename(), text: fs.readFileSync(await file.path(), "utf8") };
}

async function importFile(page, name, text) {
    await page.evaluate(() => {
        document.getElementById("toast").hidden = true;
    });
    await page.setInputFiles("#import-file", { name, mimeType: "text/plain", buffer: Buffer.from(text) });
    await page.waitForSelector("#toast:not([hidden])");
    return page.innerText("#toast-text");
}

test("the model names a conversation after its first answer, and the user's name stays", async world => {
    const page = await openPage(world, {
        before: madeUp(["Light is bent in drops of water.", '"How Rainbows Form."\n\nThis is the title.', "More.", "Blue light is scattered.", "**The Sky**"]),
    });
    await page.route("**/page.json", route => route.fulfill({ json: { libraries: [], bundled: "other", chats: false, pull: false } }));
    await page.reload();
    // The requests of the page; one for a title waits while window.held is set.
    await page.evaluate(() => {
        const real = window.fetch;
        window.bodies = [];
        window.fetch = async (url, options) => {
            if (url === "/v1/chat/completions") {
                window.bodies.push(JSON.parse(options.body));
                await (/two to six words/.test(options.body) ? window.held : null);
            }
            return real(url, options);
        };
    });
    const bodies = () => page.evaluate(() => window.bodies);
    const name = () => page.locator(".open-chat span").first().innerText();
    await send(page, "Explain it to me, please, in a few sentences.");
    await answered(page);
    await page.waitForFunction(() => document.querySelector(".open-chat span").textContent === "How Rainbows Form");
    const [first, second] = await bodies();
    assert.deepEqual(second.messages.slice(0, first.messages.length), first.messages); // so that its prefix is reused
    assert.equal(second.messages.length, first.messages.length + 2);
    assert.ok(second.max_tokens < 40);
    // Later answers do not change it.
    await send(page, "And more?");
    await answered(page);
    assert.equal((await bodies()).length, 3);
    assert.equal(await name(), "How Rainbows Form");
    // A name that the user gave while the title was written stays.
    await page.click("#new-chat");
    await page.evaluate(() => {
        window.held = new Promise(resolve => {
            window.goOn = resolve;
        });
    });
    await send(page, "Why is the sky blue?");
    await answered(page);
    await page.waitForFunction(() => window.bodies.length === 5);
    await page.hover("#chats li");
    await page.click("#chats li [title=Rename]");
    await page.fill(".rename", "Mine");
    await page.keyboard.press("Enter");
    await page.evaluate(() => window.goOn());
    await page.evaluate(() => new Promise(resolve => setTimeout(resolve, 300)));
    assert.equal(await name(), "Mine");
    await closePage(page);
});

test("the search finds names and words of all conversations", async world => {
    const page = await openPage(world, { before: madeUp(["It has a lighthouse.", "Bears sleep.", "Nothing."]) });
    await talkAbout(page, "The coast", "The forest", "100% <b>");
    await page.keyboard.press("Control+k");
    assert.equal(await page.evaluate(() => document.activeElement.id), "search");
    await page.keyboard.type("LIGHTHOUSE");
    assert.deepEqual(await names(page), ["The coast"]);
    assert.equal(await page.innerText("#chats mark"), "lighthouse");
    await page.fill("#search", "forest");
    assert.deepEqual(await names(page), ["The forest"]);
    await page.fill("#search", "<b>");
    assert.deepEqual(await names(page), ["100% <b>"]);
    await page.fill("#search", "no such words");
    assert.ok(await page.isVisible("#chats-none"));
    await page.fill("#search", "");
    assert.equal((await names(page)).length, 3);
    await closePage(page);
});

test("on a phone the search opens with the list", async world => {
    const page = await openPage(world, { viewport: PHONE, before: madeUp("Fine."), reducedMotion: "reduce" });
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("Control+k");
    assert.equal(await page.evaluate(() => document.activeElement.id), "search");
    assert.equal(await page.getAttribute("#menu", "aria-expanded"), "true");
    await closePage(page);
});

test("pinned conversations come first, also after a reload", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await talkAbout(page, "One", "Two", "Three");
    await page.hover("#chats li:nth-child(3)");
    await page.click("#chats li:nth-child(3) [title=Pin]");
    assert.deepEqual(await names(page), ["One", "Three", "Two"]);
    await page.reload();
    assert.deepEqual(await names(page), ["One", "Three", "Two"]);
    await page.hover("#chats li:nth-child(1)");
    await page.click("#chats li:nth-child(1) [title=Unpin]");
    assert.deepEqual(await names(page), ["Three", "Two", "One"]);
    await closePage(page);
});

test("a conversation goes through Markdown and JSON and is the same", async world => {
    const answer = "A **word**.\n\n## User\n\n\\## Assistant\n\n```\n## User\n```";
    const page = await openPage(world, { before: madeUp([answer, "Second."]), settings: { system: "Be brief." } });
    await talkAbout(page, "First question");
    await send(page, "Next?");
    await answered(page);
    const markdown = await saved(page, "#export-markdown");
    const json = await saved(page, "#export-json");
    assert.equal(markdown.name, "First-question.md");
    assert.match(markdown.text, /^# First question\n\n## System\n\nBe brief\.\n\n## User\n\nFirst question\n/);
    const other = await openPage(world, { before: madeUp("x") });
    for (const { name, text } of [markdown, json]) {
        assert.equal(await importFile(other, name, text), "1 conversation imported.");
        await other.locator("#chats .open-chat").first().click();
        const read = await other.evaluate(() => {
            const chat = JSON.parse(localStorage.getItem("spry.chat." + localStorage.getItem("spry.open")));
            return [chat.title, chat.settings.system, chat.messages.map(one => [one.role, one.content])];
        });
        assert.deepEqual(read, [
            "First question",
            "Be brief.",
            [
                ["user", "First question"],
                ["assistant", answer],
                ["user", "Next?"],
                ["assistant", "Second."],
            ],
        ]);
    }
    assert.match(await importFile(other, "notes.md", "# Notes\n\nNo turns."), /has no conversations/);
    await closePage(other);
    await closePage(page);
});

// ---- chats that the terminal stores ---------------------------------------------------------------------------------

const CHATS = path.join(fs.mkdtempSync("/tmp/spry-page-chats-"), "chats.db");
process.on("exit", () => fs.rmSync(path.dirname(CHATS), { recursive: true, force: true }));
const ALLOW = ["--allow-chats", "--chats", CHATS];

async function stored(world, where = "", body = undefined, method = body ? "POST" : "GET") {
    const answer = await fetch(world.url + "/api/chats" + where, {
        method,
        headers: { Authorization: "Bearer " + KEY, "Content-Type": "application/json" },
        body: body && JSON.stringify(body),
    });
    return answer.json();
}

const inTerminal = (world, id) =>
    JSON.parse(
        execFileSync(process.env.SPRY, ["chats", "show", String(id), "--json", "--chats", CHATS], {
            env: { ...process.env, HOME: world.server.home },
        }),
    );
const turns = (...texts) => texts.map((content, at) => ({ role: at % 2 ? "assistant" : "user", content }));

test("a chat of the browser goes on in the terminal, and one of the terminal here", world =>
    withServer(world, ALLOW, async own => {
        const model = "Spry-Tales-29M";
        const made = await stored(own, "", { model, messages: turns("From the terminal", "Yes.") });
        const page = await openPage(own, { settings: { temperature: 0, max_tokens: 8 } });
        await page.waitForSelector(".open-chat");
        assert.deepEqual(await names(page), ["From the terminal"]);
        await page.click(".open-chat");
        await page.waitForSelector(".assistant");
        assert.deepEqual(await page.locator(".bubble, .text").allTextContents(), ["From the terminal", "Yes."]);

        // It goes on here, and the terminal has it.
        const written = page.waitForResponse(
            answer => answer.url().endsWith("/api/chats/" + made.id) && answer.request().method() === "POST",
        );
        await send(page, "Go on");
        await answered(page);
        assert.equal((await written).status(), 200);
        const shown = inTerminal(own, made.id);
        assert.equal(shown.messages.length, 4);
        assert.equal(shown.messages[2].content, "Go on");

        // A new one here is stored; the search of the server finds words of one that is not here.
        await page.click("#new-chat");
        await send(page, "A new one");
        await answered(page);
        await page.waitForFunction(() => localStorage.getItem("spry.chats").split('"stored"').length === 3);
        assert.equal((await stored(own)).chats.length, 2);
        await stored(own, "", { model, messages: turns("Third", "Purple aardvarks.") });
        await page.reload();
        await page.waitForFunction(() => document.querySelectorAll("#chats li").length === 3);
        await page.fill("#search", "aardvark");
        await page.waitForFunction(() => document.querySelector(".open-chat > span")?.textContent === "Third");
        assert.deepEqual(await names(page), ["Third"]);
        await page.fill("#search", "");

        // Renaming and deleting reach the file, and deleting can be undone.
        const first = page.locator('#chats li:has-text("A new one")');
        await first.hover();
        await first.locator("[title=Rename]").click();
        await page.keyboard.type("Renamed");
        await page.keyboard.press("Enter");
        await expectStored(own, list => list.some(chat => chat.title === "Renamed"));
        const renamed = page.locator('#chats li:has-text("Renamed")');
        await renamed.hover();
        await renamed.locator("[title=Delete]").click();
        await expectStored(own, list => !list.some(chat => chat.title === "Renamed"));
        await page.click("#toast-button");
        await expectStored(own, list => list.some(chat => chat.title === "Renamed"));
        await closePage(page);
    }));

async function expectStored(world, check) {
    for (;;) {
        if (check((await stored(world)).chats)) {
            return;
        }
        await new Promise(resolve => {
            setTimeout(resolve, 100);
        });
    }
}

test("what was added elsewhere is shown; what was changed at the same time becomes a copy", world =>
    withServer(world, ALLOW, async own => {
        const page = await openPage(own, { settings: { temperature: 0, max_tokens: 8 } });
        await page.waitForSelector("#model option", { state: "attached" });
        await page.click("#new-chat");
        await send(page, "Begun here");
        await answered(page);
        await expectStored(own, list => list.some(chat => chat.title === "Begun here"));
        const { id } = (await stored(own)).chats.find(chat => chat.title === "Begun here");
        const { messages } = await stored(own, "/" + id);
        await stored(own, "/" + id, { messages: [...messages, ...turns("Elsewhere", "Fine.")] });
        // The page does not know yet: what it writes becomes a chat of its own.
        await send(page, "And here");
        await answered(page);
        await expectStored(own, list => list.filter(chat => chat.title === "Begun here").length === 2);
        assert.equal((await stored(own, "/" + id)).messages.at(-1).content, "Fine.");
        await closePage(page);
    }));
