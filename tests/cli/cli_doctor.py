"""spry doctor: a real profile of this machine, held against what was promised, stored, used again and mistrusted."""

import datetime
import json
import os
import signal
import tempfile
import time

import cli_support
from cli_support import CliTest, FAILURE, HOME, INTERRUPTED, OK, ROOT, USAGE, main, spry, start, tiny

STORED = os.path.join(HOME, ".local", "share", "spry", "machine.json")
TEXT, COUNT, SPEED, FLAG = "text", "count", "speed", "flag"


def text_or_null(value):
    return value is None or isinstance(value, str)


def count_or_null(value):
    return value is None or (type(value) is int and value >= 0)


KINDS = {
    TEXT: lambda value: isinstance(value, str) and value != "",
    COUNT: lambda value: type(value) is int and value >= 0,
    SPEED: lambda value: type(value) in (int, float) and value > 0,
    FLAG: lambda value: type(value) is bool,
}

# The documented contents.
CPU = {"name": TEXT, "cores": count_or_null, "processors": COUNT, "usable": COUNT, "cgroup_cpus": count_or_null,
       "kernels": TEXT, "governor": text_or_null, "numa_nodes": count_or_null}
MEMORY = {"bytes": COUNT, "usable_bytes": COUNT, "huge_pages": text_or_null, "swap_bytes": COUNT}
ENERGY = {"cpu": text_or_null, "why_no_cpu": text_or_null, "gpu": text_or_null, "why_no_gpu": text_or_null}
SPEEDS = {"read_gb_s": SPEED, "threads": COUNT, "sync_us": SPEED, "attend_g_s": SPEED}
TYPE = {"multiply_g_s": SPEED, "decode_gb_s": SPEED}
CACHE = {"level": COUNT, "kind": TEXT, "bytes": COUNT, "shared_by": count_or_null}
GPU = {"name": TEXT, "bytes": COUNT, "compute": TEXT, "driver": TEXT}
FINDING = {"level": TEXT, "what": TEXT, "fix": TEXT}
MODEL = {"shape": TEXT, "type": TEXT, "parameters": COUNT, "bytes": COUNT, "memory_bytes": COUNT, "fits": FLAG,
         "prefill_tps": SPEED, "decode_tps": SPEED, "ttft_1k_ms": SPEED}
USES = ["fast", "balanced", "best", "chat", "code", "structured", "voice", "embeddings"]
CHOICE = {"use": TEXT, "model": text_or_null, "why": TEXT, "shape": text_or_null, "type": text_or_null, "pull": text_or_null}


def setUpModule():
    """Measures once, with a damaged profile in place, for every test that only reads."""
    os.makedirs(os.path.dirname(STORED))
    with open(STORED, "w") as file:
        file.write('{"format": "spry-machine-1", "spry": "')
    global first, stored
    first = spry("doctor", "--json")
    with open(STORED) as file:
        stored = json.load(file)
    with open(STORED, "w") as file:  # what was measured beside much other work would be measured again afterwards
        json.dump(dict(stored, cpu=dict(stored["cpu"], load=0)), file)


