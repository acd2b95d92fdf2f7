"""Four hundred forms of requests that clients of each interface send: absent, null and empty fields, contents as strings, parts
and objects, roles and tools of every kind, members that no documentation has. tests/data/agents/forms.jsonl has them, with the
texts that must reach the prompt, what is named as ignored, and the few that are refused and why. `$RICH` in a body is the schema
below, `$IMAGE` a picture."""

import json
import os

import server_support
from agents_support import ScriptServer, call
from cli_support import DATA

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAGElEQVR4nGNgYGD4z8BAEjmqYVTDcNUAAAq9f4EjJAnQAAAAAElFTkSuQmCC"
RICH = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "title": "T", "type": "object",
        "$defs": {"N": {"type": "object", "properties": {
            "next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]},
            "v": {"type": "integer", "format": "int32", "minimum": 0, "exclusiveMaximum": 10}}}},
        "properties": {"url": {"type": "string", "format": "uri", "description": "u", "default": ""},
                       "email": {"type": "string", "format": "email"}, "t": {"type": "string", "format": "date-time"},
                       "n": {"$ref": "#/$defs/N"}, "o": {"type": ["string", "null"], "nullable": True},
                       "e": {"enum": ["a", 1, None]}, "c": {"const": "x"},
                       "l": {"type": "array", "items": {"type": "object", "properties": {}, "additionalProperties": {}},
                             "minItems": 0, "uniqueItems": True},
                       "m": {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"type": "string"}},
                       "p": {"type": "string", "pattern": "^(?!x).*$"}, "any": {}, "b": True,
                       "u": {"oneOf": [{"type": "string"}, {"type": "object", "allOf": [{"required": ["k"]}]}]},
                       "tup": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
                       "not": {"not": {"type": "null"}}, "if": {"if": {"type": "string"}, "then": {"minLength": 1}}},
        "required": ["url"], "additionalProperties": False}
# Versions and beta features that the headers of agents name.
HEADERS = {"anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-1m-2025-08-07,future-2027-01-01",
           "anthropic-version": "2023-06-01", "anthropic-dangerous-direct-browser-access": "true", "x-app": "cli",
           "OpenAI-Beta": "responses=experimental", "session_id": "x", "originator": "codex_cli_rs", "x-stainless-timeout": "600"}


def filled(value):
    if value == "$RICH":
        return RICH
    if isinstance(value, dict):
        return {key: filled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner) for inner in value]
    return value.replace("$IMAGE", IMAGE) if isinstance(value, str) else value


