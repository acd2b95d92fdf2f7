"""What coding agents send, and what they need back. The requests of tests/data/agents were captured from real agents; texts of
their vendors are replaced by filler."""

import base64
import copy
import functools
import json
import lzma
import os
import re
import threading

import server_support
from agents_support import ScriptServer, call
from cli_support import DATA

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAGElEQVR4nGNgYGD4z8BAEjmqYVTDcNUAAAq9f4EjJAnQAAAAAElFTkSuQmCC"
TOOL = {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
    "path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]}}}


# As Codex and Copilot CLI send it, but for the parts of a hunk.
LARK = '''start: begin_patch add_hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
add_hunk: "*** Add File: " filename LF add_line+
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
%import common.LF
'''


def captured():
    with lzma.open(os.path.join(DATA, "agents", "requests.jsonl.xz"), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def events(reply):
    """The data of server-sent events, with or without names."""
    found = re.findall(r"(?m)^data: (.*)$", reply.text)
    return [json.loads(data) for data in found if data != "[DONE]"]


def texts(value):
    """Every text of messages, instructions and results, wherever it is."""
    if isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        if value.get("type") in ("image", "input_image", "image_url", "reasoning", "thinking", "additional_tools"):
            return
        for key in ("text", "content", "input", "output", "messages", "system", "instructions"):
            if isinstance(value.get(key), str) and value.get("type") not in ("tool_use",):
                yield value[key]
            else:
                yield from texts(value.get(key))


# Objects whose members are the client's own.
FREE = ("metadata", "client_metadata", "input_schema", "parameters", "arguments", "schema", "options", "action", "operation", "thread",
        "stream_options", "citations", "caller", "container", "provider", "usage", "snippy", "diagnostics", "prompt_cache_options",
        "user_location", "filters", "output")


def places(value, path=()):
    """Every object in a body that has no members of the client's own, and its place: ("messages", 0), "messages"."""
    names = [key for key in path if isinstance(key, str)]
    if names and names[-1] in FREE or isinstance(value, dict) and names[:1] == ["messages"] and names[-1] == "input":
        return
    if isinstance(value, dict):
        yield path, ".".join(names)
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, path + (key,))


class ScriptTest(server_support.ServerTest):
    rules = ("Done.",)

    @classmethod
    def setUpClass(cls):
        cls.server = ScriptServer(*cls.arguments, rules=cls.rules)

    def setUp(self):
        self.server.answer(*self.rules)
        self.server.prompts()

    def prompt(self):
        found = self.server.prompts()
        self.assertEqual(len(found), 1)
        return found[0]

    def messages(self, **fields):
        body = {"model": "script", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
        body.update(fields)
        return self.server.post("/v1/messages", body)

    def responses(self, input="Hi", **fields):
        return self.server.post("/v1/responses", dict(fields, input=input))


class Captured(ScriptTest):
    def test_all(self):
        """Every captured request is answered in its own form, and none of its texts is lost."""
        for request in captured():
            with self.subTest(request["name"]):
                body = dict(request["body"], model="script")
                headers = {key: value for key, value in request["headers"].items() if key != "accept"}
                reply = self.server.post(request["path"], body, **headers)
                self.assertEqual(reply.status, 200, reply.text[:300])
                prompts = self.server.prompts()
                if "count_tokens" in request["path"]:
                    self.assertGreater(reply.json["input_tokens"], 1000)
                    continue
                self.check_form(request["path"], body, reply)
                self.assertEqual(len(prompts), 1)
                for text in texts({key: body[key] for key in ("messages", "system", "instructions", "input") if key in body}):
                    if text.strip() and not text.startswith("x-anthropic-billing-header"):
                        escaped = json.dumps(text.strip())[1:-1]  # the input of a custom tool
                        self.assertTrue(text.strip() in prompts[0] or escaped in prompts[0], text)

    def test_members_that_nobody_knows(self):
        """A new member in any object of a captured request changes nothing and is named with its place; a null one is absent.
        Schemas, arguments and metadata are the client's own."""
        seen = set()
        for request in captured():
            path, headers = request["path"], {key: value for key, value in request["headers"].items() if key != "accept"}
            for place, name in places(request["body"]):
                if not name or (path.split("?")[0], name) in seen:
                    continue
                seen.add((path.split("?")[0], name))
                for value in ({"a": [1]}, None):
                    with self.subTest(request["name"], place=name, value=value):
                        body = dict(copy.deepcopy(request["body"]), model="script", stream=False)
                        functools.reduce(lambda inner, key: inner[key], place, body)["zz_new"] = value
                        reply = self.server.post(path, body, **headers)
                        self.assertEqual(reply.status, 200, reply.text[:300])
                        self.assertEqual(name + ".zz_new" in reply.headers.get("x-spry-ignored", ""), value is not None,
                                         reply.headers.get("x-spry-ignored"))
        self.assertGreater(len(seen), 30)

    def check_form(self, path, body, reply):
        if not body.get("stream"):
            self.assertIn("Done.", reply.text)
            return
        found = events(reply)
        if path.startswith("/v1/messages"):
            self.assertEqual((found[0]["type"], found[-1]["type"]), ("message_start", "message_stop"))
            self.assertEqual("".join(event["delta"].get("text", "") for event in found if event["type"] == "content_block_delta"),
                             "Done.")
        elif path.startswith("/v1/responses"):
            self.assertEqual((found[0]["type"], found[-1]["type"]), ("response.created", "response.completed"))
            self.assertEqual(found[-1]["response"]["output"][-1]["content"][0]["text"], "Done.")
        else:
            self.assertEqual("".join(choice["delta"].get("content") or "" for event in found for choice in event["choices"]),
                             "Done.")


class Messages(ScriptTest):
    """Anthropic's interface."""

    def ask(self, content, **fields):
        return self.messages(messages=[{"role": "user", "content": content}], **fields)

    def test_roles(self):
        """Instructions may be anywhere; the line for billing is no instruction."""
        reply = self.messages(system=[{"type": "text", "text": "x-anthropic-billing-header: v=1;"}, {"type": "text", "text": "First."}],
                              messages=[{"role": "user", "content": "Hi"}, {"role": "system", "content": [{"type": "text", "text": "Later."}]}])
        self.assertEqual(reply.status, 200, reply.text)
        prompt = self.prompt()
        self.assertNotIn("billing", prompt)
        self.assertLess(prompt.index("First."), prompt.index("Hi"))
        self.assertLess(prompt.index("Hi"), prompt.index("Later."))
        self.assertEqual(self.messages(messages=[{"role": "bishop", "content": "Hi"}]).status, 400)

    def test_context_management(self):
        """Old thoughts and old results are removed from the prompt."""
        history = [{"role": "user", "content": "Begin."}]
        for i in range(4):
            history += [{"role": "assistant", "content": [
                            {"type": "thinking", "thinking": "thought-%d" % i, "signature": ""},
                            {"type": "tool_use", "id": "t%d" % i, "name": "read", "input": {"path": "file-%d" % i}}]},
                        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t%d" % i, "content": "result-%d " % i * 50}]}]
        tools = [{"name": "read", "input_schema": {"type": "object"}}]
        edits = [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
                 {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 2}, "keep": {"type": "tool_uses", "value": 1},
                  "clear_tool_inputs": True}]
        reply = self.messages(messages=history, tools=tools, context_management={"edits": edits}).json
        prompt = self.prompt()
        self.assertEqual([i for i in range(4) if "thought-%d" % i in prompt], [3])
        self.assertEqual([i for i in range(4) if "result-%d" % i in prompt], [3])
        self.assertEqual([i for i in range(4) if "file-%d" % i in prompt], [3])
        applied = reply["context_management"]["applied_edits"]
        self.assertEqual([(edit["type"], edit.get("cleared_thinking_turns"), edit.get("cleared_tool_uses")) for edit in applied],
                         [("clear_thinking_20251015", 3, None), ("clear_tool_uses_20250919", None, 3)])
        for edit in ({"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"},
                     {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1},
                      "clear_at_least": {"type": "input_tokens", "value": 10 ** 6}}):
            reply = self.messages(messages=history, tools=tools, context_management={"edits": [edit]})
            prompt = self.prompt()
            self.assertEqual([i for i in range(4) if "thought-%d" % i in prompt and "result-%d" % i in prompt], [0, 1, 2, 3])
            self.assertEqual(reply.json["context_management"], {"applied_edits": []})
        reply = self.ask("Hi", context_management={"edits": [{"type": "future_1"}]})
        self.assertEqual(reply.headers["x-spry-ignored"], "context_management.future_1")

    def test_deferred_tools(self):
        """A deferred tool is not in the list, is defined where a reference is, and can be called from there on."""
        tools = [{"name": "Search", "input_schema": {"type": "object"}},
                 {"name": "Fetch", "description": "Fetches.", "defer_loading": True,
                  "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}},
                 {"name": "Other", "defer_loading": True, "input_schema": {"type": "object"}}]
        self.ask("Hi", tools=tools)
        first = self.prompt()
        self.assertNotIn("Fetch", first)
        history = [{"role": "user", "content": "Hi"},
                   {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Search", "input": {}}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
                       {"type": "tool_reference", "tool_name": "Fetch"}]}]}]
        self.server.answer(call("Fetch", url="x"))
        reply = self.messages(messages=history, tools=tools).json
        second = self.prompt()
        self.assertEqual(second[:second.index("Hi")], first[:first.index("Hi")])  # so the cache holds
        self.assertEqual(second.count('"Fetch"'), 1)
        self.assertNotIn("Other", second)
        self.assertEqual((reply["content"][0]["name"], reply["content"][0]["input"], reply["stop_reason"]),
                         ("Fetch", {"url": "x"}, "tool_use"))
        # Where the interface's own search would find them, all are listed.
        self.server.answer("Done.")
        reply = self.ask("Hi", tools=tools + [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}])
        self.assertEqual(reply.headers["x-spry-ignored"], "tools.tool_search_tool_regex_20251119")
        self.assertIn("Fetch", self.prompt())

    def test_the_clients_own_tools(self):
        kinds = [("bash_20250124", "bash", {"command": "ls"}), ("text_editor_20250728", "str_replace_based_edit_tool", {"command": "view", "path": "a"}),
                 ("memory_20250818", "memory", {"command": "view", "path": "/memories"}), ("computer_20250124", "computer", {"action": "screenshot"})]
        for kind, name, arguments in kinds:
            self.server.answer(call(name, **arguments))
            reply = self.ask("Hi", tools=[{"type": kind, "name": name}], tool_choice={"type": "any"})
            self.assertEqual(reply.status, 200, reply.text)
            found = reply.json["content"][0]
            self.assertEqual((found["type"], found["name"], found["input"]), ("tool_use", name, arguments))
        self.server.answer("Done.")
        reply = self.ask("Hi", tools=[{"type": "web_search_20250305", "name": "web_search"}])
        self.assertEqual((reply.status, reply.headers["x-spry-ignored"]), (200, "tools.web_search_20250305"))

    def test_blocks(self):
        """Documents and search results are text; pictures are placeholders in the history and refused as a question."""
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
        reply = self.ask([{"type": "document", "title": "A.txt", "source": {"type": "text", "media_type": "text/plain", "data": "inside A"}},
                          {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inside B"}]}},
                          {"type": "search_result", "title": "T", "source": "http://s", "content": [{"type": "text", "text": "found it"}]},
                          {"type": "hologram", "data": 1}])
        self.assertEqual(reply.headers["x-spry-ignored"], "messages.hologram")
        prompt = self.prompt()
        for text in ("A.txt", "inside A", "inside B", "http://s", "found it"):
            self.assertIn(text, prompt)
        self.assertEqual(self.ask([image]).status, 400)
        tools = [{"name": "see", "input_schema": {"type": "object"}}]
        history = [{"role": "user", "content": "Hi"},
                   {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "see", "input": {}}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image]}]}]
        for data in (IMAGE, "no base64 at all \u00e9 ", ""):
            image["source"]["data"] = data
            reply = self.messages(messages=history, tools=tools)
            self.assertEqual((reply.status, reply.headers["x-spry-ignored"]), (200, "messages.image_url"), reply.text)
            self.assertIn("not shown", self.prompt())

    def test_thread(self):
        """Anthropic's SDK sends the whole conversation after this error."""
        self.assertEqual(self.messages(thread={"type": "create"}).status, 200)
        reply = self.messages(thread={"type": "continue", "previous_message_id": "msg_1"})
        self.assertEqual((reply.status, reply.json["error"]["details"]["error_code"]), (404, "thread_not_found"))


