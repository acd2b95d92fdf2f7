// Pictures as the published clients send them: node pictures.mjs http://127.0.0.1:PORT KEY MODEL PICTURE. Each gets the same answer.
import assert from "node:assert/strict";
import fs from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { ChatOpenAI } from "@langchain/openai";
import { generateText } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";

const [base, key, model, path] = process.argv.slice(2);
const image = fs.readFileSync(path);
const data = image.toString("base64");
const url = "data:image/png;base64," + data;
const text = "What is in the picture?";
const openai = new OpenAI({ baseURL: base + "/v1", apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0 });
const ollama = new Ollama({ host: base, headers: { Authorization: "Bearer " + key } });
const parts = [{ type: "image_url", image_url: { url } }, { type: "text", text }];
const seen = [{ role: "user", content: [{ type: "image", image, mediaType: "image/png" }, { type: "text", text }] }];
const settings = { maxOutputTokens: 16, temperature: 0, messages: seen };

async function chat(content) {
    const answer = await openai.chat.completions.create({ model, messages: [{ role: "user", content }], max_tokens: 16, temperature: 0 });
    return answer.choices[0].message.content;
}

const cases = {
    openaiChat: () => chat(parts),
    async openaiResponses() {
        const content = [{ type: "input_image", image_url: url, detail: "auto" }, { type: "input_text", text }];
        return (await openai.responses.create({ model, input: [{ role: "user", content }], max_output_tokens: 16, temperature: 0 })).output_text;
    },
    async anthropicMessage() {
        const content = [{ type: "image", source: { type: "base64", media_type: "image/png", data } }, { type: "text", text }];
        const answer = await anthropic.messages.create({ model, max_tokens: 16, temperature: 0, messages: [{ role: "user", content }] });
        return answer.content[0].text;
    },
    async ollamaChat() {
        const messages = [{ role: "user", content: text, images: [image] }];
        return (await ollama.chat({ model, messages, options: { temperature: 0, num_predict: 16, repeat_penalty: 1 } })).message.content;
    },
    async ollamaGenerate() {
        return (await ollama.generate({ model, prompt: text, images: [data], options: { temperature: 0, num_predict: 16, repeat_penalty: 1 } })).response;
    },
    async aiOpenai() {
        return (await generateText({ model: createOpenAI({ baseURL: base + "/v1", apiKey: key }).chat(model), ...settings })).text;
    },
    async aiAnthropic() {
        return (await generateText({ model: createAnthropic({ baseURL: base + "/v1", apiKey: key })(model), ...settings })).text;
    },
    async langchainOpenai() {
        const lang = new ChatOpenAI({ model, temperature: 0, maxTokens: 16, apiKey: key, configuration: { baseURL: base + "/v1" } });
        return (await lang.invoke([{ role: "user", content: parts }])).content;
    },
};

const wanted = await chat(parts);
assert.notEqual(wanted, await chat(text));
for (const [name, run] of Object.entries(cases)) {
    try {
        assert.equal(await run(), wanted);
        console.log("passed " + name);
    } catch (error) {
        console.log(`failed ${name}: ${error.message}`);
    }
}
process.exit(0);
