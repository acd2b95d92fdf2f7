"""What the tests of the installed files share: a folder that the built tree is installed to, once for each test program.

BUILD is the build folder, CC the compiler it was made with; SPRY_SANITIZED names its sanitizer, which programs that link
the library need as well."""

import os
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

from cli_support import HOME, ROOT, TIMEOUT, main  # noqa: E402,F401

BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
CC = os.environ.get("CC", "cc")
SANITIZER = {"": [], "address": ["-fsanitize=address,undefined"],
             "thread": ["-fsanitize=thread"]}[os.environ.get("SPRY_SANITIZED", "")]
MODELS = os.path.join(ROOT, "models")
PREFIX = os.path.join(HOME, "prefix")


def run(*command, timeout=TIMEOUT, **options):
    """Runs to the end and gives what it wrote; an exit status that is not 0 is an error that holds the output."""
    env = dict(os.environ, **options.pop("env", {}))
    for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "DESTDIR"):
        env.pop(name, None)
    process = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=timeout, env=env, **options)
    if process.returncode:
        raise AssertionError("%s: exit status %d\n%s" % (shlex.join(map(str, command)), process.returncode, process.stdout))
    return process.stdout


def install(prefix=PREFIX, **env):
    run("cmake", "--install", BUILD, "--prefix", prefix, env=env)
    return prefix


def files_below(folder):
    """Paths of files and links, relative to the folder."""
    return sorted(os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names)


def library_folder(prefix=PREFIX):
    """Where the libraries lie: lib, lib64 or lib/TRIPLE, as the system has it."""
    found = [os.path.dirname(path) for path in files_below(prefix) if os.path.basename(path) == "libspry.a"]
    assert len(found) == 1, found
    return os.path.join(prefix, found[0])


def pkg_config(*arguments, prefix=PREFIX):
    path = os.path.join(library_folder(prefix), "pkgconfig")
    return shlex.split(run("pkg-config", *arguments, "spry", env={"PKG_CONFIG_PATH": path}))
