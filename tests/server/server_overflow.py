"""Contexts that are full: errors, sliding, prompts cut in the middle, on every interface; what went is told. Penalties of
the prompt and of the answer."""

import server_support
from server_support import MODEL, TALE, ServerTest

LONG = "word " * 3000
MESSAGES = [{"role": "system", "content": "Be brief."}] + [
    {"role": role, "content": "%s number %d. " % (role, i) * 20} for i in range(40) for role in ("user", "assistant")] + [
    {"role": "user", "content": "And now?"}]


class Overflow(ServerTest):
    arguments = ("--context", "512")

    def ask(self, path, body, **fields):
        return self.server.post(path, dict(body, model=MODEL, **fields))

    def test_errors_unless_it_says_otherwise(self):
        for path, body in (("/v1/completions", {"prompt": LONG}), ("/completion", {"prompt": LONG}),
                           ("/v1/chat/completions", {"messages": MESSAGES})):
            for fields in ({}, {"context_overflow": "error"}, {"context_overflow": None}):
                reply = self.ask(path, body, max_tokens=4, **fields)
                self.assertEqual(reply.status, 400, path)
                self.assertEqual(reply.json["error"]["code"], "context_length_exceeded")
        self.assertEqual(self.ask("/api/chat", {"messages": MESSAGES, "context_overflow": "error", "stream": False}).status, 400)

    def test_slide(self):
        for path, body in (("/v1/completions", {"prompt": LONG}), ("/completion", {"prompt": LONG}),
                           ("/v1/chat/completions", {"messages": MESSAGES})):
            reply = self.ask(path, body, max_tokens=4, temperature=0, context_overflow="slide")
            self.assertEqual(reply.status, 200, reply.text)
            self.assertGreater(reply.json["timings"]["dropped_tokens"], 1000, path)
            again = self.ask(path, body, max_tokens=4, temperature=0, context_overflow="slide", n_keep=64)
            self.assertEqual(again.status, 200, again.text)
        for path, body in (("/api/chat", {"messages": MESSAGES}), ("/api/generate", {"prompt": LONG})):
            reply = self.ask(path, body, stream=False, options={"num_predict": 4})
            self.assertEqual(reply.status, 200, reply.text)
            self.assertGreater(reply.json["timings"]["dropped_tokens"], 500, path)

    def test_ollama_counts_what_fits(self):
        for path, body in (("/api/generate", {"prompt": LONG, "raw": True}), ("/api/generate", {"prompt": LONG}),
                           ("/api/chat", {"messages": MESSAGES})):
            reply = self.ask(path, body, stream=False, options={"num_predict": 4}).json
            self.assertLessEqual(reply["prompt_eval_count"], 512, path)
            self.assertGreater(reply["prompt_eval_count"], 100, path)
        short = self.ask("/api/generate", {"prompt": "Once upon a time", "raw": True}, stream=False, options={"num_predict": 4}).json
        self.assertEqual(short["prompt_eval_count"], len(self.server.post("/tokenize", {"content": "Once upon a time"}).json["tokens"]))

    def test_ollama_truncate_and_shift(self):
        for path, body in (("/api/generate", {"prompt": LONG, "raw": True}), ("/api/chat", {"messages": MESSAGES})):
            reply = self.ask(path, body, stream=False, truncate=False, options={"num_predict": 4})
            self.assertEqual(reply.status, 400, path)
            self.assertIn("context", reply.json["error"])
        self.assertEqual(self.ask("/api/chat", {"messages": MESSAGES}, stream=False, shift=False, options={"num_predict": 4}).status, 200)
        body = {"prompt": "Once upon a time", "raw": True, "format": {"type": "string", "minLength": 4000}}
        ended = self.ask("/api/generate", body, stream=False, shift=False, options={"num_predict": 900}).json
        self.assertEqual((ended["done_reason"], ended["timings"]["dropped_tokens"]), ("length", 0))
        self.assertLess(ended["eval_count"], 512)

    def test_ollama_think(self):
        for think in (True, "low", "high"):
            reply = self.ask("/api/chat", {"messages": TALE}, stream=False, think=think)
            self.assertEqual(reply.status, 400)
            self.assertIn("does not support thinking", reply.json["error"])
        self.assertEqual(self.ask("/api/chat", {"messages": TALE}, stream=False, think=False, options={"num_predict": 1}).status, 200)

    def test_an_answer_slides(self):
        reply = self.ask("/v1/completions", {"prompt": "Once upon a time"}, max_tokens=900, ignore_eos=True, temperature=0,
                         context_overflow="slide")
        self.assertEqual(reply.json["usage"]["completion_tokens"], 900)
        self.assertGreater(reply.json["timings"]["dropped_tokens"], 300)
        ended = self.ask("/v1/completions", {"prompt": "Once upon a time"}, max_tokens=900, ignore_eos=True, temperature=0)
        self.assertLess(ended.json["usage"]["completion_tokens"], 512)
        self.assertEqual((ended.json["timings"]["dropped_tokens"], ended.json["choices"][0]["finish_reason"]), (0, "length"))

    def test_truncate_middle(self):
        first, last = "FIRST words. " * 20, " LAST words." * 20
        reply = self.ask("/v1/completions", {"prompt": first + LONG + last}, max_tokens=16, echo=True, temperature=0,
                         context_overflow="truncate_middle")
        text = reply.json["choices"][0]["text"]
        self.assertTrue(text.startswith(first) and last in text)
        self.assertGreater(reply.json["timings"]["dropped_tokens"], 2000)
        self.assertLessEqual(reply.json["usage"]["total_tokens"], 512)
        reply = self.ask("/v1/chat/completions", {"messages": MESSAGES}, max_tokens=16, context_overflow="truncate_middle")
        self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(reply.json["usage"]["prompt_tokens"], 512 - 16)
        short = self.ask("/v1/chat/completions", {"messages": TALE}, max_tokens=4, temperature=0)
        same = self.ask("/v1/chat/completions", {"messages": TALE}, max_tokens=4, temperature=0, context_overflow="truncate_middle")
        self.assertEqual(same.json["choices"], short.json["choices"])

    def test_other_interfaces(self):
        for path, body in (("/v1/messages", {"messages": MESSAGES[1:], "max_tokens": 4}),
                           ("/v1/responses", {"input": MESSAGES, "max_output_tokens": 4})):
            self.assertEqual(self.ask(path, body).status, 400, path)
            for way in ("slide", "truncate_middle"):
                self.assertEqual(self.ask(path, body, context_overflow=way).status, 200, path)

    def test_bad_values(self):
        for wrong in ("drop", 5, True, ["slide"]):
            reply = self.ask("/v1/completions", {"prompt": "Once"}, context_overflow=wrong)
            self.assertEqual(reply.status, 400)
            self.assertIn("context_overflow", reply.json["error"]["message"])
        self.assertEqual(self.ask("/v1/completions", {"prompt": "Once"}, n_keep=-2).status, 400)


