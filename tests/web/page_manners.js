// Manners: the list of keys, the keyboard alone, targets for fingers, what screen readers need, errors with a next step.
"use strict";
const fs = require("node:fs");
const { DESK, KEY, PHONE, answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

// What axe-core finds, best practices included: "rule: element".
async function findings(page) {
    await page.evaluate(AXE);
    return page.evaluate(async () => {
        const { violations } = await window.axe.run(document);
        return violations.flatMap(one => one.nodes.map(node => `${one.id}: ${node.html.slice(0, 160)}`));
    });
}

test("the keys are listed under ?, and do what they say", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("?");
    assert.ok(await page.isVisible("#keys"));
    assert.ok((await page.locator("#keys-list li").count()) > 8);
    await page.keyboard.press("Escape");
    assert.ok(await page.isHidden("#keys"));
    await page.keyboard.press("w");
    await page.waitForSelector("#watch-view:not([hidden])");
    await page.keyboard.press("c");
    await page.waitForSelector("#chat-view:not([hidden])");
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("s");
    assert.ok(await page.isVisible("#settings"));
    await page.keyboard.press("Escape");
    // In a text the keys are letters.
    await page.focus("#input");
    await page.keyboard.type("sw?");
    assert.equal(await page.inputValue("#input"), "sw?");
    assert.ok(await page.isHidden("#settings"));
    await closePage(page);
});

test("the list of keys is one click away in every view", async world => {
    const page = await openPage(world);
    for (const view of ["#chat", "#watch", "#compare"]) {
        await page.evaluate(hash => {
            location.hash = hash;
        }, view);
        await page.click("#open-keys");
        assert.ok(await page.isVisible("#keys-list"), view);
        await page.keyboard.press("Escape");
    }
    await closePage(page);
});

test("on a touch screen every target is at least 44 pixels high and wide", async world => {
    const page = await openPage(world, {
        viewport: PHONE,
        hasTouch: true,
        isMobile: true,
        before: madeUp(["One.", "Two."]),
    });
    await send(page, "Hello");
    await page.click("#send");
    await answered(page);
    await page.click(".assistant [title='Answer again']");
    await answered(page);
    const small = () =>
        [...document.querySelectorAll("button, select, summary, .tabs a")]
            .filter(one => one.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
            .map(one => [one.id || one.title || one.textContent, one.getBoundingClientRect()])
            .filter(([, box]) => box.width < 43.5 || box.height < 43.5)
            .map(([name, box]) => `${name} ${box.width}x${box.height}`);
    assert.deepEqual(await page.evaluate(small), []);
    await page.click("#menu");
    assert.deepEqual(await page.evaluate(small), []);
    await closePage(page);
});

const LONG_ANSWER =
    "### A heading of the third level\n\nWords, `code`, [a link](https://example.com).\n\n# Another\n\n> ## Quoted\n\n- [ ] to do\n- [x] done\n\n" +
    "```c\nint x;\n```\n\n|a|b|\n|---|---|\n|1|2|\n\n##### Deep";

const atTop = ["settings", "models"]; // the others are in the list of conversations

test("axe-core finds nothing, in every view, on phones and desks, light and dark", async world => {
    for (const [viewport, colorScheme] of [
        [PHONE, "dark"],
        [PHONE, "light"],
        [DESK, "light"],
        [DESK, "dark"],
    ]) {
        const page = await openPage(world, {
            viewport,
            colorScheme,
            reducedMotion: "reduce",
            before: madeUp(LONG_ANSWER, {
                reasoning: "Thoughts.",
                timings: { prompt_tokens: 90, generated_tokens: 9, context_tokens: 100, dropped_tokens: 3, parts_ms: { decode: 5 } },
            }),
        });
        const check = async what =>
            assert.deepEqual(await findings(page), [], `${what} ${colorScheme} ${viewport.width}`);
        await check("empty");
        await send(page, "A question");
        await answered(page);
        await page.click(".reasoning summary");
        await page.click(".timings summary");
        await check("answer");
        for (const [open, what] of [
            ["#open-settings", "settings"],
            ["#open-models", "models"],
            [viewport === PHONE ? "#side-keys" : "#open-keys", "keys"],
            ["#export", "export"],
        ]) {
            if (viewport === PHONE && !atTop.includes(what)) {
                await page.click("#menu");
                await check("list");
            }
            await page.click(open);
            if (what === "models") {
                await page.waitForSelector("#model-list li");
            } else if (what === "settings") {
                await page.click("#tools summary");
                await page.click("#add-tool");
            }
            await check(what);
            await page.keyboard.press("Escape");
            if (viewport === PHONE && !atTop.includes(what)) {
                await page.keyboard.press("Escape");
            }
        }
        await page.click("#tab-watch");
        await page.waitForSelector("#watch-models li");
        await check("watch");
        await page.evaluate(() => {
            location.hash = "#compare";
        });
        await page.waitForSelector("#c1-model option", { state: "attached" });
        await page.click("#compare-sides summary");
        await check("compare");
        await closePage(page);
    }
});

test("a server that wants a key says so, with a field for it", async world => {
    const page = await openPage(world, { key: "" });
    await page.waitForSelector("#banner:not([hidden])");
    assert.equal(await page.textContent("#banner-text"), "This server wants a key.");
    assert.deepEqual(await findings(page), []);
    await page.fill("#banner-key-text", "wrong");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /does not accept/.test(document.getElementById("banner-text").textContent));
    await page.fill("#banner-key-text", KEY);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#banner", { state: "hidden" });
    await page.waitForSelector("#model option", { state: "attached" });
    await closePage(page);
});

test("a conversation by the keyboard alone", async world => {
    const page = await openPage(world, { before: madeUp(["One.", "Two.", "Three."]) });
    const press = async (...keys) => {
        for (const key of keys) {
            await page.keyboard.press(key);
        }
    };
    const focus = () => page.evaluate(() => document.activeElement.id || document.activeElement.title);
    const tabTo = async name => {
        for (let step = 0; step < 60 && (await focus()) !== name; step++) {
            await press("Tab");
        }
        assert.equal(await focus(), name);
    };
    assert.equal(await focus(), "input");
    await page.keyboard.type("First question");
    await press("Enter");
    await answered(page);
    await page.evaluate(() => document.getElementById("messages").querySelector(".assistant .actions button").focus());
    await tabTo("Answer again");
    await press("Enter");
    assert.equal(await (await answered(page)).locator(".text").innerText(), "Two.");
    assert.equal(await focus(), "input");
    await page.evaluate(() => document.activeElement.blur());
    await press("[");
    assert.equal(await page.innerText(".assistant .text"), "One.");
    await press("]");
    assert.equal(await page.innerText(".assistant .text"), "Two.");
    await press("c", "ArrowUp");
    await page.waitForSelector(".editor textarea");
    await page.keyboard.type(", edited");
    await press("Enter");
    assert.equal(await (await answered(page)).locator(".text").innerText(), "Three.");
    assert.equal(await page.innerText(".bubble"), "First question, edited");
    await press("Control+k");
    assert.equal(await focus(), "search");
    await page.keyboard.type("edited");
    assert.equal(await page.locator("#chats li").count(), 1);
    await press("Control+Shift+O");
    await page.waitForSelector("#welcome:not([hidden])");
    assert.equal(await focus(), "input");
    await page.evaluate(() => document.activeElement.blur());
    await press("s");
    await tabTo("s-temperature");
    await page.keyboard.type("0.5");
    await press("Enter");
    await page.waitForSelector("#settings", { state: "hidden" });
    await closePage(page);
});
