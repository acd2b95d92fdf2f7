"""Language models with their published weights: answers, the tokens of llama.cpp on the same files, drafting with another
model, fragments, sliding and the README's commands. SPRY is the program, SPRY_REAL the folder of weights; models that
are not there are skipped by name."""

import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
sys.path.insert(0, os.path.join(HERE, "..", "server"))

import onnx_folder  # noqa: E402
from cli_support import ROOT, main  # noqa: E402
from server_support import Server  # noqa: E402

SPRY = os.path.abspath(os.environ["SPRY"])
REAL = os.environ["SPRY_REAL"]
FOLDER = tempfile.TemporaryDirectory(prefix="spry-real-")
TINYLLAMA = os.path.join(REAL, "tinyllama-1.1b-chat.gguf")
STORIES = os.path.join(REAL, "stories15M.bin")
MINIMIND = os.path.join(REAL, "minimind2-small")
MINILM = os.path.join(REAL, "all-minilm-l6-v2")
README = os.path.join(HERE, "..", "..", "README.md")
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

    def test_a_fragment_after_the_start_token(self):
        """Before the fragment is the start token alone, after which it was computed: nothing is lost."""
        docs, questions = path("one"), path("one.txt")
        os.mkdir(docs)
        shutil.copy(os.path.join(ROOT, "tests", "data", "span", "fresh", "1_ferry.txt"), docs)
        with open(questions, "w", encoding="utf-8") as file:
            file.write("The heron paid old Bram with\n")
        results = json.loads(spry("eval", "span", TINYLLAMA, "--docs", docs, "--questions", questions, "--shuffles", "0",
                                  "--tokens", "8", "--json"))["results"]
        self.assertLess(results[0]["kl"]["mean"], 0.03)

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

    def test_agents(self):
        """A session of an agent: what is cached gives the answers of what is computed."""
        report = path("agent.json")
        print(spry("bench", self.model, "--agent", "--agreement", "--mix-scale", "0.05", "--save", report).decode().splitlines()[-2])
        with open(report, encoding="utf-8") as file:
            run = json.load(file)["runs"][0]
        self.assertGreater(run["session"]["hit_share"], 0.8)
        self.assertEqual((run["agreement"]["turns"], run["agreement"]["same_top"], run["agreement"]["identical"]), (21, 1, 1))

    def test_it_knows_something(self):
        for options in ((), ("--quantize", "q8_0")):
            self.assertIn("Paris", self.answer(self.model, "What is the capital of France?", "-n", "24", *options))


@there(MINILM)
class MiniLM(RealTest):
    # Cosines that are published for this model.
    PAIRS = (("The new movie is awesome", "The new movie is so great", 0.8939),
             ("That is a happy person", "That is a happy dog", 0.695),
             ("That is a happy person", "Today is a sunny day", 0.257),
             ("The cat sits outside", "The dog plays in the garden", 0.2838),
             ("A man is playing guitar", "A woman watches TV", -0.0327))

    def cosines(self, model, *options):
        server = Server(model, *options)
        try:
            texts = [text for pair in self.PAIRS for text in pair[:2]]
            data = server.post("/v1/embeddings", {"input": texts}).json["data"]
        finally:
            server.stop()
        vectors = [item["embedding"] for item in data]
        self.assertEqual(len(vectors[0]), 384)
        return [sum(a * b for a, b in zip(vectors[2 * i], vectors[2 * i + 1])) for i in range(len(self.PAIRS))]

    def test_what_is_alike(self):
        converted = path("minilm.gguf")
        spry("convert", MINILM, converted, "--type", "f16")
        for model in (MINILM, converted):
            for cosine, (first, second, published) in zip(self.cosines(model), self.PAIRS):
                self.assertAlmostEqual(cosine, published, delta=0.001, msg="%s / %s" % (first, second))

    def test_quantised(self):
        for cosine, (first, second, published) in zip(self.cosines(MINILM, "--quantize", "q8_0"), self.PAIRS):
            self.assertAlmostEqual(cosine, published, delta=0.02, msg="%s / %s" % (first, second))


@there(TINYLLAMA)
class Readme(RealTest):
    """The README's commands that take a model, with TinyLlama in the place of its names."""

    LEFT_OUT = ("serve", "voice", "chats", "pull", "doctor", "mpirun", "--reuse", "--baseline")

    @classmethod
    def setUpClass(cls):
        for name, text in (("book.txt", "Once upon a time there was a fox. " * 10), ("letter.txt", "I was at home."),
                           ("diary.txt", "He was not at home."),
                           ("hero.json", '{"type": "object", "properties": {"age": {"type": "integer"}}, '
                                         '"required": ["age"], "additionalProperties": false}')):
            with open(path(name), "w", encoding="utf-8") as file:
                file.write(text)

    def commands(self):
        with open(README, encoding="utf-8") as file:
            block = file.read().split("## Use it")[1].split("```")[1]
        for line in block.strip().splitlines():
            command = line.split("  #")[0].strip()
            if not any(word in command for word in self.LEFT_OUT) and command != "build/spry run":
                yield command

    def test_commands(self):
        ran = 0
        for command in self.commands():
            command = command.replace("build/spry", shlex.quote(SPRY)).replace("~/.cache/spry", path("cache"))
            command = command.replace("./Qwen3-0.6B", TINYLLAMA)
            if " run " in command:
                command += " --context 512 --temperature 0 " + ("" if " -n " in command else "-n 16 ")
                command += "" if TINYLLAMA in command else TINYLLAMA
            command = command.replace("bench qwen3.gguf", "bench qwen3.gguf --prefill 16 --decode-depth 0 --batch 1 -n 2 -r 1")
            result = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=600,
                                    cwd=FOLDER.name)
            self.assertEqual(result.returncode, 0, command + "\n" + result.stderr.decode())
            ran += 1
        print("%d commands of the README ran" % ran)
        self.assertGreater(ran, 2)


if __name__ == "__main__":
    main()
