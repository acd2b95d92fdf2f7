"""What a packager meets: the sources in a copy without .git, in a folder with any name, built with each option."""

import json
import os
import shlex
import shutil
import subprocess
import unittest

import install_support
from install_support import CC, HOME, ROOT, run

NEEDED = ("CMakeLists.txt", "cmake", "include", "src", "apps", "models", "examples", "docs", "bindings")
SOURCE = os.path.join("src", "base", "number.c")


def copy(name):
    folder = os.path.join(HOME, name)
    os.makedirs(folder)
    for part in NEEDED:
        path = os.path.join(ROOT, part)
        if part == "models":
            os.symlink(path, os.path.join(folder, part))
        elif os.path.isdir(path):
            shutil.copytree(path, os.path.join(folder, part))
        elif os.path.exists(path):
            shutil.copy(path, folder)
    return folder


def configure(folder, *options):
    """Configures, and gives the command that compiles SOURCE."""
    build = os.path.join(folder, "out")
    run("cmake", "-S", folder, "-B", build, "-DBUILD_TESTING=OFF", "-DCMAKE_C_COMPILER=" + CC, *options,
        env={"CMAKE_C_COMPILER_LAUNCHER": ""})
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = [entry["command"] for entry in json.load(file) if entry["file"].endswith(SOURCE)]
    assert len(commands) == 1, commands
    return shlex.split(commands[0])


def compile_source(folder, command):
    """Compiles SOURCE as the build would, and gives the process and the object's path."""
    command = list(command)
    at = command.index("-o") + 1
    command[at] = os.path.join(folder, "object.o")
    process = subprocess.run(command, cwd=os.path.join(folder, "out"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=install_support.TIMEOUT)
    return process, command[at]


class Source(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = copy("a release")

    def test_warnings_are_errors_only_in_development(self):
        with open(os.path.join(self.folder, SOURCE), encoding="utf-8") as file:
            original = file.read()
        with open(os.path.join(self.folder, SOURCE), "w", encoding="utf-8") as file:
            file.write(original + "\nstatic int never_used;\n")
        try:
            command = configure(self.folder)
            process, _ = compile_source(self.folder, command)
            self.assertEqual(process.returncode, 0, process.stdout)
            self.assertIn("never_used", process.stdout)  # it warns all the same
            command = configure(self.folder, "-DSPRY_WERROR=ON")
            self.assertNotEqual(compile_source(self.folder, command)[0].returncode, 0)
            shutil.rmtree(os.path.join(self.folder, "out"))
            os.mkdir(os.path.join(self.folder, ".git"))
            self.assertIn("-Werror", configure(self.folder))
        finally:
            shutil.rmtree(os.path.join(self.folder, ".git"), ignore_errors=True)
            shutil.rmtree(os.path.join(self.folder, "out"), ignore_errors=True)
            with open(os.path.join(self.folder, SOURCE), "w", encoding="utf-8") as file:
                file.write(original)

    def test_objects_are_the_same_from_any_folder(self):
        objects = []
        for folder in (self.folder, copy("elsewhere")):
            process, path = compile_source(folder, configure(folder))
            self.assertEqual(process.returncode, 0, process.stdout)
            with open(path, "rb") as file:
                objects.append(file.read())
            self.assertNotIn(os.fsencode(folder), objects[-1])
            shutil.rmtree(os.path.join(folder, "out"))
        self.assertEqual(objects[0], objects[1])

    def test_link_time_optimisation(self):
        command = configure(self.folder, "-DSPRY_LTO=ON")
        self.assertTrue(any(word.startswith("-flto") for word in command), command)
        process, path = compile_source(self.folder, command)
        self.assertEqual(process.returncode, 0, process.stdout)
        if "-ffat-lto-objects" in command:  # gcc: machine code beside it, for programs linked without
            self.assertIn("spry_", run("nm", "--defined-only", path))
            self.assertIn(".gnu.lto_", run("readelf", "-SW", path))
        shutil.rmtree(os.path.join(self.folder, "out"))
        self.assertFalse(any(word.startswith("-flto") for word in configure(self.folder)))


if __name__ == "__main__":
    install_support.main()
