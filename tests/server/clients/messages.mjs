// Clients of Anthropic's Messages and of OpenAI's Responses: node messages.mjs http://127.0.0.1:PORT KEY MODEL WANTED
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { ChatAnthropic } from "@langchain/anthropic";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [base, key, model, wanted] = process.argv.slice(2);
const messages = [{ role: "user", content: "Tell me a tale." }];
const anthropic = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0 });
const openai = new OpenAI({ baseURL: base + "/v1", apiKey: key, maxRetries: 0 });
const city = { type: "object", properties: { city: { type: "string", maxLength: 8 } }, required: ["city"], additionalProperties: false };
const plain = { model, max_tokens: 16, temperature: 0, messages };
const first = { model, input: "Tell me a tale.", max_output_tokens: 16, temperature: 0 };
const weather = tool({ description: "Tells the weather.", inputSchema: z.object({ city: z.string().max(8) }) });

async function textOf(stream) {
    let text = "";
    for await (const part of stream) {
        text += part;
    }
    return text;
}

const cases = {
    async anthropicMessage() {
        const answer = await anthropic.messages.create(plain);
        assert.deepEqual(answer.content, [{ type: "text", text: wanted }]);
        assert.equal(answer.stop_reason, "max_tokens");
        assert.equal(answer.usage.output_tokens, 16);
        const counted = await anthropic.messages.countTokens({ model, messages });
        assert.equal(counted.input_tokens, answer.usage.input_tokens + answer.usage.cache_read_input_tokens);
    },
    async anthropicStream() {
        const kinds = [];
        const stream = anthropic.messages.stream(plain).on("streamEvent", event => kinds.push(event.type));
        const answer = await stream.finalMessage();
        assert.equal(answer.content[0].text, wanted);
        assert.equal(answer.usage.output_tokens, 16);
        assert.deepEqual([...new Set(kinds)], ["message_start", "content_block_start", "content_block_delta", "content_block_stop",
                                               "message_delta", "message_stop"]);
    },
    async anthropicTools() {
        const tools = [{ name: "weather", description: "Tells the weather.", input_schema: city }];
        for (const choice of [{ type: "any" }, { type: "tool", name: "weather" }]) {
            const answer = await anthropic.messages.stream({ ...plain, max_tokens: 120, tools, tool_choice: choice }).finalMessage();
            assert.equal(answer.stop_reason, "tool_use");
            const call = answer.content.find(block => block.type === "tool_use");
            assert.equal(call.name, "weather");
            assert.equal(typeof call.input.city, "string");
            const after = await anthropic.messages.create({ ...plain, tools, messages: [...messages,
                { role: "assistant", content: answer.content },
                { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: [{ type: "text", text: "Rain." }] }] }] });
            assert.equal(after.type, "message");
        }
    },
    async anthropicSettings() {
        const stopped = await anthropic.messages.create({ ...plain, stop_sequences: ["zzz", " time"], system: [{ type: "text", text: "" }] });
        assert.equal(stopped.stop_reason, "stop_sequence");
        assert.equal(stopped.stop_sequence, " time");
        const filled = await anthropic.messages.create({ ...plain, max_tokens: 4, messages: [...messages, { role: "assistant", content: wanted.slice(0, 9) }] });
        assert.ok(wanted.startsWith(wanted.slice(0, 9) + filled.content[0].text));
        const thought = await anthropic.messages.create({ ...plain, max_tokens: 40, thinking: { type: "enabled", budget_tokens: 1024 }, temperature: 1 });
        assert.equal(thought.type, "message");
    },
    async anthropicErrors() {
        await assert.rejects(anthropic.messages.create({ ...plain, model: "nobody" }), Anthropic.NotFoundError);
        await assert.rejects(anthropic.messages.create({ ...plain, max_tokens: undefined }), Anthropic.BadRequestError);
        const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "aGk=" } };
        await assert.rejects(anthropic.messages.create({ ...plain, messages: [{ role: "user", content: [image] }] }), /cannot see pictures/);
        await assert.rejects(new Anthropic({ baseURL: base, apiKey: "wrong", maxRetries: 0 }).messages.create(plain), Anthropic.AuthenticationError);
        const names = [];
        for await (const one of anthropic.models.list()) {
            names.push(one.id);
        }
        assert.ok(names.includes(model));
    },
    async responses() {
        const answer = await openai.responses.create(first);
        assert.equal(answer.output_text, wanted);
        assert.equal(answer.status, "incomplete");
        assert.equal(answer.usage.output_tokens, 16);
        assert.equal((await openai.responses.retrieve(answer.id)).output[0].content[0].text, wanted);
        const more = { model, max_output_tokens: 8, temperature: 0 };
        const kept = await openai.responses.create({ ...more, previous_response_id: answer.id, input: "And then?" });
        const whole = await openai.responses.create({ ...more, store: false, input: [...messages, { role: "assistant", content: wanted },
                                                                                     { role: "user", content: "And then?" }] });
        assert.equal(kept.output_text, whole.output_text);
        assert.equal(kept.usage.input_tokens, whole.usage.input_tokens);
        await assert.rejects(openai.responses.retrieve(whole.id), OpenAI.NotFoundError);
        await openai.responses.delete(answer.id);
        await assert.rejects(openai.responses.create({ ...more, previous_response_id: answer.id, input: "x" }), OpenAI.NotFoundError);
    },
    async responsesStream() {
        const kinds = [];
        const stream = openai.responses.stream(first).on("event", event => kinds.push(event.type));
        const answer = await stream.finalResponse();
        assert.equal(answer.output_text, wanted);
        assert.equal(kinds[0], "response.created");
        assert.ok(kinds.includes("response.output_text.delta"));
        assert.equal(kinds.at(-1), "response.incomplete");
    },
    async responsesTools() {
        const tools = [{ type: "function", name: "weather", parameters: city, strict: true }];
        const answer = await openai.responses.create({ ...first, tools, tool_choice: "required", max_output_tokens: 120 });
        const call = answer.output.find(item => item.type === "function_call");
        assert.equal(typeof JSON.parse(call.arguments).city, "string");
        const after = await openai.responses.create({ ...first, tools, previous_response_id: answer.id,
                                                      input: [{ type: "function_call_output", call_id: call.call_id, output: "Rain." }] });
        assert.equal(after.object, "response");
        const { data, response } = await openai.responses.create({ ...first, tools: [{ type: "web_search" }] }).withResponse();
        assert.equal(data.object, "response");
        assert.equal(response.headers.get("x-spry-ignored"), "tools.web_search");
    },
    async responsesShape() {
        const schema = { type: "object", properties: { age: { type: "integer", maximum: 99 } }, required: ["age"], additionalProperties: false };
        const answer = await openai.responses.create({ ...first, max_output_tokens: 60, text: { format: { type: "json_schema", name: "age", strict: true, schema } } });
        assert.equal(typeof JSON.parse(answer.output_text).age, "number");
    },
    async aiAnthropic() {
        const claude = createAnthropic({ baseURL: base + "/v1", apiKey: key })(model);
        const options = { model: claude, prompt: "Tell me a tale.", temperature: 0, maxOutputTokens: 16, maxRetries: 0 };
        assert.equal((await generateText(options)).text, wanted);
        assert.equal(await textOf(streamText(options).textStream), wanted);
        const called = await generateText({ ...options, maxOutputTokens: 120, tools: { weather }, toolChoice: "required" });
        assert.equal(called.toolCalls[0].toolName, "weather");
    },
    async aiOpenai() {
        const gpt = createOpenAI({ baseURL: base + "/v1", apiKey: key })(model);
        const options = { model: gpt, prompt: "Tell me a tale.", temperature: 0, maxOutputTokens: 16, maxRetries: 0 };
        const answer = await generateText(options);
        assert.equal(answer.text, wanted);
        assert.equal(await textOf(streamText(options).textStream), wanted);
        const called = await generateText({ ...options, maxOutputTokens: 120, tools: { weather }, toolChoice: "required" });
        assert.equal(called.toolCalls[0].toolName, "weather");
        const next = await generateText({ ...options, prompt: undefined, messages: [...messages, ...answer.response.messages,
                                                                                    { role: "user", content: "And then?" }] });
        assert.equal(typeof next.text, "string");
    },
    async langchain() {
        const settings = { model, temperature: 0, maxTokens: 16, maxRetries: 0, apiKey: key };
        const chats = [new ChatOpenAI({ ...settings, configuration: { baseURL: base + "/v1" } }),
                       new ChatOpenAI({ ...settings, useResponsesApi: true, configuration: { baseURL: base + "/v1" } }),
                       new ChatAnthropic({ ...settings, anthropicApiUrl: base })];
        for (const chat of chats) {
            assert.equal((await chat.invoke("Tell me a tale.")).text, wanted);
            let text = "";
            for await (const part of await chat.stream("Tell me a tale.")) {
                text += part.text;
            }
            assert.equal(text, wanted);
        }
    },
};

for (const [name, run] of Object.entries(cases)) {
    await run().then(() => console.log("passed " + name), error => console.log("failed " + name + ": " + error.stack));
}