class Responses(ScriptTest):
    def test_namespaces(self):
        tools = [{"type": "namespace", "name": "agents", "tools": [
            {"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}}]}]
        self.server.answer(call("agents__spawn", task="x"))
        item = self.responses(tools=tools).json["output"][-1]
        self.assertEqual((item["type"], item["namespace"], item["name"], json.loads(item["arguments"])),
                         ("function_call", "agents", "spawn", {"task": "x"}))
        self.server.prompts()
        self.server.answer("Done.")
        self.responses([{"type": "message", "role": "user", "content": "Hi"}, item,
                        {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}], tools=tools)
        self.assertEqual(self.prompt().count("agents__spawn"), 2)  # in the list, and as the call

    def test_custom_tools(self):
        patch = "*** Begin Patch\n*** Add File: a\n+\"hi\"\n*** End Patch\n"
        tools = [{"type": "custom", "name": "apply_patch", "description": "Patches.",
                  "format": {"type": "grammar", "syntax": "lark", "definition": LARK}}]
        self.server.answer(call("apply_patch", input=patch))
        item = self.responses(tools=tools).json["output"][-1]
        self.assertEqual((item["type"], item["name"], item["input"]), ("custom_tool_call", "apply_patch", patch))
        self.assertIn("*** End Patch", self.prompt())
        found = events(self.responses(tools=tools, stream=True))
        self.server.prompts()
        deltas = [event["delta"] for event in found if event["type"] == "response.custom_tool_call_input.delta"]
        self.assertEqual("".join(deltas), patch)
        self.assertEqual([event["input"] for event in found if event["type"] == "response.custom_tool_call_input.done"], [patch])
        self.server.answer("Done.")
        self.responses([{"type": "message", "role": "user", "content": "Hi"}, item,
                        {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "patched"}], tools=tools)
        self.assertIn("patched", self.prompt())
        # Grammars are enforced, also those of which parts are within themselves.
        for syntax, rule, wish, found in (("regex", "[ab]{3}", "abazz", "^[ab]{3}$"), ("lark", LARK, "*** Begin Patch\nso\n", r"^\*\*\* Begin Patch\n\*\*\* Add File: "),
                                          ("lark", 'start: "(" start ")" | "x"', "((x", r"^\(\(x\)\)$")):
            tools[0]["format"] = {"type": "grammar", "syntax": syntax, "definition": rule}
            self.server.answer(call("apply_patch", input=wish))
            item = self.responses(tools=tools, tool_choice="required", max_output_tokens=100).json["output"][-1]
            self.assertRegex(item["input"], found)
        for syntax, rule in (("lark", "start: a"), ("regex", "[")):
            tools[0]["format"] = {"type": "grammar", "syntax": syntax, "definition": rule}
            self.assertEqual(self.responses(tools=tools).status, 400, rule)
        self.server.answer("Done.")
        tools[0]["format"] = {"type": "grammar", "syntax": "lark", "definition": "start: /a/i"}  # which is not enforced
        self.assertEqual(self.responses(tools=tools).status, 200)

    def test_tool_search(self):
        """Tools that were found are defined in the result, and the list stays as it was."""
        tools = [{"type": "tool_search", "execution": "client", "description": "Finds tools.",
                  "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}},
                 {"type": "web_search"}]
        self.server.answer(call("tool_search", query="fetch"))
        reply = self.responses(tools=tools)
        self.assertEqual(reply.headers["x-spry-ignored"], "tools.web_search")
        item = reply.json["output"][-1]
        self.assertEqual((item["type"], item["execution"], item["arguments"]), ("tool_search_call", "client", {"query": "fetch"}))
        first = self.prompt()
        self.server.answer(call("fetch", url="x"))
        item = self.responses([{"type": "message", "role": "user", "content": "Hi"}, item,
                               {"type": "tool_search_output", "call_id": item["call_id"], "tools": [
                                   {"type": "function", "name": "fetch", "parameters": {"type": "object", "properties": {"url": {"type": "string"}},
                                                                                         "required": ["url"]}}]}],
                              tools=tools).json["output"][-1]
        self.assertEqual((item["type"], item["name"]), ("function_call", "fetch"))
        self.assertTrue(self.prompt().startswith(first[:first.index("Hi")]))

    def test_more_tools(self):
        more = {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "now", "parameters": {"type": "object"}}]}]}
        for items in ([more, {"role": "user", "content": "Hi"}], [{"role": "user", "content": "Hi"}, more]):
            self.server.answer(call("clock__now"))
            item = self.responses(items).json["output"][-1]
            self.assertEqual((item["namespace"], item["name"]), ("clock", "now"))

    def test_thoughts_come_back(self):
        self.server.answer("<think>\nIt rains.\n</think>\n\nTake a coat.")
        output = self.responses(include=["reasoning.encrypted_content"], store=False).json["output"]
        self.assertEqual([item["type"] for item in output], ["reasoning", "message"])
        self.server.prompts()
        output[0].pop("content")
        self.responses([{"role": "user", "content": "Hi"}, *output, {"role": "user", "content": "And now?"}])
        self.assertIn("It rains.", self.prompt())

    def test_compact(self):
        self.server.answer("The user greets.")
        asked = [{"type": "message", "role": "user", "content": "Hi"}, {"type": "message", "role": "assistant", "content": "Hello."}]
        reply = self.server.post("/v1/responses/compact", {"input": asked}).json
        self.assertEqual((reply["object"], [item["type"] for item in reply["output"]]), ("response.compaction", ["message", "compaction"]))
        self.server.prompts()
        self.responses(reply["output"] + [{"role": "user", "content": "Go on."}])
        prompt = self.prompt()
        self.assertIn("The user greets.", prompt)
        self.assertNotIn("Hello.", prompt)
        count = self.server.post("/v1/responses/input_tokens", {"input": asked}).json
        self.assertEqual(count["object"], "response.input_tokens")
        self.assertGreater(count["input_tokens"], 10)


class Chat(ScriptTest):
    def test_developer(self):
        self.server.chat(messages=[{"role": "developer", "content": "One."}, {"role": "system", "content": "Two."},
                                   {"role": "user", "content": "Hi"}])
        self.assertIn("<|im_start|>system\nOne.\n\nTwo.<|im_end|>", self.prompt())

    def test_functions(self):
        """The older form of tools."""
        function = TOOL["function"]
        self.server.answer(call("write", path="a", content="b"))
        ask = {"functions": [function], "function_call": "auto", "max_tokens": 100}
        choice = self.server.chat(**ask).json["choices"][0]
        self.assertEqual(choice["finish_reason"], "function_call")
        self.assertEqual(choice["message"]["function_call"]["name"], "write")
        self.assertEqual(json.loads(choice["message"]["function_call"]["arguments"]), {"path": "a", "content": "b"})
        self.assertNotIn("tool_calls", choice["message"])
        deltas = [event["choices"][0]["delta"].get("function_call", {}) for event in events(self.server.chat(stream=True, **ask)) if event["choices"]]
        self.assertEqual("".join(delta.get("name", "") for delta in deltas), "write")
        self.assertEqual(json.loads("".join(delta.get("arguments", "") for delta in deltas)), {"path": "a", "content": "b"})
        self.server.prompts()
        self.server.answer("Done.")
        self.server.chat(messages=[{"role": "user", "content": "Hi"}, {**choice["message"]},
                                   {"role": "function", "name": "write", "content": "written"}], **ask)
        prompt = self.prompt()
        self.assertIn('"path": "a"', prompt)
        self.assertIn("<tool_response>\nwritten", prompt)

    def test_what_nothing_knows(self):
        reply = self.server.chat(tools=[TOOL, {"type": "telepathy", "x": 1}], zeal=1,
                                 messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "smell", "x": 1}]}])
        self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(sorted(reply.headers["x-spry-ignored"].split(", ")), ["messages.smell", "tools.telepathy", "zeal"])


