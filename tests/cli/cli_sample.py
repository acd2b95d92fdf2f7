"""spry sample: transformers' own probabilities, through the program."""

import collections
import json
import os
import random

import cli_support
from cli_support import DATA, FAILURE, USAGE, spry


def sample(case, *options):
    return spry("sample", *options, stdin=json.dumps(case).encode())


class Sample(cli_support.CliTest):
    def setUp(self):
        with open(os.path.join(DATA, "sampling", "golden.json"), encoding="utf-8") as file:
            self.cases = json.load(file)["cases"]

    def test_golden_probabilities(self):
        for case in random.Random(1).sample(self.cases, 60):
            given = {key: case[key] for key in ("logits", "history", "settings")}
            got = self.succeeds(sample(given, "--json")).json["probabilities"]
            self.assertEqual(len(got), len(case["probabilities"]))
            sums = [collections.defaultdict(float), collections.defaultdict(float)]
            for logit, mine, theirs in zip(case["logits"], got, case["probabilities"]):
                # Where equal logits meet a border, any choice among the equals is right.
                key = logit if case["kind"] == "ties" else None
                if key is None:
                    self.assertAlmostEqual(mine, theirs, delta=2e-6 + 2e-5 * theirs)
                sums[0][key] += mine
                sums[1][key] += theirs
            penalised = "repetition_penalty" in case["settings"] or "repeat_penalty" in case["settings"]
            if case["kind"] == "ties" and not penalised:
                for key in sums[0]:
                    self.assertAlmostEqual(sums[0][key], sums[1][key], delta=1e-5)

    def test_flags_do_what_settings_do(self):
        logits = self.cases[0]["logits"]
        by_settings = sample({"logits": logits, "settings": {"temperature": 0.7, "top_k": 3}}, "--json")
        by_flags = sample({"logits": logits}, "--json", "--temperature", "0.7", "--top-k", "3")
        self.assertEqual(self.succeeds(by_settings).out, self.succeeds(by_flags).out)

    def test_draws_follow_the_probabilities(self):
        case = {"logits": [1.0, 0.0, -1.0, 2.0]}
        probabilities = sample(case, "--json").json["probabilities"]
        count = 20000
        tokens = sample(case, "--json", "--draw", str(count), "--seed", "5").json["tokens"]
        self.assertEqual(tokens, sample(case, "--json", "--draw", str(count), "--seed", "5").json["tokens"])
        for token, p in enumerate(probabilities):
            spread = (count * p * (1 - p)) ** 0.5
            self.assertLess(abs(tokens.count(token) - count * p), 5 * spread)

    def test_wrong_input(self):
        for text in (b"", b"{", b"[]", b"{}", b'{"logits": []}', b'{"logits": [1, "x"]}',
                     b'{"logits": [1], "history": [1]}',
                     b'{"logits": [1], "settings": {"top_p": 3}}', b'{"logits": [1], "settings": {"topp": 1}}'):
            self.fails(spry("sample", stdin=text), FAILURE)
        self.fails(spry("sample", "--top-p", "2"), USAGE, "--top-p")


if __name__ == "__main__":
    cli_support.main()
