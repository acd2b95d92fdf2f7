// The loops of SDKs that agents are written with: node sdks.mjs http://127.0.0.1:PORT. Their packages are in the folder that
// they were installed into; agents.py starts this there. The model's answers are a script's: it calls `weather` with Oslo, and
// says "It rains." when it knows the result.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { createOllama } from "ollama-ai-provider-v2";
import OpenAI from "openai";

const [base, picture] = process.argv.slice(2);
const model = "script", question = "How is the weather in Oslo?";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const anthropic = new Anthropic({ baseURL: base, apiKey: "x", maxRetries: 0 });
const openai = new OpenAI({ baseURL: base + "/v1", apiKey: "x", maxRetries: 0 });
const asked = [];
const ask = ({ city }) => { asked.push(city); return "Rain in " + city + "."; };
const weather = tool({ description: "Tells the weather.", inputSchema: jsonSchema(parameters), execute: ask });

const cases = {
    async "@anthropic-ai/sdk: toolRunner"() {
        const runner = anthropic.beta.messages.toolRunner({ model, max_tokens: 200, messages: [{ role: "user", content: question }],
            tools: [betaTool({ name: "weather", description: "Tells the weather.", inputSchema: parameters, run: ask })] });
        const last = await runner;
        assert.equal(last.content.find(block => block.type === "text").text, "It rains.");
    },
    async "@anthropic-ai/sdk: toolRunner, streamed"() {
        const runner = anthropic.beta.messages.toolRunner({ model, max_tokens: 200, messages: [{ role: "user", content: question }], stream: true,
            tools: [betaTool({ name: "weather", description: "Tells the weather.", inputSchema: parameters, run: ask })] });
        let message = null;
        for await (const stream of runner) {
            message = await stream.finalMessage();
        }
        assert.equal(message.content.find(block => block.type === "text").text, "It rains.");
    },
    async "@anthropic-ai/sdk: picture"() {
        const data = readFileSync(picture).toString("base64");
        const message = await anthropic.messages.create({ model, max_tokens: 50, messages: [{ role: "user", content: [
            { type: "image", source: { type: "base64", media_type: "image/png", data } }, { type: "text", text: "What is it?" }] }] });
        assert.equal(message.content[0].text, "A square.");
    },
    async "openai: runTools"() {
        const runner = openai.chat.completions.runTools({ model, messages: [{ role: "user", content: question }], tools: [{ type: "function",
            function: { name: "weather", description: "Tells the weather.", parameters, parse: JSON.parse, function: ask } }] });
        assert.equal(await runner.finalContent(), "It rains.");
    },
    async "openai: functions"() {
        const messages = [{ role: "user", content: question }], functions = [{ name: "weather", parameters }];
        const first = (await openai.chat.completions.create({ model, messages, functions })).choices[0];
        assert.equal(first.finish_reason, "function_call");
        const { name, arguments: text } = first.message.function_call;
        messages.push(first.message, { role: "function", name, content: ask(JSON.parse(text)) });
        const second = (await openai.chat.completions.create({ model, messages, functions })).choices[0];
        assert.equal(second.message.content, "It rains.");
    },
    async "openai: responses, inputTokens.count"() {
        const tools = [{ type: "function", name: "weather", parameters, strict: true }];
        const input = [{ role: "user", content: question }];
        const counted = await openai.responses.inputTokens.count({ model, input, tools });
        const first = await openai.responses.create({ model, input, tools });
        assert.equal(first.usage.input_tokens, counted.input_tokens);
        const call = first.output.find(item => item.type === "function_call");
        input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: ask(JSON.parse(call.arguments)) });
        assert.equal((await openai.responses.create({ model, input, tools })).output_text, "It rains.");
    },
    async "ollama-ai-provider-v2"() {
        const ollama = createOllama({ baseURL: base + "/api" });
        const answer = await generateText({ model: ollama(model), prompt: question, temperature: 0.5, maxOutputTokens: 200, maxRetries: 0,
                                            tools: { weather }, toolChoice: "auto", stopWhen: stepCountIs(3) });
        assert.equal(answer.text, "It rains.");
    },
    async "@ai-sdk/openai-compatible"() {
        const provider = createOpenAICompatible({ name: "spry", baseURL: base + "/v1" });
        const answer = await generateText({ model: provider(model), prompt: question, maxRetries: 0, tools: { weather }, stopWhen: stepCountIs(3) });
        assert.equal(answer.text, "It rains.");
    },
};

for (const [name, run] of Object.entries(cases)) {
    asked.length = 0;
    await run().then(() => {
        assert.ok(name.endsWith("picture") || asked.join() === "Oslo", "asked: " + asked);
        console.log("passed " + name);
    }).catch(error => console.log("failed " + name + "\n  " + error.stack));
}
