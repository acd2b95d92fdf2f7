"""spry tokenize and spry logits: exact bytes in, exact bytes and numbers out."""

import array
import json
import os
import random
import sys
import tempfile

import cli_support
from cli_support import DATA, FAILURE, HOME, MODELS, READER_LEFT, spry, start, tiny

TOKENIZERS = {
    "bpe-gpt2": "tokenizer.json",
    "bpe-llama3": "tokenizer.json",
    "bpe-qwen2": "tokenizer.json",
    "spm-llama": "tokenizer.model",
    "spm-gemma": "tokenizer.model",
}


def tokenizer(name):
    return os.path.join(DATA, "tokenizers", name, TOKENIZERS[name])


class Tokenize(cli_support.CliTest):
    def test_golden_texts(self):
        for name in TOKENIZERS:
            with open(os.path.join(DATA, "tokenizers", name, "golden.json"), encoding="utf-8") as file:
                cases = json.load(file)["cases"]
            # The BPE goldens were made with control tokens recognised, the SentencePiece ones without.
            special = ["--special"] if name.startswith("bpe") else []
            for case in random.Random(name).sample(cases, 20):
                text = case["text"].encode("utf-8")
                result = self.succeeds(spry("tokenize", tokenizer(name), "--json", *special, stdin=text))
                self.assertEqual(result.json, case["ids"], (name, case["text"]))
                ids = " ".join(map(str, case["ids"])).encode()
                decoded = self.succeeds(spry("tokenize", tokenizer(name), "--decode", *special, stdin=ids))
                self.assertEqual(decoded.text, case["decoded"], (name, case["text"]))

    def test_speed(self):
        text = b"Once upon a time there was a fox. " * 100
        for name in TOKENIZERS:
            ids = self.succeeds(spry("tokenize", tokenizer(name), "--json", stdin=text)).json
            got = self.succeeds(spry("tokenize", tokenizer(name), "--bench", "3", "--json", stdin=text)).json
            self.assertEqual((got["bytes"], got["tokens"]), (len(text), len(ids)), name)
            self.assertAlmostEqual(got["mib_s"] * got["ms"], len(text) / 1048576 * 1000, delta=0.1, msg=name)
            page = self.succeeds(spry("tokenize", tokenizer(name), "--bench", "1", stdin=text)).text
            self.assertRegex(page, r"^3400 bytes, %d tokens, [0-9.e+-]+ ms, [0-9.e+-]+ MiB/s\n$" % len(ids))
        empty = self.succeeds(spry("tokenize", tokenizer("bpe-gpt2"), "--bench", "2", "--json", stdin=b"")).json
        self.assertEqual((empty["bytes"], empty["tokens"], empty["mib_s"]), (0, 0, 0))

    def test_where_a_tokenizer_may_be(self):
        text = b"Once upon a time"
        with open(os.path.join(MODELS, "qwen3", "golden.json"), encoding="utf-8") as file:
            ids = json.load(file)["cases"][0]["ids"]
        for place in (tiny("qwen3"), tiny("qwen3", ""), tiny("qwen3", "tokenizer.json")):
            result = self.succeeds(spry("tokenize", place, stdin=text))
            self.assertEqual(result.text.split(), list(map(str, ids)), place)
        self.assertGreater(len(self.succeeds(spry("tokenize", stdin=text)).text.split()), 2)

    def test_vocabulary_without_weights(self):
        file = cli_support.public("tokenizers", "qwen2.5", "ggml-vocab.gguf")
        if not file:
            self.skipTest("no data")
        ids = self.succeeds(spry("tokenize", file, "--json", stdin=b"Hello, world!")).json
        self.assertEqual(ids, [9707, 11, 1879, 0])

    def test_garbage_comes_back_byte_for_byte(self):
        rng = random.Random(1)
        samples = [bytes(rng.randrange(256) for _ in range(3000)), bytes(range(256)), b"\0\0a\0", b"\xff\xfe\xc3",
                   "naïve \U0001f600 \u3042".encode()[:-1], b"<|im_end|><|im_start|>"]
        for name in ("bpe-gpt2", "bpe-llama3", "spm-llama"):
            for sample in samples:
                ids = self.succeeds(spry("tokenize", tokenizer(name), stdin=sample))
                self.assertEqual(ids.out.count(b"\n"), 1)
                back = self.succeeds(spry("tokenize", tokenizer(name), "--decode", stdin=ids.out))
                self.assertEqual(back.out, sample, name)

    def test_large_input(self):
        text = b"The quick brown fox jumps over the lazy dog. " * 50000
        ids = self.succeeds(spry("tokenize", stdin=text))
        self.assertEqual(self.succeeds(spry("tokenize", "--decode", stdin=ids.out)).out, text)

    def test_empty_input(self):
        self.assertEqual(self.succeeds(spry("tokenize")).out, b"\n")
        self.assertEqual(self.succeeds(spry("tokenize", "--json")).json, [])
        for nothing in (b"", b"  \n", b"[]", b" [ ] "):
            self.assertEqual(self.succeeds(spry("tokenize", "--decode", stdin=nothing)).out, b"")

    def test_special_tokens(self):
        text = b"<|im_start|>user"
        plain = spry("tokenize", tiny("qwen3"), stdin=text).text.split()
        special = spry("tokenize", tiny("qwen3"), "--special", stdin=text).text.split()
        self.assertEqual(special[0], "1")
        self.assertNotIn("1", plain)
        ids = " ".join(special).encode()
        self.assertEqual(spry("tokenize", tiny("qwen3"), "--decode", stdin=ids).out, b"user")
        self.assertEqual(spry("tokenize", tiny("qwen3"), "--decode", "--special", stdin=ids).out, text)

    def test_begin_of_text_only_when_asked(self):
        model = cli_support.public("models", "stories260K", "stories260K-f32.gguf")
        if not model:
            self.skipTest("no data")
        plain = spry("tokenize", model, "--json", stdin=b"Tom").json
        self.assertEqual(spry("tokenize", model, "--json", "--bos", stdin=b"Tom").json, [1] + plain)

    def test_ways_to_write_ids(self):
        wanted = spry("tokenize", tiny("qwen3"), "--decode", stdin=b"40 41 42").out
        for ids in (b"40,41,42", b"40, 41 ,42\n", b"[40, 41, 42]", b"[40,41,42]\n", b"40\n41\n42\n", b"40\t41\r\n42"):
            self.assertEqual(self.succeeds(spry("tokenize", tiny("qwen3"), "--decode", stdin=ids)).out, wanted)

    def test_ids_that_are_none(self):
        for ids, words in ((b"1 x 2", "'x'"), (b"-1", "'-1'"), (b"1.5", "'1.5'"), (b"1,,2", "integer"),
                           (b"1,", "comma"), (b"[1, 2", "']'"), (b"512", "512"),
                           (b"99999999999", "99999999999"), (b"1e3", "'1e3'"),
                           (b"99999999999999999999999", "integer"), (b"\xff\x1b", "integer")):
            self.fails(spry("tokenize", tiny("qwen3"), "--decode", stdin=ids), FAILURE, words)

    def test_full_disk_and_closed_pipe(self):
        with open("/dev/full", "wb") as full:
            result = spry("tokenize", stdin=b"word " * 100, stdout=full)
        self.assertEqual(result.code, FAILURE)
        self.one_sentence(result, "No space left on device")
        reader, writer = os.pipe()
        os.close(reader)
        result = spry("tokenize", stdin=b"word " * 100000, stdout=writer)
        os.close(writer)
        self.assertEqual((result.code, result.err), (READER_LEFT, b""))


