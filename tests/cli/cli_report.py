"""spry report: the data inside the page, the Markdown, and which files are refused with what words. What the page shows
and draws is tested in a browser (tests/web/page_report.js)."""

import copy
import json
import os
import re
import shutil
import tempfile

import cli_support
from cli_support import DATA, FAILURE, HOME, USAGE, spry

REPORTS = os.path.join(DATA, "report")
ORDER = ["read", "template", "tokenize", "queue", "lookup", "restore", "prefill", "draft", "decode", "sampling",
         "grammar", "detokenize", "write", "others", "preprocess", "encode"]
PARTS = set(ORDER)


def data(name):
    return os.path.join(REPORTS, name + ".json")


def load(name):
    with open(data(name), encoding="utf-8") as file:
        return json.load(file)


class ReportTest(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            if isinstance(content, (dict, list)):
                content = json.dumps(content)
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def page(self, *paths):
        """The files inside the page. It is one file that names no other, and its data cannot end its element."""
        text = self.succeeds(spry("report", *paths, "-o", "-")).text
        head, rest = text.split('<script type="application/json" id="data">')
        data, scripts = rest.split("</script>", 1)
        self.assertNotIn("<", data)
        self.assertIn("default-src 'none'", head)
        own = head + re.sub(r"(?s)^\s*<script>\n/\*!.*?</script>", "", scripts)  # without the library
        self.assertEqual(re.findall(r"(?:https?:)?//[a-z][^\"' )]+|@import|url\(|<link|<img|innerHTML", own), [])
        self.assertEqual(len(re.findall("<script", scripts)), 2)
        for words in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem", 'lang="en"'):
            self.assertIn(words, text)
        return json.loads(data)["files"]


class Pages(ReportTest):
    def test_where_it_goes(self):
        result = self.succeeds(spry("report", data("after"), cwd=self.folder))
        self.assertEqual(result.text, "The report is in report.html\n")
        with open(os.path.join(self.folder, "report.html"), "rb") as file:
            self.assertEqual(file.read(), spry("report", data("after"), "-o", "-").out)
        path = os.path.join(self.folder, "other.html")
        self.assertEqual(self.succeeds(spry("report", data("after"), "-o", path)).text, "The report is in %s\n" % path)

    def test_the_page_has_the_files(self):
        names = ["before", "after", "laptop", "machine"]
        for name, found in zip(names, self.page(*map(data, names))):
            self.assertEqual(found.pop("_name"), name)
            self.assertEqual(found.pop("_kind"), "machine" if name == "machine" else "bench")
            self.assertEqual(found, load(name))
        trace = self.page(data("trace"))[0]
        self.assertEqual((trace["_name"], trace["_kind"], trace["requests"]), ("trace", "trace", 5))

    def test_the_same_name_is_told_apart(self):
        for sub in ("a", "b", "c"):
            os.mkdir(os.path.join(self.folder, sub))
        paths = [self.write(os.path.join(sub, "x.json"), load("after")) for sub in ("a", "b", "c")]
        def names(*files):
            return [file["_name"] for file in self.page(*files)]
        self.assertEqual(names(*paths), ["x", "x (2)", "x (3)"])
        second = self.write("x (2).json", load("after"))
        self.assertEqual(names(second, *paths[:2]), ["x (2)", "x", "x (3)"])
        self.assertEqual(names(*paths[:2], second), ["x", "x (2)", "x (2) (2)"])
        self.assertEqual(len(names(self.write("x" * 100 + ".json", load("after")))[0]), 40)


class Figures(ReportTest):
    """Measurements of bench that are lists of figures: reuse, drafts, workloads and the like."""

    def test_every_kind(self):
        kinds = ["spry-draft-1", "spry-reuse-1", "spry-without-1", "spry-chunk-1", "spry-image-1", "spry-mix-report-1", "spry-agent-report-1"]
        paths = [self.write("%d.json" % i, dict(load("mix"), format=kind)) for i, kind in enumerate(kinds)]
        found = self.page(data("after"), data("draft"), *paths)
        self.assertEqual([file["_kind"] for file in found], ["bench"] + ["figures"] * 8)
        self.assertEqual(found[1]["figures"], load("draft")["figures"])

    def test_what_bench_saves(self):
        path = os.path.join(self.folder, "now.json")
        self.succeeds(spry("bench", "--mix", "chat", "--mix-scale", "0.02", "--requests", "2", "--together", "1", "--save", path))
        self.assertEqual(self.page(path)[0]["_kind"], "figures")

    def test_what_is_refused(self):
        for change, words in (({"figures": None}, "figures"), ({"model": 3}, "model"), ({"machine": None}, "machine"),
                              ({"figures": [{"what": "x", "unit": "miles", "better": "less", "value": 1}]}, "unit"),
                              ({"figures": load("mix")["figures"][:1] * 2}, "same name")):
            self.fails(spry("report", self.write("x.json", dict(load("mix"), **change))), FAILURE, words)


class Traces(ReportTest):
    def lines(self):
        with open(data("trace"), encoding="utf-8") as file:
            return file.read().splitlines()

    def events(self):
        return [json.loads(line.rstrip(",")) for line in self.lines()[1:-1]]

    def sums(self):
        """Of every part: ms of each request that has it. Lanes are reused: a request's parts lie inside it."""
        events = self.events()
        found = {}
        for request in (e for e in events if e.get("cat") == "request"):
            sums = {}
            for e in events:
                if e.get("cat") == "part" and e["tid"] == request["tid"] and \
                        request["ts"] <= e["ts"] + e["dur"] / 2 < request["ts"] + request["dur"]:
                    sums[e["name"]] = sums.get(e["name"], 0) + e["dur"] / 1000
            for part, ms in sums.items():
                found.setdefault(part, []).append(ms)
        return found

    def trace(self, path):
        return self.page(path)[0]

    def test_parts_of_all_requests(self):
        trace = self.trace(data("trace"))
        sums = self.sums()
        self.assertEqual(set(sums), PARTS - {"draft", "grammar", "others", "preprocess", "encode"})
        self.assertEqual([part["part"] for part in trace["parts"]], [part for part in sorted(sums, key=ORDER.index)])
        whole = sum(map(sum, sums.values()))
        for part in trace["parts"]:
            values = sorted(sums[part["part"]])
            self.assertAlmostEqual(part["sum"], sum(values), delta=1e-6)
            self.assertAlmostEqual(part["share"], sum(values) / whole, delta=1e-6)
            self.assertEqual(part["count"], len(values))
            self.assertAlmostEqual(part["p50"], values[(len(values) - 1) // 2], delta=0.001 * values[-1])
            self.assertAlmostEqual(part["p95"], values[-1], delta=0.001 * values[-1])
            self.assertAlmostEqual(part["most"], values[-1], delta=1e-6)
        self.assertAlmostEqual(trace["covered_share"], 1, delta=0.001)

    def test_requests_one_by_one(self):
        shown = self.trace(data("trace"))["shown"]
        self.assertEqual([one["request"] for one in shown], ["request %d" % i for i in range(1, 6)])
        self.assertEqual((shown[2]["prompt_tokens"], shown[2]["generated_tokens"]), (280, 7))
        self.assertEqual(list(shown[3]["parts_ms"]), ["read", "template", "tokenize", "queue", "lookup", "restore",
                                                      "prefill", "sampling"])
        for one in shown:
            self.assertAlmostEqual(sum(one["parts_ms"].values()), one["first_ms"], delta=0.01 * one["first_ms"])
            self.assertAlmostEqual(one["tps"], 6000 / (one["whole_ms"] - one["first_ms"]), delta=1e-6)

    def test_answers_with_a_lane_to_themselves(self):
        """The second answer of a request has no request around it; the next request in its lane is not given its time."""
        def span(name, category, begin, length, lane, **args):
            return json.dumps({"name": name, "cat": category, "ph": "X", "ts": begin, "dur": length, "pid": 1,
                               "tid": lane, "args": args})
        def parts(begin, lane):
            return [span("prefill", "part", begin, 700, lane), span("sampling", "part", begin + 700, 300, lane)]
        lines = [span("read", "part", 0, 100, 2), *parts(100, 2), *parts(100, 3),
                 span("answer", "answer", 100, 1000, 2), span("answer", "answer", 100, 1000, 3, generated_tokens=1),
                 span("request", "request", 0, 1100, 2, generated_tokens=2),
                 span("read", "part", 5000, 100, 3), *parts(5100, 3), span("answer", "answer", 5100, 1000, 3),
                 span("request", "request", 5000, 1100, 3, generated_tokens=1)]
        trace = self.trace(self.write("many.json", "[\n" + ",\n".join(lines) + "\n]\n"))
        self.assertEqual((trace["requests"], trace["covered_share"], trace["generated_tokens"]), (3, 1, 4))

    def test_steps_and_ops(self):
        trace = self.trace(data("trace"))
        self.assertEqual((trace["requests"], trace["steps"], trace["cut"]), (5, 35, False))
        op = trace["ops"][0]
        self.assertEqual((op["op"], op["kernel"], op["calls"]), ("gate_up", "avx512 Q4_0", 5))
        self.assertAlmostEqual(op["share"], 0.35, delta=0.0005)

    def test_a_trace_may_end_early(self):
        lines = self.lines()
        for text, said in (("\n".join(lines[:-1]) + "\n", False), ("\n".join(lines[:-1]) + ",\n", False),
                           ("\n".join(lines[:-2]) + "\n" + lines[-2][:40], True)):
            trace = self.trace(self.write("t.json", text))
            self.assertEqual((trace["cut"], trace["requests"]), (said, 4 if said else 5))
        self.assertEqual(self.trace(self.write("t.json", "\n \n" + "\n".join(lines)))["requests"], 5)

    def test_the_first_twelve_are_shown(self):
        lines = ["["]
        for i in range(40):
            for name, at, ms in (("prefill", 0, 5), ("sampling", 5, 1), ("decode", 6, 10 + i), ("sampling", 16 + i, 1),
                                 ("sampling", 17 + i, 0.001)):  # a guess that was right: no step of its own
                lines.append(json.dumps({"name": name, "cat": "part", "ph": "X", "ts": 1e6 * i + 1e3 * at,
                                         "dur": 1e3 * ms, "pid": 1, "tid": 2}) + ",")
            lines.append(json.dumps({"name": "request", "cat": "request", "ph": "X", "ts": 1e6 * i,
                                     "dur": 1e3 * (17 + i), "pid": 1, "tid": 2, "args": {"request": i + 1}}) + ",")
        path = self.write("many.json", "\n".join(lines))
        trace = self.trace(path)
        self.assertEqual((trace["requests"], len(trace["shown"])), (40, 12))
        decode = next(part for part in trace["parts"] if part["part"] == "decode")
        self.assertEqual(decode["count"], 40)
        for found, values in ((decode, (29, 47, 49)), (trace["between"], (30, 48, 50))):
            for key, value in zip(("p50", "p95", "most" if found is decode else "p99"), values):
                self.assertAlmostEqual(found[key], value, delta=0.001 * value)

    def test_long_traces_need_little_memory(self):
        path = os.path.join(self.folder, "long.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("[\n")
            chunk = "".join('{"name":"gate_up","cat":"op","ph":"X","ts":%d.125,"dur":7.25,"pid":1,"tid":1,"args":'
                            '{"kernel":"avx512 q4_0"}},\n' % i for i in range(1000))
            for _ in range(40 if cli_support.SANITIZED else 400):
                file.write(chunk)
            file.write('{"name":"step","cat":"step","ph":"X","ts":0,"dur":9,"pid":1,"tid":1}\n]\n')
        self.assertEqual([(op["op"], op["share"], op["calls"]) for op in self.trace(path)["ops"]],
                         [("gate_up", 1, 40000 if cli_support.SANITIZED else 400000)])

    def test_more_ops_than_anybody_has(self):
        lines = ["["] + ['{"name":"op%d","cat":"op","ph":"X","ts":1,"dur":1,"tid":1},' % i for i in range(200)]
        lines.append('{"name":"step","cat":"step","ph":"X","ts":0,"dur":9,"pid":1,"tid":1}')
        op = self.trace(self.write("t.json", "\n".join(lines)))["ops"][0]
        self.assertEqual((op["op"], op["calls"]), ("others", 137))

    def test_what_is_no_trace(self):
        good = '{"name":"step","cat":"step","ph":"X","ts":0,"dur":9,"pid":1,"tid":1},\n'
        for text, words in (("[]", "without a single event"), ("[1, 2]", "line 1 is not a trace event"),
                            ('[\n' + good + '{"name":\n' + good, "line 3 is not a trace event"),
                            ('[\n' + good + "]\n" + good, "line 4 is not a trace event: the list of events ended"),
                            ("[\n" + good + "{}", 'line 3 is not a trace event: it has no "ph"'),
                            ('[\n{"name":"a","ph":"X","cat":"x","ts":-1,"dur":1,"tid":1}\n', '"ts" or "dur"'),
                            ('[\n{"name":"a","ph":"X","cat":"x","ts":1e300,"dur":1,"tid":1}\n', '"ts" or "dur"'),
                            ('[\n{"name":"a","ph":"X","cat":"x","ts":1,"dur":"1","tid":1}\n', '"ts" or "dur"'),
                            ('[\n{"name":"a","ph":"X","cat":"x","ts":1,"dur":1,"tid":65536}\n', '"tid"'),
                            ('[\n{"name":"a","ph":"X","cat":"x","ts":1,"dur":1,"tid":-1}\n', '"tid"'),
                            ('[\n{"name":"lunch","ph":"X","cat":"part","ts":1,"dur":1,"tid":1}\n', "lunch"),
                            ('[\n{"name":"a","ph":"X","cat":"op","ts":1,"dur":1,"tid":1,"args":{"kernel":5}}\n', "line 2"),
                            ('[\n{"name":"a","ph":"X","cat":"other","ts":1,"dur":1,"tid":1}\n', "no request and no step"),
                            ("[\n" + good + '{"a":"' + "x" * 70000 + '"}\n', "longer than 64 kB"),
                            ("[\n" + good + '{"name":"a\0","ph":"X"}\n' + good, "line 4"),
                            ("[" * 100000, "line 1")):
            path = self.write("bad.json", text)
            self.fails(spry("report", path, "-o", "-"), FAILURE, path, words)


class Refused(ReportTest):
    def refused(self, content, *words, name="bad.json"):
        path = self.write(name, content)
        self.fails(spry("report", data("before"), path, "-o", os.path.join(self.folder, "no.html")), FAILURE, path,
                   *words)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "no.html")))

    def test_foreign_files(self):
        self.refused(b"", "is empty")
        self.refused(b"  \n", "is empty")
        self.refused(b"GGUF\3\0\0\0", "is not JSON", "spry bench --save")
        self.refused(b"\0\1\2", "is not JSON")
        self.refused({}, '"format"', "spry bench --save")
        self.refused({"traceEvents": []}, '"format"')
        self.refused({"format": "spry-bench-2"}, "spry-bench-2")
        self.refused({"format": 5}, '"format"')
        self.refused(b'{"format": "spry-bench-1", "format": "spry-bench-1"}', "duplicate")
        self.refused(b"{" + b" " * (17 << 20) + b"}", "more than 16 MB")
        self.refused(b'{"a":' * 100000, "not valid JSON")
        self.fails(spry("report", self.folder, "-o", "-"), FAILURE, self.folder)
        self.fails(spry("report", "/nowhere.json", "-o", "-"), FAILURE, "/nowhere.json")

    def test_truncated(self):
        for name in ("before", "machine"):
            with open(data(name), "rb") as file:
                whole = file.read().rstrip()
            for size in range(1, len(whole), max(1, len(whole) // 12)):
                self.refused(whole[:size], "not valid JSON")

    def test_every_key_is_checked(self):
        """Each value of both files, replaced by one that it cannot be, is refused by its name; null and no value are
        not, unless nothing can be said without it."""
        required = {"format", "model", "machine", "prefill", "decode", "tokens", "tps", "depth", "batch", "op", "cpu",
                    "threads", "kernels", "read_gb_s", "multiply_g_s", "taken", "batches", "name", "level", "what",
                    "shape", "type", "use"}
        unread = {"skipped"}
        for name in ("after", "machine"):
            for path, value in self.leaves(load(name)):
                if path[0] in unread:
                    continue
                wrong = 7 if isinstance(value, str) else "x"
                changed = load(name)
                self.put(changed, path, wrong)
                said = "".join("[%d]" % key if isinstance(key, int) else "." + key for key in path)[1:]
                if said == "format":
                    continue
                self.refused(changed, '"%s" is' % said)
            for key in [key for key in load(name) if key not in required]:
                for value in (None, "missing"):
                    changed = load(name)
                    changed.pop(key) if value else self.put(changed, [key], None)
                    self.page(self.write("ok.json", changed))

    def leaves(self, value, path=()):
        """One of each kind of place: only the first item of lists."""
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from self.leaves(inner, path + (key,))
        elif isinstance(value, list):
            for inner in value[:1]:
                yield from self.leaves(inner, path + (0,))
        elif value is not None:
            yield path, value

    def put(self, tree, path, value):
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = value

    def change(self, *path, value):
        changed = load("after")
        self.put(changed, path, value)
        return changed

    def test_values_nothing_can_have(self):
        self.refused(self.change("prefill", 1, "tps", value=-1), '"prefill[1].tps" is below 0')
        self.refused(self.change("load_ms", value=1e300), '"load_ms" is larger than anything')
        self.refused(self.change("decode", 0, "ops", 2, "share", value=[]), '"decode[0].ops[2].share" is not a number')
        self.refused(self.change("prefill", value={}), '"prefill" is not a list')
        self.refused(self.change("machine", value=[]), '"machine" is not an object')
        self.refused(self.change("machine", value=None), '"machine" is null')
        self.refused(self.change("ttft", "parts_ms", value={"lunch": 1}), '"ttft.parts_ms.lunch" is not a known part')
        self.refused(self.change("model", value="x" * 3000), '"model" is longer')
        self.refused(self.change("decode", value=[load("after")["decode"][0]] * 1001), "more than 1000 items")
        changed = load("after")
        del changed["decode"][3]["tps"]
        self.refused(changed, '"decode[3].tps" is missing')

    def test_how_it_is_used(self):
        self.fails(spry("report"), USAGE, "FILE")
        self.fails(spry("report", data("after"), "--pdf"), USAGE, "--pdf")
        self.succeeds(spry("report", *[data("laptop")] * 16, "-o", "-"))
        self.assertEqual(spry("report", *[data("laptop")] * 17, "-o", "-").code, USAGE)
        self.fails(spry("report", data("after"), "-o", "/nowhere/r.html"), FAILURE, "/nowhere/r.html")
        self.fails(spry("report", data("after"), "-o", self.folder), FAILURE, self.folder)
        path = self.write("mine.json", load("after"))
        self.fails(spry("report", path, "-o", os.path.join(self.folder, ".", "mine.json")), FAILURE, "mine.json", "-o")
        self.assertEqual(json.load(open(path, encoding="utf-8")), load("after"))
        with open("/dev/full", "wb") as full:
            result = spry("report", path, "-o", "-", stdout=full)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("No space left", result.errors)


class Hostile(ReportTest):
    def test_words_are_only_words(self):
        evil = '</title><script>alert(1)</script>&amp;"\'|\n# x\x01 [a](javascript:b) `c`'

        def spoil(value, key=""):
            if isinstance(value, dict):
                return {k: spoil(v, k) for k, v in value.items()}
            if isinstance(value, list):
                return [spoil(v, key) for v in value]
            return evil if isinstance(value, str) and key != "format" else value

        for name in ("after", "machine"):
            path = self.write('<b>"&.json', spoil(load(name)))
            self.assertEqual(self.page(path)[0]["_name"], '<b>"&')
        lines = ["[", json.dumps({"name": "<b>|`", "cat": "op", "ph": "X", "ts": 0, "dur": 5, "tid": 1,
                                  "args": {"kernel": "</td>"}}) + ",",
                 json.dumps({"name": "step", "cat": "step", "ph": "X", "ts": 0, "dur": 5, "tid": 1})]
        self.page(self.write("t.json", "\n".join(lines)))

    def test_any_number_can_be_drawn(self):
        def all_numbers(value, number):
            if isinstance(value, dict):
                return {k: all_numbers(v, number) for k, v in value.items()}
            if isinstance(value, list):
                return [all_numbers(v, number) for v in value]
            return value if isinstance(value, (str, bool, type(None))) else number

        for name in ("after", "machine"):
            for number in (0, 1e-300, 1e-9, 0.5, 1, 1e15):
                path = self.write("x.json", all_numbers(load(name), number))
                self.page(path)

    def test_roofs_nothing_can_have(self):
        for read, multiply in ((1e-320, 1e15), (1e15, 1e-320), (1e-320, 1e-320), (1e-300, 1e-300), (1e15, 1e15)):
            for speed in (1e-300, 1, 1e15):
                bench = load("after")
                bench["machine"].update(read_gb_s=read, multiply_g_s=multiply)
                for op in bench["prefill"][-1]["ops"]:
                    op.update(gb_s=speed, multiply_g_s=speed)
                path = self.write("x.json", bench)
                self.page(path)

    def test_words_are_cut_between_letters(self):
        """Two bytes a letter, with one byte before them and without."""
        for first in ("", "x"):
            word = first + "é" * 60
            bench = load("after")
            bench["model"] = bench["machine"]["cpu"] = bench["settings"]["kv_type"] = bench["settings"]["quantize"] = word
            for point in bench["prefill"] + bench["decode"]:
                for op in point["ops"]:
                    op["op"] = op["kernel"] = word
            other = copy.deepcopy(bench)
            other["model_id"] = other["machine"]["id"] = "other"
            machine = load("machine")
            machine["cpu"]["isa"] = [word]
            machine["speeds"]["types"] = {word: {"multiply_g_s": 5}}
            paths = [self.write("é" * 30 + ".json", bench), self.write(first + "é" * 40 + ".json", other), self.write("m.json", machine)]
            self.assertEqual(re.findall("é[?\ufffd]", json.dumps(self.page(*paths), ensure_ascii=False)), [])


if __name__ == "__main__":
    cli_support.main()
