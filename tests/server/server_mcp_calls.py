"""Requests with tools of MCP servers, which the client or the server calls. The model is a script."""

import json
import os
import sys
import tempfile
import unittest

import server_support
from agents_support import START, ScriptServer, call, make_model
from cli_chat import Chat
from server_support import HOME, ServerTest, eventually, spry

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mcp_server.py")
OWN = {"type": "function", "function": {"name": "own", "parameters": {"type": "object", "properties": {}}}}


def entry(label="t", **members):
    return {"type": "mcp", "server_label": label, **members}


def never(label="t", **members):
    return entry(label, require_approval="never", **members)


class Calls(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir=HOME)
        handle, path = tempfile.mkstemp(dir=HOME, suffix=".json")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"mcpServers": {"t": {"command": sys.executable, "args": [PROGRAM]},
                                      "short": {"command": sys.executable, "args": [PROGRAM], "timeout": 1},
                                      "held": {"command": sys.executable, "args": [PROGRAM, "", cls.folder]},
                                      "dead": {"command": "no-such-program"}}}, file)
        cls.server = ScriptServer("--mcp", path, rules=("Done.",))

    def setUp(self):
        self.server.prompts()
        self.server.answer(("It says hi.", ["<tool_response>\nhi"]), ("Something else.", ["<tool_response>"]),
                           ("I ask." + call("t__echo", text="hi"), ['"t__echo"']), "No tools.")

    def chat(self, *tools, **fields):
        body = {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 500, "tools": list(tools), **fields}
        return self.server.post("/v1/chat/completions", body)

    def answer(self, *tools, **fields):
        reply = self.chat(*tools, **fields)
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def test_the_client_calls(self):
        choice = self.answer(entry())["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls")
        made = choice["message"]["tool_calls"][0]["function"]
        self.assertEqual((made["name"], json.loads(made["arguments"])), ("t__echo", {"text": "hi"}))
        self.assertNotIn("mcp_calls", choice["message"])
        reply = self.server.post("/v1/tools/call", {"name": made["name"], "arguments": json.loads(made["arguments"])})
        self.assertEqual(reply.json, {"result": "hi", "failed": False})
        self.assertEqual(self.answer(entry(require_approval="always"))["choices"][0]["finish_reason"], "tool_calls")

    def test_the_server_calls(self):
        answer = self.answer(never())
        choice = answer["choices"][0]
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual(choice["message"]["content"].replace("\n", ""), "I ask.It says hi.")
        self.assertNotIn("tool_calls", choice["message"])
        made = choice["message"]["mcp_calls"]
        self.assertEqual(len(made), 1)
        self.assertEqual({key: made[0][key] for key in ("type", "server_label", "name", "output", "error")},
                         {"type": "mcp_call", "server_label": "t", "name": "echo", "output": "hi", "error": None})
        prompts = self.server.prompts()
        self.assertEqual(len(prompts), 2)
        self.assertIn("<tool_response>\nhi\n</tool_response>", json.dumps(prompts[1], ensure_ascii=False).replace("\\n", "\n"))
        # Both rounds count; most of the second prompt is cached.
        self.assertGreater(answer["usage"]["completion_tokens"], 20)
        self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 200)
        timings = answer["timings"]
        self.assertAlmostEqual(sum(timings["parts_ms"].values()), timings["total_ms"], delta=timings["total_ms"] * 0.02)

    def test_a_stream(self):
        reply = self.chat(never(), stream=True, stream_options={"include_usage": True})
        self.assertEqual(reply.status, 200, reply.text)
        deltas = [event["choices"][0] for event in reply.events[:-1] if event["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in deltas)
        self.assertEqual(text.replace("\n", ""), "I ask.It says hi.")
        made = [choice["delta"]["mcp_calls"][0] for choice in deltas if "mcp_calls" in choice["delta"]]
        self.assertEqual([(one["name"], one["output"]) for one in made], [("echo", "hi")])
        self.assertFalse([choice for choice in deltas if "tool_calls" in choice["delta"]])
        self.assertEqual([choice["finish_reason"] for choice in deltas if choice["finish_reason"]], ["stop"])
        self.assertEqual(reply.events[-1], "[DONE]")

    def test_responses(self):
        body = {"input": "Go.", "tools": [never()]}
        reply = self.server.post("/v1/responses", body)
        self.assertEqual(reply.status, 200, reply.text)
        output = reply.json["output"]
        self.assertEqual([item["type"] for item in output], ["message", "mcp_call", "message"])
        self.assertEqual((output[1]["server_label"], output[1]["name"], output[1]["output"]), ("t", "echo", "hi"))
        self.assertEqual(output[2]["content"][0]["text"], "It says hi.")
        # The next response has the calls and their results before it.
        self.server.prompts()
        self.server.answer("Fine.")
        more = self.server.post("/v1/responses", {**body, "input": "And?", "previous_response_id": reply.json["id"]})
        self.assertEqual(more.status, 200, more.text)
        before = json.dumps(self.server.prompts()[0], ensure_ascii=False)
        self.assertEqual(before.count("<tool_response>"), 1)
        self.assertEqual(before.count("It says hi."), 1)
        self.setUp()
        stream = self.server.post("/v1/responses", {**body, "stream": True})
        events = [json.loads(line[6:]) for line in stream.text.split("\n") if line.startswith("data: ")]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        self.assertEqual([item["type"] for item in done], ["message", "mcp_call", "message"])
        self.assertEqual(done[1]["output"], "hi")
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertEqual([event["output_index"] for event in events if event["type"] == "response.output_item.added"], [0, 1, 2])

    def test_some_of_the_tools(self):
        self.answer(never(allowed_tools=["echo"]), OWN)
        prompt = json.dumps(self.server.prompts()[0], ensure_ascii=False)
        for name, there in (("t__echo", True), ("own", True), ("t__read", False), ("short__echo", False)):
            self.assertEqual('"name\\": \\"%s\\"' % name in prompt or '\\"%s\\"' % name in prompt, there, name)
        self.answer(entry(allowed_tools={"tool_names": ["t__echo", "read"]}))
        self.assertIn("t__read", json.dumps(self.server.prompts()[0]))

    def test_calls_of_both(self):
        self.server.answer(call("t__echo", text="hi") + call("own"))
        choice = self.answer(never(), OWN)["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls")
        self.assertEqual([one["function"]["name"] for one in choice["message"]["tool_calls"]], ["own"])
        self.assertEqual([one["output"] for one in choice["message"]["mcp_calls"]], ["hi"])

    def test_calls_that_fail_are_told_to_the_model(self):
        for tool, words in (("t__fail", "it failed"), ("t__refuse", "such arguments"), ("t__leave", "has ended"),
                            ("short__hang", "in time")):
            self.server.answer(("Seen.", ["<tool_response>"]), (call(tool), ['"%s"' % tool]))
            self.assertTrue(eventually(lambda: "failed" not in [one["state"] for one in self.server.get("/v1/tools").json["servers"]
                                                                if one["name"] != "dead"]))
            self.server.prompts()
            message = self.answer(never(), never("short"))["choices"][0]["message"]
            self.assertEqual(message["content"].strip(), "Seen.", tool)
            self.assertIn(words, message["mcp_calls"][0]["error"])
            self.assertIn(words, json.dumps(self.server.prompts()[1]))
        self.assertTrue(eventually(lambda: self.server.get("/v1/tools").json["servers"][0]["state"] == "ready"))

    def test_a_model_that_calls_without_end(self):
        self.server.answer((call("t__echo", text="hi"), ['"t__echo"']))
        message = self.answer(never())["choices"][0]["message"]
        self.assertEqual(len(message["mcp_calls"]), 21)
        self.assertIn("20 rounds", message["mcp_calls"][-1]["error"])

    def test_a_forced_call_is_forced_once(self):
        self.server.answer(("It says hi.", ["<tool_response>\nhi"]), call("t__echo", text="hi"))
        choice = self.answer(never(), tool_choice="required")["choices"][0]
        self.assertEqual(len(choice["message"].get("mcp_calls", [])), 1)
        self.assertIn("It says hi.", choice["message"]["content"])

    def test_a_result_that_does_not_fit(self):
        self.server.answer((call("t__big", bytes=3000000), ['"t__echo"']))
        reply = self.chat(never())
        self.refused(reply, 400, "context")
        stream = self.chat(never(), stream=True)
        self.assertEqual(stream.status, 200)
        self.assertIn("context_length_exceeded", stream.text)
        self.setUp()
        self.assertIn("It says hi.", self.answer(never())["choices"][0]["message"]["content"])

    def test_a_client_that_leaves(self):
        self.server.answer(call("held__hang"))
        body = json.dumps({"messages": [{"role": "user", "content": "Go."}], "tools": [never("held")], "stream": True}).encode()
        before = self.server.metric("spry_requests_cancelled_total", "script") or 0
        with self.server.socket() as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n%s"
                           % (self.server.port, len(body), body))
            self.assertTrue(eventually(lambda: os.path.exists(os.path.join(self.folder, "hangs"))))
        self.assertTrue(eventually(lambda: self.server.metric("spry_requests_cancelled_total", "script") == before + 1))

    def test_wrong_requests(self):
        for tool, words in ((entry("none"), "none"), (entry("dead"), "does not run"), (entry(""), "no MCP server"),
                            ({"type": "mcp"}, "no MCP server"), (entry(server_url="http://127.0.0.1/"), "server_url"),
                            (entry(require_approval="perhaps"), "require_approval"), (entry(require_approval={"never": {}}), "require_approval")):
            self.refused(self.chat(tool), 400, words)
            self.refused(self.server.post("/v1/responses", {"input": "Go.", "tools": [tool]}), 400, words)
        self.refused(self.chat(entry(), entry()), 400, "two have the name")
        self.refused(self.chat(never(), n=2), 400, "one answer")
        self.assertEqual(self.chat(entry(), n=2).status, 200)


class Terminal(unittest.TestCase):
    """The chat of `spry run`."""

    def chat(self, *rules, servers=None):
        folder = tempfile.mkdtemp(dir=HOME)
        paths = [os.path.join(folder, name) for name in ("script.json", "servers.json")]
        script = {"start": START, "skip": "<think>\n\n</think>\n\n", "rules": [dict(zip(("answer", "has"), rule)) for rule in rules]}
        for path, value in zip(paths, (script, {"mcpServers": servers or {"t": {"command": sys.executable, "args": [PROGRAM]}}})):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(value, file)
        chat = Chat(make_model(), "--device", "script", "--no-save", "--plain", "--kv-bytes", "256M", "--mcp", paths[1],
                    SPRY_SCRIPT=paths[0], XDG_DATA_HOME=folder)
        self.addCleanup(chat.process.wait)
        self.addCleanup(chat.process.kill)
        chat.wait_for("> ")
        return chat

    def test_calls_that_the_user_allows(self):
        chat = self.chat(("It says hi.", ["<tool_response>\nhi", "Go."]), ("As you like.", ["did not allow this call"]),
                         (call("t__echo", text="hi"), ['"t__echo"']))
        self.assertIn("MCP server t: 15 tools", chat.shown)
        chat.type("Go.\r")
        chat.wait_for('wants to call t__echo {"text": "hi"}')
        chat.wait_for("anything else: no")
        chat.type("n\r")
        chat.wait_for("As you like.")
        chat.wait_for("> ")
        chat.type("Go.\r")
        chat.wait_for("anything else: no")
        chat.type("a\r")
        chat.wait_for("It says hi.")
        chat.wait_for("> ")
        chat.type("Go.\r")
        chat.wait_for("It says hi.")
        self.assertEqual(chat.shown.count("anything else: no"), 2)

    def test_a_call_that_fails(self):
        chat = self.chat(("I see.", ["such arguments"]), (call("t__refuse"), ['"t__echo"']),
                         servers={"t": {"command": sys.executable, "args": [PROGRAM]}, "dead": {"command": "no-such-program"}})
        self.assertIn('server "dead": \'no-such-program\' cannot be started', chat.shown.replace("\n", " "))
        chat.type("Go.\r")
        chat.wait_for("anything else: no")
        chat.type("y\r")
        chat.wait_for("t__refuse: such arguments are not taken")
        chat.wait_for("I see.")

    def test_where_it_does_not_belong(self):
        result = spry("run", make_model(), "Hello", "--mcp", "x.json")
        self.assertEqual(result.code, 2)
        self.assertIn("--mcp is for a chat", result.errors)


if __name__ == "__main__":
    server_support.main()
