"""Model files that are missing, cut, flipped, patched or not models at all: one sentence, never a crash.

Every place and byte of a file is tried in-process by the unit tests; here the program itself is tried, under a limit on
time and memory."""

import json
import os
import random
import shutil
import struct
import tempfile

import cli_support
from cli_support import FAILURE, HOME, OK, PUBLIC, spry, tiny

CUTS = FLIPS = 40


def read(path):
    with open(path, "rb") as file:
        return file.read()


class BadFiles(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, data, name="bad.gguf"):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def test_a_name_that_exists_twice(self):
        """The folder has the name, and the file its own with its ending; a pull takes neither place."""
        shutil.copy(tiny("qwen3"), os.path.join(self.folder, "twice.gguf"))
        shutil.copytree(tiny("llama", ""), os.path.join(self.folder, "twice"))
        names = [model["name"] for model in spry("models", "--json", "--models-dir", self.folder).json["models"]]
        self.assertEqual(sorted(names), ["twice", "twice.gguf"])
        for name, architecture in (("twice", "llama"), ("twice.gguf", "qwen3")):
            result = spry("run", name, "-p", "x", "-n", "1", "--stats", "--models-dir", self.folder)
            self.assertEqual(result.code, OK, result.errors)
            self.assertIn(architecture, result.errors.lower())
        self.fails(spry("pull", tiny("qwen3"), "twice", "--models-dir", self.folder), FAILURE, "already contains 'twice'")

    def run_model(self, path):
        return spry("run", path, "-p", "x", "-n", "1", "--temperature", "0")

    def survives(self, path, what):
        """Works, or fails with one sentence."""
        result = self.run_model(path)
        self.assertIn(result.code, (OK, FAILURE), (what, result.errors))
        if result.code == FAILURE:
            self.assertEqual(result.out, b"", what)
            self.one_sentence(result)
        return result.code

    def test_missing_empty_and_odd(self):
        self.fails(self.run_model("/nowhere/model.gguf"), FAILURE, "/nowhere/model.gguf")
        self.fails(self.run_model(self.write(b"")), FAILURE, "bad.gguf")
        self.fails(self.run_model(self.write(b"GGUF")), FAILURE, "bad.gguf")
        self.fails(self.run_model(self.write(b"not a model at all" * 100)), FAILURE, "bad.gguf")
        self.fails(self.run_model(self.folder), FAILURE, "config.json")
        self.fails(self.run_model("/dev/null"), FAILURE, "/dev/null")
        self.fails(self.run_model("/dev/zero"), FAILURE, "/dev/zero")
        fifo = os.path.join(self.folder, "fifo.gguf")
        os.mkfifo(fifo)
        self.fails(self.run_model(fifo), FAILURE, "fifo.gguf")
        if os.getuid() != 0:
            closed = self.write(b"x", "closed.gguf")
            os.chmod(closed, 0)
            self.fails(self.run_model(closed), FAILURE, "Permission denied")

    def test_cut_files(self):
        whole = read(tiny("qwen3"))
        rng = random.Random(2)
        places = [rng.randrange(len(whole)) for _ in range(CUTS // 2)]
        places += [rng.randrange(20000) for _ in range(CUTS // 2)]
        for place in places:
            self.assertEqual(self.survives(self.write(whole[:place]), place), FAILURE, place)

    def test_flipped_bytes(self):
        whole = read(tiny("qwen3"))
        rng = random.Random(3)
        codes = set()
        for i in range(FLIPS):
            place = rng.randrange(len(whole) if i % 2 else 20000)
            data = bytearray(whole)
            data[place] ^= 1 << rng.randrange(8)
            codes.add(self.survives(self.write(data), place))
        self.assertEqual(codes, {OK, FAILURE})

    def test_cut_and_flipped_folders(self):
        source = tiny("llama", "")
        rng = random.Random(4)
        for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
            whole = read(os.path.join(source, name))
            for i in range(6):
                folder = os.path.join(self.folder, "%s-%d" % (name, i))
                os.mkdir(folder)
                for other in os.listdir(source):
                    os.symlink(os.path.join(source, other), os.path.join(folder, other))
                os.remove(os.path.join(folder, name))
                data = bytearray(whole)
                if i % 2:
                    data = data[: rng.randrange(len(data))]
                else:
                    data[rng.randrange(min(len(data), 3000))] ^= 1 << rng.randrange(8)
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(data)
                self.survives(folder, (name, i))

    def patched(self, old, new):
        """The file with one string of its directory replaced by another of the same length."""
        whole = read(tiny("qwen3"))
        self.assertEqual(len(old), len(new))
        self.assertIn(old, whole)
        return self.write(whole.replace(old, new, 1))

    def test_unknown_architecture(self):
        key = b"general.architecture" + struct.pack("<IQ", 8, 5)
        path = self.patched(key + b"qwen3", key + b"qwen9")
        self.fails(self.run_model(path), FAILURE, "qwen9", "llama")

    def with_type(self, whole, name, kind):
        """The file with the type of a matrix changed: name, number of dimensions, two dimensions, type."""
        at = whole.index(struct.pack("<Q", len(name)) + name) + 8 + len(name) + 4 + 16
        self.assertEqual(whole[at : at + 4], struct.pack("<I", 0))
        return self.write(whole[:at] + struct.pack("<I", kind) + whole[at + 4 :])

    def test_unknown_tensor_type(self):
        for kind in (4, 31, 77, 0xFFFFFFFF):
            path = self.with_type(read(tiny("qwen3")), b"token_embd.weight", kind)
            self.fails(self.run_model(path), FAILURE, "token_embd.weight", str(kind))

    def test_missing_tensor(self):
        path = self.patched(b"blk.1.attn_q.weight", b"blk.1.attn_z.weight")
        self.fails(self.run_model(path), FAILURE, "blk.1.attn_q")

    def test_hostile_counts(self):
        whole = read(tiny("qwen3"))
        for place in (8, 16):  # the number of tensors, the number of metadata entries
            for count in (2**63, 2**64 - 1, 10**12, 2**32):
                data = whole[:place] + struct.pack("<Q", count) + whole[place + 8 :]
                self.fails(self.run_model(self.write(data)), FAILURE, "bad.gguf")

    def test_hostile_names_stay_on_one_line(self):
        hostile = b"blk.1\n\r\x1b[31m\xff\xffeight"
        whole = read(self.patched(b"blk.1.attn_q.weight", hostile))
        result = self.run_model(self.with_type(whole, hostile, 77))
        self.fails(result, FAILURE)
        self.assertRegex(result.errors, r"'blk\.1\?\?\?\[31m..eight'")

    def test_hostile_config(self):
        config = json.loads(read(tiny("llama", "config.json")))
        for change in ({"hidden_size": 10**18}, {"num_hidden_layers": 10**9}, {"num_attention_heads": 0},
                       {"vocab_size": 10**12}, {"head_dim": -1}, {"max_position_embeddings": 10**15},
                       {"model_type": "unheard-of"}, {"rms_norm_eps": "x"}):
            folder = tempfile.mkdtemp(dir=self.folder)
            for other in os.listdir(tiny("llama", "")):
                if other != "config.json":
                    os.symlink(tiny("llama", other), os.path.join(folder, other))
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump({**config, **change}, file)
            self.survives(folder, change)

    def test_huge_context_is_refused_in_words(self):
        result = spry("run", tiny("qwen3"), "-p", "x", "--context", "4294967295")
        self.fails(result, FAILURE, "4294967295")

    def test_malformed_files_of_others(self):
        if not cli_support.public("badinput", "malformed_weights"):
            self.skipTest("no data")
        folder = os.path.join(PUBLIC, "badinput", "malformed_weights")
        for name in sorted(os.listdir(folder)):
            self.fails(self.run_model(os.path.join(folder, name)), FAILURE)

    def test_other_commands_refuse_them_too(self):
        bad = self.write(b"GGUF" + bytes(100))
        self.fails(spry("tokenize", bad), FAILURE, "bad.gguf")
        self.fails(spry("logits", bad, "--ids", "1", "-o", "-"), FAILURE, "bad.gguf")
        self.fails(spry("inspect", bad), FAILURE, "bad.gguf")
        self.fails(spry("tokenize", self.write(b"{}", "tokenizer.json")), FAILURE, "tokenizer.json")
        self.fails(spry("tokenize", self.write(b"\x0a\xff\xff", "tokenizer.model")), FAILURE, "tokenizer.model")


if __name__ == "__main__":
    cli_support.main()
