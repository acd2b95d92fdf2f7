"""scripts/release writes sources and a list of libraries, whose sums are signed; a changed file or list is noticed."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import unittest

import cli_support
from cli_support import HOME, ROOT, SPRY

TOOLS = ("ssh-keygen", "git", "readelf", "ldd", "sha256sum")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@unittest.skipUnless(all(shutil.which(tool) for tool in TOOLS), "one of %s is not there" % ", ".join(TOOLS))
@unittest.skipUnless(os.path.exists(os.path.join(ROOT, ".git")), "the sources are no git checkout")
class Release(unittest.TestCase):
    def verify(self, folder, signers):
        with open(os.path.join(folder, "SHA256SUMS"), encoding="ascii") as file:
            signed = run("ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release", "-n", "spry-release",
                         "-s", "SHA256SUMS.sig", stdin=file, cwd=folder)
        return signed.returncode == 0, run("sha256sum", "-c", "--status", "SHA256SUMS", cwd=folder).returncode == 0

    def test_signed(self):
        key, folder, signers = (os.path.join(HOME, name) for name in ("key", "release", "signers"))
        self.assertEqual(run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key).returncode, 0)
        with open(key + ".pub", encoding="ascii") as public, open(signers, "w", encoding="ascii") as file:
            file.write("release " + public.read())
        made = run(os.path.join(ROOT, "scripts", "release"), os.path.dirname(SPRY), key, folder)
        self.assertEqual(made.returncode, 0, made.stderr)
        names = sorted(os.listdir(folder))
        self.assertEqual([name.split(".", 3)[-1] for name in names], ["SHA256SUMS", "sig", "cdx.json", "tar.gz"])
        with tarfile.open(os.path.join(folder, names[3])) as sources:
            self.assertIn(names[3][:-len(".tar.gz")] + "/CMakeLists.txt", sources.getnames())
        with open(os.path.join(folder, names[2]), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["bomFormat"], "CycloneDX")
        self.assertEqual(self.verify(folder, signers), (True, True))
        with open(os.path.join(folder, names[2]), "a", encoding="utf-8") as file:
            file.write(" ")
        self.assertEqual(self.verify(folder, signers), (True, False))
        with open(os.path.join(folder, "SHA256SUMS"), "a", encoding="ascii") as file:
            file.write("\n")
        self.assertFalse(self.verify(folder, signers)[0])

    def test_packages_name_one_address(self):
        """spry has no public address: packages name one that cannot exist (RFC 2606), all the same."""
        found = {}
        for folder in ("debian", "contrib", "bindings/npm"):
            for path, _, files in os.walk(os.path.join(ROOT, folder)):
                for name in files:
                    with open(os.path.join(path, name), encoding="utf-8") as file:
                        for host in re.findall(r"(?:https?://|[\w.]@)([\w-]+(?:\.[\w-]+)+)", file.read()):
                            found.setdefault(host, []).append(name)
        self.assertEqual(set(found) - {"www.debian.org", "brew.sh", "127.0.0.1"}, {"spry.invalid"}, found)
        self.assertEqual(set(found["spry.invalid"]), {"control", "copyright", "spry.rb", "scoop.json", "winget.yaml"})

    def test_wrong_use(self):
        for arguments, code in ((("build",), 2), ((os.path.dirname(SPRY), "/nowhere", os.path.join(HOME, "none")), 1)):
            result = run(os.path.join(ROOT, "scripts", "release"), *arguments)
            self.assertEqual((result.returncode, bool(result.stderr)), (code, True))


if __name__ == "__main__":
    cli_support.main()
