"""Inputs with random changes for the command line and the server: each is answered or refused, and no process ends by a
signal. `make mutations COUNT=1000000` sends as many as are wanted, most of them to the server, since a command needs a process
of its own. MUTATIONS_SEED: other changes.

An input that ends a process stays in the folder that the test names."""

import base64
import http.client
import os
import random
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import server_support
from server_support import DATA, HOME, SPRY, Server, environment, tiny

COUNT = int(os.environ.get("MUTATIONS", "2000"))
SEED = int(os.environ.get("MUTATIONS_SEED", "0")) or random.randrange(1 << 30)
OF_COMMANDS = 0.01  # the share of inputs that commands get
CLIENTS = 4
FUZZ = os.path.join(DATA, "fuzz")
NUMBERS = (b"0", b"-1", b"1e308", b"-0.0", b"4294967296", b"18446744073709551615", b"9223372036854775807", b"1e-400", b"null", b"{}",
           b"[]", b'""', b"true")
BYTES = (0, 1, 0x7f, 0x80, 0xff, 0x22, 0x5b, 0x7b, 0x0a)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def seeds(name):
    folder = os.path.join(FUZZ, name)
    return [content(os.path.join(folder, file)) for file in sorted(os.listdir(folder))]


def change(pick, seed, others, most=8, within=4096):
    """A few changes, most of them near the beginning, where heads are."""
    data = bytearray(seed)
    for _ in range(pick.choice((1, 1, 1, 2, 3, most))):
        size = len(data)
        at = pick.randrange(min(size, within) if pick.random() < 0.8 else size) if size else 0
        kind = pick.randrange(8)
        if kind == 0 and size:
            data[at] ^= 1 << pick.randrange(8)
        elif kind == 1 and size:
            data[at] = pick.choice(BYTES)
        elif kind == 2:
            del data[at:at + pick.randint(1, 16)]
        elif kind == 3:
            data[at:at] = data[at:at + pick.randint(1, 64)] * pick.randint(1, 4)
        elif kind == 4:
            other = pick.choice(others)
            start = pick.randrange(len(other)) if other else 0
            data[at:at] = other[start:start + pick.randint(1, 64)]
        elif kind == 5:
            found = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", bytes(data[:within])))
            if found:
                number = pick.choice(found)
                data[number.start():number.end()] = pick.choice(NUMBERS)
        elif kind == 6 and size >= 8:
            data[at:at + 8] = pick.choice((0, 1, 255, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)).to_bytes(8, "little")
        elif kind == 7 and pick.random() < 0.3:
            del data[at:]
    return bytes(data)


def paths():
    """Those of the fuzz target, whose seeds begin with the number of one."""
    with open(os.path.join(DATA, "..", "fuzz", "fuzz_body.c"), encoding="utf-8") as file:
        table = re.search(r"paths\[\] = \{(.*?)\}", file.read(), re.S).group(1)
    return re.findall(r'"([^"]+)"', table)


