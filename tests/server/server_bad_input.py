"""Bodies as bad as they come, on every interface: broken JSON, numbers at their limits, unknown words, 100,000 tools. Each has
one answer, 200 or 400, and the server goes on."""

import json
import os

import server_support
from server_fields import BASES, FOLDER, message, put, tables
from server_support import MODEL, TALE, ServerTest, public

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/api/chat", "/api/generate",
         "/completion", "/tokenize", "/rerank")
WHOLE = ("/v1/chat/completions", "/v1/messages", "/api/chat", "/completion")  # one path of each interface
LIMITS = ("0", "-1", "-0.0", "1e308", "5e-324", "4294967296", "9223372036854775807", "18446744073709551616", "0.9999999999999999")
# Messages name these fields as the engine does.
OTHER_NAMES = {"repetition_penalty": "repeat_penalty", "repeat_last_n": "penalty_window", "max_output_tokens": "max_tokens",
               "temp": "temperature", "typical": "typical_p"}
NO_NUMBERS = ("1e999", "-1e999", "NaN", "Infinity", "01", "1.", ".5", "0x10", "+1")


class Bodies(ServerTest):
    arguments = ("--max-tokens", "2", "--models-dir", FOLDER)

    def setUp(self):
        self.connection = self.server.connect()

    def tearDown(self):
        self.connection.close()

    def post(self, path, body):
        """One request on a connection that stays open, so that an answer too many would be seen by the next one."""
        data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.connection.request("POST", path, data, {"Content-Type": "application/json"})
        return server_support.Reply(self.connection.getresponse())

    def refused(self, reply, *words):
        self.assertEqual(reply.status, 400, reply.text[:300])
        for word in words:
            self.assertIn(word, message(reply))

    def test_json_test_suite(self):
        folder = public("badinput", "JSONTestSuite", "test_parsing")
        if not folder:
            self.skipTest("no data: badinput/JSONTestSuite of the public test data is not there")
        names = sorted(os.listdir(folder))
        self.assertGreater(len(names), 300)
        for number, name in enumerate(names):
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            for path in dict.fromkeys(WHOLE + PATHS[number % 5::5]):  # the other paths get a fifth of them
                with self.subTest(path=path, name=name):
                    self.refused(self.post(path, data))
        self.alive()

    def test_json_of_our_own(self):
        """The same for those who do not have the suite."""
        for data in (b"", b" ", b"{", b"}", b"[", b"[]", b"null", b"true", b"1", b'"x"', b"{]", b"{} {}", b"{},", b'{"a"}', b'{"a":}',
                     b"{'a': 1}", b'{"a": 1,}', b'{"a": 1 "b": 2}', b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b'{"a": "\xff"}',
                     b'{"a": "\xed\xa0\x80"}', b'{"a": "\\ud800"}', b'{"a": "\\u12"}', b'{"a": "\n"}', b'{"a": "\\x"}', b'{"a": tru}',
                     b'{"a": 1, "a": 2}', b"/**/{}", b'{"a": 1} x', b"[" * 100000, b'{"a":' * 100000, b'{"a": "' + b"x" * 100000,
                     b"\0", b"{\0}", b'{"a\0": 1}'):
            for path in PATHS:
                with self.subTest(path=path, data=data[:40]):
                    self.refused(self.post(path, data))
        self.alive()

    def test_numbers_that_are_none(self):
        for text in NO_NUMBERS:
            for path in PATHS:
                body = json.dumps(put(BASES.get(path, {"content": "x"}), "seed", "@"))
                self.refused(self.post(path, body.replace('"@"', text)))

    def test_numbers_at_their_limits(self):
        for path, name, types, use, _ in tables():
            if "number" not in types or use != "honoured" or path in ("/api/create", "/api/chats"):
                continue
            for text in LIMITS:
                with self.subTest(path=path, field=name, value=text):
                    body = json.dumps(put(BASES[path], name, "@")).replace('"@"', text)
                    reply = self.post(path, body)
                    self.assertIn(reply.status, (200, 400), reply.text[:300])
                    if reply.status == 400 and path != "/infill":
                        own = name.split(".")[-1]
                        self.assertTrue(own in message(reply) or OTHER_NAMES.get(own, own) in message(reply), reply.text)
        self.alive()

    def test_unknown_words(self):
        chat = BASES["/v1/chat/completions"]
        for path, field, value in (
                ("/v1/chat/completions", "tool_choice", "sometimes"), ("/v1/chat/completions", "response_format", {"type": "xml"}),
                ("/v1/chat/completions", "reasoning_format", "loud"), ("/v1/chat/completions", "json_style", "wild"),
                ("/v1/chat/completions", "tools", [{"type": "function"}]),
                ("/v1/embeddings", "encoding_format", "utf-7"), ("/v1/responses", "truncation", "some"),
                ("/v1/responses", "input", [{"type": "dream"}]),
                ("/v1/messages", "tool_choice", {"type": "sometimes"}),
                ("/v1/messages", "thinking", {"type": 5}), ("/v1/messages", "messages", [{"role": "wizard", "content": "x"}]),
                ("/v1/messages", "messages", [{"role": "user", "content": [{"type": "smell"}]}]),
                ("/api/chat", "format", "xml"), ("/api/chat", "think", "loud"), ("/api/chat", "keep_alive", "soon"),
                ("/api/generate", "format", "xml"), ("/rerank", "method", "guess")):
            with self.subTest(path=path, field=field, value=value):
                self.refused(self.post(path, put(BASES[path], field, value)), field.rstrip("s"))
        self.assertEqual(self.post("/v1/chat/completions", chat).status, 200)

    def test_unknown_parts_are_named(self):
        for path, field, value, name in (
                ("/v1/chat/completions", "tools", [{"type": "hammer"}], "tools.hammer"),
                ("/v1/chat/completions", "messages", [{"role": "user", "content": [{"type": "smell", "text": "x"}]}], "messages.smell"),
                ("/v1/responses", "tools", [{"type": "hammer"}], "tools.hammer"),
                ("/v1/responses", "include", ["everything"], "include.everything")):
            with self.subTest(path=path, field=field, value=value):
                reply = self.post(path, put(BASES[path], field, value))
                self.assertEqual((reply.status, reply.headers.get("x-spry-ignored")), (200, name), reply.text[:300])
        reply = self.post("/v1/chat/completions", {"messages": TALE, **{"f%d" % i: 1 for i in range(100000)}})
        self.assertEqual(reply.status, 200)
        self.assertTrue(reply.headers["x-spry-ignored"].startswith("f0, f1, "))
        self.assertLess(len(reply.headers["x-spry-ignored"]), 4096)

    def test_many_tools(self):
        tools = [{"type": "function", "function": {"name": "f%d" % i}} for i in range(100000)]
        self.refused(self.post("/v1/chat/completions", {"messages": TALE, "tools": tools}), "100000", "16384")
        self.refused(self.post("/api/chat", {"model": MODEL, "messages": TALE, "tools": tools}), "100000")
        anthropic = [{"name": "f%d" % i, "input_schema": {"type": "object"}} for i in range(100000)]
        self.refused(self.post("/v1/messages", dict(BASES["/v1/messages"], tools=anthropic)), "100000")
        self.alive()

    def test_many_of_everything(self):
        many = [{"role": "user", "content": "x"}] * 20000
        for path, body in (("/v1/chat/completions", {"messages": many}), ("/v1/completions", {"prompt": ["x"] * 100000}),
                           ("/completion", {"prompt": [1] * 200000}), ("/v1/embeddings", {"input": ["x"] * 100000}),
                           ("/rerank", {"query": "x", "documents": ["x"] * 100000}),
                           ("/v1/chat/completions", {"messages": TALE, "stop": ["x"] * 100000}),
                           ("/v1/chat/completions", {"messages": TALE, "logit_bias": {str(i): 1 for i in range(100000)}}),
                           ("/v1/chat/completions", {"messages": TALE, "guided_choice": ["x"] * 100000 + [1]})):
            with self.subTest(path=path, fields=list(body)[:3]):
                self.refused(self.post(path, body))
        self.alive()


if __name__ == "__main__":
    server_support.main()