class Doctor(CliTest):
    def holds(self, found, promised):
        for key, kind in promised.items():
            self.assertIn(key, found)
            check = KINDS.get(kind, kind)
            self.assertTrue(check(found[key]), (key, found[key]))

    def profile(self, result):
        self.assertEqual(result.code, OK, result.errors)
        profile = result.json
        self.holds(profile, {"spry": TEXT, "id": TEXT, "when": TEXT})
        self.assertEqual(profile["format"], "spry-machine-1")
        self.holds(profile["cpu"], CPU)
        self.holds(profile["memory"], MEMORY)
        self.holds(profile["energy"], ENERGY)
        self.holds(profile["speeds"], SPEEDS)
        for speeds in profile["speeds"]["types"].values():
            self.holds(speeds, TYPE)
        for key, promised in (("gpu", GPU), ("findings", FINDING), ("models", MODEL), ("choices", CHOICE)):
            for item in profile[key]:
                self.holds(item, promised)
        for cache in profile["cpu"]["caches"]:
            self.holds(cache, CACHE)
        return profile

    def test_profile(self):
        profile = self.profile(first)
        cpu, memory = profile["cpu"], profile["memory"]
        self.assertEqual(cpu["usable"], profile["speeds"]["threads"])
        self.assertLessEqual(cpu["usable"], cpu["processors"])
        self.assertLessEqual(cpu["usable"], len(os.sched_getaffinity(0)))
        self.assertLessEqual(memory["usable_bytes"], memory["bytes"])
        self.assertRegex(profile["id"], "^[0-9a-f]{16}$")
        when = datetime.datetime.strptime(profile["when"], "%Y-%m-%dT%H:%M:%SZ")
        age = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - when
        self.assertLess(abs(age.total_seconds()), 600)
        for name in ("q4_0", "q8_0", "f16"):
            self.assertIn(name, profile["speeds"]["types"])
        self.assertEqual([choice["use"] for choice in profile["choices"]], USES)
        known = {(model["shape"], model["type"]): model for model in profile["models"]}
        self.assertGreater(len(known), 20)
        for choice in profile["choices"]:
            if choice["shape"]:
                self.assertTrue(known[choice["shape"], choice["type"]]["fits"])
        structured = profile["choices"][USES.index("structured")]
        with open(os.path.join(ROOT, "models", "catalogue.json"), encoding="utf-8") as file:
            judged = {model["name"].replace(":", "-") for model in json.load(file)["models"] if "schema" in model}
        if structured["shape"] in judged:  # the bundled catalogue names the source of the judgement
            self.assertRegex(structured["why"], r"follow schemas best, \d+ % \(.*IFEval")
        if profile["family"]:  # a chip that chips.json knows
            self.assertTrue(profile["family"]["source"] and profile["family"]["read_share"] > 0)
            self.assertIn("Beside its family", self.succeeds(spry("doctor", "--no-models")).text)
        for finding in profile["findings"]:
            self.assertIn(finding["level"], ("warn", "info"))
        for device in ("cpu", "gpu"):
            energy = profile["energy"]
            self.assertNotEqual(energy[device] is None, energy["why_no_" + device] is None)
        if not profile["gpu"]:
            self.assertTrue(profile["why_no_gpu"])
        now = profile["now"]
        self.assertGreater(now["resident_bytes"], 1 << 20)
        self.assertTrue(all(set(one) == {"what", "fix"} for one in now["slowed_by"]))
        self.assertIsInstance(now["servers"], list)

    def test_damaged_store_is_said_and_replaced(self):
        self.one_sentence(first, STORED, "not valid JSON", "measuring again")
        self.assertEqual(stored, first.json)
        self.assertEqual(os.listdir(os.path.dirname(STORED)), ["machine.json"])

    def test_stored_is_used_again(self):
        again = self.profile(self.succeeds(spry("doctor", "--json")))
        for key in ("when", "id", "speeds"):
            self.assertEqual(again[key], first.json[key])

    def test_page(self):
        page = self.succeeds(spry("doctor")).text
        for words in ("Processor", "Memory", "GPU", "Energy", "At present", "held back by", "Bottlenecks", "Expected speeds",
                      "Recommended models", "balanced", first.json["cpu"]["name"], first.json["when"], STORED):
            self.assertIn(words, page)
        self.assertNotIn("\x1b", page)
        for line in page.splitlines():
            self.assertLessEqual(len(line), 100, line)
        for line in page[page.index("Expected speeds"):].split("\n\n")[0].splitlines():
            self.assertLessEqual(len(line), 80, line)  # a table is not broken on a usual terminal

    def test_the_answer_comes_first(self):
        """Ten lines say what the machine computes with, which model to choose, how fast it is, and what is slow."""
        for arguments, labels in (([], ("computes with", "choose", "slowed by")), (["--no-models"], ("computes with", "slowed by"))):
            lines = self.succeeds(spry("doctor", *arguments)).text.splitlines()[:10]
            self.assertEqual([label for label in labels if any(line.startswith("  " + label) for line in lines)], list(labels), lines)
            self.assertEqual(any("tokens/s" in line for line in lines), not arguments)

    def test_no_models(self):
        page = self.succeeds(spry("doctor", "--no-models")).text
        self.assertIn("Bottlenecks", page)
        self.assertNotIn("Recommended models", page)
        profile = self.profile(spry("doctor", "--no-models", "--json"))
        self.assertEqual((profile["models"], profile["choices"]), ([], []))

    def test_output_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "machine.json")
            self.assertEqual(self.succeeds(spry("doctor", "--json", "-o", path)).out, b"")
            with open(path) as file:
                self.assertEqual(json.load(file)["id"], first.json["id"])
            self.succeeds(spry("doctor", "-o", path))
            with open(path) as file:
                self.assertIn("Recommended models", file.read())
            self.fails(spry("doctor", "-o", folder), FAILURE, folder, "folder")
            self.fails(spry("doctor", "-o", os.path.join(folder, "no", "where")), FAILURE, "no/where")

    def test_a_model(self):
        model = self.profile(self.succeeds(spry("doctor", "Spry-Tales-29M", "--json")))["model"]
        self.holds(model, {key: kind for key, kind in MODEL.items() if key not in ("shape", "type")})
        self.holds(model, {"name": TEXT, "architecture": TEXT, "context": COUNT, "weight_bytes": COUNT})
        self.assertEqual(model["name"], "Spry-Tales-29M")
        self.assertTrue(model["fits"])
        self.assertAlmostEqual(model["parameters"] / 29e6, 1, delta=0.1)
        for asked in ("Spry-Tales-29M", tiny("qwen3"), tiny("llama", "")):
            page = self.succeeds(spry("doctor", asked)).text
            self.assertIn("Prediction for this model", page)
            self.assertNotIn("Recommended models", page)

    def test_models_that_are_none(self):
        self.fails(spry("doctor", "no-such-model"), FAILURE, "no-such-model")
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(b"GGUF" + b"\xff" * 100)
            file.flush()
            self.fails(spry("doctor", file.name), FAILURE, file.name)

    def test_wrong_use(self):
        self.fails(spry("doctor", "--threads", "many"), USAGE, "threads")
        self.fails(spry("doctor", "--threads", "1025"), USAGE, "1024")
        self.fails(spry("doctor", "--fast"), USAGE, "fast")
        self.fails(spry("doctor", "one", "two"), USAGE, "two")

    def test_no_place_to_keep_it(self):
        """Without a home folder, and with one thread only: measured all the same, and not kept."""
        result = spry("doctor", "--json", "--threads", "1", HOME=None, XDG_DATA_HOME=None)
        self.one_sentence(result, "not be stored", "HOME")
        profile = self.profile(result)
        self.assertEqual(profile["speeds"]["threads"], 1)
        if first.json["speeds"]["threads"] != 1:
            self.assertNotEqual(profile["id"], first.json["id"])

    def test_a_place_that_is_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "spry", "machine.json"))
            result = spry("doctor", "--no-models", "--threads", "1", XDG_DATA_HOME=folder)
        self.assertIn("are not stored", result.errors)
        self.assertIn(", not stored.", result.text)
        self.assertNotIn("stored in", result.text)

    def test_interrupt(self):
        process = start("doctor", "--measure")
        cli_support.wait_until_caught(process)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=cli_support.TIMEOUT)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertEqual(out, b"")
        self.assertIn(b"interrupted", err)
        with open(STORED) as file:
            self.assertEqual(json.load(file)["when"], first.json["when"])


if __name__ == "__main__":
    main()
