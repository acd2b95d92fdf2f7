// Asking and answering: the real model where its text does not matter, made-up answers where it does.
"use strict";
const {
    KEY,
    PHONE,
    answered,
    assert,
    closePage,
    endlessAnswers,
    madeUp,
    openPage,
    send,
    startServer,
    test,
} = require("./page_support.js");

const QUICK = { temperature: 0, max_tokens: 24 };

test("the empty page says what the bundled model is for, and how to begin", async world => {
    const page = await openPage(world, { locale: "de-DE", before: madeUp("Es war einmal.") });
    await page.waitForSelector("#bundled-note:not([hidden])");
    await page.click("#samples button >> nth=0");
    await answered(page);
    assert.ok(await page.isHidden("#welcome"));
    // The model knows English only.
    assert.equal(await page.innerText(".bubble"), "Tell me a story about a brave little fox.");
    await page.click("#new-chat");
    await page.click("#real-model");
    assert.equal(await page.evaluate(() => document.activeElement.id), "pull-source");
    assert.match(await page.innerText("#pull-form"), /spry pull hf:/);
    assert.match(await page.innerText("#pull-refused"), /--allow-pull/);
    await closePage(page);
});

test("with another model the empty page has other prompts, in the page's language", async world => {
    const page = await openPage(world, { locale: "de-DE", before: madeUp("Gut.") });
    await page.route("**/page.json", route => route.fulfill({ json: { libraries: [], bundled: "other", chats: false, pull: true } }));
    await page.reload();
    await page.waitForSelector("#samples button");
    assert.ok(await page.isHidden("#bundled-note"));
    const words = await page.innerText("#samples button >> nth=0");
    assert.match(words, /Regenbogen/);
    await page.click("#samples button >> nth=0");
    await answered(page);
    assert.equal(await page.innerText(".bubble"), words);
    await page.click("#open-models");
    assert.ok(await page.isHidden("#pull-refused"));
    await closePage(page);
});

test("after an answer the end is in sight, on every width", async world => {
    const timings = { prompt_tokens: 90, generated_tokens: 9, context_tokens: 100, decode_ms: 5, parts_ms: { decode: 5 } };
    const text = "A paragraph of some length that takes more than a line.\n\n".repeat(40) + "```c\nint x;\n```\n\nand $x^2$.";
    for (const viewport of [PHONE, { width: 1024, height: 768 }]) {
        const page = await openPage(world, { viewport, lazy: true, before: madeUp(text, { timings, size: 200 }) });
        const below = () => page.locator("#scroller").evaluate(one => one.scrollHeight - one.scrollTop - one.clientHeight);
        for (const question of ["One?", "Two?"]) {
            await page.fill("#input", question);
            await page.click("#send");
            await answered(page);
            await page.waitForSelector("#context:not([hidden])");
            await page.evaluate(() => new Promise(resolve => setTimeout(resolve, 300)));
            assert.ok((await below()) <= 1, `${await below()} pixels below at ${viewport.width}`);
        }
        // What is read further up stays where it is.
        await page.locator("#scroller").evaluate(one => one.scrollBy(0, -400));
        await page.waitForSelector("#latest:not([hidden])");
        await page.setViewportSize({ ...viewport, height: viewport.height - 100 });
        assert.ok((await below()) > 300);
        await closePage(page);
    }
});

test("the page asks for the key, and then works", async world => {
    const page = await openPage(world, { key: "" });
    await page.waitForSelector("#banner:not([hidden])");
    assert.match(await page.textContent("#banner-text"), /wants a key/);
    await page.click("#open-settings");
    await page.fill("#s-key", KEY);
    await page.click("#settings .solid");
    await page.waitForSelector("#banner", { state: "hidden" });
    assert.ok((await page.locator("#model option").count()) > 0);
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("a-key")), false);
    await closePage(page);
});

