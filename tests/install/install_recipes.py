"""The recipes of docs/HOW_TO_ADD.md for a weight type and for a KV type, followed in a copy of the sources with types
of this test. The edits are in the files that the recipes name, at most as many as allowed, and the tests of kernels
find the types by themselves. Builds a part of the program: minutes."""

import os
import re
import shutil
import subprocess
import unittest

from install_support import CC, HOME, ROOT, main

PARTS = ("CMakeLists.txt", "cmake", "include", "src", "apps", "models", "examples", "docs", "bindings", "scripts", "tests")
TIMEOUT = 3600

# File: text after which, or instead of which, the new lines are inserted.
WEIGHT_TYPE = {
    "src/base/dtype.h": [
        ("#define SPRY_DTYPES_OWN(X) X(F8, f8, 47, 32, 36, 0)", " X(Q8_R, q8_r, 40, 32, 34, 0)")],
    "src/kernels/blocks.h": [
        ("} spry_block_q8_0;\n", """
/* scale * q, the last value first */
typedef struct spry_block_q8_r {
    spry_half scale;
    int8_t quants[32];
} spry_block_q8_r;
"""),
        ("    X(q8_0, Q8_0, 8, 0, 32, 4, 0, 0, 0)", "    X(q8_r, Q8_R, 8, 0, 32, 4, 0, 0, 0)")],
    "src/kernels/ref/decode_ref.c": [
        ("SPRY_DECODE_BLOCKS(q8_0, SPRY_BLOCK_SMALL)\n", """
static void block_q8_r(float *out, const spry_block_q8_r *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int i = 0; i < SPRY_BLOCK_SMALL; i++)
        out[i] = (float)block->quants[31 - i] * scale;
}
SPRY_DECODE_BLOCKS(q8_r, SPRY_BLOCK_SMALL)
""")],
    "src/device/cuda/kernels/repack.cu": [
        ("    return (uint8_t)block_at<spry_block_q8_0>(row, i, 32)->quants[i % 32];\n}\n", """
SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q8_r)
{
    return (uint8_t)block_at<spry_block_q8_r>(row, i, 32)->quants[31 - i % 32];
}
"""),
        ("FILE_SCALE(type_q8_0, file_scale_only<spry_block_q8_0>(scale, row, input))\n",
         "FILE_SCALE(type_q8_r, file_scale_only<spry_block_q8_r>(scale, row, input))\n")],
}
WEIGHT_TESTS = {
    "tests/check/naive_types.c": [
        ("    case SPRY_Q8_0: return exact(magnitude, half_at(b) * (signed char)b[2 + i]);\n",
         "    case SPRY_Q8_R: return exact(magnitude, half_at(b) * (signed char)b[33 - i]);\n"),
        ("        {SPRY_Q8_0, {0, -1}},", "        {SPRY_Q8_R, {0, -1}},")],
}
KV_TYPE = {
    "src/base/kv_types.h": [("X(f32, F32)", " X(bf16, BF16)")],
    "src/device/cuda/kernels/kv_pages.cuh": [
        ("struct kv_q8_0 {\n};\n", "struct kv_bf16 {\n};\n"),
        ("/* `token`: the address of the token's values. */\n", """
SPRY_DEVICE float load_key(const unsigned char *keys, uint32_t d, uint32_t token, uint32_t, kv_bf16)
{
    return float_of_bf16(((const uint16_t *)keys)[d * PAGE_TOKENS + token]);
}

SPRY_DEVICE float load_value(const unsigned char *token, uint32_t d, kv_bf16)
{
    return float_of_bf16(((const uint16_t *)token)[d]);
}

SPRY_DEVICE void store_coordinate(unsigned char *keys, uint32_t token, uint32_t d, float value, kv_bf16)
{
    ((uint16_t *)keys)[d * PAGE_TOKENS + token] = (uint16_t)bf16_bits(value);
}

SPRY_DEVICE void store_value(unsigned char *token, const float *head, uint32_t head_dim, int lane, kv_bf16)
{
    for (uint32_t d = (uint32_t)lane; d < head_dim; d += WARP)
        ((uint16_t *)token)[d] = (uint16_t)bf16_bits(head[d]);
}

""")],
}


def edit(folder, edits):
    for name, insertions in edits.items():
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for anchor, added in insertions:
            assert text.count(anchor) == 1, "%s has %d times %r" % (name, text.count(anchor), anchor)
            line = text.index(anchor) + len(anchor)
            if not added.startswith(" X") and not anchor.endswith("\n"):  # after the line of a list
                line = text.index("\n", line)
                added = "\n".join(["", *["%-119s\\" % row for row in added.rstrip("\n").split("\n")]]) \
                    if text[line - 1] == "\\" else "\n" + added
            text = text[:line] + added + text[line:]
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def run(*command, folder):
    process = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=TIMEOUT)
    assert process.returncode == 0, "%s\n%s" % (" ".join(command), process.stdout[-4000:])
    return process.stdout


def recipe(title):
    """The files that the steps of a recipe name, without optional steps."""
    with open(os.path.join(ROOT, "docs", "HOW_TO_ADD.md"), encoding="utf-8") as file:
        section = file.read().split("## " + title + "\n")[1].split("\n## ")[0]
    rows = [row for row in section.split("\n") if row.startswith("| ") and "(optional)" not in row]
    return set(re.findall(r"`((?:src|apps|include)/[\w/.]+)`", " ".join(rows)))


@unittest.skipUnless(shutil.which("c++"), "no C++ compiler for the emulated GPU")
class Recipes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.join(HOME, "recipes")
        os.makedirs(cls.folder)
        for part in PARTS:
            path = os.path.join(ROOT, part)
            if os.path.isdir(path):
                shutil.copytree(path, os.path.join(cls.folder, part), ignore=shutil.ignore_patterns("__pycache__"))
            elif os.path.exists(path):
                shutil.copy(path, cls.folder)
        for edits in (WEIGHT_TYPE, WEIGHT_TESTS, KV_TYPE):
            edit(cls.folder, edits)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        run("cmake", "-S", ".", "-B", "out", *generator, "-DCMAKE_C_COMPILER=" + CC, folder=cls.folder)
        run("cmake", "--build", "out", "--parallel", str(os.cpu_count()), "--target", "spry-check", "test_cuda_kernels",
            "test_cuda_attention", folder=cls.folder)

    def program(self, name, *arguments):
        for folder in ("out/tests", "out"):
            path = os.path.join(self.folder, folder, name)
            if os.path.exists(path):
                return run(path, *arguments, folder=self.folder)
        self.fail("%s was not built" % name)

    def test_weight_type(self):
        self.assertLessEqual(set(WEIGHT_TYPE), recipe("A tensor type"))
        self.assertLessEqual(len(WEIGHT_TYPE), 4)
        self.program("spry-check", "Q8_R")  # fails if nothing has this name
        self.assertIn("Q8_R", self.program("test_cuda_kernels", "imitated", "products_are_right*"))

    def test_kv_type(self):
        self.assertLessEqual(set(KV_TYPE), recipe("A type of keys and values"))
        self.assertLessEqual(len(KV_TYPE), 5)
        self.program("spry-check", "attend BF16")
        self.program("test_cuda_attention", "imitated", "attention_is_right*")


if __name__ == "__main__":
    main()
