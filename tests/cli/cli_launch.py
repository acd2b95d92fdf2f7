"""`spry launch` starts a server and an agent. The agents here are small programs that say what they got; the real ones run in
`make test-agents`."""

import json
import os
import re
import signal
import stat
import subprocess
import unittest
import urllib.request

import cli_support
from cli_support import FAILURE, HOME, OK, ROOT, USAGE, spry

MODEL = os.path.join(ROOT, "models", "Spry-Tales-Draft-4M.gguf")
PROGRAMS = os.path.join(HOME, "programs")
# Says its arguments and variables, and asks the server that it was given.
AGENT = """#!/usr/bin/env python3
import json, os, sys, urllib.request
address = os.environ.get("ANTHROPIC_BASE_URL") or os.environ.get("OPENAI_BASE_URL", "")[:-3]
models = json.load(urllib.request.urlopen(address + "/v1/models"))["data"] if address else []
print(json.dumps({"arguments": sys.argv[1:], "variables": dict(os.environ), "models": [model["id"] for model in models]}))
sys.exit(int(os.environ.get("AGENT_CODE", "0")))
"""


def launch(*arguments, **variables):
    return spry("launch", *arguments, PATH=PROGRAMS + os.pathsep + os.environ["PATH"], XDG_DATA_HOME=None, **variables)


class Launch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.makedirs(PROGRAMS, exist_ok=True)
        for name in ("claude", "qwen", "opencode", "cline"):
            path = os.path.join(PROGRAMS, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(AGENT)
            os.chmod(path, stat.S_IRWXU)

    def test_variables(self):
        """The agent reaches the server, which ends with it; its exit code is passed on."""
        for name, variable, tail in (("claude", "ANTHROPIC_BASE_URL", ""), ("qwen", "OPENAI_BASE_URL", "/v1")):
            done = launch(name, "--model", MODEL, "--context", "512", "--", "-p", "a b 'c'", AGENT_CODE="7")
            self.assertEqual(done.code, 7, done.errors)
            said = done.json
            self.assertEqual(said["models"], ["spry"])
            self.assertEqual(said["arguments"][-2:], ["-p", "a b 'c'"])
            address = said["variables"][variable]
            self.assertTrue(address.startswith("http://127.0.0.1:") and address.endswith(tail), address)
            with self.assertRaises(OSError):
                urllib.request.urlopen(address)

    def test_end(self):
        """When it is told to end, agent and server end, too."""
        log = os.path.join(HOME, ".local", "share", "spry", "agents", "pi", "server.log")
        with open(os.path.join(PROGRAMS, "pi"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho ready\nexec sleep 1000\n")
        os.chmod(os.path.join(PROGRAMS, "pi"), stat.S_IRWXU)
        process = subprocess.Popen([cli_support.SPRY, "launch", "pi", "--model", MODEL, "--context", "512"], stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, cwd=HOME,
                                   env=cli_support.environment(PATH=PROGRAMS + os.pathsep + os.environ["PATH"], XDG_DATA_HOME=None))
        self.assertEqual(process.stdout.readline(), b"ready\n")
        with open(log, encoding="utf-8") as file:
            address = re.search(r"listening on (\S+)", file.read()).group(1)
        process.terminate()
        self.assertEqual(process.wait(cli_support.TIMEOUT), 128 + signal.SIGTERM)
        process.stdout.close()
        with self.assertRaises(OSError):
            urllib.request.urlopen(address + "/health")

    def test_files(self):
        """Settings are in a folder of spry's own; a first call stores those that the agent must write itself."""
        done = launch("opencode", "--url", "http://127.0.0.1:1", "--model", "big", "--context", "4096")
        self.assertEqual(done.code, OK, done.errors)
        path = done.json["variables"]["OPENCODE_CONFIG"]
        self.assertTrue(path.startswith(os.path.join(HOME, ".local", "share", "spry", "agents")), path)
        with open(path, encoding="utf-8") as file:
            provider = json.load(file)["provider"]["spry"]
        self.assertEqual(provider["options"]["baseURL"], "http://127.0.0.1:1/v1")
        self.assertEqual(provider["models"]["big"]["limit"]["context"], 4096)
        done = launch("cline", "--url", "http://127.0.0.1:1", "--model", "big", "--", "task")
        first, second = (json.loads(line)["arguments"] for line in done.text.splitlines())
        self.assertEqual((first[0], second[-1]), ("auth", "task"))

    def test_eyes(self):
        """Agents are told whether the model sees pictures."""
        for model, sees in ((os.path.join(cli_support.DATA, "models", "qwen3-vl"), True), (MODEL, False)):
            path = launch("opencode", "--model", model).json["variables"]["OPENCODE_CONFIG"]
            with open(path, encoding="utf-8") as file:
                found = json.load(file)["provider"]["spry"]["models"]["spry"]
            self.assertEqual(found.get("modalities", {}).get("input"), ["text", "image"] if sees else None)
            path = launch("qwen", "--model", model).json["variables"]["QWEN_CODE_SYSTEM_DEFAULTS_PATH"]
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["model"]["generationConfig"]["modalities"], {"image": True} if sees else {})

    def test_contexts(self):
        """Agents are told how long conversations can be, so that they compact in time: by --context, or what the server says."""
        for arguments, tokens in (((), "2048"), (("--context", "512"), "512")):
            done = launch("claude", "--model", MODEL, *arguments).json
            self.assertEqual(done["variables"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], tokens)
            done = launch("opencode", "--model", MODEL, *arguments).json
            with open(done["variables"]["OPENCODE_CONFIG"], encoding="utf-8") as file:
                self.assertEqual(json.load(file)["provider"]["spry"]["models"]["spry"]["limit"]["context"], int(tokens))
        said = launch("codex", "--model", "x", "--print").text
        self.assertNotIn("model_context_window", said)  # it is not known
        self.assertNotIn("KNOWN", said)
        self.assertIn("model_context_window=512", launch("codex", "--model", "x", "--print", "--context", "512").text)

    def test_print(self):
        """Nothing is started; what is printed can be given to a shell."""
        done = launch("codex", "--model", "it's", "--print", "--", "exec", "a b")
        self.assertEqual(done.code, OK)
        self.assertIn("codex -c", done.text)
        self.assertTrue(done.text.endswith(" exec 'a b'\n"), done.text)

    def test_wrong(self):
        for arguments, code, words in (((), USAGE, "which agent"), (("emacs", "--model", "x"), USAGE, "emacs"),
                                       (("claude",), USAGE, "--model"),
                                       (("codex", "--url", "http://127.0.0.1:1", "--model", "x"), 127, "npm install -g @openai/codex"),
                                       (("claude", "--model", "no-such-model.gguf"), FAILURE, "no-such-model.gguf"),
                                       (("claude", "--url", "http://127.0.0.1:1", "--model", "x", "--", *["y"] * 300), USAGE, "argument")):
            done = spry("launch", *arguments, PATH="/usr/bin:/bin")
            self.assertEqual((done.code, words in done.errors), (code, True), (arguments, done.code, done.errors))


if __name__ == "__main__":
    cli_support.main()
