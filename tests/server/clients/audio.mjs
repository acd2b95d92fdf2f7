// OpenAI's published client and the three audio paths: node audio.mjs http://127.0.0.1:PORT KEY FILE WORDS
import assert from "node:assert/strict";
import fs from "node:fs";
import OpenAI from "openai";

const [base, key, file, words] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: base + "/v1", apiKey: key, maxRetries: 0 });
const sound = () => fs.createReadStream(file);

const cases = {
    async transcription() {
        const answer = await openai.audio.transcriptions.create({ file: sound(), model: "whisper-1" });
        assert.equal(answer.text, words);
    },
    async verbose() {
        const answer = await openai.audio.transcriptions.create({ file: sound(), model: "whisper-1", language: "en",
                                                                  response_format: "verbose_json", temperature: 0 });
        assert.equal(answer.language, "english");
        assert.ok(answer.duration > 1);
        assert.equal(answer.segments[0].text.trim(), words);
    },
    async subtitles() {
        const answer = await openai.audio.transcriptions.create({ file: sound(), model: "whisper-1", response_format: "srt" });
        assert.match(answer, /^1\n00:00:00,000 --> /);
    },
    async translation() {
        await assert.rejects(openai.audio.translations.create({ file: sound(), model: "whisper-1" }),
                             (error) => error.status === 400 && /translate/.test(error.message));
    },
    async speech() {
        const answer = await openai.audio.speech.create({ model: "tts-1", voice: "alloy", input: "Good morning.",
                                                          response_format: "wav" });
        const bytes = Buffer.from(await answer.arrayBuffer());
        assert.equal(bytes.toString("latin1", 0, 4), "RIFF");
        assert.ok(bytes.length > 16000);
    },
    async streamed() {
        const answer = await openai.audio.speech.create({ model: "tts-1", voice: "onyx", input: "Good morning. And good night.",
                                                          response_format: "pcm" });
        let size = 0;
        for await (const part of answer.body) {
            size += part.length;
        }
        assert.ok(size > 48000);
    },
};

for (const [name, run] of Object.entries(cases)) {
    try {
        await run();
        console.log("passed " + name);
    } catch (error) {
        console.log("failed " + name + ": " + error.message.replaceAll("\n", " "));
    }
}
