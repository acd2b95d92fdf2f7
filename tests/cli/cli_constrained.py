"""Answers whose shape is given: whatever the model would rather say, every one parses and validates.

`python3 cli_constrained.py --all` makes 1,000 answers at temperature 1.5; as a test it makes a tenth of them."""

import decimal
import json
import os
import re
import sys

import cli_support
from cli_support import FAILURE, USAGE, spry

SCHEMAS = os.path.join(cli_support.HERE, "constrain_schemas")
EACH = 50 if "--all" in sys.argv else 1 if cli_support.SANITIZED else 5

try:
    import jsonschema
except ImportError:
    jsonschema = None


def formats():
    """The library's own, but for times, of which it knows no fractions."""
    checker = jsonschema.FormatChecker(formats=("date", "uuid", "ipv4", "email"))
    checker.checks("time")(lambda text: bool(re.fullmatch(
        r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|z|[+-]([01]\d|2[0-3]):[0-5]\d)", text)))
    return checker


def number(text):
    """Exact: 17.74 is a multiple of 0.01, and 1.0 is an integer."""
    exact = decimal.Decimal(text)
    return int(exact) if exact == int(exact) else exact


def answer(seed, *options, prompt="Tell me about it."):
    return spry("run", "-p", prompt, "--temperature", "1.5", "--top-p", "1", "--min-p", "0", "--seed", str(seed), "--json",
                *options)


class Constrained(cli_support.CliTest):
    def finished(self, result):
        """The answer, which the shape ended and nothing else."""
        got = self.succeeds(result).json
        self.assertEqual(got["finish"], "end", got["text"])
        return got["text"]

    def test_schemas(self):
        if not jsonschema:
            self.skipTest("python3-jsonschema is not installed")
        for name in sorted(os.listdir(SCHEMAS)):
            path = os.path.join(SCHEMAS, name)
            with open(path, encoding="utf-8") as file:
                schema = json.load(file, parse_float=number)
            kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            check = kind(schema, format_checker=formats())
            for seed in range(EACH):
                text = self.finished(answer(seed, "--json-schema", path, "-n", "600"))
                check.validate(json.loads(text, parse_float=number))

    def test_ends_in_time(self):
        """However little room there is, if the shortest answer fits, the answer is whole."""
        path = os.path.join(SCHEMAS, "story.json")
        for tokens in ("100", "130", "200"):
            for options in ((), ("--logprobs", "1"), ("--draft", "none")):
                text = self.finished(answer(3, "--json-schema", path, "-n", tokens, *options))
                self.assertIn("happy_end", json.loads(text))
        short = self.succeeds(answer(3, "--json-schema", path, "-n", "5")).json
        self.assertEqual((short["finish"], short["generated_tokens"]), ("length", 5))

    def test_regex(self):
        for seed in range(5):
            text = self.finished(answer(seed, "--regex", "[0-9]{4}-(0[1-9]|1[0-2])"))
            self.assertRegex(text, re.compile(r"\A[0-9]{4}-(0[1-9]|1[0-2])\Z"))

    def test_choice(self):
        seen = {self.finished(answer(seed, "--choice", "fox,crow,bear")) for seed in range(12)}
        self.assertLessEqual(seen, {"fox", "crow", "bear"})
        self.assertGreater(len(seen), 1)

    def test_grammar(self):
        path = os.path.join(cli_support.HOME, "two.gbnf")
        with open(path, "w", encoding="utf-8") as file:
            file.write('root ::= word " and " word\nword ::= [a-z]{2,6}\n')
        for seed in range(5):
            self.assertRegex(self.finished(answer(seed, "--grammar", path)), r"\A[a-z]{2,6} and [a-z]{2,6}\Z")

    def test_drafts_change_nothing(self):
        """With and without guesses, and with log probabilities, which switch off what is forced."""
        path = os.path.join(SCHEMAS, "person.json")
        for seed in range(4):
            texts = [self.finished(answer(seed, "--json-schema", path, "--draft", who)) for who in
                     ("none", "lookup", "auto")]
            self.assertEqual(texts[0], texts[1])
            self.assertEqual(texts[0], texts[2])

    def test_refusals(self):
        path = os.path.join(cli_support.HOME, "bad.json")
        for schema, word in (('{"items": {"type": "string"}, "uniqueItems": true}', "uniqueItems"),
                             ('{"type": "wrong"}', "type"), ("{", "JSON"), ('{"not": {}}', "")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(schema)
            result = answer(1, "--json-schema", path)
            self.assertEqual(result.code, FAILURE, schema)
            self.assertIn(word, result.errors)
        self.assertEqual(answer(1, "--regex", "(a").code, FAILURE)
        self.assertEqual(answer(1, "--regex", "a", "--choice", "b").code, FAILURE)
        self.assertEqual(answer(1, "--grammar", "/no/such/file").code, FAILURE)


if __name__ == "__main__":
    sys.argv = [argument for argument in sys.argv if argument != "--all"]
    cli_support.main()
