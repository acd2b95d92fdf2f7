"""LoRA adapters as clients and the command line meet them: chosen by requests, several at once, merged."""

import json
import os
import random
import struct
import threading

from server_support import HOME, Server, ServerTest, main, spry, tiny

ONCE = {"prompt": "Once upon a", "n_predict": 12, "temperature": 0, "ignore_eos": True}


def make_adapter(name, seed, size=0.6):
    """An adapter of the tiny Llama's value and down projections, in Hugging Face's form."""
    numbers, tensors, data = random.Random(seed), {}, b""
    with open(tiny("llama", "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    n, ff = config["hidden_size"], config["intermediate_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    for layer in range(config["num_hidden_layers"]):
        for module, outputs, inputs in (("self_attn.v_proj", kv, n), ("mlp.down_proj", n, ff)):
            for part, shape in (("lora_A", (2, inputs)), ("lora_B", (outputs, 2))):
                values = [numbers.uniform(-size, size) for _ in range(shape[0] * shape[1])]
                end = len(data) + 4 * len(values)
                tensors["base_model.model.model.layers.%d.%s.%s.weight" % (layer, module, part)] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), end]}
                data += struct.pack("<%df" % len(values), *values)
    folder = os.path.join(HOME, name)
    os.makedirs(folder, exist_ok=True)
    head = json.dumps(tensors).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 2}, file)
    return folder


class Adapters(ServerTest):
    @classmethod
    def setUpClass(cls):
        one, two = make_adapter("one", 1), make_adapter("two", 2)
        cls.server = Server(tiny("llama"), "--lora", "%s=0,%s=0" % (one, two))
        cls.model = cls.server.get("/v1/models").json["data"][0]["id"]

    def ask(self, **fields):
        reply = self.server.post("/completion", dict(ONCE, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json["content"]

    def test_choices(self):
        plain, one, two = self.ask(), self.ask(lora="one"), self.ask(lora="two")
        self.assertEqual(len({plain, one, two}), 3)
        self.assertEqual(self.ask(lora=[]), plain)
        for same in ([{"id": 0, "scale": 1}], {"name": "one"}, ["one"], [{"name": "one", "scale": 1.0}, {"id": 1, "scale": 0}]):
            self.assertEqual(self.ask(lora=same), one, same)
        both = self.ask(lora=["one", {"name": "two", "scale": -0.5}])
        self.assertNotIn(both, (plain, one, two))
        for path, body, read in (("/v1/completions", {"prompt": "Once upon a", "max_tokens": 12}, lambda r: r["choices"][0]["text"]),
                                 ("/api/generate", {"model": self.model, "prompt": "Once upon a", "raw": True, "stream": False,
                                                    "options": {"num_predict": 12, "temperature": 0, "repeat_penalty": 1}},
                                  lambda r: r["response"])):
            reply = self.server.post(path, dict(body, temperature=0, ignore_eos=True, lora="one")
                                     if path[1] == "v" else dict(body, lora="one"))
            self.assertEqual(reply.status, 200, reply.text)
            self.assertTrue(one.startswith(read(reply.json)), path)

    def test_together(self):
        choices = [[], "one", "two", ["one", "two"], [{"id": 0, "scale": 0.5}], {"name": "two", "scale": 3}] * 2
        alone, together = [self.ask(lora=choice) for choice in choices], [None] * len(choices)

        def run(i):
            together[i] = self.ask(lora=choices[i])

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(choices))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_list_and_default(self):
        adapters = self.server.get("/lora-adapters").json
        self.assertEqual([(a["id"], a["name"], a["rank"], a["scale"]) for a in adapters], [(0, "one", 2, 0.0), (1, "two", 2, 0.0)])
        self.assertTrue(adapters[0]["path"].endswith("/one"))
        plain, two = self.ask(lora=[]), self.ask(lora="two")
        self.assertEqual(self.server.post("/lora-adapters", [{"id": 1, "scale": 1}]).json, {"success": True})
        self.assertEqual([a["scale"] for a in self.server.get("/lora-adapters").json], [0.0, 1.0])
        self.assertEqual((self.ask(), self.ask(lora=[])), (two, plain))
        self.assertEqual(self.server.post("/lora-adapters", []).status, 200)
        self.assertEqual(self.ask(), plain)

    def test_refused(self):
        for choice, word in (("three", "three"), ("one,two", "one,two"), ({"id": 7}, "7"), ({"scale": 1}, "lora"), ([1], "lora"),
                             ({"name": "one", "scale": "x"}, "lora"), ({"name": "one", "id": 0}, "lora"), ("", "lora"),
                             (["one", "one"], "twice"), ({"name": "one", "scale": 1e300}, "one")):
            self.refused(self.server.post("/completion", dict(ONCE, lora=choice)), 400, word)
        for body in ("{}", "x", "", '[{"id": 9, "scale": 1}]', "[3]"):
            self.assertEqual(self.server.post("/lora-adapters", body).status, 400, body)

    def test_command_line(self):
        adapter = os.path.join(HOME, "one")
        merged = os.path.join(HOME, "merged.gguf")
        run = ["run", "--raw", "-p", "Once upon a", "-n", "12", "--temperature", "0", "--ignore-end", "--kv-type", "f32"]
        self.assertEqual(spry("convert", tiny("llama"), merged, "--type", "f32", "--lora", adapter).code, 0)
        with_adapter = spry(*run, tiny("llama"), "--lora", adapter)
        self.assertEqual(with_adapter.code, 0, with_adapter.err)
        self.assertEqual(with_adapter.out, spry(*run, merged).out)
        self.assertNotEqual(with_adapter.out, spry(*run, tiny("llama")).out)
        wrong = spry(*run, tiny("qwen3"), "--lora", adapter)
        self.assertEqual((wrong.code != 0, b"adapter" in wrong.err), (True, True), wrong.err)
        self.assertNotEqual(spry("convert", tiny("llama"), merged, "--lora", adapter + "x").code, 0)


if __name__ == "__main__":
    main()