test("an answer streams in, with its timings, and survives a reload", async world => {
    const page = await openPage(world, { settings: QUICK });
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, "Tell me about a fox.");
    const item = await answered(page);
    const text = await item.locator(".text").innerText();
    assert.ok(text.trim().length > 10, text);
    assert.match(await item.locator(".timings summary").innerText(), /to the first token.*24 tokens.*a second/);
    assert.match(
        await item.locator(".facts").textContent(),
        /prefix reused.*prompt tokens.*energy(.* J for 100 tokens|unmeasured)/,
    );
    assert.ok(await item.locator(".timings .bar i").evaluateAll(parts => parts.some(part => part.offsetWidth > 5)));
    assert.match(await item.locator(".note").innerText(), /length limit/);
    const [body] = page.asked;
    assert.deepEqual(body.messages, [{ role: "user", content: "Tell me about a fox." }]);
    assert.equal(body.stream, true);
    assert.equal(body.model, await page.inputValue("#model"));
    assert.equal(body.temperature, 0);
    assert.equal("top_p" in body, false);
    await page.reload();
    assert.equal((await page.innerText(".assistant .text")).trim(), text.trim());
    await closePage(page);
});

test("answering again at temperature 0 gives the same words, and less to compute", async world => {
    const page = await openPage(world, { settings: QUICK });
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, "Write about a lighthouse.");
    const first = await (await answered(page)).locator(".text").innerText();
    await page.click(".assistant [title='Answer again']");
    const item = await answered(page);
    assert.equal(await item.locator(".text").innerText(), first);
    assert.equal(await page.locator(".message").count(), 2);
    assert.match(await item.locator(".facts").textContent(), /prefix reused[1-9]\d* of \d+ prompt tokens/);
    assert.deepEqual({ ...page.asked[1], stream_id: "" }, { ...page.asked[0], stream_id: "" });
    assert.equal(await item.locator(".version").innerText(), "2/2");
    await closePage(page);
});

test("a long answer of the model stops when asked", async world => {
    const settings = { temperature: 1, max_tokens: 2000, seed: 5 };
    const page = await openPage(world, { settings, before: { script: endlessAnswers } });
    await page.evaluate(() => {
        // At once: by the time that a click from outside arrives on a busy machine, the answer may have all its tokens.
        const stop = document.getElementById("stop");
        const watch = new MutationObserver(() => {
            if (!stop.hidden && document.querySelector(".assistant .text")?.textContent.length > 10) {
                watch.disconnect();
                stop.click();
            }
        });
        watch.observe(document.body, { childList: true, characterData: true, subtree: true });
    });
    await send(page, "Tell me a very long tale.");
    await page.waitForFunction(() => document.querySelector(".assistant .text")?.textContent.length > 10);
    await answered(page);
    assert.equal(await page.innerText(".assistant .note"), "Stopped.");
    assert.ok(await page.isVisible("#send"));
    await closePage(page);
});

test("escape stops, and what was written stays", async world => {
    const page = await openPage(world, { before: madeUp("word ".repeat(500), { size: 5, delay: 20 }) });
    await send(page, "Go on");
    await page.waitForFunction(() => document.querySelector(".assistant .text")?.textContent.length > 20);
    await page.keyboard.press("Escape");
    await answered(page);
    const text = await page.innerText(".assistant .text");
    assert.ok(text.startsWith("word word") && text.length < 2500);
    await page.reload();
    assert.equal((await page.innerText(".assistant .text")).trim(), text.trim());
    assert.equal(await page.innerText(".assistant .note"), "Stopped.");
    await closePage(page);
});

test("editing a message sends the conversation up to it again", async world => {
    const page = await openPage(world, { settings: QUICK });
    for (const text of ["One", "Two", "Three"]) {
        await send(page, text);
        await answered(page);
    }
    await page.locator(".user").nth(1).hover();
    await page.locator(".user").nth(1).locator("[title^=Edit]").click();
    await page.keyboard.press("Control+A");
    await page.keyboard.type("Two and a half");
    await page.keyboard.press("Enter");
    await answered(page);
    const body = page.asked[3];
    assert.deepEqual(
        body.messages.map(message => message.role),
        ["user", "assistant", "user"],
    );
    assert.deepEqual(body.messages.slice(0, 2), page.asked[1].messages.slice(0, 2));
    assert.equal(body.messages[2].content, "Two and a half");
    assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["One", "Two and a half"]);
    await closePage(page);
});

