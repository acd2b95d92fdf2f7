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
            self.assertEqual(memory["kv"], {"f16": 2 * values, "f32": 4 * values, "q8_0": values * 34 // 32})
            self.assertEqual(memory["weights"], d["weight_bytes"])
            self.assertGreater(memory["scratch"], 0)

    def test_folder(self):
        for name in sorted(os.listdir(MODELS)):
            d = self.succeeds(inspect(tiny(name, ""), "--json")).json
            self.assertEqual((d["format"], d["runs"]), ("safetensors", True), (name, d.get("problem")))
            with open(tiny(name, "config.json"), encoding="utf-8") as file:
                self.assertEqual(d["metadata"]["model_type"], json.load(file)["model_type"])

    def test_bundled(self):
        d = self.succeeds(inspect("--json")).json
        self.assertEqual((d["model"], d["path"]), ("Llama-Tales-29M", None))
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