class Ollama(ScriptTest):
    def test_top_level(self):
        self.server.answer(call("write", path="a", content="b"))
        body = {"model": "script", "stream": False, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5, "top_p": 0.5}
        reply = self.server.post("/api/chat", dict(body, tools=[TOOL], tool_choice="required", max_output_tokens=100))
        self.assertEqual(reply.json["message"]["tool_calls"][0]["function"]["name"], "write")
        self.server.prompts()
        self.assertNotIn("tool_calls", self.server.post("/api/chat", dict(body, tools=[TOOL], tool_choice="none")).json["message"])
        self.assertNotIn("write", self.prompt())
        self.assertEqual(self.server.post("/api/chat", dict(body, max_output_tokens=2)).json["eval_count"], 2)
        self.assertGreaterEqual([int(part) for part in self.server.get("/api/version").json["version"].split(".")], [0, 13, 4])

    def test_pictures(self):
        body = {"model": "script", "stream": False}
        picture = {"role": "user", "content": "Look.", "images": [IMAGE]}
        self.assertEqual(self.server.post("/api/chat", dict(body, messages=[picture])).status, 400)
        reply = self.server.post("/api/chat", dict(body, messages=[picture], tools=[TOOL]))
        self.assertEqual(reply.headers["x-spry-ignored"], "messages.image_url")
        self.assertIn("not shown", self.prompt())


