"""/v1/tools: tools of this machine, called only when --allow-tool names them. The tools are a real HTTP server."""

import http.server
import json
import os
import socket
import threading

import server_support
from server_support import HOME, Server, ServerTest, eventually, spry

LIMIT = 1 << 20


class Tool(http.server.BaseHTTPRequestHandler):
    """Each path behaves in its own way; what was asked is kept."""

    asked = []
    left = threading.Event()  # the caller of /endless has closed its connection

    def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
        pass

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        Tool.asked.append(("GET", self.path, None))
        self.answer(b"the target of a redirect")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Tool.asked.append(("POST", self.path, body))
        name = self.path.split("?")[0]
        if name == "/echo":
            self.answer(json.dumps(body).encode(), **{"Content-Type": "application/json; charset=utf-8"})
        elif name == "/text":
            self.answer(b"3 degrees \xff")
        elif name == "/nothing":
            self.send_response(204)
            self.end_headers()
        elif name == "/moved":
            self.answer(b"", 307, Location="/echo")
        elif name == "/picture":
            self.answer(b"\x89PNG", **{"Content-Type": "image/png"})
        elif name == "/full":
            self.answer(b"x" * LIMIT)
        elif name == "/large":
            self.answer(b"x" * (LIMIT + 1))
        elif name == "/broken":
            self.answer(b"out of order", 500)
        elif name == "/dies":
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif name == "/endless":
            self.connection.recv(1)  # until the caller leaves
            Tool.left.set()
        self.close_connection = True


NAMES = ("echo", "text", "nothing", "moved", "picture", "full", "large", "broken", "dies", "endless")


class Tools(ServerTest):
    timeout = "3600"

    @classmethod
    def setUpClass(cls):
        cls.tools = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tool)
        cls.tools.daemon_threads = True
        threading.Thread(target=cls.tools.serve_forever, daemon=True).start()
        cls.base = "http://127.0.0.1:%d/" % cls.tools.server_port
        cls.deaf = socket.socket()  # its port is taken, and nothing listens there
        cls.deaf.bind(("127.0.0.1", 0))
        cls.closed = "http://127.0.0.1:%d/closed" % cls.deaf.getsockname()[1]
        cls.urls = [cls.base + name for name in NAMES] + [cls.closed]
        Tool.left.clear()
        # A proxy in the environment is not used.
        cls.server = Server("--allow-tool", ",".join(cls.urls), "--tool-timeout", cls.timeout,
                            under=("/usr/bin/env", "http_proxy=http://127.0.0.1:1", "all_proxy=http://127.0.0.1:1"))

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.tools.shutdown()
        cls.tools.server_close()
        cls.deaf.close()

    def call(self, name, **fields):
        return self.server.post("/v1/tools/call", {"url": self.base + name, **fields})


