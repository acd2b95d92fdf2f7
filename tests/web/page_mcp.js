// Tools of MCP servers: offered to the model, called when the user allows it. tests/server/mcp_server.py is the server.
"use strict";
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { answered, assert, closePage, openPage, send, test, withServer } = require("./page_support.js");

// Runs in the page: an answer calls two tools; after results it is text. The bodies are kept.
function callingAnswers() {
    const real = window.fetch;
    const call = (index, name, given) => ({
        choices: [{ index: 0, delta: { tool_calls: [{ index, id: `call_${index}`, type: "function", function: { name, arguments: JSON.stringify(given) } }] } }],
    });
    const end = reason => ({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
    const first = [call(0, "t__echo", { text: "hi" }), call(1, "t__fail", {}), end("tool_calls")];
    const next = [{ choices: [{ index: 0, delta: { content: "Done." } }] }, end("stop")];
    window.bodies = [];
    window.fetch = (url, options) => {
        if (url !== "/v1/chat/completions") {
            return real(url, options);
        }
        window.bodies.push(JSON.parse(options.body));
        const chunks = window.bodies.at(-1).messages.at(-1).role === "tool" ? next : first;
        const text = [...chunks.map(chunk => JSON.stringify(chunk)), "[DONE]"].map(data => `data: ${data}\n\n`).join("");
        return Promise.resolve(new Response(text, { headers: { "Content-Type": "text/event-stream" } }));
    };
}

async function withMcp(world, work) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "spry-mcp-"));
    const file = path.join(folder, "servers.json");
    const program = path.join(__dirname, "..", "server", "mcp_server.py");
    fs.writeFileSync(file, JSON.stringify({ mcpServers: { t: { command: "python3", args: [program] }, dead: { command: "no-such-program" } } }));
    await withServer(world, ["--mcp", file], async own => {
        const page = await openPage(own, { before: { script: callingAnswers } });
        await page.click("#open-settings");
        await page.locator("#tools").evaluate(one => {
            one.open = true;
        });
        await page.waitForSelector("#mcp-list li:nth-child(2)");
        await work(page);
        await closePage(page);
    });
    fs.rmSync(folder, { recursive: true });
}

const tools = page => page.evaluate(() => window.bodies.at(-1).tools);
const results = page => page.evaluate(() => window.bodies.at(-1).messages.filter(one => one.role === "tool").map(one => one.content));

test("a call waits until the user allows it", async world => {
    await withMcp(world, async page => {
        const [ready, dead] = await page.locator("#mcp-list li").allInnerTexts();
        assert.match(ready, /t\s+15 tools/);
        assert.match(dead, /It does not run: .*No such file/);
        await page.click("#settings .solid");
        await send(page, "Go.");
        await page.waitForSelector(".calls button >> text=Do not allow");
        assert.deepEqual(await tools(page), [{ type: "mcp", server_label: "t" }]);
        assert.equal(await page.locator(".calls textarea").count(), 0);
        assert.equal(await page.evaluate(() => window.bodies.length), 1);
        assert.deepEqual(page.asked.filter(body => body.name), []);
        // They still wait after a reload.
        await page.reload();
        await page.waitForSelector(".calls button >> text=Do not allow");
        await page.locator(".calls li:nth-child(1) button").first().click();
        await page.waitForSelector(".calls .note >> text=From mcp:t"); // "Calling mcp:t…" until then
        assert.deepEqual(await page.locator(".calls .note").allInnerTexts(), ["From mcp:t"]);
        await page.locator(".calls li:nth-child(2) button >> text=Do not allow").click();
        await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
        assert.equal(await (await answered(page)).locator(".text").innerText(), "Done.");
        assert.deepEqual(await results(page), ["hi", "The user did not allow this call."]);
    });
});

test("a tool that is allowed in the conversation is called without asking", async world => {
    await withMcp(world, async page => {
        await page.click("#settings .solid");
        await send(page, "Go.");
        for (const number of [1, 2]) {
            await page.locator(`.calls li:nth-child(${number}) button >> text=Allow in this conversation`).click();
        }
        await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
        assert.deepEqual(await results(page), ["hi", "it failed"]);
        await answered(page);
        await send(page, "Again.");
        await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 4);
        assert.equal(await page.locator(".calls button").count(), 0);
        // A new conversation asks again, also where it has these settings.
        await page.click("#open-settings");
        await page.click("#settings-default");
        await page.click("#settings .solid");
        await page.click("#new-chat");
        await send(page, "Go.");
        await page.waitForSelector(".calls button >> text=Do not allow");
    });
});

test("a server can be left out of a conversation", async world => {
    await withMcp(world, async page => {
        await page.uncheck("#mcp-list li:nth-child(1) input");
        await page.click("#settings .solid");
        await send(page, "Go.");
        await answered(page);
        assert.equal(await tools(page), undefined);
        await page.click("#open-settings");
        assert.equal(await page.isChecked("#mcp-list li:nth-child(1) input"), false);
    });
});
