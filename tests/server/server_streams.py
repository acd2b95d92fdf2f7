"""Streams that outlive their connection: reading on, cancelling, what is refused."""

import http.client
import json
import socket

import server_support
from server_support import MODEL, TALE, ServerTest, eventually

BODY = {"model": MODEL, "messages": TALE, "stream": True, "temperature": 0, "ignore_eos": True}


def text_of(events):
    """The text of a list of (id, data)."""
    return "".join(json.loads(data)["choices"][0]["delta"].get("content") or ""
                   for _, data in events if data != "[DONE]" and json.loads(data)["choices"])


def parse(text):
    events = []
    for part in filter(None, text.split("\n\n")):
        lines = dict(line.split(": ", 1) for line in part.split("\n"))
        events.append((lines.get("id"), lines["data"]))
    return events


class Streams(ServerTest):
    def begin(self, name, **fields):
        """Asks, reads some events and hangs up; they are the result."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=server_support.TIMEOUT)
        connection.request("POST", "/v1/chat/completions", json.dumps(dict(BODY, stream_id=name, **fields)),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        read = b""
        while read.count(b"\n\n") < 5:
            read += response.read1()
        response.close()
        connection.close()
        return parse(read[:read.rindex(b"\n\n")].decode("utf-8"))

    def test_reads_on(self):
        whole = self.server.post("/v1/chat/completions", dict(BODY, max_tokens=120, stream=False))
        expected = whole.json["choices"][0]["message"]["content"]
        self.assertGreater(whole.json["timings"]["context_tokens"], 100)
        before = self.begin("reads-on-12345678", max_tokens=120)
        rest = self.server.ask("GET", "/v1/streams/reads-on-12345678", headers={"Last-Event-ID": before[-1][0]})
        self.assertEqual((rest.status, rest.headers["content-type"]), (200, "text/event-stream"))
        events = parse(rest.text)
        self.assertEqual(events[-1][1], "[DONE]")
        self.assertEqual(text_of(before) + text_of(events), expected)
        # It is kept when it has ended, from its beginning, too, and for its name only once.
        again = self.server.get("/v1/streams/reads-on-12345678")
        self.assertEqual(text_of(parse(again.text)), expected)
        self.assertEqual(self.server.post("/v1/chat/completions", dict(BODY, stream_id="reads-on-12345678")).status, 409)
        self.refused(self.server.ask("GET", "/v1/streams/reads-on-12345678", headers={"Last-Event-ID": "7"}), 400)

    def test_before_its_first_event(self):
        body = json.dumps(dict(BODY, stream_id="early-1234567890", max_tokens=3)).encode()
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
            eventually(lambda: self.server.get("/v1/streams/early-1234567890").status == 200)
        self.assertEqual(parse(self.server.get("/v1/streams/early-1234567890").text)[-1][1], "[DONE]")

    def test_cancel(self):
        self.begin("cancelled-123456", max_tokens=100000, context_overflow="slide")
        reply = self.server.ask("DELETE", "/v1/streams/cancelled-123456")
        self.assertEqual((reply.status, reply.json), (200, {"cancelled": "cancelled-123456"}))
        rest = parse(self.server.get("/v1/streams/cancelled-123456").text)
        self.assertIn("cancelled", json.loads(rest[-1][1])["error"]["message"])
        eventually(lambda: self.server.metric("spry_requests_running") == 0)

    def test_refused(self):
        for name in ("short", "x" * 65, "sixteen letters!", 5):
            self.refused(self.server.post("/v1/chat/completions", dict(BODY, stream_id=name)), 400, "stream_id")
        for method in ("GET", "DELETE"):
            self.assertEqual(self.server.ask(method, "/v1/streams/no-such-stream-at-all").status, 404)

    def test_an_error_before_the_first_event(self):
        bad = dict(BODY, stream_id="failing-12345678", messages=[{"role": "user", "content": "word " * 30000}])
        self.assertEqual(self.server.post("/v1/chat/completions", bad).status, 400)
        self.assertEqual(self.server.get("/v1/streams/failing-12345678").status, 404)


if __name__ == "__main__":
    server_support.main()
