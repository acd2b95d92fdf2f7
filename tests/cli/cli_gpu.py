"""--device cuda with a GPU that is imitated (tests/support/imitated_gpu.c): what is said where there is none, and figures.

The environment variable SPRY names the program with the imitated GPU."""

import json
import os
import re
import shutil
import struct
import tempfile

import cli_support
from cli_support import FAILURE, HOME, OK, spry, tiny

MODEL = tiny("qwen3", "")  # without a tokenizer
ASK = ("run", tiny("qwen3"), "-p", "hello", "-n", "4", "--temperature", "0", "--ignore-end", "--context", "64", "--device", "cuda")
os.environ["SPRY_PROFILE"] = "none"  # measuring ways to decode takes seconds here
INSTEAD = "; the CPU computes instead"


class Gpu(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        os.environ["IMITATED_GPU_FOLDER"] = self.folder
        self.addCleanup(shutil.rmtree, self.folder)

    def happen(self, name):
        with open(os.path.join(self.folder, name), "w", encoding="ascii"):
            pass

    def held(self):
        """Bytes of the GPU's memory that processes hold."""
        with open(os.path.join(self.folder, "memory"), "rb") as file:
            return int.from_bytes(file.read(8), "little")


class Faults(Gpu):
    def instead(self, *words, **changes):
        result = spry(*ASK, **changes)
        self.assertEqual(result.code, OK, result.errors)
        self.one_sentence(result, INSTEAD, *words)
        return result.out

    def test_the_cpu_computes_where_there_is_no_gpu(self):
        cpu = spry(*ASK[:-1], "cpu").out
        self.assertEqual(self.instead("cuda: no NVIDIA driver: libno-such-driver.so.1", IMITATED_GPU="none"), cpu)
        self.assertEqual(self.instead("cuda: libc.so.6 has no cuInit: the NVIDIA driver is too old", IMITATED_GPU="old"), cpu)
        result = spry(*ASK[:-1], "cuda:1")
        self.assertEqual(result.out, cpu)
        self.one_sentence(result, "cuda:1: there is no GPU 1: the driver has 1", INSTEAD)

    def test_a_model_larger_than_memory(self):
        result = spry(*ASK, IMITATED_GPU_BYTES="1500000")
        self.fails(result, FAILURE, "for weights,", "but there are 0.00 GB of memory")
        result = spry(*ASK, "--gpu-layers", "auto", "--verbose", IMITATED_GPU_BYTES="1500000")
        self.assertEqual(result.code, OK, result.errors)

    def test_a_limit_for_the_memory_of_the_gpu(self):
        """As with so little free memory: refused, fewer layers, or the CPU."""
        self.fails(spry(*ASK, "--gpu-memory", "1500K"), FAILURE, "for weights,", "but there are 0.00 GB of memory")
        split = spry(*ASK[:-2], "--verbose", "--gpu-memory", "1500K")
        self.assertEqual(split.code, OK, split.errors)
        self.assertRegex(split.errors, r"computed on (cpu\+cuda:0, [12] of 3 layers on cuda:0|cpu),")
        self.assertIn("computed on cuda:0,", spry(*ASK[:-2], "--verbose", "--gpu-memory", "8G").errors)

    def test_auto(self):
        """The default: the GPU; as many layers as fit; the CPU, without a word, where there is none."""
        plain = ASK[:-2]
        self.assertIn("computed on cuda:0,", spry(*plain, "--verbose").errors)
        split = spry(*plain, "--verbose", IMITATED_GPU_BYTES="1500000")
        self.assertEqual(split.code, OK, split.errors)
        self.assertRegex(split.errors, r"computed on (cpu\+cuda:0, [12] of 3 layers on cuda:0|cpu),")
        alone = self.succeeds(spry(*plain, IMITATED_GPU="none"))
        self.assertEqual(alone.out, spry(*plain, "--device", "cpu").out)
        self.assertIn("computed on cpu,", spry(*plain, "--verbose", IMITATED_GPU="none").errors)

    def test_work_that_never_ends(self):
        self.happen("hangs")
        self.fails(spry(*ASK, IMITATED_GPU_WAIT_MS="50"), FAILURE, "Imitated GPU 0", "no end after")
        self.assertEqual(self.held(), 0)

    def test_a_gpu_that_is_lost(self):
        self.happen("lost")
        self.fails(spry(*ASK), FAILURE, "Imitated GPU 0", "(error 719)")
        self.assertEqual(self.held(), 0)


class Types(Gpu):
    """Blocks of Q4_0 and IQ4_NL have one size, so a converted model with another number in its directory is one of that type."""

    def retyped(self, number):
        path = os.path.join(self.folder, "model.gguf")
        self.succeeds(spry("convert", tiny("qwen3"), path, "--type", "q4_0"))
        with open(path, "rb") as file:
            data = bytearray(file.read())
        names = [t["name"] for t in spry("inspect", path, "--json", "--tensors").json["tensors"] if t["type"] == "Q4_0"]
        self.assertGreater(len(names), 7)
        for name in names:
            at = data.index(struct.pack("<Q", len(name)) + name.encode()) + 8 + len(name)
            at += 4 + 8 * struct.unpack_from("<I", data, at)[0]
            self.assertEqual(struct.unpack_from("<I", data, at), (2,))
            struct.pack_into("<I", data, at, number)
        with open(path, "wb") as file:
            file.write(data)
        return path, len(names)

    def test_other_quants(self):
        path, _ = self.retyped(20)
        ask = ("run", path, *ASK[2:-1])
        gpu = spry(*ask, "cuda", "--verbose")
        self.assertEqual(gpu.code, OK, gpu.errors)
        self.assertNotIn("stored there as F32", gpu.errors)
        self.assertEqual(gpu.out, self.succeeds(spry(*ask, "cpu", "--cpu", "ref")).out)

    def test_unknown(self):
        path, _ = self.retyped(31)
        self.fails(spry("run", path, *ASK[2:]), FAILURE, "model.gguf", "type id 31 is unknown")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "memory")))


