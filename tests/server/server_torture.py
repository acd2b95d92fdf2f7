"""One call of the system fails: an allocation, a mapping, a thread, opening, writing or syncing a file, renaming, a socket
(tests/support/failing_calls.c). Whichever it is, the program says so in a sentence or goes on without; nothing crashes, nothing
leaks, and the answers after it have the right tokens.

A run of the tests fails a few calls of each kind; SPRY_TORTURE=1, which `make test-torture` sets, fails each once."""

import mmap
import os
import random
import re
import shutil
import struct
import subprocess
import unittest

import server_support
from server_support import HOME, SPRY, TALE, Server, environment, eventually, tiny

LIBRARY = os.environ.get("FAILING_CALLS", "")
EVERY = bool(os.environ.get("SPRY_TORTURE"))
KINDS = ("memory", "map", "thread", "open", "write", "sync", "rename", "socket")
CPU = ("--device", "cpu")  # libraries of GPUs abort when an allocation fails
SAMPLE = 6  # calls of each kind that fail in a usual run, for each thing that is done


class FailingCalls:
    """The file that the library maps: struct failing_calls of tests/support/failing_calls.h."""

    def __init__(self, name):
        self.path = os.path.join(HOME, name)
        with open(self.path, "wb") as file:
            file.write(bytes(4096))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 4096)

    def put(self, at, value):
        self.map[8 * at:8 * at + 8] = struct.pack("q", value)

    def get(self, at):
        return struct.unpack("q", self.map[8 * at:8 * at + 8])[0]

    def arm(self, kind, left, stays=False):
        self.put(1, 0)
        self.put(0, KINDS.index(kind) + 1)
        self.put(2, int(stays))
        self.put(1, left)

    def disarm(self):
        self.put(1, 0)
        self.put(2, 0)

    def failed(self):
        return self.get(3)

    def live(self):
        return self.get(4)

    def calls(self, kind):
        return self.get(5 + KINDS.index(kind) + 1)

    def environment(self):
        return {"LD_PRELOAD": LIBRARY, "SPRY_FAILING_CALLS": self.path}


def chosen(count):
    """Which calls fail: all, or the first, the last and some between."""
    if EVERY or count <= SAMPLE:
        return range(1, count + 1)
    return sorted({1, 2, count} | set(random.Random(count).sample(range(3, count), SAMPLE - 3)))


@unittest.skipUnless(LIBRARY, "this build has no failing calls")
class Commands(unittest.TestCase):
    """Programs of which one call fails: exit status 0 with the right output, or 1 with a sentence."""

    def run_once(self, calls, arguments, kind=None, left=0, stdin=b""):
        for name in self.files:
            path = os.path.join(HOME, name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.path.exists(path) and os.remove(path)
        before = [calls.calls(k) for k in KINDS]
        if kind:
            calls.arm(kind, left)
        result = subprocess.run([SPRY, *arguments], input=stdin, capture_output=True, cwd=HOME, check=False,
                                env=environment(**calls.environment()), timeout=server_support.TIMEOUT)
        calls.disarm()
        result.calls = [calls.calls(k) - b for k, b in zip(KINDS, before)]
        return result

    files = ()

    def torture(self, name, arguments, stdin=b"", check=None, measured=rb"^$", told=None):
        """`measured`: what of the output differs from run to run. `told`: where an output says what could not be had."""
        calls = FailingCalls(name)
        good = self.run_once(calls, arguments, stdin=stdin)
        self.assertEqual(good.returncode, 0, good.stderr)
        state = check() if check else None
        for kind, count in zip(KINDS, good.calls):
            for left in chosen(count):
                with self.subTest(command=name, kind=kind, call=left):
                    result = self.run_once(calls, arguments, kind, left, stdin)
                    errors = result.stderr.decode("utf-8", "replace")
                    self.assertIn(result.returncode, (0, 1), errors)
                    if result.returncode == 0 and told and told in result.stdout:
                        continue
                    if result.returncode == 0:
                        self.assertEqual(re.sub(measured, b"", result.stdout), re.sub(measured, b"", good.stdout), errors)
                    elif kind != "write":  # the sentence itself may be what is not written
                        self.assertTrue(errors.strip(), "no word about it")
                    if result.returncode == 0 and check:
                        self.assertEqual(check(), state)

    def test_run(self):
        self.torture("run", ["run", tiny("llama"), "Once upon", "-n", "12", "--temp", "0", "--kv-bytes", "8M", "-t", "2", *CPU])

    def test_inspect(self):
        memory = rb'"(context|kv|scratch|program|whole)": \d+'  # as much as is free, and what fits it
        self.torture("inspect", ["inspect", tiny("llama"), "--json"], measured=memory, told=b'"problem": ')
        self.torture("inspect-folder", ["inspect", tiny("qwen3", ""), "--json"], measured=memory,
                     told=b'"problem": ')

    def test_cache_folder(self):
        self.files = ["pages"]
        self.torture("cached", ["run", tiny("llama"), "Once upon a time " * 20, "-n", "4", "--temp", "0", "--kv-bytes", "8M",
                                "--cache-dir", os.path.join(HOME, "pages"), *CPU])

    def test_convert(self):
        target = os.path.join(HOME, "converted.gguf")
        self.files = ["converted.gguf"]

        def content():
            with open(target, "rb") as file:
                return file.read()
        self.torture("convert", ["convert", tiny("llama", ""), target], check=content)


CHAT = {"messages": TALE, "max_tokens": 4, "temperature": 0}
REQUESTS = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", dict(CHAT, stream=True)),
    ("/v1/chat/completions", dict(CHAT, guided_json={"type": "object", "properties": {"a": {"type": "integer"}}})),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 4, "temperature": 0, "logprobs": 2}),
    ("/v1/embeddings", {"input": ["Once", "twice"]}),
    ("/v1/responses", {"input": "Once", "max_output_tokens": 4, "temperature": 0, "store": False}),
    ("/v1/messages", {"messages": TALE, "max_tokens": 4, "temperature": 0, "stream": True}),
    ("/api/chat", {"messages": TALE, "options": {"num_predict": 4, "temperature": 0}}),
    ("/api/generate", {"prompt": "Once", "options": {"num_predict": 4, "temperature": 0}}),
    ("/completion", {"prompt": "Once", "n_predict": 4, "temperature": 0}),
    ("/tokenize", {"content": "Once upon a time"}),
    ("/apply-template", {"messages": TALE}),
    ("/api/chats", {"messages": TALE + [{"role": "assistant", "content": "Once."}], "title": "A tale"}),
)


