"""Every field of every documented path: sent with its example it works or is refused by name, and with a value of the wrong
type it is refused by name. The list comes from docs/API_FIELDS.md, which is made from the program's own tables."""

import json
import os
import re

import server_support
from server_support import HOME, MODEL, ROOT, TALE, ServerTest, spry

FOLDER = os.path.join(HOME, "fields-models")
os.makedirs(FOLDER, exist_ok=True)

BASES = {"/v1/chat/completions": {"messages": TALE, "max_tokens": 2},
         "/v1/completions": {"prompt": "Once", "max_tokens": 2},
         "/v1/embeddings": {"input": "Once"},
         "/v1/responses": {"input": "Once", "max_output_tokens": 2},
         "/v1/messages": {"model": MODEL, "messages": TALE, "max_tokens": 2},
         "/v1/messages/count_tokens": {"model": MODEL, "messages": TALE},
         "/api/chat": {"model": MODEL, "messages": TALE, "stream": False, "options": {"num_predict": 2}},
         "/api/generate": {"model": MODEL, "prompt": "Hi", "stream": False, "options": {"num_predict": 2}},
         "/api/embed": {"model": MODEL, "input": "Once"},
         "/completion": {"prompt": "Once", "n_predict": 2},
         "/api/create": {"model": "derived", "from": MODEL},
         "/tokenize": {"content": "Once"},
         "/detokenize": {"tokens": [5]},
         "/infill": {"prompt": "Once", "n_predict": 2},
         "/api/chats": {"model": MODEL, "messages": TALE},
         "/models/load": {"model": MODEL},
         "/models/pin": {"model": MODEL},
         "/v1/tools/call": {"url": "http://127.0.0.1:9000/weather"},
         "/rerank": {"query": "A fox", "documents": ["A fox.", "A hen."]}}
NEEDED = {"top_logprobs": {"logprobs": True}}
VALUES = {"true or false": True, "a whole number": 3, "a number": 0.5, "a string": "x", "a list": [1], "an object": {"x": 1}}