def forms():
    with open(os.path.join(DATA, "agents", "forms.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Forms(server_support.ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.server = ScriptServer()

    def setUp(self):
        self.server.answer("Done.")
        self.server.prompts()

    def test_all(self):
        for form in forms():
            with self.subTest(form["path"], body=form["body"]):
                query = "?beta=true" if form["path"].startswith("/v1/messages") else ""
                reply = self.server.post(form["path"] + query, dict(filled(form["body"]), model="script"), **HEADERS)
                prompts = self.server.prompts()
                if "refused" in form:
                    self.assertEqual(reply.status, 400)
                    self.assertIn(form["refused"], reply.text.replace('\\"', '"'))
                    continue
                self.assertEqual(reply.status, 200, reply.text[:300])
                self.assertEqual(reply.headers.get("x-spry-ignored", ""), form.get("ignored", ""))
                for text in form.get("texts", ()):
                    self.assertIn(text, prompts[0])

    def test_streams(self):
        """The same forms, as agents send them: each is a stream with an end of its interface's own."""
        ends = {"/v1/messages": "message_stop", "/v1/responses": "response.completed", "/v1/chat/completions": "[DONE]",
                "/api/chat": '"done":true'}
        for form in forms():
            path, body = form["path"], filled(form["body"])
            if path not in ends or "refused" in form or "stream" in body or "schema" in str(body) or not body.get("messages", 1):
                continue
            with self.subTest(path, body=form["body"]):
                reply = self.server.post(path, dict(body, model="script", stream=True), **HEADERS)
                self.assertEqual(reply.status, 200, reply.text[:300])
                end = reply.text.replace('": ', '":')[-4000:]
                self.assertTrue(ends[path] in end or "response.incomplete" in end, end[-300:])

    def chat(self, **fields):
        return self.server.chat(**dict({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200}, **fields))

    def test_custom_tools_of_chats(self):
        tools = [{"type": "custom", "custom": {"name": "patch", "description": "Patches.", "format": {
            "type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z]+"}}}}]
        self.server.answer(call("patch", input="abc"))
        wanted = {"name": "patch", "input": "abc"}
        made = self.chat(tools=tools).json["choices"][0]["message"]["tool_calls"][0]
        self.assertEqual((made["type"], made["custom"]), ("custom", wanted))
        self.assertIn("Patches.", self.server.prompts()[0])
        found = [json.loads(line[6:]) for line in self.chat(tools=tools, stream=True).text.splitlines() if line.startswith("data: {")]
        deltas = [delta for event in found for choice in event["choices"] for delta in choice["delta"].get("tool_calls", ())]
        self.assertEqual({key: "".join(delta["custom"].get(key, "") for delta in deltas) for key in wanted}, wanted)
        self.assertEqual(deltas[0]["type"], "custom")
        self.server.answer(call("patch", input="ABC!"))  # the grammar holds
        made = self.chat(tools=tools, tool_choice="required").json["choices"][0]["message"]["tool_calls"][0]
        self.assertRegex(made["custom"]["input"], "^[a-z]+$")

    def test_tools_of_responses_that_the_client_runs(self):
        for kind, item, key, arguments in (
                ("shell", "shell_call", "action", {"commands": ["ls"], "timeout_ms": 5}),
                ("apply_patch", "apply_patch_call", "operation", {"type": "create_file", "path": "a", "diff": "+b"})):
            self.server.answer(call(kind, **arguments))
            for choice in ("auto", {"type": kind}):
                reply = self.server.post("/v1/responses", {"model": "script", "input": "Hi", "tools": [{"type": kind}], "tool_choice": choice})
                made = reply.json["output"][-1]
                self.assertEqual((made["type"], made[key]), (item, arguments))
            # A shell in another server's container is not the client's.
            hosted = [{"type": kind, "environment": {"type": "container_auto"}}]
            reply = self.server.post("/v1/responses", {"model": "script", "input": "Hi", "tools": hosted, "max_output_tokens": 20})
            self.assertEqual(reply.headers.get("x-spry-ignored"), "tools.shell" if kind == "shell" else None)

    def test_thoughts_of_chats(self):
        """Other servers' settings of thoughts are this server's."""
        thought = "<think>\n%s\n</think>\n\nDone." % " ".join("thought%d" % i for i in range(400))
        self.server.answer(thought)

        def said(**fields):
            return self.chat(**dict(fields, max_tokens=4000)).json["choices"][0]["message"].get("reasoning_content", "")
        whole = said()
        self.assertIn("thought399", whole)
        for fields in ({"thinking": {"type": "enabled", "budget_tokens": 40}}, {"reasoning": {"max_tokens": 40}}, {"reasoning": {"effort": "minimal"}}):
            cut = said(**fields)
            self.assertTrue(10 < len(cut) < len(whole) / 2, (fields, len(cut)))
        self.server.answer("Done.")
        open_prompt = self.chat().json["usage"]["prompt_tokens"]  # a thought that is off is closed by the prompt
        for fields in ({"thinking": {"type": "disabled"}}, {"reasoning": {"enabled": False}}, {"enable_thinking": False},
                       {"reasoning": {"effort": "none"}}):
            self.assertGreater(self.chat(**fields).json["usage"]["prompt_tokens"], open_prompt, fields)
        for fields in ({"thinking": {"budget_tokens": "x"}}, {"thinking": 5}, {"reasoning": {"max_tokens": -5}}, {"enable_thinking": "no"}):
            self.assertEqual(self.chat(**fields).status, 400, fields)

    def test_thoughts_of_the_history(self):
        """Thoughts between calls are shown to the model again, whatever the client calls them."""
        for name, value in (("reasoning_content", "I wondered."), ("reasoning", "I wondered."), ("reasoning_text", "I wondered."),
                            ("thinking", "I wondered."), ("reasoning_details", [{"type": "reasoning.text", "text": "I wondered."}])):
            messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes.", name: value}, {"role": "user", "content": "So?"}]
            self.chat(messages=messages)
            self.server.post("/api/chat", {"model": "script", "stream": False, "messages": messages})
            for prompt in self.server.prompts():
                self.assertIn("<think>\nI wondered.\n</think>", prompt, name)


if __name__ == "__main__":
    server_support.main()