class Seeing(ScriptTest):
    """Pictures in the tool loops of agents, with a model that sees: its tower is computed, its answers are the script's."""
    rules = ("A red square.",)
    PICTURES = [base64.b64encode(open(os.path.join(DATA, "models", "qwen3-vl", "image%d.png" % i), "rb").read()).decode() for i in (0, 1)]

    @classmethod
    def setUpClass(cls):
        cls.server = ScriptServer(rules=cls.rules, sees=True)

    def loop(self, path, *pictures, call_id="c1"):
        """A conversation in which a tool returned pictures, as agents of this interface send it."""
        urls = ["data:image/png;base64," + data for data in pictures]
        arguments = {"path": "shot.png"}
        if path == "/v1/messages":
            blocks = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}} for data in pictures]
            return {"max_tokens": 50, "tools": [{"name": "write", "input_schema": TOOL["function"]["parameters"]}], "messages": [
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "write", "input": arguments}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": blocks}]}]}
        if path == "/v1/responses":
            return {"tools": [dict(TOOL["function"], type="function")], "input": [
                {"type": "message", "role": "user", "content": "Look."},
                {"type": "function_call", "call_id": call_id, "name": "write", "arguments": json.dumps(arguments)},
                {"type": "function_call_output", "call_id": call_id, "output": [{"type": "input_image", "image_url": url} for url in urls]}]}
        call_ = {"id": call_id, "type": "function", "function": {
            "name": "write", "arguments": arguments if path == "/api/chat" else json.dumps(arguments)}}
        result = {"role": "tool", "tool_call_id": call_id}
        if path == "/api/chat":
            result.update(content="", images=list(pictures))
        else:
            result["content"] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return {"stream": False, "tools": [TOOL], "messages": [{"role": "user", "content": "Look."},
                                                               {"role": "assistant", "content": "", "tool_calls": [call_]}, result]}

    PATHS = ("/v1/messages", "/v1/responses", "/v1/chat/completions", "/api/chat")

    def ask(self, path, body):
        reply = self.server.post(path, dict(body, model="script"))
        self.assertEqual(reply.status, 200, reply.text[:300])
        self.assertIn("A red square.", reply.text)
        return reply

    def test_what_is_said_of_it(self):
        self.assertIn("vision", self.server.post("/api/show", {"model": "script"}).json["capabilities"])
        self.assertEqual(self.server.get("/v1/models").json["data"][0]["architecture"]["input_modalities"], ["text", "image"])
        self.assertIs(self.server.get("/props").json["modalities"]["vision"], True)

    def test_tool_loops(self):
        for path in self.PATHS:
            with self.subTest(path):
                reply = self.ask(path, self.loop(path, self.PICTURES[0]))
                self.assertNotIn("x-spry-ignored", reply.headers)
                prompt = self.prompt()
                self.assertRegex(prompt, r"<tool_response>\n.*<\|vision_start\|>(<\|image_pad\|>)+<\|vision_end\|>")
                self.assertEqual(prompt.count("<|vision_start|>"), 1)

    def test_the_next_turn(self):
        """The picture is in the cache; one more does not change that."""
        body = self.loop("/v1/messages", self.PICTURES[1])
        body["system"] = "Turn after turn. " * 40
        first = self.ask("/v1/messages", body).json["usage"]
        body["messages"] += [{"role": "assistant", "content": "A red square."}, {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": self.PICTURES[0]}}]}]
        usage = self.ask("/v1/messages", body).json["usage"]
        self.assertGreater(usage["cache_read_input_tokens"], first["input_tokens"] + first["cache_read_input_tokens"] - 64)
        self.assertEqual(self.server.prompts()[-1].count("<|vision_start|>"), 2)

    def test_pictures_that_cannot_be_read(self):
        """Junk in an agent's history becomes a sentence, and the pictures beside it are still seen."""
        bad = ("no base64 at all \u00e9", "", self.PICTURES[0][:400], base64.b64encode(b"<svg/>" * 20).decode())
        for path in self.PATHS:
            for data in bad:
                with self.subTest(path, data=data[:20]):
                    reply = self.ask(path, self.loop(path, self.PICTURES[0], data, self.PICTURES[1]))
                    self.assertEqual(reply.headers["x-spry-ignored"], "messages.image_url")
                    prompt = self.prompt()
                    self.assertEqual(prompt.count("<|vision_start|>"), 2)
                    self.assertIn("not shown, picture 2", prompt)
        question = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}]}
        self.assertEqual(self.server.chat(messages=[question], model="script").status, 400)  # the question itself

    def test_more_than_fit(self):
        """An agent that sends a picture a turn: of too many the oldest are left out."""
        reply = self.ask("/v1/chat/completions", self.loop("/v1/chat/completions", *[self.PICTURES[0]] * 130))
        self.assertEqual(reply.headers["x-spry-ignored"], "messages.image_url")
        self.assertEqual(self.prompt().count("<|vision_start|>"), 128)


