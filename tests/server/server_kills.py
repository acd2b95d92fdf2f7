"""Programs that are killed at any moment, while they write cached pages, chats, a converted model, a downloaded one or the
answers of a batch: what is there afterwards is whole, what was acknowledged is there, and the next run is right.

A few kills in a usual run; SPRY_TEST_ALL kills a hundred times. SPRY_KILLS_SEED: at other moments."""

import http.client
import json
import os
import random
import subprocess
import threading
import time
import unittest

import server_pull
import server_support
from server_support import HOME, MODEL, SPRY, Server, environment, tiny

KILLS = 20 if os.environ.get("SPRY_TEST_ALL") else 2  # for each of five kinds
PICK = random.Random(int(os.environ.get("SPRY_KILLS_SEED", "0")) or None)
PROMPT = "Once upon a time there was a crow who lived by a lake and had a friend. "


def kill_command(arguments, most_s):
    """Runs a command and kills it at a random moment; its exit status, None when it was killed."""
    process = subprocess.Popen([SPRY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               cwd=HOME, env=environment())
    try:
        return process.wait(PICK.uniform(0, most_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def run_command(*arguments):
    began = time.monotonic()
    result = server_support.spry(*arguments, stdin=None)
    return result, time.monotonic() - began


def content(path):
    with open(path, "rb") as file:
        return file.read()


class Kills(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.join(HOME, self.id().rsplit(".", 1)[1])
        os.makedirs(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def kill_server(self, server, work):
        """Kills a server while `work` goes on in a thread until its connection breaks."""
        def until_it_breaks():
            try:
                while True:
                    work()
            except (OSError, http.client.HTTPException):
                pass
        thread = threading.Thread(target=until_it_breaks)
        thread.start()
        time.sleep(PICK.uniform(0, 0.7))
        server.process.kill()
        server.process.wait()
        thread.join()
        server.stop()

    def test_cached_pages(self):
        def ask(server, number):
            reply = server.post("/v1/completions", {"prompt": ("%d. " % number) + PROMPT * 6, "max_tokens": 8, "temperature": 0})
            self.assertEqual(reply.status, 200, reply.text)
            return reply.json["choices"][0]["text"]
        cold = Server(tiny("llama"), kv="8M")
        wanted = [ask(cold, number) for number in range(12)]
        cold.stop()
        for _ in range(KILLS):
            server = Server(tiny("llama"), "--cache-dir", self.path("pages"), "--cache-disk-bytes", "400K", kv="1M")
            number = PICK.randrange(12)
            self.assertEqual(ask(server, number), wanted[number])

            def work(server=server):
                chosen = PICK.randrange(12)
                self.assertEqual(ask(server, chosen), wanted[chosen])
            self.kill_server(server, work)
        server = Server(tiny("llama"), "--cache-dir", self.path("pages"), kv="8M")
        self.assertEqual([ask(server, number) for number in range(12)], wanted)
        self.assertEqual(server.stop(), 0)
        self.assertNotIn("damaged", "".join(server.log))

    def test_chats(self):
        known = {}  # id: turns that were acknowledged
        arguments = ("--allow-chats", "--chats", self.path("chats.db"))

        def turns(count):
            return [{"role": "user" if i % 2 == 0 else "assistant", "content": "Text %d. " % i * 50} for i in range(count)]
        for _ in range(KILLS):
            server = Server(tiny("llama"), *arguments, kv="8M")
            name = server.get("/v1/models").json["data"][0]["id"]

            def work(server=server, name=name):
                made = server.post("/api/chats", {"model": name, "messages": turns(2)})
                if made.status != 200:
                    raise AssertionError(made.text)
                known[made.json["id"]] = 2
                more = server.post("/api/chats/%d" % made.json["id"], {"revision": made.json["revision"], "messages": turns(6)})
                if more.status == 200:
                    known[made.json["id"]] = 6
            self.kill_server(server, work)
        server = Server(tiny("llama"), *arguments, kv="8M")
        for number, count in known.items():
            messages = server.get("/api/chats/%d" % number).json["messages"]
            self.assertIn(len(messages), {count, 6})
            self.assertEqual([message["content"] for message in messages], [turn["content"] for turn in turns(len(messages))])
        self.assertEqual(server.stop(), 0)

    def test_converted_models(self):
        target, other = self.path("out.gguf"), self.path("other.gguf")
        arguments = ("convert", MODEL, target, "--type", "q8_0", "--threads", "1")
        result, seconds = run_command(*arguments)
        self.assertEqual(result.code, 0, result.errors)
        os.rename(target, other)
        wanted = content(other)
        for _ in range(KILLS):
            if kill_command(arguments, seconds) is not None or os.path.exists(target):
                self.assertEqual(content(target), wanted)
                os.remove(target)
        self.assertEqual(run_command(*arguments)[0].code, 0)
        self.assertEqual(content(target), wanted)

    def test_batches(self):
        questions, answers, reference = self.path("questions.jsonl"), self.path("answers.jsonl"), self.path("reference.jsonl")
        with open(questions, "w", encoding="utf-8") as file:
            for i in range(40):
                file.write(json.dumps({"custom_id": "q%d" % i, "method": "POST", "url": "/v1/completions", "body": {
                    "model": MODEL, "prompt": "Tale %d of a fox" % i, "max_tokens": 20, "temperature": 0}}) + "\n")

        def answered(path):
            found = {}
            for line in content(path).decode("utf-8").split("\n")[:-1]:
                line = json.loads(line)
                self.assertNotIn(line["custom_id"], found)
                found[line["custom_id"]] = line["response"]["body"]["choices"][0]["text"]
            return found
        result, seconds = run_command("batch", questions, reference, "--kv-bytes", "64M")
        self.assertEqual(result.code, 0, result.errors)
        wanted = answered(reference)
        self.assertEqual(len(wanted), 40)
        for _ in range(KILLS):
            before = answered(answers) if os.path.exists(answers) else {}
            kill_command(("batch", questions, answers, "--kv-bytes", "64M"), seconds)
            now = answered(answers) if os.path.exists(answers) else {}
            self.assertLessEqual(before.items(), now.items())
            if len(now) == 40:
                os.remove(answers)
        self.assertEqual(run_command("batch", questions, answers, "--kv-bytes", "64M")[0].code, 0)
        self.assertEqual(answered(answers), wanted)


class Downloads(server_pull.PullTest):
    def test_downloads(self):
        self.habits.pause = 0.01
        for _ in range(KILLS):
            code = kill_command(("pull", self.url + "/model.gguf", "m.gguf", "--models-dir", self.folder), 1.5)
            if os.path.exists(os.path.join(self.folder, "m.gguf")):
                self.assertEqual(content(os.path.join(self.folder, "m.gguf")), self.habits.body)
                os.remove(os.path.join(self.folder, "m.gguf"))
            else:
                self.assertNotEqual(code, 0)
        self.habits.pause = 0
        self.pulled(self.url + "/model.gguf", "m.gguf")
        self.same("m.gguf", self.habits.body)


if __name__ == "__main__":
    server_support.main()
