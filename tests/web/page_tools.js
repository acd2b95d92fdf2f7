// Tools of a conversation: declared in the settings, called by the model; their results are pasted, or come from a tool server.
"use strict";
const http = require("node:http");
const { answered, assert, closePage, openPage, send, test, withServer } = require("./page_support.js");

const SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}';

// Runs in the page: the first answer calls two tools, the next one is text, or with `always` calls them again; the bodies are kept.
function callingAnswers(always) {
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
        const chunks = answers[last.role === "tool" && !always ? 1 : 0];
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

// ---- tools of this machine ------------------------------------------------------------------------------------------

// A tool server on this machine; `answer` gives the reply to one call of it, or holds it.
async function withTool(answer, work) {
    const asked = [];
    const tool = http.createServer((request, response) => {
        let body = "";
        request.on("data", data => {
            body += data;
        });
        request.on("end", () => {
            asked.push(JSON.parse(body));
            answer(response, asked.length);
        });
    });
    await new Promise(resolve => {
        tool.listen(0, "127.0.0.1", resolve);
    });
    try {
        await work(`http://127.0.0.1:${tool.address().port}/weather`, asked);
    } finally {
        tool.closeAllConnections();
        tool.close();
    }
}

async function withAllowed(world, answer, work, always = false) {
    await withTool(answer, (url, asked) =>
        withServer(world, ["--allow-tool", url], async own => {
            const page = await openPage(own, { before: { script: callingAnswers, argument: always } });
            await addTool(page, "weather", SCHEMA);
            await page.selectOption(".tool-url", url);
            await page.click("#settings .solid");
            await send(page, "The weather in Oslo and Rome?");
            await work(page, url, asked);
            await closePage(page);
        }),
    );
}

const inText = (response, text) => {
    response.setHeader("Content-Type", "text/plain");
    response.end(text);
};

test("an allowed tool of this machine is called, and its results go on", async world => {
    await withAllowed(world, (response, count) => inText(response, `<b>${count} degrees`), async (page, url, asked) => {
        await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
        assert.equal(await (await answered(page)).locator(".text").innerText(), "Cold and warm.");
        assert.deepEqual(asked, [{ city: "Oslo" }, { city: "Rome" }]);
        assert.deepEqual(await page.locator(".calls .note").allInnerTexts(), [`From ${url}`, `From ${url}`]);
        assert.deepEqual(await page.locator(".calls pre").allInnerTexts(), ["<b>1 degrees", "<b>2 degrees"]);
        const sent = await page.evaluate(() => window.bodies.at(-1).messages);
        assert.deepEqual(sent[3], { role: "tool", tool_call_id: "call_2", content: "<b>2 degrees" });
        assert.ok(!("url" in (await page.evaluate(() => window.bodies[0].tools[0].function))));
        await page.reload();
        await page.waitForSelector(".calls pre");
        assert.equal(await page.locator(".calls .note").count(), 2);
    });
});

// Runs in the page: the server's list of tools comes when window.letTools is called.
function lateTools() {
    const real = window.fetch;
    const allowed = new Promise(resolve => {
        window.letTools = resolve;
    });
    window.fetch = async (url, options) => {
        if (url === "/v1/tools") {
            await allowed;
        }
        return real(url, options);
    };
}

test("a list of tools that comes late leaves the field in which the user types", async world => {
    await withTool(() => {}, url =>
        withServer(world, ["--allow-tool", url], async own => {
            const page = await openPage(own, { before: { script: lateTools } });
            await addTool(page, "wea", SCHEMA);
            assert.equal(await page.locator(".tool-url").count(), 0);
            await page.focus(".tool-name");
            await page.keyboard.press("End");
            await page.evaluate(() => window.letTools());
            await page.waitForSelector(".tool-url");
            await page.keyboard.type("ther");
            assert.equal(await page.inputValue(".tool-name"), "weather");
            await closePage(page);
        }),
    );
});

test("a tool that fails leaves the place to paste", async world => {
    const answer = (response, count) => {
        response.statusCode = count === 1 ? 200 : 500;
        inText(response, "3 degrees");
    };
    await withAllowed(world, answer, async (page, url) => {
        await page.waitForSelector(".calls .note.error");
        await answered(page);
        assert.deepEqual(await page.locator(".calls .note").allInnerTexts(), [`From ${url}`, "the tool answered with status 500"]);
        assert.equal(await page.inputValue(".calls li:nth-child(1) textarea"), "3 degrees");
        await page.fill(".calls li:nth-child(2) textarea", "25 degrees");
        await page.click("text=Send the results");
        await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
        const sent = await page.evaluate(() => window.bodies.at(-1).messages);
        assert.deepEqual(sent.slice(2).map(one => one.content), ["3 degrees", "25 degrees"]);
    });
});

test("a call of a tool can be stopped", async world => {
    await withAllowed(world, () => {}, async (page, url, asked) => {
        await page.waitForSelector(`text=Calling ${url}`);
        await page.click("#stop");
        await answered(page);
        assert.deepEqual(await page.locator(".calls .note").allInnerTexts(), ["Stopped.", "Stopped."]);
        assert.equal(await page.locator(".calls textarea").count(), 2);
        assert.ok(asked.length <= 1);
        assert.ok(await page.isVisible("#send"));
        assert.equal(await page.evaluate(() => window.bodies.length), 1);
    });
});

test("a model that calls without end is stopped after 20 rounds", async world => {
    const work = async (page, url, asked) => {
        await page.waitForSelector("text=Send the results");
        assert.equal(asked.length, 42);
        assert.equal(await page.evaluate(() => window.bodies.length), 21);
        assert.equal(await page.locator(".calls textarea").count(), 2);
    };
    await withAllowed(world, response => inText(response, "warm"), work, true);
});

test("without allowed tools there is no choice of one", async world => {
    const page = await openPage(world, { before: { script: callingAnswers } });
    await page.waitForFunction(() => document.querySelector("#model").value !== "");
    await addTool(page, "weather", SCHEMA);
    assert.equal(await page.locator(".tool-url").count(), 0);
    await closePage(page);
});
