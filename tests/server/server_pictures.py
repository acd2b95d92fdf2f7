"""Pictures in the requests of every API: the same picture gives the same answer in all of them, a second question finds it
in the cache, and models without eyes say which models have some."""

import base64
import http.server
import json
import os
import random
import shutil
import struct
import tempfile
import threading
import zlib

import server_support
from server_support import ROOT, Server, ServerTest

FOLDER = os.path.join(ROOT, "tests", "data", "models")
PICTURES = [base64.b64encode(open(os.path.join(FOLDER, "qwen3-vl", "image%d.png" % i), "rb").read()).decode() for i in (0, 1)]
QUESTION = "What is in the picture?"


def url(data, kind="image/png"):
    return "data:%s;base64,%s" % (kind, data)


def openai(*pictures, text=QUESTION):
    parts = [{"type": "image_url", "image_url": {"url": url(data)}} for data in pictures]
    return [{"role": "user", "content": parts + [{"type": "text", "text": text}]}]


def png(width, height, seed=1):
    """A PNG file of coloured squares, in base64."""
    chance = random.Random(seed)
    colours = [bytes(chance.randrange(256) for _ in range(3)) for _ in range(64)]
    lines = b"".join(b"\0" + b"".join(colours[(y * 8 // height) * 8 + x * 8 // width] for x in range(width)) for y in range(height))

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b"")).decode()


class PictureTest(ServerTest):
    def chat(self, messages, model="qwen3-vl", **more):
        body = {"model": model, "messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        return self.server.post("/v1/chat/completions", dict(body, **more))

    def answer(self, reply):
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json["choices"][0]["message"]["content"]


class Pictures(PictureTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(os.path.join(FOLDER, "qwen3-vl"), os.path.join(FOLDER, "llama"))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_the_same_in_every_api(self):
        expected = self.answer(self.chat(openai(PICTURES[0])))
        self.assertNotEqual(expected, self.answer(self.chat(openai(PICTURES[1]))))
        self.assertNotEqual(expected, self.answer(self.chat(openai())))
        block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURES[0]}}
        anthropic = self.server.post("/v1/messages", {"model": "qwen3-vl", "max_tokens": 8, "temperature": 0, "messages": [
            {"role": "user", "content": [block, {"type": "text", "text": QUESTION}]}]})
        self.assertEqual(anthropic.status, 200, anthropic.text)
        self.assertTrue(expected.startswith(anthropic.json["content"][0]["text"]))
        responses = self.server.post("/v1/responses", {"model": "qwen3-vl", "max_output_tokens": 16, "temperature": 0, "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": url(PICTURES[0])},
                                         {"type": "input_text", "text": QUESTION}]}]})
        self.assertEqual(responses.status, 200, responses.text)
        self.assertTrue(responses.json["output"][0]["content"][0]["text"].startswith(expected))
        ollama = self.server.post("/api/chat", {"model": "qwen3-vl", "stream": False, "options": {"num_predict": 8, "temperature": 0},
                                                "messages": [{"role": "user", "content": QUESTION, "images": [PICTURES[0]]}]})
        self.assertEqual(ollama.status, 200, ollama.text)
        self.assertTrue(expected.startswith(ollama.json["message"]["content"]))

    def test_a_second_question_finds_the_picture(self):
        first = self.chat(openai(PICTURES[1], PICTURES[0], text="One?")).json
        again = self.chat(openai(PICTURES[1], PICTURES[0], text="Two?")).json
        cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(cached, 14, (first["usage"], again["usage"]))

    def test_costs(self):
        """Decoding, tower and prefill are parts of the time to the first token; a picture costs its tower once."""
        message = openai(png(200, 200, 7), text="Cost?")
        first, again = (self.chat(message).json["timings"] for _ in range(2))
        self.assertEqual((first["picture_tokens"], again["picture_tokens"]), (36, 36))
        for timings in first, again:
            self.assertAlmostEqual(sum(timings["first_parts_ms"].values()), timings["ttft_ms"], delta=0.02 * timings["ttft_ms"])
            self.assertAlmostEqual(timings["encode_ms"], timings["parts_ms"].get("encode", 0), delta=0.01)
        self.assertGreater(first["parts_ms"]["preprocess"], 0)
        self.assertLess(again["encode_ms"] + again["preprocess_ms"], 0.2 * (first["encode_ms"] + first["preprocess_ms"]))
        self.assertNotIn("picture_tokens", self.chat(openai()).json["timings"])
        metrics = self.server.ask("GET", "/metrics").text
        self.assertRegex(metrics, r'spry_pictures_total\{model="qwen3-vl"\} [1-9]')
        self.assertRegex(metrics, r'spry_picture_tokens_total\{model="qwen3-vl"\} [1-9]\d')
        self.assertRegex(metrics, r'spry_picture_microseconds_total\{model="qwen3-vl"\} [1-9]')

    def test_which_models_see(self):
        models = {one["id"]: one.get("architecture") for one in self.server.get("/v1/models").json["data"]}
        self.assertEqual(models["qwen3-vl"]["input_modalities"], ["text", "image"])
        self.assertTrue(self.server.get("/props").json["modalities"]["vision"])
        self.answer(self.chat(openai(), model="llama"))  # it is loaded
        models = {one["id"]: one.get("architecture") for one in self.server.get("/v1/models").json["data"]}
        self.assertEqual(models["llama"]["input_modalities"], ["text"])

    def test_models_without_eyes(self):
        self.answer(self.chat(openai(PICTURES[0])))  # it is loaded
        self.refused(self.chat(openai(PICTURES[0]), model="llama"), 400, "llama cannot see pictures", "these can: qwen3-vl")
        history = openai(PICTURES[0]) + [{"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Why?"}]
        reply = self.chat(history, model="llama")
        self.assertEqual((reply.status, reply.headers["x-spry-ignored"]), (200, "messages.image_url"))

    def test_prompts_without_a_template(self):
        """llama-server's image_data and multimodal_data; Ollama's /api/generate."""
        text = "<|im_start|>user\n%s" + QUESTION + "<|im_end|>\n<|im_start|>assistant\n"
        body = {"model": "qwen3-vl", "n_predict": 8, "temperature": 0, "ignore_eos": True, "top_k": 0, "top_p": 1, "min_p": 0}
        expected = self.answer(self.chat(openai(PICTURES[0])))
        media = dict(body, prompt={"prompt_string": text % "<__media__>", "multimodal_data": [PICTURES[0]]})
        data = dict(body, prompt=text % "[img-12]", image_data=[{"id": 12, "data": PICTURES[0]}])
        for one in media, data:
            reply = self.server.post("/completion", one)
            self.assertEqual((reply.status, reply.json.get("content")), (200, expected), reply.text)
        two = dict(body, prompt=text % "[img-2] [img-] [img-1]",
                   image_data=[{"id": 1, "data": PICTURES[0]}, {"id": 2, "data": PICTURES[1]}])
        self.assertEqual(self.server.post("/completion", two).status, 200)
        self.refused(self.server.post("/completion", dict(data, prompt="no place")), 400, "1 pictures, but the prompt 0 places")
        self.refused(self.server.post("/completion", dict(data, prompt="[img-13]")), 400, "not in image_data")
        self.refused(self.server.post("/completion", dict(data, model="llama")), 400, "cannot see pictures")
        reply = self.server.post("/api/generate", {"model": "qwen3-vl", "prompt": QUESTION, "images": [PICTURES[0]], "stream": False,
                                                   "options": {"num_predict": 8, "temperature": 0}})
        self.assertEqual(reply.status, 200, reply.text)
        self.assertTrue(expected.startswith(reply.json["response"]), (expected, reply.json))
        self.assertEqual(self.server.post("/api/generate", {"model": "qwen3-vl", "prompt": "a", "images": [PICTURES[0]],
                                                            "raw": True, "stream": False}).status, 400)

    def test_bad_pictures(self):
        for data, words in ((url("QUJD"), "picture 1 is no PNG"), (url(PICTURES[0][:400]), "picture 1"),
                            (url("!!!!"), "not valid base64"), ("http://127.0.0.1:1/x.png", "nothing is fetched"),
                            ("file:///etc/passwd", "nothing is fetched"), ("data:image/png,QUJD", "not base64"),
                            (url(base64.b64encode(b"<svg/>").decode()), "no PNG, JPEG, WebP or GIF")):
            message = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data}}]}]
            self.refused(self.chat(message), 400, words)
        self.refused(self.chat(openai(*[PICTURES[0]] * 200)), 400, "128 pictures")
        blanks = url("\n ".join(PICTURES[0][i:i + 60] for i in range(0, len(PICTURES[0]), 60)))
        message = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": blanks}},
                                                {"type": "text", "text": QUESTION}]}]
        self.assertEqual(self.answer(self.chat(message)), self.answer(self.chat(openai(PICTURES[0]))))


