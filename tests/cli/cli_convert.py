"""spry convert and --quantize: types, sizes, the same numbers either way, and disks that are full."""

import os
import re
import resource
import shutil
import struct
import tempfile

import cli_support
from cli_support import FAILURE, HOME, USAGE, spry, start, tiny

IDS = "1,2,3,44,55,66,77,300,200,100"
# The types of a matrix, of value and down projections, and of the embedding in a two-layer model with rows of 256.
TYPES = {
    "q4_0": ("Q4_0", "Q4_0", "Q8_0", 2),
    "q4_1": ("Q4_1", "Q4_1", "Q8_0", 3),
    "q4_k_m": ("Q4_K", "Q6_K", "Q6_K", 15),
    "q5_0": ("Q5_0", "Q5_0", "Q8_0", 8),
    "q5_1": ("Q5_1", "Q5_1", "Q8_0", 9),
    "q5_k_m": ("Q5_K", "Q6_K", "Q6_K", 17),
    "q6_k": ("Q6_K", "Q6_K", "Q6_K", 18),
    "q8_0": ("Q8_0", "Q8_0", "Q8_0", 7),
    "f16": ("F16", "F16", "F16", 1),
    "bf16": ("BF16", "BF16", "BF16", 32),
    "f32": ("F32", "F32", "F32", 0),
}


