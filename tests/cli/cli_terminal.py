"""The program in tmux, a real terminal: what is on the screen, and where the cursor is. Tests wait for texts, never for time."""

import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import cli_support
import scripted_model
from cli_support import HOME, SPRY, TIMEOUT, environment, spry, tiny

DRAFT = "Spry-Tales-Draft-4M"
ANSWER = "It was a **bold** little boat with extraordinarily long ropes, and nobody in the harbour knew its name."
PIECES = [word + " " for word in ANSWER.split()][:-1] + [ANSWER.split()[-1]]


class Screen:
    """A terminal of its own, with a shell that runs the program once."""

    def __init__(self, *arguments, columns=80, rows=24, before="", **changes):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.socket = os.path.join(self.folder, "tmux")
        self.data = changes.setdefault("XDG_DATA_HOME", os.path.join(self.folder, "data"))
        term = changes.pop("TERM", None)
        command = " ".join("'%s'" % a for a in (SPRY,) + arguments)
        if term is not None:
            command = "TERM='%s' %s" % (term, command)
        script = os.path.join(self.folder, "script")
        with open(script, "w", encoding="utf-8") as file:
            file.write("trap : INT\n%s\n%s\necho \"ended with $?\"\nexec cat >/dev/null\n" % (before, command))
        self.environment = environment(**changes)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", self.folder, "sh", script)

    def tmux(self, *arguments, **options):
        return subprocess.run(["tmux", "-u", "-S", self.socket, *arguments], check=True, env=self.environment, timeout=TIMEOUT,
                              stdout=subprocess.PIPE, **options).stdout.decode("utf-8")

    @property
    def text(self):
        """Every line from the first one on, without the spaces at their ends."""
        return "\n".join(line.rstrip() for line in self.tmux("capture-pane", "-p", "-S", "-").split("\n")).rstrip()

    @property
    def cursor(self):
        return tuple(int(n) for n in self.tmux("display-message", "-p", "#{cursor_x} #{cursor_y}").split())

    def wait(self, *words):
        """Waits until the screen has all of them, and returns its text."""
        end = time.monotonic() + TIMEOUT
        while not all(word in self.text for word in words):
            if time.monotonic() > end:
                raise AssertionError("no %r in:\n%s" % (words, self.text))
            time.sleep(0.02)
        return self.text

    def wait_last(self, line):
        """Waits until the last line is this one."""
        end = time.monotonic() + TIMEOUT
        while self.text.split("\n")[-1] != line:
            if time.monotonic() > end:
                raise AssertionError("the last line is not %r in:\n%s" % (line, self.text))
            time.sleep(0.02)
        return self.text

    def wait_not_last(self, line):
        while self.text.split("\n")[-1] == line:
            time.sleep(0.02)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def say(self, text):
        self.type(text)
        if text:
            self.wait_not_last(">")
        self.keys("Enter")
        return self.wait_last(">")

    def paste(self, text):
        self.tmux("load-buffer", "-", input=text.encode("utf-8"))
        self.tmux("paste-buffer", "-p", "-r")

    def resize(self, columns, rows=24):
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


