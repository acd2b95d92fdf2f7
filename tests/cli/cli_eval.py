"""spry eval: perplexity and KL divergence against the same sums over `spry logits`."""

import json
import math
import os
import shutil
import struct
import tempfile

import cli_support
from cli_support import FAILURE, HOME, USAGE, spry, tiny

TEXT = ("Once upon a time there was a little mill by a river, and in the mill lived a cat who could count. "
        "She counted the sacks of flour in the morning and the stars in the evening.")
VOCABULARY = 512
TOLERANCE = 1e-6


def log_softmax(row):
    top = max(row)
    total = top + math.log(sum(math.exp(x - top) for x in row))
    return [x - total for x in row]


class Eval(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = self.write("text.txt", TEXT)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def eval(self, *arguments, stdin=b""):
        return self.succeeds(spry("eval", *arguments, "--json", stdin=stdin)).json

    def ids(self, model, text=TEXT):
        return self.succeeds(spry("tokenize", model, "--bos", "--json", stdin=text.encode())).json

    def rows(self, model, ids, *options):
        """Log probabilities after each id."""
        out = self.succeeds(spry("logits", model, "--ids", ",".join(map(str, ids)), "--rows", "all", "-o", "-",
                                 *options)).out
        floats = struct.unpack("<%df" % (len(out) // 4), out)
        return [log_softmax(floats[i : i + VOCABULARY]) for i in range(0, len(floats), VOCABULARY)]

    def expected_nll(self, model, windows):
        """Of windows (ids, number of the first that counts)."""
        terms = []
        for ids, first in windows:
            rows = self.rows(model, ids)
            terms += [-rows[i - 1][ids[i]] for i in range(first, len(ids))]
        mean = sum(terms) / len(terms)
        variance = sum((t - mean) ** 2 for t in terms) / (len(terms) - 1)
        return len(terms), mean, math.sqrt(variance / len(terms))

    def check_nll(self, d, expected):
        count, mean, error = expected
        self.assertEqual(d["counted"], count)
        self.assertAlmostEqual(d["nll"], mean, delta=TOLERANCE)
        self.assertAlmostEqual(d["nll_error"], error, delta=TOLERANCE)
        self.assertAlmostEqual(d["perplexity"], math.exp(mean), delta=TOLERANCE * math.exp(mean))

    def test_one_window(self):
        model = tiny("qwen3")
        ids = self.ids(model)
        d = self.eval("ppl", model, "-f", self.text)
        self.assertEqual(set(d), {"model", "tokens", "counted", "context", "stride", "windows", "nll", "nll_error",
                                  "perplexity", "seconds"})
        self.assertEqual((d["tokens"], d["windows"], d["context"], d["stride"]), (len(ids), 1, 512, 256))
        self.check_nll(d, self.expected_nll(model, [(ids, 1)]))

    def test_gate(self):
        model = tiny("qwen3")
        before = self.eval("ppl", model, "-f", self.text)
        def gate(baseline, *more, kind=("ppl", model)):
            path = self.write("before.json", baseline if isinstance(baseline, str) else json.dumps(baseline))
            return spry("eval", *kind, "-f", self.text, "--baseline", path, *more)
        self.assertIn("held", self.succeeds(gate(before)).text)
        better = dict(before, perplexity=before["perplexity"] / 1.1)
        worse = gate(better, "--max-loss", "9%")
        self.assertEqual((worse.code, worse.errors), (FAILURE, ""))
        self.assertIn("worse", worse.text)
        self.succeeds(gate(better, "--max-loss", "11%"))
        verdict = gate(better, "--json").json["gate"]
        self.assertEqual((verdict["passed"], verdict["max_loss"]), (False, 0.01))
        self.assertAlmostEqual(verdict["figures"][0]["loss"], 0.1)
        self.fails(gate(dict(before, counted=3)), FAILURE, "before.json", '"counted" is 3 there')
        self.fails(gate("{"), FAILURE, "before.json", "not valid JSON")
        self.fails(gate({"tokens": 1}), FAILURE, "before.json", '"counted" is missing')
        self.fails(gate(dict(before, perplexity=None)), FAILURE, '"perplexity" is missing')
        self.fails(gate(before, "--max-loss", "much"), USAGE, "--max-loss")
        self.fails(spry("eval", "ppl", "-f", self.text, "--max-loss", "2%"), USAGE, "--max-loss needs --baseline")
        kl = ("kl", model, "--base", model, "--quantize", "q8_0")
        divergence = self.eval(*kl, "-f", self.text)
        self.succeeds(gate(divergence, kind=kl))
        divergence["kl"]["mean"] /= 2
        self.assertEqual(gate(divergence, kind=kl).code, FAILURE)

    def test_windows(self):
        model = tiny("qwen3")
        ids = self.ids(model)
        self.assertGreater(len(ids), 60)
        for context, stride in ((32, 0), (33, 0), (32, 5), (32, 31), (64, 1), (len(ids), 7), (2, 1)):
            step = stride or (context + 1) // 2
            windows, begin, done = [], 0, 0
            while done < len(ids):
                window = ids[begin : begin + context]
                windows.append((window, done - begin if begin else 1))
                done, begin = begin + len(window), begin + step
            if len(windows) > 20:  # one process each
                continue
            d = self.eval("ppl", model, "-f", self.text, "--context", str(context), "--stride", str(stride))
            self.assertEqual((d["windows"], d["stride"]), (len(windows), step))
            self.assertEqual(d["counted"], len(ids) - 1)
            self.check_nll(d, self.expected_nll(model, windows))

    def folder_with(self, change):
        """A checkpoint whose tokenizer.json is changed."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for name in os.listdir(tiny("llama", "")):
            if name != "tokenizer.json":
                os.symlink(tiny("llama", name), os.path.join(folder, name))
        with open(tiny("llama", "tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        change(tokenizer)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        return folder

    def test_start_token_stands_before_every_window(self):
        def add_start(tokenizer):
            token = tokenizer["added_tokens"][0]
            start = {"SpecialToken": {"id": token["content"], "type_id": 0}}
            text = {"Sequence": {"id": "A", "type_id": 0}}
            tokenizer["post_processor"] = {
                "type": "TemplateProcessing", "single": [start, text], "pair": [start, text],
                "special_tokens": {token["content"]: {"id": token["content"], "ids": [token["id"]],
                                                      "tokens": [token["content"]]}}}
        model = self.folder_with(add_start)
        start, *body = self.ids(model)
        self.assertEqual(self.ids(model, ""), [start])
        windows, begin, done = [], 0, 0
        while done < len(body):
            window = body[begin : begin + 39]
            windows.append(([start] + window, 1 + done - begin))
            done, begin = begin + len(window), begin + 15
        d = self.eval("ppl", model, "-f", self.text, "--context", "40", "--stride", "15")
        self.assertEqual(d["windows"], len(windows))
        self.check_nll(d, self.expected_nll(model, windows))
        self.fails(spry("eval", "ppl", model, "-f", self.write("empty", "")), FAILURE, "1 token,")

    def test_standard_input_and_people(self):
        model = tiny("qwen3")
        a = self.eval("ppl", model, "-f", self.text)
        b = self.eval("ppl", model, "-f", "-", stdin=TEXT.encode())
        self.assertEqual(a["nll"], b["nll"])
        result = self.succeeds(spry("eval", "ppl", model, "-f", self.text))
        self.assertIn("perplexity     %.4f +- %.4f\n" % (a["perplexity"], a["perplexity"] * a["nll_error"]), result.text)
        self.assertIn("%d tokens in 1 window of 512, stride 256\n" % a["counted"], result.text)
        result = self.succeeds(spry("eval", "kl", model, "--base", model, "-f", self.text))
        self.assertIn("same top token 100.00 %\n", result.text)

    def test_control_tokens(self):
        with open(os.path.join(cli_support.ROOT, "tests", "data", "tales", "Spry-Tales-Draft-4M.json")) as file:
            golden = json.load(file)["perplexity"]
        text = self.succeeds(spry("tokenize", "--decode", "--special", stdin=json.dumps(golden["ids"]).encode())).out
        chats = self.write("chats.txt", text)
        d = self.eval("ppl", "Spry-Tales-Draft-4M", "-f", chats, "--special")
        self.assertEqual(d["tokens"], len(golden["ids"]))
        self.assertLess(abs(d["nll"] - golden["nll_mean"]), 0.06)
        self.assertNotEqual(self.eval("ppl", "Spry-Tales-Draft-4M", "-f", chats)["tokens"], len(golden["ids"]))

    def test_bytes_that_are_no_text(self):
        result = spry("eval", "ppl", tiny("qwen3"), "-f", self.write("odd", b"once \xff upon \0 a time"), "--json")
        self.assertEqual(result.code, 0)
        self.one_sentence(result, "the text is not valid UTF-8")
        self.assertGreater(result.json["counted"], 1)

    def test_a_model_and_itself(self):
        d = self.eval("kl", tiny("llama"), "--base", tiny("llama"), "-f", self.text, "--context", "40")
        self.assertEqual(d["kl"], {"mean": 0, "median": 0, "p99": 0, "max": 0})
        self.assertEqual((d["top1"], d["delta_p"]), (1, 0))
        self.assertEqual(d["perplexity"], d["base_perplexity"])

    def test_divergence(self):
        base = tiny("llama-256", "")
        model = os.path.join(self.folder, "q4_0.gguf")
        self.succeeds(spry("convert", base, model, "--type", "q4_0"))
        ids = self.ids(base)
        q, p = self.rows(model, ids[:-1]), self.rows(base, ids[:-1])
        kl = [sum(math.exp(b) * (b - a) for a, b in zip(x, y)) for x, y in zip(q, p)]
        same = [x.index(max(x)) == y.index(max(y)) for x, y in zip(q, p)]
        moved = [abs(math.exp(x[i]) - math.exp(y[i])) for x, y, i in zip(q, p, ids[1:])]
        d = self.eval("kl", model, "--base", base, "-f", self.text)
        self.assertEqual(set(d), {"model", "base", "tokens", "counted", "context", "stride", "windows", "nll",
                                  "nll_error", "perplexity", "base_perplexity", "kl", "top1", "delta_p", "seconds"})
        kl.sort()
        self.assertAlmostEqual(d["kl"]["mean"], sum(kl) / len(kl), delta=TOLERANCE)
        self.assertAlmostEqual(d["kl"]["median"], kl[math.ceil(len(kl) / 2) - 1], delta=TOLERANCE)
        self.assertAlmostEqual(d["kl"]["p99"], kl[math.ceil(len(kl) * 0.99) - 1], delta=TOLERANCE)
        self.assertAlmostEqual(d["kl"]["max"], kl[-1], delta=TOLERANCE)
        self.assertGreater(d["kl"]["mean"], 1e-5)
        self.assertAlmostEqual(d["top1"], sum(same) / len(same), delta=TOLERANCE)
        self.assertAlmostEqual(d["delta_p"], sum(moved) / len(moved), delta=TOLERANCE)
        base_nll = -sum(row[i] for row, i in zip(p, ids[1:])) / len(p)
        self.assertAlmostEqual(d["base_perplexity"], math.exp(base_nll), delta=TOLERANCE * math.exp(base_nll))
        self.assertAlmostEqual(d["perplexity"], self.eval("ppl", model, "-f", self.text)["perplexity"], delta=1e-9)
        # --quantize is for the model alone, and says the same without a file.
        quantized = self.eval("kl", base, "--base", base, "--quantize", "q4_0", "-f", self.text)
        for key in ("kl", "top1", "delta_p", "perplexity", "base_perplexity"):
            self.assertEqual(quantized[key], d[key], key)

    def test_finer_types_are_closer(self):
        base = tiny("llama-256", "")
        means = [self.eval("kl", base, "--base", base, "--quantize", kind, "-f", self.text)["kl"]["mean"]
                 for kind in ("q8_0", "q6_k", "q5_k_m", "q4_k_m")]
        self.assertEqual(means, sorted(means))
        self.assertLess(means[0] * 3, means[-1])

    def test_models_that_cannot_be_compared(self):
        self.fails(spry("eval", "kl", tiny("llama"), "--base", "Spry-Tales-29M", "-f", self.text), FAILURE,
                   "vocabulary of 512", "8192")
        fewer = self.folder_with(lambda tokenizer: tokenizer["model"]["merges"].__delitem__(slice(20, None)))
        self.fails(spry("eval", "kl", tiny("llama"), "--base", fewer, "-f", self.text), FAILURE, "tokenise the text differently")
        self.fails(spry("eval", "kl", tiny("llama"), "--base", "/nowhere", "-f", self.text), FAILURE, "/nowhere")

    def test_texts_that_are_too_short(self):
        for text in ("", "a"):
            path = self.write("short", text)
            self.fails(spry("eval", "ppl", tiny("llama"), "-f", path), FAILURE, "at least 2")
            self.fails(spry("eval", "kl", tiny("llama"), "--base", tiny("llama"), "-f", path), FAILURE, "at least 2")
        self.assertEqual(self.eval("ppl", tiny("llama"), "-f", self.write("two", "a.b"))["windows"], 1)

    def test_wrong_use(self):
        model = tiny("llama")
        self.fails(spry("eval"), USAGE, "ppl, kl or span")
        self.fails(spry("eval", "speed", model, "-f", self.text), USAGE, "ppl, kl or span")
        self.fails(spry("eval", "ppl", model), USAGE, "-f FILE")
        self.fails(spry("eval", "kl", model, "-f", self.text), USAGE, "--base")
        self.fails(spry("eval", "ppl", model, "--base", model, "-f", self.text), USAGE, "--base")
        self.fails(spry("eval", "ppl", model, "-f", self.text, "--stride", "x"), USAGE, "--stride")
        self.fails(spry("eval", "ppl", model, "-f", os.path.join(self.folder, "no.txt")), FAILURE, "no.txt")
        self.fails(spry("eval", "ppl", model, "-f", self.folder), FAILURE, self.folder)
        self.fails(spry("eval", "ppl", "/nowhere", "-f", self.text), FAILURE, "/nowhere")
        self.fails(spry("eval", "ppl", model, "-f", self.text, "--context", "16", "--stride", "16"), FAILURE, "stride",
                   "16")
        self.fails(spry("eval", "ppl", model, "-f", self.text, "--context", "1"), FAILURE, "context of 1")
        self.fails(spry("eval", "ppl", model, "-f", self.text, "--context", "1000000"), FAILURE, "1000000")


if __name__ == "__main__":
    cli_support.main()
