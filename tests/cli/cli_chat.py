"""The chat, typed at through a real terminal."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

import cli_support
from cli_support import HOME, OK, SPRY, TIMEOUT, environment, tiny

UP, LEFT, DELETE_LINE, BEGIN = b"\x1b[A", b"\x1b[D", b"\x15", b"\x01"
DRAFT = "Spry-Tales-Draft-4M"  # slow enough to be interrupted, quick enough for a sanitizer
PROGRESS = re.compile("\r[\u2800-\u28ff\ufffd][^\r\n]*|\r +\r")  # the line that says what is done before the first word
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x07")


class Chat:
    """The program with a terminal of its own, as its controlling terminal, so that Ctrl-C is what it is for people."""

    def __init__(self, *arguments, command=("run",), columns=200, **changes):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.before = termios.tcgetattr(slave)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([SPRY, *command, *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=HOME,
                                        env=environment(**changes), preexec_fn=own_terminal)
        self.slave = slave
        self.raw = b""
        self.seen = 0  # what of the shown text earlier waits have used up

    @property
    def shown(self):
        text = ESCAPES.sub(b"", self.raw).decode("utf-8", "replace")
        return PROGRESS.sub("", text).replace("\r", "")

    def wait_for(self, words, timeout=TIMEOUT):
        """Reads until `words` appear after the words that earlier calls waited for."""
        end = time.monotonic() + timeout
        while True:
            at = self.shown.find(words, self.seen)
            if at >= 0:
                self.seen = at + len(words)
                return
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError("no %r in %r" % (words, self.shown[self.seen :]))
            if select.select([self.master], [], [], left)[0]:
                try:
                    piece = os.read(self.master, 65536)
                except OSError:
                    piece = b""
                if not piece:
                    raise AssertionError("the program ended; no %r in %r" % (words, self.shown[self.seen :]))
                self.raw += piece

    def wait_for_more(self, count):
        """Reads until `count` more characters are shown."""
        goal = self.seen + count
        while len(self.shown) < goal:
            if not select.select([self.master], [], [], TIMEOUT)[0]:
                raise AssertionError("nothing more comes after %r" % self.shown[self.seen :])
            self.raw += os.read(self.master, 65536)

    def type(self, keys):
        os.write(self.master, keys if isinstance(keys, bytes) else keys.encode())

    def say(self, line):
        """Types a line and waits for the next prompt."""
        self.type(line + "\r")
        self.wait_for("\n> ")

    def leave(self, keys=b"\x04"):
        """Leaves, and returns the exit code."""
        self.type(keys)
        code = self.drain()
        self.restored = termios.tcgetattr(self.slave) == self.before
        os.close(self.slave)
        os.close(self.master)
        return code

    def drain(self):
        end = time.monotonic() + TIMEOUT
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                self.raw += os.read(self.master, 65536)
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError("does not end: %r" % self.shown)
        while select.select([self.master], [], [], 0)[0]:
            self.raw += os.read(self.master, 65536)
        return self.process.returncode


class ChatTest(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = os.path.join(self.folder, "chat.json")

    def chat(self, *options, model=tiny("qwen3"), **changes):
        changes.setdefault("XDG_DATA_HOME", self.folder)
        chat = Chat(model, "--seed", "1", "-n", "8", *options, **changes)
        chat.wait_for("> ")
        return chat

    def saved(self, chat):
        chat.say("/save " + self.file)
        with open(self.file, encoding="utf-8") as file:
            return json.load(file)

    def test_talking(self):
        chat = self.chat()
        chat.say("Hello")
        chat.say("And then?")
        saved = self.saved(chat)
        self.assertEqual(saved["model"], "model-f32")
        self.assertIsNone(saved["system"])
        self.assertEqual([m["role"] for m in saved["messages"]], ["user", "assistant"] * 2)
        self.assertEqual([m["content"] for m in saved["messages"][::2]], ["Hello", "And then?"])
        self.assertEqual(chat.leave(), OK)
        self.assertTrue(chat.restored)

    def test_the_same_seed_gives_the_same_chat(self):
        texts = []
        for _ in range(2):
            chat = self.chat()
            chat.say("Hello")
            chat.say("Again")
            texts.append(self.saved(chat))
            chat.leave()
        self.assertEqual(texts[0], texts[1])

    def test_line_editing_and_history(self):
        chat = self.chat()
        chat.type(b"hexlo" + LEFT * 2 + b"\x7f" + b"l")
        chat.say("")
        chat.type(UP + BEGIN + b"oh ")
        chat.say("")
        chat.type(UP + UP)
        chat.say("")
        said = [m["content"] for m in self.saved(chat)["messages"][::2]]
        self.assertEqual(said, ["hello", "oh hello", "hello"])
        self.assertEqual(chat.leave(), OK)

    def test_history_is_there_the_next_time(self):
        chat = self.chat()
        chat.say("remember me")
        self.assertEqual(chat.leave(), OK)
        path = os.path.join(self.folder, "spry", "history")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        chat = self.chat("--no-history")
        chat.say("a secret")
        self.assertEqual(chat.leave(), OK)
        with open(path, encoding="utf-8") as file:
            self.assertNotIn("secret", file.read())
        chat = self.chat()
        chat.type(UP)
        chat.wait_for("remember me")
        self.assertEqual(chat.leave(DELETE_LINE + b"\x04"), OK)

    def test_history_is_bounded_and_may_be_broken(self):
        os.makedirs(os.path.join(self.folder, "spry"))
        path = os.path.join(self.folder, "spry", "history")
        with open(path, "wb") as file:
            file.write(b"_HiStOrY_V2_\n" + b"".join(b"line\\040%d\n" % i for i in range(3000)))
        self.assertEqual(self.chat().leave(), OK)
        with open(path, "rb") as file:
            self.assertLessEqual(len(file.readlines()), 1001)
        for rubbish in (b"\xff\x00\x1b" * 100, b"x" * (5 << 20)):
            with open(path, "wb") as file:
                file.write(rubbish)
            chat = self.chat()
            chat.say("hello")
            self.assertEqual(chat.leave(), OK)

    def test_lines_that_go_on(self):
        chat = self.chat()
        chat.type("one\\\r")
        chat.wait_for(". ")
        chat.type("two \\\r")
        chat.wait_for(". ")
        chat.say("three")
        self.assertEqual(self.saved(chat)["messages"][0]["content"], "one\ntwo \nthree")
        chat.leave()

    def test_letters_of_the_world_in_any_locale(self):
        for locale in ("C", "C.UTF-8"):
            chat = self.chat(LC_ALL=locale)
            chat.say("déjà vu, 日本語, \U0001f600")
            self.assertEqual(self.saved(chat)["messages"][0]["content"], "déjà vu, 日本語, \U0001f600")
            chat.leave()

    def test_interrupted_answer_stays(self):
        chat = Chat(DRAFT, "--ignore-end", "--seed", "1", "--cpu", "ref", "--threads", "1", XDG_DATA_HOME=self.folder)
        chat.wait_for("> ")
        for i, message in enumerate(("Tell me a long tale.", "Go on.")):
            chat.type(message + "\r")
            chat.wait_for(message + "\n")
            chat.wait_for_more(10)
            chat.type(b"\x03")
            chat.wait_for("\n> ")
            messages = self.saved(chat)["messages"]
            self.assertEqual([m["role"] for m in messages], ["user", "assistant"] * (i + 1))
            self.assertGreater(len(messages[-1]["content"]), 5)
        chat.say("/stats")
        self.assertIn("interrupted", chat.shown)
        self.assertEqual(chat.leave(), OK)

    def test_keys_typed_during_an_answer_count_after_it(self):
        chat = Chat(DRAFT, "-n", "60", "--seed", "1", "--cpu", "ref", "--threads", "1", XDG_DATA_HOME=self.folder)
        chat.wait_for("> ")
        chat.type("Tell me a tale.\r")
        chat.wait_for("tale.\n")
        chat.wait_for_more(5)
        chat.type("/stats\r")
        chat.wait_for("first    token after")
        chat.wait_for("\n> ")
        chat.type("Go on.\r")
        chat.wait_for("on.\n")
        chat.wait_for_more(5)
        self.assertEqual(chat.leave(), OK)

    def test_interrupt_at_the_prompt_clears_the_line(self):
        chat = self.chat()
        chat.type("half a thou")
        chat.wait_for("half a thou")
        chat.type(b"\x03")
        chat.wait_for("\n> ")
        chat.say("whole")
        self.assertEqual([m["content"] for m in self.saved(chat)["messages"][::2]], ["whole"])
        chat.type("one\\\r")
        chat.wait_for(". ")
        chat.type(b"\x03")
        chat.wait_for("\n> ")
        self.assertEqual(len(self.saved(chat)["messages"]), 2)
        self.assertEqual(chat.leave(), OK)

    def test_commands(self):
        chat = self.chat("--system", "You are a boat.")
        chat.say("/stats")
        self.assertIn("no answer yet", chat.shown)
        chat.say("Hello")
        chat.say("/system You are a ship.")
        chat.say("/stats")
        self.assertRegex(chat.shown, r"answer +\d+ tokens")
        self.assertEqual(self.saved(chat)["system"], "You are a ship.")
        chat.say("/clear")
        self.assertEqual(self.saved(chat)["messages"], [])
        self.assertEqual(self.saved(chat)["system"], "You are a ship.")
        chat.say("/system")
        self.assertIsNone(self.saved(chat)["system"])
        chat.say("/help")
        for name in ("/help", "/clear", "/system TEXT", "/save FILE", "/load FILE", "/title TEXT", "/forget", "/stats",
                     "/set NAME VALUE", "/model NAME", "/retry", "/undo", "/resume NUMBER", "/image FILE", "/bye"):
            self.assertIn("  " + name + " ", chat.shown)
        chat.say("/claer")
        self.assertIn("did you mean /clear?", chat.shown)
        chat.say("/xyzzy")
        self.assertIn("/help lists", chat.shown)
        chat.say("/save")
        self.assertIn("needs the name of a file", chat.shown)
        chat.say("/save /nowhere/at/all")
        self.assertIn("/nowhere/at/all: cannot create", chat.shown)
        chat.say("   ")
        self.assertEqual(self.saved(chat)["messages"], [])
        self.assertEqual(chat.leave(b"/quit\r"), OK)

    def test_save_and_load(self):
        chat = self.chat()
        chat.say("/system Be \"brief\" \\ and kind.")
        chat.say("Hello")
        saved = self.saved(chat)
        chat.leave()
        chat = self.chat()
        chat.say("/load " + self.file)
        self.assertIn("Loaded: 2 turns.", chat.shown)
        self.assertEqual(self.saved(chat), saved)
        chat.say("More")
        self.assertEqual(len(self.saved(chat)["messages"]), 4)
        self.assertEqual(chat.leave(), OK)

    def test_files_that_cannot_be_loaded_change_nothing(self):
        chat = self.chat()
        chat.say("Hello")
        before = self.saved(chat)
        for text, words in ((None, "cannot open"), ("", "not valid JSON"), ("{", "not valid JSON"),
                            ("[]", "not a saved chat"), ("{}", "not a saved chat"),
                            ('{"messages": [1]}', "messages[0].role"),
                            ('{"messages": [{"role": "system", "content": ""}]}', "messages[0].role"),
                            ('{"messages": [{"role": "user", "content": 5}]}', "messages[0].content"),
                            ('{"messages": [], "system": 5}', '"system" is not a string'),
                            ('{"messages": [{"role": "user", "content": "\\u0000"}]}', "not valid JSON")):
            bad = os.path.join(self.folder, "bad.json")
            if text is not None:
                with open(bad, "w", encoding="utf-8") as file:
                    file.write(text)
            chat.type("/load %s\r" % bad)
            chat.wait_for(words)
            chat.wait_for("\n> ")
        chat.say("/load " + self.folder)
        self.assertIn("is a folder", chat.shown)
        self.assertEqual(self.saved(chat), before)
        self.assertEqual(chat.leave(), OK)

    def test_conversation_longer_than_the_context(self):
        chat = self.chat("--context", "64")
        chat.say("Hi")
        turns = len(self.saved(chat)["messages"])
        chat.type("many words " * 14 + "\r")
        chat.wait_for("the context holds 64")
        chat.wait_for("\n> ")
        self.assertEqual(len(self.saved(chat)["messages"]), turns)
        chat.say("/clear")
        chat.say("Hi")
        self.assertEqual(len(self.saved(chat)["messages"]), 2)
        self.assertEqual(chat.leave(), OK)

    def test_answer_that_fills_the_context_goes_on(self):
        chat = self.chat("--context", "40", "--ignore-end", "-n", "200")
        chat.say("Hi")
        chat.say("/stats")
        self.assertRegex(chat.shown, r"answer +200 tokens")
        self.assertEqual(chat.leave(), OK)

    def test_second_message_reuses_the_first(self):
        chat = self.chat("--stats")
        chat.say("Hello there")
        chat.say("And again")
        reused = re.search(r"(\d+) more were cached", chat.shown)
        self.assertGreater(int(reused.group(1)), 10)
        self.assertEqual(chat.leave(), OK)

    def test_colours(self):
        chat = self.chat()
        chat.leave()
        self.assertIn(b"\x1b[1;36m", chat.raw)
        chat = self.chat(NO_COLOR="1")
        chat.say("/nonsense")
        chat.leave()
        self.assertEqual(re.findall(rb"\x1b\[[0-9;]+m", chat.raw), [])

    def test_ending_from_outside(self):
        chat = self.chat()
        chat.type("half a line")
        chat.wait_for("half a line")
        chat.process.send_signal(signal.SIGTERM)
        self.assertEqual(chat.drain(), -signal.SIGTERM)
        self.assertEqual(termios.tcgetattr(chat.slave), chat.before)
        os.close(chat.slave)
        os.close(chat.master)
        chat = self.chat()
        os.close(chat.slave)
        os.close(chat.master)  # the window is closed
        chat.process.wait(TIMEOUT)

    def test_stopping_and_resizing(self):
        chat = self.chat()
        chat.type("hel")
        chat.wait_for("hel")
        chat.type(b"\x1a")
        _, status = os.waitpid(chat.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        self.assertEqual(termios.tcgetattr(chat.slave), chat.before)
        chat.process.send_signal(signal.SIGCONT)
        chat.wait_for("hel")
        for columns in (30, 5, 100):
            fcntl.ioctl(chat.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            chat.type("lo ")
        chat.say("")
        self.assertEqual(self.saved(chat)["messages"][0]["content"], "hello lo lo ")
        self.assertEqual(chat.leave(), OK)
        self.assertTrue(chat.restored)

    def test_prompt_is_needed_for_json_and_raw(self):
        for option in ("--json", "--raw"):
            chat = Chat(tiny("qwen3"), option)
            chat.wait_for("needs a prompt")
            self.assertEqual(chat.drain(), cli_support.USAGE)
            os.close(chat.slave)
            os.close(chat.master)


if __name__ == "__main__":
    cli_support.main()
