"""Checkpoints as they occur: tokens beyond the embedding, tensors of odd types; and the same model written with other
settings, which must give the same logits, as a folder and converted to GGUF."""

import array
import json
import os
import shutil
import struct
import tempfile

import cli_support
from cli_support import FAILURE, HOME, spry, tiny

IDS = "1,2,3,44,55,66,77,300,200,100"


class Checkpoint:
    """A folder of the tests' data: its settings, and its tensors as (type, shape, bytes)."""

    def __init__(self, name):
        self.folder = tiny(name, "")
        with open(os.path.join(self.folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        with open(os.path.join(self.folder, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        header.pop("__metadata__", None)
        self.tensors = {key: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]])
                        for key, t in header.items()}
        self.others = {}

    def floats(self, name):
        kind, _, data = self.tensors[name]
        if kind == "BF16":
            data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        elif kind == "F16":
            return array.array("f", struct.unpack("<%de" % (len(data) // 2), data))
        return array.array("f", data)

    def put(self, name, values, shape):
        self.tensors[name] = ("F32", list(shape), array.array("f", values).tobytes())

    def rows(self, name):
        values, (n_out, n_in) = self.floats(name), self.tensors[name][1]
        return [values[i * n_in:(i + 1) * n_in] for i in range(n_out)]

    def put_rows(self, name, rows):
        self.put(name, [value for row in rows for value in row], (len(rows), len(rows[0])))

    def write(self, folder):
        shutil.copytree(self.folder, folder)
        os.remove(os.path.join(folder, "model.safetensors"))
        header, at = {}, 0
        for key, (kind, shape, data) in self.tensors.items():
            header[key] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in self.tensors.values()))
        for name, content in {"config.json": self.config, **self.others}.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(content, file)


class OddModels(cli_support.CliTest):
    def setUp(self):
        self.place = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.place)
        self.count = 0

    def written(self, checkpoint):
        self.count += 1
        folder = os.path.join(self.place, str(self.count))
        checkpoint.write(folder)
        return folder

    def logits(self, model):
        out = self.succeeds(spry("logits", model, "--ids", IDS, "--rows", "all", "-o", "-", "--cpu", "ref",
                                 "--kv-type", "f32")).out
        return array.array("f", out)

    def alike(self, checkpoint, wanted):
        """Within rounding, from the folder and from GGUF."""
        folder = self.written(checkpoint)
        converted = folder + ".gguf"
        self.succeeds(spry("convert", folder, converted, "--type", "f32"))
        most = max(map(abs, wanted))
        for model in (folder, converted):
            got = self.logits(model)
            self.assertEqual(len(got), len(wanted))
            self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), 1e-4 * most, model)

    # ---- as they occur

    def test_tokens_beyond_the_embedding(self):
        c = Checkpoint("llama")
        with open(os.path.join(c.folder, "tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        tokenizer["added_tokens"].append({"id": 600, "content": "<extra>", "special": True, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
        c.others["tokenizer.json"] = tokenizer
        folder = self.written(c)
        ask = ("--raw", "--special", "-n", "4", "--temperature", "0")
        plain = self.succeeds(spry("run", c.folder, "-p", "hello", *ask)).out
        self.assertEqual(self.succeeds(spry("run", folder, "-p", "hello", *ask)).out, plain)
        self.fails(spry("run", folder, "-p", "hello <extra>", *ask), FAILURE, "token id 600 is outside the vocabulary of 512")
        converted = folder + ".gguf"
        self.succeeds(spry("convert", folder, converted, "--type", "f32"))
        self.assertEqual(self.succeeds(spry("run", converted, "-p", "hello", *ask)).out, plain)

    def test_odd_types(self):
        """Buffers that are not weights may have any type; weights may not."""
        c = Checkpoint("llama")
        wanted = self.logits(c.folder)
        for i, (kind, size) in enumerate((("BOOL", 1), ("I64", 8), ("U32", 4), ("U16", 2), ("I8", 1))):
            c.tensors["model.layers.%d.self_attn.buffer_%s" % (i % 3, kind)] = (kind, [3], bytes(3 * size))
        self.assertEqual(self.logits(self.written(c)), wanted)
        for kind, size in (("F64", 8), ("I8", 1), ("F8_E5M2", 1)):
            name = "model.layers.1.mlp.up_proj.weight"
            shape = c.tensors[name][1]
            c.tensors[name] = (kind, shape, bytes(shape[0] * shape[1] * size))
            self.fails(spry("logits", self.written(c), "--ids", IDS, "-o", "-"), FAILURE, name)

    # ---- the same model, said otherwise

    def test_an_output_of_its_own(self):
        for name in ("granite", "cohere", "hunyuan", "qwen3"):
            c = Checkpoint(name)
            wanted = self.logits(c.folder)
            self.assertTrue(c.config["tie_word_embeddings"])
            c.config["tie_word_embeddings"] = False
            c.tensors["lm_head.weight"] = c.tensors["model.embed_tokens.weight"]
            self.alike(c, wanted)

    def test_biases(self):
        """A bias of values goes through attention as it is: one of the output does the same."""
        for name in ("granite", "llama", "hunyuan"):
            a, b = Checkpoint(name), Checkpoint(name)
            head = a.config.get("head_dim") or a.config["hidden_size"] // a.config["num_attention_heads"]
            groups = a.config["num_attention_heads"] // a.config["num_key_value_heads"]
            for c in (a, b):
                c.config["attention_bias"] = True
            for layer in range(a.config["num_hidden_layers"]):
                prefix = "model.layers.%d.self_attn." % layer
                n_v = a.tensors[prefix + "v_proj.weight"][1][0]
                bias = [((7 * i + layer) % 13 - 6) / 10 for i in range(n_v)]
                wide = [bias[h // groups * head + d] for h in range(a.config["num_attention_heads"]) for d in range(head)]
                moved = [sum(w * x for w, x in zip(row, wide)) for row in b.rows(prefix + "o_proj.weight")]
                for part, n in (("q", len(wide)), ("k", n_v), ("v", n_v), ("o", len(moved))):
                    a.put(prefix + part + "_proj.bias", bias if part == "v" else [0] * n, (n,))
                    b.put(prefix + part + "_proj.bias", moved if part == "o" else [0] * n, (n,))
            wanted = self.logits(self.written(a))
            self.assertNotEqual(wanted, self.logits(a.folder))
            self.alike(a, wanted)
            self.alike(b, wanted)

    def test_biases_of_queries_and_keys(self):
        """They are turned by rope: files whose rows lie in another order have them in that order."""
        for name in ("granite", "llama"):
            c = Checkpoint(name)
            c.config["attention_bias"] = True
            for layer in range(c.config["num_hidden_layers"]):
                prefix = "model.layers.%d.self_attn." % layer
                for part in "qkvo":
                    n = c.tensors[prefix + part + "_proj.weight"][1][0]
                    c.put(prefix + part + "_proj.bias", [((5 * i + layer) % 11 - 5) / 8 for i in range(n)], (n,))
            self.alike(c, self.logits(self.written(c)))

    def test_more_key_value_heads(self):
        for name in ("granite", "llama", "qwen3", "cohere"):
            c = Checkpoint(name)
            wanted = self.logits(c.folder)
            head = c.config.get("head_dim") or c.config["hidden_size"] // c.config["num_attention_heads"]
            c.config["num_key_value_heads"] *= 2
            for layer in range(c.config["num_hidden_layers"]):
                for part in "kv":
                    key = "model.layers.%d.self_attn.%s_proj.weight" % (layer, part)
                    rows = c.rows(key)
                    c.put_rows(key, [rows[h // 2 * head + d] for h in range(2 * len(rows) // head) for d in range(head)])
            self.alike(c, wanted)

    def test_ropes_that_scale_nothing(self):
        for name in ("llama", "granite", "hunyuan", "cohere"):
            wanted = self.logits(Checkpoint(name).folder)
            for kind in ({"rope_type": "linear", "factor": 1.0},
                         {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 512},
                         {"rope_type": "llama3", "factor": 1.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 64}):
                c = Checkpoint(name)
                c.config["rope_parameters"] = {**c.config["rope_parameters"], **kind}
                self.alike(c, wanted)

    def test_ropes_that_do(self):
        """As a folder and as GGUF; what they are is compared with transformers elsewhere."""
        for name in ("llama", "granite", "hunyuan", "starcoder2"):
            for kind in ({"rope_type": "linear", "factor": 3.0},
                         {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 20},
                         {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                          "attention_factor": 1.3},
                         {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 64}):
                c = Checkpoint(name)
                c.config["rope_parameters"] = {**c.config["rope_parameters"], **kind}
                wanted = self.logits(self.written(c))
                self.assertNotEqual(wanted, self.logits(c.folder))
                self.alike(c, wanted)

    def test_experts_in_another_order(self):
        c = Checkpoint("qwen3-moe")
        wanted = self.logits(c.folder)
        n = c.config["num_local_experts"]
        order = [(3 * i + 1) % n for i in range(n)]
        for layer in range(c.config["num_hidden_layers"]):
            prefix = "model.layers.%d.mlp." % layer
            rows = c.rows(prefix + "gate.weight")
            c.put_rows(prefix + "gate.weight", [rows[i] for i in order])
            for part in ("gate", "up", "down"):
                kept = [c.tensors["%sexperts.%d.%s_proj.weight" % (prefix, i, part)] for i in order]
                for i, tensor in enumerate(kept):
                    c.tensors["%sexperts.%d.%s_proj.weight" % (prefix, i, part)] = tensor
        self.alike(c, wanted)


if __name__ == "__main__":
    cli_support.main()