class ServerSlides(ServerTest):
    arguments = ("--context", "512", "--slide", "--keep", "32")

    def test_requests_slide(self):
        body = {"prompt": LONG, "max_tokens": 4}
        self.assertEqual(self.server.post("/v1/completions", body).status, 200)
        self.assertEqual(self.server.post("/v1/completions", dict(body, context_overflow="error")).status, 400)


class Penalties(ServerTest):
    PROMPT = "Tim Tim Tim Tim Tim Tim Tim Tim and"

    def logprob(self, **fields):
        """The first token, when "Tim" is wanted and penalised."""
        body = dict({"prompt": self.PROMPT, "max_tokens": 1, "temperature": 0, "logit_bias": [[" Tim", 50]]}, **fields)
        return self.server.post("/v1/completions", body)

    def test_scope(self):
        plain = self.logprob().json["choices"][0]["text"]
        self.assertEqual(self.logprob(frequency_penalty=20).json["choices"][0]["text"], plain)
        self.assertEqual(self.logprob(frequency_penalty=20, penalty_scope="generated").json["choices"][0]["text"], plain)
        self.assertNotEqual(self.logprob(frequency_penalty=20, penalty_scope="all").json["choices"][0]["text"], plain)
        # Generated tokens count in both.
        free = self.logprob(max_tokens=12).json["choices"][0]["text"]
        self.assertNotEqual(self.logprob(max_tokens=12, frequency_penalty=30).json["choices"][0]["text"], free)
        for wrong in ("prompt", 5, ""):
            reply = self.logprob(penalty_scope=wrong)
            self.assertEqual(reply.status, 400)
            self.assertIn("penalty_scope", reply.json["error"]["message"])

    def test_ollamas_defaults(self):
        body = {"model": MODEL, "prompt": "Once upon a time", "raw": True, "stream": False}
        options = {"temperature": 0, "num_predict": 120}
        usual = self.server.post("/api/generate", dict(body, options=options)).json["response"]
        said = self.server.post("/api/generate", dict(body, options=dict(options, repeat_penalty=1.1, repeat_last_n=64))).json
        self.assertEqual(said["response"], usual)
        off = self.server.post("/api/generate", dict(body, options=dict(options, repeat_last_n=0))).json["response"]
        none = self.server.post("/api/generate", dict(body, options=dict(options, repeat_penalty=1.0))).json["response"]
        self.assertEqual(off, none)
        self.assertNotEqual(usual, none)
        every = self.server.post("/api/generate", dict(body, options=dict(options, repeat_last_n=-1))).json["response"]
        long = self.server.post("/api/generate", dict(body, options=dict(options, repeat_last_n=100000))).json["response"]
        self.assertEqual(every, long)


if __name__ == "__main__":
    server_support.main()
