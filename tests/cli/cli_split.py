"""GGUF files in parts: the same bits as whole ones, and parts that are missing, wrong or in disorder."""

import os
import shutil
import struct
import tempfile

import cli_support
from cli_support import FAILURE, HOME, spry, tiny

KINDS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
IDS = "1,2,3,44,55,66,77,300,200,100"


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def number(key, value, kind=4):
    return string(key) + struct.pack("<I", kind) + value.to_bytes(KINDS[kind], "little")


class Gguf:
    """A file taken apart: the bytes of its metadata entries, and its tensors."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 8
        n_tensors, self.n_entries = self.read("<QQ")
        begin = self.at
        for _ in range(self.n_entries):
            self.text()
            self.skip(self.read("<I")[0])
        self.entries = self.data[begin:self.at]
        self.tensors = []
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.read("<Q")[0] for _ in range(self.read("<I")[0])]
            self.tensors.append([name, dims, *self.read("<IQ")])
        start = (self.at + 31) // 32 * 32
        for tensor in self.tensors:
            size = 4
            for dim in tensor[1]:
                size *= dim
            tensor[3] = self.data[start + tensor[3]:start + tensor[3] + size]

    def read(self, kinds):
        values = struct.unpack_from(kinds, self.data, self.at)
        self.at += struct.calcsize(kinds)
        return values

    def text(self):
        size = self.read("<Q")[0]
        self.at += size
        return self.data[self.at - size:self.at]

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            inner, count = self.read("<IQ")
            for _ in range(count):
                self.skip(inner)
        else:
            self.at += KINDS[kind]


def write(path, entries, n_entries, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), n_entries) + entries
    body = b""
    for name, dims, kind, data in tensors:
        head += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims)
        head += struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + body)


class Split(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)
        self.whole = Gguf(tiny("llama"))

    def path(self, part, count=3):
        return os.path.join(self.folder, "model-%05d-of-%05d.gguf" % (part, count))

    def part(self, index, **changes):
        """Part `index` of three, from 0."""
        n = len(self.whole.tensors)
        keys = {"split.no": (index, 2), "split.count": (3, 2), "split.tensors.count": (n, 5), **changes}
        entries = b"".join(number(key, value, kind) for key, (value, kind) in keys.items())
        tensors = self.whole.tensors[n * index // 3:n * (index + 1) // 3]
        first = index == 0
        write(self.path(index + 1), (self.whole.entries if first else b"") + entries,
              (self.whole.n_entries if first else 0) + len(keys), tensors)

    def parts(self):
        for index in range(3):
            self.part(index)

    def logits(self, model):
        return self.succeeds(spry("logits", model, "--ids", IDS, "--rows", "all", "-o", "-")).out

    def test_the_same_bits(self):
        self.parts()
        expected = self.logits(tiny("llama"))
        self.assertEqual(self.logits(self.path(1)), expected)
        self.assertEqual(self.logits(self.folder), expected)  # the folder that holds them
        models = tempfile.mkdtemp(dir=HOME)
        shutil.copytree(self.folder, os.path.join(models, "parts"))
        result = self.succeeds(spry("run", "parts", "-p", "x", "-n", "2", "--json", "--models-dir", models))
        self.assertEqual(result.json["model"], "parts")
        self.assertIn("parts", self.succeeds(spry("models", "--models-dir", models)).text)
        one = os.path.join(self.folder, "one.gguf")
        self.succeeds(spry("convert", self.path(1), one, "--type", "f32"))
        self.assertEqual(self.logits(one), expected)
        self.assertFalse([key for key in spry("inspect", one, "--json").json["metadata"] if key.startswith("split")])

    def refused(self, *words):
        self.fails(spry("logits", self.path(1), "--ids", IDS, "-o", "-"), FAILURE, *words)

    def test_parts_that_are_wrong(self):
        self.parts()
        self.fails(spry("logits", self.path(2), "--ids", IDS, "-o", "-"), FAILURE, "open the first")
        os.rename(self.path(3), self.path(3) + ".gone")
        self.refused("00003-of-00003", "No such file")
        shutil.copy(self.path(2), self.path(3))
        self.refused("split.no must be 2")
        self.part(2, **{"split.no": (2, 2), "split.tensors.count": (7, 5)})
        self.part(0, **{"split.tensors.count": (7, 5)})
        self.refused("split.tensors.count says 7")
        self.part(0, **{"split.count": (60000, 2)})
        self.refused("open the first")
        self.part(0, **{"split.count": (1 << 31, 4)})
        self.refused("split.count is 2147483648")
        self.parts()
        entries = number("split.no", 2, 2) + number("split.count", 3, 2)
        write(self.path(3), entries, 2, self.whole.tensors[:1])
        self.refused("is in another part, too")
        with open(self.path(3), "wb") as file:
            file.write(b"GGUF")
        self.refused("00003-of-00003", "ends")


if __name__ == "__main__":
    cli_support.main()
