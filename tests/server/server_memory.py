"""Memory of a server: what it takes after loading, under work and when idle again; limits and use are told apart."""

import json
import os
import struct
import tempfile

import server_support
from server_support import Server, ServerTest, tiny

MIB = 1 << 20
IDLE_S, SHARE = 2, 10
TEXTS = ["".join("Tale %d has %d pages and %d words. " % (i, k, i * k) for k in range(90)) for i in range(12)]


def anonymous(server):
    """Bytes of the server's own memory: without mapped files."""
    with open("/proc/%d/smaps_rollup" % server.process.pid) as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) * 1024


class Idle(server_support.unittest.TestCase):
    def ask(self, text):
        reply = self.server.post("/completion", {"prompt": text, "n_predict": 8, "temperature": 0})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def held(self):
        return self.server.metric("spry_kv_held_bytes")

    def test_memory_returns_and_answers_stay(self):
        self.server = Server("--kv-idle", str(IDLE_S), "--kv-idle-share", str(SHARE), kv="512M")
        try:
            first = self.ask(TEXTS[0])
            loaded, limit = anonymous(self.server), self.server.metric("spry_kv_bytes")
            self.assertGreater(limit, 500 * MIB)
            answers = [self.ask(text)["content"] for text in TEXTS]
            worked, held = anonymous(self.server), self.held()
            self.assertGreater(held, limit * SHARE / 100)
            self.assertGreater(worked - loaded, held / 2)
            self.assertTrue(server_support.eventually(lambda: self.held() < held / 2))
            idle = self.held()
            self.assertLessEqual(idle, limit * SHARE / 100)
            self.assertGreater(idle, 0)  # the share stays cached
            self.assertLess(anonymous(self.server), loaded + idle + 16 * MIB)
            memory = self.server.get("/props").json["memory"]
            self.assertEqual((memory["kv_used"], memory["kv_limit"]), (idle, limit))
            self.assertLess(memory["used"], memory["limit"] - limit / 2)
            shown = [model for model in self.server.get("/api/ps").json["models"] if model["size"] < model["size_limit"]]
            self.assertEqual([(model["size"], model["size_limit"]) for model in shown],
                             [(memory["used"], memory["limit"])])
            # Some are cached, most are computed again: the same answers.
            again = [self.ask(text) for text in reversed(TEXTS)]
            self.assertGreater(again[0]["timings"]["cache_n"], 0)
            self.assertLess(again[-1]["timings"]["cache_n"], 32)  # the common beginning of all
            self.assertEqual([answer["content"] for answer in reversed(again)], answers)
            self.assertEqual(first["content"], answers[0])
        finally:
            self.assertEqual(self.server.stop(), 0)


class Unloaded(server_support.unittest.TestCase):
    SIZE, LAYERS, WIDTH = 64, 8, 32768

    def write_fp8(self):
        """A checkpoint whose matrices are laid out anew when it is opened; their bytes."""
        with open(tiny("qwen3", "config.json")) as file:
            config = json.load(file)
        head = config["head_dim"]
        q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
        shapes = {"self_attn.q_proj": (q, self.SIZE), "self_attn.k_proj": (kv, self.SIZE),
                  "self_attn.v_proj": (kv, self.SIZE), "self_attn.o_proj": (self.SIZE, q),
                  "mlp.gate_proj": (self.WIDTH, self.SIZE), "mlp.up_proj": (self.WIDTH, self.SIZE),
                  "mlp.down_proj": (self.SIZE, self.WIDTH)}
        norms = {"input_layernorm": self.SIZE, "post_attention_layernorm": self.SIZE, "self_attn.q_norm": head,
                 "self_attn.k_norm": head}
        config.pop("layer_types", None)
        config.update(hidden_size=self.SIZE, intermediate_size=self.WIDTH, num_hidden_layers=self.LAYERS, tie_word_embeddings=True,
                      quantization_config={"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]})
        tensors, data = {}, []

        def put(name, kind, shape, size):
            begin = sum(map(len, data))
            data.append(bytes(size))
            tensors[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, begin + size]}

        put("model.embed_tokens.weight", "F32", [config["vocab_size"], self.SIZE], config["vocab_size"] * self.SIZE * 4)
        put("model.norm.weight", "F32", [self.SIZE], self.SIZE * 4)
        for layer in range(self.LAYERS):
            for name, (n_out, n_in) in shapes.items():
                scales = [-(-n_out // 128), -(-n_in // 128)]
                put("model.layers.%d.%s.weight" % (layer, name), "F8_E4M3", [n_out, n_in], n_out * n_in)
                put("model.layers.%d.%s.weight_scale_inv" % (layer, name), "F32", scales, scales[0] * scales[1] * 4)
            for name, size in norms.items():
                put("model.layers.%d.%s.weight" % (layer, name), "F32", [size], size * 4)
        folder = tempfile.mkdtemp(dir=server_support.HOME)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        os.symlink(tiny("qwen3", "tokenizer.json"), os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            text = json.dumps(tensors).encode("utf-8")
            file.write(struct.pack("<Q", len(text)) + text + b"".join(data))
        return folder, sum(n_out * n_in for n_out, n_in in shapes.values()) * self.LAYERS

    def test_copies_of_weights_go_back_to_the_system(self):
        if server_support.SANITIZED:
            print("SKIPPED %s: a sanitizer keeps freed memory" % self.id())
            self.skipTest("a sanitizer keeps freed memory")
        folder, size = self.write_fp8()
        server = Server("fp8=" + folder, "--draft", "none", device=("--device", "cpu"))
        try:
            for _ in range(2):
                self.assertEqual(server.post("/api/generate", {"model": "fp8", "stream": False}).status, 200)
                self.assertGreater(anonymous(server), size)
                self.assertEqual(server.post("/api/generate", {"model": "fp8", "keep_alive": 0, "stream": False}).status, 200)
                self.assertTrue(server_support.eventually(lambda: anonymous(server) < size / 2), anonymous(server))
        finally:
            self.assertEqual(server.stop(), 0)


class Never(ServerTest):
    arguments = ("--kv-idle", "0")

    def test_nothing_returns(self):
        self.server.chat()
        held = self.server.metric("spry_kv_held_bytes")
        server_support.time.sleep(1.5)
        self.assertEqual(self.server.metric("spry_kv_held_bytes"), held)
        self.assertGreater(held, 0)
        self.assertGreater(self.server.metric("spry_memory_bytes"), held)
        self.assertLess(self.server.metric("spry_memory_bytes"), self.server.metric("spry_pool_bytes"))

    def test_bad_values(self):
        for given in (("--kv-idle", "-1"), ("--kv-idle", "soon"), ("--kv-idle-share", "101")):
            result = server_support.spry("serve", *given, stdin=None)
            self.assertNotEqual(result.code, 0)
            self.assertIn(given[0], result.err.decode())


if __name__ == "__main__":
    server_support.main()
