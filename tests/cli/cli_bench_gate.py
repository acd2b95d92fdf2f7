"""spry bench as a gate: saved reports, baselines, targets, and what offline mode would take. Nothing here depends on how fast
the machine is: reports are edited and compared without measuring."""

import copy
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import cli_support
from cli_support import FAILURE, HOME, OK, SPRY, TIMEOUT, USAGE, environment, spry, tiny

QUICK = ["--shape", "tiny", "--prefill", "40,64", "--decode-depth", "0,32", "--batch", "1,2", "--tokens", "2", "--repeat", "2", "--threads", "1"]


class GateTest(cli_support.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir=HOME)
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.base = os.path.join(cls.folder, "base.json")
        result = spry("bench", *QUICK, "--save", cls.base)
        assert result.code == OK, result.errors
        with open(cls.base) as file:
            cls.report = json.load(file)

    def file(self, name, content):
        """A file of the report after `content` (a function) has changed it, of a text, or of any JSON."""
        path = os.path.join(self.folder, name)
        if callable(content):
            report = copy.deepcopy(self.report)
            content(report)
            content = report
        with open(path, "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def compare(self, change, *arguments):
        return spry("bench", "--baseline", self.base, "--measured", self.file("now.json", change), *arguments)

    def verdicts(self, change, code, *arguments):
        """What each figure was found to be."""
        result = self.compare(change, "--json", *arguments)
        self.assertEqual((result.code, result.errors), (code, ""))
        gate = result.json["gate"]
        self.assertEqual(gate["passed"], code == OK)
        self.assertEqual(gate["dropped"], sum(f["verdict"] == "dropped" for f in gate["figures"]))
        self.assertEqual(gate["missing"] > 0, not gate["passed"] and not gate["dropped"])
        return {f["what"]: f["verdict"] for f in gate["figures"]}

    def dropped(self, change, *arguments):
        verdicts = self.verdicts(change, FAILURE, *arguments)
        return {what for what, verdict in verdicts.items() if verdict == "dropped"}

    def refused(self, change, *words):
        """As the baseline and as what was measured."""
        path = self.file("bad.json", change)
        self.fails(spry("bench", "--baseline", path, "--measured", self.base), FAILURE, path, *words)
        self.fails(spry("bench", "--baseline", self.base, "--measured", path), FAILURE, path, *words)


class Saving(GateTest):
    def test_save_and_json_are_the_same(self):
        path = os.path.join(self.folder, "saved.json")
        printed = self.succeeds(spry("bench", *QUICK, "--json", "--save", path)).json
        with open(path) as file:
            self.assertEqual(json.load(file), printed)
        self.assertEqual(printed["model_id"], self.report["model_id"])
        self.assertEqual(printed["machine"]["id"], self.report["machine"]["id"])

    def test_places_that_cannot_be_written(self):
        self.fails(spry("bench", *QUICK, "--save", "/nowhere/x.json"), FAILURE, "/nowhere/x.json")
        self.fails(spry("bench", *QUICK, "--save", self.folder), FAILURE, self.folder)

    def test_full_disk_leaves_the_old_file(self):
        path = self.file("old.json", "old")
        command = [SPRY, "bench", tiny("qwen3"), *QUICK[2:], "--save", path]

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10))
        process = subprocess.run(command, capture_output=True, timeout=TIMEOUT, cwd=HOME, env=environment(), preexec_fn=limit)
        self.assertEqual(process.returncode, FAILURE, process.stderr)
        self.assertIn(b"old.json", process.stderr)
        with open(path) as file:
            self.assertEqual(file.read(), "old")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("old")], ["old.json"])

    def test_interrupt_keeps_the_old_file(self):
        path = self.file("kept.json", "old")
        process = subprocess.Popen([SPRY, "bench", "--shape", "tiny", "--tokens", "900", "--repeat", "100", "--save", path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HOME, env=environment())
        try:
            process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
        with open(path) as file:
            self.assertEqual(file.read(), "old")


class Comparing(GateTest):
    def test_a_report_against_itself(self):
        verdicts = self.verdicts(lambda r: None, OK, "--max-drop", "0")
        self.assertEqual(set(verdicts.values()), {"ok"})
        for what in ("first token, cold", "first token, warm", "memory", "memory, one sequence", "memory, peak", "prefill 40", "prefill 64", "decode 0 x 1",
                     "decode 32 x 2", "decode 32 x 2, p95 of steps", "prefill 40, time in kernels", "prefill 40, gate_up",
                     "decode 0 x 1, logits"):
            self.assertIn(what, verdicts)

    def test_table(self):
        def change(report):
            report["decode"][0]["tps"] /= 2
        result = self.compare(change)
        self.assertEqual((result.code, result.errors), (FAILURE, ""))
        rows = {line[:34].strip(): line for line in result.text.splitlines()}
        self.assertRegex(rows["decode 0 x 1"], r"tok/s +[\d.]+ tok/s +-50.0 %  dropped$")
        self.assertRegex(rows["prefill 40"], r"\+0.0 %  ok$")
        self.assertRegex(result.text, r"\nFailed: 1 of \d+ figures are worse by more than 10 %")
        self.assertLessEqual(max(map(len, result.text.splitlines()[:-1])), 100)  # the last one has the file's name
        self.assertNotIn("\x1b", result.text)

    def test_each_kind_of_figure(self):
        def half_speed(report):
            report["prefill"][1]["tps"] /= 2
        self.assertEqual(self.dropped(half_speed), {"prefill 64"})

        def slow_steps(report):
            report["decode"][1]["p95_ms"] *= 2
        self.assertEqual(self.dropped(slow_steps), {"decode 0 x 2, p95 of steps"})

        def first_tokens(report):
            report["ttft"]["cold_ms"] *= 1.2
            report["ttft"]["warm_ms"] *= 1.05
        self.assertEqual(self.dropped(first_tokens), {"first token, cold"})
        self.assertEqual(self.dropped(first_tokens, "--max-drop", "4%"), {"first token, cold", "first token, warm"})

        def more_memory(report):
            report["memory"]["measured"]["whole"] *= 2
        self.assertEqual(self.dropped(more_memory), {"memory"})

        def higher_peak(report):
            report["peak_rss_bytes"] *= 2
        self.assertEqual(self.dropped(higher_peak), {"memory, one sequence"})

        def higher_peak_of_batches(report):
            report["peak_rss_batch_bytes"] *= 2
        self.assertEqual(self.dropped(higher_peak_of_batches), {"memory, peak"})

    def test_residency_of_op_classes(self):
        def ops(report, changes):
            for op in report["decode"][0]["ops"]:
                for key, factor in changes.get(op["op"], {}).items():
                    op[key] *= factor

        def set_shares(report, shares):
            for op in report["decode"][0]["ops"]:
                op["share"] = shares.get(op["op"], 0)
        base = copy.deepcopy(self.report)
        set_shares(base, {"gate_up": 0.6, "down": 0.3, "logits": 0.04, "norm": 0.06})
        base = self.file("shares.json", base)

        def dropped(change):
            with open(base) as file:
                report = json.load(file)
            change(report)
            result = spry("bench", "--baseline", base, "--measured", self.file("now.json", report), "--json")
            return {f["what"] for f in result.json["gate"]["figures"] if f["verdict"] == "dropped"}, result.code
        # Time that moves from products to what is none.
        self.assertEqual(dropped(lambda r: set_shares(r, {"gate_up": 0.5, "down": 0.3, "norm": 0.2})),
                         ({"decode 0 x 1, time in kernels"}, FAILURE))
        # From one product to another: nothing is lost.
        self.assertEqual(dropped(lambda r: set_shares(r, {"gate_up": 0.3, "down": 0.6, "logits": 0.04, "norm": 0.06})), (set(), OK))
        # A kernel that reads at half its speed; decodes are judged by what they read, not by products.
        self.assertEqual(dropped(lambda r: ops(r, {"gate_up": {"gb_s": 0.5}})), ({"decode 0 x 1, gate_up"}, FAILURE))
        self.assertEqual(dropped(lambda r: ops(r, {"gate_up": {"multiply_g_s": 0.5}})), (set(), OK))
        # One that took 4 % of the time, and what is no kernel, do not count.
        self.assertEqual(dropped(lambda r: ops(r, {"logits": {"gb_s": 0.5}, "norm": {"gb_s": 0.5}})), (set(), OK))

        def half_prefill(report):
            for op in report["prefill"][0]["ops"]:
                op["multiply_g_s"] /= 2 if op["op"] == "down" else 1
        self.assertEqual(self.dropped(half_prefill), {"prefill 40, down"})

    def test_limits(self):
        def nine(report):
            report["prefill"][0]["tps"] *= 0.91

        def ten(report):
            report["prefill"][0]["tps"] *= 0.9

        def eleven(report):
            report["prefill"][0]["tps"] *= 0.89
        self.verdicts(nine, OK)
        self.verdicts(ten, OK)  # exactly the limit
        self.assertEqual(self.dropped(eleven), {"prefill 40"})
        for limit in ("12", "12%", "100%", "11.5"):
            self.verdicts(eleven, OK, "--max-drop", limit)
        for limit in ("0", "0%", "10.5%"):
            self.verdicts(eleven, FAILURE, "--max-drop", limit)
        self.assertIn("worse by more than 0 %", self.compare(ten, "--max-drop=-0").text)

    def test_six_digits_are_not_exact(self):
        """123456.7 to 111111.03 is exactly the limit, and these are what files keep of them."""
        base = self.file("base6.json", lambda r: r["prefill"][0].update(tps=123457))
        now = self.file("now6.json", lambda r: r["prefill"][0].update(tps=111111))
        self.assertEqual(spry("bench", "--baseline", base, "--measured", now).code, OK)

    def test_a_machine_that_is_slower_itself(self):
        for key in ("read_gb_s", "multiply_g_s"):
            def slower(report):
                report["machine"][key] *= 0.6
            self.verdicts(slower, OK)
            self.assertIn("The machine itself had 60 % of its earlier speed", self.compare(slower).text)
            self.assertTrue(self.compare(slower, "--json").json["gate"]["machine_slower"])
        same = self.compare(lambda r: None)
        self.assertNotIn("The machine itself", same.text)
        self.assertFalse(self.compare(lambda r: None, "--json").json["gate"]["machine_slower"])

    def test_better_is_never_a_drop(self):
        def better(report):
            for point in report["prefill"] + report["decode"]:
                point["tps"] *= 5
            report["ttft"]["cold_ms"] /= 5
            report["memory"]["measured"]["whole"] //= 5
        self.verdicts(better, OK, "--max-drop", "0")

    def test_points_on_one_side_are_told(self):
        def fewer(report):
            del report["prefill"][0]
        verdicts = self.verdicts(fewer, FAILURE)
        self.assertEqual((verdicts["prefill 40"], verdicts["prefill 64"]), ("missing", "ok"))
        self.assertEqual((verdicts["memory"], verdicts["memory, peak"]), ("other points", "other points"))
        self.assertRegex(self.compare(fewer).text, r"\nFailed: 0 of \d+ figures are worse by more than 10 % .*; \d+ others of the baseline are missing\n$")
        self.assertEqual(self.verdicts(fewer, OK, "--force")["prefill 40"], "only before")

        def policy(report):
            report["policy"] = {}
        self.assertEqual(self.verdicts(policy, OK)["memory"], "other points")

        def more(report):
            report["prefill"].append(dict(report["prefill"][0], tokens=77))
        self.assertEqual(self.verdicts(more, OK)["prefill 77"], "only now")

        def other(report):
            report["ttft"] = report["first_call"] = report["memory"] = None
            report["decode"] = []
            report["prefill"] = [dict(report["prefill"][0], tokens=77)]
        self.fails(self.compare(other), FAILURE, "nothing was compared")

    def test_figures_that_vanish_do_not_pass(self):
        """A model that lost its chat template has no first token any more: that is no success."""
        def no_request(report):
            report["ttft"] = None

        def no_memory(report):
            report["memory"] = None

        def no_ops(report):
            for point in report["decode"]:
                del point["ops"]
        for change, what in ((no_request, "first token, cold"), (no_memory, "memory"), (no_ops, "decode 0 x 1, time in kernels")):
            verdicts = self.verdicts(change, FAILURE)
            self.assertEqual((verdicts[what], verdicts["decode 0 x 1"]), ("missing", "ok"))
            self.verdicts(change, OK, "--force")

    def test_small_ops_may_vanish(self):
        def shares(report):
            for op in report["decode"][0]["ops"]:
                op["share"] = {"gate_up": 0.96, "logits": 0.04}.get(op["op"], 0)
        base = self.file("small.json", shares)

        def without(*ops):
            with open(base) as file:
                report = json.load(file)
            report["decode"][0]["ops"] = [op for op in report["decode"][0]["ops"] if op["op"] not in ops]
            return spry("bench", "--baseline", base, "--measured", self.file("now.json", report)).code
        self.assertEqual((without("logits"), without("gate_up")), (OK, FAILURE))

    def test_first_tokens_after_other_prompts(self):
        def shorter(report):
            report["ttft"].update(prompt_tokens=100, cold_ms=report["ttft"]["cold_ms"] * 5)
        verdicts = self.verdicts(shorter, FAILURE)
        self.assertEqual((verdicts["first token, cold"], verdicts["first token, warm"]), ("other points", "other points"))
        self.verdicts(shorter, OK, "--force")

    def test_force_is_told(self):
        gate = self.compare(change_tokens, "--force", "--json").json["gate"]
        self.assertEqual(gate["differences"], "tokens is 2 there and 9 here")
        self.assertIsNone(self.compare(lambda r: None, "--force", "--json").json["gate"]["differences"])


class OtherMachines(GateTest):
    def test_what_differs_is_named(self):
        changes = {
            "the processor is": ("machine", "cpu", "Pentium"), "threads is 1 there and 7 here": ("machine", "threads", 7),
            "kernel set": ("machine", "kernels", "abacus"), "machine's id, with its memory,": ("machine", "id", "0123456789abcdef"),
            "chunk is 128 there and 64 here": ("settings", "chunk", 64), "kv-type is 'f16' there and 'q8_0' here": ("settings", "kv_type", "q8_0"),
            "tokens is 2 there and 9 here": ("settings", "tokens", 9), "quantize is '' there and 'q8_0' here": ("settings", "quantize", "q8_0"),
        }
        for words, (where, key, value) in changes.items():
            def change(report):
                report[where][key] = value
            self.fails(self.compare(change), FAILURE, self.base, words, "--force")
            self.verdicts(change, OK, "--force")
        self.assertIn("because of --force: tokens is 2 there and 9 here", self.compare(change_tokens, "--force").text)

    def test_another_model(self):
        def other(report):
            report["model_id"] = "0" * 32
        self.fails(self.compare(other), FAILURE, "model's id is '%s' there and '%s' here" % (self.report["model_id"], "0" * 32))

        def another(report):
            report["model_id"], report["model"] = "0" * 32, "parrot"
        self.fails(self.compare(another), FAILURE, "the model is 'tiny-q4_0' there and 'parrot' here")
        self.verdicts(another, OK, "--force")

        def renamed(report):
            report["model"] = "parrot"
        self.verdicts(renamed, OK)

    def test_measuring_something_else_is_refused_before_it_is_measured(self):
        self.fails(spry("bench", tiny("qwen3"), "--baseline", self.base), FAILURE, "the model is 'tiny-q4_0' there and 'model-f32' here")
        self.fails(spry("bench", *QUICK, "--threads", "2", "--baseline", self.base), FAILURE, "threads is 1 there and 2 here")
        self.fails(spry("bench", *QUICK, "--tokens", "3", "--baseline", self.base), FAILURE, "tokens is 2 there and 3 here")
        self.fails(spry("bench", *QUICK, "--kv-type", "f32", "--baseline", self.base), FAILURE, "kv-type")

    @cli_support.once_of(5)
    def test_nobody_waits_for_a_refusal(self):
        """Said before the first token of a new process is measured, which takes long with a hundred repeats."""
        limit, began = quick_limit(self), time.monotonic()
        self.fails(spry("bench", *QUICK, "--repeat", "100", "--tokens", "3", "--baseline", self.base), FAILURE, "tokens is 2 there and 3 here")
        self.assertLess(time.monotonic() - began, limit)


def quick_limit(test):
    """Seconds that a refusal stays below on this machine, and a hundred new processes do not."""
    began = time.monotonic()
    test.succeeds(spry("bench", *QUICK))
    return 2 * (time.monotonic() - began) + 0.5


def change_tokens(report):
    report["settings"]["tokens"] = 9


class Measuring(GateTest):
    def test_the_same_is_measured(self):
        """Points and settings come from the baseline; the figures of a busy machine may be anything, so all may drop."""
        result = spry("bench", "--shape", "tiny", "--baseline", self.base, "--max-drop", "100%", "--json")
        self.assertIn(result.code, (OK, FAILURE), result.errors)
        report = result.json
        self.assertEqual(report["settings"], self.report["settings"])
        self.assertEqual(report["machine"]["threads"], 1)
        self.assertEqual([p["tokens"] for p in report["prefill"]], [40, 64])
        self.assertEqual([(p["depth"], p["batch"]) for p in report["decode"]], [(0, 1), (0, 2), (32, 1), (32, 2)])
        self.assertEqual({f["verdict"] for f in report["gate"]["figures"]} - {"ok", "dropped"}, set())

    def test_lists_that_are_given_stay(self):
        result = spry("bench", "--shape", "tiny", "--baseline", self.base, "--prefill", "64,96", "--batch", "1", "--max-drop", "100", "--json")
        self.assertIn(result.code, (OK, FAILURE), result.errors)
        self.assertEqual([p["tokens"] for p in result.json["prefill"]], [64, 96])
        verdicts = {f["what"]: f["verdict"] for f in result.json["gate"]["figures"]}
        self.assertEqual((verdicts["prefill 40"], verdicts["prefill 96"], verdicts["decode 32 x 2"]), ("only before", "only now", "only before"))
        self.assertEqual(result.json["gate"]["missing"], 0)  # they were not requested
        result = spry("bench", "--shape", "tiny", "--baseline", self.base, "--context", "200", "--max-drop", "100", "--json")
        verdicts = {f["what"]: f["verdict"] for f in result.json["gate"]["figures"]}
        self.assertEqual((result.code, verdicts["first token, cold"]), (FAILURE, "other points"))

    def test_impossible_baseline_fails_when_measured_now(self):
        def fast(report):
            for point in report["prefill"] + report["decode"]:
                point["tps"] = 1e12
        path = os.path.join(self.folder, "kept.json")
        result = spry("bench", "--shape", "tiny", "--baseline", self.file("fast.json", fast), "--max-drop", "99", "--save", path)
        self.assertEqual((result.code, result.errors), (FAILURE, ""))
        self.assertRegex(result.text, r"prefill 40 .* dropped\n")
        with open(path) as file:
            self.assertNotIn("gate", json.load(file))

    def test_the_baseline_is_not_overwritten(self):
        path = self.file("mine.json", lambda r: None)
        with open(path) as file:
            text = file.read()
        for save in (path, os.path.join(self.folder, ".", "mine.json")):
            self.fails(spry("bench", "--shape", "tiny", "--baseline", path, "--save", save), FAILURE, "mine.json", "--save")
        targets = self.file("targets.json", {"format": "spry-targets-1", "machines": {"*": {"memory_bytes": 1}}})
        self.fails(spry("bench", "--shape", "tiny", "--targets", targets, "--save", targets), FAILURE, "targets.json", "--save")
        with open(path) as file:
            self.assertEqual(file.read(), text)

    def test_settings_out_of_range(self):
        def huge(report):
            report["settings"]["repeat"] = 4000000000
        path = self.file("huge.json", huge)
        self.fails(spry("bench", "--shape", "tiny", "--baseline", path), FAILURE, path, "repeat")


class BadReports(GateTest):
    def test_bad_files_are_seen_before_anything_is_measured(self):
        path = self.file("bad.json", "{")
        for option in ("--baseline", "--targets"):
            result = spry("bench", "--shape", "qwen3-0.6b", option, path, "--save", os.path.join(self.folder, "never.json"))
            self.fails(result, FAILURE, path, "not valid JSON")
        self.fails(spry("bench", "--shape", "qwen3-0.6b", "--save", "/nowhere/x.json"), FAILURE, "/nowhere/x.json")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "never.json")))

    def test_files_that_are_none(self):
        self.fails(spry("bench", "--baseline", "/nowhere.json", "--measured", self.base), FAILURE, "/nowhere.json")
        self.fails(spry("bench", "--baseline", self.folder, "--measured", self.base), FAILURE, self.folder)
        with open(self.base) as file:
            text = file.read()
        self.refused("", "not valid JSON")
        self.refused(text[:len(text) // 2], "not valid JSON at line")
        self.refused("[1, 2]", "not a JSON object")
        self.refused("{}", "not a report of spry bench")
        self.refused({"format": "spry-machine-1"}, "its format is 'spry-machine-1', not 'spry-bench-1'")
        self.refused({"format": 1}, "\"format\" is missing")
        self.refused(text.replace('"tokens": 40', '"tokens": 40, "tokens": 41'), "not valid JSON")
        self.refused(text.replace('"tps": ', '"tps": NaN, "x": ', 1), "not valid JSON")

    def test_keys_that_are_missing(self):
        for key in ("model", "model_id", "machine", "settings", "prefill", "decode", "peak_rss_bytes", "peak_rss_batch_bytes"):
            self.refused(lambda r: r.pop(key), key + " is missing")
        self.refused(lambda r: r["machine"].pop("id"), "machine.id is missing")
        self.refused(lambda r: r["settings"].pop("chunk"), "settings.chunk is missing")
        self.refused(lambda r: r["prefill"][1].pop("tps"), "prefill[1].tps is missing")
        self.refused(lambda r: r["decode"][0].pop("p95_ms"), "decode[0].p95_ms is missing")
        self.refused(lambda r: r["decode"][0]["ops"][2].pop("share"), "decode[0].ops[2].share is missing")

    def test_wrong_types(self):
        for key, value, words in (("prefill", {}, "prefill is not a list"), ("prefill", [1], "prefill[0].tokens is missing"),
                                  ("machine", [], "machine is not an object"), ("model_id", 7, "model_id is not a string"),
                                  ("ttft", 3, "ttft is not an object"), ("memory", {"measured": 1}, "memory.measured is not an object"),
                                  ("memory", {}, "memory.measured is missing"), ("peak_rss_bytes", "NaN", "peak_rss_bytes is not a number")):
            self.refused(lambda r: r.update({key: value}), words)
        self.refused(lambda r: r["decode"][1].update(tps="NaN"), "decode[1].tps is not a number")
        self.refused(lambda r: r["decode"][1].update(depth=1.5), "decode[1].depth is not a whole number")
        self.refused(lambda r: r["decode"][1].update(ops="none"), "decode[1].ops is not a list")
        self.refused(lambda r: r["decode"][1].update(energy="much"), "decode[1].energy is not an object")

    def test_absurd_numbers(self):
        for value in (0, -1, 0.0, -0.5, 1e300):
            self.refused(lambda r: r["decode"][1].update(tps=value), "decode[1].tps is", "cannot have been measured")
        self.refused(lambda r: r["prefill"][0].update(tokens=0), "prefill[0].tokens is 0")
        self.refused(lambda r: r["decode"][0].update(batch=-2), "decode[0].batch is -2")
        self.refused(lambda r: r["decode"][0].update(batch=65), "decode[0].batch is 65")
        self.refused(lambda r: r["decode"][0].update(depth=2**32 - 1), "decode[0].depth is 4.29497e+09")
        self.refused(lambda r: r["prefill"][0].update(tokens=2**20 + 1), "prefill[0].tokens is 1.04858e+06")
        self.refused(lambda r: r["decode"][0]["ops"][0].update(share=1.5), "decode[0].ops[0].share is 1.5")
        for key in ("gb_s", "multiply_g_s", "share", "ms"):  # what changes by more than a number can say
            self.refused(lambda r: r["decode"][0]["ops"][0].update({key: 1e-310}), "decode[0].ops[0].%s is 1e-310" % key)
        self.refused(lambda r: r["ttft"].update(warm_ms=-3), "ttft.warm_ms is -3")
        self.refused(lambda r: r["memory"]["measured"].update(whole=0), "memory.measured.whole is 0")
        self.refused(lambda r: r["machine"].update(threads=10**12), "machine.threads is 1e+12")
        self.refused(lambda r: r.update(prefill=[r["prefill"][0]] * 300), "prefill has 300 entries")


    def test_a_number_too_large_for_integers_elsewhere(self):
        """Then all numbers of the file are read as reals."""
        self.verdicts(lambda r: r.update(comment=10**30), OK, "--max-drop", "0")


class Policy(cli_support.CliTest):
    def measure(self, *arguments):
        return self.succeeds(spry("bench", "--shape", "tiny", "--policy", "--repeat", "1", "--threads", "1", "--tokens", "2", "--json", *arguments)).json

    def test_evidence(self):
        report = self.measure()
        policy = report["policy"]
        self.assertEqual((report["prefill"], report["decode"], policy["skipped"]), ([], [], []))
        self.assertEqual([b["batch"] for b in policy["batches"]], [1, 2, 4, 8, 16])
        self.assertEqual((policy["batches"][0]["gain"], policy["batches"][0]["slower"]), (None, None))
        for before, now in zip(policy["batches"], policy["batches"][1:]):
            self.assertAlmostEqual(now["gain"] / (now["tps"] / before["tps"]), 1, 3)
            self.assertAlmostEqual(now["slower"] / (now["p95_ms"] / before["p95_ms"]), 1, 3)
        # The rules, from the figures alone; the report rounds nothing, but what lies at a bound decides nothing here.
        batches = policy["batches"]
        most = max(b["tps"] for b in batches)
        expected = {"throughput": [b["batch"] for b in batches if 1.05 * b["tps"] > most][-1], "offline": 1, "interactive": 1}
        for before, now in zip(batches, batches[1:]):
            if expected["interactive"] == before["batch"] and now["p95_ms"] < 1.10 * batches[0]["p95_ms"]:
                expected["interactive"] = now["batch"]
            if expected["offline"] == before["batch"] and now["gain"] >= 1.10 and now["slower"] < 1.10:
                expected["offline"] = now["batch"]
        bounds = [1.05 * b["tps"] / most for b in batches] + [b["p95_ms"] / batches[0]["p95_ms"] / 1.10 for b in batches] + \
                 [b[key] / 1.10 for b in batches[1:] for key in ("gain", "slower")]
        if not any(abs(bound - 1) < 1e-3 for bound in bounds):
            self.assertEqual({name: choice["batch"] for name, choice in policy["choices"].items()}, expected, policy)
        for name, choice in policy["choices"].items():
            self.assertIn("%s: %d together give" % (name, choice["batch"]), choice["why"])
        self.assertEqual((policy["taken"], policy["why"]), tuple(policy["choices"]["throughput"].values()))

    def test_other_sizes_are_told(self):
        report = self.measure("--batch", "3,2", "--decode-depth", "32,0")
        self.assertEqual([b["batch"] for b in report["policy"]["batches"]], [1, 2, 3, 4, 8, 16])
        self.assertEqual(report["policy"]["depth"], 32)
        self.assertIn(report["policy"]["taken"], (1, 2, 4, 8, 16))
        self.assertEqual([(p["depth"], p["batch"]) for p in report["decode"]], [(32, 3), (32, 2), (0, 3), (0, 2)])
        sizes = {b["batch"]: b for b in report["policy"]["batches"]}
        self.assertAlmostEqual(sizes[4]["gain"] / (sizes[4]["tps"] / sizes[2]["tps"]), 1, 3)  # not against 3

    def test_sizes_that_do_not_fit(self):
        policy = self.measure("--chunk", "4")["policy"]
        self.assertEqual([b["batch"] for b in policy["batches"]], [1, 2, 4])
        self.assertEqual([b["batch"] for b in policy["skipped"]], [8, 16])
        self.assertIn("allow 4 rows", policy["skipped"][0]["why"])

    def test_table(self):
        page = self.succeeds(spry("bench", "--shape", "tiny", "--policy", "--repeat", "1", "--threads", "1")).text
        for words in ("Policies", "#####", "interactive: ", "offline: ", "throughput: "):
            self.assertIn(words, page)
        self.assertLessEqual(max(map(len, page.splitlines())), 100)


class WrongUse(cli_support.CliTest):
    def test_limits(self):
        for value in ("-1", "101%", "ten", "", "%", "5%%", "nan", "1e9"):
            self.fails(spry("bench", "--baseline", "b.json", "--max-drop=" + value), USAGE, "--max-drop", "percentage from 0 to 100")

    def test_options_that_need_others(self):
        self.fails(spry("bench", "--max-drop", "5%"), USAGE, "--max-drop needs --baseline")
        self.fails(spry("bench", "--force"), USAGE, "--force needs --baseline")
        self.fails(spry("bench", "--measured", "x.json"), USAGE, "--measured needs --baseline or --targets")

    def test_options_that_contradict_each_other(self):
        for other in (["model.gguf"], ["--shape", "tiny"], ["--save", "x.json"], ["--policy"], ["--prefill", "8"], ["--decode-depth", "0"],
                      ["--batch", "1"], ["--tokens", "3"], ["--repeat", "2"]):
            self.fails(spry("bench", "--baseline", "b.json", "--measured", "m.json", *other), USAGE, "--measured")
        for kind in (["--reuse"], ["--draft", "auto"], ["--mix", "chat"], ["--chunk", "1,2"]):
            self.fails(spry("bench", *kind, "--policy"), USAGE, "--policy is measured without")
            self.fails(spry("bench", *kind, "--baseline", "x", "--measured", "x"), USAGE, "--measured uses a saved report", "omit " + kind[0])
            self.fails(spry("bench", *kind, "--shape", "tiny", "--write", "x"), USAGE, "--write measures nothing: omit " + kind[0])


if __name__ == "__main__":
    cli_support.main()
