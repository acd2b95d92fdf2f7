"""The program is built with what makes memory errors harder to use (cmake/hardening.cmake)."""

import glob
import os
import platform
import re
import shutil
import subprocess
import unittest

import cli_support
from cli_support import SANITIZED, SPRY

READELF = shutil.which("readelf")


OBJDUMP = shutil.which("objdump")
FOLDER = os.path.dirname(SPRY)
LINKED = [SPRY, *glob.glob(os.path.join(FOLDER, "spry_*.so")), *glob.glob(os.path.join(FOLDER, "libspry.so"))]


def readelf(*arguments, file=SPRY):
    return subprocess.run([READELF, "-W", *arguments, file], check=True, capture_output=True, text=True).stdout


@unittest.skipUnless(READELF, "readelf is not there")
class Hardening(unittest.TestCase):
    def test_addresses(self):
        self.assertIn("DYN (Position-Independent Executable", readelf("-h"))
        self.assertRegex(readelf("-d"), r"FLAGS_1.*\bPIE\b")

    def test_tables_are_read_only_after_start(self):
        for file in LINKED:
            self.assertIn("GNU_RELRO", readelf("-l", file=file), file)
            self.assertRegex(readelf("-d", file=file), r"FLAGS.*BIND_NOW|FLAGS_1.*NOW", file)

    def test_nothing_is_both_written_and_run(self):
        for file in LINKED:
            lines = readelf("-l", file=file).splitlines()
            segments = [line.split() for line in lines if line.split()[:1] in (["LOAD"], ["GNU_STACK"])]
            self.assertGreaterEqual(len(segments), 3)
            for segment in segments:
                self.assertFalse("RWE" in segment, (file, segment))

    def test_stacks_have_canaries(self):
        self.assertIn("__stack_chk_fail", readelf("-s"))

    @unittest.skipIf(SANITIZED, "sanitizers check copies themselves")
    def test_copies_are_checked(self):
        if "GLIBC" not in readelf("-s"):
            print("SKIPPED cli_hardening copies: not the C library of GNU")
            self.skipTest("another C library")
        checked = set(re.findall(r"__(\w+)_chk@GLIBC", readelf("-s")))
        self.assertTrue({"memcpy", "vsnprintf"} <= checked, checked)

    def test_targets_of_jumps_are_marked(self):
        machine = platform.machine()
        if machine not in ("x86_64", "aarch64") or not OBJDUMP:
            print("SKIPPED cli_hardening jumps: objdump is not there, or no such marks on %s" % machine)
            self.skipTest("no marks")
        code = subprocess.run([OBJDUMP, "-d", "--no-show-raw-insn", "--disassemble=main", SPRY], check=True, capture_output=True,
                              text=True).stdout
        first = re.search(r"<main>:\n\s*\w+:\s*(.*)", code)
        self.assertRegex(first.group(1), "endbr64" if machine == "x86_64" else "paciasp|bti", code[:300])
        if machine == "x86_64":
            for file in LINKED:
                self.assertIn("SHSTK", readelf("-n", file=file), file)


if __name__ == "__main__":
    cli_support.main()
