"""What `make install` puts in place: the right files, only public symbols, no path of the machine that built them."""

import glob
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))

import install_support
import server_support
from install_support import BUILD, HOME, PREFIX, ROOT, files_below, install, library_folder, pkg_config, run


def declared():
    """The functions and constants that the public headers mark SPRY_API."""
    names = set()
    for header in glob.glob(os.path.join(ROOT, "include", "*.h")):
        with open(header, encoding="utf-8") as file:
            text = re.sub(r"(?s)/\*.*?\*/", "", file.read())
        names |= set(re.findall(r"\bSPRY_API\b[^;([]*?\b(spry_\w+)\s*[([;]", text))
    return names


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install()

    def test_everything_is_there(self):
        there = files_below(PREFIX)
        wanted = [r"bin/spry", r"include/spry\.h", r"lib.*/libspry\.a", r"lib.*/libspry\.so", r"lib.*/libspry\.so\.[\d.]+",
                  r"lib.*/pkgconfig/spry\.pc", r"lib.*/cmake/spry/spryConfig\.cmake",
                  r"lib.*/cmake/spry/spryConfigVersion\.cmake", r"lib.*/cmake/spry/spryTargets\.cmake",
                  r"share/spry/python/spry\.py", r"share/doc/spry/examples/chat\.c", r"share/doc/spry/docs/OPTIONS\.md",
                  r"share/bash-completion/completions/spry", r"share/zsh/site-functions/_spry",
                  r"share/fish/vendor_completions\.d/spry\.fish", r"share/spry/models/Spry-Tales-29M\.gguf"]
        for pattern in wanted:
            self.assertTrue(any(re.fullmatch(pattern, path) for path in there), (pattern, there))
        headers = [path for path in there if path.startswith("include/")]
        self.assertEqual(headers, sorted("include/" + name for name in os.listdir(os.path.join(ROOT, "include"))))
        self.assertRegex(run(os.path.join(PREFIX, "bin", "spry"), "--version"), r"^spry \d")

    def test_libraries_of_voice_are_loaded_when_they_are_needed(self):
        """They take longer to load than the program to start. The installed program finds the module that needs them."""
        program, heard = os.path.join(PREFIX, "bin", "spry"), os.path.join(HOME, "said.wav")
        module = glob.glob(os.path.join(PREFIX, "lib*", "**", "spry_voice.so"), recursive=True)
        self.assertEqual(len(module), 1)
        self.assertNotRegex(run("readelf", "-d", program), "sndfile|portaudio|pocketsphinx|flite")
        if "libsndfile" not in run("readelf", "-d", module[0]):
            print("SKIPPED install_files voice: built without libsndfile")
            self.skipTest("no libsndfile")
        run(program, "voice", "--say", "Hello.", "--tts-cmd", "cat >/dev/null; head -c 3200 /dev/zero", "--out", heard)
        self.assertEqual(os.path.getsize(heard), 3200 + 44)

    def test_libraries_of_the_page_are_a_module(self):
        """The page and reports have them when the module is there; without it, or with a file that is no library, the program works."""
        program = os.path.join(PREFIX, "bin", "spry")
        (module,) = glob.glob(os.path.join(PREFIX, "lib*", "**", "spry_page.so"), recursive=True)
        server_support.SPRY = program
        with open(module, "rb") as file:
            content = file.read()
        built_with = [path for path, mark in (("/highlight.js", "highlight.js"), ("/katex.js", "katex"))
                      if os.path.isdir(os.path.join("/usr/share/javascript", mark))]
        for what, bytes_there, libraries in (("as built", content, built_with), ("no library", b"text", []), ("none", None, [])):
            os.remove(module)
            if bytes_there is not None:
                with open(module, "wb") as file:
                    file.write(bytes_there)
            server = server_support.Server()
            try:
                self.assertEqual(server.get("/page.json").json["libraries"], libraries, what)
                if not libraries:
                    self.assertIn("is not installed", server.get("/katex.js").text)
                self.assertEqual(server.get("/").status, 200)
            finally:
                server.stop()
        install()

    def test_manual_page_names_every_command(self):
        overview = run(os.path.join(PREFIX, "bin", "spry"), "--help").split("Commands:\n")[1].split("\n\n")[0]
        commands = set(re.findall(r"(?m)^  (\w+) ", overview)) - {"help"}
        with open(os.path.join(PREFIX, "share", "man", "man1", "spry.1"), encoding="utf-8") as file:
            section = re.search(r"(?s)\.SH COMMANDS\n(.*?)\.SH", file.read()).group(1)
        self.assertGreater(len(commands), 10)
        self.assertEqual(set(re.findall(r"(?m)^\.B (\w+)$", section)), commands)

    def test_only_public_symbols_are_exported(self):
        library = os.path.join(library_folder(), "libspry.so")
        lines = run("nm", "-D", "--defined-only", library).splitlines()
        # Sanitizers export symbols of their own, all with two underscores.
        exported = {line.split()[-1] for line in lines if not line.split()[-1].startswith("__")}
        self.assertGreater(len(declared()), 30)
        self.assertEqual(exported, declared())

    def test_soname_has_the_minor_version(self):
        version = run(os.path.join(PREFIX, "bin", "spry"), "--version").split()[1]
        library = os.path.join(library_folder(), "libspry.so")
        soname = re.search(r"\(SONAME\).*\[(.*)\]", run("readelf", "-d", library)).group(1)
        self.assertEqual(soname, "libspry.so." + version.rsplit(".", 1)[0])
        self.assertEqual(os.path.basename(os.path.realpath(library)), "libspry.so." + version)
        self.assertEqual(pkg_config("--modversion"), [version])

    def test_no_path_of_this_machine(self):
        for path in files_below(PREFIX):
            with open(os.path.join(PREFIX, path), "rb") as file:
                content = file.read()
            for folder in (ROOT, BUILD, PREFIX):
                self.assertNotIn(os.fsencode(folder), content, path)

    def test_make_install_below_destdir(self):
        stage = os.path.join(HOME, "stage")
        run("make", "-C", ROOT, "install", "BUILD=" + BUILD, "DESTDIR=" + stage, "PREFIX=/opt/some where")
        self.assertEqual(files_below(os.path.join(stage, "opt", "some where")), files_below(PREFIX))
        self.assertEqual(os.listdir(stage), ["opt"])


if __name__ == "__main__":
    install_support.main()
