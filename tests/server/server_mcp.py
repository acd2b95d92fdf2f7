"""MCP servers of --mcp: programs in sandboxes and addresses, well behaved and not; tests/server/mcp_server.py is each of them."""

import ctypes
import json
import os
import sys
import tempfile
import threading

import mcp_server
import server_support
from server_support import HOME, Server, ServerTest, eventually, spry

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mcp_server.py")
LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1  # asks for its version
TOO_LONG = "more than 4194304 bytes"


def write_file(servers, name="mcpServers"):
    """The path of a file for --mcp."""
    handle, path = tempfile.mkstemp(dir=HOME, suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({name: servers}, file)
    return path


def program(mode="", *more, **members):
    return {"command": sys.executable, "args": [PROGRAM, mode, *more], **members}


class McpTest(ServerTest):
    @classmethod
    def start(cls, servers, *arguments, **changes):
        cls.server = Server("--mcp", write_file(servers), "--no-autoload", *arguments, **changes)

    def call(self, tool, **arguments):
        return self.server.post("/v1/tools/call", {"name": tool, "arguments": arguments})

    def result(self, tool, failed=False, **arguments):
        reply = self.call(tool, **arguments)
        self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(reply.json["failed"], failed, reply.text)
        return reply.json["result"]

    def servers(self):
        return {one["name"]: one for one in self.server.get("/v1/tools").json["servers"]}

    def runs(self, name):
        """The server runs, again."""
        self.assertTrue(eventually(lambda: self.servers()[name]["state"] == "ready"), self.servers())


class Programs(McpTest):
    @classmethod
    def setUpClass(cls):
        cls.own, cls.secret = tempfile.mkdtemp(dir=HOME), os.path.join(HOME, "secret")
        with open(cls.secret, "w", encoding="utf-8") as file:
            file.write("secret")
        cls.start({"t": program("", cls.own, env={"GIVEN": "<${GREETING}>"}, other=1),
                   "two": program("twice"),
                   "free": program(sandbox=False, timeout=1),
                   "net": program(network=True, cwd=cls.own),
                   "dies": program("dies"), "none": {"command": "no-such-program"}, "off": {"disabled": True}},
                  GREETING="hello", SPRY_KEY="of the server")

    def test_the_list(self):
        servers = self.servers()
        self.assertEqual(sorted(servers), ["dies", "free", "net", "none", "t", "two"])
        self.assertEqual(servers["t"]["state"], "ready")
        tools = {one["name"]: one for one in servers["t"]["tools"]}
        self.assertEqual(tools["t__echo"], {"name": "t__echo", "description": "Returns a text", "parameters":
                                            {"type": "object", "properties": {"text": {"type": "string"}}}})
        self.assertIn("its last words: no such luck", servers["dies"]["error"])
        self.assertIn("No such file", servers["none"]["error"])
        log = "".join(self.server.log)
        self.assertIn('"other" is not known', log)
        self.assertEqual(self.server.get("/v1/tools").json["urls"], [])

    def test_names_that_cannot_be_used(self):
        names = [tool["name"] for tool in self.servers()["two"]["tools"]]
        self.assertEqual(names.count("two__echo"), 1)
        self.assertIn("two__we_ird", names)
        self.assertNotIn("two__" + "a" * 100, names)
        self.assertIn('tool "echo" is left out: another one has its name', "".join(self.server.log))
        self.assertEqual(self.result("two__we_ird"), "done")

    def test_results(self):
        self.assertEqual(self.result("t__echo", text="caf\u00e9 \u0001 </script>"), "caf\u00e9 \u0001 </script>")
        self.assertEqual(self.result("t__picture"), "[image image/png: not shown]\na picture")
        self.assertEqual(self.result("t__fail", failed=True), "it failed")
        self.assertEqual(self.result("t__refuse", failed=True), "such arguments are not taken")
        self.assertEqual(self.result("t__ask"), "['error', 'id', 'jsonrpc'] ['id', 'jsonrpc', 'result']")

    def test_the_sandbox(self):
        own = os.path.join(self.own, "file")
        self.assertEqual(self.result("t__write", path=own, text="kept"), "written")
        self.assertEqual(self.result("t__read", path=own), "kept")
        self.assertEqual(self.result("free__read", path=self.secret), "secret")
        listens = self.server.port
        self.assertEqual(self.result("free__connect", port=listens), "connected")
        self.assertEqual(self.result("net__connect", port=listens), "connected")
        self.assertIn("not permitted", self.result("t__connect", failed=True, port=listens))
        if not LANDLOCK:
            self.skipTest("this kernel has no Landlock")
        for path in (self.secret, "/etc/shadow", os.path.join(self.own, "..", "secret"), "/proc/%d/environ" % os.getppid()):
            self.assertIn("denied", self.result("t__read", failed=True, path=path))
        os.symlink(self.secret, os.path.join(self.own, "link"))
        self.assertIn("denied", self.result("t__read", failed=True, path=os.path.join(self.own, "link")))
        self.assertIn("denied", self.result("t__write", failed=True, path=self.secret, text="x"))
        self.assertIn("denied", self.result("t__write", failed=True, path=PROGRAM + ".new", text="x"))
        self.assertIn("denied", self.result("net__read", failed=True, path=self.secret))

    def test_what_a_program_gets(self):
        about = json.loads(self.result("t__about"))
        self.assertEqual(about["variables"]["GIVEN"], "<hello>")
        self.assertNotIn("SPRY_KEY", about["variables"])
        self.assertNotIn("GREETING", about["variables"])
        self.assertEqual(os.path.realpath(json.loads(self.result("net__about"))["folder"]), os.path.realpath(self.own))

    def test_results_that_are_long(self):
        self.assertEqual(len(self.result("t__big", bytes=4000000)), 4000000)
        before = json.loads(self.result("t__about"))["id"]
        self.refused(self.call("t__big", bytes=20000000), 502, TOO_LONG)
        self.assertEqual(self.result("t__echo", text="still here"), "still here")
        self.assertEqual(json.loads(self.result("t__about"))["id"], before)

    def test_junk_between_messages(self):
        for _ in range(3):
            self.assertEqual(self.result("two__junk"), "done")

    def test_wrong_requests(self):
        self.refused(self.call("t__none"), 404, "t__none")
        self.refused(self.call("none__echo"), 404, "none__echo")
        self.refused(self.call("off__echo"), 404, "off__echo")
        self.refused(self.server.post("/v1/tools/call", {"name": "t__echo", "url": "http://127.0.0.1:1/"}), 400, "either")
        self.refused(self.server.post("/v1/tools/call", {"name": "t__echo", "arguments": []}), 400, "arguments")
        self.refused(self.server.post("/v1/tools/call", {"name": 5}), 400, "name")

    def test_calls_at_the_same_time(self):
        replies = [None] * 8
        def ask(at):
            replies[at] = self.result("net__echo", text=str(at))
        threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(replies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(replies, [str(at) for at in range(len(replies))])

    def test_a_list_that_changes(self):
        self.assertEqual(self.result("net__more"), "done")
        self.assertTrue(eventually(lambda: "net__another" in [tool["name"] for tool in self.servers()["net"]["tools"]]))


class Restarts(McpTest):
    """Each of these ends the program, which runs again afterwards."""

    @classmethod
    def setUpClass(cls):
        cls.start({"short": program(timeout=1), **{name: program() for name in ("leaves", "killed", "floods", "left")}})

    def test_one_that_leaves(self):
        self.runs("leaves")
        before = json.loads(self.result("leaves__about"))["id"]
        self.refused(self.call("leaves__leave"), 502, "it has ended; its last words: I leave")
        self.runs("leaves")
        self.assertNotEqual(json.loads(self.result("leaves__about"))["id"], before)

    def test_one_that_is_killed(self):
        self.runs("killed")
        before = json.loads(self.result("killed__about"))["id"]
        os.kill(before, 9)
        self.assertTrue(eventually(lambda: self.call("killed__about").status == 200 and json.loads(self.result("killed__about"))["id"] != before))

    def test_one_that_floods(self):
        self.runs("floods")
        self.refused(self.call("floods__flood"), 502, "64 MiB without being asked")
        self.runs("floods")

    def test_one_that_hangs(self):
        self.runs("short")
        before = json.loads(self.result("short__about"))["id"]
        self.refused(self.call("short__hang"), 502, "has not answered in time")
        self.runs("short")
        self.assertTrue(eventually(lambda: not os.path.exists("/proc/%d" % before)))

    def test_a_client_that_leaves(self):
        self.runs("left")
        before = json.loads(self.result("left__about"))["id"]
        body = json.dumps({"name": "left__hang"}).encode()
        with self.server.socket() as client:
            client.sendall(b"POST /v1/tools/call HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n%s"
                           % (self.server.port, len(body), body))
        # The call ends, although the program sleeps: no thread is left that waits for it.
        os.kill(before, 9)
        self.assertTrue(eventually(lambda: self.call("left__echo", text="x").status == 200))


class Addresses(McpTest):
    @classmethod
    def setUpClass(cls):
        cls.http = mcp_server.serve()
        url = "http://127.0.0.1:%d/mcp" % cls.http.server_port
        cls.start({"h": {"type": "http", "url": url, "headers": {"Authorization": "Bearer ${SECRET}"}, "timeout": 30},
                   "gone": {"url": "http://localhost:1/mcp"}}, SECRET="s3cret", http_proxy="http://127.0.0.1:1")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        assert mcp_server.Http.seen[-1][0] == "DELETE", "the session was not ended"
        cls.http.shutdown()
        cls.http.server_close()

    def test_replies_of_both_forms(self):
        self.runs("h")
        for word in ("one", "two", "three", "four"):
            self.assertEqual(self.result("h__echo", text=word), word)
        _, headers = mcp_server.Http.seen[-1]
        self.assertEqual(headers["Authorization"], "Bearer s3cret")
        self.assertEqual(headers["Mcp-Session-Id"], "s1")
        self.assertEqual(headers["MCP-Protocol-Version"], "2025-06-18")
        self.assertIn("text/event-stream", headers["Accept"])
        self.assertIn("cannot be reached", self.servers()["gone"]["error"])

    def test_replies_that_are_wrong(self):
        self.runs("h")
        for tool, words in (("moved", "redirects"), ("html", "not a message"), ("big", TOO_LONG), ("short", "reached")):
            self.runs("h")
            self.refused(self.call("h__" + tool, bytes=20000000), 502, words)
        self.runs("h")
        self.assertEqual(self.result("h__echo", text="again"), "again")

    def test_a_session_that_is_forgotten(self):
        self.runs("h")
        mcp_server.Http.sessions = set()
        self.refused(self.call("h__echo", text="x"), 502, "status 404")
        mcp_server.Http.sessions = {"s1"}
        self.assertTrue(eventually(lambda: self.call("h__echo", text="x").status == 200))


class Start(McpTest):
    @classmethod
    def setUpClass(cls):
        cls.start({"mute": program("mute")})

    def test_a_mute_server_stops_nothing_else(self):
        self.assertEqual(self.server.get("/health").status, 200)

    def test_files_that_are_wrong(self):
        for servers, words in (({"a": 5}, "must be an object"), ({"a": {}}, "must be an object"), ({"a": {"command": "x", "url": "y"}}, "must be an object"),
                               ({"a": {"command": 5}}, "must be an object"), ({"a": {"command": None}}, "must be an object"),
                               ({"a": {"command": "x", "args": "y"}}, "args"), ({"a": {"command": "x", "args": [1]}}, "args"),
                               ({"a": {"command": "x", "env": {"A": 5}}}, "env"), ({"a": {"command": "x", "env": {"A=B": "c"}}}, "env"),
                               ({"a": {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}}}, "env"),
                               ({"a": {"command": "x", "read": {}}}, "read"), ({"a": {"command": "x", "timeout": 0}}, "timeout"),
                               ({"a": {"url": "http://example.com/mcp"}}, "https"), ({"a": {"url": "file:///etc/passwd"}}, "https"),
                               ({"a": {"url": "http://127.0.0.1.example.com/"}}, "https"),
                               ({"a": {"url": "https://x/mcp", "headers": {"A": "b\r\nC: d"}}}, "headers"),
                               ({"a": {"url": "http://127.0.0.1/sse", "type": "sse"}}, "streamable"),
                               ({"": {"command": "x"}}, "name"), ({"x" * 40: {"command": "x"}}, "name"),
                               ({"a b": {"command": "x"}, "a_b": {"command": "x"}}, "another server"), ([], "mcpServers"),
                               ({str(at): {"command": "x"} for at in range(100)}, "64 servers")):
            result = spry("serve", "--mcp", write_file(servers), "--port", "0", "--no-autoload")
            self.assertEqual((result.code == 0, words in result.errors), (False, True), (servers, result.errors))
        for path in (write_file({}, "other"), "/no/such/file", HOME, "/dev/null"):
            result = spry("serve", "--mcp", path, "--port", "0", "--no-autoload")
            self.assertNotEqual(result.code, 0, path)

    def test_the_key_and_the_origin(self):
        keys = os.path.join(HOME, "mcp-keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write("the-key\n")
        os.chmod(keys, 0o600)
        server = Server("--api-key-file", keys, "--mcp", write_file({"t": program()}), "--no-autoload")
        try:
            body = {"name": "t__echo", "arguments": {"text": "x"}}
            self.refused(server.post("/v1/tools/call", body), 401)
            key = {"Authorization": "Bearer the-key"}
            self.refused(server.post("/v1/tools/call", body, Origin="http://example.com", **key), 403, "rigin")
            self.assertEqual(server.post("/v1/tools/call", body, **key).json["result"], "x")
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