class NeverSilent(ScriptTest):
    """While a prompt is computed, which takes minutes on a small machine, clients hear something."""
    arguments = ("--event-interval", "0.02")
    CASES = {"/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50},
             "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
             "/v1/responses": {"input": "Hi"},
             "/v1/completions": {"prompt": "Hi", "max_tokens": 3},
             "/completion": {"prompt": "Hi", "n_predict": 3},
             "/api/chat": {"messages": [{"role": "user", "content": "Hi"}]},
             "/api/generate": {"prompt": "Hi"}}

    def start(self, path, body):
        connection = self.server.connect()
        connection.request("POST", path, json.dumps(dict(body, model="script", stream=True)))
        return connection, connection.getresponse()

    def test_events(self):
        for path, body in self.CASES.items():
            with self.subTest(path):
                lines = []
                self.server.hold(True)
                try:
                    connection, response = self.start(path, body)  # the head comes although nothing is computed
                    while sum("prompt_progress" in line for line in lines) < 3:
                        lines.append(response.readline().decode())
                finally:
                    self.server.hold(False)
                self.assertEqual(response.status, 200)
                self.assertRegex(response.read().decode(), '"(text|content|delta|response)": ?"D')
                connection.close()
                said = [json.loads(line[line.index("{"):]) for line in lines if "prompt_progress" in line]
                progress = said[-1]["prompt_progress"]
                self.assertGreater(progress["total"], progress["processed"])
                if path == "/v1/messages":
                    self.assertEqual(said[-1]["type"], "ping")
                    self.assertIn("message_start", "".join(lines[:3]))
                elif path == "/v1/responses":
                    self.assertEqual(said[-1]["type"], "response.in_progress")

    def test_who_leaves(self):
        """The pages of a request whose client has left are kept."""
        before = self.server.metric("spry_requests_total", "script") or 0
        body = dict(self.CASES["/v1/messages"], system="A long instruction. " * 2000)
        self.server.hold(True)
        try:
            connection, response = self.start("/v1/messages", body)
            response.readline()
            connection.close()
            response.close()
        finally:
            self.server.hold(False)
        self.assertTrue(server_support.eventually(lambda: self.server.metric("spry_requests_total", "script") == before + 1))
        usage = self.messages(**{key: body[key] for key in ("messages", "system")}).json["usage"]
        self.assertGreater(usage["cache_read_input_tokens"], 64)


