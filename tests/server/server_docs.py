"""Every command in docs/SERVER.md, as it stands there."""

import json
import os
import re
import subprocess

import server_support
from server_support import ROOT, TIMEOUT, ServerTest, environment


class Page(ServerTest):
    arguments = ("--allow-pin",)

    def test_every_command(self):
        with open(os.path.join(ROOT, "docs", "SERVER.md"), encoding="utf-8") as file:
            blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", file.read())
        commands = [command for block in blocks for command in re.split(r"(?m)^(?=curl )", block) if command.strip()]
        self.assertGreater(len(commands), 10)
        for command in commands:
            with self.subTest(command=command):
                here = command.replace("localhost:8080", "127.0.0.1:%d" % self.server.port)
                result = subprocess.run(["bash", "-c", here], capture_output=True, timeout=TIMEOUT, env=environment(), check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                out = result.stdout.decode("utf-8")
                self.assertTrue(out.strip())
                if out.startswith("{") and out.count("\n") <= 1:
                    self.assertIsNone(json.loads(out).get("error"))

    def test_every_path(self):
        with open(os.path.join(ROOT, "docs", "SERVER.md"), encoding="utf-8") as file:
            page = file.read()
        with open(os.path.join(ROOT, "apps", "server", "http", "http_route.c"), encoding="utf-8") as file:
            paths = re.findall(r'\{"(?:GET|POST)", "([^"*]+)', file.read())
        for path in paths:
            if path not in ("/page.css", "/page.js", "/microphone.js", "/highlight.js", "/katex.js", "/v1/models/", "/v1/responses/", "/api/chats/", "/v1/streams/"):
                self.assertIn("`%s`" % path, page.replace("POST ", "").replace("GET ", ""))


if __name__ == "__main__":
    server_support.main()
