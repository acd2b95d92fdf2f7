"""llama-server's details: lists of prompts, tokens and probabilities, settings, progress, filling in, reranking."""

import json
import os
import shutil
import time
import unittest

import server_support
from server_support import HOME, MODEL, TALE, Server, ServerTest, spry, tiny

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

    def test_end_of_progress(self):
        prompt = "The fox came to the house once more. " * 20
        for _ in range(2):  # the second time the prompt is cached
            told = [event["prompt_progress"] for event in self.ask(prompt=prompt, stream=True, return_progress=True).events
                    if "prompt_progress" in event]
            self.assertEqual(told[0]["processed"], told[0]["cache"])
            self.assertEqual(told[-1]["processed"], told[-1]["total"])
            self.assertEqual(len({one["processed"] for one in told}), len(told))

    def test_prompt_as_an_object(self):
        self.assertEqual(self.ask(prompt={"prompt_string": "Once upon a"}).json["content"], self.ask().json["content"])
        self.refused(self.server.post("/completion", dict(ONCE, prompt={"prompt_string": "a", "multimodal_data": ["x"]})), 400, "prompt")

    def test_verbose(self):
        reply = self.server.chat(verbose=True).json["__verbose"]
        self.assertIn("Tell me a tale.", reply["prompt"])
        self.assertEqual(reply["generation_settings"]["n_predict"], 16)
        self.assertNotIn("__verbose", self.server.chat(verbose=False).json)

    def test_settings(self):
        settings = self.ask(logit_bias=[[5, -1], [6, False]]).json["generation_settings"]
        self.assertEqual(settings["logit_bias"], [{"token": 5, "bias": -1.0}, {"token": 6, "bias": None}])
        self.assertEqual(self.ask().json["generation_settings"]["logit_bias"], [])

    def test_count_of_tokens(self):
        for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
            reply = self.server.post(path, {"messages": TALE}).json
            self.assertEqual(reply["input_tokens"], self.server.chat(max_tokens=1).json["usage"]["prompt_tokens"])

    def test_beginnings_of_answers(self):
        two = TALE + [{"role": "assistant", "content": "Once"}, {"role": "assistant", "content": "upon"}]
        self.refused(self.server.chat(messages=two), 400, "last two")
        self.refused(self.server.chat(messages=two[:2], add_generation_prompt=True, continue_final_message=True), 400, "exclude")
        self.assertEqual(self.server.chat(messages=two[:2]).status, 200)
        first = self.server.chat(stream=True).events[0]["choices"][0]["delta"]
        self.assertEqual(first, {"role": "assistant", "content": ""})

    def test_metrics(self):
        before = self.ask(prompt="The fox and the hen met once more again").json["timings"]
        text = self.server.get("/metrics")
        self.assertLess(abs(int(text.headers["process-start-time-unix"]) - time.time()), 3600)
        values = dict(line.split(" ", 1) for line in text.text.splitlines() if line.startswith("llamacpp:"))
        self.assertGreaterEqual(float(values["llamacpp:prompt_tokens_total"]), before["prompt_n"])
        self.assertGreaterEqual(float(values["llamacpp:tokens_predicted_total"]), 6)
        self.assertGreater(float(values["llamacpp:tokens_predicted_seconds_total"]), 0)
        self.assertEqual(float(values["llamacpp:requests_processing"]), 0)

    def test_embeddings_of_ids_and_texts(self):
        mixed = self.server.post("/v1/embeddings", {"input": [*self.ids("Once"), " upon a"]}).json
        self.assertEqual(mixed["usage"]["prompt_tokens"], 3)
        self.refused(self.server.post("/v1/embeddings", {"input": "word " * 5000}), 400, "too large")

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
        self.refused(self.server.post("/rerank", dict(body, method="pair")), 400, "not a cross-encoder")
        for wrong in ({"documents": []}, {"documents": None}, {"documents": [1]}, {"query": None}, {"method": "guess"}, {"top_n": 0}):
            self.assertEqual(self.server.post("/rerank", dict(body, **wrong)).status, 400, wrong)


