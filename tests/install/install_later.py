"""Libraries that are installed after the build folder was made are found by the next build, and a build folder of another
checkout, or of other flags, is made anew."""

import os
import platform
import re
import shutil
import unittest

import install_support
from install_support import HOME, ROOT, run

OBJECT = "CMakeFiles/spry_voice.dir/apps/voice/module/voice_module.c.o"
PACKAGES = os.path.join(HOME, "packages")


def hide(*hidden):
    """A folder with the descriptions of all packages of this machine, without the hidden ones."""
    shutil.rmtree(PACKAGES, ignore_errors=True)
    os.mkdir(PACKAGES)
    found = {}
    for folder in run("pkg-config", "--variable", "pc_path", "pkg-config").strip().split(":"):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            found.setdefault(name, os.path.join(folder, name))
    for name, path in found.items():
        if name not in hidden:
            os.symlink(path, os.path.join(PACKAGES, name))
    return {name: found[name] for name in hidden if name in found}


class Later(unittest.TestCase):
    def test_a_library_that_is_installed_later(self):
        hidden = hide("portaudio-2.0.pc")
        if not hidden:
            self.skipTest("PortAudio is not installed")
        build, env = os.path.join(HOME, "later"), {"PKG_CONFIG_LIBDIR": PACKAGES}
        run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DSPRY_CUDA=OFF", env=env)
        run("ninja", "-C", build, OBJECT, env=env)
        self.assertNotIn("spry_sound_device_open", run("nm", os.path.join(build, OBJECT)))
        for name, path in hidden.items():
            os.symlink(path, os.path.join(PACKAGES, name))
        run("ninja", "-C", build, OBJECT, env=env)
        self.assertIn("spry_sound_device_open", run("nm", os.path.join(build, OBJECT)))
        self.assertIn("no work to do", run("ninja", "-C", build, OBJECT, env=env))


class Setup(unittest.TestCase):
    def test_what_is_missing_is_named(self):
        hidden = hide("portaudio-2.0.pc", "libpng.pc")
        names = {name[:-3] for name in hidden}
        if not names:
            self.skipTest("neither PortAudio nor libpng is installed")
        setup = os.path.join(ROOT, "scripts", "setup")
        usual = set(run(setup, "missing").split())
        self.assertEqual(set(run(setup, "missing", env={"PKG_CONFIG_LIBDIR": PACKAGES}).split()) - usual, names)


class OldFolder(unittest.TestCase):
    def configured(self, *flags):
        run("env", "-u", "CC", "make", "-C", self.checkout, "configure", *flags)  # CC would name the folder
        with open(os.path.join(self.checkout, "build", "CMakeCache.txt"), encoding="utf-8") as file:
            return file.read()

    def test_other_flags_and_a_copied_checkout(self):
        self.checkout = os.path.join(HOME, "checkout")
        os.mkdir(self.checkout)
        for name in os.listdir(ROOT):
            if not name.startswith(("build", ".git")):
                os.symlink(os.path.join(ROOT, name), os.path.join(self.checkout, name))
        self.assertIn("SPRY_CUDA:STRING=AUTO", self.configured())
        self.assertIn("SPRY_CUDA:STRING=OFF", self.configured("CUDA=OFF"))
        copy = os.path.join(HOME, "copy")
        shutil.copytree(self.checkout, copy, symlinks=True)
        self.checkout = copy
        self.assertIn("CMAKE_HOME_DIRECTORY:INTERNAL=" + copy, self.configured())
        every = self.kernels()
        self.configured("KERNELS=native")
        self.assertLess(self.kernels(), every)  # a part of them
        if platform.machine() == "x86_64":
            self.assertEqual(every, {"avx2", "avxvnni", "avx512bw", "avx512"})
            self.assertLessEqual(len(self.kernels()), 1)
        self.assertEqual(self.chosen_by_run(), "native")
        self.configured()
        self.assertEqual(self.kernels(), every)
        self.assertEqual(self.chosen_by_run(), "all")  # a folder with all of them keeps them
        shutil.rmtree(os.path.join(self.checkout, "build"))
        self.assertEqual(self.chosen_by_run(), "native")

    def kernels(self):
        with open(os.path.join(self.checkout, "build", "compile_commands.json"), encoding="utf-8") as file:
            return set(re.findall(r'kernels/x86/ops_(\w+)\.c"', file.read()))

    def chosen_by_run(self):
        """The kernels that `make run` asks for in this build folder."""
        with open(os.path.join(self.checkout, "Makefile"), encoding="utf-8") as file:
            rule = re.search(r"KERNELS=\$\(shell (.*)\)$", file.read(), re.MULTILINE).group(1)
        return run("sh", "-c", rule.replace("$(BUILD)", os.path.join(self.checkout, "build"))).strip()


if __name__ == "__main__":
    install_support.main()
