"""Two servers behind HAProxy with deploy/haproxy.cfg: conversations keep their server, and one that dies loses no request
whose answer had not begun."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import http.client
import server_support
from server_support import HOME, ROOT, Server, environment, eventually

CONVERSATIONS, TURNS = 6, 10


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Proxy:
    def __init__(self, *servers):
        self.port = free_port()
        addresses = {name: "127.0.0.1:%d" % server.port for name, server in zip(("SPRY_FIRST", "SPRY_SECOND"), servers)}
        self.process = subprocess.Popen(["haproxy", "-db", "-f", os.path.join(ROOT, "deploy", "haproxy.cfg")], cwd=HOME,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=environment(SPRY_BIND="127.0.0.1:%d" % self.port, **addresses))

    def ask(self, messages, tokens, **headers):
        """The answer's text, its tokens of the prompt and how many of them were cached."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=server_support.TIMEOUT)
        try:
            body = {"messages": messages, "max_tokens": tokens, "temperature": 0}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            reply = connection.getresponse()
            data = reply.read()
        finally:
            connection.close()
        if reply.status != 200:
            raise AssertionError("%d %s" % (reply.status, data))
        answer = json.loads(data)
        usage = answer["usage"]
        return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def stop(self):
        self.process.kill()
        self.process.wait()


class Conversation(threading.Thread):
    def __init__(self, proxy, number, on_turn):
        super().__init__(daemon=True)
        self.proxy, self.number, self.on_turn = proxy, number, on_turn
        self.known = self.cached = 0
        self.failure = None

    def run(self):
        messages, before = [], 0
        try:
            for turn in range(TURNS):
                messages.append({"role": "user", "content": "Conversation %d, part %d: tell me more. " % (self.number, turn) * 8})
                text, prompt, cached = self.proxy.ask(messages, 8)
                self.known += before  # what a server that has answered the last turn knows
                self.cached += min(cached, before)
                before = prompt
                messages.append({"role": "assistant", "content": text})
                self.on_turn()
        except Exception as failure:  # whatever it is, the test tells it
            self.failure = failure


class Replicas(server_support.unittest.TestCase):
    def setUp(self):
        self.servers = [Server(kv="256M"), Server(kv="256M")]
        self.proxy = Proxy(*self.servers)
        self.assertTrue(eventually(self.answers))

    def answers(self):
        try:
            self.proxy.ask([{"role": "user", "content": "a"}], 1)
            return True
        except (OSError, AssertionError, http.client.HTTPException):
            return False

    def tearDown(self):
        self.proxy.stop()
        for server in self.servers:
            server.stop(signal.SIGKILL)

    def requests(self, server):
        found = [line for line in server.get("/metrics").text.splitlines() if line.startswith("spry_requests_total")]
        return sum(float(line.split()[-1]) for line in found)

    def test_a_conversation_keeps_its_server(self):
        before = [self.requests(server) for server in self.servers]
        for i in range(6):
            self.proxy.ask([{"role": "user", "content": "the same beginning"}, {"role": "assistant", "content": "a"},
                            {"role": "user", "content": "part %d" % i}], 1)
        changes = sorted(self.requests(server) - count for server, count in zip(self.servers, before))
        self.assertEqual(changes, [0, 6])

    def test_a_server_killed_under_load_fails_no_request(self):
        turns, lock = [0], threading.Lock()

        def on_turn():
            with lock:
                turns[0] += 1
                if turns[0] == CONVERSATIONS * 2:
                    self.servers[0].process.kill()

        conversations = [Conversation(self.proxy, i, on_turn) for i in range(CONVERSATIONS)]
        for conversation in conversations:
            conversation.start()
        for conversation in conversations:
            conversation.join()
            self.assertIsNone(conversation.failure)
        rate = sum(c.cached for c in conversations) / sum(c.known for c in conversations)
        print("tokens of earlier turns found cached: %.1f %%" % (100 * rate))
        self.assertGreaterEqual(rate, 0.9)

    def test_a_draining_server_gets_nothing_new(self):
        self.servers[0].process.send_signal(signal.SIGTERM)
        for i in range(8):
            self.proxy.ask([{"role": "user", "content": "question %d" % i}], 1)


if __name__ == "__main__":
    if not shutil.which("haproxy"):
        print("SKIPPED replicas: haproxy is not installed\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    server_support.main()
