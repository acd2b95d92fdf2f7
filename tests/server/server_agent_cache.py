"""A second session of a coding agent, in another folder, finds the first one's instructions and tools in the cache, exactly.

tests/data/agents/sessions.jsonl.xz has the first requests of two sessions of each agent, captured in two git repositories with
AGENTS.md (CLAUDE.md, .clinerules, ...) of their own; texts of vendors are replaced by filler, except what marks the parts that
change."""

import json
import lzma
import os
import unittest

import server_support
from agents_support import FOLDER, ScriptServer, make_model
from cli_support import DATA, DEVICE
from server_support import Server

COPILOT = "You are the GitHub Copilot CLI, and helpful."
ENVIRONMENT = "<environment_context>\n* Current working directory: /srv/ada/%s\n</environment_context>"
TOOLS = [{"type": "function", "function": {"name": name, "description": "A tool that does something. " * 8, "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}}}}} for name in ("read", "write", "run")]


def sessions():
    with lzma.open(os.path.join(DATA, "agents", "sessions.jsonl.xz"), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def send(server, agent, body, **fields):
    """The reply to a captured request, as one piece."""
    body = {key: value for key, value in dict(body, model="script", stream=False, **fields).items() if key != "stream_options"}
    reply = server.post(agent["path"], body, **agent["headers"])
    assert reply.status == 200, reply.text[:300]
    return reply.json


def counts(answer):
    """Tokens of the prompt, and those of them that were cached."""
    usage = answer["usage"]
    if "cache_read_input_tokens" in usage:
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]
    return answer["timings"]["prompt_tokens"], answer["timings"]["cached_tokens"]


def lines(body):
    """The lines of all instructions and messages, without blanks around them."""
    def texts(value):
        if isinstance(value, str):
            yield value
        for item in value if isinstance(value, list) else (value.get("text"), value.get("content")) if isinstance(value, dict) else ():
            yield from texts(item)
    for key in ("system", "instructions", "messages", "input"):
        for text in texts(body.get(key)):
            if not text.startswith("x-anthropic-billing-header:"):
                yield from (line.strip() for line in text.split("\n") if line.strip())


class AgentTest(server_support.ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.server = ScriptServer(*cls.arguments, rules=("Done.",))

    def setUp(self):
        self.server.prompts()

    def chat(self, *messages, tools=TOOLS, **headers):
        reply = self.server.post("/v1/chat/completions", {"model": "script", "tools": tools, "messages": [
            {"role": role, "content": content} for role, content in messages]}, **headers)
        self.assertEqual(reply.status, 200, reply.text[:300])
        return reply.json["timings"], self.server.prompts()[-1]


class Sessions(AgentTest):
    def test_second_session(self):
        """At least nine tenths of its prompt are cached, all of that as a prefix; and no line is lost."""
        for agent in sessions():
            with self.subTest(agent["agent"]):
                first = send(self.server, agent, agent["sessions"][0])
                answer = send(self.server, agent, agent["sessions"][1])
                prompt, cached = counts(answer)
                self.assertGreaterEqual(cached, 0.9 * prompt)
                for body, text in zip(agent["sessions"], self.server.prompts()):
                    for line in lines(body):
                        whole = line in text or any(line[:i] in text and line[i:].strip() in text for i in range(20, len(line)))
                        self.assertTrue(whole or json.dumps(line)[1:-1] in text, line)
                if "timings" in answer:
                    self.assertEqual(answer["timings"]["span_tokens"], 0)
                    self.assertTrue(agent["agent"].startswith(first["timings"]["agent"]))

    def test_next_turn(self):
        """In the next turn the whole prompt of the first one is cached."""
        for agent in sessions():
            if "chat" not in agent["path"]:
                continue
            with self.subTest(agent["agent"]):
                body = agent["sessions"][0]
                before, _ = counts(send(self.server, agent, body))
                more = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}]
                prompt, cached = counts(send(self.server, agent, dict(body, messages=body["messages"] + more)))
                self.assertGreater(prompt, before)
                self.assertGreater(cached, before - 32)

    def test_order(self):
        """What changes follows the first message; all of it is instruction still."""
        system = "\n".join((COPILOT, ENVIRONMENT % "a", "Be brief.", "<custom_instruction>\nUse tabs.\n</custom_instruction>", "",
                            "<custom_instruction>\nWrite tests.\n</custom_instruction>", "End."))
        _, text = self.chat(("system", system), ("user", "Hello there."), ("assistant", "Hi."), ("user", "Go on."))
        order = [COPILOT + "\nBe brief.\n\nEnd.", '"name": "run"', "Hello there.<|im_end|>\n<|im_start|>system\n<environment_context>",
                 "/srv/ada/a", "Use tabs.", "Write tests.", "Hi.", "Go on."]
        places = [text.find(part) for part in order]
        self.assertNotIn(-1, places, text)
        self.assertEqual(places, sorted(places))
        self.assertEqual(text.count("/srv/ada/a"), 1)

    def test_clients(self):
        """An agent is found by its user agent, too; prompts of others stay as they are."""
        system = "Do as told.\n# Environment\n - Folder: /srv/ada\n\nEnd."
        timings, text = self.chat(("system", system), ("user", "Hello there."))
        self.assertIn(system, text)
        self.assertNotIn("agent", timings)
        timings, text = self.chat(("system", system), ("user", "Hello there."), **{"User-Agent": "claude-cli/9.1 (external)"})
        self.assertLess(text.index("Hello there."), text.index("# Environment"))
        self.assertEqual(timings["agent"], "Claude Code")
        for messages in ([("user", COPILOT + ENVIRONMENT % "a")], [("system", COPILOT + "\n" + ENVIRONMENT % "a")],
                         [("system", COPILOT + "\n" + ENVIRONMENT % "a"), ("assistant", "Hi."), ("user", "Hello there.")]):
            self.assertIn(messages[0][1], self.chat(*messages)[1])  # there is no first message of a user, or no instruction

    def test_other_templates(self):
        """Where a template has no place for later instructions, the user says them, in the same order."""
        template = ("{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n' }}{% endif %}{{- tools | tojson }}"
                    "{%- for m in messages %}{%- if m.role == 'user' %}{{- '\n<|im_start|>user\n' + m.content }}{%- endif %}{%- endfor %}"
                    "{{- '<|im_start|>assistant\n' }}")
        server = ScriptServer("--chat-template", template, rules=("Done.",))
        try:
            found = []
            for name in ("a", "b"):
                reply = server.post("/v1/chat/completions", {"model": "script", "tools": TOOLS, "messages": [
                    {"role": "system", "content": COPILOT + "\n" + ENVIRONMENT % name}, {"role": "user", "content": "Hello there."}]})
                found.append(reply.json["timings"])
                text = server.prompts()[-1]
                self.assertLess(text.index("Hello there."), text.index("/srv/ada/" + name))
            self.assertGreater(found[1]["cached_tokens"], 0.6 * found[1]["prompt_tokens"])
        finally:
            server.stop()


class BadInput(AgentTest):
    def test_forms(self):
        """Texts that begin a part and do not end it, often; and contents of other forms."""
        for system in ("\n".join([COPILOT] + ["<environment_context>"] * 10000), COPILOT + "\n<environment_context>",
                       COPILOT + "\n</environment_context>\n<environment_context></environment_context>",
                       [{"type": "text", "text": COPILOT}, {"type": "text", "text": ENVIRONMENT % "a"}], [{"type": "text", "text": ""}]):
            _, text = self.chat(("system", system), ("user", "Hello there."), tools=[])
            self.assertIn("Hello there.", text)
        for messages in ([5], [None], [{"role": "system"}], [{"role": "system", "content": COPILOT}, {"role": "user"}],
                         [{"role": "system", "content": [5]}, {"role": "user", "content": "x"}]):
            reply = self.server.post("/v1/chat/completions", {"model": "script", "messages": messages})
            self.assertIn(reply.status, (200, 400), reply.text[:300])

    def test_only_moved(self):
        """Instructions of which nothing remains, and a tool without a description."""
        tools = [{"type": "function", "function": {"name": "Bash"}}, {"type": "function", "function": {"name": "x", "description": None}}]
        _, text = self.chat(("system", "You are an agent in the Continue CLI"), ("user", "Hello there."), tools=tools)
        self.assertIn("Hello there.", text)
        _, text = self.chat(("system", [{"type": "text", "text": COPILOT}, {"type": "text", "text": ENVIRONMENT % "a"}]), ("user", "Hello."))
        self.assertLess(text.index("Hello."), text.index("/srv/ada/a"))


class Off(AgentTest):
    arguments = ("--agent-cache", "off")

    def test_order(self):
        system = COPILOT + "\n" + ENVIRONMENT % "a" + "\nEnd."
        timings, text = self.chat(("system", system), ("user", "Hello there."))
        self.assertIn(system, text)
        self.assertNotIn("agent", timings)


@unittest.skipIf(DEVICE, "the numbers of this device are compared by the golden tests")
class Computed(unittest.TestCase):
    def test_warm_equals_cold(self):
        """A real device gives the second session the same numbers as a server that never saw the first."""
        agent = [agent for agent in sessions() if agent["agent"].startswith("pi ")][0]
        answers = []
        for warm in (True, False):
            server = Server("script=" + make_model(FOLDER + "8192", 8192), "--only-named")
            try:
                for body in agent["sessions"][not warm:]:
                    answer = send(server, agent, body, temperature=0, max_completion_tokens=8, logprobs=True, top_logprobs=3,
                                  ignore_eos=True, seed=1)
                self.assertEqual(answer["timings"]["cached_tokens"] > 0, warm)
                answers.append(answer["choices"])
            finally:
                server.stop()
        self.assertEqual(*answers)


if __name__ == "__main__":
    server_support.main()
