#!/usr/bin/env python3
"""Usage: vision_shape.py SPRY FOLDER. Writes a model of Qwen3-VL-2B's shape with random weights for measurements: FOLDER/model.gguf
(Q4_K_M), FOLDER/mmproj.gguf (a tower of F16) and pictures of 512 x 512 pixels, FOLDER/p0.png to p5.png. llama.cpp reads them, too."""

import base64
import os
import random
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tests", folder) for folder in ("cli", "server")]
FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
MARKS = (b"<|vision_start|>", b"<|vision_end|>", b"<|image_pad|>", b"<|im_start|>", b"<|im_end|>", b"<|endoftext|>")
TEMPLATE = (b"{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
            b"{% if p.type == 'text' %}{{ p.text }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}{% endif %}"
            b"<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def take_text(file):
    return file.read(struct.unpack("<Q", file.read(8))[0])


def take(file, kind):
    if kind == 8:
        return take_text(file)
    if kind == 9:
        inner, n = struct.unpack("<IQ", file.read(12))
        return inner, [take(file, inner) for _ in range(n)]
    return struct.unpack("<" + FORMS[kind], file.read(struct.calcsize(FORMS[kind])))[0]


def put(value, kind):
    if kind == 8:
        return struct.pack("<Q", len(value)) + value
    if kind == 9:
        return struct.pack("<IQ", value[0], len(value[1])) + b"".join(put(x, value[0]) for x in value[1])
    return struct.pack("<" + FORMS[kind], value)


def write_text(source, path):
    """The text model: Qwen3's with the names, axes and tokens of Qwen3-VL."""
    with open(source, "rb") as file:
        assert file.read(4) == b"GGUF"
        version, n_tensors, n_keys = struct.unpack("<IQQ", file.read(20))
        facts = {}
        for _ in range(n_keys):
            key = take_text(file)
            kind, = struct.unpack("<I", file.read(4))
            facts[key.replace(b"qwen3.", b"qwen3vl.")] = kind, take(file, kind)
        infos = []
        for _ in range(n_tensors):
            name = take_text(file)
            n, = struct.unpack("<I", file.read(4))
            infos.append(put(name, 8) + struct.pack("<I", n) + file.read(8 * n + 12))
        facts[b"general.architecture"] = 8, b"qwen3vl"
        tokens, gone = facts[b"tokenizer.ggml.tokens"][1][1], set()
        for i, mark in enumerate(MARKS):
            if mark not in tokens:
                gone.add(tokens[-1 - i])
                tokens[-1 - i] = mark
            facts[b"tokenizer.ggml.token_type"][1][1][tokens.index(mark)] = 3
        merges = [m for m in facts[b"tokenizer.ggml.merges"][1][1]
                  if m.replace(b" ", b"", 1) not in gone and not gone.intersection(m.split(b" "))]
        facts[b"tokenizer.ggml.merges"] = 9, (8, merges)
        facts[b"qwen3vl.rope.dimension_sections"] = 9, (5, [24, 20, 20, 0])
        facts[b"qwen3vl.n_deepstack_layers"] = 4, 3
        facts[b"tokenizer.chat_template"] = 8, TEMPLATE
        head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, len(facts))
        head += b"".join(put(key, 8) + struct.pack("<I", kind) + put(value, kind) for key, (kind, value) in facts.items())
        head += b"".join(infos)
        file.seek(-(-file.tell() // 32) * 32)
        with open(path, "wb") as out:
            out.write(head + bytes(-len(head) % 32))
            while block := file.read(1 << 24):
                out.write(block)


def write_tower(path):
    import cli_mmproj
    width, ff, layers, patch, text = 1024, 4096, 24, 16, 2048
    deep = (5, 11, 17)
    tensors = []

    def matrix(name, *shape):
        tensors.append((name, 1, shape))

    def vector(name, n, ones=False):
        tensors.append((name, 2 if ones else 0, (n,)))

    for name in "v.patch_embd.weight", "v.patch_embd.weight.1":
        matrix(name, width, 3, patch, patch)
    vector("v.patch_embd.bias", width)
    tensors.append(("v.position_embd.weight", 0, (2304, width)))
    for i in range(layers):
        for norm in "ln1", "ln2":
            vector("v.blk.%d.%s.weight" % (i, norm), width, True)
            vector("v.blk.%d.%s.bias" % (i, norm), width)
        for name, n_out, n_in in (("attn_qkv", 3 * width, width), ("attn_out", width, width), ("ffn_up", ff, width), ("ffn_down", width, ff)):
            matrix("v.blk.%d.%s.weight" % (i, name), n_out, n_in)
            vector("v.blk.%d.%s.bias" % (i, name), n_out)
    vector("v.post_ln.weight", width, True)
    vector("v.post_ln.bias", width)
    for first, second in [("mm.0", "mm.2")] + [("v.deepstack.%d.fc1" % i, "v.deepstack.%d.fc2" % i) for i in deep]:
        for name, n_out in (first, 4 * width), (second, text):
            matrix(name + ".weight", n_out, 4 * width)
            vector(name + ".bias", n_out)
    for i in deep:
        vector("v.deepstack.%d.norm.weight" % i, 4 * width, True)
        vector("v.deepstack.%d.norm.bias" % i, 4 * width)
    facts = {"general.architecture": "clip", "clip.has_vision_encoder": True, "clip.projector_type": "qwen3vl_merger", "general.file_type": 1,
             "clip.vision.projection_dim": text, "clip.vision.image_size": 768, "clip.vision.patch_size": patch,
             "clip.vision.embedding_length": width, "clip.vision.feed_forward_length": ff, "clip.vision.block_count": layers,
             "clip.vision.attention.head_count": 16, "clip.vision.attention.layer_norm_epsilon": 1e-6, "clip.vision.image_mean": [0.5] * 3,
             "clip.vision.image_std": [0.5] * 3, "clip.use_gelu": True, "clip.vision.spatial_merge_size": 2,
             "clip.vision.is_deepstack_layers": [i in deep for i in range(layers)]}
    chance = random.Random(1)
    blocks = [b"".join(struct.pack("<f", chance.gauss(0, 0.03)) for _ in range(1 << 14)),
              b"".join(struct.pack("<e", chance.gauss(0, 0.03)) for _ in range(1 << 18)), struct.pack("<f", 1) * (1 << 14)]
    head, places, at = b"", [], 0
    for name, form, shape in tensors:
        size = 2 if form == 1 else 4
        for n in shape:
            size *= n
        at += -at % 32
        head += cli_mmproj.text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape[::-1], form == 1, at)
        places.append((at, size, blocks[form]))
        at += size
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)) + b"".join(cli_mmproj.entry(k, v) for k, v in facts.items()) + head
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        base = out.tell()
        for at, size, block in places:
            out.write(bytes(base + at - out.tell()))
            for _ in range(size // len(block)):
                out.write(block)
            out.write(block[:size % len(block)])


def main():
    spry, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    text = os.path.join(folder, "text.gguf")
    subprocess.run([spry, "bench", "--shape", "qwen3-1.7b", "--type", "q4_k_m", "--write", text], check=True)
    write_text(text, os.path.join(folder, "model.gguf"))
    os.remove(text)
    write_tower(os.path.join(folder, "mmproj.gguf"))
    import server_support
    server_support.main = lambda: None  # which server_pictures calls
    import server_pictures
    for i in range(6):
        with open(os.path.join(folder, "p%d.png" % i), "wb") as out:
            out.write(base64.b64decode(server_pictures.png(512, 512, i)))


main()
