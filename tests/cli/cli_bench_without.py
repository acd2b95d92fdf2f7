"""spry bench --without: the same work with a part of the engine and without it. Nothing here depends on how fast the machine is."""

import json
import os
import tempfile

import cli_support
from cli_support import FAILURE, HOME, USAGE, spry


class Without(cli_support.CliTest):
    def test_a_part(self):
        folder = tempfile.mkdtemp(dir=HOME)
        saved, targets = (os.path.join(folder, name) for name in ("without.json", "targets.json"))
        report = self.succeeds(spry("bench", "--without", "cache", "--repeat", "1", "--json", "--save", saved)).json
        row = report["without"].pop("cache")
        self.assertEqual((report["format"], report["without"]), ("spry-without-1", {}))
        self.assertAlmostEqual(row["ratio"] / (row["without_ms"] / row["with_ms"]), 1, 4)
        self.assertGreater(row["ratio"], 1)  # 1,024 tokens to compute, or 32
        self.assertEqual([(f["what"], f["unit"], f["better"]) for f in report["figures"]], [("a known prompt without the cache", "x", "more")])
        for bound, code in ((row["ratio"] * 0.9, 0), (row["ratio"] * 1.1, FAILURE)):
            with open(targets, "w", encoding="utf-8") as file:
                json.dump({"format": "spry-targets-1", "machines": {"*": {"without_cache": bound}}}, file)
            self.assertEqual(spry("bench", "--targets", targets, "--measured", saved).code, code)

    def test_several_rows_of_a_part(self):
        rows = self.succeeds(spry("bench", "--without", "fused", "--repeat", "1", "--json")).json["without"]
        self.assertEqual(list(rows), ["fused-512", "fused-2048", "fused-8192"])
        for row in rows.values():
            self.assertTrue(row["with_ms"] > 0 and row["without_ms"] > 0)

    def test_all_of_them(self):
        page = self.succeeds(spry("bench", "--without", "all", "--repeat", "1")).text
        for words in ("512 tokens, KV memory", "8 answers, batching", "prompt cache", "a token, grammar for any text",
                      "attention at 512 on the CPU, fused", "attention at 2,048 on the CPU, fused", "attention at 8,192 on the CPU, fused"):
            self.assertRegex(page, r"%s +[\d.]+ \w+ +[\d.]+ \w+ +[\d.]+x\n" % words)
        self.assertLessEqual(max(map(len, page.splitlines())), 100)

    def test_only_a_part_of_the_points(self):
        for part, keys in (("prefill", ["prefill"]), ("decode", ["decode"]), ("start", ["load_ms", "first_token_ms"]), ("request", ["ttft"]), ("first-call", ["first_call"])):
            report = self.succeeds(spry("bench", "--only", part, "--repeat", "1", "--tokens", "2", "--prefill", "64", "--decode-depth", "0", "--batch", "1", "--json")).json
            self.assertEqual([key for key in ("prefill", "decode", "load_ms", "first_token_ms", "ttft", "first_call") if report[key]], keys)
            self.assertEqual(report["expected_s"] > 0, part != "start")

    def test_flags(self):
        self.fails(spry("bench", "--only", "luck"), USAGE, "--only", "first-call")
        self.fails(spry("bench", "--only", "decode", "--reuse"), USAGE, "--only is measured without")
        self.fails(spry("bench", "--only", "decode", "--policy"), USAGE, "--policy measures steps alone: omit --only")
        self.fails(spry("bench", "--without", "luck"), USAGE, "--without", "batching")
        self.fails(spry("bench", "--without", "kv", "--reuse"), USAGE, "measure different things")
        self.fails(spry("bench", "--without", "kv", "--policy"), USAGE, "--policy is measured without")
        self.fails(spry("bench", "--without", "kv", "--context", "64"), FAILURE, "context of 64 tokens is too short, 1072 are needed")
        for other in (["--reuse"], ["--shape", "tiny"], ["--save", "x.json"], ["--targets", "x.json"]):
            self.fails(spry("bench", "--accept", *other), USAGE, "--accept", "chooses what to measure")


if __name__ == "__main__":
    cli_support.main()
