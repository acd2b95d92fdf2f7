"""Requests that are broken, wrong, too large, too slow or too deep: each gets its own clear answer; other clients are not affected."""

import json
import os
import select
import socket
import time
import unittest

import server_support
from server_support import MODEL, TALE, Server, ServerTest, eventually, public

CHAT = "/v1/chat/completions"


class Wrong(ServerTest):
    def test_json_that_is_none(self):
        for body in (b"", b"{", b"[]", b"null", b"7", b'"x"', b"{\"a\":}", b"{'a':1}", b"\xff\xfe{}", b"{}{}", b"\0",
                     b'{"messages": "\xc3\x28"}', b'{"a":1,"a":2}', b"{\"a\":1e999}"):
            for path in (CHAT, "/v1/completions", "/completion", "/tokenize"):
                self.refused(self.server.post(path, body), 400)
        self.alive()

    def test_json_test_suite(self):
        folder = public("badinput", "JSONTestSuite")
        if not folder:
            self.skipTest("no data")
        count = 0
        for where, _, names in os.walk(folder):
            for name in names:
                if not name.endswith(".json"):
                    continue
                with open(os.path.join(where, name), "rb") as file:
                    reply = self.server.post("/tokenize", file.read())
                self.assertEqual(reply.status, 400, name)
                self.assertIn("message", reply.json["error"], name)
                count += 1
        self.assertGreater(count, 200)
        self.alive()

    def test_deep_nesting(self):
        for depth in (100, 1000, 100000):
            self.refused(self.server.post(CHAT, b'{"messages":' + b"[" * depth + b"]" * depth + b"}"), 400)
            self.refused(self.server.post(CHAT, b'{"a":' * depth + b"1" + b"}" * depth), 400)
        self.alive()

    def test_fields_of_the_wrong_kind(self):
        for field, value in (("temperature", "hot"), ("temperature", -1), ("temperature", [1]), ("top_p", 2), ("n", 0),
                             ("n", 1.5), ("n", "two"), ("stream", "yes"), ("stop", 5), ("stop", [1]), ("stop", ["x"] * 17),
                             ("max_tokens", 0), ("max_tokens", -5), ("max_tokens", 1e30), ("logprobs", 3),
                             ("top_logprobs", 21), ("response_format", "json"), ("response_format", {"type": "xml"}),
                             ("stream_options", 4), ("tools", {}), ("logit_bias", {"": 1}), ("logit_bias", {"1": "a"}),
                             ("guided_regex", 7), ("guided_choice", "a"), ("messages", {}), ("messages", []),
                             ("messages", [1]), ("messages", [{}]), ("messages", [{"role": 1}]), ("seed", "x"),
                             ("messages", [{"role": "user", "content": 5}]), ("model", 9), ("stop", "a\0b"),
                             ("messages", [{"role": "user", "content": [{"type": "image_url"}]}])):
            with self.subTest(field=field, value=value):
                error = self.refused(self.server.chat(**{field: value}), 400, field)
                self.assertIn(field, error["param"])
        self.refused(self.server.chat(grammar="root ::= ("), 400, "line 1")
        self.refused(self.server.chat(guided_regex="("), 400)
        self.refused(self.server.chat(guided_json={"type": "nothing"}), 400)
        self.refused(self.server.chat(grammar='root ::= "a"', guided_regex="a"), 400, "another")
        self.refused(self.server.chat(logit_bias={"999999": 1}), 400, "999999")
        self.alive()

    def test_unknown_fields_are_named_and_nulls_are_not(self):
        reply = self.server.chat(user="me", metadata={"a": [1]}, stop=None, tools=None, seed=None,
                                 response_format=None, logit_bias=None, stream=None, n=None)
        self.assertEqual(reply.status, 200, reply.text)
        self.assertNotIn("x-spry-ignored", reply.headers)
        self.assertEqual(self.server.chat(frobnicate=True).headers["x-spry-ignored"], "frobnicate")

    def test_names_of_models(self):
        for name in ("nobody", "../../etc/passwd", "/etc/passwd", "..", ".", "a/b", "a\\b", "\u0000", "x" * 5000, "%2e%2e"):
            reply = self.server.chat(model=name)
            self.assertIn(reply.status, (400, 404), name)
            self.assertNotIn("root:", reply.text)
            self.assertNotIn(server_support.HOME, reply.text)
        self.alive()

    def test_paths_and_methods(self):
        self.refused(self.server.get("/nothing"), 404, "path")
        self.refused(self.server.get("/../../etc/passwd"), 404)
        reply = self.server.get(CHAT)
        self.refused(reply, 405, "POST")
        self.assertEqual(reply.headers["allow"], "POST")
        self.assertEqual(self.server.ask("DELETE", "/v1/models").status, 405)
        self.assertEqual(self.server.ask("OPTIONS", CHAT).status, 405)

    def test_control_characters_never_become_control_tokens(self):
        said = self.server.post("/apply-template", {"messages": [{"role": "user", "content": "<|im_end|>"}]})
        self.assertEqual(said.status, 200)
        usage = self.server.chat(messages=[{"role": "user", "content": "<|im_end|>"}], max_tokens=1).json["usage"]
        short = self.server.chat(messages=[{"role": "user", "content": "a"}], max_tokens=1).json["usage"]
        self.assertGreater(usage["prompt_tokens"], short["prompt_tokens"] + 2)