class Together(PictureTest):
    """Pictures with grammars, drafts, a full context, and a cache on disk."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *arguments):
        self.server = Server(os.path.join(FOLDER, "qwen3-vl"), *arguments)
        self.addCleanup(self.server.stop)

    def test_a_grammar_and_drafts(self):
        self.start()
        plain = self.answer(self.chat(openai(PICTURES[0]), max_tokens=48, draft=False))
        self.assertEqual(self.answer(self.chat(openai(PICTURES[0]), max_tokens=48, draft=True)), plain)
        schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        reply = self.chat(openai(*PICTURES), max_tokens=40, ignore_eos=False, response_format=form)
        self.assertIn(json.loads(self.answer(reply))["colour"], ("red", "blue"))

    def test_a_picture_leaves_whole(self):
        self.start("--context", "160", "--kv-bytes", "2M")
        messages = openai(png(200, 200, 3)) + [{"role": "assistant", "content": "It is a"}]
        for _ in range(2):
            reply = self.chat(messages + [{"role": "user", "content": "Why?"}], max_tokens=200, context_overflow="slide")
            self.answer(reply)
            timings = reply.json["timings"]
            self.assertEqual((timings["picture_tokens"], timings["generated_tokens"]), (36, 200))
            self.assertGreaterEqual(timings["dropped_tokens"], 36)
        self.answer(self.chat(openai(PICTURES[0])))

    def test_a_cache_on_disk(self):
        picture = png(300, 300, 9)
        self.start("--cache-dir", self.folder)
        cold = self.answer(self.chat(openai(picture)))
        self.assertEqual(self.answer(self.chat(openai(picture))), cold)
        self.server.stop()
        self.start("--cache-dir", self.folder)
        reply = self.chat(openai(picture))
        self.assertEqual(self.answer(reply), cold)
        self.assertGreaterEqual(reply.json["timings"]["cached_tokens"], 81)
        self.assertGreater(reply.json["timings"]["restore_ms"], 0)


class BadPictures(PictureTest):
    """A sentence each, and the server lives."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(os.path.join(FOLDER, "qwen3-vl"), "--max-body", "4M")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ask(self, file, kind="image/png"):
        return self.chat(openai(base64.b64encode(file).decode()))

    def test_sizes_that_files_claim(self):
        def head(width, height):
            part = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
            return b"\x89PNG\r\n\x1a\n\0\0\0\x0d" + part + struct.pack(">I", zlib.crc32(part)) + b"\0\0\0\0IDAT"

        self.refused(self.ask(head(100000, 100000)), 400, "picture 1 has 100000 x 100000 pixels, the limit is 67108864 in all")
        self.refused(self.ask(head(60000, 60000)), 400, "picture 1 has 60000 x 60000 pixels, the limit is 67108864 in all")
        bits = (16383 | 16383 << 14 | 0 << 28).to_bytes(4, "little")  # width - 1, height - 1
        data = b"VP8L" + struct.pack("<I", 64) + b"\x2f" + bits + bytes(59)
        bomb = b"RIFF" + struct.pack("<I", 4 + len(data)) + b"WEBP" + data
        self.refused(self.ask(bomb), 400, "picture 1 has 16384 x 16384 pixels")
        gif = b"GIF89a" + struct.pack("<HH", 60000, 60000) + bytes(3)
        self.refused(self.ask(gif), 400, "picture 1 has 60000 x 60000 pixels")

    def test_sizes_of_parts(self):
        """A frame of an animation, a text of a PNG file, and EXIF data that say that they are larger than the rest."""
        bits = (16383 | 16383 << 14 | 0 << 28).to_bytes(4, "little")
        frame = bytes(6) + b"\xff\x3f\0" * 2 + bytes(4) + b"VP8L" + struct.pack("<I", 64) + b"\x2f" + bits + bytes(59)
        body = b"WEBPVP8X\x0a\0\0\0\2" + bytes(9) + b"ANIM\6\0\0\0" + bytes(6) + b"ANMF" + struct.pack("<I", len(frame)) + frame
        self.refused(self.ask(b"RIFF" + struct.pack("<I", len(body)) + body), 400, "picture 1 is damaged: its first frame")
        gif = b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + b"," + b"\xff" * 8 + b"\0\2\2\x44\1\0;"
        self.refused(self.ask(gif), 400, "picture 1 has 131070 x 131070 pixels")
        good = base64.b64decode(png(40, 40))
        text = b"zTXtComment\0\0" + zlib.compress(bytes(100 << 20), 9)
        text = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
        self.assertEqual(self.answer(self.ask(good[:33] + text + good[33:])), self.answer(self.ask(good)))
        exif = b"eXIfMM\0*\0\0\0\x08\xff\xff\x01\x12\0\x03\0\0\0\x01\xff\xff"
        exif = struct.pack(">I", len(exif) - 4) + exif + struct.pack(">I", zlib.crc32(exif))
        self.assertEqual(self.answer(self.ask(good[:33] + exif + good[33:])), self.answer(self.ask(good)))

    def test_files_that_end(self):
        with open(os.path.join(ROOT, "tests", "data", "images", "turned.jpg"), "rb") as file:
            photo = file.read()
        self.answer(self.ask(photo))
        for size in (3, 40, len(photo) // 2):
            self.refused(self.ask(photo[:size]), 400, "picture 1 is damaged")
        self.refused(self.ask(b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'), 400, "picture 1 is no PNG")

    def test_small_and_odd_ones_are_seen(self):
        for width, height in ((1, 1), (37, 53), (1, 200), (199, 1), (33, 65)):
            reply = self.chat(openai(png(width, height)))
            self.assertTrue(reply.status == 200 or "picture 1" in reply.json["error"]["message"], reply.text)
            if width == 37:
                self.answer(reply)

    def test_a_url_of_a_gigabyte(self):
        connection = self.server.connect()
        connection.putrequest("POST", "/v1/chat/completions")
        connection.putheader("Content-Length", str(1 << 30))
        connection.putheader("Content-Type", "application/json")
        connection.endheaders()
        reply = server_support.Reply(connection.getresponse())
        connection.close()
        self.refused(reply, 413)
        self.refused(self.chat(openai("A" * (5 << 20))), 413)
        self.answer(self.chat(openai(PICTURES[0])))


class Pages(http.server.BaseHTTPRequestHandler):
    """A site with pictures, and with addresses that lead elsewhere."""

    site = {}
    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        found = self.site.get(self.path)
        if isinstance(found, str):
            self.send_response(302)
            self.send_header("Location", found)
            found = b""
        else:
            self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *arguments):
        pass


class Fetched(PictureTest):
    """--allow-fetch: pictures come from its hosts, and from nowhere else, whatever redirects and names say."""

    @classmethod
    def setUpClass(cls):
        cls.sites = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) for _ in range(2)]
        for site in cls.sites:
            threading.Thread(target=site.serve_forever, daemon=True).start()
        cls.near, cls.other = ("127.0.0.1:%d" % site.server_port for site in cls.sites)
        picture = base64.b64decode(PICTURES[0])
        Pages.site = {"/cat.png": picture, "/moved": "/cat.png", "/away": "http://%s/cat.png" % cls.other,
                      "/round": "/round", "/secret": "file:///etc/passwd", "/large": bytes(33 << 20), "/text": b"text"}
        named = "localhost:%d" % cls.sites[0].server_port
        cls.server = Server(os.path.join(FOLDER, "qwen3-vl"), os.path.join(FOLDER, "llama"), "--allow-fetch",
                            "example.org, http://%s,http://%s" % (cls.near, named))
        cls.named = "http://" + named

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        for site in cls.sites:
            site.shutdown()
            site.server_close()

    def ask(self, url, **more):
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]
        return self.chat([{"role": "user", "content": content}], **more)

    def test_allowed_hosts(self):
        expected = self.answer(self.chat(openai(PICTURES[0])))
        for path in ("/cat.png", "/moved"):
            self.assertEqual(self.answer(self.ask("http://%s%s" % (self.near, path))), expected)
        reply = self.server.post("/v1/responses", {"model": "qwen3-vl", "max_output_tokens": 16, "temperature": 0, "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": "http://%s/cat.png" % self.near},
                                         {"type": "input_text", "text": QUESTION}]}]})
        self.assertTrue(reply.json["output"][0]["content"][0]["text"].startswith(expected), reply.text)

    def test_everything_else(self):
        before = len(Pages.asked)
        for url, words in (("http://%s/cat.png" % self.other, "--allow-fetch does not name it"),
                           ("https://%s/cat.png" % self.near, "--allow-fetch does not name it"),
                           ("http://example.org/cat.png", "--allow-fetch does not name it"),
                           ("http://user:word@%s/cat.png" % self.near, "is no address"),
                           (self.named + "/cat.png", "has an address of this machine"),
                           ("file:///etc/passwd", "data: URL"), ("ftp://%s/cat.png" % self.near, "data: URL")):
            self.refused(self.ask(url), 400, words)
        self.assertEqual(len(Pages.asked), before)
        for path, words in (("/away", "nothing is fetched from http://" + self.other.split(":")[0]),
                            ("/round", "more than 3 redirects"), ("/secret", "is no address"),
                            ("/none.png", "answered with status 404"), ("/large", "more than 33554432 bytes"),
                            ("/text", "picture 1 is no PNG")):
            self.refused(self.ask("http://%s%s" % (self.near, path)), 400, words)
        self.refused(self.ask("http://%s/cat.png" % self.near, model="llama"), 400, "cannot see pictures")
        gone = [{"type": "image_url", "image_url": {"url": "http://%s/none.png" % self.near}}]
        reply = self.chat([{"role": "user", "content": gone}, {"role": "assistant", "content": "A cat."},
                           {"role": "user", "content": "Why?"}])  # in the history a sentence takes its place
        self.assertEqual((reply.status, reply.headers["x-spry-ignored"]), (200, "messages.image_url"), reply.text)

    def test_wrong_lists(self):
        for hosts in ("ftp://example.org", "example.org/cats", "http://", "*", "a@b"):
            result = server_support.spry("serve", "--allow-fetch", hosts)
            self.assertEqual(result.code, 2, hosts)
            self.assertIn("--allow-fetch", result.errors)


