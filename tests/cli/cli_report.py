"""spry report: what the page and the Markdown say, what is drawn where, and which files are refused with what words."""

import copy
import json
import os
import re
import shutil
import tempfile
import xml.etree.ElementTree as ElementTree

import cli_support
from cli_support import DATA, FAILURE, HOME, USAGE, spry

REPORTS = os.path.join(DATA, "report")
SVG = "{http://www.w3.org/2000/svg}"
PARTS = {"read", "template", "tokenize", "queue", "lookup", "restore", "prefill", "draft", "decode", "sampling",
         "grammar", "detokenize", "write", "others"}


def data(name):
    return os.path.join(REPORTS, name + ".json")


def load(name):
    with open(data(name), encoding="utf-8") as file:
        return json.load(file)


def text_of(element):
    return "".join(element.itertext()).strip()


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
        text = self.succeeds(spry("report", *paths, "-o", "-")).text
        outside = re.findall(r"(?:https?:)?//[^\"' )]+|@import|url\(|<script|<link|<img", text)
        self.assertLessEqual(set(outside), {"http://www.w3.org/2000/svg"})
        self.assertNotRegex(text, r"(?i)[\">(: ]-?(nan|inf)\b")
        return ElementTree.fromstring(text)

    def markdown(self, *paths):
        return self.succeeds(spry("report", *paths, "--markdown", "-o", "-")).text

    def sections(self, root):
        return [text_of(heading) for heading in root.iter("h2")]

    def figure(self, root, caption):
        return next(f for f in root.iter("figure") if text_of(f.find("figcaption")) == caption)

    def rows(self, root, caption):
        """{name: [(piece's title, from, to)]} of a figure of bars, in percent."""
        names, found = [], {}
        for element in self.figure(root, caption).iter():
            if element.get("class") == "name":
                names.append(text_of(element))
            elif element.tag == SVG + "svg" and element.get("class") == "bar":
                found[names[-1]] = [(text_of(r), float(r.get("x")[:-1]), float(r.get("width")[:-1]))
                                    for r in element.iter(SVG + "rect") if "piece" in r.get("class")]
        return found

    def cells(self, text, *first):
        """The cells of the row of a Markdown table that begins with these."""
        for line in text.splitlines():
            row = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("|") and tuple(row[:len(first)]) == first:
                return row[len(first):]
        self.fail("no row %s" % (first,))


