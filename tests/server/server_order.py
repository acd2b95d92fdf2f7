"""The order in which files are written, synced and renamed, as a library records it (tests/support/failing_calls.c): what a
power cut at any moment leaves is the old file or the whole new one, and what was acknowledged is there."""

import os
import subprocess
import unittest

import server_pull
import server_support
from server_support import HOME, MODEL, SPRY, Server, environment, tiny

LIBRARY = os.environ.get("FAILING_CALLS", "")
WHY_NOT = "" if LIBRARY else "this build has no recorded calls"
if WHY_NOT:
    print("SKIPPED server_order: %s" % WHY_NOT)


class Record:
    def __init__(self, name):
        self.path = os.path.join(HOME, name)

    def environment(self):
        return {"LD_PRELOAD": LIBRARY, "SPRY_RECORDED_CALLS": self.path}

    def calls(self):
        """(what, path, target of a rename), with real paths."""
        with open(self.path, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(" ") for line in file]
        real = lambda path: os.path.join(os.path.realpath(os.path.dirname(os.path.join(HOME, path))), os.path.basename(path))
        return [(line[0], *[real(path) for path in line[1:]]) for line in lines]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Order(server_pull.PullTest):
    def check_target(self, calls, target):
        """A file with this name appears by a rename, after its content was synced, and before its folder is."""
        target = os.path.realpath(target)
        renames = [i for i, call in enumerate(calls) if call[0] == "rename" and call[2] == target]
        self.assertEqual(len(renames), 1, calls)
        at = renames[0]
        source = calls[at][1]
        written = [i for i, call in enumerate(calls) if call[:2] == ("write", source)]
        synced = [i for i, call in enumerate(calls) if call[:2] == ("sync", source)]
        self.assertTrue(written and synced, calls)
        self.assertLess(max(written), max(synced))
        self.assertLess(max(synced), at)
        self.assertFalse([call for call in calls if call[:2] == ("write", target)], "written under its final name")
        self.assertTrue([i for i, call in enumerate(calls) if i > at and call[:2] == ("sync", os.path.dirname(target))],
                        "the folder is not synced: %s" % calls[at:])

    def run_recorded(self, record, *arguments):
        result = subprocess.run([SPRY, *arguments], capture_output=True, cwd=HOME, check=False,
                                env=environment(**record.environment()), timeout=server_support.TIMEOUT)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_converted_models(self):
        record, target = Record("convert-calls"), os.path.join(HOME, "ordered.gguf")
        self.run_recorded(record, "convert", tiny("llama", ""), target)
        self.check_target(record.calls(), target)

    def test_downloads(self):
        record, folder = Record("pull-calls"), os.path.join(HOME, "ordered-models")
        os.makedirs(folder)
        self.run_recorded(record, "pull", self.url + "/model.gguf", "m.gguf", "--models-dir", folder)
        self.check_target(record.calls(), os.path.join(folder, "m.gguf"))

    def test_derived_models(self):
        record, folder = Record("derive-calls"), os.path.join(HOME, "derived-models")
        os.makedirs(folder)
        server = Server("--allow-pull", "--models-dir", folder, **record.environment())
        self.assertEqual(server.post("/api/create", {"model": "d", "from": MODEL, "system": "Be brief.", "stream": False}).status, 200)
        self.check_target(record.calls(), os.path.join(folder, "d.derived.json"))
        self.assertEqual(server.stop(), 0)

    def test_chats(self):
        """When a chat is acknowledged, all that was written to the log of its file is synced."""
        record, path = Record("chat-calls"), os.path.join(HOME, "ordered.db")
        server = Server("--allow-chats", "--chats", path, **record.environment())
        for number in range(3):
            reply = server.post("/api/chats", {"model": MODEL, "title": "Chat %d" % number, "messages": [
                {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
            self.assertEqual(reply.status, 200, reply.text)
            log = [call[0] for call in record.calls() if call[1] == os.path.realpath(path + "-wal")]
            self.assertEqual((log[-1:], "write" in log), (["sync"], True), log)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
