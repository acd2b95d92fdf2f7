"""The examples, built outside of the project against what was installed, with pkg-config and with CMake, and run."""

import glob
import os
import re
import shutil
import subprocess
import unittest

import install_support
from install_support import CC, HOME, MODELS, PREFIX, ROOT, SANITIZER, install, library_folder, pkg_config, run

EXAMPLES = sorted(glob.glob(os.path.join(ROOT, "examples", "*.c")))
NAMES = [os.path.splitext(os.path.basename(path))[0] for path in EXAMPLES]
MODEL = os.path.join(MODELS, "Spry-Tales-29M.gguf")
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(outside LANGUAGES C)
find_package(spry %(version)s REQUIRED COMPONENTS static)
foreach(name %(names)s)
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} PRIVATE spry::spry)
endforeach()
add_executable(chat_static chat.c)
target_link_libraries(chat_static PRIVATE spry::static)
"""


def built(folder):
    """A folder outside of the project with copies of the examples."""
    folder = os.path.join(HOME, folder)
    os.makedirs(folder)
    for path in EXAMPLES:
        shutil.copy(path, folder)
    return folder


def needed(program):
    """The shared libraries that a program names."""
    return set(re.findall(r"\(NEEDED\).*\[(.*?)\]", run("readelf", "-d", program)))


class Examples(unittest.TestCase):
    """Programs built with pkg-config; a folder that was moved after it was installed serves as well."""

    @classmethod
    def setUpClass(cls):
        os.rename(install(os.path.join(HOME, "first")), PREFIX)
        cls.folder = built("with-pkg-config")
        for name in NAMES:
            run(CC, *WARNINGS, *SANITIZER, name + ".c", "-o", name, *pkg_config("--cflags", "--libs"), cwd=cls.folder)

    def ask(self, name, *arguments, stdin="", code=0):
        process = subprocess.run([os.path.join(self.folder, name), *arguments], input=stdin, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, timeout=install_support.TIMEOUT,
                                 env=dict(os.environ, LD_LIBRARY_PATH=library_folder()))
        self.assertEqual(process.returncode, code, process.stderr)
        return process.stderr if code else process.stdout

    def test_examples_are_short(self):
        self.assertEqual(NAMES, ["batch", "chat", "embed", "serve_many"])
        for path in EXAMPLES:
            with open(path, encoding="utf-8") as file:
                self.assertLess(len(file.readlines()), 100, path)

    def test_chat_goes_on(self):
        text = self.ask("chat", MODEL, "24", stdin="Tell me a story about a fox.\nWhat happened then?\n")
        turns = re.findall(r"\[(\d+) tokens of the prompt, (\d+) reused; (\d+) generated, (\w+)\]", text)
        self.assertEqual(len(turns), 2, text)
        first, second = ([int(number) for number in turn[:3]] for turn in turns)
        self.assertGreater(second[0], first[0] + first[2])
        self.assertGreaterEqual(second[1], first[0])  # the prompt of the first turn is not computed again
        self.assertTrue(all(len(answer.split()) > 5 for answer in re.split(r"\[.*\]\n", text)[:2]), text)

    def test_batch_gives_what_each_prompt_gives_alone(self):
        prompts = ["Tell me a story about a %s." % name for name in
                   ("fox", "bear", "ship", "tree", "king", "wolf", "star", "cat", "dog", "bird", "stone", "river")]
        together = self.ask("batch", MODEL, "12", stdin="\n".join(prompts) + "\n")
        self.assertEqual(re.findall(r"(?m)^(\d+) \(\d+ tokens, \w+\): ", together), [str(n + 1) for n in range(12)])
        alone = self.ask("batch", MODEL, "12", stdin=prompts[4] + "\n")
        fifth = re.search(r"(?ms)^5 (\(.*?)^6 \(", together).group(1)
        self.assertEqual("1 " + fifth, alone)

    def test_embed_finds_the_nearest(self):
        lines = self.ask("embed", MODEL, "a brave little fox", "The sea was dark and cold.", "a brave little fox",
                         "a brave little wolf").splitlines()
        values = [float(line.split()[0]) for line in lines]
        self.assertEqual(lines[0], "1.000  a brave little fox")
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertEqual(len(lines), 3)

    def test_serve_many_keeps_conversations_apart(self):
        talks = ["Tell me a story about a fox.|What happened then?", "Hello!", "Tell me a story about a bear.|And then?|Why?"]
        text = self.ask("serve_many", MODEL, *talks)
        self.assertEqual(sorted(re.findall(r"(?m)^(\d): ", text)), list("112333"))
        alone = self.ask("serve_many", MODEL, talks[0])

        def answers(number, output):
            return re.findall(r"(?ms)^%d: (.*?)(?=^\d: |\Z)" % number, output)
        self.assertEqual(answers(1, alone), answers(1, text))

    def test_errors_are_sentences(self):
        for name, more in (("chat", []), ("batch", []), ("embed", ["a", "b"]), ("serve_many", ["a"])):
            self.assertRegex(self.ask(name, "no-such-model.gguf", *more, code=1), r"^%s: \w+: .*no-such-model\.gguf" % name)

    def test_static_library(self):
        more = [flag for flag in pkg_config("--static", "--libs") if flag != "-lspry"]
        run(CC, *WARNINGS, *SANITIZER, "chat.c", "-o", "chat_static", *pkg_config("--cflags"),
            os.path.join(library_folder(), "libspry.a"), *more, cwd=self.folder)
        self.assertFalse(any(name.startswith("libspry") for name in needed(os.path.join(self.folder, "chat_static"))))
        question = "Tell me a story about a fox.\n"
        self.assertEqual(self.ask("chat_static", MODEL, "8", stdin=question), self.ask("chat", MODEL, "8", stdin=question))

    def test_what_the_readme_prints(self):
        """Its lines of C, as a program with the standard headers, and its command that builds the first example."""
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        code = re.search(r"(?s)```c\n(.*?)```", readme).group(1)
        includes, body = "\n".join(re.findall(r"(?m)^#include.*$", code)), re.sub(r"(?m)^#include.*$", "", code)
        with open(os.path.join(self.folder, "readme.c"), "w", encoding="utf-8") as file:
            file.write("#include <stdio.h>\n%s\nint main(void)\n{\n%s\nreturn engine == 0;\n}\n" % (includes, body))
        run(CC, *WARNINGS, *SANITIZER, "-std=c11", "readme.c", "-o", "readme", *pkg_config("--cflags", "--libs"), cwd=self.folder)
        self.assertIn("model.gguf", self.ask("readme", code=1))
        command = re.search(r"(?m)^cc chat\.c .*$", readme).group()
        if not SANITIZER:
            run("bash", "-c", command, cwd=self.folder,
                env={"PKG_CONFIG_PATH": os.path.join(library_folder(), "pkgconfig")})
        self.assertIn("generated", self.ask("chat", MODEL, "8", stdin="Hello\n"))
        with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
            makefile = file.read()
        for name in re.findall(r"(?m)^make install (\w+)=", readme):
            self.assertIn("$(%s)" % name, makefile)

    def test_cmake_package(self):
        folder = built("with-cmake")
        version = pkg_config("--modversion")[0]
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PROJECT % {"version": version, "names": " ".join(NAMES)})
        flags = " ".join(WARNINGS + SANITIZER)
        run("cmake", "-S", folder, "-B", folder, "-DCMAKE_C_COMPILER=" + CC, "-DCMAKE_PREFIX_PATH=" + PREFIX,
            "-DCMAKE_C_FLAGS=" + flags)
        run("cmake", "--build", folder)
        question = "Tell me a story about a fox.\n"
        expected = self.ask("chat", MODEL, "8", stdin=question)
        for name in ("chat", "chat_static"):  # found without LD_LIBRARY_PATH
            answer = run(os.path.join(folder, name), MODEL, "8", input=question)
            self.assertEqual(answer, expected)
        self.assertTrue(any(name.startswith("libspry.so") for name in needed(os.path.join(folder, "chat"))))
        self.assertFalse(any(name.startswith("libspry.so") for name in needed(os.path.join(folder, "chat_static"))))


if __name__ == "__main__":
    install_support.main()