test("an edited question is a branch, and the former one stays", async world => {
    const page = await openPage(world, { before: madeUp(["First.", "Second.", "Third."]) });
    for (const text of ["One", "Two"]) {
        await send(page, text);
        await answered(page);
    }
    await page.hover(".message");
    await page.click(".message [title^=Edit]");
    await page.keyboard.type(" again");
    await page.keyboard.press("Enter");
    await answered(page);
    assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["One again"]);
    assert.equal(await page.innerText(".user .version"), "2/2");
    await page.click(".user .earlier-version");
    assert.deepEqual(await page.locator(".bubble, .text").allInnerTexts(), ["One", "First.", "Two", "Second."]);
    await page.reload();
    assert.deepEqual(await page.locator(".bubble, .text").allInnerTexts(), ["One", "First.", "Two", "Second."]);
    await closePage(page);
});

test("an edit that is given up changes nothing", async world => {
    const page = await openPage(world, { before: madeUp("Yes.") });
    await send(page, "Question");
    await answered(page);
    await page.press("#input", "ArrowUp");
    await page.keyboard.type(" changed");
    await page.keyboard.press("Escape");
    assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["Question"]);
    assert.equal(await page.innerText(".assistant .text"), "Yes.");
    await closePage(page);
});

test("shift and enter make a line, enter sends, the box grows", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    const low = await page.locator("#input").evaluate(area => area.offsetHeight);
    await page.focus("#input");
    await page.keyboard.type("one");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("two");
    assert.ok((await page.locator("#input").evaluate(area => area.offsetHeight)) > low);
    await page.keyboard.press("Enter");
    await answered(page);
    assert.equal(await page.innerText(".bubble"), "one\ntwo");
    assert.equal(await page.locator("#input").evaluate(area => area.offsetHeight), low);
    await closePage(page);
});

test("settings go with the request, wrong ones are named", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.click("#open-settings");
    await page.waitForSelector("#h-temperature:not(:empty)");
    await page.fill("#s-temperature", "hot");
    assert.match(await page.textContent("#settings-error"), /^Temperature has to be a number from 0 to 100\.$/);
    await page.click("#settings .solid");
    assert.ok(await page.isVisible("#settings"));
    const values = { temperature: "0,5", top_p: "0.9", min_p: "0.05", max_tokens: "77", seed: "123" };
    for (const [name, value] of Object.entries(values)) {
        await page.fill("#s-" + name, value);
    }
    await page.fill("#s-system", "You are brief.");
    await page.click("#settings .solid");
    await page.evaluate(() => {
        const inner = window.fetch;
        window.fetch = (url, options) => {
            window.sent = options?.body ?? window.sent;
            return inner(url, options);
        };
    });
    await send(page, "Hello");
    await answered(page);
    const body = JSON.parse(await page.evaluate(() => window.sent));
    assert.deepEqual([body.temperature, body.top_p, body.min_p, body.max_tokens, body.seed], [0.5, 0.9, 0.05, 77, 123]);
    assert.deepEqual(body.messages[0], { role: "system", content: "You are brief." });
    await closePage(page);
});

test("the chosen model is asked and remembered", async world => {
    const models = ["first", "second"];
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.route("**/v1/models", route => route.fulfill({ json: { data: models.map(id => ({ id })) } }));
    await page.reload();
    await page.selectOption("#model", "second");
    await page.reload();
    await page.waitForSelector("#model option", { state: "attached" });
    assert.equal(await page.inputValue("#model"), "second");
    await closePage(page);
});

test("thoughts are folded and apart from the answer", async world => {
    const page = await openPage(world, { before: madeUp("Four.", { reasoning: "Two and <b>two</b>." }) });
    await send(page, "2+2?");
    await answered(page);
    assert.equal(await page.locator(".reasoning").evaluate(part => part.open), false);
    await page.click(".reasoning summary");
    assert.equal(await page.innerText(".reasoning div"), "Two and <b>two</b>.");
    assert.equal(await page.innerText(".assistant .text"), "Four.");
    await closePage(page);
});

