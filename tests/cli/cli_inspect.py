"""spry inspect: what it says is what is in the file."""

import json
import math
import os
import struct
import tempfile

import cli_support
from cli_support import FAILURE, HOME, MODELS, spry, tiny


def inspect(*arguments):
    return spry("inspect", *arguments)


# What becomes of matrices of floats with which kernels.
MATRICES = {"avx512": ("packed", "kernels take groups of rows"),
            "others": ("in place", "kernels take its rows as they lie")}


class Inspect(cli_support.CliTest):
    def test_file(self):
        d = self.succeeds(inspect(tiny("qwen3"), "--json", "--tensors")).json
        with open(tiny("qwen3", "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((d["format"], d["architecture"], d["runs"]), ("GGUF v3", "qwen3", True))
        self.assertEqual(d["file_bytes"], os.path.getsize(tiny("qwen3")))
        shape = d["shape"]
        for ours, theirs in (("layers", "num_hidden_layers"), ("embedding", "hidden_size"),
                             ("heads", "num_attention_heads"), ("kv_heads", "num_key_value_heads"),
                             ("head_size", "head_dim"), ("vocabulary", "vocab_size"),
                             ("feed_forward", "intermediate_size"), ("context", "max_position_embeddings")):
            self.assertEqual(shape[ours], config[theirs], ours)
        self.assertEqual(d["metadata"]["general.architecture"], "qwen3")
        self.assertEqual(d["metadata"]["tokenizer.ggml.tokens"]["count"], 512)
        self.assertEqual(d["tokenizer"]["size"], 512)
        self.assertIsNone(d["tokenizer"]["bos"])
        self.assertEqual(d["tokenizer"]["eos"], {"id": 2, "text": "<|im_end|>"})

    def test_tensors_lie_where_it_says(self):
        d = inspect(tiny("qwen3"), "--json", "--tensors").json
        with open(tiny("qwen3"), "rb") as file:
            whole = file.read()
        with open(tiny("qwen3", "model.safetensors"), "rb") as file:
            other = file.read()
        mine = {t["name"]: t for t in d["tensors"]}
        theirs = {t["name"]: t for t in inspect(tiny("qwen3", ""), "--json", "--tensors").json["tensors"]}
        a, b = mine["output_norm.weight"], theirs["model.norm.weight"]
        self.assertEqual((a["shape"], a["type"]), (b["shape"], b["type"]))
        self.assertEqual(whole[a["offset"] : a["offset"] + a["bytes"]], other[b["offset"] : b["offset"] + b["bytes"]])
        self.assertEqual(sum(t["bytes"] for t in d["tensors"]), sum(t["bytes"] for t in d["types"]))
        count = sum(math.prod(t["shape"]) for t in d["tensors"])
        self.assertEqual(count, d["parameters"])
        self.assertNotIn("tensors", inspect(tiny("qwen3"), "--json").json)

    def test_memory_is_layers_heads_size_and_type(self):
        for context in (512, 33):
            d = inspect(tiny("qwen3"), "--json", "--context", str(context)).json
            shape, memory = d["shape"], d["memory"]
            tokens = -(-context // 32) * 32
            values = tokens * shape["layers"] * 2 * shape["kv_heads"] * shape["head_size"]
            self.assertEqual(memory["context"], context)
            self.assertEqual(memory["kv"], {"f16": 2 * values, "f32": 4 * values, "q8_0": values * 34 // 32, "q4_0": values * 18 // 32})
            self.assertEqual(memory["weights"], d["weight_bytes"])
            self.assertGreater(memory["scratch"], 0)

    def test_alignment_and_what_becomes_of_tensors(self):
        for path in (tiny("qwen3"), tiny("qwen3", "")):
            d = self.succeeds(inspect(path, "--json", "--tensors")).json
            matrices, why = MATRICES["avx512" if d["layout"]["kernels"] in ("avx512bw", "avx512", "avx512bf16", "amx") else "others"]
            for t in d["tensors"]:
                self.assertEqual(t["alignment"], min(t["offset"] & -t["offset"], 4096), t)
                self.assertIs(t["contiguous"], True)
                self.assertEqual(t["use"], "floats" if len(t["shape"]) == 1 else matrices, t)
                self.assertGreater(len(t["why"]), 10)
            layout, count = d["layout"], len(d["tensors"])
            self.assertEqual((layout["tensors"], layout["contiguous"], layout["copied"]), (count, count, 0))
            self.assertEqual(layout["smallest_alignment"], min(t["alignment"] for t in d["tensors"]))
            self.assertEqual(sum(layout[use] for use in ("unused", "floats", "copied", "packed", "in_place")), count)
            page = self.succeeds(inspect(path, "--tensors")).text
            self.assertIn("%d tensors, all contiguous, smallest alignment %d;" % (count, layout["smallest_alignment"]),
                          page)
            self.assertIn("%s: %s" % (matrices, why), page)

    def test_unaligned_tensors_are_copied(self):
        with open(tiny("qwen3", "model.safetensors"), "rb") as file:
            data = file.read()
        size = struct.unpack("<Q", data[:8])[0]
        header = data[8 : 8 + size] + b" " * (1 + (8 + size) % 2)  # an odd beginning of all data
        folder = tempfile.mkdtemp(dir=HOME)
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + data[8 + size :])
        for name in ("config.json", "tokenizer.json"):
            os.symlink(tiny("qwen3", name), os.path.join(folder, name))
        d = self.succeeds(inspect(folder, "--json", "--tensors")).json
        copied = [t for t in d["tensors"] if t["use"] == "copied"]
        self.assertEqual({t["alignment"] for t in d["tensors"]}, {1})
        self.assertEqual(sum(t["bytes"] for t in copied), d["memory"]["copied"])
        self.assertEqual(len(copied), sum(len(t["shape"]) > 1 for t in d["tensors"]))
        self.assertEqual(d["layout"]["copied"], len(copied))

    def test_memory_in_use(self):
        parts = ("weights", "kv", "cache", "scratch", "program")
        estimates = self.succeeds(inspect(tiny("qwen3"), "--json")).json["memory"]["estimates"]
        self.assertEqual([e["context"] for e in estimates], [512])
        estimates = self.succeeds(inspect("--json", "--context", "64")).json["memory"]["estimates"]
        self.assertEqual([e["context"] for e in estimates], [2048, 64])
        for e in estimates:
            self.assertEqual(e["whole"], sum(e[part] for part in parts))
        self.assertGreater(estimates[0]["kv"], estimates[1]["kv"])
        self.assertEqual(estimates[0]["weights"], estimates[1]["weights"])
        page = self.succeeds(inspect("--context", "64")).text
        for words in ("2048 tokens     64 tokens", "together"):
            self.assertIn(words, page)
        estimates = self.succeeds(inspect("--json", "--context", "4096")).json["memory"]["estimates"]
        self.assertIn("limit is 2048", estimates[1]["problem"])
        self.assertIn("limit is 2048", self.succeeds(inspect("--context", "4096")).text)

    def test_folder(self):
        for name in sorted(os.listdir(MODELS)):
            d = self.succeeds(inspect(tiny(name, ""), "--json")).json
            runs = name != "whisper"  # a recogniser of speech: spry voice opens it
            self.assertEqual((d["format"], d["runs"]), ("safetensors", runs), (name, d.get("problem")))
            with open(tiny(name, "config.json"), encoding="utf-8") as file:
                self.assertEqual(d["metadata"]["model_type"], json.load(file)["model_type"])

    def test_bundled(self):
        d = self.succeeds(inspect("--json")).json
        self.assertEqual((d["model"], d["path"]), ("Spry-Tales-29M", None))
        self.assertEqual((d["architecture"], d["runs"]), ("qwen3", True))
        self.assertGreater(d["parameters"], 29e6)
        self.assertEqual(d["tokenizer"]["size"], 8192)

    def test_text_for_people(self):
        page = self.succeeds(inspect(tiny("qwen2-moe"), "--tensors")).text
        for words in ("architecture     qwen2moe", "experts", "keys and values", "working memory", "Metadata",
                      "Every tensor", "token_embd.weight"):
            self.assertIn(words, page)
        self.assertNotIn("\x1b", page)

    def test_unknown_architecture_is_shown_as_far_as_it_goes(self):
        key = b"general.architecture" + struct.pack("<IQ", 8, 5)
        with open(tiny("qwen3"), "rb") as file:
            data = file.read().replace(key + b"qwen3", key + b"qwen9")
        path = os.path.join(tempfile.mkdtemp(dir=HOME), "new.gguf")
        with open(path, "wb") as file:
            file.write(data)
        d = self.succeeds(inspect(path, "--json", "--tensors")).json
        self.assertEqual((d["architecture"], d["runs"]), ("qwen9", False))
        self.assertIn("qwen9", d["problem"])
        self.assertEqual(len(d["tensors"]), 35)
        self.assertNotIn("use", d["tensors"][0])
        self.assertEqual((d["layout"]["tensors"], d["layout"]["contiguous"]), (35, 35))
        self.assertEqual(d["tokenizer"]["size"], 512)
        self.assertIn("cannot run", self.succeeds(inspect(path)).text)

    def test_vocabulary_without_weights(self):
        file = cli_support.public("tokenizers", "qwen2.5", "ggml-vocab.gguf")
        if not file:
            self.skipTest("no data")
        d = self.succeeds(inspect(file, "--json")).json
        self.assertFalse(d["runs"])
        self.assertGreater(d["tokenizer"]["size"], 150000)

    def test_missing(self):
        self.fails(inspect("/nowhere"), FAILURE, "/nowhere")


if __name__ == "__main__":
    cli_support.main()