def floats(data):
    values = array.array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


class Logits(cli_support.CliTest):
    def golden(self, name):
        with open(os.path.join(MODELS, name, "golden.json"), encoding="utf-8") as file:
            golden = json.load(file)
        with open(os.path.join(MODELS, name, "golden.f32"), "rb") as file:
            return golden, floats(file.read())

    def close(self, got, wanted, what):
        self.assertEqual(len(got), len(wanted), what)
        scale = max(map(abs, wanted))
        worst = max(abs(a - b) for a, b in zip(got, wanted))
        self.assertLessEqual(worst, 1e-4 * scale, what)

    def test_golden_rows(self):
        for name in ("llama", "qwen3", "gemma3", "qwen2-moe"):
            golden, rows = self.golden(name)
            size = golden["vocab_size"]
            for case in golden["cases"][:2]:
                where = case["logit_rows"]
                begin = where["row_offset"]
                wanted = rows[begin * size : (begin + where["count"]) * size]
                ids = ",".join(map(str, case["ids"]))
                result = spry("logits", tiny(name), "--ids", ids, "--rows", "all", "--kv-type", "f32", "-o", "-")
                got = floats(self.succeeds(result).out)[where["first_token"] * size :]
                self.close(got[: len(wanted)], wanted, name)

    def test_last_row_is_the_last_of_all(self):
        ids = ["--ids", "49,80,349,507,261"]
        all_rows = self.succeeds(spry("logits", tiny("llama"), *ids, "--rows", "all", "-o", "-")).out
        last = self.succeeds(spry("logits", tiny("llama"), *ids, "-o", "-")).out
        self.assertEqual(len(all_rows), 5 * 512 * 4)
        self.assertEqual(last, all_rows[-512 * 4 :])

    def test_bits_do_not_depend_on_chunk_and_threads(self):
        ids = ["--ids", " ".join(str(3 + i * 37 % 500) for i in range(90))]
        wanted = spry("logits", tiny("qwen3"), *ids, "--rows", "all", "-o", "-").out
        for how in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "64", "--threads", "1"], ["--threads", "5"]):
            self.assertEqual(spry("logits", tiny("qwen3"), *ids, "--rows", "all", "-o", "-", *how).out, wanted, how)

    def test_kv_types_are_close(self):
        ids = ["--ids", " ".join(str(3 + i * 37 % 500) for i in range(40))]
        exact = floats(spry("logits", tiny("qwen3"), *ids, "--kv-type", "f32", "-o", "-").out)
        for kind, share in (("f16", 1e-2), ("q8_0", 1e-1)):
            other = floats(spry("logits", tiny("qwen3"), *ids, "--kv-type", kind, "-o", "-").out)
            scale = max(map(abs, exact))
            self.assertLess(max(abs(a - b) for a, b in zip(exact, other)), share * scale, kind)

    def test_ids_from_a_file_and_rows_to_a_file(self):
        folder = tempfile.mkdtemp(dir=HOME)
        ids, out = os.path.join(folder, "ids.json"), os.path.join(folder, "rows.f32")
        with open(ids, "w", encoding="utf-8") as file:
            file.write("[49, 80, 349]\n")
        self.succeeds(spry("logits", tiny("llama"), "--ids-file", ids, "-o", out))
        with open(out, "rb") as file:
            self.assertEqual(file.read(), spry("logits", tiny("llama"), "--ids", "49,80,349", "-o", "-").out)
        self.assertEqual(sorted(os.listdir(folder)), ["ids.json", "rows.f32"])

    def test_failures_leave_no_file(self):
        folder = tempfile.mkdtemp(dir=HOME)
        out = os.path.join(folder, "rows.f32")
        for arguments, words in ((["--ids", "1,512"], "512"), (["--ids", "3,40000"], "40000"), (["--ids", ""], "empty"),
                                 (["--ids", "1 2 z"], "'z'"), (["--ids-file", "/nowhere"], "/nowhere"),
                                 (["--ids", ",".join(["5"] * 600)], "600")):
            self.fails(spry("logits", tiny("llama"), *arguments, "-o", out), FAILURE, words)
        self.fails(spry("logits", tiny("llama"), "--ids", "1", "-o", "/nowhere/x"), FAILURE, "/nowhere/x")
        self.fails(spry("logits", tiny("llama"), "--ids", "1", "-o", folder), FAILURE, "folder")
        self.assertEqual(os.listdir(folder), [])

    def test_vocabulary_size_is_in_the_sentence(self):
        self.fails(spry("logits", tiny("llama"), "--ids", "777", "-o", "-"), FAILURE, "777", "512")

    def test_full_disk_and_closed_pipe(self):
        ids = ["--ids", ",".join(["5"] * 100), "--rows", "all", "-o", "-"]
        with open("/dev/full", "wb") as full:
            result = spry("logits", tiny("llama"), *ids, stdout=full)
        self.assertEqual(result.code, FAILURE)
        self.one_sentence(result, "No space left on device")
        process = start("logits", tiny("llama"), *ids)
        process.stdout.read(1)
        process.stdout.close()
        self.assertEqual((process.stderr.read(), process.wait()), (b"", READER_LEFT))
        process.stdin.close()
        process.stderr.close()


if __name__ == "__main__":
    cli_support.main()
