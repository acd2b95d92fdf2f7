"""What one request may cost: limits that hold, and costs that grow with the size of the request and no faster."""

import os

from server_support import *

EMPTY_OBJECTS = b'{"messages":[' + b"{}," * 1000000 + b"{}]}"
SLOW_GRAMMAR = "root ::= (([a-z ]{0,6000} [a-z ]{0,6000}){0,6000} [a-z ]{0,6000}){0,6000}"


def message(role, content):
    return {"role": role, "content": content}


TEXT = {"type": "text", "text": "a"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "a"}
# Bodies by a number of parts. None of them has to be answered; a prompt that is too long has been read and rendered, too.
BODIES = {
    "blocks of a user": ("/v1/messages", lambda n: {"messages": [message("user", [TEXT] * n)]}),
    "blocks of an answer": ("/v1/messages", lambda n: {"messages": [message("user", "a"), message("assistant", [TEXT] * n)]}),
    "blocks of a result": ("/v1/messages", lambda n: {"messages": [message("user", [dict(RESULT, content=[TEXT] * n)])]}),
    "uses of tools": ("/v1/messages", lambda n: {"messages": [message("user", "a"), message("assistant", [USE] * (n // 4)),
                                                               message("user", [RESULT] * (n // 4))]}),
    "parts": ("/v1/chat/completions", lambda n: {"messages": [message("user", [TEXT] * n)]}),
    "messages": ("/v1/chat/completions", lambda n: {"messages": [message("user", "a")] * n}),
    "calls": ("/v1/chat/completions", lambda n: {"messages": [message("user", "a"),
                                                              dict(message("assistant", ""), tool_calls=[CALL] * (n // 2))]}),
    "items": ("/v1/responses", lambda n: {"input": [message("user", "a")] * n}),
    "parts of items": ("/v1/responses", lambda n: {"input": [message("user", [{"type": "input_text", "text": "a"}] * n)]}),
    "thoughts": ("/v1/responses", lambda n: {"input": [{"type": "reasoning", "summary": [
        {"type": "summary_text", "text": "a"}]}] * n + [message("user", "a")]}),
    "unknown ids": ("/v1/responses", lambda n: {"input": [{"type": "item_reference", "id": "msg_1_0"}] * n}),
    "text": ("/tokenize", lambda n: {"content": "a b" * 40 * n}),
    "blanks": ("/tokenize", lambda n: {"content": " " * 100 * n}),
    "one letter": ("/tokenize", lambda n: {"content": "a" * 100 * n}),
    "tools": ("/v1/chat/completions", lambda n: {"messages": [message("user", "a")], "tool_choice": "none", "tools": [
        {"type": "function", "function": {"name": "f%d" % i, "parameters": {"type": "object"}}} for i in range(n // 2)]}),
    "tools of messages": ("/v1/messages", lambda n: {"messages": [message("user", "a")], "tools": [
        {"name": "f%d" % i, "input_schema": {"type": "object"}} for i in range(n // 2)]}),
    "unknown fields": ("/v1/chat/completions", lambda n: dict({"x%d" % i: 1 for i in range(n)}, messages=[message("user", "a")])),
    "unknown fields of messages": ("/v1/chat/completions", lambda n: {"messages": [dict(message("user", "a"), **{"x%d" % i: 1})
                                                                                   for i in range(n)]}),
    "pairs": ("/v1/responses", lambda n: {"input": "a", "metadata": {"x%d" % i: "y" for i in range(n)}}),
    "calls and outputs": ("/v1/responses", lambda n: {"input": [
        {"type": "function_call", "call_id": "c%d" % i, "name": "f", "arguments": "{}"} for i in range(n // 2)] + [
        {"type": "function_call_output", "call_id": "c%d" % i, "output": "a"} for i in range(n // 2)]}),
    "messages of Ollama": ("/api/chat", lambda n: {"messages": [message("user", "a")] * n, "stream": False}),
    "words of a schema": ("/v1/completions", lambda n: {"prompt": "a", "guided_json": {"enum": ["p%d" % i for i in range(n)]}}),
    "choices": ("/v1/completions", lambda n: {"prompt": "a", "guided_choice": ["p%d" % i for i in range(n)]}),
    "rules": ("/v1/completions", lambda n: {"prompt": "a", "grammar": "root ::= r0\n" + "\n".join(
        'r%d ::= "a" r%d | "b"' % (i, (i + 1) % n) for i in range(n))}),
    "triggers": ("/completion", lambda n: {"prompt": "a", "grammar": 'root ::= "a"', "grammar_lazy": True, "grammar_triggers": [
        {"type": 1, "value": "x%d" % i} for i in range(n)]}),
    "tokens": ("/detokenize", lambda n: {"tokens": [300] * 4 * n}),
}


ONE_TOKEN = {"/v1/messages": {"max_tokens": 1}, "/v1/chat/completions": {"max_tokens": 1}, "/v1/completions": {"max_tokens": 1},
             "/v1/responses": {"max_output_tokens": 1}, "/completion": {"n_predict": 1}, "/api/chat": {"options": {"num_predict": 1}}}


class Costs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def cost(self, path, body):
        text = json.dumps(dict(body, model=MODEL, **ONE_TOKEN.get(path, {})))
        before = self.server.cpu()
        self.assertIn(self.server.post(path, text).status, (200, 400))
        return self.server.cpu() - before

    def test_four_times_the_size_costs_four_times_as_much(self):
        size = 4000
        for name, (path, make) in BODIES.items():
            with self.subTest(name):
                few, many = self.cost(path, make(size)), self.cost(path, make(4 * size))
                self.assertLess(many, 9 * few + 0.15, "%s: %.2f s and %.2f s" % (name, few, many))

    def test_items_of_stored_responses(self):
        """A response is found by its id, and read once however often a request refers to it."""
        items = []
        for i in range(20):
            stored = self.server.post("/v1/responses", {"input": "Tale %d" % i, "instructions": "word " * 400, "max_output_tokens": 1})
            self.assertEqual(stored.status, 200, stored.text)
            items.append(stored.json["output"][0]["id"])
        reply = self.server.post("/v1/responses", {"max_output_tokens": 1, "input": [
            {"type": "item_reference", "id": items[3]}, message("user", "Go on."), {"type": "item_reference", "id": items[4]},
            message("user", "Go on.")]})
        self.assertEqual(reply.status, 200, reply.text)
        n = 100000
        plain = self.cost("/v1/responses", {"input": [dict(message("assistant", "a"), id="msg_1_0", type="message")] * n})
        known = self.cost("/v1/responses", {"input": [{"type": "item_reference", "id": items[i % 20]} for i in range(n)]})
        self.assertLess(known, 4 * plain + 0.15, "%.2f s, and %.2f s without references" % (known, plain))

    def test_variables_of_templates(self):
        reply = self.server.chat(max_tokens=1, chat_template_kwargs={"x%d" % i: 1 for i in range(257)})
        self.assertEqual((reply.status, "257 variables" in reply.text), (400, True), reply.text)
        self.assertEqual(self.server.chat(max_tokens=1, chat_template_kwargs={"x%d" % i: 1 for i in range(256)}).status, 200)

    def test_grammars(self):
        """A grammar that would take half a minute between two tokens ends its own answer."""
        reply = self.server.post("/v1/completions", {"prompt": "a", "max_tokens": 200, "temperature": 0, "ignore_eos": True,
                                                         "grammar": SLOW_GRAMMAR})
        self.assertEqual((reply.status, "takes too long to follow" in reply.text), (400, True), reply.text)

    def test_texts_of_grammars_and_schemas(self):
        many = {"type": "object", "properties": {"p%d" % i: {"type": "string", "description": "x" * 1000} for i in range(4400)}}
        for fields, words in (({"grammar": 'root ::= "a"\n#' + "x" * (16 << 20)}, "grammar"), ({"guided_json": many}, "schema")):
            reply = self.server.post("/v1/completions", dict(fields, prompt="a", max_tokens=1))
            self.assertEqual((reply.status, words in reply.text), (400, True), reply.text[:300])

    def test_entries_of_logit_bias(self):
        for count, status in ((1024, 200), (1025, 400)):
            for bias in {str(i): 1 for i in range(count)}, [[i, 1] for i in range(count)]:
                reply = self.server.post("/completion", {"prompt": "a", "n_predict": 1, "logit_bias": bias})
                self.assertEqual(reply.status, status, reply.text[:200])

    def test_stop_texts(self):
        for stop, status in (("x" * 4096, 200), ("x" * 4097, 400), (["x"] * 16, 200), (["x"] * 17, 400)):
            reply = self.server.post("/completion", {"prompt": "a", "n_predict": 1, "stop": stop})
            self.assertEqual(reply.status, status, reply.text[:200])

    def test_replies_do_not_repeat_large_fields(self):
        grammar = "root ::= [a-z ]+\n#" + "x" * 300000
        reply = self.server.post("/completion", {"prompt": ["a"] * 16, "n_predict": 1, "grammar": grammar})
        self.assertEqual(reply.status, 200, reply.text[:200])
        self.assertLess(len(reply.body), 200000)

    def test_nesting(self):
        for depth in (2049, 1000000):
            reply = self.server.post("/v1/completions", "[" * depth)
            self.assertEqual((reply.status, "nested too deeply" in reply.text), (400, True), reply.text[:200])


class Stored(unittest.TestCase):
    def test_bytes_of_stored_responses(self):
        """The oldest make room for the newest."""
        server = Server("--responses-bytes", "16K")
        names = []
        for i in range(12):
            stored = server.post("/v1/responses", {"input": "Tale %d" % i, "instructions": "word " * 400, "max_output_tokens": 1})
            names.append(stored.json["id"])
        found = [server.get("/v1/responses/" + name).status for name in names]
        self.assertEqual((found[0], found[-1]), (404, 200))
        self.assertEqual(found, sorted(found, reverse=True))
        self.assertEqual(server.stop(), 0)


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--request-memory", "64M", "--max-body", "24M")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def memory(self, name):
        with open("/proc/%d/status" % self.server.process.pid, encoding="ascii") as file:
            return int(re.search(name + r":\s+(\d+) kB", file.read()).group(1)) / 1024

    def test_values_of_one_request(self):
        """"{}," takes 80 times its text: 240 MB here, of which the request gets what --request-memory has."""
        replies = []
        with open("/proc/%d/clear_refs" % self.server.process.pid, "w", encoding="ascii") as file:
            file.write("5")  # the peak begins anew
        before = self.memory("VmRSS")

        def is_refused():  # other requests may still have memory
            replies.append(self.server.post("/v1/chat/completions", EMPTY_OBJECTS))
            return replies[-1].status in (400, 413)  # by what the text promises, or by what was taken
        self.assertTrue(eventually(is_refused), replies[-1].text)
        self.assertIn("memory", replies[-1].text)
        if not SANITIZED:
            self.assertLess(self.memory("VmHWM") - before, 150)
        self.assertEqual(self.server.chat(max_tokens=1).status, 200)

    def test_replies(self):
        """The reply of /tokenize takes 250 times its text."""
        def is_refused(pieces):
            reply = self.server.post("/tokenize", {"content": "a b " * (1 << 19), "with_pieces": pieces})
            return (reply.status, "memory" in reply.text) == (413, True)
        self.assertTrue(eventually(lambda: is_refused(True)))
        if not SANITIZED:
            self.assertLess(self.memory("VmHWM"), 400)
        self.assertEqual(self.server.post("/tokenize", {"content": "a b " * 10000, "with_pieces": True}).status, 200)
        self.assertEqual(self.server.chat(max_tokens=1).status, 200)

    def test_bodies_of_all_requests(self):
        """Four bodies of 20 MB that do not end: the budget holds three, and is free again when their clients leave."""
        size = 20 << 20
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (size + 1)
        clients = [self.server.socket() for _ in range(4)]
        for client in clients:
            try:
                client.sendall(head + b" " * size)
            except OSError:
                pass
        refused = []

        def one_is_refused():
            for client in clients:
                client.setblocking(False)
                try:
                    refused.append(client.recv(4096))
                except OSError:
                    pass
            return any(reply.startswith(b"HTTP/1.1 503") and b"request-memory" in reply for reply in refused)
        self.assertTrue(eventually(one_is_refused), refused)
        self.assertLess(len([reply for reply in refused if reply]), 4)
        for client in clients:
            client.close()
        text = "x" * (1 << 19)
        self.assertTrue(eventually(lambda: self.server.post("/tokenize", {"content": text}).status == 200))

    def test_bodies_that_are_too_long(self):
        reply = self.server.post("/v1/completions", b" " * ((24 << 20) + 1))
        self.assertEqual(reply.status, 413)


if __name__ == "__main__":
    main()
