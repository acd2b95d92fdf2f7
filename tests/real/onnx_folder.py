"""A language model in ONNX, with matrices in 8 bits, as a Hugging Face folder: protobuf read field by field, matrices found
by the names of the nodes that multiply with them, and written as safetensors in 32-bit floats."""

import json
import os
import re
import shutil
import struct


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, at = varint(data, at)
            value = data[at:at + size]
            at += size
        yield key >> 3, value


def tensor(message):
    """The name, the dimensions and the bytes of a TensorProto; small ones have their value apart."""
    name, dims, raw = "", [], b""
    for number, value in fields(message):
        if number == 1:
            dims.append(value)
        elif number == 8:
            name = bytes(value).decode()
        elif number in (4, 9):  # floats, or any bytes
            raw = bytes(value)
        elif number == 5:  # integers
            numbers = []
            at = 0
            while not isinstance(value, int) and at < len(value):
                one, at = varint(value, at)
                numbers.append(one & 255)
            raw = bytes([value & 255] if isinstance(value, int) else numbers)
    return name, dims, raw


def read(path):
    """The initializers, and for each the name of the node that uses it."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    graph = next(value for number, value in fields(data) if number == 7)
    tensors, users = {}, {}
    for number, value in fields(graph):
        if number == 5:
            name, dims, raw = tensor(value)
            tensors[name] = (dims, raw)
        elif number == 1:
            inputs = [bytes(text).decode() for part, text in fields(value) if part == 1]
            name = next((bytes(text).decode() for part, text in fields(value) if part == 3), "")
            users.update({one: name for one in inputs})
    return tensors, users


def floats(tensors, name, signed):
    """A quantised tensor's values as bytes of floats, in file order, one string of 4 bytes a value."""
    dims, raw = tensors[name + "_quantized"]
    scale = struct.unpack("<f", tensors[name + "_scale"][1])[0]
    zero = (tensors[name + "_zero_point"][1] or b"\0")[0]

    def level(byte):
        return byte - 256 if signed and byte > 127 else byte

    table = [struct.pack("<f", (level(byte) - level(zero)) * scale) for byte in range(256)]
    return dims, raw, table


def write(folder, source):
    """`source` is the package's folder; `folder` is made."""
    tensors, users = read(os.path.join(source, "onnx", "model_quantized.onnx"))
    out = {}
    for name, (dims, raw) in tensors.items():
        if name.endswith("norm.weight"):
            out[name] = (dims, raw)
        elif name.endswith("embed_tokens.weight_quantized"):
            dims, raw, table = floats(tensors, name[:-len("_quantized")], False)
            out[name[:-len("_quantized")]] = (dims, b"".join(map(table.__getitem__, raw)))
        elif name.endswith("_quantized"):
            (n_in, n_out), raw, table = floats(tensors, name[:-len("_quantized")], True)
            path = re.match(r"/(.*)/MatMul", users[name]).group(1).replace("/", ".")
            rows = b"".join(raw[o::n_out] for o in range(n_out))
            out[path + ".weight"] = ([n_out, n_in], b"".join(map(table.__getitem__, rows)))
    head, at = {}, 0
    for name, (dims, raw) in out.items():
        head[name] = {"dtype": "F32", "shape": dims, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(head).encode()
    os.makedirs(folder)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, raw in out.values():
            file.write(raw)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config["tie_word_embeddings"] = "lm_head.weight" not in out
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(source, name), folder)
