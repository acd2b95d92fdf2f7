"""Clients that leave, many that stay, keys, other sites, a full queue, and the end of a server."""

import http.client
import json
import os
import resource
import signal
import threading
import time

import server_support
from server_support import HOME, MODEL, TALE, Reply, Server, ServerTest, eventually, spry

CHAT = "/v1/chat/completions"
LONG = {"messages": TALE, "max_tokens": 1900, "temperature": 0, "stream": True, "ignore_eos": True}


def begin(server, **fields):
    """A stream of which the first bytes have come."""
    connection = server.connect()
    connection.request("POST", CHAT, json.dumps(dict(LONG, **fields)))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.readline()
    return connection, response


class Leaving(ServerTest):
    def at_rest(self):
        return self.server.metric("spry_requests_running") == 0 and self.server.metric("spry_requests_waiting") == 0

    def test_leaving_in_the_middle(self):
        self.alive()
        rest = self.server.metric("spry_kv_used_bytes") - self.server.metric("spry_kv_idle_bytes")
        files, threads = self.server.descriptors(), self.server.threads()
        for _ in range(12):
            streams = [begin(self.server) for _ in range(4)]
            for connection, response in streams:
                response.close()
                connection.close()
        self.assertTrue(eventually(self.at_rest))
        self.assertTrue(eventually(lambda: self.server.metric("spry_kv_used_bytes") -
                                   self.server.metric("spry_kv_idle_bytes") == rest))
        self.assertTrue(eventually(lambda: self.server.descriptors() <= files + 1), self.server.descriptors())
        self.assertTrue(eventually(lambda: self.server.threads() <= threads + 1), self.server.threads())
        self.assertGreaterEqual(self.server.metric("spry_requests_cancelled_total"), 40)
        self.alive()

    def test_leaving_before_the_answer(self):
        for _ in range(5):
            connection = self.server.connect()
            connection.request("POST", CHAT, json.dumps(dict(LONG, stream=False)))
            time.sleep(0.05)
            connection.close()
        self.assertTrue(eventually(self.at_rest))
        self.alive()

    def test_a_reader_who_stops_reading_holds_nobody_up(self):
        streams = [begin(self.server, n=2) for _ in range(2)]
        self.alive()
        for connection, response in streams:
            response.close()
            connection.close()
        self.assertTrue(eventually(self.at_rest))

    def test_two_hundred_watchers(self):
        watchers = []
        for _ in range(200):
            connection = self.server.connect()
            connection.request("GET", "/watch")
            watchers.append((connection, connection.getresponse()))
        for _, response in watchers:
            self.assertTrue(response.readline().startswith(b"data: {"))
        self.alive()
        for connection, response in watchers:
            response.close()
            connection.close()
        self.assertTrue(eventually(lambda: self.server.threads() < 60))

    def test_a_thousand_connections(self):
        """A stream that is under way goes on; those beyond the limit are turned away; afterwards nothing is left."""
        rest = self.server.descriptors()
        stream = self.server.connect()
        stream.request("GET", "/watch")
        response = stream.getresponse()
        crowd = [self.server.socket() for _ in range(1000)]
        for client in crowd:
            try:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            except ConnectionError:
                pass  # one of those beyond the limit
        self.assertTrue(response.readline().startswith(b"data: {"))
        for client in crowd:
            client.close()
        response.close()
        stream.close()
        self.assertTrue(eventually(lambda: self.server.descriptors() <= rest + 2))
        self.alive()

    def test_one_connection_for_many_requests(self):
        connection = self.server.connect()
        for number in range(50):
            connection.request("GET", "/health")
            self.assertEqual(Reply(connection.getresponse()).status, 200)
            connection.request("POST", CHAT, b"{" if number % 2 else json.dumps({"messages": TALE, "max_tokens": 1}))
            self.assertEqual(Reply(connection.getresponse()).status, 400 if number % 2 else 200)
        connection.close()


