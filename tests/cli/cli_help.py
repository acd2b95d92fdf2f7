"""Help pages, versions, wrong use, and the list of options in docs/OPTIONS.md."""

import os
import re

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
        page = " ".join(spry("run", "--help").text.split())
        for words in ["default the model's own, or 0.8", "or 0.95", "or 0.05", "130 interrupted", "141"]:
            self.assertIn(words, page)

    def test_options_page_of_the_documentation_is_current(self):
        with open(os.path.join(ROOT, "docs", "OPTIONS.md"), "rb") as file:
            self.assertEqual(file.read(), spry("help", "--markdown").out, "spry help --markdown > docs/OPTIONS.md")

    def test_options_page_has_every_flag_of_every_page(self):
        markdown = spry("help", "--markdown").text
        for command in COMMANDS:
            section = markdown.split("\n## spry %s\n" % command)[1].split("\n## ")[0]
            for flag in re.findall(r"(?m)^ +(?:-\w, )?--(?:\[no-\])?([\w-]+)", spry(command, "--help").text):
                self.assertIn("`--%s`" % flag, section)

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
        self.fails(spry("run", "a", "b"), USAGE, "unexpected argument 'b'")
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
