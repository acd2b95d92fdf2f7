// Tools of a conversation: declared in the settings, called by the model, their results pasted by the user.
"use strict";
const { answered, assert, closePage, openPage, send, test } = require("./page_support.js");

const SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}';

// Runs in the page: the first answer calls two tools, the next one is text; the bodies are kept.
function callingAnswers() {
    const real = window.fetch;
    const delta = part => ({ choices: [{ index: 0, delta: part }] });
    const call = (index, part) => delta({ tool_calls: [{ index, ...part }] });
    const answers = [
        [
            delta({ content: "Let me look." }),
            call(0, { id: "call_1", type: "function", function: { name: "weather", arguments: "" } }),
            call(0, { function: { arguments: '{"city": ' } }),
            call(0, { function: { arguments: '"Oslo"}' } }),
            call(1, { id: "call_2", function: { name: "weather", arguments: '{"city": "Rome"}' } }),
            call(9, { function: { name: "out of order", arguments: "" } }),
            { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] },
        ],
        [delta({ content: "Cold and warm." }), { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }],
    ];
    window.bodies = [];
    window.fetch = (url, options) => {
        if (url !== "/v1/chat/completions") {
            return real(url, options);
        }
        window.bodies.push(JSON.parse(options.body));
        const last = window.bodies.at(-1).messages.at(-1);
        const chunks = answers[last.role === "tool" ? 1 : 0];
        const text = [...chunks.map(chunk => JSON.stringify(chunk)), "[DONE]"].map(data => `data: ${data}\n\n`).join("");
        return Promise.resolve(new Response(text, { headers: { "Content-Type": "text/event-stream" } }));
    };
}

async function addTool(page, name, schema) {
    await page.click("#open-settings");
    await page.locator("#tools").evaluate(one => {
        one.open = true;
    });
    await page.click("#add-tool");
    await page.locator(".tool-name").last().fill(name);
    await page.locator(".tool-description").last().fill("The weather in a city");
    await page.locator(".tool-schema").last().fill(schema);
}

test("tools are declared, called, and answered with pasted results", async world => {
    const page = await openPage(world, { before: { script: callingAnswers } });
    await addTool(page, "weather", SCHEMA);
    await page.click("#settings .solid");
    await send(page, "The weather in Oslo and Rome?");
    const item = await answered(page);
    const [body] = await page.evaluate(() => window.bodies);
    assert.deepEqual(body.tools, [
        { type: "function", function: { name: "weather", description: "The weather in a city", parameters: JSON.parse(SCHEMA) } },
    ]);
    assert.deepEqual(await item.locator(".calls code").allInnerTexts(), ['weather({"city": "Oslo"})', 'weather({"city": "Rome"})']);
    // They are still there after a reload.
    await page.reload();
    await page.locator(".calls textarea").nth(0).fill("3 degrees <b>");
    await page.locator(".calls textarea").nth(1).fill("25 degrees");
    await page.click("text=Send the results");
    await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
    assert.equal(await (await answered(page)).locator(".text").innerText(), "Cold and warm.");
    const sent = await page.evaluate(() => window.bodies.at(-1).messages);
    assert.deepEqual(sent.map(one => one.role), ["user", "assistant", "tool", "tool"]);
    assert.deepEqual(sent[1].tool_calls[1], {
        id: "call_2",
        type: "function",
        function: { name: "weather", arguments: '{"city": "Rome"}' },
    });
    assert.deepEqual(sent[2], { role: "tool", tool_call_id: "call_1", content: "3 degrees <b>" });
    assert.deepEqual(await page.locator(".calls pre").allInnerTexts(), ["3 degrees <b>", "25 degrees"]);
    assert.equal(await page.locator(".calls textarea").count(), 0);
    // Deleting the question takes both answers with it.
    await page.locator(".user [title='Delete this turn']").click();
    assert.equal(await page.locator(".message").count(), 0);
    await closePage(page);
});

test("calls without results are not sent when the user writes on", async world => {
    const page = await openPage(world, { before: { script: callingAnswers } });
    await send(page, "The weather?");
    await answered(page);
    await send(page, "Never mind.");
    await answered(page);
    const sent = await page.evaluate(() => window.bodies.at(-1).messages);
    assert.deepEqual(
        sent.map(({ role, content }) => [role, content]),
        [
            ["user", "The weather?"],
            ["assistant", "Let me look."],
            ["user", "Never mind."],
        ],
    );
    assert.ok(sent.every(one => !one.tool_calls));
    await closePage(page);
});

test("a tool with a wrong name or schema is said, and not sent", async world => {
    const page = await openPage(world, { before: { script: callingAnswers } });
    await addTool(page, "a name", SCHEMA);
    const error = () => page.textContent("#settings-error");
    assert.equal(await error(), "The name of a tool has only letters, digits, _ and -.");
    await page.fill(".tool-name", "weather");
    assert.equal(await error(), "");
    await page.fill(".tool-schema", '{"type": "objekt"}');
    assert.equal(await error(), "weather: The schema is wrong at type.");
    assert.equal(await page.getAttribute(".tool-schema", "aria-invalid"), "true");
    await page.keyboard.press("Escape");
    await send(page, "The weather?");
    await answered(page);
    assert.ok(!("tools" in (await page.evaluate(() => window.bodies[0]))));
    await page.click("#open-settings");
    assert.equal(await page.locator("#tool-list li").count(), 1);
    await page.locator("#tools").evaluate(one => {
        one.open = true;
    });
    await page.click("text=Remove the tool");
    assert.ok(await page.isHidden("#settings-error"));
    assert.equal(await page.locator("#tool-list li").count(), 0);
    await closePage(page);
});

test("the model of the server calls a tool", async world => {
    const page = await openPage(world, { settings: { temperature: 0, max_tokens: 400 } });
    await page.evaluate(() => {
        const real = window.fetch;
        window.fetch = (url, options) => {
            if (url === "/v1/chat/completions") {
                options.body = JSON.stringify({ ...JSON.parse(options.body), tool_choice: "required", parallel_tool_calls: false });
            }
            return real(url, options);
        };
    });
    await addTool(page, "is_it", '{"type": "object", "properties": {"true": {"type": "boolean"}}, "required": ["true"]}');
    await page.click("#settings .solid");
    await send(page, "Is it true?");
    const item = await answered(page);
    assert.match(await item.locator(".calls code").first().innerText(), /^is_it\(\{"true": ?(true|false)\}\)$/);
    await closePage(page);
});
