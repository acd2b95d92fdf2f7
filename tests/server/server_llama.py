"""llama-server's details: lists of prompts, tokens and probabilities, settings, progress, filling in, reranking."""

import json
import os
import shutil

import server_support
from server_support import HOME, MODEL, TALE, Server, ServerTest, tiny

ONCE = {"prompt": "Once upon a", "n_predict": 6, "temperature": 0}


class Completion(ServerTest):
    def ask(self, **fields):
        reply = self.server.post("/completion", dict(ONCE, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return reply

    def ids(self, text):
        return self.server.post("/tokenize", {"content": text}).json["tokens"]

    def test_lists_of_prompts(self):
        alone = [self.ask(prompt=prompt).json["content"] for prompt in ("Once upon a", "The fox")]
        for prompts in (["Once upon a", "The fox"], [self.ids("Once upon a"), self.ids("The fox")],
                        [self.ids("Once upon a"), {"prompt_string": "The fox"}]):
            replies = self.ask(prompt=prompts).json
            self.assertEqual([(reply["index"], reply["content"]) for reply in replies], list(enumerate(alone)))
        texts = ["", ""]
        for event in self.ask(prompt=["Once upon a", "The fox"], stream=True).events:
            texts[event["index"]] += event["content"]
        self.assertEqual(texts, alone)
        mixed = self.ask(prompt=self.ids("Once") + [" upon a"]).json
        self.assertEqual(mixed["tokens_evaluated"], 3)
        self.refused(self.server.post("/completion", dict(ONCE, prompt=["x"] * 500)), 400, "500")
        self.refused(self.server.post("/completion", dict(ONCE, prompt=[[1], {"a": 1}])), 400, "prompt[1]")

    def test_members(self):
        whole = self.ask(return_tokens=True, stop=["zz"]).json
        self.assertEqual(whole["tokens"], self.ids(whole["content"]))
        self.assertEqual(self.ask().json["tokens"], [])
        settings = whole["generation_settings"]
        self.assertEqual((settings["n_predict"], settings["temperature"], settings["stop"]), (6, 0.0, ["zz"]))
        self.assertEqual((whole["prompt"], whole["has_new_line"], whole["truncated"]), ("Once upon a", False, False))
        stopped = self.ask(n_predict=40, stop=["zz", ","]).json
        self.assertEqual((stopped["stop_type"], stopped["stopping_word"]), ("word", ","))
        chosen = self.ask(response_fields=["content", "generation_settings/n_predict", "nothing"]).json
        self.assertEqual(chosen, {"content": whole["content"], "generation_settings/n_predict": 6})

    def test_timings(self):
        timings = self.ask().json["timings"]
        self.assertEqual(timings["cache_n"] + timings["prompt_n"], 3)
        self.assertEqual(timings["predicted_n"], 6)
        self.assertAlmostEqual(timings["predicted_per_second"], 5e3 / timings["predicted_ms"], delta=0.01)
        one = self.ask(n_predict=1).json["timings"]
        self.assertEqual((one["predicted_n"], one["predicted_per_second"]), (1, 0))

    def test_probabilities(self):
        entries = self.ask(n_probs=3).json["completion_probabilities"]
        self.assertEqual(len(entries), 6)
        for entry in entries:
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertEqual(entry["id"], entry["top_logprobs"][0]["id"])
        events = self.ask(n_probs=3, stream=True).events[:-1]
        streamed = [entry for event in events for entry in event["completion_probabilities"]]
        self.assertEqual(streamed, entries)
        self.assertEqual([id for event in events for id in event["tokens"]], [entry["id"] for entry in entries])

    def test_bias_by_text(self):
        usual = self.ask().json["content"]
        word = " time"
        self.assertIn(word, usual)
        for bias in ({word: -100}, [[word, -100]], [[word, False]], {str(self.ids(word)[0]): -100}):
            self.assertNotIn(word, self.ask(logit_bias=bias).json["content"])

    def test_progress(self):
        prompt = "The fox came to the house again and again. " * 30
        events = self.ask(prompt=prompt, stream=True, return_progress=True, timings_per_token=True).events
        told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
        self.assertGreater(len(told), 1)
        self.assertEqual([told[0]["processed"], told[0]["total"]], [told[0]["cache"], len(self.ids(prompt))])
        self.assertEqual(sorted(one["processed"] for one in told), [one["processed"] for one in told])
        for event in events:
            self.assertTrue(all(value >= 0 for key, value in event["timings"].items() if isinstance(value, (int, float))), event)
        chunks = self.server.chat(stream=True, return_progress=True).events[:-1]
        self.assertTrue(any("prompt_progress" in chunk for chunk in chunks))

    def test_too_long(self):
        error = self.refused(self.server.post("/completion", dict(ONCE, prompt="word " * 5000)), 400, "exceeds")
        self.assertEqual((error["type"], error["code"]), ("exceed_context_size_error", "context_length_exceeded"))
        self.assertEqual((error["n_prompt_tokens"], error["n_ctx"]), (len(self.ids("word " * 5000)), 2048))

    def test_paths_without_v1(self):
        self.assertIn("content", self.server.post("/completions", ONCE).json)
        self.assertIn("choices", self.server.post("/chat/completions", {"messages": TALE, "max_tokens": 2}).json)
        self.assertIn("data", self.server.post("/embeddings", {"input": "x"}).json)
        self.assertIn(MODEL, [model["id"] for model in self.server.get("/models").json["data"]])

    def test_rerank(self):
        documents = ["The hens slept in the barn.", "A red truck on the road.", "Once upon a time there was a fox."]
        body = {"query": "Once upon a time there was a fox.", "documents": documents}
        for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"):
            reply = self.server.post(path, body).json
            scores = [result["relevance_score"] for result in reply["results"]]
            self.assertEqual(reply["results"][0]["index"], 2)
            self.assertAlmostEqual(scores[0], 1, places=4)
            self.assertEqual(sorted(scores, reverse=True), scores)
            self.assertEqual(len(scores), 3)
        self.assertEqual(self.server.post("/rerank", dict(body, top_n=1, return_documents=True)).json["results"][0]["document"],
                         {"text": documents[2]})
        tei = self.server.post("/rerank", {"query": body["query"], "texts": documents, "return_text": True}).json
        self.assertEqual((tei[0]["index"], tei[0]["text"]), (2, documents[2]))
        judged = self.server.post("/rerank", dict(body, method="yes_no")).json["results"]
        self.assertEqual(sorted(result["index"] for result in judged), [0, 1, 2])
        self.assertTrue(all(0 < result["relevance_score"] < 1 for result in judged))
        for wrong in ({"documents": []}, {"documents": None}, {"documents": [1]}, {"query": None}, {"method": "guess"}, {"top_n": 0}):
            self.assertEqual(self.server.post("/rerank", dict(body, **wrong)).status, 400, wrong)


class FillIn(server_support.unittest.TestCase):
    """A model whose tokenizer has the tokens for filling in: three tokens of a test model renamed."""

    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")

    @classmethod
    def setUpClass(cls):
        folder = os.path.join(HOME, "fill-in")
        shutil.copytree(tiny("qwen2", ""), folder, dirs_exist_ok=True)
        path = os.path.join(folder, "tokenizer.json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        model = tokenizer["model"]
        del model["merges"][-3:]
        by_id = {id: token for token, id in model["vocab"].items()}
        for id, name in zip((509, 510, 511), cls.names):
            del model["vocab"][by_id[id]]
            model["vocab"][name] = id
            tokenizer["added_tokens"].append({"id": id, "content": name, "special": True, "single_word": False, "lstrip": False,
                                              "rstrip": False, "normalized": False})
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        cls.server = Server(folder)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def prompt(self, path, body):
        reply = self.server.post(path, dict(body, temperature=0, n_predict=3))
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def test_infill(self):
        body = {"input_prefix": "ab", "prompt": "c", "input_suffix": "<|fim_middle|>"}
        reply = self.prompt("/infill", body)
        self.assertEqual(reply["prompt"], "<|fim_prefix|>abc<|fim_suffix|><|fim_middle|><|fim_middle|>")
        ids = self.server.post("/tokenize", {"content": "<|fim_middle|>", "parse_special": False}).json["tokens"]
        self.assertGreater(len(ids), 1)  # the user's text is no control token
        self.assertEqual(reply["tokens_evaluated"], 3 + len(ids) + len(self.server.post("/tokenize", {"content": "abc"}).json["tokens"]))
        extra = self.prompt("/infill", dict(body, input_extra=[{"filename": "a.h", "text": "int"}]))
        self.assertIn("--- a.h\nint<|fim_prefix|>", extra["prompt"])
        for wrong in ({}, {"filename": 1, "text": "x"}, {"filename": "x"}):
            self.assertEqual(self.server.post("/infill", dict(body, input_extra=[wrong])).status, 400)

    def test_suffix(self):
        whole = self.prompt("/infill", {"prompt": "ab", "input_suffix": "ba"})["content"]
        text = self.server.post("/v1/completions", {"prompt": "ab", "suffix": "ba", "temperature": 0, "max_tokens": 3}).json
        self.assertEqual(text["choices"][0]["text"], whole)
        body = {"model": "fill-in", "prompt": "ab", "suffix": "ba", "stream": False, "options": {"num_predict": 3, "temperature": 0}}
        self.assertEqual(self.server.post("/api/generate", body).json["response"], whole)

    def test_models_without(self):
        for path, body in (("/v1/completions", {"model": MODEL, "prompt": "a", "suffix": "b"}),
                           ("/infill", {"model": MODEL, "prompt": "a", "input_suffix": "b"})):
            reply = self.server.post(path, body)
            self.assertEqual(reply.status, 400)
            self.assertIn("fill-in tokens", reply.json["error"]["message"])


if __name__ == "__main__":
    server_support.main()
