"""scripts/sbom lists every library that the program and its modules are linked with."""

import json
import os
import re
import shutil
import subprocess
import unittest

import cli_support
from cli_support import ROOT, SPRY


@unittest.skipUnless(shutil.which("readelf") and shutil.which("ldd"), "readelf and ldd are not there")
class Libraries(unittest.TestCase):
    def test_all_are_listed(self):
        folder = os.path.dirname(SPRY)
        text = subprocess.run([os.path.join(ROOT, "scripts", "sbom"), folder], check=True, capture_output=True, text=True).stdout
        document = json.loads(text)
        self.assertEqual((document["bomFormat"], document["metadata"]["component"]["name"]), ("CycloneDX", "spry"))
        listed = {entry["name"]: entry for entry in document["components"]}
        linked = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(["readelf", "-dW", SPRY], check=True, capture_output=True, text=True).stdout)
        self.assertLessEqual(set(linked), set(listed))
        if shutil.which("dpkg"):
            self.assertRegex(listed["libjansson.so.4"]["purl"], r"^pkg:deb/debian/libjansson4@\S+\?arch=\w+$")

    def test_wrong_use(self):
        for arguments in ((), ("/nowhere",)):
            result = subprocess.run([os.path.join(ROOT, "scripts", "sbom"), *arguments], capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stdout), (1, ""))


if __name__ == "__main__":
    cli_support.main()