def tables():
    """(path, field, types, use, example) of the list."""
    path = None
    with open(os.path.join(ROOT, "docs", "API_FIELDS.md"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("## POST "):
                path = line[8:].strip().split(",")[0]
            row = re.match(r"\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| `(.*?)` \| ", line)
            if row:
                yield (path,) + row.groups()


def put(body, name, value):
    """The body with a field, which may be inside another object."""
    body = json.loads(json.dumps(body))
    *outer, last = [name] if name.startswith("speculative.") else name.split(".")
    inner = body
    for part in outer:
        inner = inner.setdefault(part, {})
    inner[last] = value
    return body


def message(reply):
    error = reply.json["error"]
    return error["message"] if isinstance(error, dict) else error


class Fields(ServerTest):
    arguments = ("--models-dir", FOLDER, "--allow-pull", "--allow-pin", "--allow-chats", "--chats", os.path.join(FOLDER, "chats.db"))

    def test_the_list_is_the_programs(self):
        with open(os.path.join(ROOT, "docs", "API_FIELDS.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), spry("help", "--fields").text, "spry help --fields > docs/API_FIELDS.md")

    def test_every_field(self):
        seen = set()
        for path, name, _, use, example in tables():
            seen.add(path)
            with self.subTest(path=path, field=name):
                body = put(dict(BASES[path], **({} if path == "/v1/responses" else NEEDED.get(name, {}))), name, json.loads(example))
                reply = self.server.post(path, body)
                if use == "refused":
                    self.assertEqual(reply.status, 400, reply.text)
                    self.assertIn(name, message(reply))
                elif name == "previous_response_id":
                    self.assertEqual(reply.status, 404, reply.text)
                elif path == "/v1/tools/call" and name == "name":  # server_mcp.py calls some
                    self.assertEqual(reply.status, 400, reply.text)
                    self.assertIn("either url", message(reply))
                elif path == "/v1/tools/call":  # none is allowed here; server_tools.py calls some
                    self.assertEqual(reply.status, 403, reply.text)
                    self.assertIn("--allow-tool", message(reply))
                elif path == "/infill":  # the bundled model has no tokens for it
                    self.assertEqual(reply.status, 400)
                    self.assertIn("fill-in", message(reply))
                else:
                    self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(seen, set(BASES))

    def test_wrong_types(self):
        for path, name, types, _, _ in tables():
            joined = types.replace("true or false", "bool").split(" or ")
            allowed = ["true or false" if part == "bool" else part for part in joined]
            for kind, value in VALUES.items():
                if kind in allowed or (kind == "a whole number" and "a number" in allowed):
                    continue
                with self.subTest(path=path, field=name, kind=kind):
                    reply = self.server.post(path, put(BASES[path], name, value))
                    self.assertEqual(reply.status, 400, reply.text)
                    self.assertIn(name, message(reply))

    def test_unknown_fields(self):
        """They change nothing, and are named."""
        for path, base in BASES.items():
            wanted = self.server.post(path, base)
            for changed in ({}, {"stream": True}) if "stream" in str(base) else ({},):
                reply = self.server.post(path, dict(base, frobnicate=1, **changed))
                self.assertEqual(reply.status, wanted.status, path)
                self.assertIn("frobnicate", reply.headers["x-spry-ignored"])
            self.assertNotIn("x-spry-ignored", wanted.headers)

    def test_names_in_the_header(self):
        """Names of a client's choice are in a header: each once, in a bounded list, without bytes that could end the line."""
        names = {"a\r\nSet-Cookie: x=1": 1, "\u00e9": 1, "a,b": 1, "x" * 500: 1, "": 1}
        reply = self.server.chat(max_tokens=2, **names)
        self.assertEqual(reply.status, 200, reply.text)
        self.assertNotIn("set-cookie", reply.headers)
        said = reply.headers["x-spry-ignored"].split(", ")
        self.assertIn("a??Set-Cookie??x=1", said)
        said = self.server.chat(max_tokens=2, zeal=1, ze=1, a=1).headers["x-spry-ignored"]
        self.assertEqual(sorted(said.split(", ")), ["a", "ze", "zeal"])  # also a name that is part of another
        self.assertRegex(reply.headers["x-spry-ignored"], r"^[A-Za-z0-9_.\-\[\]=/?, ]+$")
        many = self.server.chat(max_tokens=2, **{"field%d" % i: i for i in range(1000)}).headers["x-spry-ignored"]
        self.assertLess(len(many), 1500)
        self.assertTrue(many.endswith(", ..."))

    def test_names_of_settings(self):
        """A setting has the same effect under each of its names; a negative number leaves it out."""
        def settings(**fields):
            return self.server.post("/completion", dict(BASES["/completion"], **fields)).json["generation_settings"]
        for name, alias, value in (("penalty_window", "repeat_last_n", 5), ("temperature", "temp", 0.5), ("typical_p", "typical", 0.75),
                                   ("repeat_penalty", "repetition_penalty", 1.25)):
            self.assertNotEqual(settings()[name], value)
            for field in (name, alias):
                said = settings(**{field: value})
                self.assertEqual((said[name], said[alias]), (value, value), field)
        for name in ("top_k", "repeat_last_n"):
            self.assertEqual(settings(**{name: -1})[name], settings()[name])


class Strict(ServerTest):
    arguments = ("--strict", "--models-dir", FOLDER, "--allow-pull", "--allow-pin", "--allow-chats", "--chats",
                 os.path.join(FOLDER, "strict.db"))

    def test_unknown_fields(self):
        for path, base in BASES.items():
            reply = self.server.post(path, dict(base, frobnicate=1))
            self.assertEqual(reply.status, 400, path)
            self.assertIn("frobnicate: there is no such field", message(reply))
            self.assertEqual(self.server.post(path, dict(base, frobnicate=1, stream=True)).status, 400)


if __name__ == "__main__":
    server_support.main()