class Keys(ServerTest):
    file = os.path.join(HOME, "keys.txt")

    @classmethod
    def setUpClass(cls):
        with open(cls.file, "w", encoding="utf-8") as file:
            file.write("# keys\n\nfirst-key\n  second-key  \n")
        cls.arguments = ("--api-key-file", cls.file, "--cors", "https://example.org")
        super().setUpClass()

    def ask(self, key, path=CHAT, **headers):
        if key is not None:
            headers["Authorization"] = key
        return self.server.post(path, {"messages": TALE, "max_tokens": 3, "temperature": 0}, **headers)

    def test_keys(self):
        for key in ("Bearer first-key", "Bearer second-key", "bearer first-key"):
            self.assertEqual(self.ask(key).status, 200, key)
        for key in (None, "", "Bearer ", "Bearer first-ke", "Bearer first-key2", "Bearer # keys", "Bearer first-key\tx",
                    "Basic first-key", "Bearer " + "x" * 5000):
            reply = self.ask(key)
            self.refused(reply, 401, "Bearer")
            self.assertEqual(reply.headers["www-authenticate"], "Bearer")
        self.assertEqual(self.server.get("/health").status, 200)
        for path in ("/metrics", "/watch", "/v1/models", "/slots", "/nothing", "/api/tags"):
            self.assertEqual(self.server.get(path).status, 401, path)
        self.assertEqual(self.ask(None, "/models/pin").status, 401)

    def test_what_one_key_computed_is_not_for_another(self):
        body = {"messages": [{"role": "user", "content": "A very particular question about owls. " * 8}], "max_tokens": 1}
        cached = []
        for key in ("first-key", "first-key", "second-key"):
            reply = self.server.post(CHAT, body, Authorization="Bearer " + key)
            cached.append(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertLess(max(cached[0], cached[2]), 10)  # the same first words of every prompt
        self.assertGreater(cached[1], 50)

    def test_a_key_sees_only_its_own_requests(self):
        """Of other keys' requests only the numbers of a model's running and waiting ones are shown."""
        connection = self.server.connect()
        connection.request("POST", CHAT, json.dumps(LONG), {"Authorization": "Bearer first-key"})
        response = connection.getresponse()
        response.readline()

        def watch(key):
            watcher = self.server.connect()
            watcher.request("GET", "/watch", headers={"Authorization": "Bearer " + key})
            line = watcher.getresponse().readline()
            watcher.close()
            return json.loads(line[6:])

        def visible_slots(key):
            slots = self.server.get("/slots", Authorization="Bearer " + key).json
            return len([slot for slot in slots if "request" in slot])

        self.assertTrue(eventually(lambda: visible_slots("first-key") == 1))
        for key, visible in (("first-key", 1), ("second-key", 0)):
            self.assertEqual(visible_slots(key), visible, key)
            snapshot = watch(key)
            running = [request for request in snapshot["requests"] if request["state"] in ("prefill", "decode")]
            self.assertEqual(len(running), visible, key)
            self.assertEqual([model["running"] for model in snapshot["models"] if model["name"] == MODEL], [1], key)
        response.close()
        connection.close()
        self.assertTrue(eventually(lambda: not any(
            slot["is_processing"] for slot in self.server.get("/slots", Authorization="Bearer first-key").json)))
        self.assertEqual([request for request in watch("second-key")["requests"] if request["state"] == "cancelled"], [])

    def test_pages_of_other_sites(self):
        self.assertEqual(self.ask("Bearer first-key", Origin="https://evil.example").status, 403)
        reply = self.ask("Bearer first-key", Origin="https://example.org")
        self.assertEqual((reply.status, reply.headers["access-control-allow-origin"]), (200, "https://example.org"))
        reply = self.server.ask("OPTIONS", CHAT, headers={"Origin": "https://example.org"})
        self.assertEqual((reply.status, reply.body), (200, b""))
        self.assertEqual(reply.headers["access-control-allow-origin"], "https://example.org")
        self.assertIn("Authorization", reply.headers["access-control-allow-headers"])
        reply = self.server.ask("OPTIONS", CHAT, headers={"Origin": "https://evil.example"})
        self.assertNotIn("access-control-allow-origin", reply.headers)


class OtherSites(ServerTest):
    def test_no_key_means_this_machine_only(self):
        self.assertEqual(self.server.get("/v1/models", Origin="https://evil.example").status, 403)
        self.assertEqual(self.server.get("/v1/models", Host="evil.example").status, 403)
        self.assertEqual(self.server.get("/v1/models", Host="evil.example:%d" % self.server.port).status, 403)
        own = "localhost:%d" % self.server.port
        self.assertEqual(self.server.get("/v1/models", Host=own, Origin="http://" + own).status, 200)
        self.assertNotIn("access-control-allow-origin", self.server.get("/health").headers)
        self.assertEqual(self.server.ask("OPTIONS", CHAT).status, 405)


class Queue(ServerTest):
    arguments = ("--parallel", "1", "--queue", "1", "--answer-timeout", "2")

    def test_full_queue_and_long_answers(self):
        stream = begin(self.server)
        waiting = threading.Thread(target=self.server.chat, kwargs={"max_tokens": 2})
        waiting.start()
        self.assertTrue(eventually(lambda: self.server.metric("spry_requests_waiting") == 1))
        reply = self.server.chat(max_tokens=2)
        self.refused(reply, 503, "wait")
        self.assertIn("retry-after", reply.headers)
        stream[1].close()
        stream[0].close()
        waiting.join()
        self.alive()


    def test_more_answers_than_can_ever_wait(self):
        """That is no reason to come back later."""
        body = {"prompt": ["Once", "The fox"], "max_tokens": 2}
        self.assertEqual(self.server.post("/v1/completions", body).status, 200)
        for fields in ({"n": 2}, {"prompt": ["x", "y", "z"]}):
            self.refused(self.server.post("/v1/completions", dict(body, **fields)), 400, "at most 2", "--queue")
        self.refused(self.server.chat(n=3), 400, "3 answers", "at most 2")
        echo = {"prompt": ["x", "y", "z"], "max_tokens": 0, "echo": True}
        self.assertEqual(len(self.server.post("/v1/completions", echo).json["choices"]), 3)  # those need no turn


class NoFiles(ServerTest):
    def test_a_request_when_no_file_can_be_opened(self):
        self.alive()
        connection = self.server.connect()
        connection.request("GET", "/health")
        self.assertEqual(Reply(connection.getresponse()).status, 200)
        before = resource.prlimit(self.server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.server.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        for body in ({"max_tokens": 3}, {"max_tokens": 3, "n": 3}, {"max_tokens": 3, "stream": True}):
            connection.request("POST", CHAT, json.dumps(dict(body, messages=TALE)))
            self.refused(Reply(connection.getresponse()), 503, "files")
        resource.prlimit(self.server.process.pid, resource.RLIMIT_NOFILE, before)
        connection.close()
        self.alive()
        self.assertEqual(self.server.metric("spry_requests_failed_total"), 3)


# Log probabilities of more prompts than any test waits for.
ECHO = {"prompt": ["Tale %d. " % number + "Once upon a time. " * 300 for number in range(128)], "echo": True, "logprobs": 1,
        "max_tokens": 0}


class Echo(ServerTest):
    def test_leaving(self):
        self.alive()
        before = self.server.metric("spry_steps_total")
        connection = self.server.connect()
        connection.request("POST", "/v1/completions", json.dumps(ECHO))
        self.assertTrue(eventually(lambda: self.server.metric("spry_steps_total") > before + 1))
        connection.close()
        self.assertTrue(eventually(lambda: self.server.metric("spry_requests_running") == 0))
        self.assertLess(self.server.metric("spry_steps_total") - before, len(ECHO["prompt"]))  # each takes several
        self.alive()


class LateEcho(ServerTest):
    arguments = ("--answer-timeout", "1")

    def test_late(self):
        self.refused(self.server.post("/v1/completions", ECHO), 504, "longer")
        self.alive()


class Late(ServerTest):
    arguments = ("--answer-timeout", "1", "--draft", "none", "--threads", "1")

    def test_answers_that_take_too_long(self):
        several = dict(LONG, n=8)
        reply = self.server.post(CHAT, dict(several, stream=False))
        self.refused(reply, 504, "longer")
        events = self.server.post(CHAT, several).text.strip().split("\n\n")
        self.assertIn("longer", json.loads(events[-1][6:])["error"]["message"])
        self.alive()


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}


class End(server_support.unittest.TestCase):
    def listens(self, server):
        try:
            server.socket().close()
            return True
        except OSError:
            return False

    def test_answers_under_way_are_finished(self):
        server = Server("--grace", "300")
        connection, response = begin(server, max_tokens=300)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(eventually(lambda: not self.listens(server)))
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        connection.close()
        self.assertEqual(server.stop(), 0)

    def test_a_second_signal_does_not_wait(self):
        server = Server("--grace", "5760")
        streams = [begin(server, n=4) for _ in range(2)]
        server.process.send_signal(signal.SIGINT)
        self.assertTrue(eventually(lambda: not self.listens(server)))
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(timeout=server_support.TIMEOUT), 0)  # nothing is read: it would not end else
        for connection, _ in streams:
            connection.close()
        server.stop()

    def test_preparing_does_not_hold_it_up(self):
        """A server that must end gives up what it prepares. Processor time tells: a busy machine makes both parts longer."""
        for path, body in (("/tokenize", {"content": "a" * (8 << 20)}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "ab " * (3 << 20)}]}),
                           ("/v1/chat/completions", {"messages": server_support.TALE, "tools": [TOOL] * 30000})):
            whole = 0
            for cut in False, True:
                server = Server("--grace", "0")
                before = server.cpu()
                connection = server.connect()
                connection.request("POST", path, json.dumps(body))
                if cut:
                    self.assertTrue(eventually(lambda: server.cpu() - before > whole / 10))
                else:
                    connection.getresponse().read()
                    whole = server.cpu() - before
                server.process.send_signal(signal.SIGTERM)
                _, status, used = os.wait4(server.process.pid, 0)
                server.process.returncode = status
                connection.close()
                self.assertEqual(status, 0)
                if cut and not server_support.SANITIZED:  # which looks for leaks at the end
                    self.assertLess(used.ru_utime + used.ru_stime - before, 0.7 * whole + 0.1, path)
                server.stop()

    def test_probabilities_do_not_hold_it_up(self):
        server = Server("--grace", "0")
        connection = server.connect()
        warmed = server.metric("spry_steps_total") or 0
        connection.request("POST", "/v1/completions", json.dumps(ECHO))
        self.assertTrue(eventually(lambda: (server.metric("spry_steps_total") or 0) > warmed))
        self.assertEqual(server.stop(), 0)
        with self.assertRaises((OSError, http.client.HTTPException, AssertionError)):
            self.assertEqual(connection.getresponse().status, 200)  # it was not waited for
        connection.close()

    def test_wrong_use(self):
        for arguments, code, words in ((["--host", "0.0.0.0"], 1, "--api-key-file"), (["--port", "99999"], 2, "port"),
                                       (["--host", "not a host"], 1, "no such address"), (["nothing.gguf"], 1, "nothing"),
                                       (["--api-key-file", "/nowhere"], 1, "/nowhere"),
                                       (["--api-key-file", "/dev/null"], 1, "no key"), (["--parallel", "0"], 2, "parallel")):
            result = spry("serve", *arguments, "--kv-bytes", "64M", stdin=None)
            self.assertEqual(result.code, code, result.errors)
            self.assertIn(words, result.errors)
        server = Server("--insecure", host="0.0.0.0")
        self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(server.stop(), 0)

    def test_port_in_use(self):
        server = Server()
        result = spry("serve", "--port", str(server.port), "--kv-bytes", "64M", stdin=None)
        self.assertEqual(result.code, 1)
        self.assertIn("port %d" % server.port, result.errors)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
