"""HTTP itself: every head that is not well-formed gets one answer, in JSON, and its connection is closed; forms that two
programs could read in two ways are refused; requests cut at any byte and readers that do not read leave nothing behind."""

import json
import socket

import server_support
from server_support import TALE, Server, ServerTest, eventually

CHAT = "/v1/chat/completions"
BODY = json.dumps({"content": "Once"}).encode()


def head(*lines):
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def post(*fields, path="/tokenize", body=BODY):
    return head("POST %s HTTP/1.1" % path, "Host: localhost", *fields) + body


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Raw(ServerTest):
    def send(self, data, close=False):
        """What a client gets that sends these bytes and reads to the end."""
        with self.server.socket() as client:
            client.sendall(data)
            if close:
                socket.socket.shutdown(client, socket.SHUT_WR)  # of a socket with TLS: without a word
            parts = []
            while True:
                try:
                    part = client.recv(65536)
                except ConnectionError:
                    part = b""
                if not part:
                    return b"".join(parts)
                parts.append(part)

    def answers(self, data, close=False):
        """The answers to these bytes, as pairs of status and parsed body."""
        rest, found = self.send(data, close), []
        while rest:
            first, _, rest = rest.partition(b"\r\n\r\n")
            lines = first.decode("latin-1").split("\r\n")
            self.assertRegex(lines[0], r"^HTTP/1\.[01] \d{3} ")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:])
            size = int(fields["content-length"])
            self.assertIn("application/json", fields["content-type"])
            found.append((int(lines[0].split()[1]), json.loads(rest[:size])))
            rest = rest[size:]
        return found

    def refused_once(self, data, status):
        """One answer, an error, and the connection is closed by the server."""
        (found,) = self.answers(data)
        self.assertEqual(found[0], status, (data[:200], found))
        self.assertEqual(sorted(found[1]["error"]), ["code", "message", "param", "type"])


