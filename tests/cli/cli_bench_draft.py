"""spry bench --draft and --widen: figures of drafting, as targets; small models in the sizes of large ones."""

import json
import os
import tempfile

import cli_support
from cli_support import FAILURE, HOME, OK, USAGE, spry

SMALL = "Spry-Tales-Draft-4M"


class Drafts(cli_support.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.saved = os.path.join(tempfile.mkdtemp(dir=HOME), "drafts.json")
        cls.result = spry("bench", "--draft", "auto", "--repeat", "1", "--tokens", "24", "--json", "--save", cls.saved)

    def test_form(self):
        report = self.succeeds(self.result).json
        self.assertEqual([key for key in report if key != "why_cpu"], ["format", "spry", "when", "model", "architecture", "parameters", "weight_bytes", "main_type", "model_id",
                                        "machine", "settings", "draft", "tasks", "drafts", "figures"])
        self.assertEqual((report["format"], report["draft"], [t["task"] for t in report["tasks"]]), ("spry-draft-1", "auto", ["tales", "quoting"]))
        with open(self.saved, encoding="utf-8") as file:
            self.assertEqual(json.load(file), report)
        for task in report["tasks"]:
            self.assertGreater(task["plain_ttft_ms"], 0)
            self.assertGreater(task["drafted_ttft_ms"], 0)
            self.assertEqual(task["temperature"], 0)
        for figures in [task["figures"] for task in report["tasks"]] + [report["drafts"]]:
            if "why" in figures:  # a machine on which drafting hardly pays
                self.assertEqual([figures[key] for key in ("acceptance", "refused_p50", "refused_p95", "speedup")], [None] * 4)
                self.assertRegex(figures["why"], "^[0-9]+ tokens were drafted, a judgement needs 64: a step with one draft takes [0-9.]+ times as long")
                continue
            self.assertGreater(figures["speedup"], 0)
            self.assertTrue(0 <= figures["acceptance"] <= 1, figures)
            self.assertTrue(0 <= figures["refused_p50"] <= figures["refused_p95"] <= 1, figures)
            self.assertGreater(figures["prefill_ms"] or 1, 0)

    def test_curve(self):
        report = self.succeeds(spry("bench", "--draft", "auto", "--repeat", "1", "--tokens", "4", "--curve", "--json")).json
        self.assertEqual([t["temperature"] > 0 for t in report["tasks"]], [False] * 2 + [True] * 6)
        text = self.succeeds(spry("bench", "--draft", "auto", "--repeat", "1", "--tokens", "2", "--curve")).text
        self.assertEqual(text.count("tales"), 9)  # decode, drafts, and seven points of the curve
        self.assertIn("does not\nshorten the first token", text)

    def hold(self, targets, *arguments):
        path = os.path.join(tempfile.mkdtemp(dir=HOME), "targets.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"format": "spry-targets-1", "machines": {"*": targets}}, file)
        return spry("bench", "--draft", "lookup", "--repeat", "1", "--tokens", "8", "--targets", path, *arguments)

    def test_targets(self):
        """A handful of drafts meets no target."""
        result = self.hold({"draft_speedup": 1e-9, "draft_prefill_ms": 1e-9, "draft_ttft": 1e9, "memory_bytes": 1}, "--json", "--draft-most", "1", "--tokens", "3")
        verdicts = {t["what"]: t["verdict"] for t in result.json["targets"]["targets"]}
        self.assertEqual(verdicts, {"decode with drafts": "not measured", "drafter's prefill": "not measured", "first token with drafts": "met"})  # lookup reads no prompt
        self.assertEqual(result.code, FAILURE)
        result = self.hold({"draft_speedup": 1e-9}, "--draft-most", "1", "--tokens", "3")
        self.assertEqual((result.code, result.errors), (FAILURE, ""))
        self.assertRegex(result.text, "Too few drafts: [0-9]+ tokens were drafted, a judgement needs 64")

    def report_with_drafts(self):
        with open(self.saved, encoding="utf-8") as file:
            report = json.load(file)
        report["figures"] = [f for f in report["figures"] if f["what"] != "decode with drafts"]
        report["figures"].append({"what": "decode with drafts", "value": 1.5, "unit": "x", "better": "more"})
        return report

    def test_bad_targets(self):
        for targets, words in (({"draft_acceptance": 1.5}, "draft_acceptance is a share, at most 1"), ({"draft_speedup": 0}, "not a number above 0"),
                               ({"draft_refused_p50": 0.5, "draft_refused_p95": 0.2}, "contradicts itself"), ({"draft_luck": 1}, "draft_luck is not known")):
            self.fails(self.hold(targets), FAILURE, "targets.json", words)

    def test_flags(self):
        self.fails(spry("bench", "--curve"), USAGE, "--curve needs --draft")
        self.fails(spry("bench", "--draft-most", "2"), USAGE, "--draft-most needs --draft")
        self.fails(spry("bench", "--draft", "auto", "--draft-most", "17"), USAGE, "--draft-most", "16")
        self.fails(spry("bench", "--draft", "auto", "--tokens", "2000"), USAGE, "--tokens is at most 1024")
        self.fails(spry("bench", "--draft", "auto", "--policy"), USAGE, "--policy is measured without")

    def test_baseline(self):
        """The same drafts again; a busy machine may change every time, but nothing else."""
        again = spry("bench", "--draft", "auto", "--baseline", self.saved, "--max-drop", "100%", "--json")
        self.assertIn(again.code, (OK, FAILURE), again.errors)
        self.assertEqual((again.json["settings"]["tokens"], again.json["settings"]["repeat"]), (24, 1))
        verdicts = {f["what"]: f["verdict"] for f in again.json["gate"]["figures"]}
        self.assertIn("first token with drafts", verdicts)
        self.fails(spry("bench", "--draft", "lookup", "--baseline", self.saved), FAILURE, "the drafter is 'auto' there and 'lookup' here")
        self.fails(spry("bench", "--baseline", self.saved), FAILURE, "its format is 'spry-draft-1', not 'spry-bench-1'")

    def test_saved_reports_are_compared_without_measuring(self):
        report, before, now = self.report_with_drafts(), *(os.path.join(os.path.dirname(self.saved), name) for name in ("before.json", "now.json"))
        with open(before, "w", encoding="utf-8") as file:
            json.dump(report, file)
        report["figures"][-1]["value"] *= 0.5
        with open(now, "w", encoding="utf-8") as file:
            json.dump(report, file)
        result = spry("bench", "--baseline", before, "--measured", now)
        self.assertEqual((result.code, result.errors), (FAILURE, ""))
        self.assertRegex(result.text, r"decode with drafts +[\d.]+x +[\d.]+x +-50.0 %  dropped\n")
        self.assertEqual(self.succeeds(spry("bench", "--baseline", self.saved, "--measured", self.saved)).code, OK)
        targets = os.path.join(os.path.dirname(self.saved), "targets.json")
        with open(targets, "w", encoding="utf-8") as file:
            json.dump({"format": "spry-targets-1", "machines": {"*": {"draft_speedup": 1.4}}}, file)
        self.succeeds(spry("bench", "--targets", targets, "--measured", before))
        self.assertEqual(spry("bench", "--targets", targets, "--measured", now).code, FAILURE)

    def test_bad_figures(self):
        good = self.report_with_drafts()
        path = os.path.join(os.path.dirname(self.saved), "bad.json")
        for change, words in ((lambda f: f[0].update(unit="ells"), "figures[0].unit is not a known unit"), (lambda f: f[0].pop("what"), "figures[0].what is missing"),
                              (lambda f: f[0].update(better="maybe"), "figures[0].better"), (lambda f: f[0].update(value=-1), "figures[0].value is -1"),
                              (lambda f: f.append(f[0]), "have the same name"), (lambda f: f.extend([f[0]] * 1000), "entries, more than 1000"),
                              (lambda f: f[0].update(value="5"), "figures[0].value is not a number")):
            bad = json.loads(json.dumps(good))
            change(bad["figures"])
            with open(path, "w", encoding="utf-8") as file:
                json.dump(bad, file)
            self.fails(spry("bench", "--baseline", path, "--measured", self.saved), FAILURE, path, words)
        del bad["figures"]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(bad, file)
        self.fails(spry("bench", "--baseline", path, "--measured", self.saved), FAILURE, path, "has no figures: an earlier version")


class Widened(cli_support.CliTest):
    def test_written(self):
        path = os.path.join(HOME, "wide.gguf")
        result = self.succeeds(spry("bench", SMALL, "--widen", "qwen3-0.6b", "--write", path))
        self.assertEqual(result.text, "wrote %s: %s widened to qwen3-0.6b\n" % (path, SMALL))
        metadata = self.succeeds(spry("inspect", path, "--json")).json["metadata"]
        os.unlink(path)
        self.assertEqual(metadata["general.name"], SMALL + " widened to qwen3-0.6b")
        self.assertEqual([metadata["qwen3." + key] for key in ("block_count", "embedding_length", "feed_forward_length", "attention.head_count",
                                                              "attention.head_count_kv", "attention.key_length", "vocab_size")],
                         [28, 1024, 3072, 32, 16, 64, 8192])

    def test_what_is_refused(self):
        self.fails(spry("bench", "--widen", "tiny"), FAILURE, "cannot be widened to tiny", "layers")
        self.fails(spry("bench", "--widen", "qwen3-30b-a3b"), FAILURE, "experts")
        self.fails(spry("bench", "--widen", "tiny", "--shape", "tiny"), USAGE, "give one of them")
        self.fails(spry("bench", "--widen", "no-such-shape"), USAGE, "--widen")
        self.fails(spry("bench", "--widen", "tiny", "--type", "q8_0"), USAGE, "--type needs --shape")
        self.fails(spry("bench", cli_support.tiny("qwen3", ""), "--widen", "qwen3-0.6b"), FAILURE, "no GGUF file")


if __name__ == "__main__":
    cli_support.main()