class TerminalTest(cli_support.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir=HOME)
        cls.scripted = os.path.join(cls.folder, "scripted.gguf")
        scripted_model.write(cls.scripted, ["Let ", "me ", "see. "], PIECES)

    def screen(self, *arguments, model=None, **options):
        screen = Screen("run", model or self.scripted, "--seed", "1", *arguments, **options)
        self.addCleanup(screen.close)
        screen.wait_last(">")
        return screen

    def messages(self, screen):
        """What the chat holds now."""
        path = os.path.join(screen.folder, "saved.json")
        screen.say("/save " + path)
        screen.wait("Saved.")
        with open(path, encoding="utf-8") as file:
            return [m["content"] for m in json.load(file)["messages"]]

    # ---- input ----

    def test_pasted_lines_are_one_message(self):
        screen = self.screen()
        screen.paste("one\ntwo\n\tthree")
        screen.wait("> one\n. two\n.     three")
        screen.keys("Enter")
        screen.wait_last(">")
        self.assertEqual(self.messages(screen)[0], "one\ntwo\n\tthree")
        screen.paste("a\x1b[31m\x07b\r\nc")
        screen.wait("> a?[31m?b\n. c")  # control characters are not obeyed

    def test_text_between_quotes_has_lines(self):
        screen = self.screen()
        screen.type('"""first')
        screen.keys("Enter")
        screen.wait_last(".")
        screen.type('second"""')
        screen.keys("Enter")
        screen.wait("boat")
        screen.wait_last(">")
        screen.type("x")
        screen.keys("M-Enter")
        screen.say("y\\z")
        self.assertEqual(self.messages(screen)[::2], ["first\nsecond", "x\ny\\z"])

    def test_a_megabyte_is_pasted(self):
        screen = self.screen("--context", "512")
        text = "A line of the megabyte, which has a number: 123456.\n" * 20000
        screen.paste(text)
        screen.wait(". A line of the megabyte")
        screen.type("the end")
        screen.wait(". the end")
        screen.keys("Enter")
        screen.wait("Up brings it back")
        screen.say("Hello")
        self.assertEqual(self.messages(screen)[0], "Hello")
        screen.keys("Up", "Up", "Up")
        screen.wait_last(". the end")

    def test_editing_in_several_rows(self):
        screen = self.screen(columns=30)
        screen.type("alpha beta gamma delta epsilon zeta")
        screen.wait("> alpha beta gamma delta epsil\non zeta")
        screen.keys("Up")
        screen.type("X")
        screen.wait("> alphaX beta gamma delta epsi\nlon zeta")
        self.assertEqual(screen.cursor[0], 8)
        screen.keys("C-e")
        screen.keys("C-w")
        screen.wait_last("lon")
        screen.keys("C-u", "C-y")
        screen.wait("> alphaX beta gamma delta epsi\nlon")
        screen.keys("Home", "M-f", "M-d", "Delete")
        screen.wait("> alphaXgamma delta epsilon")

    def test_wide_characters_move_the_cursor_by_two(self):
        screen = self.screen(columns=20)
        screen.type("日本語のテキストです")
        screen.wait("> 日本語のテキストで\nす")
        screen.keys("Left", "Left")
        screen.type("x")
        screen.wait("> 日本語のテキストx\nです")

    def test_resizing_while_a_message_is_typed(self):
        screen = self.screen(columns=60)
        screen.say("/help")  # tmux keeps the cursor's row, and pushes lines out where there are none above
        screen.say("/help")
        words = "the quick brown fox jumps over the lazy dog and runs away from it"
        screen.type(words)
        screen.wait("runs away")
        for columns in (25, 70, 20, 100):
            screen.resize(columns)
            line = "> " + words
            screen.wait("\n".join(line[i : i + columns].rstrip() for i in range(0, len(line), columns)))
        screen.keys("Left")
        screen.type("!")
        self.assertEqual(screen.wait("from i!t").count("quick"), 1)

    def test_searching_earlier_messages(self):
        screen = self.screen()
        screen.say("tell me of boats")
        screen.say("tell me of trains")
        screen.keys("C-r")
        screen.type("of")
        screen.wait_last("search 'of': tell me of trains")
        screen.keys("C-r")
        screen.wait_last("search 'of': tell me of boats")
        screen.keys("BSpace", "BSpace")
        screen.type("trains")
        screen.wait_last("search 'trains': tell me of trains")
        screen.keys("C-g")
        screen.wait_last(">")
        screen.keys("C-r")
        screen.type("boats")
        screen.wait_last("search 'boats': tell me of boats")
        screen.keys("End")
        screen.wait_last("> tell me of boats")
        screen.type(" again")
        screen.say("")
        self.assertEqual(self.messages(screen)[-2], "tell me of boats again")

    def test_tab_completes(self):
        screen = self.screen()
        for name in ("one.json", "only.txt", "second"):
            open(os.path.join(screen.folder, name), "w", encoding="utf-8").close()
        os.mkdir(os.path.join(screen.folder, "folder"))
        screen.type("/ret")
        screen.keys("Tab")
        screen.wait_last("> /retry")
        screen.keys("C-u")
        screen.type("/load on")
        screen.keys("Tab")
        screen.wait("one.json  only.txt\n> /load on")
        screen.type("e")
        screen.keys("Tab")
        screen.wait_last("> /load one.json")
        screen.keys("C-u")
        screen.type("look at fo")
        screen.keys("Tab")
        screen.wait_last("> look at folder/")
        screen.keys("C-u")
        screen.type("/set thi")
        screen.keys("Tab")
        screen.wait_last("> /set think")
        screen.type("sh")
        screen.keys("Tab")
        screen.wait_last("> /set think show")
        screen.keys("C-u")
        screen.type("/model spry-tales-d")
        screen.keys("Tab")
        screen.wait_last("> /model spry-tales-d")  # names are completed as they are spelled
        screen.keys("C-u")
        screen.type("/model Spry-Tales-D")
        screen.keys("Tab")
        screen.wait_last("> /model " + DRAFT)

    def test_a_line_typed_during_an_answer_waits_for_the_prompt(self):
        screen = self.screen("--ignore-end", "--cpu", "ref", "-t", "1", model=DRAFT)
        screen.type("Tell me a tale.")
        screen.keys("Enter")
        screen.wait("> Tell me a tale.\n", "Once")
        screen.type("/stats of nothing")
        screen.keys("C-c")
        screen.wait_last(">")
        self.assertNotIn("/stats of", screen.text)  # Ctrl-C discards it

    # ---- output ----

    def test_words_are_never_broken(self):
        for columns in (20, 33, 80):
            screen = self.screen("--think", "off", columns=columns)
            text = screen.say("Hi").split("> Hi\n")[1]
            shown = text.rsplit("\n>", 1)[0]
            self.assertEqual(shown.split(), ANSWER.replace("**", "").split(), text)
            self.assertTrue(all(len(line) <= columns for line in shown.split("\n")))
            help_text = screen.say("/help")
            self.assertTrue(all(len(line) <= columns for line in help_text.split("\n")), help_text)

    def test_thoughts_are_folded_shown_or_off(self):
        screen = self.screen()
        self.assertIn("thought for ", screen.say("Hi"))
        self.assertNotIn("Let me see", screen.text)
        self.assertEqual(self.messages(screen)[1], ANSWER)
        screen.say("/set think show")
        shown = screen.say("Hi again").split("> Hi again")[1]
        self.assertIn("\nLet me see.\n\nIt was a bold little boat", shown)
        dimmed = screen.tmux("capture-pane", "-p", "-e")
        self.assertIn("\x1b[2mLet me see.", dimmed)
        screen.say("/set think off")
        off = screen.say("Once more").split("> Once more")[1]
        self.assertNotIn("thought", off)
        self.assertIn("bold little boat", off)

    def test_what_is_done_is_shown_before_the_first_word(self):
        screen = self.screen("--cpu", "ref", "-t", "1", "-n", "4", model=DRAFT)
        screen.paste("a tale of a boat and a crow " * 250)
        screen.keys("Enter")
        screen.wait("reading the prompt")
        screen.keys("C-c")
        screen.wait("interrupted")
        self.assertNotIn("reading the prompt", screen.wait_last(">"))
        template = os.path.join(screen.folder, "template")
        with open(template, "w", encoding="utf-8") as file:
            file.write("{% for m in messages %}{{ m.content }}{% endfor %}\n<think>\n")
        screen = self.screen("--cpu", "ref", "-t", "1", "--ignore-end", "--chat-template", template, model=DRAFT)
        screen.type("Once upon a time")
        screen.keys("Enter")
        screen.wait("thinking")
        screen.keys("C-c")
        self.assertIn("interrupted", screen.wait_last(">"))

    def test_nothing_is_a_dead_end_when_the_context_is_full(self):
        screen = self.screen("--context", "320", "--think", "off")
        for i in range(8):
            screen.say("Message number %d with some words." % i)
        self.assertIn("The context is full: the model no longer sees the first", screen.text)
        self.assertNotIn("spry:", screen.text)
        self.assertEqual(len(self.messages(screen)), 16)
        screen.say("word " * 100)
        self.assertIn("the context holds 320; Up brings it back to be shortened, --context", screen.text.replace("\n", " "))
        self.assertEqual(len(self.messages(screen)), 16)
        screen = self.screen("--context", "64", "-n", "200", "--ignore-end", "--think", "off")
        screen.say("Hi")
        self.assertNotIn("spry:", screen.text)

    def test_figures_are_not_broken(self):
        for columns in (30, 80):
            screen = self.screen("--think", "off", "-n", "4", columns=columns)
            screen.say("Hi")
            shown = screen.say("/stats").split("/stats\n")[1]
            for words in ("kernels", "of keys and values each", "length limit reached; seed 1", "the rest "):
                self.assertIn(words, " ".join(shown.split()))
            for line in shown.splitlines()[:-1]:
                self.assertLessEqual(len(line), columns)
                self.assertRegex(line, r"^([a-z]+ +\S| {2}\S| {9}\S)")

    # ---- commands ----

    def test_commands_change_the_chat(self):
        screen = self.screen("--think", "off")
        screen.say("first")
        screen.say("second")
        screen.say("/undo")
        self.assertEqual(self.messages(screen), ["first", ANSWER])
        screen.say("/retry")
        self.assertEqual(screen.text.count("bold little boat"), 3)
        self.assertEqual(self.messages(screen), ["first", ANSWER])
        screen.say("/set temprature 1")
        self.assertIn("there is no setting 'temprature'; did you mean temperature?", screen.text.replace("\n", " "))
        screen.say("/set temperature 9e9")
        self.assertIn("must be a number from 0 to", screen.text)
        screen.say("/set parameter temperature 0.5")
        self.assertIn("temperature is 0.5.", screen.text)
        screen.say("/set choice yes,no")
        screen.say("Is it so?")
        self.assertIn(self.messages(screen)[-1], ("yes", "no"))
        screen.say("/set regex (")
        self.assertIn("only one of them can be given", screen.text.replace("\n", " "))
        screen.say("/set choice default")
        screen.say("/set")
        self.assertRegex(screen.text, r"temperature +0.5: ")
        screen.say("/image boat.png")
        self.assertIn("scripted cannot see pictures", screen.text)
        screen.say("/model")
        self.assertIn("scripted. /model NAME continues with another", screen.text)
        screen.say("/model nothing-of-that-name")
        self.assertIn("no model 'nothing-of-that-name'", screen.text)
        screen.say("/model " + DRAFT)
        self.assertIn(DRAFT + ", 2048 tokens of context.", screen.text)
        screen.say("/some/path is not a command")
        self.assertEqual(len(self.messages(screen)), 6)
        screen.say("/resume")
        self.assertRegex(screen.text, r"\n +1  first\n")
        screen.keys("C-d")
        screen.wait("ended with 0")

    def test_pictures_by_command_and_by_pasted_path(self):
        model, folder = tiny("qwen3-vl", ""), tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, folder)
        cat, dog = os.path.join(folder, "cat.png"), os.path.join(folder, "my dog.PNG")
        for i, path in enumerate((cat, dog)):
            shutil.copy(os.path.join(model, "image%d.png" % i), path)
        with open(os.path.join(folder, "text.png"), "w", encoding="utf-8") as file:
            file.write("<svg/>")
        options = ("--temp", "0", "--max-tokens", "8", "--kv-type", "f32", "--cpu", "ref")
        alone = self.succeeds(spry("run", model, "--image", cat, "-p", "What is it?", *options)).text.rstrip("\n")
        screen = self.screen(*options, "--seed", "0", model=model)
        screen.say("/image")
        screen.wait("/image needs the name of a file")
        screen.say("/image %s/none.png" % folder)
        screen.wait("there is no such file")
        screen.say("/image %s/text.png" % folder)
        screen.wait("is no PNG, JPEG, WebP or GIF file")
        screen.say("/image " + cat)
        screen.wait("cat.png: 6 tokens, seen in")
        screen.say("What is it?")
        self.assertEqual(self.messages(screen), ["[image: %s]\nWhat is it?" % cat, alone])
        screen.say("'%s' " % dog)  # as a terminal pastes a file that is dropped on it
        screen.wait("my dog.PNG: ", "Now ask about it")
        screen.say("/image")
        screen.wait("without pictures")
        screen.say(dog)  # as another terminal does
        screen.say("And in %s?" % cat.replace("cat", "c\\at"))
        self.assertEqual(self.messages(screen)[2], "[image: %s]\n[image: %s]\nAnd in cat.png?" % (dog, cat))
        screen.say("/undo")
        os.remove(cat)
        screen.say("Is it there?")
        self.assertEqual(len(self.messages(screen)), 4)
        screen.keys("C-d")
        screen.wait("ended with 0")
        screen = self.screen("--temp", "0", model=self.scripted, XDG_DATA_HOME=screen.data)
        screen.say("/resume")
        self.assertRegex(screen.text, r"\n +1  What is it\?\n")
        screen.say(dog)
        self.assertEqual(self.messages(screen)[0], dog)

    def test_a_stored_chat_is_resumed(self):
        screen = self.screen("--think", "off")
        screen.say("of boats")
        screen.say("/clear")
        screen.say("of trains")
        screen.say("/resume 1")
        self.assertIn("Chat 1, 2 turns so far.", screen.text)
        self.assertEqual(self.messages(screen), ["of boats", ANSWER])
        screen.say("more")
        screen.say("/undo")
        screen.say("/resume 99")
        self.assertIn("there is no chat 99", screen.text.replace("\n", " "))
        screen.type("/bye")
        screen.keys("Enter")
        screen.wait("ended with 0")
        listed = cli_support.spry("chats", XDG_DATA_HOME=screen.data).text
        self.assertRegex(listed, r"1 .*of boats")
        self.assertRegex(listed, r"2 .*of trains")

    # ---- other commands ----

    def test_a_server_shows_its_requests(self):
        screen = Screen("serve", DRAFT, "--port", "0", "--kv-bytes", "64M", columns=150)
        self.addCleanup(screen.close)
        text = screen.wait("in your browser, Ctrl-C ends the server")
        url = re.search(r"%s answers; open (http://127\.0\.0\.1:\d+) in your browser" % DRAFT, text).group(1)
        body = json.dumps({"model": DRAFT, "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]}).encode()
        for path, data in (("/", None), ("/v1/models", None), ("/v1/chat/completions", body), ("/nothing\x1b", b"x")):
            try:
                urllib.request.urlopen(urllib.request.Request(url + urllib.parse.quote(path), data)).read()
            except urllib.error.HTTPError as error:
                error.close()
        text = screen.wait("POST /nothing")
        self.assertRegex(text, r"\n\d\d:\d\d:\d\d  200  GET /v1/models  ")
        self.assertRegex(text, r"  200  POST /v1/chat/completions  %s  \d+ \+ 3 tokens  \d" % DRAFT)
        self.assertRegex(text, r"  404  POST /nothing")
        self.assertNotIn("GET /  ", text)
        screen.keys("C-c")
        screen.wait("ended with 0")

    def test_a_pull_shows_a_bar(self):
        body = b"GGUF" + bytes(3 << 20)

        class Slow(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2])
                release.wait(TIMEOUT)
                self.wfile.write(body[len(body) // 2 :])

        release = threading.Event()
        web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            screen = Screen("pull", "http://127.0.0.1:%d/m.gguf" % web.server_address[1], "mine")
            self.addCleanup(screen.close)
            screen.wait("mine [############............] 50 %")
            release.set()
            text = screen.wait("ended with 0")
            self.assertIn("mine is in ", text)
            self.assertNotIn("[####", text)
        finally:
            release.set()
            web.shutdown()
            web.server_close()
            thread.join()

    # ---- bad circumstances ----

    def test_terminals_of_any_kind(self):
        for term in ("", "dumb", "no-such-terminal", "vt52"):
            screen = self.screen("--think", "off", TERM=term)
            screen.type("Hi")
            screen.keys("Enter")
            screen.wait("name.")
            screen.wait_last(">")
            self.assertNotIn("\x1b", screen.text)
            screen.type("two\\")
            screen.keys("Enter")
            screen.wait_last(".")
            screen.say("lines")
            self.assertEqual(self.messages(screen)[::2], ["Hi", "two\nlines"])
            screen.keys("C-d")
            screen.wait("ended with 0")

    def test_narrow_terminal(self):
        screen = self.screen(columns=20, rows=8)
        screen.type("x" * 300)
        screen.wait("x" * 20)
        self.assertEqual(screen.cursor, (2, 7))
        screen.keys("C-u")
        screen.say("short")
        self.assertIn("boat", screen.text)

    def test_no_home_and_a_read_only_folder(self):
        screen = self.screen(before="unset HOME XDG_DATA_HOME", columns=200)
        self.assertIn("this chat is not stored: HOME is not set", screen.text)
        self.assertIn("boat", screen.say("Hi"))
        screen.keys("C-d")
        screen.wait("ended with 0")
        file = os.path.join(self.folder, "a-file")
        open(file, "w", encoding="utf-8").close()
        screen = self.screen(XDG_DATA_HOME=file + "/below", columns=200)
        self.assertIn("this chat is not stored", screen.text)
        self.assertIn("boat", screen.say("Hi"))
        self.assertIn("the history is not saved", screen.text)
        self.assertEqual(screen.say("Hi again").count("the history is not saved"), 1)
        screen.keys("C-d")
        screen.wait("ended with 0")


if __name__ == "__main__":
    cli_support.main()
