// Settings of a conversation: they go with its requests, stay with it, and can become the settings of new ones.
"use strict";
const { KEY, answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

// What the page sends, read in the page, because made-up answers never leave it.
async function lastBody(page, question) {
    await page.evaluate(() => {
        if (!window.bodies) {
            window.bodies = [];
            const inner = window.fetch;
            window.fetch = (url, options) => {
                if (url === "/v1/chat/completions") {
                    window.bodies.push(JSON.parse(options.body));
                }
                return inner(url, options);
            };
        }
    });
    await send(page, question);
    await answered(page);
    return page.evaluate(() => window.bodies.at(-1));
}

async function setFields(page, values) {
    await page.click("#open-settings");
    for (const [name, value] of Object.entries(values)) {
        await page.fill("#s-" + name, value);
    }
    await page.click("#settings .solid");
}

test("every conversation has its own settings, and keeps them", async world => {
    const page = await openPage(world, { before: madeUp("Fine."), settings: { temperature: 0.4 } });
    await setFields(page, {
        temperature: "0.9",
        top_k: "17",
        repeat_penalty: "1.2",
        presence_penalty: "-0.5",
        stop: "END\nSTOP",
        schema: '{"type": "object"}',
        system: "Be one.",
    });
    const body = await lastBody(page, "One");
    assert.deepEqual(
        [body.temperature, body.top_k, body.repeat_penalty, body.presence_penalty, body.stop],
        [0.9, 17, 1.2, -0.5, ["END", "STOP"]],
    );
    assert.deepEqual(body.response_format.json_schema.schema, { type: "object" });
    assert.deepEqual(body.messages[0], { role: "system", content: "Be one." });
    // A new one begins with the defaults.
    await page.click("#new-chat");
    const other = await lastBody(page, "Two");
    assert.equal(other.temperature, 0.4);
    assert.ok(!("top_k" in other) && !("stop" in other) && !("response_format" in other));
    assert.equal(other.messages[0].role, "user");
    // The first one still has its own after a reload.
    await page.reload();
    await page.locator("#chats .open-chat", { hasText: "One" }).click();
    assert.equal((await lastBody(page, "Again")).top_k, 17);
    await closePage(page);
});

test("every setting shows its value and a line of help, and sliders and fields follow each other", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    const { settings } = await (await fetch(world.url + "/v1/settings", { headers: { Authorization: "Bearer " + KEY } })).json();
    const served = Object.fromEntries(settings.map(one => [one.name, one]));
    await page.click("#open-settings");
    await page.waitForSelector("#h-seed:not(:empty)");
    for (const input of await page.locator("#sampling input:not([type=range])").all()) {
        const name = (await input.getAttribute("id")).slice(2);
        assert.equal(await page.textContent("#h-" + name), served[name].help);
        if (served[name].value !== null) {
            assert.ok(Math.abs(Number(await input.getAttribute("placeholder")) - served[name].value) < 1e-5, name);
        }
    }
    const slider = page.locator("#r-temperature");
    assert.ok(Math.abs(Number(await slider.inputValue()) - served.temperature.value) < 0.01);
    await slider.fill("1.5");
    assert.equal(await page.inputValue("#s-temperature"), "1.5");
    await page.fill("#s-top_k", "33");
    assert.equal(await page.inputValue("#r-top_k"), "33");
    await page.fill("#s-top_p", "2");
    assert.equal(await page.textContent("#settings-error"), "Top p has to be a number from 0 to 1.");
    await page.fill("#s-top_p", "");
    await page.click("#settings .solid");
    const body = await lastBody(page, "One");
    assert.deepEqual([body.temperature, body.top_k, "top_p" in body], [1.5, 33, false]);
    await closePage(page);
});

test("presets fill in, thinking is sent, and settings become the settings of new conversations", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.click("#open-settings");
    await page.selectOption("#s-preset", "inventive");
    await page.selectOption("#s-thinking", "off");
    await page.selectOption("#s-draft", "off");
    assert.equal(await page.inputValue("#s-temperature"), "1.1");
    await page.click("#settings-default");
    await page.click("#settings .solid");
    await page.reload();
    await page.click("#new-chat");
    const body = await lastBody(page, "Hello");
    assert.deepEqual(
        [body.temperature, body.min_p, body.chat_template_kwargs, body.draft],
        [1.1, 0.05, { enable_thinking: false }, false],
    );
    await page.click("#open-settings");
    await page.click("#settings-reset");
    await page.click("#settings .solid");
    const reset = await lastBody(page, "Again");
    assert.ok(!("temperature" in reset) && !("chat_template_kwargs" in reset) && !("draft" in reset));
    await closePage(page);
});

test("a schema is checked while it is typed, and a wrong one is not sent", async world => {
    const page = await openPage(world, { before: madeUp("Fine.") });
    await page.click("#open-settings");
    await page.fill("#s-schema", '{"type": ');
    assert.match(await page.textContent("#settings-error"), /^The schema is not JSON: /);
    assert.equal(await page.getAttribute("#s-schema", "aria-invalid"), "true");
    await page.fill("#s-schema", "[1]");
    assert.equal(await page.textContent("#settings-error"), "The schema has to be a JSON object.");
    await page.click("#settings .solid");
    assert.ok(await page.isVisible("#settings"));
    await page.keyboard.press("Escape");
    assert.ok(!("response_format" in (await lastBody(page, "Hello"))));
    await page.click("#open-settings");
    await page.fill("#s-schema", '{"type": "object", "properties": {"age": {"type": "number", "enum": 3}}}');
    assert.equal(await page.textContent("#settings-error"), "The schema is wrong at properties.age.enum.");
    await page.fill("#s-schema", '{"type": "array", "items": {"anyOf": [{"pattern": "["}]}}');
    assert.equal(await page.textContent("#settings-error"), "The schema is wrong at items.anyOf.0.pattern.");
    await page.fill("#s-schema", '{"type": "boolean"}');
    assert.ok(await page.isHidden("#settings-error"));
    await closePage(page);
});
