// A conversation never ends in an error: the context's meter, sliding, summaries, Continue, and answers that go on when the
// page is reloaded, the connection breaks, or the server is restarted.
"use strict";
const {
    KEY,
    answered,
    assert,
    closePage,
    endlessAnswers,
    madeUp,
    openPage,
    send,
    startServer,
    test,
    withServer,
} = require("./page_support.js");

const WHOLE = { temperature: 0, max_tokens: 120 };

// Runs in the page: of the answer to a question eight events arrive, however quick the server is. Then the connection is
// silent or, with `breaks`, gone. Streams that are continued are left alone.
function eightEvents(breaks) {
    const real = window.fetch;
    window.fetch = async (url, options) => {
        if (url !== "/v1/chat/completions") {
            return real(url, options);
        }
        const response = await real(url, options);
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        const body = new ReadableStream({
            async start(stream) {
                let text = "";
                while (text.split("\n\n").length < 9) {
                    text += (await reader.read()).value ?? "\n\n";
                }
                stream.enqueue(new TextEncoder().encode(text.split("\n\n").slice(0, 8).join("\n\n") + "\n\n"));
                if (breaks) {
                    reader.cancel();
                    setTimeout(() => stream.error(new TypeError("network error")), 0);
                }
            },
        });
        return new Response(body);
    };
}

// The same question without the page.
async function wholeAnswer(world, content, settings) {
    const answer = await fetch(world.url + "/v1/chat/completions", {
        method: "POST",
        headers: { Authorization: "Bearer " + KEY, "Content-Type": "application/json" },
        body: JSON.stringify({
            messages: [{ role: "user", content }],
            context_overflow: "slide",
            ...settings,
        }),
    });
    return (await answer.json()).choices[0].message.content;
}

const contentOf = page =>
    page.evaluate(() => {
        const id = localStorage.getItem("spry.open");
        return JSON.parse(localStorage.getItem("spry.chat." + id)).messages.at(-1).content;
    });
const someText = page =>
    page.waitForFunction(() => document.querySelector(".writing .text")?.textContent.length > 20);

test("a reload in mid-answer reads on", async world => {
    const page = await openPage(world, { settings: WHOLE, before: { script: eightEvents, argument: false } });
    const resumed = [];
    page.on("request", request => {
        if (request.url().includes("/v1/streams/")) {
            resumed.push(request.headers()["last-event-id"]);
        }
    });
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, "Tell me about a long journey.");
    await page.waitForSelector(".writing .text p");
    await page.reload();
    await page.waitForSelector(".assistant .timings");
    assert.match(resumed.join(), /^\d+$/);
    assert.equal(await page.locator(".note.error").count(), 0);
    assert.equal(await contentOf(page), await wholeAnswer(world, "Tell me about a long journey.", WHOLE));
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('"stream"')), false);
    await closePage(page);
});

test("a connection that breaks is taken up again without a word", async world => {
    const page = await openPage(world, { settings: WHOLE, before: { script: eightEvents, argument: true } });
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, "Tell me about a bridge.");
    await page.waitForSelector(".assistant .timings");
    assert.equal(await page.locator(".note.error").count(), 0);
    assert.equal(await contentOf(page), await wholeAnswer(world, "Tell me about a bridge.", WHOLE));
    await closePage(page);
});

test("stop ends the answer on the server, too", async world => {
    const page = await openPage(world, { settings: { max_tokens: 100000 }, before: { script: endlessAnswers } });
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, "Go on and on.");
    await someText(page);
    const [cancelled] = await Promise.all([
        page.waitForResponse(response => response.request().method() === "DELETE"),
        page.click("#stop"),
    ]);
    assert.equal(cancelled.status(), 200);
    await page.reload();
    assert.equal(await page.innerText(".assistant .note"), "Stopped.");
    await closePage(page);
});

