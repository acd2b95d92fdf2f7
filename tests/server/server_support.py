"""What the tests of `spry serve` share: a real server on a free port, and a client of the standard library.

The program's path comes in the environment variable SPRY; SPRY_SANITIZED says that it is built with a sanitizer."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

from cli_support import DATA, DEVICE, HOME, PUBLIC, ROOT, SANITIZED, SPRY, TIMEOUT, environment, main, once_of, public, spry, tiny  # noqa: E402,F401

MODEL = "Spry-Tales-29M"
TALE = [{"role": "user", "content": "Tell me a tale."}]
# How much longer everything takes under a sanitizer, for the limits that tests give to servers. What tests themselves wait
# for may take TIMEOUT: a busy machine decides nothing.
SLOW = {"": 1, "thread": 15}.get(os.environ.get("SPRY_SANITIZED", ""), 6)
FETCHING = 600  # seconds until packages of npm count as out of reach, which leaves a case out
LIMITS = ("--answer-timeout", "--grace")


def allowed(arguments):
    """The arguments of a server, with its time limits for answers as long as a sanitizer needs."""
    return [str(int(value) * SLOW) if i and arguments[i - 1] in LIMITS else value for i, value in enumerate(arguments)]


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def text(self):
        return self.body.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """The data of server-sent events, parsed; "[DONE]" as it is."""
        parts = [part for part in self.text.split("\n\n") if part]
        assert all(part.startswith("data: ") for part in parts), self.text
        return [part[6:] if part[6:] == "[DONE]" else json.loads(part[6:]) for part in parts]

    @property
    def lines(self):
        return [json.loads(line) for line in self.text.splitlines()]


class Server:
    """A server process; it listens once the constructor returns. `under`: a command that becomes the server's. `kv`:
    memory for keys and values. `device`: flags that say where it computes. `changes`: of its environment."""

    def __init__(self, *arguments, host="127.0.0.1", under=(), kv="64M", device=tuple(DEVICE), **changes):
        self.process = subprocess.Popen([*under, SPRY, "serve", *allowed(arguments), *device, "--host", host, "--port", "0",
                                         "--kv-bytes", kv],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        cwd=HOME, env=environment(**changes))
        self.log = []
        self.port = None
        while self.port is None:
            line = self.process.stderr.readline().decode("utf-8")
            if not line:
                raise AssertionError("the server ended: %s" % "".join(self.log))
            self.log.append(line)
            found = re.search(r"listening on https?://.*:(\d+)$", line.strip())
            self.port = int(found.group(1)) if found else None
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line.decode("utf-8", "replace"))

    def connect(self, timeout=TIMEOUT):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def socket(self, timeout=TIMEOUT):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, headers or {})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, body, **headers):
        return self.ask("POST", path, body, headers)

    def chat(self, **fields):
        body = {"messages": TALE, "max_tokens": 16, "temperature": 0}
        body.update(fields)
        return self.post("/v1/chat/completions", body)

    def metric(self, name, model=MODEL):
        found = re.search(r'(?m)^%s\{model="%s"\} (\S+)$' % (name, re.escape(model)), self.get("/metrics").text)
        return float(found.group(1)) if found else None

    def cpu(self):
        """Seconds of processor time that the server has used."""
        with open("/proc/%d/stat" % self.process.pid, encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def threads(self):
        return len(os.listdir("/proc/%d/task" % self.process.pid))

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(timeout=TIMEOUT)
        self.reader.join(TIMEOUT)
        self.process.stderr.close()
        return code


def eventually(check):
    """Whether check() becomes true."""
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        if check():
            return True
        time.sleep(0.05)
    return check()


class ServerTest(unittest.TestCase):
    """One server for all tests of a class; at its end it must go without a word of complaint."""

    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.arguments)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, "exit code %d: %s" % (code, "".join(cls.server.log))

    def refused(self, reply, status, *words):
        """An error in OpenAI's form: one sentence with these words in it."""
        self.assertEqual(reply.status, status, reply.text)
        error = reply.json["error"]
        self.assertEqual(sorted(set(error) - {"n_ctx", "n_prompt_tokens"}), ["code", "message", "param", "type"])
        self.assertNotIn("\n", error["message"])
        for word in words:
            self.assertIn(word, error["message"])
        return error

    def alive(self):
        reply = self.server.chat(max_tokens=2)
        self.assertEqual(reply.status, 200, reply.text)
