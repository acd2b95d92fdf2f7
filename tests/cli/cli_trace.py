"""--trace: where the time of an answer goes, as a file that Perfetto opens; the same parts in --stats and --json."""

import json
import os
import shutil
import subprocess
import time

import cli_support
from cli_support import FAILURE, HOME, SPRY, USAGE, environment, spry, tiny

ASK = ("run", "-p", "Tell me a tale.", "-n", "40", "--temperature", "0", "--ignore-end")


def inside(event, outer):
    slack = 0.002
    return (event["tid"] == outer["tid"] and event["ts"] >= outer["ts"] - slack
            and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + slack)


class Trace(cli_support.CliTest):
    def traced(self, *options):
        path = os.path.join(HOME, "trace.json")
        result = self.succeeds(spry(*ASK, "--trace", path, *options))
        with open(path, encoding="utf-8") as file:
            return result, json.load(file)

    def adds_up(self, events, outer, parts):
        wholes = [event for event in events if event.get("cat") == outer]
        self.assertTrue(wholes)
        for whole in wholes:
            within = [event["dur"] for event in events if event.get("cat") == parts and inside(event, whole)]
            self.assertAlmostEqual(sum(within), whole["dur"], delta=0.02 * whole["dur"])
        return wholes

    def test_parts_add_up_to_the_request(self):
        _, events = self.traced()
        whole, = self.adds_up(events, "request", "part")
        self.adds_up(events, "answer", "part")
        self.assertEqual(whole["args"]["generated_tokens"], 40)
        names = {event["name"] for event in events if event.get("cat") == "part"}
        for name in ("template", "tokenize", "lookup", "prefill", "decode", "sampling", "detokenize", "write"):
            self.assertIn(name, names)
        self.assertFalse([event for event in events if event.get("cat") == "op"])
        lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.assertIn("request 1", lanes)
        self.assertIn("steps of Spry-Tales-29M", lanes)

    def test_ops_add_up_to_steps(self):
        _, events = self.traced("--trace-ops", "--draft", "none")
        steps = self.adds_up(events, "step", "op")
        self.assertEqual(sum(step["args"]["logits"] for step in steps), 40)
        kernels = {event["args"]["kernel"] for event in events if event.get("cat") == "op" and event["name"] == "down"}
        self.assertEqual(len(kernels), 1)

    def test_grammar_and_draft_have_parts(self):
        _, events = self.traced("--choice", '["a small boat", "a large boat"]')
        self.assertIn("grammar", {event["name"] for event in events if event.get("cat") == "part"})
        self.adds_up(events, "request", "part")

    def test_json_has_the_parts(self):
        got = self.succeeds(spry(*ASK, "--json")).json
        whole, first = sum(got["parts_ms"].values()), sum(got["first_parts_ms"].values())
        self.assertAlmostEqual(whole, got["total_ms"], delta=0.02 * got["total_ms"])
        self.assertLess(first, whole)
        self.assertGreaterEqual(first, got["prefill_ms"])
        if got["energy"] is None:
            self.assertGreater(len(got["why_no_energy"]), 20)
        else:
            self.assertGreater(got["energy"]["joules"], 0)

    def test_stats_say_where_the_time_went(self):
        result = spry(*ASK, "--stats")
        self.assertEqual(result.code, 0)
        errors = result.errors
        for word in ("first ", "whole ", "prefill", "decode", "energy "):
            self.assertIn(word, errors)

    def test_the_answer_is_the_same(self):
        plain = self.succeeds(spry(*ASK)).text
        result, _ = self.traced("--trace-ops")
        self.assertEqual(result.text, plain)

    def test_disk_full(self):
        plain = self.succeeds(spry(*ASK)).text
        result = spry(*ASK, "--trace", "/dev/full")
        self.assertEqual(result.code, FAILURE)
        self.assertEqual(result.text, plain)  # nothing of the answer is lost
        self.assertIn("No space left on device", result.errors)
        self.assertIn("/dev/full", result.errors)

    def test_a_killed_process_leaves_a_trace(self):
        path = os.path.join(HOME, "killed.json")
        process = subprocess.Popen([SPRY, "run", "-p", "Once", "--raw", "-n", "1000000", "--ignore-end", "--slide",
                                    "--trace", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   env=environment())
        while process.poll() is None and not (os.path.exists(path) and os.path.getsize(path) > 10000):
            time.sleep(0.01)
        self.assertIsNone(process.poll())
        process.kill()
        process.wait()
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for line in lines[1:-1]:  # the last one may have been cut
            json.loads(line.rstrip(","))

    def test_no_such_folder(self):
        result = spry(*ASK, "--trace", os.path.join(HOME, "none", "trace.json"))
        self.assertEqual(result.code, FAILURE)
        self.assertEqual(result.text, "")
        self.assertIn("No such file or directory", result.errors)

    def test_ops_without_a_file(self):
        result = spry(*ASK, "--trace-ops")
        self.assertEqual(result.code, USAGE)
        self.assertIn("--trace FILE", result.errors)

    def test_a_model_is_not_taken_for_a_trace(self):
        model = os.path.join(HOME, "model.gguf")
        shutil.copy(tiny("llama"), model)
        size = os.path.getsize(model)
        self.fails(spry("run", model, "-p", "x", "--trace", model), FAILURE, "is no trace")
        self.fails(spry("bench", model, "--save", model), FAILURE, "is an input file")
        self.fails(spry("doctor", model, "-o", model), FAILURE, "is an input file")
        self.assertEqual(os.path.getsize(model), size)

    def test_a_model_that_is_not_there_leaves_a_whole_file(self):
        path = os.path.join(HOME, "empty.json")
        result = spry("run", tiny("llama", "none.gguf"), "-p", "x", "--trace", path)
        self.assertEqual(result.code, FAILURE)
        with open(path, encoding="utf-8") as file:
            json.load(file)


if __name__ == "__main__":
    cli_support.main()
