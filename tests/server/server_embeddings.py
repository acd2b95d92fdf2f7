"""Embeddings, as OpenAI's and Ollama's clients ask for them."""

import base64
import http.client
import json
import signal
import os
import shutil
import struct
import tempfile
import threading
import time
import unittest

import server_support
from server_support import MODEL, Server, ServerTest, eventually, once_of

TALES = ["Once upon a time there was a little girl named Lily.", "There once was a small girl, and her name was Lily.",
         "The truck is red."]
MANY = ["Once upon a time. " * 60] * 2000  # takes longer than any test waits


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class Embeddings(ServerTest):
    arguments = ("--verbose", "--context", "512")

    def ask(self, texts, **fields):
        reply = self.server.post("/v1/embeddings", dict({"model": MODEL, "input": texts}, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def vectors(self, texts, **fields):
        data = self.ask(texts, **fields)["data"]
        self.assertEqual([entry["index"] for entry in data], list(range(len(data))))
        return [entry["embedding"] for entry in data]

    def ids(self, text):
        return self.server.post("/tokenize", {"content": text, "add_special": True}).json["tokens"]

    def test_form(self):
        reply = self.ask(TALES)
        tokens = sum(len(self.ids(text)) for text in TALES)
        self.assertEqual(sorted(reply), ["data", "model", "object", "timings", "usage"])
        self.assertEqual((reply["object"], reply["model"]), ("list", MODEL))
        self.assertEqual(reply["usage"], {"prompt_tokens": tokens, "total_tokens": tokens})
        self.assertEqual([entry["object"] for entry in reply["data"]], ["embedding"] * 3)
        for entry in reply["data"]:
            self.assertAlmostEqual(dot(entry["embedding"], entry["embedding"]), 1, places=5)

    def test_every_way_to_say_it(self):
        first, second, third = self.vectors(TALES)
        self.assertEqual(self.vectors(TALES[0]), [first])
        self.assertEqual(self.vectors(self.ids(TALES[0])), [first])
        self.assertEqual(self.vectors([self.ids(TALES[0]), self.ids(TALES[1])]), [first, second])
        self.assertEqual(self.vectors(TALES[2], encoding_format="float", dimensions=len(third)), [third])
        for text, vector in zip(self.vectors(TALES, encoding_format="base64"), (first, second, third)):
            data = base64.b64decode(text, validate=True)
            floats = list(struct.unpack("<%df" % len(vector), data))
            self.assertEqual(floats, [struct.unpack("<f", struct.pack("<f", x))[0] for x in vector])
        self.assertGreater(dot(first, second), dot(first, third))

    def test_ollama(self):
        wanted = self.vectors(TALES)
        reply = self.server.post("/api/embed", {"model": MODEL + ":latest", "input": TALES}).json
        self.assertEqual((reply["model"], reply["embeddings"]), (MODEL, wanted))
        self.assertEqual(reply["prompt_eval_count"], sum(len(self.ids(text)) for text in TALES))
        self.assertGreater(reply["total_duration"], 0)
        self.assertEqual(self.server.post("/api/embed", {"model": MODEL, "input": TALES[1]}).json["embeddings"],
                         wanted[1:2])
        self.assertEqual(self.server.post("/api/embeddings", {"model": MODEL, "prompt": TALES[2]}).json,
                         {"embedding": wanted[2]})
        self.assertEqual(self.server.post("/api/embed", {"model": MODEL}).json["embeddings"], [])
        self.assertEqual(self.server.post("/api/embeddings", {"model": MODEL, "prompt": ""}).json, {"embedding": []})

    @once_of(5)
    def test_timings(self):
        for path, body in (("/v1/embeddings", {"input": TALES * 20}), ("/api/embed", {"model": MODEL, "input": TALES * 20})):
            began = time.monotonic()
            timings = self.server.post(path, body).json["timings"]
            wall_ms = (time.monotonic() - began) * 1e3
            self.assertAlmostEqual(sum(timings["parts_ms"].values()), timings["total_ms"], delta=0.02 * timings["total_ms"])
            self.assertLessEqual(timings["total_ms"], wall_ms)
            self.assertLessEqual({"read", "tokenize", "prefill", "write"}, set(timings["parts_ms"]))
            self.assertEqual(max(timings["parts_ms"], key=timings["parts_ms"].get), "prefill")
            self.assertEqual(timings["prompt_tokens"], 20 * sum(len(self.ids(text)) for text in TALES))
            self.assertNotEqual(timings["energy"] is None, "why_no_energy" not in timings)

    def test_too_long(self):
        long = "Once upon a time. " * 150
        self.refused(self.server.post("/v1/embeddings", {"input": ["Hi.", long]}), 400, "input[1]", "512")
        self.assertEqual(self.server.post("/api/embed", {"model": MODEL, "input": long}).json["prompt_eval_count"], 512)
        reply = self.server.post("/api/embed", {"model": MODEL, "input": long, "truncate": False})
        self.assertEqual(reply.status, 400)
        self.assertIn("512", reply.json["error"])

    def test_refused(self):
        for body, words in (({}, ["input"]), ({"input": 5}, ["input"]), ({"input": []}, ["input"]),
                            ({"input": ["x", 5]}, ["input[1]"]), ({"input": [5, "x", None]}, ["input[0]", "ids[0]"]),
                            ({"input": [10 ** 6]}, ["1000000"]), ({"input": [-1]}, ["ids[0]"]),
                            ({"input": [2 ** 40]}, ["ids[0]"]), ({"input": [[]]}, ["input[0]", "empty"]),
                            ({"input": [1] * 601}, ["input[0]", "601 tokens", "512"]),
                            ({"input": ["x"] * 2049}, ["2049", "2048"]), ({"input": {"a": 1}}, ["input"]),
                            ({"input": "x", "encoding_format": "hex"}, ["encoding_format"]),
                            ({"input": "x", "dimensions": 7}, ["dimensions", "7"])):
            with self.subTest(body=str(body)[:60]):
                self.refused(self.server.post("/v1/embeddings", body), 400, *words)
        self.refused(self.server.post("/v1/embeddings", {"model": "nobody", "input": "x"}), 404, "nobody")
        for path in ("/api/embed", "/api/embeddings"):
            reply = self.server.post(path, {"input": "x", "prompt": "x"})
            self.assertEqual((reply.status, reply.json), (400, {"error": "model is missing"}))
        self.alive()

    def test_company(self):
        """Next to answers and log probabilities of prompts: the same embeddings, and no request is refused."""
        wanted = self.vectors(TALES)
        answer = self.server.chat(max_tokens=30).json["choices"]
        scores = {"prompt": "Once upon a time. " * 20, "echo": True, "logprobs": 1, "max_tokens": 0}
        echoed = self.server.post("/v1/completions", scores).json["choices"]
        wrong = []

        def expect(what, wanted_so):
            got = what()
            if got != wanted_so:
                wrong.append(got)

        jobs = [(lambda: self.vectors(TALES), wanted), (lambda: self.server.chat(max_tokens=30).json["choices"], answer),
                (lambda: self.server.post("/v1/completions", scores).json["choices"], echoed)] * 4
        threads = [threading.Thread(target=expect, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_texts_of_a_request_share_steps(self):
        """All texts of a request are submitted at once; their embeddings come in order, the same as one by one."""
        texts = ["A %s tale of %d trees." % (word, n) for n in range(20) for word in ("long", "short", "merry")]
        wanted = [self.vectors(text)[0] for text in texts]
        steps = []
        for _ in range(10):  # the engine may be quicker than a busy machine submits
            before = self.server.metric("spry_steps_total")
            self.assertEqual(self.vectors(texts), wanted)
            steps.append(self.server.metric("spry_steps_total") - before)
            if steps[-1] < len(texts) / 2:
                return
        self.fail(steps)

    def test_metrics(self):
        before = self.server.metric("spry_prompt_tokens_total") or 0
        used = self.ask(TALES)["usage"]["prompt_tokens"]
        self.assertEqual(self.server.metric("spry_prompt_tokens_total"), before + used)

    def test_a_client_that_leaves(self):
        """A client that disconnects does not keep the model busy."""
        body = json.dumps({"input": MANY})
        connection = self.server.connect()
        before = self.server.metric("spry_steps_total") or 0
        connection.request("POST", "/v1/embeddings", body)
        self.assertTrue(eventually(lambda: (self.server.metric("spry_steps_total") or 0) > before))
        connection.close()
        failed = lambda: "the client has disconnected" in "".join(self.server.log)
        self.assertTrue(eventually(failed))
        self.alive()


class Encoder(ServerTest):
    """A folder of BERT's kind with sentence-transformers' settings."""

    folder = tempfile.mkdtemp()
    model = os.path.join(folder, "tiny")
    arguments = (model, "--kv-type", "f32")

    @classmethod
    def setUpClass(cls):
        shutil.copytree(os.path.join(os.path.dirname(__file__), "..", "data", "models", "bert"), cls.model)
        kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
        modules = [{"idx": i, "type": "sentence_transformers.models." + kind, "path": path} for i, (kind, path) in enumerate(kinds)]
        os.mkdir(os.path.join(cls.model, "1_Pooling"))
        for name, value in (("modules.json", modules), ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
                            ("config_sentence_transformers.json", {"prompts": {"query": "the "}})):
            with open(os.path.join(cls.model, name), "w", encoding="utf-8") as file:
                json.dump(value, file)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.folder)

    def vectors(self, texts, **fields):
        reply = self.server.post("/v1/embeddings", dict({"model": "tiny", "input": texts}, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return [entry["embedding"] for entry in reply.json["data"]]

    def test_recorded(self):
        """The first token's hidden state, of length 1, is what transformers gave."""
        with open(os.path.join(self.model, "golden.json"), encoding="utf-8") as file:
            golden = json.load(file)
        with open(os.path.join(self.model, "golden.f32"), "rb") as file:
            rows = file.read()
        at, width = 0, golden["hidden_size"]
        vectors = self.vectors([case["prompt"] for case in golden["cases"]])
        for case, vector in zip(golden["cases"], vectors):
            row = struct.unpack_from("<%df" % width, rows, at * width * 4)
            at += len(case["ids"])
            self.assertAlmostEqual(dot(vector, row) / dot(row, row) ** 0.5, 1, places=5)
        again = self.server.post("/api/embed", {"model": "tiny", "input": [case["prompt"] for case in golden["cases"]]})
        self.assertEqual(again.json["embeddings"], vectors)

    def test_prompts(self):
        self.assertEqual(self.vectors("fox", prompt_name="query"), self.vectors("the fox"))
        self.assertNotEqual(self.vectors("fox", prompt_name="query"), self.vectors("fox"))
        reply = self.server.post("/v1/embeddings", {"model": "tiny", "input": "fox", "prompt_name": "answer"})
        self.assertEqual(reply.status, 400)
        self.assertIn("answer", reply.text)

    def test_batches(self):
        texts = ["a small fox %d" % i for i in range(300)] + ["the dog " * 60]
        vectors = self.vectors(texts)
        self.assertEqual(vectors[7], self.vectors(texts[7])[0])
        self.assertEqual(vectors[-1], self.vectors(texts[-1])[0])

    def test_no_answers(self):
        reply = self.server.post("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]})
        self.assertGreaterEqual(reply.status, 400)
        self.assertIn("embeddings", reply.text)
        self.assertEqual(self.server.post("/api/show", {"model": "tiny"}).json["capabilities"], ["embedding"])
        self.assertEqual(self.server.post("/v1/embeddings", {"model": "tiny", "input": "dog " * 2000}).status, 400)


class Crowded(ServerTest):
    """A queue that is shorter than a request has texts."""

    arguments = ("--parallel", "2", "--queue", "1")

    def test_waits_for_its_own(self):
        texts = ["The %d trucks are red." % n for n in range(30)]
        data = self.server.post("/v1/embeddings", {"input": texts}).json["data"]
        self.assertEqual([entry["index"] for entry in data], list(range(30)))
        one = self.server.post("/v1/embeddings", {"input": texts[17]}).json["data"][0]["embedding"]
        self.assertEqual(data[17]["embedding"], one)


class Impatient(ServerTest):
    arguments = ("--answer-timeout", "1")

    def test_late(self):
        self.refused(self.server.post("/v1/embeddings", {"input": MANY}), 504, "longer")


class Leaving(ServerTest):
    arguments = ("--parallel", "32", "--threads", "1", "--chunk", "512")

    def steps(self):
        return self.server.metric("spry_steps_total") or 0

    def test_texts_of_a_client_that_left_take_no_steps(self):
        self.alive()
        first = self.steps()
        connection = self.server.connect()
        connection.request("POST", "/v1/embeddings", json.dumps({"input": MANY}))
        self.assertTrue(eventually(lambda: self.steps() > first + 4))
        connection.close()
        rest = lambda: self.server.metric("spry_requests_running") + self.server.metric("spry_requests_waiting")
        self.assertTrue(eventually(lambda: rest() == 0))
        self.assertLess(self.steps() - first, len(MANY) / 4)  # a text is longer than half a chunk


class Going(unittest.TestCase):
    def test_the_end_does_not_wait(self):
        for path, body in (("/v1/embeddings", {"input": MANY}), ("/v1/rerank", {"query": "a", "documents": MANY})):
            server = Server("--grace", "0")
            connection = server.connect()
            warmed = server.metric("spry_steps_total") or 0
            connection.request("POST", path, json.dumps(body))
            self.assertTrue(eventually(lambda: (server.metric("spry_steps_total") or 0) > warmed))
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(connection.getresponse().status, 503, path)
            connection.close()
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