class Drafts(Gpu):
    def test_drafts_change_nothing(self):
        """Drafts are verified on the device; repeated words are what lookup drafts from."""
        ask = ("run", tiny("qwen3"), "-p", "hello hello hello", "-n", "12", "--temperature", "0", "--ignore-end", "--context", "64",
               "--device", "cuda")
        plain = self.succeeds(spry(*ask, "--draft", "none"))
        drafted = self.succeeds(spry(*ask, "--draft", "lookup", "--draft-most", "3"))
        self.assertEqual(drafted.out, plain.out)


class Figures(Gpu):
    def page(self, measured):
        return self.succeeds(spry("report", measured, "-o", "-")).text

    def test_bench(self):
        saved = os.path.join(HOME, "gpu.json")
        measured = ("--prefill", "8", "--decode-depth", "0", "--batch", "1,2", "--tokens", "6", "--repeat", "1", "--save", saved)
        result = self.succeeds(spry("bench", MODEL, "--device", "cuda", *measured))
        self.assertRegex(result.text, r"\nImitated GPU 0, beside ")
        self.assertRegex(result.text, r"\ndecode +0 +the host waits 1 times a token, the GPU is busy 40 % of the time \(NVML\)\n")
        self.assertRegex(result.text, r"\nanswer +6 +\S+ tok/s with draws, the host waits \S+ times a token, \d+ % of the steps begin ahead\n")
        with open(saved, encoding="utf-8") as file:
            report = json.load(file)
        machine = report["machine"]
        self.assertEqual((machine["gpu"], machine["kernels"], machine["multiply_type"]), ("Imitated GPU 0", "cuda", "F16"))
        self.assertEqual(machine["multiply_g_s"], 4096 * 5 * 1 / 2)  # a cycle's operations, multiprocessors, GHz
        self.assertGreater(machine["read_gb_s"], 0)
        for point in report["prefill"] + report["decode"]:
            self.assertEqual(point["gpu_busy_percent"], 40)
            self.assertAlmostEqual(point["read_share"], point["read_gb_s"] / machine["read_gb_s"], 5)
            self.assertAlmostEqual(point["multiply_share"], point["multiply_g_s"] / machine["multiply_g_s"], 5)
            self.assertAlmostEqual(sum(op["share"] for op in point["ops"]), 1, 3)
            ops = {op["op"]: op for op in point["ops"] if op["device"] == "cuda"}
            self.assertEqual({op["device"] for op in point["ops"]}, {"cuda", "host"})  # the host prepares and waits
            for name in ("qkv", "attend", "out", "gate_up", "down", "logits"):
                self.assertGreater(ops[name]["gb_s"], 0, name)
                self.assertGreater(ops[name]["multiply_g_s"], 0, name)
                self.assertEqual(ops[name]["ms"] % 0.0625, 0)  # launches on the GPU's own clock
        self.assertEqual([p["waits_per_token"] for p in report["decode"]], [0.5 if p["batch"] == 2 else 1 for p in report["decode"]])
        self.assertEqual(report["prefill"][0]["waits_per_token"], 1 / 8)
        answer = report["answer"]
        self.assertEqual(answer["tokens"], 6)
        self.assertGreater(answer["ahead_share"], 0)
        self.assertLessEqual(answer["waits_per_token"], 1.5)
        self.judge(saved)
        page = self.page(saved)
        for title in ('"gpu_busy_percent":40', '"waits_per_token":', '"ahead_share":', "Imitated GPU 0"):
            self.assertIn(title, page)

    def test_where_a_split_model_is_computed(self):
        saved, path = os.path.join(HOME, "split.json"), os.path.join(HOME, "split-targets.json")
        result = self.succeeds(spry("bench", MODEL, "--device", "cuda", "--gpu-layers", "1", "--prefill", "none", "--decode-depth", "0", "--batch", "1",
                                    "--tokens", "6", "--repeat", "1", "--save", saved))
        shares = re.search(r"\n +GPU (\d+) %, CPU (\d+) %, host (\d+) %, copies (\d+) %\n", result.text)
        self.assertEqual(sum(map(int, shares.groups())), 100)
        with open(saved, encoding="utf-8") as file:
            report = json.load(file)
        ops = report["decode"][0]["ops"]
        places = report["decode"][0]["places"]
        self.assertAlmostEqual(sum(places.values()), 1, 3)
        self.assertAlmostEqual(places["cpu"], sum(op["share"] for op in ops if op["device"] == "cpu"), 3)
        why = "cuda computes 1 of 3 layers, as many as gpu-layers allows; the CPU computes the others"
        self.assertEqual(report["why_cpu"], why)
        on_cpu = re.search(r"On the CPU - (.+): %s" % re.escape(why), " ".join(result.text.split()))[1]
        self.assertEqual([one.split()[0] for one in on_cpu.split(", ")], [op["op"] for op in ops if op["device"] == "cpu"])
        self.assertIn(why, self.page(saved))
        self.assertEqual({op["device"] for op in ops}, {"cpu", "cuda", "host"})
        self.assertAlmostEqual(sum(op["share"] for op in ops), 1, 3)
        layers = [op for op in ops if op["op"] in ("qkv", "attend", "out", "gate_up", "down")]
        share = sum(op["share"] for op in layers if op["device"] == "cuda") / sum(op["share"] for op in layers)
        self.assertTrue(0 < share < 1)
        for floor, code in ((share * 0.99, OK), (share * 1.01, FAILURE)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"format": "spry-targets-1", "machines": {"*": {"on_device": {"0": floor}}}}, file)
            self.assertEqual(spry("bench", "--targets", path, "--measured", saved).code, code)

    def test_where_a_whole_model_is_computed(self):
        """On the GPU nothing but layouts and waits is left for others; without one the CPU computes all, and the report says why."""
        measured = ("--prefill", "none", "--decode-depth", "0", "--batch", "1", "--tokens", "6", "--repeat", "1", "--save", os.path.join(HOME, "place.json"))
        for changes, gpu in (({}, True), ({"IMITATED_GPU": "none"}, False)):
            result = spry("bench", MODEL, "--device", "cuda", *measured, **changes)
            self.assertEqual(result.code, OK, result.errors)
            shares = list(map(int, re.search(r"\n +GPU (\d+) %, CPU (\d+) %, host (\d+) %, copies (\d+) %\n", result.text).groups()))
            self.assertEqual(sum(shares), 100)
            self.assertEqual((shares[0] > 0, shares[1] == 100), (gpu, not gpu))
            with open(os.path.join(HOME, "place.json"), encoding="utf-8") as file:
                why = json.load(file).get("why_cpu", "")
            self.assertEqual(why == "", gpu)
            if not gpu:
                self.assertIn("no NVIDIA driver", why)
                self.assertIn("On the CPU - all ops: %s" % why, " ".join(result.text.split()))

    def test_energy(self):
        """A point takes milliseconds, and the GPU counts every 100 of them: it is repeated until that is precise."""
        report = self.succeeds(spry("bench", MODEL, "--device", "cpu", "--prefill", "8", "--decode-depth", "none", "--repeat", "1", "--json")).json
        energy = report["prefill"][0]["energy"]
        self.assertGreater(energy["gpu_joules"], 0)
        self.assertTrue(50 < energy["gpu_joules"] / energy["joules"] * energy["watts"] < 400, energy)

    def judge(self, saved):
        """Floors of residency are a gate for the GPU as well, which targets may name."""
        path = os.path.join(HOME, "targets.json")
        for floor, code in ((1e-6, OK), (1, FAILURE)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"format": "spry-targets-1", "machines": {"Imitated GPU": {"residency": {"0": floor}}, "*": {"memory_bytes": 1}}}, file)
            self.assertEqual(spry("bench", "--targets", path, "--measured", saved).code, code)

    def test_trace(self):
        path = os.path.join(HOME, "gpu-trace.json")
        self.succeeds(spry(*ASK, "--draft", "none", "--trace", path))
        with open(path, encoding="utf-8") as file:
            steps = [event["args"] for event in json.load(file) if event.get("cat") == "step"]
        self.assertTrue(any(step["ahead"] for step in steps))
        self.assertGreater(sum(step["waits"] for step in steps), 0)
        self.assertIn('"ahead_share":', self.page(path))
        self.succeeds(spry(*ASK, "--draft", "none", "--trace", path, "--trace-ops"))
        with open(path, encoding="utf-8") as file:
            ops = [event for event in json.load(file) if event.get("cat") == "op"]
        self.assertEqual({op["args"]["kernel"] for op in ops if op["name"] == "down"}, {"cuda F32"})


if __name__ == "__main__":
    cli_support.main()