class CrossEncoder(unittest.TestCase):
    """/rerank with a model that reads query and document together."""

    def test_scores(self):
        folder = tiny("reranker-bert", "")
        with open(os.path.join(folder, "golden.json"), encoding="utf-8") as file:
            pairs = [pair for pair in json.load(file)["cases"] if pair["query"] == "How deep is the harbour?"]
        server = Server(folder)
        try:
            body = {"query": pairs[0]["query"], "documents": [pair["document"] for pair in pairs]}
            scores = {r["index"]: r["relevance_score"] for r in server.post("/v1/rerank", body).json["results"]}
            for index, pair in enumerate(pairs):
                self.assertAlmostEqual(scores[index], pair["score"], delta=0.02)  # weights and activations in BF16
            self.assertEqual(server.post("/v1/rerank", dict(body, method="pair")).status, 200)
            self.assertEqual(server.post("/v1/rerank", dict(body, documents=["word " * 5000])).status, 400)
            self.assertEqual(server.post("/v1/rerank", dict(body, documents=["\u0000", ""])).status, 200)
        finally:
            self.assertEqual(server.stop(), 0, server.log)


class Settings(ServerTest):
    """What the command line sets for requests that do not."""

    arguments = ("--defaults", '{"temperature": 0, "num_predict": 3, "seed": 7, "think": false, "stop": ["zz"]}', "--slide", "--context", "64",
                 "--only-named", MODEL, "--disable", "/slots, /,/metrics", "--cors", "localhost, https://a.example")

    def test_defaults(self):
        reply = self.server.post("/completion", {"prompt": "Once upon a"}).json
        self.assertEqual((reply["tokens_predicted"], reply["generation_settings"]["seed"]), (3, 7))
        self.assertEqual(reply["generation_settings"]["stop"], ["zz"])
        for limit in ("max_tokens", "max_completion_tokens", "n_predict"):
            self.assertEqual(self.server.post("/v1/chat/completions", {"messages": TALE, limit: 5}).json["usage"]["completion_tokens"], 5)
        self.assertEqual(self.server.post("/api/chat", {"model": MODEL, "messages": TALE, "stream": False}).json["eval_count"], 3)
        self.assertEqual(self.server.get("/props").json["default_generation_settings"]["params"]["seed"], 7)
        for wrong in ("[]", "{", '{"frobnicate": 1}', '{"temperature": "hot"}', '{"num_predict": 1.5}', '{"think": 1}'):
            reply = spry("serve", "--defaults", wrong, "--port", "0")
            self.assertNotEqual(reply.code, 0, wrong)
            self.assertIn("--defaults", reply.errors)

    def test_slide(self):
        reply = self.server.post("/completion", {"prompt": "Once upon a time", "n_predict": 100, "ignore_eos": True}).json
        self.assertEqual((reply["tokens_predicted"], reply["truncated"]), (100, True))
        long = [{"role": "user", "content": "Tell me a tale of a fox."}, {"role": "assistant", "content": "Once upon a time."}] * 10 + TALE
        self.assertEqual(self.server.post("/v1/chat/completions", {"messages": long}).status, 200)

    def test_what_is_off(self):
        self.assertEqual([model["id"] for model in self.server.get("/v1/models").json["data"]], [MODEL])
        self.refused(self.server.get("/slots"), 501, "/slots", "--disable")
        self.assertEqual((self.server.get("/metrics").status, self.server.get("/").status), (501, 404))
        self.assertEqual(self.server.get("/props").status, 200)

    def test_origins(self):
        for origin in ("http://localhost", "http://localhost:3000", "http://127.0.0.1:1", "https://[::1]:9", "https://a.example"):
            self.assertEqual(self.server.get("/health", Origin=origin).headers["access-control-allow-origin"], origin)
        for origin in ("http://localhost.evil.example", "http://notlocalhost", "https://b.example", "null"):
            self.assertEqual(self.server.get("/health", Origin=origin).status, 403, origin)


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