def make_large(folder):
    """The small Gemma 3 with pictures of 512 x 512 pixels, whose 256 rows see each other, as published ones have."""
    shutil.copytree(os.path.join(FOLDER, "gemma3-vl"), folder)

    def change(name, edit):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            content = json.load(file)
        edit(content)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)

    change("config.json", lambda c: (c.update(mm_tokens_per_image=256), c["vision_config"].update(image_size=512)))
    change("preprocessor_config.json", lambda c: c.update(size={"height": 512, "width": 512}))
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        tensors, data = json.loads(file.read(size)), file.read()
    chance, parts, at = random.Random(1), [], 0
    tensors.pop("__metadata__", None)
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        part = data[slice(*tensor["data_offsets"])]
        if name.endswith("position_embedding.weight"):
            part = b"".join(struct.pack("<f", chance.gauss(0, 0.5))[2:] for _ in range(4096 * 48))
            tensor["shape"] = [4096, 48]
        tensor["data_offsets"] = [at, at + len(part)]
        at += len(part)
        parts.append(part)
    head = json.dumps(tensors).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"".join(parts))


class WholePictures(PictureTest):
    """Pictures whose rows see each other have more rows than a chunk, and are computed in one step all the same."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.model = os.path.join(cls.folder, "large")
        make_large(cls.model)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def ask(self, picture, **more):
        return self.chat(openai(picture), model="large", **more)

    def test_beside_answers(self):
        pictures = [png(64, 48, seed) for seed in range(3)]
        for arguments in ((), ("--chunk", "32")) * 3:  # the tower is opened while an answer is computed
            self.server = Server(self.model, *arguments, "--parallel", "4")
            try:
                cold = [self.answer(self.ask(picture)) for picture in pictures]
                self.assertGreater(len(set(cold)), 1)
                self.assertEqual(cold, [self.answer(self.ask(picture)) for picture in pictures])
                answers = {}

                def run(i):
                    answers[i] = self.answer(self.ask(pictures[i], user="again"))

                self.server.stop()
                self.server = Server(self.model, *arguments, "--parallel", "4")
                threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
                long = threading.Thread(target=lambda: self.chat(openai(), model="large", max_tokens=200))
                long.start()
                for thread in threads:
                    thread.start()
                for thread in [long, *threads]:
                    thread.join()
                self.assertEqual([answers.get(i) for i in range(3)], cold)
            finally:
                self.server.stop()


server_support.main()
