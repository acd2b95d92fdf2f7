"""Every command line of README.md is run as it is printed, in a folder with the files it names."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.request

import cli_support
from cli_support import HOME, ROOT, SPRY, TIMEOUT, environment

FOLDER = os.path.join(HOME, "readme")


def lines():
    """The lines of all blocks of shell commands, without their comments."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"(?s)```sh\n(.*?)```", file.read())
    return [re.sub(r"\s+# .*", "", line) for block in blocks for line in block.splitlines()]


def shell(line, **options):
    return subprocess.run(["bash", "-c", line], cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=TIMEOUT, env=environment(), **options)


class Readme(cli_support.CliTest):
    @classmethod
    def setUpClass(cls):
        os.makedirs(os.path.join(FOLDER, "build"))
        os.symlink(SPRY, os.path.join(FOLDER, "build", "spry"))
        for name in ("examples", "models"):
            os.symlink(os.path.join(ROOT, name), os.path.join(FOLDER, name))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(FOLDER)

    def test_every_line(self):
        run = 0
        for line in lines():
            with self.subTest(line=line):
                if line.startswith("make "):
                    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
                        self.assertRegex(file.read(), r"(?m)^%s:" % line.split()[1])
                elif "spry serve" in line or "curl" in line:
                    continue  # the next test
                elif "qwen3:4b" in line:  # without a terminal it says the command and downloads nothing
                    result = shell("echo Hello | " + line)
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertIn("spry pull hf:", result.stderr)
                elif "OWNER/REPO" in line:
                    self.assertEqual(shell(line).returncode, 1)
                elif line == "build/spry run":
                    self.assertEqual(shell("echo Hello | %s -n 8" % line).returncode, 0)
                else:
                    result = shell(line)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertTrue((result.stdout + result.stderr).strip() or "report" in line or "chats" in line, line)
                    run += 1
        self.assertGreaterEqual(run, 12)

    def test_the_schema_holds(self):
        line = next(line for line in lines() if "hero.json" in line)
        hero = json.loads(shell(line).stdout)
        self.assertEqual(sorted(hero), ["age", "name"])

    def test_the_server(self):
        serve, ask = (next(line for line in lines() if word in line) for word in ("spry serve", "curl"))
        server = subprocess.Popen([SPRY, "serve", "--port", "0"], cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=environment())
        try:
            address = re.search(rb"http://127\.0\.0\.1:\d+", server.stderr.readline()).group().decode()
            self.assertEqual(serve, "build/spry serve &")
            path, body = re.match(r"curl http://127\.0\.0\.1:8080(\S+) -d '(.*)'$", ask).groups()
            for _ in range(100):
                try:
                    with urllib.request.urlopen(urllib.request.Request(address + path, body.encode(),
                                                                       {"Content-Type": "application/json"}), timeout=TIMEOUT) as reply:
                        answer = json.load(reply)
                    break
                except ConnectionError:
                    time.sleep(0.1)
            self.assertTrue(answer["choices"][0]["message"]["content"])
        finally:
            server.terminate()
            server.communicate(timeout=TIMEOUT)

    def test_files_it_names_exist(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            links = re.findall(r"\]\(([^)#]+)[^)]*\)", file.read())
        self.assertGreater(len(links), 15)
        for link in links:
            self.assertTrue(os.path.exists(os.path.join(ROOT, link)), link)


if __name__ == "__main__":
    cli_support.main()