class Thinking(ScriptTest):
    """A thought has a budget; when that is spent it is closed, and the answer follows."""
    THOUGHT = "<think>\n%s\n</think>\n\n" % " ".join("thought%d" % i for i in range(500))
    rules = (THOUGHT + "Done.",)

    def thought(self, **fields):
        message = self.server.chat(max_tokens=8000, **fields).json["choices"][0]["message"]
        self.assertEqual(message["content"], "Done.")
        return message.get("reasoning_content", "")

    def test_budgets(self):
        whole = self.thought()
        self.assertIn("thought499", whole)
        for fields in ({"max_thinking_tokens": 40}, {"thinking_budget": 40}, {"reasoning_budget": 40}):
            cut = self.thought(**fields)
            self.assertIn("thought3", cut)
            self.assertNotIn("thought30", cut)
            self.assertIn("enough", cut)
            self.assertEqual(cut, self.thought(draft=False, **fields))
        self.assertEqual(self.thought(max_thinking_tokens=-1), whole)
        self.assertLess(len(self.thought(reasoning_effort="low")), len(whole))
        self.assertEqual(self.thought(reasoning_effort="high"), whole)
        self.assertEqual(self.server.chat(max_thinking_tokens=-2).status, 400)

    def test_messages(self):
        def blocks(**thinking):
            return self.messages(max_tokens=8000, thinking=thinking).json["content"]
        found = blocks(type="enabled", budget_tokens=40)
        self.assertEqual([block["type"] for block in found], ["thinking", "text"])
        self.assertNotIn("thought30", found[0]["thinking"])
        self.server.answer("Done.")
        self.assertEqual([block["type"] for block in blocks(type="disabled")], ["text"])

    def test_forced_calls(self):
        """A call may follow a thought within its budget; without thinking there is no thought, although the model wants one."""
        tools = [{"name": "see", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}]
        self.server.answer(self.THOUGHT + call("see"))
        for thinking, kinds in (({"type": "enabled", "budget_tokens": 40}, ["thinking", "tool_use"]), ({"type": "disabled"}, ["tool_use"])):
            found = self.messages(max_tokens=8000, tools=tools, tool_choice={"type": "any"}, thinking=thinking).json["content"]
            self.assertEqual([block["type"] for block in found], kinds)


