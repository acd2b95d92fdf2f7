// Manners: the list of keys, and targets for fingers.
"use strict";
const { PHONE, answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

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
