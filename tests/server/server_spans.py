"""Fragments over HTTP: in raw prompts, undeclared ones, and answers that become fragments when they end."""

import server_support
from server_support import MODEL, TALE, ServerTest

DOCUMENT = "".join("The fox number %d met the hen number %d by the river. " % (i, 3 * i) for i in range(12))


class Spans(ServerTest):
    def complete(self, *parts, path="/v1/completions", **fields):
        body = dict({"prompt": list(parts), "max_tokens": 6, "temperature": 0}, **fields)
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def text(self, answer):
        return answer["choices"][0]["text"] if "choices" in answer else answer["content"]

    def test_raw_prompts(self):
        for path in ("/v1/completions", "/completion"):
            salt = "In %s: " % path
            first = self.complete({"text": salt}, {"text": DOCUMENT, "cache": "span"}, {"text": " So"}, path=path)
            again = self.complete({"text": "Some other words stand here now. "}, {"text": DOCUMENT, "cache": "span"},
                                  {"text": " Then"}, path=path)
            self.assertGreater(again["timings"]["span_tokens"], 100)
            same = self.complete({"text": salt}, {"text": DOCUMENT, "cache": "span"}, {"text": " So"}, path=path)
            self.assertEqual(self.text(same), self.text(first))  # warm equals cold
            plain = self.complete({"text": salt}, {"text": DOCUMENT}, {"text": " So"}, path=path)
            self.assertEqual(plain["timings"]["span_tokens"], 0)

    def test_bad_parts(self):
        for part in ({}, {"text": 5}, {"text": "x", "cache": "prefix"}, {"cache": "span"}, {"text": "x", "cache": 5}):
            reply = self.server.post("/v1/completions", {"prompt": [{"text": "a"}, part]})
            self.assertEqual(reply.status, 400, reply.text)
            self.assertIn("prompt[1]", reply.text)
        reply = self.server.post("/v1/completions", {"prompt": [[{"text": "x", "cache": "span"}], ["y"]]})
        self.assertEqual(reply.status, 400, reply.text)

    def used(self, answer, salt):
        """Tokens that a request finds which contains the answer as a fragment, somewhere else."""
        content = [{"type": "text", "text": salt}, {"type": "text", "text": answer, "cache": "span"}]
        reply = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 1})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json["timings"]["cached_tokens"]

    def read(self):
        """Rows computed so far that are not of answers."""
        rows, decoded = (self.server.metric("spry_step_%srows_total" % of) or 0 for of in ("", "decode_"))
        return rows - decoded

    def settled(self):
        """Whether nothing computes any more."""
        before = self.server.metric("spry_steps_total")
        server_support.time.sleep(0.3)
        return self.server.metric("spry_steps_total") == before

    def test_answers_become_spans(self):
        for stream in (False, True):
            ask = dict(max_tokens=200, ignore_eos=True, seed=11 + stream, temperature=1)
            before = self.read()
            reply = self.server.chat(answer_span=True, stream=stream, **ask)
            self.assertEqual(reply.status, 200)
            text = "".join(event["choices"][0]["delta"].get("content") or "" for event in reply.events[:-1]
                           if event["choices"]) if stream else reply.json["choices"][0]["message"]["content"]
            self.assertTrue(server_support.eventually(lambda: self.read() > before + 150))  # the answer's, too
            self.assertGreater(self.used(text, "A first use %d: " % stream), 100)

    def test_not_unless_wanted(self):
        reply = self.server.chat(max_tokens=200, ignore_eos=True, seed=21, temperature=1)
        self.assertTrue(server_support.eventually(self.settled))
        self.assertEqual(self.used(reply.json["choices"][0]["message"]["content"], "Another first use: "), 0)


class Undeclared(ServerTest):
    """Text that is cached after other text is found without a declaration, by this server alone."""

    arguments = ("--reuse", "spans=auto", "--reuse-pages", "2")

    def ask(self, prompt, **fields):
        reply = self.server.post("/v1/completions", dict({"prompt": prompt, "max_tokens": 4, "temperature": 0}, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json["timings"]

    def test_found_anywhere(self):
        first = self.ask("It began in spring. " + DOCUMENT + "So")
        self.assertEqual((first["span_tokens"], first["span_divergence"]), (0, 0))
        moved = self.ask("Many years later, when the river had gone, the hen told it like this: " + DOCUMENT + "Then")
        self.assertGreaterEqual(moved["span_tokens"], 64)
        self.assertGreater(moved["repaired_tokens"], 0)
        self.assertTrue(0 < moved["span_divergence"] < 0.1)
        self.assertGreaterEqual(moved["cached_tokens"], moved["span_tokens"])

    def test_not_for_others(self):
        """Short text, and a prompt that declares its fragments."""
        self.ask("The first text: " + DOCUMENT)
        self.assertEqual(self.ask("Now something else. " + DOCUMENT[:60])["span_tokens"], 0)
        parts = [{"text": "A third beginning of it. "}, {"text": "A cat sat there.", "cache": "span"}, {"text": DOCUMENT}]
        self.assertLess(self.ask(parts)["span_tokens"], 32)


class Always(Spans):
    arguments = ("--answer-spans",)

    def test_not_unless_wanted(self):
        reply = self.server.chat(max_tokens=200, ignore_eos=True, seed=22, temperature=1, answer_span=False)
        self.assertTrue(server_support.eventually(self.settled))
        self.assertEqual(self.used(reply.json["choices"][0]["message"]["content"], "Yet another first use: "), 0)

    def test_many_at_once_and_the_end(self):
        threads = [server_support.threading.Thread(target=lambda: self.server.chat(max_tokens=40)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()  # the server stops while fragments are computed


if __name__ == "__main__":
    server_support.main()
