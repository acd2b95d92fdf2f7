"""Language models with their published weights: answers, the tokens of llama.cpp on the same files, drafting with another
model, fragments, sliding and the README's commands. SPRY is the program, SPRY_REAL the folder of weights; models that
are not there are skipped by name."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))

import onnx_folder  # noqa: E402
from cli_support import main  # noqa: E402

SPRY = os.path.abspath(os.environ["SPRY"])
REAL = os.environ["SPRY_REAL"]
FOLDER = tempfile.TemporaryDirectory(prefix="spry-real-")
TINYLLAMA = os.path.join(REAL, "tinyllama-1.1b-chat.gguf")
STORIES = os.path.join(REAL, "stories15M.bin")
MINIMIND = os.path.join(REAL, "minimind2-small")
SPAN = os.path.join(HERE, "..", "data", "span")
with open(os.path.join(HERE, "llama_cpp.json"), encoding="utf-8") as file:
    RECORDED = json.load(file)["models"]


def path(name):
    return os.path.join(FOLDER.name, name)


def spry(*arguments, text=""):
    result = subprocess.run([SPRY, *arguments], input=text.encode(), capture_output=True, check=False, timeout=1800,
                            cwd=FOLDER.name)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def there(file):
    return unittest.skipUnless(os.path.exists(file), os.path.basename(file) + " is not in the cache and cannot be fetched")


def logits(model, ids, *options):
    raw = spry("logits", model, "--ids", ",".join(map(str, ids)), "-o", "-", *options)
    return struct.unpack("<%df" % (len(raw) // 4), raw)


class RealTest(unittest.TestCase):
    def answer(self, model, question, *options):
        return spry("run", model, "-p", question, "--temperature", "0", *options).decode()

    def follows(self, model, recorded, *options):
        """The tokens of llama.cpp, as far as they are clear: where another one is best here, both must be as near to
        each other as rounding activations to 8 bits (which both programs do, each in its way) moves logits."""
        same = 0
        for case in recorded:
            given = list(case["prompt"])
            text = spry("tokenize", model, "--decode", "--special", text=" ".join(map(str, given[1:])))
            got = json.loads(spry("run", model, "--raw", "--special", "-p", text.decode(), "-n", str(len(case["ids"])),
                                  "--temperature", "0", "--draft", "none", "--json", *options))
            ids = got["tokens"]
            self.assertEqual(got["prompt_tokens"], len(given))
            wanted = case["ids"]
            first = next((i for i, (a, b) in enumerate(zip(ids, wanted)) if a != b), min(len(ids), len(wanted)))
            same += first
            if first < len(ids) and first < len(wanted):
                ours, exact = (logits(model, given + wanted[:first], *more) for more in ((), ("--cpu", "ref")))
                a, b = ids[first], wanted[first]
                moved = max(abs(ours[i] - exact[i]) for i in (a, b))
                self.assertLessEqual(ours[a] - ours[b], 4 * moved, "token %d of %s" % (first, case["prompt"]))
        print("%s: %d of %d tokens are llama.cpp's; prompts end at their first near tie" %
              (os.path.basename(model), same, sum(len(case["ids"]) for case in recorded)))
        return same


@there(TINYLLAMA)
class TinyLlama(RealTest):
    def test_what_it_is(self):
        d = json.loads(spry("inspect", TINYLLAMA, "--json", "--tensors"))
        types = {t["type"] for t in d["tensors"]}
        self.assertTrue({"IQ2_XXS", "Q2_K", "Q4_K", "Q5_K", "F32"} <= types, types)

    def test_it_knows_something(self):
        self.assertIn("Paris", self.answer(TINYLLAMA, "What is the capital of France?", "-n", "24"))

    def test_tokens_of_llama_cpp(self):
        self.assertGreater(self.follows(TINYLLAMA, RECORDED["tinyllama-1.1b-chat.gguf"]), 40)

    @there(STORIES)
    def test_a_drafter_of_another_kind(self):
        drafter = path("drafter.gguf")
        spry("convert", STORIES, drafter, "--type", "q8_0")
        options = ("--raw", "-n", "32", "--json")
        alone = json.loads(self.answer(TINYLLAMA, "Once upon a time, there was", *options, "--draft", "none"))
        drafted = json.loads(self.answer(TINYLLAMA, "Once upon a time, there was", *options, "--draft", drafter))
        self.assertEqual(drafted["text"], alone["text"])
        self.assertGreater(drafted["drafts"]["drafted"], 0)
        print("stories15M for TinyLlama: %(accepted)d of %(drafted)d drafted tokens accepted" % drafted["drafts"])


@there(STORIES)
class Stories(RealTest):
    @classmethod
    def setUpClass(cls):
        cls.model = path("stories15M.gguf")
        spry("convert", STORIES, cls.model, "--type", "f32")

    def test_tokens_of_llama_cpp(self):
        recorded = RECORDED["stories15M, f32"]
        self.assertEqual(self.follows(self.model, recorded), sum(len(case["ids"]) for case in recorded))

    def test_a_story(self):
        text = self.answer(self.model, "Once upon a time", "--raw", "-n", "60")
        self.assertTrue(text.startswith(", there was a little girl named Lily."), text)

    def test_a_context_that_slides(self):
        """Three times its context: the text goes on, in words."""
        text = self.answer(self.model, "Once upon a time", "--raw", "--slide", "-n", "600", "--ignore-end")
        words = text.split()
        self.assertGreater(len(words), 300)
        self.assertGreater(len(set(words[-100:])), 30)


@there(MINIMIND)
class MiniMind(RealTest):
    @classmethod
    def setUpClass(cls):
        os.makedirs(path("docs"), exist_ok=True)
        for name in sorted(os.listdir(os.path.join(SPAN, "docs")))[:3]:
            shutil.copy(os.path.join(SPAN, "docs", name), path("docs"))
        with open(os.path.join(SPAN, "questions.txt"), encoding="utf-8") as questions, \
                open(path("questions.txt"), "w", encoding="utf-8") as few:
            few.writelines(questions.readlines()[:2])
        cls.model = path("minimind")
        onnx_folder.write(cls.model, MINIMIND)

    def test_fragments(self):
        d = json.loads(spry("eval", "span", self.model, "--docs", path("docs"), "--questions", path("questions.txt"),
                            "--shuffles", "0", "--tokens", "16", "--json"))
        for result in d["results"]:
            print("fragments on MiniMind2-Small, %s repaired: KL %.4f, same top token %.0f %%" %
                  (result["repair"], result["kl"]["mean"], 100 * result["top1"]))
            if result["repair_tokens"] is None:
                self.assertTrue(result["identical"])
            else:
                self.assertLess(result["kl"]["mean"], 1)

    def test_it_knows_something(self):
        for options in ((), ("--quantize", "q8_0")):
            self.assertIn("Paris", self.answer(self.model, "What is the capital of France?", "-n", "24", *options))


if __name__ == "__main__":
    main()