class Convert(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def convert(self, source, kind, name="out.gguf"):
        result = self.succeeds(spry("convert", source, self.path(name), "--type", kind, "--force"))
        self.assertRegex(result.text, r"\A%s: %s, [0-9.]+ [kMG]?B\n\Z" % (re.escape(self.path(name)), "[A-Z0-9_]+"))
        return self.path(name)

    def logits(self, model, *options):
        result = spry("logits", model, "--ids", IDS, "--rows", "all", "-o", "-", *options)
        return self.succeeds(result).out

    def test_every_type(self):
        source = tiny("llama-256", "")
        bits = {}
        for kind, (matrix, finer, embedding, file_type) in TYPES.items():
            path = self.convert(source, kind)
            d = spry("inspect", path, "--json", "--tensors").json
            types = {t["name"]: t["type"] for t in d["tensors"]}
            self.assertEqual(d["metadata"]["general.file_type"], file_type)
            self.assertEqual(types["blk.0.attn_q.weight"], matrix, kind)
            self.assertEqual(types["blk.1.ffn_up.weight"], matrix, kind)
            self.assertEqual(types["blk.0.ffn_down.weight"], matrix, kind)  # of two layers only the last counts
            self.assertEqual(types["blk.1.ffn_down.weight"], finer, kind)
            self.assertEqual(types["blk.1.attn_v.weight"], finer, kind)
            self.assertEqual(types["token_embd.weight"], embedding, kind)
            self.assertEqual(types["output.weight"], embedding, kind)
            self.assertEqual(types["output_norm.weight"], "F32", kind)
            bits[kind] = os.path.getsize(path)
            self.assertEqual(self.logits(path), self.logits(source, "--quantize", kind), kind)
        order = ["q4_k_m", "q5_k_m", "q6_k", "q8_0", "f16", "f32"]
        self.assertEqual(sorted(order, key=bits.get), order)

    def test_rows_of_other_lengths(self):
        path = self.convert(tiny("qwen3", ""), "q4_k_m")
        types = {t["name"]: t["type"] for t in spry("inspect", path, "--json", "--tensors").json["tensors"]}
        self.assertEqual(types["blk.0.attn_q.weight"], "Q5_0")
        self.assertEqual(types["token_embd.weight"], "Q8_0")

    def test_from_gguf(self):
        source = tiny("qwen3")
        path = self.convert(source, "q5_k_m")
        self.assertEqual(self.logits(path), self.logits(source, "--quantize", "q5_k_m"))
        self.assertEqual(self.logits(path), self.logits(self.convert(tiny("qwen3", ""), "q5_k_m", "other.gguf")))
        answer = spry("run", path, "-p", "Once", "--raw", "-n", "4", "--temperature", "0")
        self.assertEqual(self.succeeds(answer).text,
                         spry("run", source, "--quantize", "q5_k_m", "-p", "Once", "--raw", "-n", "4",
                              "--temperature", "0").text)

    def test_what_is_quantised_already(self):
        path = self.convert(tiny("llama-256", ""), "q8_0")
        self.fails(spry("logits", path, "--ids", "1", "-o", "-", "--quantize", "q4_0"), FAILURE, "out.gguf", "Q8_0",
                   "already")
        self.fails(spry("run", "-p", "x", "--quantize", "q4_k_m"), FAILURE, "already")

    def test_unknown_types(self):
        out = self.path("out.gguf")
        for kind in ("q4_k", "q2_k", "", "f64"):
            self.fails(spry("convert", tiny("llama"), out, "--type", kind), USAGE, "--type", "q4_k_m", "f32")
            self.fails(spry("run", tiny("llama"), "-p", "x", "--quantize", kind), USAGE, "--quantize", "q4_k_m")
        self.assertEqual(os.listdir(self.folder), [])

    def test_wrong_use_and_bad_places(self):
        self.fails(spry("convert"), USAGE, "MODEL")
        self.fails(spry("convert", tiny("llama")), USAGE, "FILE")
        self.fails(spry("convert", tiny("llama"), self.path("nowhere/out.gguf")), FAILURE, "nowhere/out.gguf")
        self.fails(spry("convert", tiny("llama"), self.folder), FAILURE, self.folder)
        self.fails(spry("convert", self.path("no.gguf"), self.path("out.gguf")), FAILURE, "no.gguf")
        self.assertEqual(os.listdir(self.folder), [])

    def test_disk_full(self):
        """Whatever a half-written file would replace stays, and nothing else is left."""
        out = self.path("out.gguf")
        with open(out, "wb") as file:
            file.write(b"old")
        for limit in (1000, 200000, 600000):
            process = start("convert", tiny("llama-256", ""), out, "--type", "q4_k_m", "--force", preexec_fn=lambda size=limit:
                            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
            output, errors = process.communicate(timeout=cli_support.TIMEOUT)
            self.assertEqual((process.returncode, output), (FAILURE, b""), errors)
            self.assertEqual(len(errors.splitlines()), 1, errors)
            self.assertIn(b"out.gguf", errors)
            self.assertEqual(os.listdir(self.folder), ["out.gguf"])
            with open(out, "rb") as file:
                self.assertEqual(file.read(), b"old")

    def test_nothing_is_overwritten(self):
        path = self.convert(tiny("llama", ""), "f16")
        with open(path, "rb") as file:
            before = file.read()
        self.fails(spry("convert", path, path, "--type", "q8_0"), FAILURE, "out.gguf", "the model itself")
        self.fails(spry("convert", path, path, "--type", "q8_0", "--force"), FAILURE, "out.gguf", "the model itself")
        os.symlink(path, self.path("link.gguf"))
        self.fails(spry("convert", path, self.path("link.gguf"), "--type", "q8_0"), FAILURE, "link.gguf", "the model itself")
        self.fails(spry("convert", tiny("qwen3"), path, "--type", "q8_0"), FAILURE, "out.gguf exists", "--force")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), before)
        self.succeeds(spry("convert", tiny("qwen3"), path, "--type", "q8_0", "--force"))
        with open(path, "rb") as file:
            self.assertNotEqual(file.read(), before)

    def test_without_a_type_nothing_is_lost(self):
        for source, type_name in ((tiny("llama", ""), "F32"), (tiny("phi3", ""), "F16"), (tiny("gemma3", ""), "BF16")):
            out = self.path(type_name + ".gguf")
            self.assertIn(": %s, " % type_name, self.succeeds(spry("convert", source, out)).text)
            self.assertEqual(self.logits(out), self.logits(source))
        quantised = self.convert(tiny("llama-256", ""), "q4_0", "q4.gguf")
        self.fails(spry("convert", quantised, self.path("x.gguf")), FAILURE, "Q4_0", "--type")

    def test_title_and_threads(self):
        one = self.path("one.gguf")
        self.succeeds(spry("convert", tiny("llama", ""), one, "--type", "q6_k", "--title", "Tiny", "--threads", "1"))
        self.assertEqual(spry("inspect", one, "--json").json["metadata"]["general.name"], "Tiny")
        two = self.path("two.gguf")
        self.succeeds(spry("convert", tiny("llama", ""), two, "--type", "q6_k", "--title", "Tiny", "--threads", "7"))
        with open(one, "rb") as a, open(two, "rb") as b:
            self.assertEqual(a.read(), b.read())

    # ---- llama2.c -------------------------------------------------------------------------------------------------------

    def llama2c(self, whole=True, **changes):
        """The tiny llama as llama2.c writes models, and the same model as GGUF with llama2.c's epsilon."""
        with open(tiny("llama"), "rb") as file:
            data = bytearray(file.read())
        epsilon = data.index(b"layer_norm_rms_epsilon") + len("layer_norm_rms_epsilon") + 4
        data[epsilon:epsilon + 4] = struct.pack("<f", 1e-5)
        with open(self.path("same.gguf"), "wb") as file:
            file.write(data)
        tensors = {t["name"]: t for t in spry("inspect", self.path("same.gguf"), "--json", "--tensors").json["tensors"]}

        def raw(name):
            t = tensors[name + ".weight"]
            return bytes(data[t["offset"]:t["offset"] + t["bytes"]])

        def layers(name):
            return b"".join(raw("blk.%d.%s" % (i, name)) for i in range(3))

        head = {"dim": 64, "hidden": 160, "layers": 3, "heads": 4, "kv_heads": 2, "vocabulary": -512, "context": 512}
        head.update(changes)
        angles = bytes(2 * 512 * 8 * 4)
        out = struct.pack("<7i", *head.values()) + raw("token_embd") + b"".join(map(layers, (
            "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_down", "ffn_up")))
        out += raw("output_norm") + angles + raw("output")
        words = struct.pack("<i", 8)
        for i in range(512):
            word = b"\n<s>\n" if i == 1 else bytes([i - 3]) if 3 <= i < 259 else {259: b" ", 260: b"a", 261: b" a"}.get(i, b" w%d" % i)
            words += struct.pack("<fi", -float(i), len(word)) + word
        return out + words if whole else out, words

    def save(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def test_checkpoints_of_llama2c(self):
        whole, words = self.llama2c()
        path = self.convert(self.save("whole.bin", whole), "f32")
        self.assertEqual(self.logits(path), self.logits(self.path("same.gguf")))
        d = spry("inspect", path, "--json").json
        self.assertEqual(d["metadata"]["general.name"], "whole.bin")
        ids = spry("tokenize", path, stdin=b"a a\n")
        self.assertEqual(ids.out, b"261 261 13\n")
        self.assertEqual(spry("tokenize", path, "--decode", stdin=ids.out).out, b"a a\n")
        # The same with the vocabulary beside it.
        alone, _ = self.llama2c(whole=False)
        self.fails(spry("convert", self.save("alone.bin", alone), self.path("x.gguf")), FAILURE, "no vocabulary")
        self.save("tokenizer.bin", words)
        with open(path, "rb") as first, open(self.convert(self.path("alone.bin"), "f32", "second.gguf"), "rb") as second:
            self.assertEqual(first.read().replace(b"whole.bin", b"alone.bin"), second.read())
        self.convert(self.path("whole.bin"), "q8_0")

    def test_damaged_checkpoints_of_llama2c(self):
        whole, words = self.llama2c()
        damaged = {"cut": whole[:-20], "vocabulary": whole[:-len(words)] + words[:4300] + b"\xff" * (len(words) - 4300)}
        for name, data in damaged.items():
            self.fails(spry("convert", self.save(name, data), self.path("x.gguf")), FAILURE, "vocabulary")
        for changes in ({"dim": 0}, {"heads": 7}, {"kv_heads": 3}, {"layers": 1 << 30}, {"hidden": -1},
                        {"vocabulary": -(1 << 31)}, {"context": 1 << 24, "layers": 1 << 24, "dim": 1 << 24}):
            self.fails(spry("convert", self.save("odd", self.llama2c(**changes)[0]), self.path("x.gguf")), FAILURE, "odd")
        self.assertFalse(os.path.exists(self.path("x.gguf")))


if __name__ == "__main__":
    cli_support.main()