class Mutations(unittest.TestCase):
    def setUp(self):
        self.findings = tempfile.mkdtemp(prefix="spry-mutations-")
        self.statuses, self.failures, self.lock = {}, [], threading.Lock()

    def tearDown(self):
        if not os.listdir(self.findings):
            os.rmdir(self.findings)

    def keep(self, name, data, words):
        with self.lock:
            path = os.path.join(self.findings, "%s-%d" % (name, len(self.failures)))
            self.failures.append("%s: %s" % (path, words))
        with open(path, "wb") as file:
            file.write(data)

    def count(self, status):
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1

    # ---- the server

    def body(self, pick):
        seed = pick.choice(self.bodies)
        path = self.paths[seed[0] % len(self.paths)] if pick.random() < 0.95 else pick.choice(self.paths)
        return path, change(pick, seed[1:], self.bodies), {"Content-Type": "application/json"}

    def picture(self, pick):
        file = base64.b64encode(change(pick, pick.choice(self.pictures), self.pictures)).decode()
        text = '{"model":"qwen3-vl","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}'
        return "/v1/chat/completions", (text % file).encode(), {"Content-Type": "application/json"}

    def form(self, pick):
        return "/v1/documents/text", change(pick, pick.choice(self.forms), self.forms), {"Content-Type": "multipart/form-data; boundary=b"}

    def ask(self, connection, pick):
        chance = pick.random()
        path, body, headers = self.picture(pick) if chance < 0.1 else self.form(pick) if chance < 0.15 else self.body(pick)
        try:
            connection.request("POST", path, body, headers)
            reply = connection.getresponse()
            reply.read()
            self.count(reply.status)
            if not 200 <= reply.status < 600 or reply.status == 500:
                self.keep("body", path.encode() + b"\n" + body, "status %d" % reply.status)
        except (OSError, http.client.HTTPException):
            connection.close()
            self.count(0)
            if self.server.process.poll() is not None:
                self.keep("body", path.encode() + b"\n" + body, "the server ended")

    def send(self, pick):
        """Bytes that should be HTTP."""
        data = change(pick, pick.choice(self.requests), self.requests)
        try:
            with self.server.socket(timeout=20) as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass
            self.count("bytes")
        except socket.timeout:
            self.keep("http", data, "no answer")
        except OSError:
            self.count("bytes")
            if self.server.process.poll() is not None:
                self.keep("http", data, "the server ended")

    def client(self, number, count):
        pick = random.Random(SEED + number)
        connection = self.server.connect()
        for _ in range(count):
            if self.failures:
                break
            if pick.random() < 0.1:
                self.send(pick)
            else:
                self.ask(connection, pick)
        connection.close()

    def test_server(self):
        self.paths, self.bodies = paths(), seeds("body")
        self.pictures, self.forms, self.requests = seeds("image"), seeds("form"), seeds("http")
        folder = os.path.join(HOME, "mutated-models")
        os.makedirs(folder)
        os.symlink(tiny("qwen3-vl", ""), os.path.join(folder, "qwen3-vl"))
        self.server = Server(tiny("qwen3"), "--models-dir", folder, "--max-tokens", "2", "--any-model", "--context", "256", "--max-per-address", "64",
                             "--idle-timeout", "600", kv="8M")
        each = int(COUNT * (1 - OF_COMMANDS)) // CLIENTS
        clients = [threading.Thread(target=self.client, args=(number, each)) for number in range(CLIENTS)]
        began = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        print("server: %d inputs in %.0f s, seed %d; replies by status: %s" % (
            CLIENTS * each, time.monotonic() - began, SEED, dict(sorted(self.statuses.items(), key=str))))
        self.assertEqual(self.failures, [])
        self.assertEqual(self.server.post("/completion", {"prompt": "Once", "n_predict": 1}).status, 200)
        self.assertEqual(self.server.stop(), 0, "".join(self.server.log[-20:]))

    # ---- the command line

    def commands(self, pick, file):
        """A command, and a seed for the file that it reads."""
        kind = pick.randrange(6)
        if kind == 0:
            return ["inspect", file + ".gguf"], ".gguf", pick.choice(self.models)
        if kind == 1:
            return ["run", file + ".gguf", "Once", "-n", "1", "--kv-bytes", "4M", "--context", "64", "--device", "cpu", "-t", "1"], ".gguf", self.models[0]
        if kind == 2:
            return ["tokenize", file + ".gguf"], ".gguf", self.models[0]
        if kind == 3:
            return ["inspect", file + ".safetensors"], ".safetensors", pick.choice(seeds("safetensors"))
        if kind == 4:
            return ["grammar", "check", file + ".gbnf"], ".gbnf", pick.choice(self.grammars)
        return ["run", tiny("qwen3-vl", ""), "What?", "--image", file + ".png", "-n", "1", "--kv-bytes", "4M", "--device", "cpu", "-t", "1"], ".png", pick.choice(self.pictures)

    def test_commands(self):
        self.models = [content(tiny("llama")), *seeds("gguf")]
        self.grammars, self.pictures = [seed[1:] for seed in seeds("grammar")], seeds("image")
        pick, count = random.Random(SEED), max(int(COUNT * OF_COMMANDS), 20)
        for number in range(count):
            file = os.path.join(HOME, "mutated-%d" % (number % 8))
            arguments, ending, seed = self.commands(pick, file)
            data = change(pick, seed, [seed])
            with open(file + ending, "wb") as out:
                out.write(data)
            result = subprocess.run([SPRY, *arguments], input=b"Once upon", capture_output=True, cwd=HOME, check=False,
                                    env=environment(), timeout=server_support.TIMEOUT)
            self.count(result.returncode)
            if result.returncode not in (0, 1, 2) or b"Sanitizer" in result.stderr:
                self.keep("command" + ending, data, "%s: exit %d: %s" % (arguments, result.returncode, result.stderr[-300:]))
        print("commands: %d inputs, seed %d; by exit status: %s" % (count, SEED, dict(sorted(self.statuses.items()))))
        self.assertEqual(self.failures, [])


if __name__ == "__main__":
    server_support.main()
