// Two answers to one prompt: two models, two settings, failures, and what is kept.
"use strict";
const { DESK, PHONE, answered, assert, closePage, madeUp, openPage, test } = require("./page_support.js");

const TOUCH = { viewport: PHONE, hasTouch: true, isMobile: true, colorScheme: "dark" };
const TIMINGS = {
    ttft_ms: 46,
    decode_ms: 500,
    parts_ms: { prefill: 40, decode: 490 },
    generated_tokens: 60,
    prompt_tokens: 9,
    cached_tokens: 3,
};

async function openCompare(world, more = {}) {
    const page = await openPage(world, { view: "#compare", ...more });
    await page.waitForSelector("#c1-model option", { state: "attached" });
    return page;
}

async function complete(page) {
    await page.waitForSelector("#compare-run:not([hidden])");
    await page.waitForFunction(() => !document.querySelector("#compare-sides [aria-busy=true]"));
}

const texts = page => page.locator("#compare-sides .text").allInnerTexts();
const sides = page => page.locator("#compare-sides > section");

test("two models answer one prompt, one after the other, with their figures", async world => {
    for (const context of [{ viewport: DESK }, TOUCH]) {
        const page = await openCompare(world, { ...context, settings: { temperature: 0, max_tokens: 12 } });
        const [one, other] = await page.locator("#compare-sides select[id$=model]").evaluateAll(all => all.map(select => select.value));
        assert.notEqual(one, other);
        await page.fill("#compare-prompt", "Tell me about a fox.");
        await page.click("#compare-run");
        await complete(page);
        assert.ok((await texts(page)).every(text => text.trim().length > 5));
        assert.deepEqual(page.asked.map(body => body.model), [one, other]);
        assert.ok(page.asked.every(body => body.temperature === 0 && body.messages.length === 1));
        const rows = await page
            .locator("#compare-table tr")
            .evaluateAll(all => all.map(row => [...row.cells].map(one => one.firstChild?.textContent).join("|")));
        assert.match(rows.join("\n"), /To the first token\|[\d.]+ m?s\|[\d.]+ m?s\n[^]*Tokens of the answer\|12\|12\n/);
        assert.ok((await page.locator("#compare-table .better").count()) >= 1);
        assert.equal(await sides(page).locator(".timings").count(), 2);
        const boxes = await Promise.all([0, 1].map(at => sides(page).nth(at).boundingBox()));
        if (context === TOUCH) {
            assert.ok(boxes[1].y >= boxes[0].y + boxes[0].height);
        } else {
            assert.ok(boxes[1].x >= boxes[0].x + boxes[0].width && boxes[1].y === boxes[0].y);
        }
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
        await closePage(page);
    }
});

test("two settings of one model, kept for the next visit; a wrong one is said at its side", async world => {
    const page = await openCompare(world, {
        settings: { temperature: 0.5, top_k: 7, system: "Be brief." },
        before: madeUp(["**First** answer.", "Second answer."], { timings: TIMINGS }),
    });
    const bodies = await page.evaluate(() => {
        window.bodies = [];
        const real = window.fetch;
        window.fetch = (url, options) => {
            if (url === "/v1/chat/completions") {
                window.bodies.push(JSON.parse(options.body));
            }
            return real(url, options);
        };
        return window.bodies.length;
    });
    assert.equal(bodies, 0);
    const first = await page.inputValue("#c0-model");
    await page.selectOption("#c1-model", first);
    for (const summary of await page.locator("#compare-sides summary", { hasText: "Settings" }).all()) {
        await summary.click();
    }
    await page.fill("#c1-temperature", "109");
    await page.fill("#c1-system", "Be long.");
    await page.focus("#compare-prompt");
    await page.keyboard.type("What is it?");
    await page.keyboard.press("Enter");
    assert.match(await sides(page).nth(1).locator("[role=alert]").innerText(), /^Temperature has to be a number from 0 to 100\.$/);
    assert.equal(await page.evaluate(() => window.bodies.length), 0);
    await page.fill("#c1-temperature", "1,5");
    await page.focus("#compare-prompt");
    await page.keyboard.press("Enter");
    await complete(page);
    assert.deepEqual(await texts(page), ["First answer.", "Second answer."]);
    assert.equal(await sides(page).nth(0).locator("strong").innerText(), "First");
    const [one, other] = await page.evaluate(() => window.bodies);
    assert.deepEqual([one.temperature, one.top_k, one.messages[0].content], [0.5, 7, "Be brief."]);
    assert.deepEqual([other.temperature, other.top_k, other.messages[0].content], [1.5, 7, "Be long."]);
    assert.equal(one.model, other.model);
    await page.reload();
    await page.waitForSelector("#c1-model option", { state: "attached" });
    assert.deepEqual(
        [await page.inputValue("#c1-temperature"), await page.inputValue("#c1-system"), await page.inputValue("#c1-model")],
        ["1,5", "Be long.", first],
    );
    await closePage(page);
});

