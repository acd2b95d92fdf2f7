"""A tiny GGUF model that always says the same: the next token depends on the last one only.

Its thought and its answer are given in pieces, each a token. Where the template is asked not to think, it answers at once."""

import struct

SIZE = 384  # of the embedding, one place for each token
TEMPLATE = ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if enable_thinking is defined and not enable_thinking %}<|plain|>{% else %}<|answer|>{% endif %}")
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5


def text(value):
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def byte_letters():
    """The letters that stand for bytes in vocabularies of this kind."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain}
    letters.update({b: chr(256 + i) for i, b in enumerate(others)})
    return letters


def write(path, thought, answer):
    letters = byte_letters()
    spell = lambda piece: "".join(letters[b] for b in piece.encode("utf-8"))
    tokens = [letters[b] for b in range(256)] + ["<|answer|>", "<|plain|>", "<|end|>", "ab"]
    kinds = [1] * 256 + [3, 3, 3, 1]
    begin, plain, end = 256, 257, 258
    follows = {}
    last = begin
    for piece in (["<think>"] + thought + ["</think>"] if thought else []) + [None] + answer:
        if piece is None:
            last = (last, plain)
            continue
        tokens.append(piece if piece.endswith("think>") else spell(piece))
        kinds.append(4 if piece.endswith("think>") else 1)
        for one in last if isinstance(last, tuple) else (last,):
            follows[one] = len(tokens) - 1
        last = len(tokens) - 1
    follows[last] = end
    assert len(tokens) <= SIZE
    facts = [("general.architecture", STRING, text("llama")), ("general.name", STRING, text("scripted"))]
    for name, value in (("block_count", 1), ("context_length", 4096), ("embedding_length", SIZE), ("feed_forward_length", 32),
                        ("attention.head_count", 2), ("attention.head_count_kv", 2)):
        facts.append(("llama." + name, U32, struct.pack("<I", value)))
    facts.append(("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)))
    facts.append(("tokenizer.ggml.model", STRING, text("gpt2")))
    facts.append(("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, len(tokens)) + b"".join(map(text, tokens))))
    facts.append(("tokenizer.ggml.token_type", ARRAY, struct.pack("<IQ%di" % len(kinds), I32, len(kinds), *kinds)))
    facts.append(("tokenizer.ggml.merges", ARRAY, struct.pack("<IQ", STRING, 1) + text("a b")))
    facts.append(("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", end)))
    facts.append(("tokenizer.chat_template", STRING, text(TEMPLATE)))

    def rows(places, count, width=SIZE):
        data = bytearray(4 * count * width)
        for row, column in places:
            struct.pack_into("<f", data, 4 * (row * width + column), 10.0)
        return bytes(data)

    ones = struct.pack("<%df" % SIZE, *[1.0] * SIZE)
    n = len(tokens)
    tensors = [("token_embd.weight", (SIZE, n), rows([(t, t) for t in range(n)], n)), ("output_norm.weight", (SIZE,), ones),
               ("output.weight", (SIZE, n), rows([(after, t) for t, after in follows.items()], n)),
               ("blk.0.attn_norm.weight", (SIZE,), ones), ("blk.0.ffn_norm.weight", (SIZE,), ones)]
    for name, inner, outer in (("attn_q", SIZE, SIZE), ("attn_k", SIZE, SIZE), ("attn_v", SIZE, SIZE), ("attn_output", SIZE, SIZE),
                               ("ffn_gate", SIZE, 32), ("ffn_up", SIZE, 32), ("ffn_down", 32, SIZE)):
        tensors.append(("blk.0.%s.weight" % name, (inner, outer), bytes(4 * inner * outer)))
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(facts))
    for name, kind, value in facts:
        head += text(name) + struct.pack("<I", kind) + value
    offset = 0
    for name, shape, data in tensors:
        head += text(name) + struct.pack("<I%dQ" % len(shape), len(shape), *shape) + struct.pack("<IQ", 0, offset)
        offset += (len(data) + 31) // 32 * 32
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for _, _, data in tensors:
            file.write(data + bytes(-len(data) % 32))
