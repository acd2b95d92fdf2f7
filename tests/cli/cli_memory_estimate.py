"""What `spry inspect` says a model will take of memory, against what `spry run` takes in a process of its own."""

import os
import resource
import struct
import subprocess
import zlib

import cli_support
from cli_support import HOME, ROOT, SANITIZED, SPRY, environment, spry, tiny

PARTS = ("weights", "kv", "cache", "scratch", "program")
# How far off an estimate may be. Which pages of the program and its libraries are mapped depends on what of their files the
# system has in memory.
PART_SHARE, PROGRAM_SHARE = 0.05, 0.25
TALES = os.path.join(ROOT, "models", "Spry-Tales-29M.gguf")


def text_of(model, tokens):
    """Words that the model reads as `count` tokens."""
    words = " ".join(["one two three"] * tokens).encode()
    ids = spry("tokenize", *model, "--json", stdin=words).json[:tokens]
    return spry("tokenize", *model, "--decode", stdin=" ".join(map(str, ids)).encode()).text


def huge_pages_refused():
    """How often the system had no huge page to give, and gave small ones."""
    with open("/proc/vmstat", encoding="ascii") as file:
        counts = dict(line.split() for line in file)
    return counts.get("thp_fault_fallback")


def most_held(*arguments):
    """Bytes that a run of the program held at once, at most."""
    process = subprocess.Popen([SPRY, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, cwd=HOME, env=environment())
    errors = process.stderr.read()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0, errors
    return usage.ru_maxrss * 1024


class MemoryEstimate(cli_support.CliTest):
    def test_a_tower(self):
        """What a picture of the largest size adds to a run, and that models without eyes have no such part."""
        folder, path = tiny("qwen3-vl", ""), os.path.join(HOME, "large.png")
        lines = b"".join(b"\0" + bytes((x // 64 * 40 + y // 64 * 7) % 256 for x in range(896) for _ in range(3)) for y in range(896))

        def part(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 896, 896, 8, 2, 0, 0, 0)) +
                       part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b""))
        told = self.succeeds(spry("inspect", folder, "--json", "--context", "1024")).json["memory"]["estimates"][-1]
        self.assertIn("pictures, besides", self.succeeds(spry("inspect", folder)).text)
        self.assertNotIn("tower", self.succeeds(spry("inspect", tiny("qwen3"), "--json")).json["memory"]["estimates"][-1])
        if SANITIZED or os.environ.get("SPRY_TEST_PLATFORM", "linux") != "linux":
            print("SKIPPED %s: the process has other memory, too" % self.id())
            return
        run = ("run", folder, "-p", "one two three", "-n", "1", "--context", "1024", "--draft", "none")
        added = most_held(*run, "--image", path) - most_held(*run)
        self.assertLess(added, 1.2 * told["tower"] + (8 << 20))
        self.assertGreater(added, 0.5 * told["tower"])

    def compare(self, model, tokens):
        context = tokens + 8
        told = self.succeeds(spry("inspect", *model, "--json", "--context", str(context))).json["memory"]
        estimate = told["estimates"][-1]
        self.assertEqual(estimate["context"], context)
        self.assertEqual(estimate["whole"], sum(estimate[part] for part in PARTS))
        if SANITIZED:
            print("SKIPPED %s: sanitizers use memory of their own" % self.id())
            return
        if os.environ.get("SPRY_TEST_PLATFORM", "linux") != "linux":
            print("SKIPPED %s: other platforms count pages of files that the system keeps" % self.id())
            return
        text = text_of(model, tokens)
        refused = huge_pages_refused()
        held = most_held("run", *model, "--raw", "-p", text, "-n", "4", "--context", str(context),
                         "--draft", "none")
        off = estimate["whole"] / held - 1
        print("%-20s %5d tokens: %7.2f MB told, %7.2f MB held, %+.1f %%"
              % (os.path.basename((*model, "bundled")[0]), tokens, estimate["whole"] / 1e6, held / 1e6, off * 100))
        # A process begins as a copy of its parent, which must not be what was measured.
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, held)
        if huge_pages_refused() != refused:
            print("SKIPPED %s: the system was short of huge pages meanwhile" % self.id())
        else:
            self.assertLess(abs(estimate["whole"] - held), PART_SHARE * (estimate["whole"] - estimate["program"])
                            + PROGRAM_SHARE * estimate["program"])

    def test_bundled(self):
        for tokens in (100, 1000):
            self.compare([], tokens)

    def test_file(self):
        for tokens in (100, 1900):
            self.compare([TALES], tokens)

    def test_bundled_takes_no_more_than_its_file(self):
        """Pages of constants of the program are given back like the pages of a file."""
        if SANITIZED:
            print("SKIPPED %s: sanitizers use memory of their own" % self.id())
            return
        options = ("--raw", "-p", "Once", "-n", "4", "--context", "256", "--draft", "none")
        refused = huge_pages_refused()
        bundled, file = most_held("run", *options), most_held("run", TALES, *options)
        if huge_pages_refused() != refused:
            print("SKIPPED %s: the system was short of huge pages meanwhile" % self.id())
        else:
            self.assertLess(bundled, 1.05 * file)


if __name__ == "__main__":
    cli_support.main()
