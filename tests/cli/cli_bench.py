"""spry bench: the form of its reports, what is measured and what is left out, and models with random weights."""

import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import cli_support
from cli_support import FAILURE, HOME, INTERRUPTED, OK, SPRY, TIMEOUT, USAGE, environment, spry, tiny

QUICK = ["--prefill", "40", "--decode-depth", "0", "--batch", "1", "--tokens", "2", "--repeat", "1", "--threads", "1"]


def bench(*arguments, **changes):
    """Small numbers, unless later ones replace them."""
    return spry("bench", *QUICK, *arguments, **changes)


class Reports(cli_support.CliTest):
    def measure(self, *arguments, **changes):
        return self.succeeds(bench("--shape", "tiny", "--json", *arguments, **changes)).json

    def test_json_has_exactly_this_form(self):
        report = self.measure("--prefill", "33,7", "--decode-depth", "64,0", "--batch", "2,1", "--repeat", "3")
        self.assertEqual([key for key in report if key != "why_cpu"], ["format", "spry", "when", "model", "architecture", "parameters", "weight_bytes", "main_type", "model_id",
                                        "machine", "settings", "prefill", "decode", "skipped", "load_ms", "load_spread", "first_token_ms",
                                        "first_token_spread", "peak_rss_bytes", "peak_rss_batch_bytes", "ttft", "first_call", "memory", "energy", "expected_s"])
        self.assertEqual((report["format"], report["model"], report["architecture"]), ("spry-bench-1", "tiny-q4_0", "Qwen3"))
        self.assertRegex(report["when"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(report["model_id"], r"^[0-9a-f]{32}$")
        self.assertEqual([p["tokens"] for p in report["prefill"]], [33, 7])
        self.assertEqual([(p["depth"], p["batch"]) for p in report["decode"]], [(64, 2), (64, 1), (0, 2), (0, 1)])
        for point in report["prefill"] + report["decode"]:
            for key in ("tps", "read_gb_s", "read_share", "multiply_g_s", "multiply_share"):
                self.assertGreater(point.pop(key), 0, key)
            self.assertGreaterEqual(point.pop("spread"), 0)
            self.assertLessEqual(set(point), {"tokens", "ms", "depth", "batch", "p50_ms", "p95_ms", "p99_ms", "energy", "ops", "places"})
            self.assertEqual((set(point["places"]), sum(point["places"].values())), ({"gpu", "cpu", "host", "copies"}, point["places"]["cpu"]))
        self.assertEqual(report["skipped"], [])
        self.assertGreater(report["load_ms"], 0)
        self.assertGreater(report["first_token_ms"], 0)
        self.assertGreater(report["peak_rss_bytes"], report["weight_bytes"])
        self.assertGreaterEqual(report["peak_rss_batch_bytes"], report["peak_rss_bytes"])
        machine = report["machine"]
        self.assertEqual(set(machine), {"cpu", "threads", "kernels", "read_gb_s", "multiply_g_s", "multiply_type", "memory_bytes", "id"})
        self.assertTrue(machine["cpu"] and machine["kernels"])
        self.assertRegex(machine["id"], r"^[0-9a-f]{16}$")
        self.assertEqual((machine["threads"], machine["multiply_type"]), (1, "Q4_0"))
        self.assertGreater(machine["read_gb_s"], 0)
        self.assertGreater(machine["multiply_g_s"], 0)
        self.assertEqual(report["settings"], {"chunk": 128, "kv_type": "f16", "tokens": 2, "repeat": 3, "context": 1024, "quantize": None})

    def test_steps_and_times(self):
        report = self.measure("--repeat", "3", "--tokens", "8")
        point = report["decode"][0]
        self.assertLessEqual(point["p50_ms"], point["p95_ms"])
        self.assertLessEqual(point["p95_ms"], point["p99_ms"])
        self.assertLess(point["p50_ms"] / 1000, 8 * 3 / point["tps"])  # half of the steps take less than all of them
        prefill = report["prefill"][0]
        self.assertAlmostEqual(prefill["ms"] * prefill["tps"] / 1000 / prefill["tokens"], 1, 3)

    def test_ops_are_all_there_is(self):
        report = self.measure("--type", "f32")
        for point in report["prefill"] + report["decode"]:
            ops = {op["op"]: op for op in point["ops"]}
            self.assertEqual(set(ops), {"layout", "embed", "norm", "qkv", "rope", "attend", "out", "add", "gate_up", "gate", "down", "logits"})
            self.assertAlmostEqual(sum(op["share"] for op in point["ops"]), 1, 3)
            self.assertEqual([op["ms"] for op in point["ops"]], sorted((op["ms"] for op in point["ops"]), reverse=True))
            self.assertEqual({op["device"] for op in point["ops"]}, {"cpu"})
            self.assertEqual(ops["gate_up"]["kernel"], report["machine"]["kernels"] + " F32")
            self.assertEqual(ops["attend"]["kernel"], report["machine"]["kernels"] + " F16")
            rows = point.get("tokens", 1)
            products = {"gate_up": 2 * 2 * 512 * 256 * rows, "down": 2 * 512 * 256 * rows, "out": 2 * 256 * 256 * rows}
            for op, count in products.items():
                self.assertEqual(ops[op]["calls"], 2)
                self.assertAlmostEqual(ops[op]["multiply_g_s"] * ops[op]["ms"] * 1e6 / count, 1, 2, op)
            self.assertAlmostEqual(ops["down"]["gb_s"] * ops["down"]["ms"] * 1e6 / (2 * 512 * 256 * 4), 1, 2)

    def test_a_request_is_told_by_part(self):
        ttft = self.measure()["ttft"]
        self.assertTrue(900 < ttft["prompt_tokens"] <= 1000, ttft)
        self.assertEqual(ttft["hit_tokens"] + ttft["miss_tokens"], ttft["prompt_tokens"])
        self.assertLess(ttft["miss_tokens"], 33)
        for whole, parts in ((ttft["cold_ms"], ttft["parts_ms"]), (ttft["warm_ms"], ttft["warm_parts_ms"])):
            self.assertEqual(list(parts)[:2], ["template", "tokenize"])
            self.assertAlmostEqual(sum(parts.values()) / whole, 1, 3)
            for part in ("template", "tokenize", "prefill"):
                self.assertGreater(parts[part], 0, part)
        short = self.measure("--context", "200", "--prefill", "40")["ttft"]
        self.assertTrue(100 < short["prompt_tokens"] < 200, short)
        report = self.measure("--context", "16", "--prefill", "4")
        self.assertIsNone(report["ttft"])
        self.assertIn("16 tokens is too short", report["why_no_ttft"])

    def test_a_call_is_told(self):
        call = self.measure()["first_call"]
        self.assertEqual(set(call), {"ms", "tokens"})
        self.assertGreater(call["ms"], 0)
        self.assertGreater(call["tokens"], 5)
        self.assertRegex(self.succeeds(bench("--shape", "tiny")).text, r"First call +[0-9.]+ m?s .* %d tokens" % call["tokens"])
        report = self.measure("--context", "16", "--prefill", "4")
        self.assertIsNone(report["first_call"])
        self.assertIn("16 tokens is too short", report["why_no_first_call"])

    def test_memory_and_energy(self):
        report = self.measure()
        for side in ("estimated", "measured"):
            parts = dict(report["memory"][side])
            whole = parts.pop("whole")
            self.assertEqual(set(parts), {"weights", "kv", "cache", "scratch", "program"})
            self.assertEqual(sum(parts.values()), whole)
        for device in ("cpu", "gpu"):
            named, why = report["energy"][device], report["energy"]["why_no_" + device]
            self.assertTrue(bool(named) != bool(why), report["energy"])
        if not report["energy"]["cpu"] and not report["energy"]["gpu"]:
            self.assertIsNone(report["decode"][0]["energy"])
            page = " ".join(self.succeeds(bench("--shape", "tiny")).text.split())
            self.assertIn("%(why_no_cpu)s; %(why_no_gpu)s" % report["energy"], page)

    def test_shares_are_of_the_machine(self):
        report = self.measure()
        for point in report["prefill"] + report["decode"]:
            self.assertAlmostEqual(point["read_share"] / (point["read_gb_s"] / report["machine"]["read_gb_s"]), 1, 3)
            self.assertAlmostEqual(point["multiply_share"] / (point["multiply_g_s"] / report["machine"]["multiply_g_s"]), 1, 3)

    def test_work_is_what_the_shape_says(self):
        """Two layers of q, k, v, o, gate, up, down; one row of logits a decoded token."""
        report = self.measure("--type", "f32", "--decode-depth", "0", "--tokens", "1", "--batch", "1")
        point = report["decode"][0]
        products = 2 * (256 * 256 * 2 + 128 * 256 * 2 + 3 * 512 * 256 + 4 * 64 * 2) + 1024 * 256
        read = 4 * (2 * (256 * 256 * 2 + 128 * 256 * 2 + 3 * 512 * 256) + 1024 * 256) + 2 * 2 * 2 * 64 * 2
        self.assertAlmostEqual(point["multiply_g_s"] * 1e9 / point["tps"] / products, 1, 3)
        self.assertAlmostEqual(point["read_gb_s"] * 1e9 / point["tps"] / read, 1, 3)

    def test_lists_may_be_empty(self):
        for nothing in ("none", ""):
            report = self.measure("--prefill", nothing, "--decode-depth", nothing)
            self.assertEqual((report["prefill"], report["decode"], report["skipped"]), ([], [], []))
            self.assertGreater(report["load_ms"], 0)
        report = self.measure("--prefill", "none", "--batch", "none")
        self.assertEqual((report["prefill"], report["decode"]), ([], []))

    def test_what_does_not_fit_is_skipped_in_words(self):
        report = self.measure("--prefill", "1024,1025", "--decode-depth", "1022,1023", "--batch", "1,2")
        self.assertEqual([p["tokens"] for p in report["prefill"]], [1024])
        self.assertEqual([(p["depth"], p["batch"]) for p in report["decode"]], [(1022, 1), (1022, 2)])
        self.assertEqual([{k: p[k] for k in p if k != "why"} for p in report["skipped"]],
                         [{"tokens": 1025}, {"depth": 1023, "batch": 1}, {"depth": 1023, "batch": 2}])
        self.assertEqual(report["skipped"][0]["why"], "1025 tokens pass the limit of 1024")
        report = self.measure("--context", "64", "--prefill", "64,65")
        self.assertEqual([p["tokens"] for p in report["prefill"]], [64])
        report = self.measure("--chunk", "2", "--batch", "2,3")
        self.assertEqual([p["batch"] for p in report["decode"]], [2])
        self.assertIn("allow 2 rows", report["skipped"][0]["why"])
        report = self.measure("--context", "4", "--prefill", "4", "--batch", "4,5")
        self.assertEqual([p["batch"] for p in report["decode"]], [4])
        self.assertIn("allow 4 rows", report["skipped"][0]["why"])
        report = self.measure("--prefill", "none", "--tokens", "1", "--batch", "16")
        self.assertEqual([p["batch"] for p in report["decode"]], [16])

    def test_engine_options_count(self):
        machine = self.measure("--cpu", "ref", "--kv-type", "q8_0", "--threads", "2", "--chunk", "16")["machine"]
        self.assertEqual((machine["kernels"], machine["threads"]), ("ref", 2))
        machine = self.measure("--type", "f32", "--quantize", "q8_0")["machine"]
        self.assertEqual(machine["multiply_type"], "Q8_0")

    def test_experts(self):
        report = self.succeeds(bench("--shape", "tiny-moe", "--json", "--batch", "1,4")).json
        self.assertEqual(report["architecture"], "Qwen3-MoE")
        self.assertEqual(len(report["decode"]), 2)

    def test_table_fits_a_terminal(self):
        page = self.succeeds(bench("--shape", "tiny", "--prefill", "40,2000", "--decode-depth", "0,100000", "--batch", "1,8")).text
        for words in ("tiny-q4_0\nQwen3, 1.44M parameters", "Prefill ", "Decode ", "tokens/s", "spread", "First token", "Load",
                      "Memory", "GB/s", "skipped: 2000 tokens pass the limit of 1024", "step p95", "Time of ops", "gate_up", "Residency", "in kernels: attention", "feed-forward", "Request",
                      "estimated", "measured", "Energy"):
            self.assertIn(words, page)
        self.assertLessEqual(max(map(len, page.splitlines())), 100)
        self.assertNotIn("\x1b", page)

    def test_bundled_model_and_files(self):
        self.assertEqual(self.succeeds(bench("--json")).json["model"], "Spry-Tales-29M")
        self.assertEqual(self.succeeds(bench(tiny("qwen3"), "--json")).json["model"], "model-f32")
        self.assertEqual(self.succeeds(bench(tiny("llama", ""), "--json")).json["architecture"], "Llama")

    def test_names_of_files_do_not_reach_the_terminal_raw(self):
        path = os.path.join(tempfile.mkdtemp(dir=HOME), "a\x1b[2Jb.gguf")
        shutil.copy(tiny("qwen3"), path)
        self.assertTrue(self.succeeds(bench(path)).text.startswith("a?[2Jb\n"))

    def test_model_without_a_tokenizer_has_no_first_token(self):
        folder = tempfile.mkdtemp(dir=HOME)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(tiny("llama", name), folder)
        report = self.succeeds(bench(folder, "--json")).json
        self.assertIsNone(report["first_token_ms"])
        self.assertIsNone(report["ttft"])
        self.assertIn("the model has no tokenizer", report["why_no_ttft"])
        self.assertEqual(len(report["decode"]), 1)
        page = self.succeeds(bench(folder)).text
        self.assertRegex(page, r"First token +- ")
        self.assertRegex(page, r"(?s)Request +- +not measured: .*has\s+no\s+tokenizer")


class Reuse(cli_support.CliTest):
    def test_form(self):
        report = self.succeeds(spry("bench", "--reuse", "--repeat", "1", "--json")).json
        pairs = ["prefix", "fragments", "fragments_again", "restart", "moved_decode"]
        self.assertEqual([key for key in report if key in pairs], pairs)
        self.assertEqual((report["format"], report["model"]), ("spry-reuse-1", "Spry-Tales-29M"))
        self.assertEqual(set(report["lookup"]), {"tokens", "pages", "us"})
        self.assertEqual((report["prefix"]["tokens"], report["prefix"]["known"]), (1020, 1000))
        for name in pairs:
            self.assertEqual(report[name]["unit"], "tokens_per_second" if name == "moved_decode" else "ms")
            self.assertAlmostEqual(report[name]["ratio"], report[name]["reused"] / report[name]["anew"], delta=0.001)
        for name in ("fragments", "fragments_again"):
            self.assertEqual(report[name]["tokens"] - report[name]["known"], 32)

    def test_saved_compared_and_held_against_targets(self):
        folder = tempfile.mkdtemp(dir=HOME)
        saved, targets = os.path.join(folder, "reuse.json"), os.path.join(folder, "targets.json")
        with open(targets, "w", encoding="utf-8") as file:
            json.dump({"format": "spry-targets-1", "machines": {"*": {"reuse_prefix_share": 1e-9, "reuse_restart_share": 1e-9, "reuse_fragments_share": 1e-9,
                                                                               "reuse_lookup_us": 1e9}}}, file)
        result = spry("bench", "--reuse", "--repeat", "1", "--save", saved, "--targets", targets, "--json")
        self.assertEqual((result.code, result.errors), (FAILURE, ""))
        self.assertEqual({t["what"]: t["verdict"] for t in result.json["targets"]["targets"]}, {"cached prefix, share": "missed", "cached prefix, restarted, share": "missed",
                                                                                                  "4 fragments, second order, share": "missed", "lookup": "met"})
        same = self.succeeds(spry("bench", "--baseline", saved, "--measured", saved, "--json")).json
        self.assertEqual((same["gate"]["compared"], {f["verdict"] for f in same["gate"]["figures"]}), (11, {"ok"}))
        again = spry("bench", "--reuse", "--baseline", saved, "--max-drop", "100%", "--json")
        self.assertIn(again.code, (OK, FAILURE), again.errors)
        self.assertEqual(again.json["settings"]["repeat"], 1)
        self.fails(spry("bench", "--chunk", "1,2", "--targets", targets), FAILURE, "no targets", "that this run measures")

    def test_table_fits_a_terminal(self):
        text = self.succeeds(spry("bench", "--reuse", "--repeat", "1")).text
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        for words in ("cached prefix", "4 fragments, second order", "4 fragments, third order", "decode over 8 moved spans"):
            self.assertIn(words, text)


class RandomWeights(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = os.path.join(self.folder, "random.gguf")

    def write(self, shape="tiny", kind="q4_0"):
        result = self.succeeds(spry("bench", "--shape", shape, "--type", kind, "--write", self.file))
        self.assertEqual(result.text, "wrote %s: %s, %s, random weights\n" % (self.file, shape, kind))
        with open(self.file, "rb") as file:
            return file.read()

    def test_file_can_be_inspected_tokenized_and_run(self):
        for shape, architecture in (("tiny", "qwen3"), ("tiny-moe", "qwen3moe")):
            self.assertNotIn(b"general.sampling", self.write(shape))  # a penalty of 0 would be refused by others
            d = self.succeeds(spry("inspect", self.file, "--json", "--tensors")).json
            self.assertEqual((d["architecture"], d["runs"], d["shape"]["vocabulary"]), (architecture, True, 1024))
            types = {t["name"]: t["type"] for t in d["tensors"]}
            self.assertEqual(types["token_embd.weight"], "Q8_0")
            self.assertEqual(types["blk.1.attn_q.weight"], "Q4_0")
            self.assertEqual(types["output_norm.weight"], "F32")
            self.assertEqual((d["tokenizer"]["size"], d["tokenizer"]["eos"]["text"]), (1024, "<|im_end|>"))
            ids = self.succeeds(spry("tokenize", self.file, stdin=b"Hello there, world 42.")).text
            back = self.succeeds(spry("tokenize", self.file, "--decode", stdin=ids.encode())).text
            self.assertEqual(back.rstrip("\n"), "Hello there, world 42.")
            for options in (["--raw"], []):  # by itself, and in the file's chat template
                result = spry("run", self.file, "-p", "Hello", "-n", "4", "--temperature", "0", "--json", "--ignore-end", *options)
                self.assertEqual(self.succeeds(result).json["generated_tokens"], 4)

    def test_same_bytes_every_time(self):
        first = self.write()
        self.assertEqual(self.write(), first)
        self.assertNotEqual(self.write(kind="q4_1"), first)
        self.assertEqual(os.listdir(self.folder), ["random.gguf"])

    def test_written_file_is_measured_like_any_other(self):
        self.write("tiny", "q8_0")
        report = self.succeeds(bench(self.file, "--json")).json
        self.assertEqual((report["model"], report["machine"]["multiply_type"]), ("random", "Q8_0"))

    def test_temporary_file_is_gone(self):
        self.succeeds(bench("--shape", "tiny", TMPDIR=self.folder))
        self.assertEqual(os.listdir(self.folder), [])

    def test_interrupt_leaves_nothing(self):
        process = subprocess.Popen([SPRY, "bench", "--shape", "tiny", "--tokens", "900", "--repeat", "100", "--prefill", "1000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HOME, env=environment(TMPDIR=self.folder))
        cli_support.wait_until_caught(process)
        time.sleep(0.5)  # so that it measures, as a rule
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, out), (INTERRUPTED, b""))
        self.assertEqual(err, b"spry: interrupted; nothing is reported\n")
        self.assertEqual(os.listdir(self.folder), [])

    def full_disk(self, *arguments, **changes):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
        process = subprocess.run([SPRY, "bench", "--shape", "tiny", *arguments], capture_output=True, timeout=TIMEOUT, cwd=HOME,
                                 env=environment(**changes), preexec_fn=limit)
        self.fails(cli_support.Result(process), FAILURE, "random.gguf", "File too large")
        self.assertEqual(os.listdir(self.folder), [])

    def test_full_disk(self):
        self.full_disk("--write", self.file)
        self.full_disk(TMPDIR=self.folder)

    def test_places_that_cannot_be_written(self):
        self.fails(spry("bench", "--shape", "tiny", "--write", "/nowhere/x.gguf"), FAILURE, "/nowhere/x.gguf")
        self.fails(spry("bench", "--shape", "tiny", "--write", self.folder), FAILURE, self.folder)
        self.fails(spry("bench", "--shape", "tiny", TMPDIR="/nowhere"), FAILURE, "/nowhere", "temporary")


class WrongUse(cli_support.CliTest):
    def test_unknown_shape_and_type(self):
        self.fails(bench("--shape", "qwen9"), USAGE, "'qwen9'", "qwen3-0.6b", "llama3.2-1b", "mistral-7b")
        self.fails(bench("--shape", "tiny", "--type", "q9_9"), USAGE, "'q9_9'", "q4_0", "q8_0", "bf16")

    def test_options_that_contradict_each_other(self):
        self.fails(bench("model.gguf", "--shape", "tiny"), USAGE, "MODEL and --shape")
        self.fails(bench("--type", "q4_0"), USAGE, "--type needs --shape")
        self.fails(bench("--write", "x.gguf"), USAGE, "--write needs --shape")
        self.fails(bench("--shape", "tiny", "--write", "x.gguf", "--json"), USAGE, "--json")

    def test_lists(self):
        for option, value, words in (("prefill", "0", "from 1 to"), ("prefill", "12,x", "'x'"), ("prefill", "1,,2", "''"),
                                     ("prefill", "1,", "''"), ("decode-depth", "-1", "'-1'"), ("batch", "0", "from 1 to 64"),
                                     ("batch", "65", "from 1 to 64"), ("decode-depth", "99999999999", "from 0 to"),
                                     ("prefill", ",".join(["1"] * 17), "more than 16")):
            self.fails(bench("--%s=%s" % (option, value)), USAGE, "--" + option, words)

    def test_numbers(self):
        self.fails(bench("--repeat", "0"), USAGE, "--repeat", "from 1 to 100")
        self.fails(bench("--tokens", "0"), USAGE, "--tokens")
        self.fails(bench("--cpu", "sse9", "--shape", "tiny"), FAILURE, "sse9")

    def test_models_that_are_not(self):
        self.fails(bench("/nowhere.gguf"), FAILURE, "/nowhere.gguf")
        self.fails(bench("/dev/null"), FAILURE, "/dev/null")


if __name__ == "__main__":
    cli_support.main()
