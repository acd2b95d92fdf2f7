"""spry batch: every line answered once, as the server would, also when it is cut off and begun again."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

import server_support
from server_support import HOME, SPRY, environment, spry


def question(number, **fields):
    body = {"messages": [{"role": "user", "content": "Tell me tale %d." % number}], "max_tokens": 12, "temperature": 0}
    body.update(fields)
    return {"custom_id": "q%d" % number, "method": "POST", "url": "/v1/chat/completions", "body": body}


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp(dir=HOME)
        self.questions, self.answers = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")

    def write(self, lines):
        with open(self.questions, "w", encoding="utf-8") as file:
            for line in lines:
                file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")

    def read(self):
        with open(self.answers, encoding="utf-8") as file:
            return {line["custom_id"]: line for line in map(json.loads, file)}

    def run_batch(self, *options):
        return spry("batch", self.questions, self.answers, "--kv-bytes", "64M", *options, stdin=None)

    def test_answers_equal_run(self):
        self.write([question(number) for number in range(20)])
        result = self.run_batch()
        self.assertEqual(result.code, 0, result.errors)
        answers = self.read()
        self.assertEqual(sorted(answers), sorted("q%d" % number for number in range(20)))
        for number in (0, 7, 19):
            response = answers["q%d" % number]["response"]
            self.assertEqual(response["status_code"], 200)
            wanted = spry("run", "-p", "Tell me tale %d." % number, "-n", "12", "--temperature", "0").text[:-1]
            self.assertEqual(response["body"]["choices"][0]["message"]["content"], wanted)

    def test_wrong_lines_harm_nobody(self):
        self.write([question(1), "{", "", "[]", {"custom_id": "url", "url": "/metrics", "body": {}}, question(2, n="x"),
                    {"url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 2, "stream": True}}])
        result = self.run_batch()
        self.assertEqual(result.code, 1, result.errors)
        answers = self.read()
        self.assertEqual(sorted(answers), ["line-2", "line-4", "line-7", "q1", "q2", "url"])
        self.assertEqual(answers["q2"]["response"]["status_code"], 400)
        self.assertEqual(answers["line-7"]["response"]["status_code"], 200)
        for name in ("line-2", "line-4", "url"):
            self.assertIsNone(answers[name]["response"])
            self.assertTrue(answers[name]["error"]["message"])

    def test_goes_on_where_it_was(self):
        self.write([question(number, max_tokens=150, ignore_eos=True) for number in range(60)])
        process = subprocess.Popen([SPRY, "batch", self.questions, self.answers, "--kv-bytes", "64M", "--parallel", "2"],
                                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), cwd=HOME)
        while process.poll() is None and not (os.path.exists(self.answers) and os.path.getsize(self.answers)):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open(self.answers, "ab") as file:
            file.write(b'{"custom_id": "q5')
        before = {name: line for name, line in self.read_whole().items()}
        self.assertTrue(0 < len(before) < 60, len(before))
        self.write([question(number) for number in range(60)])
        result = self.run_batch()
        self.assertEqual(result.code, 0, result.errors)
        self.assertIn("%d skipped" % len(before), result.errors)
        after = self.read()
        self.assertEqual(len(after), 60)
        self.assertEqual({name: after[name] for name in before}, before)

    def read_whole(self):
        with open(self.answers, encoding="utf-8") as file:
            return {line["custom_id"]: line for line in (json.loads(text) for text in file if text.endswith("\n"))}

    def test_wrong_use(self):
        self.write([question(1)])
        self.assertEqual(spry("batch", self.questions, stdin=None).code, 2)
        self.assertIn("/nowhere", spry("batch", "/nowhere", self.answers, stdin=None).errors)
        with open(self.answers, "w", encoding="utf-8") as file:
            file.write("something else\n")
        result = self.run_batch()
        self.assertEqual(result.code, 1)
        self.assertIn("not the output of a batch", result.errors)
        with open(self.answers, "w", encoding="utf-8") as file:
            file.write("a text of one line, without its end")  # is not ours, so it is not dropped
        self.assertIn("not the output of a batch", self.run_batch().errors)
        with open(self.answers, encoding="utf-8") as file:
            self.assertEqual(file.read(), "a text of one line, without its end")
        with open(self.answers, "w", encoding="utf-8") as file:
            file.write("something else\n")
        self.assertEqual(self.run_batch().code, 1)
        with open(self.answers, encoding="utf-8") as file:
            self.assertEqual(file.read(), "something else\n")


if __name__ == "__main__":
    server_support.main()