class Like(ServerTest):
    """--like llama-server, and what it changes."""
    arguments = ("--like", "llama-server", "--cors", "https://page.example")

    def test_details(self):
        self.assertIsNone(self.server.chat(stream=True, max_tokens=2).events[0]["choices"][0]["delta"]["content"])
        whole = self.server.chat(max_tokens=2).json
        self.assertTrue(whole["system_fingerprint"].startswith("b0-"))
        self.assertTrue(self.server.get("/props").json["build_info"].startswith("b0-"))
        for timings in (whole["timings"], self.server.post("/completion", ONCE).json["timings"]):
            self.assertTrue(all(isinstance(value, (int, float)) for value in timings.values()), timings)
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-own"}
        head = self.server.ask("OPTIONS", "/completion", headers={"Origin": "https://page.example", **asked}).headers
        self.assertEqual((head["access-control-allow-headers"], head["access-control-allow-credentials"]), ("*", "true"))
        head = self.server.ask("OPTIONS", "/completion", headers={"Origin": "https://evil.example", **asked}).headers
        self.assertNotIn("access-control-allow-credentials", head)
        parts = [{"type": "text", "text": "On"}, {"type": "text", "text": "ce"}]
        prompt = self.server.chat(messages=TALE + [{"role": "assistant", "content": parts}], verbose=True, max_tokens=1)
        self.assertTrue(prompt.json["__verbose"]["prompt"].endswith("On\n\nce"))
        text = self.server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "stream": True})
        self.assertIn("event: response.completed\n", text.text)


class Continued(ServerTest):
    def test_tokens(self):
        """A continued answer is tokenised with what precedes it, as the model has seen such texts."""
        rendered = self.server.post("/apply-template", {"messages": TALE}).json["prompt"]
        for begun in ("Once", "\n\nOnce", " Once", "<|im_end|>"):
            body = {"messages": TALE + [{"role": "assistant", "content": begun}], "max_tokens": 1}
            count = len(self.server.post("/tokenize", {"content": rendered + begun, "parse_special": True}).json["tokens"])
            given = self.server.post("/v1/chat/completions", body).json["usage"]["prompt_tokens"]
            if begun[0] == "<":  # of a client: text, not a control token
                self.assertGreater(given, count)
            else:
                self.assertEqual(given, count, begun)

    def test_settings(self):
        ends = self.server.post("/completion", dict(ONCE, ignore_eos=True)).json["generation_settings"]["logit_bias"]
        self.assertTrue(ends and all(entry["bias"] is None for entry in ends))
        self.assertEqual(self.server.post("/completion", ONCE).json["generation_settings"]["logit_bias"], [])


class Responses(ServerTest):
    """What llama-server adds to OpenAI's Responses."""

    def test_progress_and_timings(self):
        body = {"input": "A tale. " * 100, "max_output_tokens": 4, "stream": True, "return_progress": True,
                "timings_per_token": True}
        events = [json.loads(line[6:]) for line in self.server.post("/v1/responses", body).text.splitlines()
                  if line.startswith("data: ")]
        progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
        self.assertEqual(progress[-1]["processed"], progress[-1]["total"])
        self.assertTrue(all(event["type"] == "response.in_progress" for event in events if "prompt_progress" in event))
        deltas = [event for event in events if event["type"] == "response.output_text.delta"]
        self.assertTrue(deltas and all("prompt_per_second" in event["timings"] for event in deltas))
        self.assertIn("timings", events[-1])
        plain = self.server.post("/v1/responses", dict(body, return_progress=False, timings_per_token=False)).text
        self.assertNotIn("prompt_progress", plain)


if __name__ == "__main__":
    server_support.main()
