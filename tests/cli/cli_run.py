"""spry run: one answer, from prompt to exit code."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time

import cli_support
from cli_support import (FAILURE, HOME, INTERRUPTED, MODELS, OK, PUBLIC, READER_LEFT, SPRY, TIMEOUT, USAGE, environment,
                         spry, start, tiny)

TINY = tiny("qwen3")
DRAFT = "Spry-Tales-Draft-4M"
PROMPT = "Tell me a tale about a boat."


def answer(*options, **more):
    return spry("run", TINY, "-p", PROMPT, *options, **more)


class Answers(cli_support.CliTest):
    def test_same_seed_same_text(self):
        first, second = (self.succeeds(answer("-n", "30", "--seed", "11")).out for _ in range(2))
        self.assertEqual(first, second)
        others = {answer("-n", "30", "--seed", str(seed)).out for seed in range(12, 16)}
        self.assertGreater(len(others - {first}), 2)

    def test_text_is_the_answer_and_one_newline(self):
        plain = self.succeeds(answer("-n", "25", "--seed", "3")).out
        object = self.succeeds(answer("-n", "25", "--seed", "3", "--json")).json
        self.assertEqual(plain, object["text"].encode() + b"\n")

    def test_json_says_everything(self):
        object = self.succeeds(answer("-n", "12", "--seed", "3", "--json", "--ignore-end")).json
        self.assertEqual(object["model"], "model-f32")
        self.assertEqual(object["finish"], "length")
        self.assertEqual(object["seed"], 3)
        self.assertEqual(object["generated_tokens"], 12)
        self.assertEqual(len(object["tokens"]), 12)
        self.assertGreater(object["prompt_tokens"], 5)
        self.assertEqual(object["reused_tokens"], 0)
        self.assertNotIn("logprobs", object)
        parts = object["first_token_ms"] + object["decode_ms"]
        self.assertLessEqual(object["prefill_ms"], object["first_token_ms"])
        self.assertLessEqual(parts, object["total_ms"] * 1.02 + 0.5)
        self.assertGreater(object["prefill_ms"], 0)

    def test_random_seed_is_told_and_repeats_the_run(self):
        first = answer("-n", "20", "--json").json
        again = answer("-n", "20", "--json", "--seed", str(first["seed"])).json
        self.assertEqual(first["tokens"], again["tokens"])
        self.assertEqual(first["seed"], again["seed"])
        self.assertGreater(len({answer("-n", "1", "--json").json["seed"] for _ in range(4)}), 1)

    def test_largest_seed(self):
        object = answer("-n", "5", "--json", "--seed", "18446744073709551615").json
        self.assertEqual(object["seed"], "18446744073709551615")

    def test_temperature_zero_needs_no_seed_and_does_not_depend_on_how(self):
        wanted = answer("-n", "40", "--temperature", "0").out
        for how in (["--seed", "5"], ["--threads", "1"], ["--threads", "3"], ["--chunk", "1"], ["--chunk", "7"],
                    ["--context", "200"]):
            self.assertEqual(answer("-n", "40", "--temperature", "0", *how).out, wanted, how)

    def test_kv_types_and_kernels(self):
        for how in (["--kv-type", "q8_0"], ["--kv-type", "f32"], ["--cpu", "ref"]):
            self.succeeds(answer("-n", "5", *how))
        self.fails(answer("--cpu", "abacus"), FAILURE, "abacus", "ref")

    def test_logprobs(self):
        object = answer("-n", "10", "--json", "--temperature", "0", "--logprobs", "3", "--ignore-end").json
        self.assertEqual([entry["id"] for entry in object["logprobs"]], object["tokens"])
        for entry in object["logprobs"]:
            self.assertEqual(len(entry["top"]), 3)
            values = [top["logprob"] for top in entry["top"]]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(entry["top"][0]["id"], entry["id"])
            self.assertEqual(entry["top"][0]["logprob"], entry["logprob"])
            self.assertLess(entry["logprob"], 0)
            self.assertTrue(("text" in entry) != ("bytes" in entry))
        pieces = b"".join(bytes(e["bytes"]) if "bytes" in e else e["text"].encode() for e in object["logprobs"])
        self.assertEqual(pieces.decode("utf-8", "replace"), object["text"])

    def test_stop_texts(self):
        whole = answer("-n", "40", "--temperature", "0", "--json").json["text"]
        stop = whole[10:14]
        expected = whole[: whole.index(stop)]
        object = answer("-n", "40", "--temperature", "0", "--json", "--stop", "not there", "--stop", stop).json
        self.assertEqual((object["text"], object["finish"]), (expected, "stop"))
        self.fails(answer("--stop", ""), FAILURE, "stop string 1")
        many = [word for i in range(17) for word in ("--stop", "stop %d" % i)]
        self.fails(answer(*many), USAGE, "--stop")

    def test_golden_continuations(self):
        """The greedy continuations that transformers gave, as far as no choice was close."""
        for name in ("llama", "qwen3", "gemma3", "qwen2-moe"):
            with open(os.path.join(MODELS, name, "golden.json"), encoding="utf-8") as file:
                cases = json.load(file)["cases"]
            for case in cases:
                sure = next((i for i, m in enumerate(case["greedy_margin"]) if m < 0.01), len(case["greedy_margin"]))
                object = spry("run", tiny(name), "--raw", "-p", case["prompt"], "-n", "24", "--temperature", "0",
                              "--json", "--kv-type", "f32", "--ignore-end").json
                self.assertEqual(object["tokens"][:sure], case["greedy"][:sure], (name, case["prompt"]))
                self.assertEqual(object["prompt_tokens"], len(case["ids"]))

    def test_folder_and_file_give_the_same(self):
        file = spry("run", tiny("qwen3"), "-p", "Hi", "-n", "12", "--temperature", "0").out
        folder = spry("run", tiny("qwen3", ""), "-p", "Hi", "-n", "12", "--temperature", "0").out
        self.assertEqual(file, folder)

    def test_a_model_others_trained(self):
        model = cli_support.public("models", "stories260K", "stories260K-f32.gguf")
        if not model:
            self.skipTest("no data")
        for name, prompt in (("expected_t0_n256.txt", ""), ("expected_t0_n200_tom.txt", "Tom and his dog")):
            with open(os.path.join(PUBLIC, "models", "stories260K", name), encoding="utf-8") as file:
                expected = file.read()
            result = self.succeeds(spry("run", model, "--raw", "-p", prompt, "-n", "150", "--temperature", "0"))
            got = (prompt + result.text[:-1]).lstrip()
            self.assertGreater(len(got), 300)
            self.assertEqual(got, expected[: len(got)])


class Prompts(cli_support.CliTest):
    def test_pipe_is_the_prompt(self):
        wanted = answer("-n", "10", "--seed", "1").out
        piped = spry("run", TINY, "-n", "10", "--seed", "1", stdin=PROMPT.encode() + b"\n")
        self.assertEqual(self.succeeds(piped).out, wanted)

    def test_prompt_after_the_model(self):
        wanted = answer("-n", "10", "--seed", "1").out
        for given in ([PROMPT], PROMPT.split(" ")):
            self.assertEqual(self.succeeds(spry("run", TINY, *given, "-n", "10", "--seed", "1")).out, wanted)

    def test_standard_input_joins_the_prompt(self):
        wanted = self.succeeds(spry("run", TINY, "-p", "a text\n\n" + PROMPT, "-n", "10", "--seed", "1")).out
        self.assertEqual(answer("-n", "10", "--seed", "1", stdin=b"a text\n").out, wanted)
        self.assertEqual(spry("run", TINY, PROMPT, "-n", "10", "--seed", "1", stdin=b"a text").out, wanted)
        raw = spry("run", TINY, "--raw", "-p", " c", "-n", "1", "--json", stdin=b"a b").json["prompt_tokens"]
        self.assertEqual(raw, spry("run", TINY, "--raw", "-p", "a b c", "-n", "1", "--json").json["prompt_tokens"])

    def test_raw_prompt_keeps_its_newline(self):
        raw = [spry("run", TINY, "--raw", "-n", "1", "--json", stdin=text).json["prompt_tokens"]
               for text in (b"a", b"a\n")]
        self.assertEqual(raw[1], raw[0] + 1)

    def test_control_tokens_in_a_raw_prompt_only_when_asked(self):
        tokens = [spry("run", TINY, "--raw", "-p", "<|im_end|>", "-n", "1", "--json", *how).json["prompt_tokens"]
                  for how in ([], ["--special"])]
        self.assertEqual(tokens[1], 1)
        self.assertGreater(tokens[0], 3)

    def test_system_message_counts(self):
        with_system = answer("-n", "1", "--json", "--system", "You are a boat.").json["prompt_tokens"]
        self.assertGreater(with_system, answer("-n", "1", "--json").json["prompt_tokens"] + 5)

    def test_control_tokens_in_a_prompt_are_text(self):
        tokens = [spry("run", TINY, "-p", p, "-n", "1", "--json").json["prompt_tokens"] for p in ("a", "a<|im_end|>")]
        self.assertGreater(tokens[1], tokens[0] + 1)

    def test_bytes_that_are_no_text_are_told_once(self):
        for prompt in (b"caf\xe9 \xff\xfe ok", b"\xed\xa0\x80", b"\xf0\x9f\x98"):
            for result in (spry("run", TINY, "-p", prompt, "-n", "3"), spry("run", TINY, "-n", "3", stdin=prompt)):
                self.assertEqual(result.code, OK)
                self.one_sentence(result, "the prompt is not valid UTF-8", "U+FFFD")
        result = spry("run", TINY, "-n", "3", stdin=b"a\0b")
        self.assertEqual(result.code, OK)
        self.one_sentence(result, "1 sequence")
        result = spry("run", TINY, "-p", "x", "--system", b"\xff", "-n", "3")
        self.one_sentence(result, "the system message")

    def test_prompt_longer_than_the_context(self):
        self.fails(spry("run", TINY, "--context", "64", "-p", "word " * 500), FAILURE, "the context holds 64", "tokens")
        self.fails(spry("run", TINY, "--context", "100000", "-p", "x"), FAILURE, "100000", "512")

    def test_full_context_is_told(self):
        result = answer("--context", "40", "--ignore-end", "--temperature", "0")
        self.assertEqual(result.code, OK)
        self.one_sentence(result, "context of 40 tokens is full")
        self.assertEqual(answer("--context", "40", "--ignore-end", "--json").json["finish"], "context")


class Streams(cli_support.CliTest):
    def test_text_streams(self):
        """A reader that comes late still sees each write by itself: a socket keeps them apart."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, its:
            process = subprocess.Popen([SPRY, "run", DRAFT, "-p", PROMPT, "-n", "30", "--seed", "1", "--ignore-end", "--cpu",
                                        "ref"], stdin=subprocess.DEVNULL, stdout=its, cwd=HOME, env=environment())
            its.close()
            pieces = list(iter(lambda: ours.recv(65536), b""))
            self.assertEqual(process.wait(TIMEOUT), OK)
        self.assertGreater(len(pieces), 8)
        for piece in pieces:
            piece.decode("utf-8")

    def test_stats_on_standard_error(self):
        result = answer("-n", "6", "--stats", "--seed", "9", "--ignore-end")
        self.assertEqual(result.code, OK)
        for words in ("answer   6 tokens", "seed 9", "tokens/s", "199k parameters", "first    token after"):
            self.assertIn(words, result.errors)
        self.assertNotIn("\x1b", result.errors)
        self.assertEqual(result.out, answer("-n", "6", "--seed", "9", "--ignore-end").out)

    def test_verbose_tells_what_a_token_costs(self):
        self.assertIn("bytes a token", answer("-n", "1", "-v").errors)

    def test_reader_who_leaves_ends_the_answer_quietly(self):
        process = start("run", TINY, "-p", PROMPT, "--ignore-end", "--temperature", "1", stdin=subprocess.DEVNULL)
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
        self.assertEqual((process.wait(TIMEOUT), errors), (READER_LEFT, b""))
        process.stderr.close()

    def test_full_disk(self):
        for options in ([], ["--json"]):
            with open("/dev/full", "wb") as full:
                result = answer("-n", "10", *options, stdout=full)
            self.assertEqual(result.code, FAILURE)
            self.assertEqual(result.errors, "spry: cannot write to standard output: No space left on device\n")

    def test_interrupt(self):
        process = start("run", DRAFT, "-p", PROMPT, "--ignore-end", "--cpu", "ref", "--threads", "1",
                        stdin=subprocess.DEVNULL)
        first = os.read(process.stdout.fileno(), 100)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertEqual(errors, b"")
        self.assertTrue((first + out).endswith(b"\n"))

    def test_interrupt_while_the_reader_is_slow(self):
        """The write that waits is finished: nothing is lost, and Ctrl-C is no failure of standard output."""
        process = subprocess.Popen([SPRY, "run", DRAFT, "-p", PROMPT, "-n", "20000", "--seed", "1", "--ignore-end", "--slide", "--raw"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HOME, env=environment())
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        held = -1
        while held != (held := struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, bytes(4)))[0]) or held < 3900:
            time.sleep(0.2)  # until the pipe is full
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        out, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, INTERRUPTED, errors)
        self.assertNotIn(b"cannot write", errors)
        self.assertGreaterEqual(len(out), 3900)

    def test_progress_of_a_long_prompt_and_interrupt(self):
        """Standard error is a terminal: it shows how far the prompt is, until Ctrl-C ends it."""
        master, slave = pty.openpty()
        slow = ["--chunk", "8", "--cpu", "ref", "--threads", "1"]
        process = subprocess.Popen([SPRY, "run", "-p", "boat " * 1500, "--json", *slow], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=slave, cwd=HOME,
                                   env=environment(NO_COLOR="1"))
        os.close(slave)
        shown = b""
        while not re.search(rb"reading the prompt  \d+ of \d\d\d\d \(\d+ %\)", shown):
            shown += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(TIMEOUT), INTERRUPTED)
        self.assertEqual(json.loads(out)["finish"], "cancelled")
        self.assertNotIn(b"\x1b", shown)
        os.close(master)

    def on_terminal(self, *arguments, width=80, **changes):
        """Runs with a terminal as standard output and error; returns the exit code and what it showed."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, width, 0, 0))
        process = subprocess.Popen([SPRY, *arguments], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=HOME,
                                   env=environment(**changes))
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            shown += piece
        os.close(master)
        return process.wait(TIMEOUT), shown

    def test_words_wrap_at_the_width(self):
        options = ["run", "-p", PROMPT, "-n", "120", "--seed", "5"]
        wanted = spry(*options).text
        paragraphs = [line.rstrip() for line in wanted.split("\n")]
        for width in (20, 47, 200):
            code, shown = self.on_terminal(*options, width=width)
            lines = [line.rpartition("\r")[2]  # on a slow machine a line of progress was shown and wiped
                     for line in shown.decode().replace("\r\n", "\n").split("\n")]
            self.assertEqual((code, " ".join(lines).split()), (OK, wanted.split()))
            self.assertLessEqual(max(map(len, lines)), width)
            for line, following in zip(lines, lines[1:]):  # a line ends with its paragraph, or where the next word would pass
                if not any(paragraph.endswith(line) for paragraph in paragraphs):
                    self.assertGreater(len(line) + 1 + len(following.split()[0]), width)
            self.assertLessEqual({text for text in paragraphs if len(text) <= width}, set(lines))

    def test_speed_is_shown_while_it_writes(self):
        """The line below the text, on a screen of six lines that scrolls; gone when the answer is there."""
        options = ["run", "-p", PROMPT, "-n", "60", "--seed", "5"]
        wanted = self.on_terminal(*options, width=40)[1].decode().replace("\r\n", "\n").rstrip("\n").split("\n")
        code, shown = self.on_terminal(*options, "--stats", width=40)
        self.assertEqual(code, OK)
        shown = shown.decode()
        lines, row, column, saved, top, seen = [""], 0, 0, None, 0, 0
        for part in re.findall("\x1b\\[[0-9;]*[A-Za-z]|\x1b.|\r|\n|[^\x1b\r\n]+", shown):
            if part in ("\n", "\x1bD"):
                row += 1
                lines += [""] * (row + 1 - len(lines))
                top = max(top, row - 5)
            elif part == "\r":
                column = 0
            elif part == "\x1b[A":
                row -= 1
            elif part == "\x1b[E":
                row, column = row + 1, 0
                self.assertLess(row, len(lines))  # room was made: a line that is there
            elif part == "\x1b7":
                saved = (row - top, column)
            elif part == "\x1b8":
                row, column = saved[0] + top, saved[1]
            elif part == "\x1b[2K":
                lines[row] = ""
            elif part == "\x1b[J":
                lines[row + 1:] = []
                lines[row] = lines[row][:column]
            elif part[0] != "\x1b":
                seen += part.endswith(" tokens/s")
                lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part):]
                column += len(part)
        self.assertGreater(seen, 0)
        self.assertEqual([line.rstrip() for line in lines[:len(wanted)]], [line.rstrip() for line in wanted])
        self.assertNotRegex(lines[len(wanted)], "^[0-9.]+ tokens/s$")
        for changes in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn(b"\x1b", self.on_terminal(*options, "--stats", **changes)[1])
        self.assertNotIn("\x1b", spry(*options, "--stats").text)

    def test_colours_only_where_they_are_wanted(self):
        self.assertIn(b"\x1b[31m", self.on_terminal("nonsense")[1])
        self.assertNotIn(b"\x1b", self.on_terminal("nonsense", NO_COLOR="1")[1])
        self.assertNotIn(b"\x1b", self.on_terminal("nonsense", TERM="dumb")[1])
        self.assertNotIn(b"\x1b", self.on_terminal("nonsense", TERM=None)[1])
        self.assertNotIn("\x1b", spry("nonsense").errors)
        code, shown = self.on_terminal("run", TINY, "-p", PROMPT, "-n", "4", "--stats", NO_COLOR="1")
        self.assertEqual((code, shown.count(b"\x1b")), (OK, 0))

    def test_model_cannot_take_over_the_terminal(self):
        """llama's golden continuation holds an escape byte: files get it, terminals do not."""
        options = ["run", tiny("llama"), "--raw", "-p", "Once upon a time", "-n", "24", "--temperature", "0",
                   "--ignore-end"]
        self.assertIn(b"\x1b", spry(*options).out)
        code, shown = self.on_terminal(*options)
        self.assertEqual((code, shown.count(b"\x1b")), (OK, 0))


