"""Every command in docs/SERVER.md and docs/api, as written there."""

import glob
import json
import os
import re
import subprocess

import server_support
from server_support import ROOT, TIMEOUT, ServerTest, environment


def pages():
    """The text of all pages about the server."""
    names = [os.path.join(ROOT, "docs", "SERVER.md")] + sorted(glob.glob(os.path.join(ROOT, "docs", "api", "*.md")))
    texts = []
    for name in names:
        with open(name, encoding="utf-8") as file:
            texts.append(file.read())
    return texts


class Page(ServerTest):
    arguments = ("--allow-pin",)

    def test_every_command(self):
        blocks = [block for text in pages() for block in re.findall(r"(?ms)^```sh\n(.*?)^```", text)]
        commands = [command for block in blocks for command in re.split(r"(?m)^(?=curl )", block) if command.strip()]
        self.assertGreater(len(commands), 25)
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
        page = pages()[0]
        with open(os.path.join(ROOT, "apps", "server", "http", "http_route.c"), encoding="utf-8") as file:
            paths = re.findall(r'\{"(?:GET|POST)", "([^"*]+)', file.read())
        for path in paths:
            if path not in ("/page.json", "/v1/models/", "/v1/responses/", "/api/chats/", "/v1/streams/"):
                self.assertIn("`%s`" % path, page.replace("POST ", "").replace("GET ", ""))


if __name__ == "__main__":
    server_support.main()