test("errors of the server are sentences", async world => {
    const page = await openPage(world);
    const answers = [
        [
            { status: 503, json: { error: { message: "Too many requests wait already." } } },
            "Too many requests wait already. Wait a moment, then try again.",
        ],
        [
            { status: 500, body: "<h1>oops</h1>" },
            "The server answered with error 500. Try again; the server's log says more.",
        ],
        [{ status: 413, json: { error: "The body is too large." } }, "The body is too large. Send less at once."],
        [
            { status: 200, contentType: "text/event-stream", body: "data: <html>\n\n" },
            "The server sent an invalid response.",
        ],
        [
            {
                status: 200,
                contentType: "text/event-stream",
                body: 'data: {"error":{"message":"The memory is full."}}\n\n',
            },
            "The memory is full.",
        ],
        [
            {
                status: 200,
                contentType: "text/event-stream",
                body: 'data: {"choices":[{"delta":{"content":"Half"}}]}\n\n',
            },
            "The connection to the server broke before the answer was complete.",
        ],
    ];
    for (const [answer, sentence] of answers) {
        await page.route("**/v1/chat/completions", route => route.fulfill(answer));
        await send(page, "Hello");
        assert.equal(await (await answered(page)).locator(".note").innerText(), sentence);
    }
    await closePage(page);
});

test("the server's own refusal is shown", async world => {
    const page = await openPage(world, { settings: { temperature: 0, max_tokens: 4 } });
    await page.waitForSelector("#model option", { state: "attached" });
    await page.evaluate(() => {
        const option = document.createElement("option");
        option.value = "no-such-model";
        document.getElementById("model").append(option);
        document.getElementById("model").value = "no-such-model";
    });
    await send(page, "Hello");
    assert.match(await (await answered(page)).locator(".note.error").innerText(), /no-such-model/);
    await closePage(page);
});

test("a server that is away is noticed, and its return too", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.waitForSelector("#model option", { state: "attached" });
    await page.context().setOffline(true);
    await page.waitForSelector("#banner:not([hidden])");
    assert.match(await page.textContent("#banner-text"), /does not answer/);
    await page.context().setOffline(false);
    await page.waitForSelector("#banner", { state: "hidden" });
    await closePage(page);
});

test("a server that takes its time can be stopped, and the next question goes through", async world => {
    const page = await openPage(world);
    let asked = 0;
    await page.route("**/v1/chat/completions", route => {
        asked++;
        return asked === 1 ? undefined : route.fulfill({ status: 200, contentType: "text/event-stream", body: 'data: {"choices":[{"delta":{"content":"Now."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n' });
    });
    await send(page, "Are you there?");
    await page.waitForSelector(".writing .pending:not([hidden])");
    assert.ok(await page.isVisible("#stop"));
    await page.click("#stop");
    assert.equal(await (await answered(page)).locator(".note").innerText(), "Stopped.");
    await send(page, "And now?");
    await page.waitForFunction(() => document.querySelectorAll(".assistant").length === 2);
    assert.equal(await (await answered(page)).locator(".text").innerText(), "Now.");
    await closePage(page);
});

test("a question to a server that is gone is kept, and asked again when it is back", async world => {
    const server = await startServer();
    const page = await openPage({ ...world, url: server.url }, { settings: QUICK });
    await page.waitForSelector("#model option", { state: "attached" });
    await server.kill();
    await send(page, "Once upon a time");
    const item = await answered(page);
    assert.match(await item.locator(".note.error").innerText(), /does not answer/);
    assert.ok(await page.isVisible("#banner"));
    assert.equal(await page.innerText(".bubble"), "Once upon a time");
    const again = await startServer([], server);
    try {
        await page.waitForSelector("#banner", { state: "hidden" });
        await page.waitForFunction(() => !document.querySelector(".writing"));
        await page.click(".assistant .retry");
        assert.ok((await (await answered(page)).locator(".text").innerText()).length > 0);
        await page.context().close(); // the browser noted the failed requests
    } finally {
        await again.stop();
    }
});