class Bundled(cli_support.CliTest):
    def test_without_a_model_anywhere(self):
        result = self.succeeds(spry("run", "-p", PROMPT, "-n", "8", "--seed", "1", cwd="/", HOME=None,
                                    XDG_DATA_HOME=None))
        self.assertGreater(len(result.text), 10)
        for name in ("Spry-Tales-29M", "spry-tales-29m", "Llama-Tales-29M"):
            self.assertEqual(spry("run", name, "-p", PROMPT, "-n", "8", "--seed", "1").out, result.out)

    def test_recommended_sampling(self):
        def told(*options):
            return self.succeeds(spry("run", "-p", PROMPT, "-n", "40", "--seed", "3", *options)).out
        recommended = told()
        self.assertEqual(told("--temperature", "0.5", "--top-p", "0.95", "--min-p", "0.05"), recommended)
        self.assertEqual(told("--top-k", "0", "--repeat-penalty", "1"), recommended)
        self.assertNotEqual(told("--temperature", "1.5"), recommended)

    def test_drafters_with_a_vocabulary_that_is_nearly_the_same(self):
        with open(os.path.join(cli_support.ROOT, "models", "Spry-Tales-Draft-4M.gguf"), "rb") as file:
            data = file.read()
        folder = tempfile.mkdtemp(dir=HOME)
        # Long enough for several tries: a drafter that did not pay is tried again later.
        ask = ("run", "-p", PROMPT, "-n", "160", "--ignore-end", "--temperature", "0", "--json")
        plain = self.succeeds(spry(*ask, "--draft", "none")).json
        changed = data.replace(b"<|im_start|>", b"<|im_begin|>").replace(b"<|endoftext|>", b"<|endofpage|>")
        self.assertNotEqual(changed, data)
        path = os.path.join(folder, "drafter.gguf")
        with open(path, "wb") as file:
            file.write(changed)
        accepted, asked = 0, 0
        while not accepted and asked < 20:  # a slow moment of the machine can make drafts not worth it
            asked += 1
            drafted = self.succeeds(spry(*ask, "--draft", path)).json
            self.assertEqual(drafted["tokens"], plain["tokens"])
            accepted = drafted["drafts"]["accepted"]
        self.assertGreater(accepted, 0)

    def test_draft_model(self):
        object = self.succeeds(spry("run", "SPRY-TALES-DRAFT-4M", "-p", PROMPT, "-n", "8", "--json")).json
        self.assertEqual(object["model"], "Spry-Tales-Draft-4M")


