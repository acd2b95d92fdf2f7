// Versions of answers, branches of questions, deleting turns, going back; two tabs; long conversations.
"use strict";
const { answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

// What is out of sight has no innerText.
const texts = page => page.locator(".bubble, .text").allTextContents();

async function talk(page, ...questions) {
    for (const question of questions) {
        await send(page, question);
        await answered(page);
    }
}

test("answering again keeps the former answer", async world => {
    const page = await openPage(world, { before: madeUp(["One.", "Two.", "Three."]) });
    await talk(page, "Question");
    for (const count of [2, 3]) {
        await page.click(".assistant [title='Answer again']");
        await answered(page);
        assert.equal(await page.innerText(".assistant .version"), `${count}/${count}`);
    }
    await page.click(".assistant .earlier-version");
    assert.deepEqual(await texts(page), ["Question", "Two."]);
    await page.reload();
    assert.deepEqual(await texts(page), ["Question", "Two."]);
    assert.equal(await page.innerText(".assistant .version"), "2/3");
    // With the keyboard, to both ends.
    await page.focus(".earlier-version");
    await page.keyboard.press("Enter");
    assert.deepEqual(await texts(page), ["Question", "One."]);
    assert.ok(await page.isDisabled(".earlier-version"));
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("]");
    await page.keyboard.press("]");
    await page.keyboard.press("]");
    assert.deepEqual(await texts(page), ["Question", "Three."]);
    await page.hover(".assistant");
    await page.click("[title='Delete this version']");
    assert.deepEqual(await texts(page), ["Question", "Two."]);
    assert.equal(await page.innerText(".assistant .version"), "2/2");
    await closePage(page);
});

test("each branch has its own continuation", async world => {
    const page = await openPage(world, { before: madeUp(["a", "b", "c", "d", "e"]) });
    await talk(page, "1", "2");
    await page.locator(".user").first().hover();
    await page.locator(".user [title^=Edit]").first().click();
    await page.keyboard.press("Control+A");
    await page.keyboard.type("1 changed");
    await page.keyboard.press("Enter");
    await answered(page);
    await talk(page, "3");
    assert.deepEqual(await texts(page), ["1 changed", "c", "3", "d"]);
    await page.click(".user .earlier-version");
    assert.deepEqual(await texts(page), ["1", "a", "2", "b"]);
    await page.click(".user .later-version");
    assert.deepEqual(await texts(page), ["1 changed", "c", "3", "d"]);
    const body = await page.evaluate(() => {
        window.sent = null;
        const inner = window.fetch;
        window.fetch = (url, options) => {
            window.sent ??= options?.body;
            return inner(url, options);
        };
    });
    assert.equal(body, undefined);
    await talk(page, "4");
    const sent = JSON.parse(await page.evaluate(() => window.sent));
    assert.deepEqual(
        sent.messages.map(message => message.content),
        ["1 changed", "c", "3", "d", "4"],
    );
    await closePage(page);
});

test("a turn is deleted and brought back; what followed stays", async world => {
    const page = await openPage(world, { before: madeUp(["a", "b", "c"]) });
    await talk(page, "1", "2", "3");
    await page.locator(".user").nth(1).hover();
    await page.locator("[title='Delete this turn']").nth(1).click();
    assert.deepEqual(await texts(page), ["1", "a", "3", "c"]);
    await page.click("#toast-button");
    assert.deepEqual(await texts(page), ["1", "a", "2", "b", "3", "c"]);
    await page.locator(".user").first().hover();
    await page.locator("[title='Delete this turn']").first().click();
    await page.reload();
    assert.deepEqual(await texts(page), ["2", "b", "3", "c"]);
    await closePage(page);
});

test("a conversation goes on from any point, and what followed is kept", async world => {
    const page = await openPage(world, { before: madeUp(["a", "b", "c", "d"]) });
    await talk(page, "1", "2", "3");
    await page.locator(".assistant").first().hover();
    await page.locator("[title='Continue from here']").first().click();
    assert.deepEqual(await texts(page), ["1", "a"]);
    await page.reload();
    assert.deepEqual(await texts(page), ["1", "a"]);
    await page.click("#show-branch");
    assert.deepEqual(await texts(page), ["1", "a", "2", "b", "3", "c"]);
    await page.locator(".assistant").first().hover();
    await page.locator("[title='Continue from here']").first().click();
    await talk(page, "another way");
    assert.deepEqual(await texts(page), ["1", "a", "another way", "a"]); // made-up answers begin anew after the reload
    assert.equal(await page.locator(".user .version").innerText(), "2/2");
    assert.ok(await page.isHidden("#branch-note"));
    await closePage(page);
});

test("two tabs on one conversation lose nothing", async world => {
    const page = await openPage(world, { before: madeUp(["a", "b", "c"]) });
    await talk(page, "1");
    const other = await page.context().newPage();
    await other.addInitScript(madeUp("from the other").script, madeUp("from the other").argument);
    await other.goto(world.url);
    await other.waitForSelector(".assistant");
    await talk(other, "there");
    await page.waitForFunction(() => document.querySelector(".message:nth-child(4) .text")?.textContent);
    assert.deepEqual(await texts(page), ["1", "a", "there", "from the other"]);
    await talk(page, "here");
    await other.waitForFunction(() => document.querySelector(".message:nth-child(6) .text")?.textContent);
    assert.deepEqual(await texts(other), ["1", "a", "there", "from the other", "here", "b"]);
    await closePage(page);
});

test("2,000 turns open with their end; earlier ones come when they are wanted", async world => {
    const messages = Array.from({ length: 4000 }, (_, at) => ({
        role: at % 2 ? "assistant" : "user",
        content: (at % 2 ? "Answer **" : "Question ") + at + (at % 2 ? "**" : ""),
    }));
    const page = await openPage(world, {
        before: {
            script: all => {
                localStorage.setItem("spry.chats", JSON.stringify([{ id: "long", title: "Long", updated: 1 }]));
                localStorage.setItem("spry.chat.long", JSON.stringify({ id: "long", title: "Long", updated: 1, messages: all }));
                localStorage.setItem("spry.open", "long");
            },
            argument: messages,
        },
    });
    const count = () => page.locator(".message").count();
    assert.equal(await page.locator(".text").last().innerText(), "Answer 3999");
    const first = await count();
    assert.ok(first < 200, first + " messages are made at once");
    await page.evaluate(() => document.getElementById("scroller").scrollTo(0, 0));
    await page.waitForFunction(before => document.querySelectorAll(".message").length > before, first);
    assert.ok((await count()) < 400);
    await closePage(page);
});