class Pages(ReportTest):
    def test_where_it_goes(self):
        for flags, name in ((), "report.html"), (("--markdown",), "report.md"):
            result = self.succeeds(spry("report", data("after"), *flags, cwd=self.folder))
            self.assertEqual(result.text, "The report is in %s\n" % name)
            with open(os.path.join(self.folder, name), "rb") as file:
                self.assertEqual(file.read(), spry("report", data("after"), *flags, "-o", "-").out)
        path = os.path.join(self.folder, "other.html")
        self.assertEqual(self.succeeds(spry("report", data("after"), "-o", path)).text, "The report is in %s\n" % path)

    def test_sections_are_those_that_have_data(self):
        bench = ["Time to the first token", "Speed", "Between tokens", "Where the steps' time goes",
                 "How near the machine's limits", "Cache", "Memory", "Energy"]
        for names, sections in ((["before"], bench), (["after"], bench + ["How many at once"]),
                                (["laptop"], ["Time to the first token", "Speed", "Between tokens", "Memory",
                                              "Energy"]),
                                (["trace"], ["Requests of trace", "Between tokens", "Where the steps' time goes"]),
                                (["machine"], ["Machine: machine"])):
            root = self.page(*map(data, names))
            self.assertEqual(self.sections(root), ["Summary"] + sections, names)
            markdown = self.markdown(*map(data, names))
            self.assertEqual(re.findall(r"(?m)^## (.*)$", markdown), ["Summary"] + sections)
            self.assertNotRegex(markdown, r"<|\bnan\b|\binf\b")

    def test_a_page_for_everybody(self):
        root = self.page(data("before"), data("after"))
        style = text_of(root.find("head/style"))
        for words in ("prefers-color-scheme:dark", "@media print", "max-width:40rem"):
            self.assertIn(words, style)
        for drawing in root.iter(SVG + "svg"):
            self.assertTrue(drawing.get("role") == "img" and drawing.get("aria-label") or
                            drawing.get("aria-hidden") == "true" or "overflow" in drawing.keys(), drawing.attrib)
        self.assertEqual(root.get("lang"), "en")

    def test_different_machines_and_models_are_said_first(self):
        same = self.page(data("before"), data("after"))
        self.assertEqual([p for p in same.iter("p") if p.get("class") == "note"], [])
        mixed = self.page(data("before"), data("laptop"), data("machine"))
        notes = [text_of(p) for p in mixed.iter("p") if p.get("class") == "note"]
        self.assertEqual(len(notes), 2)
        self.assertIn("2 different machines", notes[0])
        self.assertIn("before: AMD EPYC 9B14; laptop: Intel(R) Core(TM)", notes[0])
        self.assertIn("2 different models", notes[1])
        self.assertEqual(list(mixed.find("body"))[1].get("class"), "note")

    def test_the_same_name_is_told_apart(self):
        for sub in ("a", "b", "c"):
            os.mkdir(os.path.join(self.folder, sub))
        paths = [self.write(os.path.join(sub, "x.json"), load("after")) for sub in ("a", "b", "c")]
        self.assertIn("|Figure|x|x (2)|x (3)|", self.markdown(*paths))
        second = self.write("x (2).json", load("after"))
        self.assertIn("|Figure|x (2)|x|x (3)|", self.markdown(second, *paths[:2]))
        self.assertIn("|Figure|x|x (2)|x (2) (2)|", self.markdown(*paths[:2], second))

    def test_different_settings_are_said_first(self):
        for key, value, words in (("chunk", 64, "chunk 64, kv f16, 64 tokens"), ("tokens", 5, "chunk 512, kv f16, 5 tokens"),
                                  ("kv_type", "q8_0", "chunk 512, kv q8_0, 64 tokens"),
                                  ("quantize", "q4_0", "chunk 512, kv f16, 64 tokens, quantized to q4_0")):
            other = load("after")
            other["settings"][key] = value
            root = self.page(data("after"), self.write("other.json", other))
            notes = [text_of(p) for p in root.iter("p") if p.get("class") == "note"]
            self.assertEqual(len(notes), 1)
            self.assertIn("2 different settings", notes[0])
            self.assertIn("(after: chunk 512, kv f16, 64 tokens; other: %s)" % words, notes[0])

    def many(self, name, prefills, depths, batches):
        bench = load("after")
        bench["prefill"] = [dict(bench["prefill"][0], tokens=i) for i in prefills]
        bench["decode"] = [dict(bench["decode"][0], depth=d, batch=b) for d in depths for b in batches]
        return self.write(name, bench)

    def test_all_points_of_a_bench_are_shown(self):
        path = self.many("many.json", range(1, 17), range(16), range(1, 17))
        root, text = self.page(path), self.markdown(path)
        self.assertEqual(len(self.rows(root, "Share of the time of one prefill, and of one step, by op")), 272)
        self.assertEqual(len(re.findall(r"(?m)^\|many\|decode at", text)), 256)  # energy
        self.assertEqual(len(re.findall(r"(?m)^\|decode at", text.split("## Between tokens")[1].split("##")[0])), 256)
        self.assertNotIn("Left out", text)

    def test_the_same_points_of_many_files(self):
        paths = [self.many("%d.json" % i, range(1, 17), range(16), [1]) for i in range(15)]
        paths.append(self.many("last.json", range(17, 33), range(16), [1]))
        text = self.markdown(*paths).split("### Prefill, tokens/s")[1].split("###")[0]
        self.assertEqual(len(text.strip().splitlines()), 2 + 32)

    def test_what_is_left_out_is_said(self):
        paths = [self.many("a.json", range(1, 17), range(16), range(1, 17)), self.many("b.json", range(21, 27), range(16), range(1, 17))]
        root, text = self.page(*paths), self.markdown(*paths)
        for said in (text_of(root), text):
            self.assertIn("Left out: 12 points of the files, as a report shows at most 272 different ones.", said)
            self.assertIn("Left out: 228 rows more", said)  # of 2 x 250 decodes
        self.assertIn("Left out: 250 rows more", text_of(root))  # of ops


