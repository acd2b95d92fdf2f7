"""The published MCP servers, which are written with the published SDK, in the sandboxes of `spry serve --mcp` and over HTTP.
agents.py installs and runs them."""

import json
import os
import re
import socket
import subprocess
import tempfile
import time

from agents_support import ScriptServer, call

PACKAGES = ["@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-memory"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port, seconds=30):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)


class Trial:
    def __init__(self, programs):
        self.folder = tempfile.mkdtemp(prefix="spry-mcp-")
        self.notes = os.path.join(self.folder, "notes")
        os.mkdir(self.notes)
        with open(os.path.join(self.folder, "secret.txt"), "w", encoding="utf-8") as file:
            file.write("a secret")
        with open(os.path.join(self.notes, "oslo.txt"), "w", encoding="utf-8") as file:
            file.write("It rains in Oslo.")
        port = free_port()
        everything = os.path.join(programs, "mcp-server-everything")
        self.http = subprocess.Popen([everything, "streamableHttp"], env=dict(os.environ, PORT=str(port)),
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(port)
        servers = {"files": {"command": os.path.join(programs, "mcp-server-filesystem"), "args": [self.notes]},
                   "everything": {"command": everything, "args": ["stdio"]},
                   "memory": {"command": os.path.join(programs, "mcp-server-memory"), "write": [self.folder + "/memory"],
                              "env": {"MEMORY_FILE_PATH": self.folder + "/memory/graph.jsonl"}},
                   "web": {"url": "http://127.0.0.1:%d/mcp" % port}}
        os.mkdir(self.folder + "/memory")
        path = os.path.join(self.folder, "servers.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"mcpServers": servers}, file)
        self.server = ScriptServer("--mcp", path)
        until = time.monotonic() + 60
        while time.monotonic() < until and not all(state == "ready" for state in self.states().values()):
            time.sleep(0.2)

    def states(self):
        return {one["name"]: one["state"] for one in self.server.get("/v1/tools").json["servers"]}

    def tools(self, name):
        listed = {one["name"]: one["tools"] for one in self.server.get("/v1/tools").json["servers"]}
        return [tool["name"] for tool in listed[name]]

    def use(self, name, failed=False, **arguments):
        reply = self.server.post("/v1/tools/call", {"name": name, "arguments": arguments})
        assert reply.status == 200 and reply.json["failed"] == failed, reply.text[:500]
        return reply.json["result"]

    def files(self):
        """Reads and writes inside its folder, and nothing outside, also through a link that its own check would allow."""
        path = os.path.join(self.notes, "new.txt")
        self.use("files__write_file", path=path, content="written")
        assert "written" in self.use("files__read_text_file", path=path)
        self.use("files__read_text_file", failed=True, path=os.path.join(self.folder, "secret.txt"))
        self.use("files__write_file", failed=True, path="/tmp/outside.txt", content="x")
        return len(self.tools("files"))

    def loop(self):
        """The server calls the tool within one answer."""
        path = os.path.join(self.notes, "oslo.txt")
        self.server.answer(("It rains there.", ["It rains in Oslo."]), call("files__read_text_file", path=path))
        reply = self.server.chat(model="script", max_tokens=500, messages=[{"role": "user", "content": "What do my notes say of Oslo?"}],
                                 tools=[{"type": "mcp", "server_label": "files", "require_approval": "never"}])
        message = reply.json["choices"][0]["message"]
        assert message["content"] == "It rains there." and message["mcp_calls"][0]["name"] == "read_text_file", reply.text[:500]
        return 1

    def everything(self):
        return self.echo("everything")

    def web(self):
        return self.echo("web")

    def echo(self, name):
        assert "a word" in self.use(name + "__echo", message="a word")
        number = [tool for tool in self.tools(name) if re.search("__(add|get-sum)$", tool)][0]
        assert "42" in self.use(number, a=40, b=2)
        return len(self.tools(name))

    def memory(self):
        self.use("memory__create_entities", entities=[{"name": "Oslo", "entityType": "city", "observations": ["It rains."]}])
        assert "It rains." in self.use("memory__search_nodes", query="Oslo")
        return len(self.tools("memory"))

    CASES = (("server-filesystem", "files"), ("server-filesystem", "loop"), ("server-everything", "everything"),
             ("server-everything, streamable HTTP", "web"), ("server-memory", "memory"))

    def all(self, version):
        """Rows of the table; what went wrong is printed."""
        rows = []
        for title, case in self.CASES:
            try:
                result = "yes, %d tools" % getattr(self, case)() if case != "loop" else self.loop() and "yes"
            except (AssertionError, KeyError, IndexError, ValueError) as problem:
                print("mcp, %s: %s\n%s\n%s" % (case, problem, self.states(), "".join(self.server.log[-5:])))
                result = "no"
            what = {"loop": "called within an answer", "files": "its folder, and nothing else"}.get(case, "calls")
            rows.append("| `@modelcontextprotocol/%s` | %s | %s | %s |" % (title, version(title.split(",")[0]), what, result))
        self.server.stop()
        self.http.terminate()
        self.http.wait()
        return rows