class Calls(Tools):
    def test_the_list(self):
        self.assertEqual(self.server.get("/v1/tools").json, {"urls": self.urls})

    def test_an_allowed_one(self):
        Tool.asked.clear()
        arguments = {"city": "Troms\u00f8", "days": [1, 2.5, None]}
        reply = self.call("echo", arguments=arguments)
        self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(json.loads(reply.json["result"]), arguments)
        self.assertEqual(self.call("echo").json, {"result": "{}"})
        self.assertEqual(self.call("text", arguments={}).json, {"result": "3 degrees \ufffd"})
        self.assertEqual(self.call("nothing").json, {"result": ""})
        self.assertEqual([one[:2] for one in Tool.asked],
                         [("POST", "/echo"), ("POST", "/echo"), ("POST", "/text"), ("POST", "/nothing")])

    def test_others_are_not_called(self):
        Tool.asked.clear()
        for name in ("other", "echo/", "echo?x=1", "echo#x", "Echo", "", "../echo"):
            self.refused(self.call(name), 403, "--allow-tool")
        for url in ("http://example.com/", "file:///etc/passwd", self.base.replace("127.0.0.1", "127.0.0.2") + "echo",
                    self.base + "echo," + self.base + "text", " " + self.base + "echo", ""):
            self.refused(self.server.post("/v1/tools/call", {"url": url}), 403, "--allow-tool")
        self.assertEqual(Tool.asked, [])

    def test_wrong_bodies(self):
        self.refused(self.server.post("/v1/tools/call", {}), 400, "url")
        self.refused(self.call("echo", arguments="{}"), 400, "arguments")
        self.assertEqual(self.call("echo", arguments={}, method="GET").headers["x-spry-ignored"], "method")
        self.refused(self.server.post("/v1/tools/call", "{"), 400)

    def test_redirects_are_refused(self):
        Tool.asked.clear()
        self.refused(self.call("moved", arguments={"x": 1}), 502, "307", "redirects")
        self.assertEqual(Tool.asked, [("POST", "/moved", {"x": 1})])

    def test_what_is_too_large_or_no_text(self):
        self.assertEqual(self.call("full").json["result"], "x" * LIMIT)
        self.refused(self.call("large"), 502, "more than %d bytes" % LIMIT)
        self.refused(self.call("picture"), 502, "image/png")

    def test_tools_that_fail(self):
        self.refused(self.call("broken"), 502, "status 500")
        self.refused(self.call("dies"), 502, "cannot be used")
        self.refused(self.server.post("/v1/tools/call", {"url": self.closed}), 502, "cannot be used")
        self.alive()

    def test_a_client_that_leaves_ends_its_call(self):
        Tool.asked.clear()
        with self.server.socket() as client:
            body = json.dumps({"url": self.base + "endless"}).encode()
            client.sendall(b"POST /v1/tools/call HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n%s"
                           % (self.server.port, len(body), body))
            self.assertTrue(eventually(lambda: ("POST", "/endless", {}) in Tool.asked))
            self.assertFalse(Tool.left.is_set())
        self.assertTrue(eventually(Tool.left.is_set))
        self.alive()


class Slow(Tools):
    timeout = "1"

    def test_the_time_limit(self):
        self.refused(self.call("endless"), 504, "within 1 seconds")


class Start(ServerTest):
    def test_without_the_option_nothing_is_allowed(self):
        self.assertEqual(self.server.get("/v1/tools").json, {"urls": []})
        self.refused(self.server.post("/v1/tools/call", {"url": "http://127.0.0.1:%d/health" % self.server.port}), 403,
                     "--allow-tool")

    def test_addresses_of_other_machines_are_refused_at_the_start(self):
        for url in ("http://example.com/x", "https://127.0.0.1/x", "127.0.0.1:80/x", "http://127.0.0.1@example.com/",
                    "http://user@127.0.0.1/", "http://localhost.example.com/", "file:///etc/passwd", "http://10.0.0.1/",
                    "http://127.0.0.1/#part", "http://127.0.0.1:99999/", "http://127.0.0.1/" + "x" * 3000,
                    "http://localhost:1/fine,http://[::2]/"):
            result = spry("serve", "--allow-tool", url, "--port", "0")
            self.assertEqual(result.code, 2, url)
            self.assertIn("is not a tool of this machine", result.errors)

    def test_the_key_and_the_origin(self):
        keys = os.path.join(HOME, "tool-keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write("the-key-of-the-tools\n")
        os.chmod(keys, 0o600)
        server = Server("--api-key-file", keys, "--allow-tool", "http://[::1]:1/x, http://localhost:1/y")
        try:
            call = {"url": "http://localhost:1/y"}
            key = {"Authorization": "Bearer the-key-of-the-tools"}
            self.refused(server.get("/v1/tools"), 401)
            self.refused(server.post("/v1/tools/call", call), 401)
            self.assertEqual(server.get("/v1/tools", **key).json, {"urls": ["http://[::1]:1/x", "http://localhost:1/y"]})
            self.refused(server.post("/v1/tools/call", call, **key), 502)
            self.refused(server.post("/v1/tools/call", call, Origin="http://example.com", **key), 403, "rigin")
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