test("a server that is restarted in mid-answer is told plainly, and the answer can be continued", async world => {
    const first = await startServer();
    const page = await openPage(
        { ...world, url: first.url },
        { settings: { temperature: 0, max_tokens: 100000 }, before: { script: endlessAnswers } },
    );
    let second = null;
    try {
        await page.waitForSelector("#model option", { state: "attached" });
        await send(page, "Tell me about a mill.");
        await someText(page);
        await first.kill();
        await page.waitForSelector("#banner:not([hidden])");
        second = await startServer([], first);
        await answered(page);
        await page.waitForSelector("#banner", { state: "hidden" });
        assert.match(await page.innerText(".assistant .note"), /broke|interrupted|does not answer/);
        const before = (await contentOf(page)).length;
        await page.click(".continue");
        await page.waitForFunction(
            length => document.querySelector(".writing .text")?.textContent.length > length + 20,
            before,
        );
        await page.click("#stop");
        await answered(page);
        await closePage(page);
    } finally {
        await (second ?? first).stop();
    }
});

test("a cut answer continues where it ended", async world => {
    const page = await openPage(world, { settings: { temperature: 0, max_tokens: 12 } });
    await page.waitForSelector("#model option", { state: "attached" });
    await send(page, "Tell me about a pond.");
    await answered(page);
    const first = await contentOf(page);
    await page.click(".continue");
    await answered(page);
    const both = await contentOf(page);
    assert.ok(both.startsWith(first) && both.length > first.length, both);
    assert.equal(page.asked.at(-1).continue_final_message, true);
    assert.equal(page.asked.at(-1).messages.at(-1).content, first);
    assert.equal(await page.locator(".message").count(), 2);
    assert.equal(both, await wholeAnswer(world, "Tell me about a pond.", { temperature: 0, max_tokens: 24 }));
    await closePage(page);
});

test("the meter shows the context, and a full one slides and says so", world =>
    withServer(world, ["--context", "256"], async small => {
        const page = await openPage(small, { settings: { temperature: 0, max_tokens: 60 } });
        await page.waitForSelector("#model option", { state: "attached" });
        await send(page, "Tell me about a fox.");
        await answered(page);
        assert.match(await page.innerText("#context-words"), /^\d+ of 256 tokens of context$/);
        for (let turn = 0; turn < 12 && !(await page.locator(".notice:visible").count()); turn++) {
            await send(page, "And then? " + "Tell more of it. ".repeat(3));
            await answered(page);
            assert.equal(await page.locator(".note.error").count(), 0);
        }
        for (const question of ["One more.", "And another."]) {
            await send(page, question + " Tell more of it.".repeat(8));
            await answered(page);
        }
        assert.match(await page.locator(".offers .notice p").last().innerText(), /^Older turns no longer fit: \d+ tokens were left out\.$/);
        await page.reload(); // it stays there
        assert.ok((await page.locator(".offers .notice").count()) > 0);

        // Keep all: what does not fit is said, and is no error.
        await page.locator("text=Keep all").last().click();
        await answered(page);
        assert.equal(page.asked.at(-1).context_overflow, "error");
        const last = page.locator(".message.assistant").last();
        assert.match(await last.locator(".notice p").innerText(), /does not fit into the context any more/);
        assert.equal(await last.locator(".note.error").count(), 0);

        // Summarise: the summary takes the place of what came before, and the question is answered.
        await last.locator("text=Summarise what came before").click();
        await page.waitForSelector(".summary");
        await page.waitForFunction(
            () => !document.querySelector(".writing") && document.querySelector(".summary ~ .assistant"),
        );
        const body = page.asked.at(-1);
        assert.match(body.messages[0].content, /^Summary of the conversation so far:/);
        assert.equal(body.messages.length, 2);

        // It can be edited, and counts from then on.
        await page.hover(".summary");
        await page.click(".summary [title='Edit the summary']");
        await page.fill(".summary textarea", "A fox walked far.");
        await page.keyboard.press("Enter");
        assert.equal(await page.innerText(".summary .text"), "A fox walked far.");
        await send(page, "Where is it?");
        await answered(page);
        assert.match(page.asked.at(-1).messages[0].content, /A fox walked far\.$/);
        await closePage(page);
    }));

test("start fresh begins a new conversation", async world => {
    const page = await openPage(world, {
        before: madeUp("Fine.", { timings: { prompt_tokens: 90, generated_tokens: 2, context_tokens: 100, dropped_tokens: 7 } }),
    });
    await send(page, "Hello");
    await answered(page);
    assert.equal(await page.innerText("#context-words"), "92 of 100 tokens of context");
    await page.click("text=Start fresh");
    assert.equal(await page.locator(".message").count(), 0);
    assert.ok(await page.isHidden("#context"));
    assert.equal(await page.locator("#chats li").count(), 1);
    await closePage(page);
});