class Figures(ReportTest):
    def test_ratios_are_to_the_first(self):
        text = self.markdown(data("before"), data("after"))
        before, after = load("before"), load("after")
        self.assertEqual(self.cells(text, "Prefill of 2048 tokens, tokens/s"), ["1,266", "1,532 (1.21×)"])
        cold = [b["ttft"]["cold_ms"] for b in (before, after)]
        self.assertEqual(self.cells(text, "First token, nothing known before"),
                         ["%.0f ms" % cold[0], "%.0f ms (%.2f×)" % (cold[1], cold[1] / cold[0])])
        self.assertEqual(self.cells(text, "16"), ["561", "608 (1.08×)"])
        self.assertEqual(self.cells(text, "Decode of 16 at once, tokens/s"), ["561", "608 (1.08×)"])

    def test_faster_is_good_and_slower_is_not(self):
        slow = load("before")
        slow["prefill"][-1]["tps"] /= 2
        slow["load_ms"] /= 2
        root = self.page(data("before"), self.write("slow.json", slow))
        looks = {text_of(row[0]): row[2].find("small").get("class") for row in root.iter("tr")
                 if len(row) == 3 and row[2].find("small") is not None}
        self.assertEqual(looks["Prefill of 2048 tokens, tokens/s"], "bad")
        self.assertEqual(looks["Loading"], "good")
        self.assertEqual(looks["Memory, most of it"], "soft")

    def test_memory_of_one_and_of_all(self):
        text = self.markdown(data("before"), data("after"))
        self.assertEqual(self.cells(text, "Memory, one sequence"), ["732 MB", "732 MB (1.00×)"])
        self.assertEqual(self.cells(text, "Memory, most of it"), ["906 MB", "906 MB (1.00×)"])

    def test_lines_lie_where_their_values_are(self):
        root = self.page(data("before"), data("after"))
        figure = self.figure(root, "Prefill, tokens/s")
        ticks = {}
        for t in figure.iter(SVG + "text"):
            if t.get("text-anchor") == "end":
                ticks[float(t.text)] = float(t.get("y")) - 4
        low, high = min(ticks), max(ticks)
        self.assertEqual(low, 0)
        lines = [e for e in figure.iter(SVG + "polyline")]
        for line, name in zip(lines, ("before", "after")):
            points = [tuple(map(float, p.split(","))) for p in line.get("points").split()]
            speeds = [p["tps"] for p in load(name)["prefill"]]
            self.assertEqual(len(points), len(speeds))
            for (_, y), speed in zip(points, speeds):
                self.assertAlmostEqual(y, ticks[low] + speed / high * (ticks[high] - ticks[low]), delta=0.2)
            self.assertEqual(sorted(points), points)
        line = next(self.figure(root, "Decode of one sequence, tokens/s").iter(SVG + "polyline"))
        across = [float(p.split(",")[0]) for p in line.get("points").split()]
        self.assertAlmostEqual((across[1] - across[0]) / (across[3] - across[0]), 512 / 4096, delta=0.001)
        self.assertAlmostEqual((across[2] - across[0]) / (across[3] - across[0]), 2048 / 4096, delta=0.001)
        line = next(self.figure(root, "Decode of several at once, tokens/s").iter(SVG + "polyline"))
        across = [float(p.split(",")[0]) for p in line.get("points").split()]
        self.assertAlmostEqual(across[2] - across[1], across[4] - across[3], delta=0.2)  # 2 to 4 as 8 to 16

    def test_bars_are_as_long_as_their_parts(self):
        root = self.page(data("after"))
        ttft = load("after")["ttft"]
        rows = self.rows(root, "From the request to its first token")
        for name, parts in (("cold", ttft["parts_ms"]), ("warm", ttft["warm_parts_ms"])):
            at = 0
            self.assertEqual([p[0].split()[0] for p in rows[name]], [p for p in parts if parts[p]])
            for (_, x, width), ms in zip(rows[name], parts.values()):
                self.assertAlmostEqual(x, 100 * at / 800, delta=0.01)
                self.assertAlmostEqual(width, 100 * ms / 800, delta=0.01)
                at += ms
        shares = self.rows(root, "Share of the time of one prefill, and of one step, by op")
        self.assertEqual(len(shares), 12)
        for op, (title, _, width) in zip(load("after")["prefill"][0]["ops"], shares["prefill of 32 tokens"]):
            self.assertTrue(title.startswith(op["op"] + " "), title)
            self.assertIn(op["kernel"], title)
            self.assertAlmostEqual(width, 100 * op["share"], delta=0.1)

    def test_everything_drawn_is_inside(self):
        for names in (["before", "after", "laptop", "trace", "machine"], ["after"]):
            for drawing in self.page(*map(data, names)).iter(SVG + "svg"):
                if drawing.get("class") != "xy":
                    continue
                _, _, width, height = map(float, drawing.get("viewBox").split())
                for e in drawing.iter():
                    for name in ("x", "x1", "x2", "cx"):
                        self.assertTrue(0 <= float(e.get(name, 0)) <= width, e.attrib)
                    for name in ("y", "y1", "y2", "cy"):
                        self.assertTrue(0 <= float(e.get(name, 0)) <= height, e.attrib)

    def test_ops_side_by_side(self):
        text = self.markdown(data("before"), data("after"))
        table = text.split("### Time of ops: decode at depth 0\n")[1].split("###")[0]
        before, after = ({op["op"]: op["ms"] for op in load(name)["decode"][0]["ops"]} for name in ("before", "after"))
        self.assertEqual(self.cells(table, "gate\\_up"),
                         ["%.2f ms" % before["gate_up"],
                          "%.2f ms (%.2f×)" % (after["gate_up"], after["gate_up"] / before["gate_up"])])
        self.assertEqual(len(table.strip().splitlines()), 2 + len(before))
        self.assertNotIn("Time of ops", self.markdown(data("before"), data("laptop")))

    def test_roofline(self):
        root = self.page(data("after"))
        figure = self.figure(root, "after: G products/s")
        marks = [e for e in figure.iter() if e.get("class") == "mark"]
        labels = [text_of(e) for e in figure.iter(SVG + "text") if e.get("class") == "label"]
        self.assertEqual(len(marks), 12)
        self.assertLessEqual({"attend", "gate_up", "logits"}, set(labels))
        self.assertEqual(len([e for e in figure.iter() if (e.get("class") or "").endswith("roof")]), 1)
        bench = load("after")
        op = next(op for op in bench["decode"][0]["ops"] if op["op"] == "gate_up")
        per_byte = op["multiply_g_s"] / op["gb_s"]
        possible = min(bench["machine"]["multiply_g_s"], per_byte * bench["machine"]["read_gb_s"])
        cells = self.cells(self.markdown(data("after")), "gate\\_up", "decode at depth 0")
        self.assertEqual(cells, ["%.2f" % per_byte, "%.1f G/s" % op["multiply_g_s"], "%.1f G/s" % possible,
                                 "%.1f %%" % (100 * op["multiply_g_s"] / possible)])

    def test_policy_marks_the_one_taken(self):
        root = self.page(data("after"))
        for caption in ("All sequences together, tokens/s", "95 % of the steps within, ms"):
            rings = [e for e in self.figure(root, caption).iter() if e.get("class") == "here"]
            self.assertEqual(len(rings), 1)
        self.assertEqual(self.cells(self.markdown(data("after")), "8", "490", "16.3 ms")[-1], "taken")

    def test_memory_cache_and_energy(self):
        text = self.markdown(data("after"))
        self.assertEqual(self.cells(text, "after", "scratch"), ["61.9 MB", "64.5 MB", "-4.1 %"])
        self.assertEqual(self.cells(text, "after", "992"), ["8", "99.2 %", "615 ms", "26.0 ms", "23.70×"])
        self.assertEqual(self.cells(text, "after", "decode at depth 0")[:2], ["39.3 J", "41.0 W"])
        self.assertIn("GPU: not measured: there is no NVIDIA driver", text)
        self.assertIn("Processor: not measured: /sys/class/powercap has no RAPL zone", self.markdown(data("laptop")))
        self.assertIn("laptop: not measured: the model has no chat template", self.markdown(data("laptop")))

    def test_machine(self):
        text = self.markdown(data("machine"))
        self.assertEqual(self.cells(text, "⚠ warning")[1], "give the machine whole cores")
        self.assertEqual(self.cells(text, "Llama-3.2-3B", "q4\\_k"), ["3.2B", "2.62 GB", "214", "9.40", "4.82 s"])
        self.assertNotIn("70B", text)
        self.assertIn("Left out: 1 that need more than 70 %", text)
        self.assertEqual(self.cells(text, "Cache of level 2, unified"), ["1 MiB, shared by 2"])
        self.assertEqual(self.cells(text, "q8\\_0"), ["344 G/s", "20.1 GB/s"])
        self.assertEqual(self.cells(text, "fast", "Qwen3-0.6B", "q4\\_0"), ["95 tokens/s, faster than anybody reads"])


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

    @staticmethod
    def ms(text):
        number, unit = text.split()
        return float(number.replace(",", "")) * {"µs": 0.001, "ms": 1, "s": 1000}[unit]

    def test_parts_of_all_requests(self):
        text = self.markdown(data("trace"))
        sums = self.sums()
        self.assertEqual(set(sums), PARTS - {"draft", "grammar", "others"})
        whole = sum(map(sum, sums.values()))
        for part, values in sums.items():
            values.sort()
            total, share, count, median, p95, longest = self.cells(text, part)
            self.assertAlmostEqual(self.ms(total), sum(values), delta=0.006 * sum(values))
            self.assertAlmostEqual(float(share.split()[0]), 100 * sum(values) / whole, delta=0.051)
            self.assertEqual(int(count), len(values))
            self.assertAlmostEqual(self.ms(median), values[(len(values) - 1) // 2], delta=0.006 * values[-1])
            self.assertAlmostEqual(self.ms(p95), values[-1], delta=0.006 * values[-1])
            self.assertAlmostEqual(self.ms(longest), values[-1], delta=0.006 * values[-1])
        self.assertIn("5 requests; the parts below are 100 % of the time.", text)

    def test_requests_one_by_one(self):
        text = self.markdown(data("trace"))
        self.assertEqual(self.cells(text, "request 3")[:2], ["280", "7"])
        rows = self.rows(self.page(data("trace")), "From each request to its first token")
        self.assertEqual(list(rows), ["request %d" % i for i in range(1, 6)])
        pieces = rows["request 4"]
        self.assertEqual([p[0].split()[0] for p in pieces], ["read", "template", "tokenize", "queue", "lookup",
                                                            "restore", "prefill", "sampling"])
        for one, other in zip(pieces, pieces[1:]):
            self.assertAlmostEqual(one[1] + one[2], other[1], delta=0.01)

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
        text = self.markdown(self.write("many.json", "[\n" + ",\n".join(lines) + "\n]\n"))
        self.assertIn("3 requests; the parts below are 100 % of the time.", text)

    def test_steps_and_ops(self):
        text = self.markdown(data("trace"))
        self.assertEqual(self.cells(text, "trace", "trace"), ["5 requests, 35 steps", "–"])
        self.assertEqual(self.cells(text, "gate\\_up", "avx512 Q4\\_0")[1:], ["35.0 %", "5"])

    def test_a_trace_may_end_early(self):
        lines = self.lines()
        for text, said in (("\n".join(lines[:-1]) + "\n", False), ("\n".join(lines[:-1]) + ",\n", False),
                           ("\n".join(lines[:-2]) + "\n" + lines[-2][:40], True)):
            markdown = self.markdown(self.write("t.json", text))
            self.assertEqual("its last line is not whole" in markdown, said)
            self.assertIn("%d requests" % (4 if said else 5), markdown)
        self.assertIn("5 requests", self.markdown(self.write("t.json", "\ufeff".encode()[:0] + "\n \n".encode() +
                                                             "\n".join(lines).encode())))

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
        self.assertEqual(len(self.rows(self.page(path), "From each request to its first token")), 12)
        text = self.markdown(path)
        self.assertIn("40 requests", text)
        self.assertIn("The first 12 are shown one by one.", text)
        self.assertEqual(self.cells(text, "decode")[2:], ["40", "29.0 ms", "47.0 ms", "49.0 ms"])
        self.assertEqual(self.cells(text, "all answers: many"), ["30.0 ms", "48.0 ms", "50.0 ms"])

    def test_long_traces_need_little_memory(self):
        path = os.path.join(self.folder, "long.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("[\n")
            chunk = "".join('{"name":"gate_up","cat":"op","ph":"X","ts":%d.125,"dur":7.25,"pid":1,"tid":1,"args":'
                            '{"kernel":"avx512 q4_0"}},\n' % i for i in range(1000))
            for _ in range(40 if cli_support.SANITIZED else 400):
                file.write(chunk)
            file.write('{"name":"step","cat":"step","ph":"X","ts":0,"dur":9,"pid":1,"tid":1}\n]\n')
        text = self.markdown(path)
        self.assertEqual(self.cells(text, "gate\\_up", "avx512 q4\\_0")[1:],
                         ["100 %", "40,000" if cli_support.SANITIZED else "400,000"])

    def test_more_ops_than_anybody_has(self):
        lines = ["["] + ['{"name":"op%d","cat":"op","ph":"X","ts":1,"dur":1,"tid":1},' % i for i in range(200)]
        lines.append('{"name":"step","cat":"step","ph":"X","ts":0,"dur":9,"pid":1,"tid":1}')
        self.assertEqual(self.cells(self.markdown(self.write("t.json", "\n".join(lines))), "others")[-1], "137")

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
            root = self.page(path)
            self.assertEqual([e.tag for e in root.iter() if e.tag in ("script", "b", "a", "img")].count("script"), 0)
            text = self.markdown(path)
            self.assertNotIn("<script>", text.replace("\\<", ""))
            self.assertNotIn("\x01", text)
            self.assertEqual(re.findall(r"(?m)^# x", text), [])
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
                self.assertNotRegex(self.markdown(path), r"\b(nan|inf)\b")

    def test_roofs_nothing_can_have(self):
        for read, multiply in ((1e-320, 1e15), (1e15, 1e-320), (1e-320, 1e-320), (1e-300, 1e-300), (1e15, 1e15)):
            for speed in (1e-300, 1, 1e15):
                bench = load("after")
                bench["machine"].update(read_gb_s=read, multiply_g_s=multiply)
                for op in bench["prefill"][-1]["ops"]:
                    op.update(gb_s=speed, multiply_g_s=speed)
                path = self.write("x.json", bench)
                self.page(path)
                self.assertNotRegex(self.markdown(path), r"\b(nan|inf)\b")

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
            for text in (ElementTree.tostring(self.page(*paths), "unicode"), self.markdown(*paths)):
                self.assertEqual(re.findall("é[?\ufffd]", text), [])

    def test_nothing_but_what_must_be(self):
        bench = load("after")
        least = {key: bench[key] for key in ("format", "model")}
        least.update(prefill=[], decode=[], machine={key: bench["machine"][key] for key in
                                                     ("cpu", "threads", "kernels", "read_gb_s", "multiply_g_s")})
        self.assertEqual(self.sections(self.page(self.write("x.json", least))), ["Summary"])
        self.assertEqual(self.sections(self.page(self.write("x.json", least), data("after")))[:2],
                         ["Summary", "Time to the first token"])
        self.page(self.write("m.json", {"format": "spry-machine-1", "cpu": {"name": "x"}}))
        changed = copy.deepcopy(bench)
        changed["prefill"] = changed["prefill"][:1]
        changed["decode"] = changed["decode"][4:5]
        self.page(self.write("x.json", changed))


if __name__ == "__main__":
    cli_support.main()
