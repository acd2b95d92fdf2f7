"""spry grammar: texts that fit and texts that do not, and masks."""

import json
import os
import tempfile

import cli_support
from cli_support import FAILURE, USAGE, spry

LIST = "root ::= item+\nitem ::= \"- \" [a-z ]+ \"\\n\"\n"
PAIR = "root ::= \"{\" key \": \" [0-9]+ \"}\"\nkey ::= \"\\\"\" [a-z]{1,20} \"\\\"\"\n"


class Grammar(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_fits(self):
        grammar = self.file("list.gbnf", LIST)
        self.succeeds(spry("grammar", "check", grammar, stdin=b"- one\n- two words\n"))
        self.succeeds(spry("grammar", "check", "--grammar", grammar, "--text", "- one\n"))
        self.succeeds(spry("grammar", "check", "--regex", r"\d{4}-\d\d", "--trim", stdin=b"2024-05\n"))
        self.succeeds(spry("grammar", "check", "--choice", '["yes", "no"]', stdin=b"no"))
        self.succeeds(spry("grammar", "check", "--kind", "json-object", stdin=b'{"a": [1, {"b": null}]}'))

    def test_where_it_stops(self):
        grammar = self.file("list.gbnf", LIST)
        result = spry("grammar", "check", grammar, stdin=b"- one\n- Two\n")
        self.fails(result, FAILURE, "stops matching at byte 8 (line 2, column 3)", "space, 'a' to 'z'")
        result = spry("grammar", "check", grammar, stdin=b"- one\n- two")
        self.fails(result, FAILURE, "not complete at byte 11 (line 2, column 6)", "line end")
        result = spry("grammar", "check", "--regex", "ab?", stdin=b"abc")
        self.fails(result, FAILURE, "at byte 2", "expected the end")
        result = spry("grammar", "check", "--regex", "a[^a]", stdin="aé".encode()[:2])
        self.fails(result, FAILURE, "not complete at byte 2", "the rest of a character")
        long = b"- " + b"a" * 5000 + b"!"
        self.fails(spry("grammar", "check", grammar, stdin=long), FAILURE, "byte 5002 ")

    def test_schema(self):
        schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
                  "additionalProperties": False}
        path = self.file("schema.json", json.dumps(schema))
        self.succeeds(spry("grammar", "check", path, stdin=b'{"age": 3}'))
        self.fails(spry("grammar", "check", path, stdin=b'{"age": "x"}'), FAILURE, "at byte 8")
        self.fails(spry("grammar", "check", path, stdin=b'{}'), FAILURE, "at byte 1")

    def test_mask(self):
        grammar = self.file("pair.gbnf", PAIR)
        answer = self.succeeds(spry("grammar", "mask", grammar, "--text", '{"', "--json")).json
        self.assertGreater(answer["allowed"], 26)
        self.assertLess(answer["allowed"], answer["vocabulary"])
        self.assertFalse(answer["may_end"])
        whole = self.succeeds(spry("grammar", "mask", grammar, "--text", '{"a": 1}'))
        self.assertIn("the text may end", whole.text)
        self.fails(spry("grammar", "mask", grammar, "--text", '{x'), FAILURE, "stops matching at byte 1")

    def test_bench(self):
        answer = self.succeeds(spry("grammar", "mask", "--bench", "--json", "--regex", "[ a-z]+",
                                    stdin=b"once upon a time there was a cat")).json
        self.assertGreater(answer["tokens"], 5)
        self.assertLessEqual(answer["median_us"], answer["p99_us"])
        self.assertLessEqual(answer["p99_us"], answer["max_us"])

    def test_large_vocabulary(self):
        tokenizer = cli_support.public("tokenizers", "qwen2.5", "tokenizer.json")
        grammar = cli_support.public("grammars", "json.gbnf")
        if not tokenizer or not grammar:
            self.skipTest("no data")
        text = b'{"name": "Tom", "friends": [{"name": "Sue", "age": 7}]}'
        answer = self.succeeds(spry("grammar", "mask", "--bench", "--json", "--model", tokenizer, grammar,
                                    stdin=text)).json
        print("mask of 152k tokens: median %(median_us)s us, 99%% %(p99_us)s us" % answer)
        self.assertGreater(answer["tokens"], 15)

    def test_suite(self):
        group = ('{"schema": {"type": "integer"}, "tests": [{"data": 1, "valid": true}, {"data": "x", "valid": %s}]}')
        right = self.file("right.json", group % "false")
        answer = self.succeeds(spry("grammar", "suite", right, "--json")).json
        self.assertEqual((answer["schemas"], answer["right"], answer["false_accepts"]), (1, 1, 0))
        wrong = self.file("wrong.json", "[" + group.replace("integer", "string").replace('"data": 1, "valid": true',
                                                                   '"data": "y", "valid": false') % "true" + "]")
        self.assertIn("invalid but accepted", spry("grammar", "suite", wrong, "--list").text)
        refused = self.file("refused.json", '{"schema": {"$ref": "http://elsewhere"}, "tests": []}')
        self.assertIn("is not in this schema", self.succeeds(spry("grammar", "suite", refused)).text)
        timed = self.succeeds(spry("grammar", "suite", right, "--json", "--model", "Spry-Tales-29M")).json
        self.assertLessEqual(timed["mask_us"]["median"], timed["mask_us"]["max"])

    def test_wrong_use(self):
        self.fails(spry("grammar"), USAGE, "check, mask or suite")
        self.fails(spry("grammar", "polish"), USAGE, "check, mask or suite")
        self.fails(spry("grammar", "check"), USAGE, "give a grammar")
        self.fails(spry("grammar", "check", "nowhere.gbnf"), FAILURE, "nowhere.gbnf")
        self.fails(spry("grammar", "check", "--regex", "a(b"), FAILURE, "not closed")
        bad = self.file("bad.gbnf", "root ::= \"a\" missing\n")
        self.fails(spry("grammar", "check", bad), FAILURE, "bad.gbnf", "'missing'")
        never = self.file("never.gbnf", "root ::= \"a\" root\n")
        self.fails(spry("grammar", "check", never), FAILURE, "no text at all")


if __name__ == "__main__":
    cli_support.main()