@unittest.skipUnless(LIBRARY, "this build has no failing calls")
class Requests(unittest.TestCase):
    """A server of which one call fails while it answers: the answer, or an error, or the end of the connection; then the
    right answer, and no memory more than before."""

    @classmethod
    def setUpClass(cls):
        cls.calls = FailingCalls("server")
        cls.server = Server(tiny("qwen3"), "--allow-chats", "--chats", os.path.join(HOME, "tortured.db"), kv="8M", **cls.calls.environment())
        cls.name = cls.server.get("/v1/models").json["data"][0]["id"]

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, "exit code %d: %s" % (code, "".join(cls.server.log))

    def ask(self, path, body):
        """The reply without what is new in each."""
        reply = self.server.post(path, dict(body, model=self.name))
        return reply.status, server_support.re.sub(r'"(id|seed|updated|created|created_at|item_id|completed_at|timings|[a-z_]*duration|[a-z_]*ms)":("[^"]*"|\{[^}]*\}|[-0-9.e]+)', "", reply.text)

    def torture(self, path, body):
        calls = self.calls
        for _ in range(3):
            good = self.ask(path, body)
        self.assertEqual(good[0], 200, good[1])
        before = [calls.calls(kind) for kind in KINDS]
        self.assertEqual(self.ask(path, body), good)
        counts = [calls.calls(kind) - b for kind, b in zip(KINDS, before)]
        for kind, count in zip(KINDS, counts):
            for left in chosen(count):
                with self.subTest(path=path, kind=kind, call=left):
                    calls.arm(kind, left)
                    try:
                        status, text = self.ask(path, body)
                    except (OSError, server_support.http.client.HTTPException):
                        status, text = 0, ""
                    calls.disarm()
                    self.assertIsNone(self.server.process.poll(), "the server ended")
                    self.assertIn(status, (0, 200, 429, 500, 503), text)
                    if status == 200 and not body.get("stream"):
                        self.assertEqual(text, good[1])
                    self.assertEqual(self.ask(path, body), good)

    def settled(self):
        """Allocations that stay when nothing is asked."""
        for path, body in REQUESTS:
            self.ask(path, body)
        least = [self.calls.live()]

        def is_quiet():
            least.append(self.calls.live())
            return len(least) > 5 and least[-1] == least[-2] == least[-3]
        eventually(is_quiet)
        return least[-1]

    def test_every_interface(self):
        for _ in range(3):
            before = self.settled()
        failed = self.calls.failed()
        for path, body in REQUESTS:
            self.torture(path, body)
        failed = self.calls.failed() - failed
        self.assertGreater(failed, len(REQUESTS))
        grown = self.settled() - before
        print("%d calls failed; allocations grew by %d" % (failed, grown))
        self.assertLess(grown, 20 + failed // 10)

    def test_the_end(self):
        """A server of which a call fails while it ends, ends."""
        for kind in KINDS:
            for left in (1, 2, 5) if not EVERY else range(1, 60):
                with self.subTest(kind=kind, call=left):
                    calls = FailingCalls("end")
                    server = Server(tiny("llama"), "--cache-dir", os.path.join(HOME, "end-pages"), kv="8M", **calls.environment())
                    self.assertEqual(server.post("/completion", {"prompt": "a " * 80, "n_predict": 2}).status, 200)
                    calls.arm(kind, left)
                    self.assertEqual(server.stop(), 0, "".join(server.log))


if __name__ == "__main__":
    server_support.main()