class Large(ServerTest):
    arguments = ("--max-body", "64K", "--idle-timeout", "15")

    def test_body_that_is_announced(self):
        connection = self.server.connect()
        connection.putrequest("POST", CHAT)
        connection.putheader("Content-Length", str(10 ** 12))
        connection.endheaders()
        self.refused(server_support.Reply(connection.getresponse()), 413, "65536")
        connection.close()

    def test_body_in_chunks(self):
        def chunks():
            for _ in range(40):
                yield b"x" * 4096

        connection = self.server.connect()
        connection.request("POST", CHAT, chunks(), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        self.refused(server_support.Reply(connection.getresponse()), 413, "65536")
        connection.close()
        self.alive()

    def test_body_without_end_is_answered_and_cut(self):
        with self.server.socket() as client:
            client.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            answer = b""
            with self.assertRaises(OSError):  # the answer arrives while the body is sent
                while True:
                    client.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                    if select.select([client], [], [], 0)[0] and b"too_large" not in answer:
                        answer += client.recv(65536)
            self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), answer)
        self.alive()

    def test_head(self):
        with self.server.socket() as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: " + b"y" * 100000 + b"\r\n\r\n")
            reply = client.recv(1000)
            self.assertTrue(reply.startswith(b"HTTP/1.1 431 "), reply)
            self.assertIn(b"application/json", reply)
        self.alive()

    def test_garbage_instead_of_http(self):
        for garbage in (b"\0" * 2000 + b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\r\n" * 1000):
            with self.server.socket() as client:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                client.settimeout(server_support.TIMEOUT)
                try:
                    self.assertNotIn(b"200 OK", client.recv(1000))
                except ConnectionError:
                    pass
        self.alive()

    def test_slow_client_is_let_go(self):
        with self.server.socket() as client:
            client.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            client.recv(1000)  # returns
        self.alive()

    def test_client_that_sends_byte_by_byte(self):
        body = json.dumps({"messages": TALE, "max_tokens": 2}).encode()
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body))
        with self.server.socket() as client:
            for byte in head + body:
                client.send(bytes([byte]))
            self.assertIn(b"200 OK", client.recv(1000))

    def test_half_closed_client_frees_everything(self):
        body = json.dumps({"messages": TALE, "max_tokens": 2000, "ignore_eos": True}).encode()
        with self.server.socket() as client:
            client.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
            client.shutdown(socket.SHUT_WR)
            self.assertTrue(eventually(lambda: self.server.metric("spry_requests_running") == 0))
        self.alive()


class Insecure(unittest.TestCase):
    """A server that other machines reach without keys still refuses names of other sites (DNS rebinding)."""

    def test_hosts(self):
        server = Server("--insecure", host="0.0.0.0")
        try:
            for host, status in (("127.0.0.1", 200), ("192.168.7.9:8080", 200), ("[fd00::1]:80", 200), ("localhost", 200),
                                 ("evil.example", 403), ("127.0.0.1.evil.example", 403)):
                self.assertEqual(server.ask("GET", "/v1/models", headers={"Host": host}).status, status, host)
        finally:
            server.stop()


class ManyParts(ServerTest):
    """Messages of many small parts are read in time that grows with their size only."""

    def seconds(self, path, body):
        """Of processor time, which does not depend on what else the machine does."""
        began = self.server.cpu()
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, 400, reply.text[:300])  # the prompt exceeds the context
        return self.server.cpu() - began

    def test_small_parts(self):
        def anthropic(n):
            return self.seconds("/v1/messages", {"model": MODEL, "max_tokens": 1, "messages": [
                {"role": "assistant", "content": [{"type": "text", "text": "ab "}] * n}, {"role": "user", "content": "x"}]})

        def responses(n):
            return self.seconds("/v1/responses", {"input": [
                {"role": "assistant", "content": [{"type": "output_text", "text": "ab "}] * n}]})

        for ask in (anthropic, responses):
            ask(20000)
            few, many = ask(40000), ask(160000)
            self.assertLess(many, 10 * few + 1, "four times the parts")

    def test_settings(self):
        reply = self.server.get("/v1/settings").json
        self.assertTrue(reply["loaded"])
        settings = {one["name"]: one for one in reply["settings"]}
        self.assertEqual((settings["top_p"]["min"], settings["top_p"]["max"]), (0, 1))
        self.assertGreater(settings["temperature"]["value"], 0)
        self.assertIsNone(settings["seed"]["value"])
        self.assertTrue(all(one["help"] for one in settings.values()))
        self.refused(self.server.get("/v1/settings?model=nobody"), 404, "nobody")


if __name__ == "__main__":
    server_support.main()
