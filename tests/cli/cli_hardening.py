"""The program is built with what makes memory errors harder to use (cmake/hardening.cmake)."""

import shutil
import subprocess
import unittest

import cli_support
from cli_support import SPRY

READELF = shutil.which("readelf")


def readelf(*arguments):
    return subprocess.run([READELF, "-W", *arguments, SPRY], check=True, capture_output=True, text=True).stdout


@unittest.skipUnless(READELF, "readelf is not there")
class Hardening(unittest.TestCase):
    def test_addresses(self):
        self.assertIn("DYN (Position-Independent Executable", readelf("-h"))
        self.assertRegex(readelf("-d"), r"FLAGS_1.*\bPIE\b")

    def test_tables_are_read_only_after_start(self):
        self.assertIn("GNU_RELRO", readelf("-l"))
        self.assertRegex(readelf("-d"), r"FLAGS.*BIND_NOW|FLAGS_1.*NOW")

    def test_nothing_is_both_written_and_run(self):
        segments = [line.split() for line in readelf("-l").splitlines() if line.split()[:1] in (["LOAD"], ["GNU_STACK"])]
        self.assertGreaterEqual(len(segments), 3)
        for segment in segments:
            self.assertFalse("RWE" in segment, segment)


if __name__ == "__main__":
    cli_support.main()
