"""The published npm clients of OpenAI, Ollama, Anthropic, the AI SDK and LangChain. They are installed into a folder that is removed afterwards; without npm,
or where it cannot fetch them, the test says so and is skipped."""

import os
import shutil
import subprocess
import tempfile

import server_support
from server_support import FETCHING, HOME, MODEL, Server, ServerTest, spry

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients")


class Clients(ServerTest):
    key_file = os.path.join(HOME, "client-keys.txt")

    @classmethod
    def setUpClass(cls):
        with open(cls.key_file, "w", encoding="utf-8") as file:
            file.write("a-client-key\n")
        cls.arguments = ("--api-key-file", cls.key_file)
        super().setUpClass()

    def installed(self):
        """A folder with the clients, or None and a word about it."""
        if not shutil.which("npm") or not shutil.which("node"):
            print("SKIPPED server_clients: npm is not there")
            return None
        folder = tempfile.mkdtemp(prefix="spry-clients-", dir=HOME)
        for name in ("package.json", "clients.mjs", "messages.mjs", "pictures.mjs"):
            shutil.copy(os.path.join(HERE, name), folder)
        try:
            done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder,
                                  capture_output=True, timeout=FETCHING, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            done = False
        if not done:
            print("SKIPPED server_clients: npm cannot fetch the clients")
        return folder if done else None

    def test_clients(self):
        folder = self.installed()
        if not folder:
            self.skipTest("no clients")
        wanted = spry("run", "-p", "Tell me a tale.", "-n", "16", "--temperature", "0").text[:-1]
        sees = os.path.join(server_support.ROOT, "tests", "data", "models", "qwen3-vl")
        eyes = Server(sees, *self.arguments)
        self.addCleanup(eyes.stop)
        for server, script, count, model, last in ((self.server, "clients.mjs", 11, MODEL, wanted),
                                                   (self.server, "messages.mjs", 12, MODEL, wanted),
                                                   (eyes, "pictures.mjs", 8, "qwen3-vl", os.path.join(sees, "image0.png"))):
            result = subprocess.run(["node", script, "http://127.0.0.1:%d" % server.port, "a-client-key", model, last],
                                    cwd=folder, capture_output=True, timeout=server_support.TIMEOUT, check=False)
            lines = result.stdout.decode("utf-8").splitlines()
            self.assertEqual([line for line in lines if not line.startswith("passed ")], [], result.stderr)
            self.assertEqual(len(lines), count)


if __name__ == "__main__":
    server_support.main()
