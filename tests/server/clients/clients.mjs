// The published clients of OpenAI and Ollama against a server: node clients.mjs http://127.0.0.1:PORT KEY MODEL WANTED
import assert from "node:assert/strict";
import { Ollama } from "ollama";
import OpenAI from "openai";

const [base, key, model, wanted] = process.argv.slice(2);
const messages = [{ role: "user", content: "Tell me a tale." }];
const openai = new OpenAI({ baseURL: base + "/v1", apiKey: key, maxRetries: 0 });
const ollama = new Ollama({ host: base, headers: { Authorization: "Bearer " + key } });
const tools = [{ type: "function", function: { name: "weather", description: "Tells the weather.", parameters: {
    type: "object", properties: { city: { type: "string", maxLength: 8 } }, required: ["city"], additionalProperties: false } } }];

const cases = {
    async models() {
        const names = [];
        for await (const one of openai.models.list()) {
            names.push(one.id);
        }
        assert.ok(names.includes(model));
        assert.equal((await openai.models.retrieve(model)).id, model);
    },
    async chat() {
        const answer = await openai.chat.completions.create({ model, messages, max_tokens: 16, temperature: 0 });
        assert.equal(answer.choices[0].message.content, wanted);
        assert.equal(answer.usage.completion_tokens, 16);
    },
    async stream() {
        const stream = await openai.chat.completions.create({ model, messages, max_tokens: 16, temperature: 0, stream: true,
                                                              stream_options: { include_usage: true } });
        let text = "", usage = null;
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta?.content ?? "";
            usage = chunk.usage ?? usage;
        }
        assert.equal(text, wanted);
        assert.equal(usage.completion_tokens, 16);
    },
    async calls() {
        const runner = openai.chat.completions.stream({ model, messages, tools, tool_choice: "required", max_tokens: 120 });
        const answer = await runner.finalChatCompletion();
        assert.equal(answer.choices[0].finish_reason, "tool_calls");
        const call = answer.choices[0].message.tool_calls[0];
        assert.equal(call.function.name, "weather");
        assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
    },
    async shape() {
        const answer = await openai.chat.completions.create({ model, messages, max_tokens: 60, temperature: 0, response_format: {
            type: "json_schema", json_schema: { name: "age", strict: true, schema: { type: "object",
                properties: { age: { type: "integer", maximum: 99 } }, required: ["age"], additionalProperties: false } } } });
        assert.equal(typeof JSON.parse(answer.choices[0].message.content).age, "number");
    },
    async text() {
        const answer = await openai.completions.create({ model, prompt: "Once upon a", max_tokens: 4, temperature: 0, echo: true,
                                                         logprobs: 1 });
        assert.ok(answer.choices[0].text.startsWith("Once upon a time"));
        assert.equal(answer.choices[0].logprobs.tokens.join(""), answer.choices[0].text);
    },
    async errors() {
        await assert.rejects(openai.chat.completions.create({ model: "nobody", messages }), OpenAI.NotFoundError);
        await assert.rejects(openai.chat.completions.create({ model, messages, temperature: -1 }), OpenAI.BadRequestError);
        const stranger = new OpenAI({ baseURL: base + "/v1", apiKey: "wrong", maxRetries: 0 });
        await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
    },
    async leaving() {
        const stream = await openai.chat.completions.create({ model, messages, max_tokens: 1500, stream: true, ignore_eos: true });
        for await (const chunk of stream) {
            assert.ok(chunk);
            stream.controller.abort();
            break;
        }
    },
    async ollamaChat() {
        const options = { temperature: 0, num_predict: 16 };
        const answer = await ollama.chat({ model, messages, options });
        assert.equal(answer.message.content, wanted);
        let text = "";
        for await (const part of await ollama.chat({ model, messages, options, stream: true })) {
            text += part.message.content;
        }
        assert.equal(text, wanted);
    },
    async ollamaGenerate() {
        const answer = await ollama.generate({ model, prompt: "Tell me a tale.", options: { temperature: 0, num_predict: 16 } });
        assert.equal(answer.response, wanted);
    },
    async ollamaModels() {
        assert.ok((await ollama.list()).models.some(one => one.name === model));
        assert.ok((await ollama.ps()).models.some(one => one.name === model));
        assert.ok((await ollama.show({ model })).capabilities.includes("completion"));
        await assert.rejects(ollama.chat({ model: "nobody", messages }), /no model/);
    },
};

for (const [name, run] of Object.entries(cases)) {
    await run().then(() => console.log("passed " + name), error => console.log("failed " + name + ": " + error.stack));
}