test("one side fails, the other answers; both can run at once and be stopped", async world => {
    const page = await openCompare(world, { settings: { temperature: 0, max_tokens: 8 } });
    let calls = 0;
    await page.route("**/v1/chat/completions", route =>
        calls++ === 0
            ? route.fulfill({ status: 400, contentType: "application/json", body: '{"error": {"message": "This one is <b>broken</b>."}}' })
            : route.continue(),
    );
    await page.fill("#compare-prompt", "Hello");
    await page.click("#compare-run");
    await complete(page);
    assert.equal(await sides(page).nth(0).locator(".note").innerText(), "This one is <b>broken</b>.");
    assert.ok((await texts(page))[1].trim().length > 0);
    assert.equal(await page.locator("#compare-table tr").count(), 0);
    await closePage(page);

    const slow = await openCompare(world, { before: madeUp("word ".repeat(3000), { size: 5, delay: 20 }) });
    await slow.check("#compare-together");
    await slow.fill("#compare-prompt", "Go on");
    await slow.click("#compare-run");
    await slow.waitForFunction(() => [...document.querySelectorAll("#compare-sides .text")].every(one => one.textContent.length > 10));
    await slow.click("#compare-stop");
    await complete(slow);
    assert.deepEqual(await sides(slow).locator(".note").allInnerTexts(), ["Stopped.", "Stopped."]);
    await closePage(slow);
});

test("an answer of the chat is compared with what came before it, and goes on in the chat", async world => {
    const page = await openPage(world, { before: madeUp(["One.", "Two.", "Three.", "Four."], { timings: TIMINGS }) });
    await page.waitForSelector("#model option", { state: "attached" });
    for (const text of ["First question", "Second question"]) {
        await page.fill("#input", text);
        await page.keyboard.press("Enter");
        await answered(page);
    }
    await page.hover(".assistant >> nth=1");
    await page.click(".assistant >> nth=1 >> [title='Compare answers to this question']");
    await page.waitForSelector("#compare-view:not([hidden])");
    assert.equal(await page.inputValue("#compare-prompt"), "Second question");
    assert.ok(await page.isChecked("#compare-context"));
    await page.click("#compare-run");
    await complete(page);
    assert.deepEqual(await texts(page), ["Three.", "Four."]);
    await sides(page).nth(1).locator("button", { hasText: "Go on in the chat" }).click();
    await page.waitForSelector("#chat-view:not([hidden])");
    assert.deepEqual(await page.locator(".message .bubble, .message .text").allInnerTexts(), ["First question", "One.", "Second question", "Four."]);
    assert.equal(await page.inputValue("#model"), await page.inputValue("#c1-model"));
    await page.click("#tab-compare");
    await page.waitForSelector("#compare-view:not([hidden])");
    assert.equal(await page.getAttribute("#tab-compare", "aria-current"), "page");
    await closePage(page);
});
