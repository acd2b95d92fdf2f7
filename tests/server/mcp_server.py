"""A small MCP server for tests, over standard input and output or, with the argument `http`, streamable HTTP on a free port that it
prints. Some of its tools do what they should not. Arguments: MODE [FOLDER]."""

import http.server
import json
import os
import socket
import sys
import threading
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
TEXT = {"type": "string"}
TOOLS = {
    "echo": ("Returns a text", {"text": TEXT}),
    "read": ("Reads a file", {"path": TEXT}),
    "write": ("Writes a file", {"path": TEXT, "text": TEXT}),
    "big": ("Returns many bytes", {"bytes": {"type": "integer"}}),
    "hang": ("Does not answer", {}),
    "flood": ("Sends notifications without end", {}),
    "leave": ("Ends the server", {}),
    "junk": ("Sends lines that are not JSON, and lies about lengths", {}),
    "fail": ("Fails", {}),
    "refuse": ("Is refused by the protocol", {}),
    "picture": ("Returns a picture", {}),
    "about": ("Tells about the process", {}),
    "connect": ("Opens a connection", {"port": {"type": "integer"}}),
    "more": ("Adds a tool", {}),
    "ask": ("Asks the client things", {}),
}


def text(result):
    return {"content": [{"type": "text", "text": result}]}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return "written"


def connect(port):
    with socket.create_connection(("127.0.0.1", port)):
        return "connected"


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def call(number, name, given):
    """The result of a call."""
    if name == "hang":
        if len(sys.argv) > 2:
            write(os.path.join(sys.argv[2], "hangs"), "")
        time.sleep(100000)
    elif name == "flood":
        while True:
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 100000}})
    elif name == "leave":
        sys.stderr.write("I leave\n")
        os._exit(3)
    elif name == "junk":
        sys.stdout.write("hello\n{\"jsonrpc\": \n\n[1, 2]\nContent-Length: 99999999\r\n\r\n\x00\xff\n" + "[" * 5000 + "\n")
        send({"jsonrpc": "2.0", "id": number + 1000, "result": text("of nobody")})
        send({"jsonrpc": "2.0", "id": "x", "result": text("of nobody")})
    elif name == "picture":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}, *text("a picture")["content"]]}
    elif name == "more":
        TOOLS["another"] = ("Was added", {})
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    elif name == "ask":
        send({"jsonrpc": "2.0", "id": "a", "method": "ping"})
        send({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}})
        return text(" ".join(sorted(str(sorted(json.loads(sys.stdin.readline()))) for _ in range(2))))
    results = {
        "echo": lambda: given["text"],
        "read": lambda: read(given["path"]),
        "write": lambda: write(given["path"], given["text"]),
        "big": lambda: "x" * given["bytes"],
        "about": lambda: json.dumps({"id": os.getpid(), "folder": os.getcwd(), "variables": dict(os.environ)}),
        "connect": lambda: connect(given["port"]),
    }
    try:
        return text(results.get(name, lambda: "done")()) if name != "fail" else {**text("it failed"), "isError": True}
    except OSError as error:
        return {**text(str(error)), "isError": True}


def answer(message):
    """The reply; None: none is wanted."""
    number, method, given = message.get("id"), message.get("method"), message.get("params", {})
    if number is None:
        return None
    result = {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}
    elif method == "tools/list":
        names = sorted(TOOLS) + (["echo", "a" * 100, "we.ird"] if MODE == "twice" else [])
        half = len(names) // 2 if not given.get("cursor") else 0
        result = {"tools": [{"name": name, "description": TOOLS.get(name, TOOLS["echo"])[0],
                             "inputSchema": {"type": "object", "properties": TOOLS.get(name, TOOLS["echo"])[1]}}
                            for name in (names[:half] if half else names[len(names) // 2:])]}
        if half:
            result["nextCursor"] = "rest"
    elif method == "tools/call" and given["name"] == "refuse":
        return {"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": "such arguments are not taken"}}
    elif method == "tools/call":
        result = call(number, given["name"], given.get("arguments", {}))
    return {"jsonrpc": "2.0", "id": number, "result": result}


class Http(http.server.BaseHTTPRequestHandler):
    """Replies are JSON, or an event of a stream where the request's id is even."""

    protocol_version = "HTTP/1.1"
    seen = []
    sessions = {"s1"}

    def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
        pass

    def reply(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self):
        Http.seen.append(("DELETE", dict(self.headers)))
        self.reply(b"")

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Http.seen.append((message.get("method"), dict(self.headers)))
        name = message.get("params", {}).get("name")
        if message.get("method") != "initialize" and self.headers.get("Mcp-Session-Id") not in Http.sessions:
            self.reply(b"{}", 404)
        elif "id" not in message:
            self.reply(b"", 202)
        elif name == "moved":
            self.reply(b"", 307, Location="/other")
        elif name == "short":  # ends before the length it named
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc": "2.0"')
            self.close_connection = True
        elif name == "html":
            self.reply(b"<html>", Content_Type="text/html")
        elif message["id"] % 2:
            self.reply(json.dumps(answer(message)).encode(), Content_Type="application/json", Mcp_Session_Id="s1")
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            notice = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
            events = "event: message\r\ndata: %s\r\n\r\nid: 5\ndata: %s\n\n" % (json.dumps(notice), json.dumps(answer(message)))
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(events.encode()), events.encode()))


class HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):  # a client that leaves is no error
        pass


def serve():
    """An HTTP server in this process."""
    for name in ("moved", "short", "html"):
        TOOLS[name] = ("Replies in a wrong way", {})
    server = HttpServer(("127.0.0.1", 0), Http)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main():
    if MODE == "dies":
        sys.stderr.write("no such\tluck\n")
        sys.exit(5)
    for line in sys.stdin:
        if MODE == "mute":
            continue
        reply = answer(json.loads(line))
        if reply:
            send(reply)


if __name__ == "__main__":
    main()