class BadInput(ScriptTest):
    """Requests of agents that are large, odd or broken get an answer or a sentence, and the server goes on."""

    def tearDown(self):
        self.assertEqual(self.messages().status, 200)

    def test_tools(self):
        big = {"type": "object", "properties": {"p%d" % i: {"type": "string", "description": "x" * 100} for i in range(8000)}}
        self.assertGreater(len(json.dumps(big)), 1 << 20)
        self.assertIn(self.messages(tools=[{"name": "big", "input_schema": big}]).status, (200, 400))
        many = [{"name": "tool%d" % i, "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}} for i in range(500)]
        self.server.answer(call("tool377", a="b"))
        self.assertEqual(self.messages(tools=many).json["content"][0]["name"], "tool377")
        reply = self.messages(tools=[many[0], many[0]])
        self.assertEqual(reply.status, 400)
        self.assertIn("same name", reply.json["error"]["message"])
        for tools in ([5], [{}], [{"name": "x"}], [{"name": 5, "input_schema": {}}], {"a": 1}):
            self.assertEqual(self.messages(tools=tools).status, 400, tools)

    def test_results(self):
        """A large result, and results without calls."""
        def result(content):
            return self.messages(messages=[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]}])
        self.assertEqual(result("lost").status, 200)
        self.assertIn("lost", self.prompt())
        reply = result("word " * (4 << 20))  # 20 MB
        self.assertEqual(reply.status, 400)
        self.assertIn("prompt is too long", reply.json["error"]["message"])
        self.assertEqual(result([{"type": "tool_reference", "tool_name": "nobody"}] * 1000).status, 200)
        self.server.prompts()

    def test_forms(self):
        for messages in ([{"role": "user"}], [{"role": "user", "content": 5}], [{"role": "user", "content": [5]}], [5], [None],
                         [{"role": "assistant", "content": [{"type": "tool_use", "name": "x", "input": "no object"}]}],
                         [{"role": "user", "content": [{"type": "image", "source": 5}]}]):
            self.assertEqual(self.messages(messages=messages).status, 400, messages)
        for edits in (5, [5], [{}], [{"type": "clear_tool_uses_20250919", "keep": {"value": -5}, "trigger": "x", "exclude_tools": 7}]):
            self.assertEqual(self.messages(context_management={"edits": edits}).status, 200, edits)
        for items in ([5], [{"type": "custom_tool_call"}], [{"type": "function_call_output"}], [{"type": "message"}], [{"type": "message", "role": "user"}, 5]):
            self.assertEqual(self.responses(items).status, 400, items)
        for tools in ([5], [{"type": "namespace"}], [{"type": "custom"}], [{"type": "function"}]):
            self.assertEqual(self.responses(tools=tools).status, 400, tools)
        nested = {"type": "namespace", "name": "a", "tools": [{"type": "namespace", "name": "b", "tools": []}]}
        self.assertEqual(self.responses(tools=[nested]).headers["x-spry-ignored"], "tools.namespace")

    def test_leaving_in_a_call(self):
        """The client of a forced call leaves in the middle of it; two agents at once."""
        self.server.answer(call("see", what="x" * 3000))
        tools = [{"name": "see", "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}}}]
        body = {"model": "script", "max_tokens": 5000, "stream": True, "tools": tools, "tool_choice": {"type": "any"},
                "messages": [{"role": "user", "content": "Hi"}]}
        connections = [self.server.connect() for _ in range(2)]
        for connection in connections:
            connection.request("POST", "/v1/messages", json.dumps(body))
        left, stays = (connection.getresponse() for connection in connections)
        left.read(600)
        left.close()
        connections[0].close()
        self.assertIn("message_stop", stays.read().decode())
        connections[1].close()
        self.assertTrue(server_support.eventually(
            lambda: not any(slot["is_processing"] for slot in self.server.get("/slots").json)))  # the other call has ended too

    def test_two_agents(self):
        """Claude Code and Codex work at once, each with its own conversation: no answer is the other's, all turns are cached."""
        self.server.answer((call("Write", file_path="claude.txt", content="hi"), ["CLAUDE-TASK"]),
                           (call("exec_command", cmd="echo codex"), ["CODEX-TASK"]))
        requests = {name: next(request for request in captured() if request["name"] == name + "-turn1") for name in ("claude", "codex")}
        found = {name: [] for name in requests}

        def work(name, list_name, task):
            request = requests[name]
            body = dict(request["body"], model="script", stream=True)
            body[list_name] = body[list_name] + [{"role": "user", "content": task}]
            headers = {key: value for key, value in request["headers"].items() if key != "accept"}
            for turn in range(10):
                reply = self.server.post(request["path"], body, **headers)
                found[name].append((reply.status, reply.text))
                body[list_name] = body[list_name] + [{"role": "assistant", "content": "Step %d." % turn},
                                                     {"role": "user", "content": "Go on."}]
        threads = [threading.Thread(target=work, args=arguments) for arguments in
                   (("claude", "messages", "CLAUDE-TASK"), ("codex", "input", "CODEX-TASK"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, own, other in (("claude", "Write", "exec_command"), ("codex", "exec_command", "Write")):
            self.assertEqual(len(found[name]), 10)
            for status, text in found[name]:
                self.assertEqual(status, 200, text[:300])
                self.assertRegex(text, '"name": ?"%s"' % own)
                self.assertNotRegex(text, '"name": ?"%s"' % other)


class Contexts(ScriptTest):
    """How much fits is said before, and a prompt that is too long is refused in words by which agents compact."""
    LONG = "word " * 4000

    @classmethod
    def setUpClass(cls):
        cls.server = ScriptServer(rules=cls.rules, context=2048)

    def test_sizes(self):
        for _ in range(2):  # before and after it was loaded
            model = self.server.get("/v1/models").json["data"][0]
            self.assertEqual((model["context_length"], model["meta"]["n_ctx"]), (2048, 2048))
            self.messages()
        info = self.server.post("/api/show", {"model": "script"}).json["model_info"]
        self.assertEqual(info[info["general.architecture"] + ".context_length"], 2048)

    def test_overflow(self):
        reply = self.messages(messages=[{"role": "user", "content": self.LONG}])
        self.assertEqual((reply.status, reply.json["error"]["type"]), (400, "invalid_request_error"))
        self.assertRegex(reply.json["error"]["message"], r"^prompt is too long: \d+ tokens > 2048 maximum")
        reply = self.server.chat(messages=[{"role": "user", "content": self.LONG}])
        self.assertEqual((reply.status, reply.json["error"]["code"]), (400, "context_length_exceeded"))
        self.assertRegex(reply.json["error"]["message"], r"maximum context length is 2048 tokens.*exceeds the available context size")
        reply = self.server.post("/api/chat", {"model": "script", "truncate": False, "shift": False,
                                               "messages": [{"role": "user", "content": self.LONG}]})
        self.assertEqual(reply.status, 400)
        self.assertRegex(reply.json["error"], "input length.*exceeds.*context length")
        self.assertEqual(self.responses(self.LONG).json["error"]["code"], "context_length_exceeded")
        found = events(self.responses(self.LONG, stream=True))  # Codex looks for it there
        self.assertEqual((found[0]["type"], found[-1]["type"]), ("response.created", "response.failed"))
        self.assertEqual(found[-1]["response"]["error"]["code"], "context_length_exceeded")


class Strict(ScriptTest):
    arguments = ("--strict",)

    def test_refused(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
        for fields in ({"frobnicate": 1}, {"tools": [{"type": "web_search_20250305", "name": "w"}]},
                       {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]},
                       {"messages": [{"role": "user", "content": [image]}, {"role": "user", "content": "Hi"}]},
                       {"messages": [{"role": "user", "content": "Hi", "glow": 1}]}, {"thinking": {"type": "disabled", "pace": 1}},
                       {"context_management": {"edits": [{"type": "future"}]}}):
            self.assertEqual(self.messages(**fields).status, 400, fields)
        self.assertEqual(self.responses(tools=[{"type": "web_search"}]).status, 400)
        self.assertEqual(self.responses([{"type": "thought_beam"}]).status, 400)
        self.assertEqual(self.server.chat(tools=[{"type": "telepathy"}]).status, 400)


if __name__ == "__main__":
    server_support.main()
