"""spry eval span: what it counts, what must be exactly the same, and what it refuses."""

import math
import json
import os
import re
import shutil
import tempfile

import cli_support
from cli_support import DATA, FAILURE, HOME, USAGE, spry, tiny

DOCUMENTS = {
    "a.txt": "The mill stood by the river, and the cat who lived in it could count to twelve. ",
    "b.txt": "Far away on the hill an old man kept nine bees in a blue box, and he knew all of them by their names. "
             "In summer they brought him honey, and in winter he sang to them.\n",
    "c.txt": "It rained.\n",
}
QUESTIONS = ["How far could the cat count?", "What did the old man do in winter?"]
PAGE = 32
REPAIRS = ["none", "1 page", "2 pages", "15 %", "first", "spread", "all"]
MODEL = tiny("qwen3")
SMALL = ("--tokens", "4", "--shuffles", "1")


class EvalSpan(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)
        self.docs = os.path.join(self.folder, "docs")
        os.mkdir(self.docs)
        for name, text in DOCUMENTS.items():
            self.write(os.path.join("docs", name), text)
        self.questions = self.write("questions.txt", "\n".join(QUESTIONS))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def span(self, *arguments, model=MODEL, docs=None, questions=None):
        return spry("eval", "span", model, "--docs", docs or self.docs, "--questions", questions or self.questions,
                    "--kv-bytes", "64M", *arguments)

    def results(self, *arguments, **what):
        d = self.succeeds(self.span(*arguments, "--json", **what)).json
        return d, {(r["order"], r["repair"]): r for r in d["results"]}

    def kl(self, *arguments, **what):
        return {key: r["kl"] for key, r in self.results(*arguments, **what)[1].items()}

    def count(self, text):
        return len(self.succeeds(spry("tokenize", MODEL, "--json", stdin=text.encode())).json)

    def test_counts(self):
        d, results = self.results("--tokens", "4", "--shuffles", "3", "--seed", "5")
        lengths = [self.count(text) for text in DOCUMENTS.values()]
        self.assertTrue(lengths[2] < PAGE < lengths[0] < 2 * PAGE < lengths[1])
        questions = sum(map(self.count, QUESTIONS)) / 2
        self.assertEqual(set(d), {"model", "documents", "document_tokens", "questions", "prompt_tokens", "page_tokens",
                                  "tokens", "shuffles", "seed", "full_ttft_ms", "results", "seconds"})
        self.assertEqual((d["documents"], d["document_tokens"], d["questions"]), (3, sum(lengths), 2))
        self.assertEqual((d["page_tokens"], d["tokens"], d["shuffles"], d["seed"]), (PAGE, 4, 3, 5))
        self.assertAlmostEqual(d["prompt_tokens"], sum(lengths) + questions)
        self.assertEqual(list(results), [(order, repair) for order in ("original", "shuffled") for repair in REPAIRS])
        for (order, repair), r in results.items():
            share = math.ceil(0.15 * sum(lengths) / 3)
            each = {"none": 0, "1 page": PAGE, "2 pages": 2 * PAGE, "all": None}.get(repair, share)
            self.assertEqual(r["repair_tokens"], each)
            if repair in ("none", "first", "all"):  # whole pages from the beginning
                pages = {"none": 0, "first": 1, "all": 1000}[repair]
                self.assertEqual(r["repaired_tokens"], sum(min(length, pages * PAGE) for length in lengths), repair)
            elif repair != "spread":
                self.assertLessEqual(abs(r["repaired_tokens"] - min(3 * each, sum(lengths))), PAGE, repair)
            self.assertAlmostEqual(r["computed_tokens"], questions + r["repaired_tokens"])  # the rest is reused
            self.assertEqual(r["positions"], 2 * 4 * (3 if order == "shuffled" else 1))
            self.assertGreater(r["ttft_ms"], 0)
            self.assertGreater(r["ttft_ratio"], 0)
            self.assertEqual(set(r["kl"]), {"mean", "median", "p99", "max"})
        self.assertEqual(set(d["full_ttft_ms"]), {"original", "shuffled"})

    def test_all_is_full_prefill_to_the_bit(self):
        for model, kind in ((MODEL, "f32"), (tiny("llama"), "f16"), (tiny("gemma2", ""), "f32"),
                            (tiny("mistral-swa", ""), "f16"), (tiny("llama-256", ""), "q8_0")):
            d, results = self.results(*SMALL, "--kv-type", kind, model=model)
            for order in ("original", "shuffled"):
                r = results[order, "all"]
                self.assertEqual(r["kl"], {"mean": 0, "median": 0, "p99": 0, "max": 0})
                self.assertEqual((r["top1"], r["identical"]), (1, True))
                self.assertFalse(results[order, "none"]["identical"])
                self.assertGreater(results[order, "none"]["kl"]["mean"], 1e-8)  # rounding alone does less: see below

    def test_a_span_with_nothing_before_it_lacks_nothing(self):
        for name in ("a.txt", "c.txt"):
            os.remove(os.path.join(self.docs, name))
        self.assertEqual(spry("tokenize", MODEL, "--bos", "--json").json, [])
        d, results = self.results("--kv-type", "f32")
        self.assertEqual([key[0] for key in results], ["original"] * len(REPAIRS))  # one document has one order
        self.assertEqual((d["documents"], d["shuffles"]), (1, 0))
        for r in results.values():
            self.assertLess(r["kl"]["max"], 1e-9)
            self.assertEqual(r["top1"], 1)

    def test_as_much_repair_as_there_is(self):
        """Two pages are all of documents this short: only the order of sums differs from full prefill."""
        os.remove(os.path.join(self.docs, "b.txt"))
        for r in (self.kl(*SMALL, "--kv-type", "f32")[order, "2 pages"] for order in ("original", "shuffled")):
            self.assertLess(r["max"], 1e-9)

    def test_orders_come_from_the_seed(self):
        for i in range(3):
            self.write("docs/d%d.txt" % i, "Number %d is a house, a tree and a very long road to the sea.\n" % i)
        first = self.kl(*SMALL, "--seed", "1")
        self.assertEqual(first, self.kl(*SMALL, "--seed", "1", "--threads", "1"))
        other = self.kl(*SMALL, "--seed", "2")
        for repair in REPAIRS:
            self.assertEqual(first["original", repair], other["original", repair])
        self.assertNotEqual(first["shuffled", "none"], other["shuffled", "none"])
        self.assertNotEqual(first["shuffled", "none"], first["original", "none"])
        none = self.kl("--tokens", "4", "--shuffles", "0")
        self.assertEqual(none, {key: kl for key, kl in first.items() if key[0] == "original"})

    def test_questions_in_other_clothes(self):
        expected = self.kl(*SMALL)
        for text in ("\r\n\r\n".join(QUESTIONS) + "\r\n  \r\n",
                     "\n".join('{"id": 7, "question": "%s"}' % q for q in QUESTIONS) + "\n",
                     QUESTIONS[0] + "\n" + '{"question": "%s"}' % QUESTIONS[1]):
            self.assertEqual(self.kl(*SMALL, questions=self.write("other", text)), expected)

    def test_folders_and_hidden_files_are_no_documents(self):
        expected = self.kl(*SMALL)
        os.mkdir(os.path.join(self.docs, "aa"))
        self.write("docs/aa/inner.txt", "inner")
        self.write("docs/.hidden", b"\xff\0")
        self.assertEqual(self.kl(*SMALL), expected)

    def test_documents_stand_by_name(self):
        """Whatever order the system lists them in: it is unlikely to be the right one for all of these."""
        texts = ["Tale %d is about %s.\n" % (i, what) for i, what in
                 enumerate(["a river", "two mice", "the moon and a very old boat", "bread", "nine bees", "the sea"])]
        seen = []
        for i, names in enumerate(("abcdef", "159AZz", ["README", "b", "b.txt", "ba", "c-1", "c-10"])):
            folder = os.path.join(self.folder, "named-%d" % i)
            os.mkdir(folder)
            for name, text in reversed(list(zip(names, texts))):
                self.write(os.path.join(folder, name), text)
            seen.append(self.kl("--tokens", "2", "--shuffles", "0", docs=folder))
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])

    def test_every_token_of_the_answer_counts(self):
        most = set()
        for tokens in (1, 2, 5):
            d, results = self.results("--tokens", str(tokens), "--shuffles", "0")
            self.assertEqual({r["positions"] for r in results.values()}, {2 * tokens})
            most.add(results["original", "none"]["kl"]["mean"])
        self.assertEqual(len(most), 3)  # no prediction is used twice

    def test_start_token_stands_once(self):
        model = os.path.join(self.folder, "model")
        shutil.copytree(tiny("llama", ""), model)
        path = os.path.join(model, "tokenizer.json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        token = tokenizer["added_tokens"][0]
        start = {"SpecialToken": {"id": token["content"], "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": [start, text], "pair": [start, text],
            "special_tokens": {token["content"]: {"id": token["content"], "ids": [token["id"]],
                                                  "tokens": [token["content"]]}}}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        plain, _ = self.results(*SMALL, model=tiny("llama", ""))
        started, results = self.results(*SMALL, model=model)
        self.assertEqual(started["document_tokens"], plain["document_tokens"])
        self.assertEqual(started["prompt_tokens"], plain["prompt_tokens"] + 1)
        self.assertEqual(results["original", "none"]["computed_tokens"],
                         started["prompt_tokens"] - started["document_tokens"])

    def test_table(self):
        lines = self.succeeds(self.span(*SMALL)).text.splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        head = next(i for i, line in enumerate(lines) if line.startswith("order "))
        table = [re.split(r"  +", line.strip()) for line in lines[head + 1 : head + 3 + 2 * len(REPAIRS)]]
        self.assertEqual([row[0] for row in table], (["original full"] + REPAIRS + ["shuffled full"] + REPAIRS))
        self.assertTrue(all(re.fullmatch(r"[0-9.]+ ms", row[-3]) for row in table[1 : 1 + len(REPAIRS)]), table)
        self.assertIn("100.0 %", lines[head + 1 + len(REPAIRS)])
        self.assertIn("0.000000 0.000000 0.000000", lines[head + 1 + len(REPAIRS)])
        self.assertIn("over 8 predictions and 8 in 1 other order.", "\n".join(lines))

    def test_plot(self):
        model = os.path.join(self.folder, 'odd & <i>"name".gguf')
        os.symlink(MODEL, model)
        plot = os.path.join(self.folder, "plot.html")
        for shuffles, series in (("2", 2), ("0", 1)):
            self.succeeds(self.span("--tokens", "4", "--shuffles", shuffles, "--plot", plot, model=model))
            with open(plot, encoding="utf-8") as file:
                page = file.read()
            data = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
            self.assertNotIn("<", data)
            self.assertIn("default-src 'none'", page)
            document = json.loads(data)["document"]
            self.assertEqual(document["title"], 'Reused spans: odd & <i>"name"')
            table = document["sections"][0]["blocks"][1]
            self.assertEqual(len(table["rows"]), (1 + len(REPAIRS)) * series)
            self.assertEqual({len(row) for row in table["rows"]}, {len(table["columns"])})
            self.assertEqual(len(table["charts"]), 2)
            for chart in table["charts"]:
                self.assertEqual([len(one["points"]) for one in chart["series"]], [len(REPAIRS)] * series)
                for one in chart["series"]:
                    self.assertEqual(sorted(one["points"], key=lambda point: point["x"]), one["points"])
                    self.assertEqual({point["label"] for point in one["points"]}, set(REPAIRS))

    def test_bundled_data_and_model(self):
        """The documents of tests/data, with the small bundled model: reuse computes less, and not the same."""
        questions = self.write("one", "Pim asked the spider for")
        d, results = self.results("--shuffles", "0", "--tokens", "2", model="Spry-Tales-Draft-4M",
                                  docs=os.path.join(DATA, "span", "docs"), questions=questions)
        self.assertEqual(d["documents"], 6)
        self.assertLess(results["original", "none"]["computed_tokens"], 0.1 * d["prompt_tokens"])
        self.assertGreater(results["original", "none"]["kl"]["mean"], 0)
        self.assertTrue(results["original", "all"]["identical"])
        with open(os.path.join(DATA, "span", "questions.txt"), encoding="utf-8") as file:
            self.assertEqual(len(file.read().splitlines()), 10)

    def test_documents_that_are_none(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        self.fails(self.span(docs=empty), FAILURE, "empty contains no files")
        os.mkdir(os.path.join(empty, "folder"))
        self.fails(self.span(docs=empty), FAILURE, "empty contains no files")
        self.fails(self.span(docs="/nowhere"), FAILURE, "/nowhere")
        self.fails(self.span(docs=self.questions), FAILURE, "questions.txt")
        for name, content in (("bytes", b"once \xff upon"), ("zero", b"once \0 upon")):
            path = self.write("docs/" + name, content)
            self.fails(self.span(), FAILURE, "docs/%s is not UTF-8 text" % name)
            os.remove(path)
        path = self.write("docs/nothing", "")
        self.fails(self.span(), FAILURE, "docs/nothing is empty")
        os.remove(path)
        os.symlink("/nowhere/at/all", os.path.join(self.docs, "link"))
        self.fails(self.span(), FAILURE, "docs/link")

    def test_questions_that_are_none(self):
        self.fails(self.span(questions="/nowhere.txt"), FAILURE, "/nowhere.txt")
        self.fails(self.span(questions=self.docs), FAILURE, self.docs)
        for text, words in (("", "contains no questions"), ("\n \r\n", "contains no questions"),
                            (b"\xff\n", "not UTF-8 text"),
                            ('a\n{"question": 3}', "line 2: there is no text under \"question\""),
                            ('a\n\n{"question"', "line 3"),
                            ('{"question": ""}', "line 1: the question is empty")):
            self.fails(self.span(questions=self.write("odd", text)), FAILURE, "odd", words)

    def test_more_than_the_context(self):
        tokens = sum(map(self.count, DOCUMENTS.values())) + max(map(self.count, QUESTIONS))
        self.succeeds(self.span(*SMALL, "--context", str(tokens + 4)))
        self.fails(self.span(*SMALL, "--context", str(tokens + 3)), FAILURE, "%d tokens" % tokens,
                   "that makes %d" % (tokens + 4), "holds %d" % (tokens + 3), "--context")

    def test_memory_that_keeps_no_spans(self):
        self.fails(self.span(*SMALL, "--cache-bytes", "1"), FAILURE, "stayed in memory", "--cache-bytes")

    def test_plots_that_cannot_be_written(self):
        self.fails(self.span("--plot", "/nowhere/plot.html"), FAILURE, "/nowhere/plot.html")
        self.fails(self.span("--plot", self.docs), FAILURE, self.docs)
        before = set(os.listdir(self.folder))
        self.fails(self.span("--plot", os.path.join(self.folder, "p.html"), model="/nowhere"), FAILURE, "/nowhere")
        self.assertEqual(set(os.listdir(self.folder)), before)

    def test_wrong_use(self):
        self.fails(spry("eval", "span", MODEL), USAGE, "--docs DIR --questions FILE")
        self.fails(spry("eval", "span", MODEL, "--docs", self.docs), USAGE, "--questions FILE")
        self.fails(self.span("-f", self.questions), USAGE, "-f")
        self.fails(self.span("--base", MODEL), USAGE, "--base")
        self.fails(self.span("--stride", "4"), USAGE, "--stride")
        self.fails(self.span("--cache-dir", self.folder), USAGE, "--cache-dir")
        self.fails(self.span("--tokens", "0"), USAGE, "--tokens")
        self.fails(self.span("--tokens", "257"), USAGE, "--tokens")
        self.fails(self.span("--shuffles", "x"), USAGE, "--shuffles")
        self.fails(spry("eval", "ppl", MODEL, "-f", self.questions, "--docs", self.docs), USAGE, "--docs")
        self.fails(spry("eval", "ppl", MODEL, "-f", self.questions, "--plot", "x"), USAGE, "--plot")
        self.fails(self.span(model="/nowhere"), FAILURE, "/nowhere")


if __name__ == "__main__":
    cli_support.main()
