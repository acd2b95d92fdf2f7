"""Help pages, versions, wrong use, and the list of options in docs/OPTIONS.md."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import cli_support
from cli_support import FAILURE, READER_LEFT, ROOT, USAGE, spry

COMMANDS = re.findall(r"(?m)^  (\w+) +\S", spry().text.split("Commands:\n")[1].split("\n\n")[0])
COMMANDS.remove("help")


class Help(cli_support.CliTest):
    def test_overview(self):
        pages = [self.succeeds(spry(*args)).text for args in ([], ["--help"], ["-h"], ["help"])]
        self.assertEqual(len(set(pages)), 1)
        self.assertLessEqual({"run", "tokenize", "logits", "inspect", "convert", "sample"}, set(COMMANDS))

    def test_version(self):
        self.assertRegex(self.succeeds(spry("--version")).text, r"^spry \d+\.\d+\.\d+\n$")

    def test_every_command_has_a_page_with_examples(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                page = self.succeeds(spry(command, "--help")).text
                self.assertTrue(page.startswith("Usage: spry %s " % command))
                self.assertIn("\nExamples:\n  ", page)
                self.assertIn("-h, --help", page)
                self.assertNotIn("\x1b", page)
                self.assertEqual(page, spry("help", command).text)
                self.assertEqual(page, spry(command, "-h").text)
                usage_and_options = page[: page.index("\nExamples:")]
                self.assertLessEqual(max(map(len, usage_and_options.splitlines())), 80)

    def test_page_shows_defaults_whatever_stands_beside(self):
        self.assertEqual(spry("run", "--help").text, spry("run", "--top-k", "3", "--help").text)

    def test_run_shows_its_sampling_defaults(self):
        page = " ".join(spry("run", "--help-all").text.split())
        for words in ["default the model's own, or 0.8", "or 0.95", "or 0.05", "130 interrupted", "141"]:
            self.assertIn(words, page)

    def test_options_page_of_the_documentation_is_current(self):
        with open(os.path.join(ROOT, "docs", "OPTIONS.md"), "rb") as file:
            self.assertEqual(file.read(), spry("help", "--markdown").out, "spry help --markdown > docs/OPTIONS.md")

    def test_options_page_has_every_flag_of_every_page(self):
        markdown = spry("help", "--markdown").text
        for command in COMMANDS:
            section = markdown.split("\n## spry %s\n" % command)[1].split("\n## ")[0]
            for flag in re.findall(r"(?m)^ +(?:-\w, )?--(?:\[no-\])?([\w-]+)", spry(command, "--help-all").text):
                self.assertIn("`--%s`" % flag, section)

    def test_short_pages_are_short_and_the_long_ones_have_everything(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                short, full = spry(command, "--help").text, self.succeeds(spry(command, "--help-all")).text
                flags = [set(re.findall(r"(?m)^ +(?:-\w, )?--(?:\[no-\])?([\w-]+)", page)) for page in (short, full)]
                self.assertLessEqual(flags[0], flags[1])
                self.assertLessEqual(len(flags[0]), 18)
                self.assertLessEqual(len(short.splitlines()), 64)
                self.assertLessEqual(len(short.split("\nExamples:\n")[1].split("\n\n")[0].splitlines()), 3)
                self.assertIn("spry help OPTION", short)
        self.assertIn("--help-all", spry("run", "--help").text)
        self.assertNotIn("--kv-idle", spry("run", "--help").text)
        self.assertIn("--kv-idle", spry("run", "--help-all").text)

    def on_terminal(self, columns, rows, *arguments, **changes):
        """What a terminal of this size gets."""
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen([cli_support.SPRY, *arguments], stdin=side, stdout=side, stderr=side,
                                   env=cli_support.environment(**changes))
        os.close(side)
        text = b""
        while True:
            try:
                part = os.read(main, 1 << 16)
            except OSError:  # the other side was closed
                break
            if not part:
                break
            text += part
        os.close(main)
        self.assertEqual(process.wait(), 0)
        return text.decode().replace("\r\n", "\n")

    def test_colours_are_for_terminals_that_want_them(self):
        page = spry("run", "--help").text
        coloured = self.on_terminal(80, 200, "run", "--help")
        self.assertIn("\x1b[1mPrompt:\x1b[0m", coloured)
        self.assertEqual(re.sub("\x1b\\[[0-9;]*m", "", coloured), page)
        self.assertEqual(self.on_terminal(80, 200, "run", "--help", NO_COLOR="1"), page)
        self.assertEqual(self.on_terminal(80, 200, "run", "--help", TERM="dumb"), page)

    def test_pages_longer_than_the_terminal_go_through_the_pager(self):
        pager = "tr a-z A-Z"
        page = spry("run", "--help").text
        self.assertIn("ANSWERS ONE PROMPT", self.on_terminal(80, 20, "run", "--help", PAGER=pager))
        self.assertEqual(self.on_terminal(80, 200, "run", "--help", PAGER=pager, NO_COLOR="1"), page)
        self.assertEqual(self.on_terminal(80, 20, "run", "--help", PAGER=pager, TERM="dumb"), page)
        self.assertTrue(self.on_terminal(80, 20, "run", "--help", PAGER="no-such-pager", NO_COLOR="1").endswith(page))
        self.assertEqual(self.on_terminal(80, 20, "run", "--help", PAGER="true"), "")
        self.assertEqual(spry("run", "--help-all", PAGER=pager).text, spry("run", "--help-all").text)  # not a terminal

    def test_every_width(self):
        for columns in (20, 30, 40, 59, 60, 100, 300):
            for arguments in (["run", "--help"], ["serve", "--help-all"], ["help", "kv-type"], ["help"]):
                page = self.on_terminal(columns, 2000, *arguments, NO_COLOR="1").split("Examples:")[0]
                for line in page.splitlines():
                    self.assertTrue(len(line) <= min(columns, 100) or len(line.split()) <= 5, (columns, line))

    def test_lists_of_models_on_every_width(self):
        data = os.path.join(cli_support.HOME, "no-models")
        for arguments in (["models", "--available"], ["models"]):
            whole = self.on_terminal(1000, 24, *arguments, XDG_DATA_HOME=data)
            for columns in (30, 80, 200):
                shown = self.on_terminal(columns, 24, *arguments, XDG_DATA_HOME=data)
                self.assertEqual("".join(shown.split()), "".join(whole.split()))
                if columns > len(data) + len("/spry/models"):  # a path may be longer than a line
                    self.assertEqual(shown.split(), whole.split())  # no word is broken
                self.assertTrue(all(len(line) <= columns or " " not in line.strip() for line in shown.splitlines()), shown)
        self.assertIn("\n" + 62 * " " + "tools", self.on_terminal(80, 24, "models", "--available"))

    def test_one_option(self):
        for name in ("kv-type", "--kv-type"):
            text = self.succeeds(spry("help", name)).text
            for part in ("--kv-type TYPE", "one of auto, f16, q8_0, f32, q4_0", "SPRY_KV_TYPE", "kv_type", "run,", "serve"):
                self.assertIn(part, " ".join(text.split()))
        self.assertIn("--temperature, --temp X", spry("help", "temp").text)
        self.assertIn("--max-tokens N", spry("help", "-n").text)
        self.assertIn("Usage: spry chats list", spry("help", "chats", "list").text)
        self.fails(spry("help", "--kv-typ"), USAGE, "did you mean --kv-type?")
        self.fails(spry("help", "xyzzyplugh"), USAGE, "no command or option 'xyzzyplugh'")

    def test_values_attached_to_letters(self):
        for form in (["-n3"], ["-n=3"], ["-n", "3"], ["--max-tokens=3"]):
            result = self.succeeds(spry("run", "-p", "Hi", "--json", "--temperature", "0", *form)).json
            self.assertEqual(result["generated_tokens"], 3)
        self.fails(spry("run", "-vv"), USAGE, "unknown option -vv")

    def test_full_disk_and_closed_pipe(self):
        with open("/dev/full", "wb") as full:
            result = spry("--help", stdout=full)
        self.assertEqual(result.code, FAILURE)
        self.assertEqual(result.errors, "spry: cannot write to standard output: No space left on device\n")
        reader, writer = os.pipe()
        os.close(reader)
        result = spry("run", "--help", stdout=writer)
        os.close(writer)
        self.assertEqual((result.code, result.err), (READER_LEFT, b""))


class WrongUse(cli_support.CliTest):
    def test_words_of_other_programs(self):
        for word in ("version", "-v", "-V"):
            self.assertEqual(self.succeeds(spry(word)).text, spry("--version").text)
        folder = os.path.join(cli_support.HOME, "models-here")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "one.gguf"), "wb") as file:
            file.write(b"x")
        for word in ("ls", "list"):
            self.assertEqual(self.succeeds(spry(word, "--models-dir", folder)).text,
                             spry("models", "--models-dir", folder).text)
        self.assertEqual(self.succeeds(spry("show", "--json")).json["metadata"], spry("inspect", "--json").json["metadata"])
        self.assertIn("Usage: spry run", self.succeeds(spry("help", "chat")).text)
        self.succeeds(spry("rm", "one", "--models-dir", folder))
        self.assertEqual(os.listdir(folder), [])
        for word in ("download", "quantize", "start"):
            self.assertIn("\nExamples:\n", self.succeeds(spry(word, "--help")).text)
        for word, instead in (("ps", "/api/ps"), ("stop", "/models/unload"), ("create", "/api/create"), ("cp", "/api/copy"),
                              ("push", "spry convert"), ("login", "no account"), ("embed", "/v1/embeddings")):
            self.fails(spry(word), USAGE, instead)
            if word != "stop":  # an option, too
                self.fails(spry("help", word), USAGE, instead)

    def test_the_catalogue(self):
        models = self.succeeds(spry("models", "--available", "--json")).json["models"]
        self.assertGreaterEqual(len(models), 30)
        for model in models:
            self.assertRegex(model["source"], r"^hf:[\w.-]+/[\w.-]+(:\w+)?$")
            self.assertTrue(model["licence"] and model["use"] and model["bytes"] > 1e8, model)
        judged = [model for model in models if "schema" in model]
        self.assertGreaterEqual(len(judged), 10)
        self.assertTrue(all(0 < model["schema"] < 1 and model["schema_source"] for model in judged))
        names = [model["name"] for model in models]
        self.assertEqual(len(set(map(str.lower, names))), len(names))
        table = self.succeeds(spry("models", "--available")).text
        self.assertTrue(all(name in table for name in names))
        # Without a terminal nothing is downloaded unasked: the message has the command.
        self.fails(spry("run", "QWEN3:0.6b", "-p", "x"), FAILURE, "spry pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0")
        self.fails(spry("run", "qwen3", "-p", "x"), FAILURE, "several sizes", "qwen3:4b")
        self.fails(spry("run", "no-such-model", "-p", "x"), FAILURE, "spry models --available")

    def test_a_catalogue_of_ones_own(self):
        data = os.path.join(cli_support.HOME, "data")
        os.makedirs(os.path.join(data, "spry"), exist_ok=True)
        path = os.path.join(data, "spry", "catalogue.json")

        def listed(text):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return spry("models", "--available", "--json", XDG_DATA_HOME=data)

        good = '{"models": [{"name": "a:1b", "source": "hf:me/a:Q8_0", "bytes": 5}]}'
        self.assertEqual([m["name"] for m in self.succeeds(listed(good)).json["models"]], ["a:1b"])
        self.fails(spry("run", "a", "-p", "x", XDG_DATA_HOME=data), FAILURE, "spry pull hf:me/a:Q8_0")
        for bad, part in (("", "catalogue.json:"), ("[]", "models"), ('{"models": 3}', "models: a list"),
                          (good.replace("a:1b", "../a"), "models[0].name"), (good.replace("hf:me/a", "file:/x"), "source"),
                          (good.replace("5}", "-5}"), "bytes"), (good.replace("5}", '5, "schema": 2, "schema_source": "me"}'), "models[0].schema"),
                          (good.replace("5}", '5, "schema": 0.5}'), "schema_source")):
            self.fails(listed(bad), FAILURE, part)
        self.fails(listed("x" * 2000000), FAILURE, "catalogue.json")

    def test_unknown_command(self):
        self.fails(spry("runn"), USAGE, "unknown command 'runn'", "did you mean 'run'?")
        self.fails(spry("tokenise"), USAGE, "did you mean 'tokenize'?")
        result = spry("xyzzyplugh")
        self.fails(result, USAGE, "unknown command 'xyzzyplugh'", "spry help")
        self.assertNotIn("did you mean", result.errors)
        self.fails(spry("help", "inspekt"), USAGE, "did you mean 'inspect'?")

    def test_hostile_command_name_is_one_plain_line(self):
        self.fails(spry("a\x1b[31m\nb\xff".encode("latin-1")), USAGE, "unknown command 'a?[31m?b")

    def test_unknown_option(self):
        self.fails(spry("run", "--temprature", "1"), USAGE, "--temprature", "did you mean --temperature?",
                   "spry run --help")
        self.fails(spry("inspect", "--Z"), USAGE, "unknown option --Z")
        self.fails(spry("run", "-Z"), USAGE, "unknown option -Z")

    def test_values(self):
        self.fails(spry("run", "-p"), USAGE, "--prompt needs a value")
        self.fails(spry("run", "--top-p", "1.5"), USAGE, "--top-p", "from 0 to 1")
        self.fails(spry("run", "-n", "-1"), USAGE, "--max-tokens", "'-1'")
        self.fails(spry("run", "-n", "3x"), USAGE, "'3x'")
        self.fails(spry("run", "--kv-type", "q9"), USAGE, "f16, q8_0, f32")
        self.fails(spry("run", "--logprobs", "21", "--json"), USAGE, "from 0 to 20")
        self.fails(spry("run", "--threads", "5000"), USAGE, "--threads")
        self.fails(spry("run", "-p", "x", "--seed", "-3"), USAGE, "seed", "'-3'")
        self.fails(spry("run", "-p", "x", "--seed", "18446744073709551616"), USAGE, "seed")

    def test_too_many_arguments(self):
        self.fails(spry("run", "a", "b", "-p", "c"), USAGE, "the prompt is given twice")
        self.fails(spry("sample", "a"), USAGE, "unexpected argument 'a'")

    def test_options_that_contradict_each_other(self):
        self.fails(spry("run", "-p", "x", "--logprobs", "2"), USAGE, "--logprobs needs --json")
        self.fails(spry("run", "-p", "x", "--raw", "--system", "y"), USAGE, "--system")
        self.fails(spry("logits", "-o", "-"), USAGE, "--ids")
        self.fails(spry("logits", "--ids", "1", "--ids-file", "x", "-o", "-"), USAGE, "--ids")
        self.fails(spry("logits", "--ids", "1"), USAGE, "-o")
        self.fails(spry("tokenize", "--decode", "--json"), USAGE, "--json")

    def test_empty_prompt(self):
        for options in ([], ["-p", ""]):
            self.fails(spry("run", *options), USAGE, "the prompt is empty")
        self.fails(spry("run", stdin=b"\n"), USAGE, "the prompt is empty")


if __name__ == "__main__":
    cli_support.main()
