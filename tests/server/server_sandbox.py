"""The server's own sandbox: it changes only files that its options name, and --no-sandbox switches it off."""

import ctypes
import os
import sys
import unittest

import server_support
from server_support import HOME, MODEL, SANITIZED, Server

LANDLOCK_CREATE_RULESET, ABI_RENAME = 444, 2


def missing():
    if os.environ.get("SPRY_TEST_PLATFORM") == "posix" or not sys.platform.startswith("linux"):
        return "this build has no Landlock"
    abi = ctypes.CDLL(None, use_errno=True).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    return None if abi >= ABI_RENAME else "this kernel has no Landlock, or an old one"


WHY_NOT = missing()
if WHY_NOT:
    print("SKIPPED server_sandbox: %s" % WHY_NOT)


def rights(server):
    with open("/proc/%d/status" % server.process.pid, encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return fields["NoNewPrivs"].strip(), fields["Seccomp"].strip()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Files(unittest.TestCase):
    def server(self, *arguments):
        """Its models folder is a link, which can lead elsewhere later."""
        self.place = os.path.join(HOME, self.id().rsplit(".", 1)[1])
        for name in ("temporary", "here", "there"):
            os.makedirs(os.path.join(self.place, name))
        self.lead("here")
        return Server("--allow-pull", "--models-dir", os.path.join(self.place, "models"), "--allow-chats", "--chats",
                      os.path.join(self.place, "here", "chats.db"), "--audit-log", os.path.join(self.place, "audit"),
                      "--trace", os.path.join(self.place, "trace"), *arguments, TMPDIR=os.path.join(self.place, "temporary"))

    def lead(self, name):
        link = os.path.join(self.place, "models")
        if os.path.islink(link):
            os.remove(link)
        os.symlink(name, link)

    def derive(self, server, name):
        return server.post("/api/create", {"model": name, "from": MODEL, "system": "Be brief.", "stream": False}).status

    def test_what_options_name(self):
        server = self.server()
        self.assertEqual(rights(server), ("1", "0" if SANITIZED else "2"))
        self.assertEqual(self.derive(server, "one"), 200)
        chat = server.post("/api/chats", {"model": MODEL, "title": "A", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
        self.assertEqual(chat.status, 200, chat.text)
        self.lead("there")
        self.assertNotEqual(self.derive(server, "two"), 200)
        self.assertEqual(os.listdir(os.path.join(self.place, "there")), [])
        self.assertEqual(server.stop(), 0)
        for name in ("audit", "trace"):
            with open(os.path.join(self.place, name), encoding="utf-8") as file:
                self.assertTrue(file.read(), name)

    def test_without(self):
        server = self.server("--no-sandbox")
        self.assertEqual(rights(server), ("0", "0"))
        self.lead("there")
        self.assertEqual(self.derive(server, "two"), 200)
        self.assertEqual(len(os.listdir(os.path.join(self.place, "there"))), 1)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