class Heads(Raw):
    arguments = ("--max-head", "8K")

    def test_errors_of_http(self):
        for lines, status in ((["GET / HTTP/1.1"], 400), (["GET /health HTTP/1.1", "Host: a", "Host: a"], 400), (["GET /"], 400),
                              (["GET / HTTP/3.0", "Host: a"], 505), (["GET / HTTP/1.1", "Host: a", " folded"], 400),
                              (["GET / HTTP/1.1", "Host : a"], 400), (["GET / HTTP/1.1", "Host: a", "X"], 400),
                              (["G\x01T / HTTP/1.1", "Host: a"], 400), (["GET nothing HTTP/1.1", "Host: a"], 400),
                              (["GET /health%00 HTTP/1.1", "Host: localhost"], 400),
                              (["GET /" + "x" * 9000 + " HTTP/1.1", "Host: a"], 414),
                              (["GET / HTTP/1.1", "Host: a", "X: " + "x" * 9000], 431),
                              (["GET / HTTP/1.1", "Host: a"] + ["X: y"] * 200, 431)):
            self.refused_once(head(*lines), status)
        for garbage in (b"\0" * 100, b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\nHost: a\n\n", b"\r\n" * 100,
                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            (found,) = self.answers(garbage)
            self.assertIn(found[0], (400, 505))
        self.alive()

    def test_lengths(self):
        for length in ("-2", "+26", "26, 26", "26 26", "1e2", "0x1a", "", "99999999999999999999", "26\x00"):
            self.refused_once(post("Content-Length: " + length), 400)
        self.refused_once(post("Content-Length: 26", "Content-Length: 26"), 400)
        self.refused_once(post("Content-Length: 26", "Content-Length: 27"), 400)

    def test_smuggling(self):
        """A second request hidden in the first: never two answers."""
        inner = head("GET /health HTTP/1.1", "Host: localhost")
        chunked = chunk(BODY) + b"0\r\n\r\n"
        for fields, body in ((["Content-Length: 4", "Transfer-Encoding: chunked"], chunked + inner),
                             (["Transfer-Encoding: chunked", "Content-Length: %d" % len(chunked)], chunked + inner),
                             (["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], chunked + inner),
                             (["Transfer-Encoding: identity"], inner), (["Transfer-Encoding: xchunked"], chunked + inner),
                             (["Transfer-Encoding : chunked"], chunked + inner), (["Transfer-Encoding: \x0bchunked"], chunked + inner),
                             (["Transfer-Encoding:", " chunked"], chunked + inner), (["X: y\nTransfer-Encoding: chunked"], chunked + inner),
                             (["Transfer-Encoding: chunked"], b"1a\n" + BODY + b"\r\n0\r\n\r\n" + inner),
                             (["Transfer-Encoding: chunked"], b"1a;x\n\r\n" + BODY + b"\r\n0\r\n\r\n" + inner),
                             (["Transfer-Encoding: chunked"], chunk(BODY)[:-2] + b"xx0\r\n\r\n" + inner),
                             (["Transfer-Encoding: chunked"], b"100000000000000001a\r\n" + BODY + b"\r\n0\r\n\r\n" + inner),
                             (["Transfer-Encoding: chunked"], chunk(BODY) + b"0\r\nX: y\n\r\n" + inner)):
            found = self.answers(post(*fields, body=body))
            self.assertEqual(len(found), 1, (fields, found))
            self.assertIn(found[0][0], (400, 501), (fields, found))
        self.alive()

    def test_forms_that_are_allowed(self):
        close = "Connection: close"
        for request in (head("GET http://localhost/health HTTP/1.1", "Host: other", close),
                        head("GET http://LOCALHOST:%d?x HTTP/1.1" % self.server.port, "Host: x", close).replace(b"?x", b"/health?x"),
                        head("GET /health HTTP/1.0"), b"\r\n" + head("GET /health HTTP/1.1", "host:localhost", close),
                        post("Transfer-Encoding: chunked", close, body=chunk(BODY[:9]) + chunk(BODY[9:]) + b"0\r\nX-T: 1\r\nHost: evil\r\n\r\n"),
                        post("Transfer-Encoding: CHUNKED", close, body=b"01A;a=b\r\n" + (BODY + b" " * 10)[:26] + b"\r\n000\r\n\r\n")):
            (found,) = self.answers(request)
            self.assertEqual(found[0], 200, (request, found))
        self.refused_once(head("GET http://evil.example/health HTTP/1.1", "Host: localhost", close), 403)
        self.refused_once(head("GET http://user@localhost/health HTTP/1.1", "Host: localhost"), 400)

    def test_head_and_1_0(self):
        for request in (head("HEAD /health HTTP/1.1", "Host: localhost", "Connection: close"), head("HEAD /health HTTP/1.0")):
            reply = self.send(request)
            self.assertIn(b" 200 OK", reply)
            self.assertTrue(reply.endswith(b"\r\n\r\n"), reply)
        body = json.dumps({"messages": TALE, "max_tokens": 4, "stream": True}).encode()
        reply = self.send(head("POST %s HTTP/1.0" % CHAT, "Content-Length: %d" % len(body)) + body)
        self.assertNotIn(b"chunked", reply)
        self.assertTrue(reply.endswith(b"data: [DONE]\n\n"), reply)

    def test_pipelined(self):
        good = post("Content-Length: %d" % len(BODY))
        found = self.answers(good * 3 + head("GET / HTTP/9.9") + good)
        self.assertEqual([status for status, _ in found], [200, 200, 200, 505])

    def test_expect(self):
        with self.server.socket() as client:
            client.sendall(post("Expect: 100-continue", "Content-Length: %d" % len(BODY), body=b""))
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 100 "))
            client.sendall(BODY)
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "))

    def test_cut_at_any_byte(self):
        """The client closes its side after n bytes of a request."""
        files = self.server.descriptors()
        for request in (post("Content-Length: %d" % len(BODY)), post("Transfer-Encoding: chunked", body=chunk(BODY) + b"0\r\n\r\n")):
            for n in range(0, len(request), 3):
                found = self.send(request[:n], close=True)
                self.assertNotIn(b" 200 ", found)
                self.assertLessEqual(found.count(b"HTTP/1.1"), 1)
        self.assertTrue(eventually(lambda: self.server.descriptors() <= files + 1))
        self.alive()

    def test_stream_cut_at_any_byte(self):
        """The client leaves after n bytes of the reply."""
        files = self.server.descriptors()
        body = json.dumps({"messages": TALE, "max_tokens": 60, "stream": True, "ignore_eos": True}).encode()
        for n in (1, 2, 9, 50, 200, 700, 2000, 5000):
            with self.server.socket() as client:
                client.sendall(post("Content-Length: %d" % len(body), path=CHAT, body=body))
                got = 0
                while got < n:
                    part = client.recv(n - got)
                    self.assertTrue(part)
                    got += len(part)
        self.assertTrue(eventually(lambda: self.server.metric("spry_requests_running") == 0))
        self.assertTrue(eventually(lambda: self.server.descriptors() <= files + 1))
        self.alive()


class Bodies(Raw):
    arguments = ("--max-body", "64K")

    def test_too_large_is_answered_first(self):
        """The answer arrives although the client sends everything before it reads."""
        for data in (post("Content-Length: 3000000", body=b"x" * 3000000),
                     post("Transfer-Encoding: chunked", body=chunk(b"x" * 4096) * 700 + b"0\r\n\r\n"),
                     post("Transfer-Encoding: chunked", body=chunk(b"x" * 3000000) + b"0\r\n\r\n")):
            self.refused_once(data, 413)
        self.alive()

    def test_limits(self):
        exact = b'{"content": "' + b"x" * (65536 - 15) + b'"}'
        for body, status in ((exact, 200), (exact + b" ", 413)):
            (found,) = self.answers(post("Content-Length: %d" % len(body), "Connection: close", body=body))
            self.assertEqual(found[0], status)
            (found,) = self.answers(post("Transfer-Encoding: chunked", "Connection: close", body=chunk(body) + b"0\r\n\r\n"))
            self.assertEqual(found[0], status)


class Readers(server_support.unittest.TestCase):
    def test_reader_that_does_not_read(self):
        """It holds a connection for a time, and others are served."""
        server = Server("--idle-timeout", "15")
        try:
            threads = server.threads()
            large = json.dumps({"content": "word " * 200000, "with_pieces": True}).encode()
            clients = []
            for _ in range(4):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", server.port))
                client.sendall(post("Content-Length: %d" % len(large), body=large))
                clients.append(client)
            self.assertEqual(server.chat(max_tokens=2).status, 200)
            self.assertTrue(eventually(lambda: server.threads() <= threads + 1))
            for client in clients:
                client.close()
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
