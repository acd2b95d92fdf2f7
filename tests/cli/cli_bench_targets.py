"""spry bench --targets: what machines shall reach, which points that takes, and files that are refused."""

import json
import re
import time

import cli_support
from cli_bench_gate import GateTest, quick_limit
from cli_support import FAILURE, OK, spry


class Targets(GateTest):
    def hold(self, machines, *arguments):
        path = self.file("targets.json", {"format": "spry-targets-1", "machines": machines})
        return spry("bench", "--targets", path, "--measured", self.base, *arguments)

    def verdicts(self, targets, code):
        result = self.hold({"*": targets}, "--json")
        self.assertEqual((result.code, result.errors), (code, ""))
        self.assertEqual(result.json["targets"]["passed"], code == OK)
        return {t["what"]: t["verdict"] for t in result.json["targets"]["targets"]}

    def test_met_and_missed(self):
        report = self.report
        tps, p95 = report["decode"][0]["tps"], report["decode"][3]["p95_ms"]
        easy = {"prefill_tps": {"40": 0.1, "64": 0.1}, "decode_tps": {"0": tps, "32x2": 0.1}, "p95_ms": {"32x2": p95}, "ttft_cold_ms": 1e9,
                "ttft_warm_ms": 1e9, "first_call_ms": 1e9, "first_call_tokens": report["first_call"]["tokens"], "memory_bytes": 1e12}
        self.assertEqual(set(self.verdicts(easy, OK).values()), {"met"})
        hard = {"prefill_tps": {"40": 1e12, "64": 0.1}, "decode_tps": {"0": tps * 1.01, "0x2": 0.1}, "p95_ms": {"32x2": p95 * 0.99},
                "ttft_cold_ms": 1e-9, "first_call_ms": 1e-9,
                "first_call_tokens": report["first_call"]["tokens"] - 0.5, "memory_bytes": 1}
        missed = {what for what, verdict in self.verdicts(hard, FAILURE).items() if verdict == "missed"}
        self.assertEqual(missed, {"prefill 40", "decode 0 x 1", "decode 32 x 2, p95 of steps", "first token, cold", "first call", "first call, tokens",
                                  "memory"})

    def test_what_was_not_measured_is_not_met(self):
        self.assertEqual(self.verdicts({"prefill_tps": {"41": 1}}, FAILURE), {"prefill 41": "not measured"})
        if self.report["decode"][0]["energy"] is None:
            self.assertEqual(self.verdicts({"joules_per_100_tokens": 5}, FAILURE), {"100 tokens of decode": "not measured"})

    def test_joules(self):
        def joules(report):
            for point in report["decode"]:
                point["energy"] = {"joules": 1, "joules_per_100_tokens": 50 + point["depth"] + point["batch"], "watts": 20}
        now = self.file("joules.json", joules)
        for limit, code in ((51, OK), (50.9, FAILURE)):
            path = self.file("t.json", {"format": "spry-targets-1", "machines": {"*": {"joules_per_100_tokens": limit}}})
            self.assertEqual(spry("bench", "--targets", path, "--measured", now).code, code)

    def test_table(self):
        result = self.hold({"*": {"prefill_tps": {"40": 1e12}, "memory_bytes": 1e12}})
        self.assertEqual((result.code, result.errors), (FAILURE, ""))
        self.assertRegex(result.text, r"prefill 40 .* 0 %  missed\n")
        self.assertRegex(result.text, r"memory .*  met\n")
        self.assertIn("for \"*\": 1 of 2 targets not met", result.text)
        self.assertLessEqual(max(map(len, result.text.splitlines()[:-1])), 100)

    def test_which_machine(self):
        machine = self.report["machine"]
        easy, hard = {"memory_bytes": 1e12}, {"memory_bytes": 1}
        part = machine["cpu"][:3]
        self.assertEqual(self.hold({"*": hard, machine["id"]: easy, part: hard}).code, OK)
        self.assertEqual(self.hold({machine["id"]: easy, machine["cpu"]: hard, "*": hard}).code, OK)
        self.assertEqual(self.hold({part: hard, machine["cpu"]: easy, "*": hard}).code, OK)
        self.assertEqual(self.hold({"*": hard, part: easy}).code, OK)
        self.assertEqual(self.hold({"no such machine": hard, "*": easy}).code, OK)
        long = "A processor with a name that is longer than an id"
        now = self.file("long.json", lambda r: r["machine"].update(cpu=long))
        for machines in ({machine["id"]: easy, long: hard}, {long: hard, machine["id"]: easy}):
            path = self.file("targets.json", {"format": "spry-targets-1", "machines": machines})
            self.assertEqual(spry("bench", "--targets", path, "--measured", now).code, OK)
        self.fails(self.hold({"no such machine": easy}), FAILURE, "no targets for this machine", machine["id"], machine["cpu"])

    def test_points_come_from_the_targets(self):
        path = self.file("points.json", {"format": "spry-targets-1", "machines": {"*": {
            "prefill_tps": {"50": 0.001}, "decode_tps": {"8": 0.001, "8x2": 0.001}, "p95_ms": {"4": 1e9}}}})
        result = self.succeeds(spry("bench", "--shape", "tiny", "--tokens", "2", "--repeat", "1", "--targets", path, "--json"))
        self.assertEqual([p["tokens"] for p in result.json["prefill"]], [50])
        self.assertEqual([(p["depth"], p["batch"]) for p in result.json["decode"]], [(8, 1), (8, 2), (4, 1), (4, 2)])
        self.assertTrue(result.json["targets"]["passed"])

    def measured(self, machines, *arguments):
        path = self.file("points.json", {"format": "spry-targets-1", "machines": machines})
        result = spry("bench", "--shape", "tiny", "--tokens", "2", "--repeat", "1", "--threads", "1", "--targets", path, "--json", *arguments)
        self.assertIn(result.code, (OK, FAILURE), result.errors)
        return [p["tokens"] for p in result.json["prefill"]], [(p["depth"], p["batch"]) for p in result.json["decode"]]

    def test_joules_have_a_point_of_their_own(self):
        self.assertEqual(self.measured({"*": {"joules_per_100_tokens": 5}}), ([], [(0, 1)]))
        self.assertEqual(self.measured({"*": {"decode_tps": {"32x2": 1}, "joules_per_100_tokens": 5}}),
                         ([], [(32, 2), (32, 1), (0, 2), (0, 1)]))

    def test_points_are_this_machines(self):
        mine = {"prefill_tps": {"50": 1}}
        others = {"prefill_tps": {str(i): 1 for i in range(100, 116)}}
        self.assertEqual(self.measured({"no such machine": others, "*": mine}), ([50], []))
        self.assertEqual(self.measured({"*": others, self.report["machine"]["id"]: mine}), ([50], []))

    def test_points_are_added_to_the_baselines(self):
        machines = {"*": {"prefill_tps": {"50": 1}, "decode_tps": {"8": 1}}}
        self.assertEqual(self.measured(machines, "--baseline", self.base)[0], [40, 64, 50])
        self.assertIn((8, 1), self.measured(machines, "--baseline", self.base)[1])
        path = self.file("points.json", {"format": "spry-targets-1", "machines": {"*": {"prefill_tps": {str(i): 1 for i in range(100, 116)}}}})
        self.fails(spry("bench", "--shape", "tiny", "--targets", path, "--baseline", self.base), FAILURE, path, "more than 16")

    @cli_support.once_of(5)
    def test_no_machine_is_seen_before_anything_is_measured(self):
        path = self.file("other.json", {"format": "spry-targets-1", "machines": {"no such machine": {"memory_bytes": 1}}})
        limit, began = quick_limit(self), time.monotonic()
        self.fails(spry("bench", "--shape", "tiny", "--repeat", "100", "--targets", path), FAILURE, path, "no targets for this machine")
        self.assertLess(time.monotonic() - began, limit)

    def test_words_of_files_do_not_reach_the_terminal_raw(self):
        machine = self.report["machine"]
        path = self.file("esc.json", {"format": "spry-targets-1", "machines": {"\x1b[2J": {"memory_bytes": 1e12}}})
        now = self.file("now.json", lambda r: r["machine"].update(cpu="an \x1b[2J name"))
        text = spry("bench", "--targets", path, "--measured", now).text
        self.assertIn('for "?[2J"', text)
        self.assertNotIn("\x1b", text)
        text = spry("bench", "--baseline", self.base, "--measured", now, "--force").text
        self.assertIn("the processor is '%s' there and 'an ?[2J name' here" % machine["cpu"], text)
        self.assertNotIn("\x1b", text)

    def test_both_gates_at_once(self):
        hard = self.file("hard.json", {"format": "spry-targets-1", "machines": {"*": {"memory_bytes": 1}}})
        both = ["--baseline", self.base, "--measured", self.base, "--targets", hard]
        result = spry("bench", *both)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("0 of ", result.text)
        self.assertIn("1 of 1 targets not met", result.text)
        result = spry("bench", *both, "--json")
        self.assertEqual((result.json["gate"]["passed"], result.json["targets"]["passed"]), (True, False))

    def test_residency(self):
        share = sum(op["share"] for op in self.report["decode"][0]["ops"]
                    if op["op"] in ("qkv", "attend", "out", "gate_up", "down", "logits"))
        name = "decode 0 x 1, time in kernels"
        self.assertEqual(self.verdicts({"residency": {"0": share * 0.99}}, OK), {name: "met"})
        self.assertEqual(self.verdicts({"residency": {"0": min(1, share * 1.01)}}, FAILURE), {name: "missed"})
        self.assertEqual(self.verdicts({"prefill_residency": {"40": 0.001}}, OK), {"prefill 40, time in kernels": "met"})

    def test_targets_of_the_profile(self):
        refused = spry("bench", "--profile", self.file("p.json", {"format": "spry-profile-1", "machines": {}}))
        this = re.search("this one, ([0-9a-f]{16});", refused.errors).group(1)
        def hold(targets):
            path = self.file("p.json", {"format": "spry-profile-1", "machines": {this: {"targets": targets}}})
            return spry("bench", "--targets", "profile", "--measured", self.base, "--profile", path)
        self.assertEqual(hold({"memory_bytes": 1}).code, FAILURE)
        self.assertEqual(self.succeeds(hold({"memory_bytes": 1e14})).code, OK)
        self.fails(hold({"ttft_cold_ms": 1, "ttft_warm_ms": 2}), FAILURE, "p.json", "contradicts itself")
        self.fails(spry("bench", "--targets", "profile", "--measured", self.base), FAILURE, "no profile with targets")

    def test_bad_files(self):
        def refused(content, *words):
            path = self.file("bad.json", content)
            self.fails(spry("bench", "--targets", path, "--measured", self.base), FAILURE, path, *words)
        good = {"format": "spry-targets-1", "machines": {"*": {"memory_bytes": 5}}}
        self.fails(spry("bench", "--targets", "/nowhere.json", "--measured", self.base), FAILURE, "/nowhere.json")
        refused(json.dumps(good)[:-3], "not valid JSON")
        refused({}, "\"format\" is not \"spry-targets-1\"")
        refused(self.report, "\"format\" is not")
        refused({"format": "spry-targets-1"}, "\"machines\"")
        refused(dict(good, machines={}), "\"machines\"")
        refused(dict(good, machines=[]), "\"machines\"")
        refused(dict(good, comment="x"), "comment is not known")
        for targets, words in ((5, "machines.* is not an object"), ({}, "states 0 targets"), ({"memory": 5}, "machines.*.memory is not known"),
                               ({"memory_bytes": "5"}, "memory_bytes is not a number"), ({"memory_bytes": 0}, "memory_bytes is not a number above 0"),
                               ({"memory_bytes": -1}, "above 0"), ({"memory_bytes": None}, "above 0"), ({"prefill_tps": 400}, "an object of points"),
                               ({"prefill_tps": {"512": "NaN"}}, "prefill_tps is not a number"), ({"prefill_tps": {"0": 1}}, "prefill_tps.0 does not name"),
                               ({"prefill_tps": {"5x2": 1}}, "does not name a point"), ({"decode_tps": {"5x99": 1}}, "decode_tps.5x99"),
                               ({"decode_tps": {"": 1}}, "does not name a point"), ({"p95_ms": {"5x": 1}}, "does not name a point"),
                               ({"residency": {"0": 80}}, "residency.0 is a share of time, at most 1"),
                               ({"ttft_cold_ms": 100, "ttft_warm_ms": 200}, "machines.* contradicts itself: ttft_warm_ms"),
                               ({"decode_tps": {"512x2": 5, "0x2": 4}}, "contradicts itself: decode_tps.512x2"),
                               ({"decode_tps": {str(i): 1 for i in range(65)}}, "states 65 targets"),
                               ({"prefill_tps": {str(i + 1): 1 for i in range(17)}}, "machines.* names more than 16 lengths"),
                               ({"decode_tps": {"%dx2" % (i + 1): 1 for i in range(16)}, "joules_per_100_tokens": 1}, "names more than 16")):
            refused(dict(good, machines={"*": targets}), words)


if __name__ == "__main__":
    cli_support.main()