class Names(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        os.symlink(tiny("qwen3"), os.path.join(self.folder, "boat.gguf"))
        os.symlink(tiny("qwen3", ""), os.path.join(self.folder, "folder-model"))

    def find(self, name, **more):
        return spry("run", name, "-p", "x", "-n", "1", "--json", "--models-dir", self.folder, **more)

    def test_models_folder(self):
        for name, called in (("boat", "boat"), ("boat.gguf", "boat"), ("folder-model", "folder-model")):
            self.assertEqual(self.succeeds(self.find(name)).json["model"], called)

    def test_users_own_models_folder(self):
        data = tempfile.mkdtemp(dir=HOME)
        os.makedirs(os.path.join(data, "spry"))
        os.symlink(self.folder, os.path.join(data, "spry", "models"))
        self.succeeds(spry("run", "boat", "-p", "x", "-n", "1", XDG_DATA_HOME=data))

    def test_file_in_the_current_folder(self):
        self.succeeds(spry("run", "boat.gguf", "-p", "x", "-n", "1", cwd=self.folder))

    def test_not_found_says_where_and_what_is_there(self):
        self.fails(self.find("ship"), FAILURE, "no model 'ship'", self.folder, "boat, folder-model", "Spry-Tales-29M")
        self.fails(spry("run", "ship", "-p", "x", "--models-dir", "/nowhere"), FAILURE, "/nowhere does not exist")
        self.fails(spry("run", "ship", "-p", "x", HOME=None, XDG_DATA_HOME=None), FAILURE, "HOME is not set")

    def test_many_models_make_no_endless_sentence(self):
        for i in range(200):
            open(os.path.join(self.folder, "model-%03d.gguf" % i), "wb").close()
        result = self.find("ship")
        self.fails(result, FAILURE, "and 1", " more")
        self.assertLess(len(result.errors), 700)

    def test_names_do_not_leave_the_models_folder(self):
        secret = os.path.join(HOME, "secret.gguf")
        if not os.path.exists(secret):
            os.symlink(tiny("qwen3"), secret)
        inside = os.path.basename(self.folder)
        for name in ("../secret", "../secret.gguf", "..", "x/../../secret", "./boat", "%s/../secret" % inside):
            result = self.find(name, cwd="/")
            self.assertEqual(result.code, FAILURE, name)
            self.one_sentence(result)
        self.fails(self.find("../secret", cwd="/"), FAILURE, "../secret: no such file or folder")

    def test_empty_and_hostile_names(self):
        self.fails(self.find(""), FAILURE, "empty")
        self.fails(self.find(b"\xff\x1b[2J\n"), FAILURE, "no model")
        self.fails(self.find("x" * 5000), FAILURE)

    def test_a_prompt_where_the_model_should_be(self):
        self.fails(spry("run", "Tell me a tale"), USAGE, "empty")
        self.fails(spry("run", "Tell me a tale", stdin=b"x"), FAILURE, "give it with -p")


if __name__ == "__main__":
    cli_support.main()
