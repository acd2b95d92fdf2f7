"""Connections: many idle and slow ones do not lock out others, heads that can be read in two ways are refused, preflights,
and the last event of streams that a stopping server cuts off."""

import json
import resource
import signal
import socket
import threading

import server_support
from server_support import MODEL, Server, ServerTest

IDLE, SLOW_HEADS, HONEST = 2000, 200, 20


def head(*lines):
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Crowd(server_support.unittest.TestCase):
    def test_honest_clients_are_served(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, limit), limit))
        server = Server("--max-connections", "256", "--head-timeout", "3600")
        crowd = []
        try:
            for i in range(IDLE + SLOW_HEADS):
                crowd.append(socket.create_connection(("127.0.0.1", server.port), timeout=server_support.TIMEOUT))
                if i >= IDLE:
                    crowd[-1].sendall(b"GET /health HTTP/1.1\r\nHost: local")
            served = []

            def ask():
                for _ in range(5):
                    served.append(server.get("/health").status)  # waits for no other head: that would take an hour

            clients = [threading.Thread(target=ask) for _ in range(HONEST)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            self.assertEqual(served, [200] * 5 * HONEST)
            self.assertLess(server.threads(), 400)
        finally:
            for one in crowd:
                one.close()
            self.assertEqual(server.stop(), 0)

    def test_heads_that_never_come(self):
        server = Server("--head-timeout", "3")
        threads = server.threads()
        crowd = [server.socket() for _ in range(50)]
        try:
            for one in crowd:
                one.sendall(b"GET /health HTTP/1.1\r\nHost: local")
            for one in crowd:
                self.assertNotIn(b"200 OK", one.recv(1000))
            self.assertTrue(server_support.eventually(lambda: server.threads() <= threads))
        finally:
            for one in crowd:
                one.close()
            self.assertEqual(server.stop(), 0)

    def test_waiting_costs_no_thread(self):
        """Nor do clients that stop in the middle of a head or of a body."""
        server = Server("--max-connections", "1024", "--head-timeout", "3600", "--idle-timeout", "3600")
        threads, crowd = server.threads(), []
        part = head("POST /tokenize HTTP/1.1", "Host: localhost", "Content-Length: 100") + b'{"content": '
        try:
            for i in range(900):
                crowd.append(server.socket())
                crowd[-1].sendall((b"", b"GET /health HTTP/1.1\r\nHost: local", part)[i % 3])
            self.assertEqual(server.get("/health").status, 200)
            self.assertTrue(server_support.eventually(lambda: server.threads() <= threads))
            self.assertGreater(server.descriptors(), 900)
        finally:
            for one in crowd:
                one.close()
            self.assertEqual(server.stop(), 0)

    def test_full_of_kept_connections(self):
        """The one that has waited longest gives way."""
        server, kept = Server("--max-connections", "4", "--idle-timeout", "3600"), []
        try:
            for _ in range(10):
                kept.append(server.connect())
                kept[-1].request("GET", "/health")
                self.assertEqual(kept[-1].getresponse().read(), b'{"status":"ok"}')
            kept[-1].request("GET", "/health")
            self.assertEqual(kept[-1].getresponse().status, 200)
            self.assertEqual(kept[0].sock.recv(10), b"")
        finally:
            for one in kept:
                one.close()
            self.assertEqual(server.stop(), 0)

    def test_limit_of_an_address(self):
        server = Server("--max-per-address", "4")
        held = [server.connect() for _ in range(4)]
        try:
            for one in held:  # so that the server knows them
                one.request("GET", "/health")
                one.getresponse().read()
            with self.assertRaises(OSError):
                one = server.socket()
                one.sendall(head("GET /health HTTP/1.1", "Host: localhost"))
                if not one.recv(10):
                    raise OSError("closed")
        finally:
            for one in held:
                one.close()
            server.stop()


class Heads(ServerTest):
    arguments = ("--cors", "*")

    def send(self, data):
        with self.server.socket() as one:
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            parts = []
            while True:
                part = one.recv(65536)
                if not part:
                    return b"".join(parts)
                parts.append(part)

    def test_ambiguous_heads(self):
        for lines in (["GET /health HTTP/1.1"], ["GET /health HTTP/1.1", "Host: localhost", "Host: other"],
                      ["POST /completion HTTP/1.1", "Host: localhost", "Content-Length: 2", "Transfer-Encoding: chunked"]):
            reply = self.send(head(*lines))
            self.assertTrue(reply.startswith(b"HTTP/1.1 400"), reply)
            self.assertEqual(reply.count(b"HTTP/1.1"), 1)
        self.assertIn(b" 200 ", self.send(b"GET /health HTTP/1.0\r\n\r\n"))

    def test_preflight(self):
        asked = "authorization, x-api-key, anthropic-version, x-stainless-lang, x-evil"
        reply = self.server.ask("OPTIONS", "/v1/messages", headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST",
                                                                  "Access-Control-Request-Headers": asked})
        self.assertEqual(reply.headers["access-control-allow-headers"], asked.rsplit(",", 1)[0])
        self.assertIn("DELETE", reply.headers["access-control-allow-methods"])

    def test_forms_of_errors(self):
        self.assertIsInstance(self.server.get("/api/nothing").json["error"], str)
        reply = self.server.get("/api/chat")
        self.assertEqual((reply.status, reply.headers["allow"]), (405, "POST"))
        self.assertIsInstance(reply.json["error"], str)
        self.assertEqual(self.server.get("/v1/messages").json["type"], "error")
        self.refused(self.server.get("/nothing"), 404)


class Stopping(server_support.unittest.TestCase):
    def test_last_event(self):
        """Also of an answer that never pauses."""
        server = Server("--grace", "1")
        connection = server.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps({
            "model": MODEL, "messages": [{"role": "user", "content": "Tell me a tale."}], "stream": True, "ignore_eos": True, "max_tokens": 1000000,
            "context_overflow": "slide"}))
        response = connection.getresponse()
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        text = response.read().decode()
        connection.close()
        server.process.wait(timeout=server_support.TIMEOUT)
        last = [line for line in text.splitlines() if line][-1]
        self.assertIn("stopping", json.loads(last[6:])["error"]["message"])

    def test_metrics_and_keys(self):
        path = server_support.os.path.join(server_support.HOME, "connection-keys.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write("a-key\n")
        for arguments, status in (((), 401), (("--public-metrics",), 200)):
            server = Server("--api-key-file", path, *arguments)
            self.assertEqual(server.get("/metrics").status, status)
            self.assertEqual(server.get("/props").status, 401)
            server.stop()


if __name__ == "__main__":
    server_support.main()
