"""What the command-line tests share: running the program as a person would, in a home folder of its own.

The program's path comes in the environment variable SPRY. SPRY_SANITIZED says that it is built with a sanitizer, which
needs more memory and time than the limits below allow."""

import atexit
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DATA = os.path.join(ROOT, "tests", "data")
MODELS = os.path.join(DATA, "models")
PUBLIC = os.path.join(os.path.dirname(ROOT), "shared", "public")
SPRY = os.path.abspath(os.environ.get("SPRY", os.path.join(ROOT, "build", "spry")))
SANITIZED = bool(os.environ.get("SPRY_SANITIZED"))

OK, FAILURE, USAGE, INTERRUPTED, READER_LEFT = 0, 1, 2, 130, 141
TIMEOUT = 1200  # of what never ends; a busy machine may take minutes
MEMORY_LIMIT = 1 << 30
# Flags of commands that compute: where, when a test is run on another device than the CPU.
DEVICE = ["--device", os.environ["SPRY_TEST_DEVICE"]] if os.environ.get("SPRY_TEST_DEVICE") else []

HOME = tempfile.mkdtemp(prefix="spry-cli-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)


def tiny(name, file="model-f32.gguf"):
    """A model of tests/data: its GGUF file, or with file="" its Hugging Face folder."""
    return os.path.join(MODELS, name, file).rstrip("/")


def environment(**changes):
    """A small, known environment; None removes a variable."""
    env = {"HOME": HOME, "PATH": os.environ.get("PATH", ""), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    env.update((name, value) for name, value in os.environ.items() if name.startswith(("IMITATED_", "SPRY_SCRIPT", "SPRY_TEST_")))  # tests/support: imitated_gpu.c, script
    env.update((name, value) for name, value in os.environ.items() if name == "SPRY_PROFILE")  # of tests that want none
    if SANITIZED:
        for name, options in (("ASAN_OPTIONS", "abort_on_error=0:exitcode=99"), ("TSAN_OPTIONS", "halt_on_error=1:exitcode=99")):
            env[name] = options + ":" + os.environ.get(name, "")  # the caller's come last and win, as a log_path
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def limit_memory():
    if not SANITIZED and not {"cuda", "vulkan"} & set(DEVICE):  # a GPU's driver reserves more addresses than there is memory
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Result:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    @property
    def text(self):
        return self.out.decode("utf-8")

    @property
    def errors(self):
        return self.err.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.out)


def spry(*arguments, stdin=b"", stdout=subprocess.PIPE, cwd=HOME, **changes):
    """Runs to the end. stdin: bytes, or None for no standard input at all."""
    source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    device = DEVICE if arguments[:1] == ("run",) else []
    process = subprocess.run([SPRY, *arguments, *device], stdout=stdout, stderr=subprocess.PIPE, timeout=TIMEOUT, cwd=cwd,
                             env=environment(**changes), preexec_fn=limit_memory, **source)
    return Result(process)


def start(*arguments, **options):
    """Starts it with pipes on all three streams."""
    options.setdefault("stdin", subprocess.PIPE)
    return subprocess.Popen([SPRY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HOME, env=environment(),
                            **options)


def wait_until_caught(process, number=signal.SIGINT):
    """Waits until a process handles a signal itself: before, the signal would just end it."""
    caught = 0
    while process.poll() is None and not caught >> (number - 1) & 1:
        time.sleep(0.01)
        with open("/proc/%d/status" % process.pid, encoding="ascii", errors="replace") as file:
            caught = int(next((line for line in file if line.startswith("SigCgt:")), "SigCgt: 0").split()[1], 16)


def once_of(times):
    """For a test of times that are measured: it passes if one of several runs does, because anything may be delayed on a
    busy machine. What is wrong fails every time."""
    def decorate(test):
        @functools.wraps(test)
        def run(self, *arguments):
            for left in range(times, 0, -1):
                try:
                    return test(self, *arguments)
                except AssertionError:
                    if left == 1:
                        raise
        return run
    return decorate


class CliTest(unittest.TestCase):
    def one_sentence(self, result, *parts):
        """Standard error is exactly one line `spry: ...` that holds every part."""
        lines = result.errors.splitlines()
        self.assertEqual(len(lines), 1, result.errors)
        self.assertTrue(lines[0].startswith("spry: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])

    def fails(self, result, code, *parts):
        self.assertEqual(result.code, code, result.errors)
        self.assertEqual(result.out, b"")
        self.one_sentence(result, *parts)

    def succeeds(self, result):
        self.assertEqual(result.code, OK, result.errors)
        self.assertEqual(result.errors, "")
        return result


def public(*path):
    """A file of other projects' data, or None with a word about it when the folder is not there."""
    full = os.path.join(PUBLIC, *path)
    if os.path.exists(full):
        return full
    print("SKIPPED %s: ../shared/public is not there" % "/".join(path))
    return None


class Count(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    if not os.access(SPRY, os.X_OK):
        sys.exit("%s is not a program; say where spry is in $SPRY" % SPRY)
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(resultclass=Count, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed, %d skipped" % (result.passed, failed, len(result.skipped)))
    sys.exit(failed != 0 or result.passed + len(result.skipped) == 0)  # a program whose cases all are skipped says why
