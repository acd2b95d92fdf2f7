"""How long models stay: Ollama's keep_alive, pinning, what loading took; their names; loading and unloading them."""

import datetime
import json
import os
import shutil
import time

import server_support
from server_support import HOME, MODEL, ServerTest, eventually, tiny

FOLDER, TAGGED = os.path.join(HOME, "models"), "tiny:latest"


class Staying(ServerTest):
    arguments = ("--allow-pin", "--models-dir", FOLDER)
    body = {"model": MODEL, "prompt": "Tell me a tale.", "options": {"num_predict": 2}, "stream": False}

    @classmethod
    def setUpClass(cls):
        os.makedirs(FOLDER)
        shutil.copy(tiny("llama"), os.path.join(FOLDER, TAGGED + ".gguf"))
        super().setUpClass()

    def left(self, name=MODEL):
        """Seconds until the model is let go; None when it is not loaded."""
        for model in self.server.get("/api/ps").json["models"]:
            if model["name"] == name:
                until = datetime.datetime.strptime(model["expires_at"], "%Y-%m-%dT%H:%M:%S.%f%z")
                return (until - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        return None

    def goes_in(self, seconds, asked):
        """`asked`: when, by this program's clock, the request was not made yet."""
        self.assertLessEqual(self.left(), seconds)
        self.assertGreater(self.left(), seconds - (time.time() - asked) - 2)

    def generate(self, **fields):
        reply = self.server.post("/api/generate", {**self.body, **fields})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def test_keep_alive(self):
        self.generate()
        self.assertGreater(self.left(), 1e6)
        for given, seconds in (("5m", 300), (77, 77), ("1h30m", 5400), ("90", 90), ("90000ms", 90), ("2.5m", 150)):
            asked = time.time()
            self.generate(keep_alive=given)
            self.goes_in(seconds, asked)
        asked = time.time()
        self.generate(keep_alive="10m")
        self.generate()  # who says nothing changes nothing
        self.goes_in(600, asked)
        for path, text in (("/api/chat", {"messages": [{"role": "user", "content": "Hi"}]}), ("/api/embed", {"input": "Hi"}),
                           ("/api/embeddings", {"prompt": "Hi"})):
            body = {"model": MODEL, "keep_alive": 40, "stream": False, "options": {"num_predict": 1}, **text}
            asked = time.time()
            self.assertEqual(self.server.post(path, body).status, 200)
            self.goes_in(40, asked)
            self.generate(keep_alive=-1)
            self.assertGreater(self.left(), 1e6)
        for wrong in ("soon", "", "5x", "5m5", "m", [], {}, True, "-", "1..5s"):
            reply = self.server.post("/api/generate", dict(self.body, keep_alive=wrong))
            self.assertEqual(reply.status, 400, wrong)
            self.assertIn("keep_alive", reply.json["error"])

    def test_let_go_and_loaded_again(self):
        self.generate()
        self.assertLess(min(self.generate()["load_duration"] for _ in range(10)), 1e6)
        for given in (0, "0", "0s"):
            self.generate(keep_alive=given)
            self.assertTrue(eventually(lambda: self.left() is None), given)
            again = self.generate(keep_alive=-1)
            self.assertGreater(again["load_duration"], 1e6)
            self.assertGreater(again["total_duration"], again["load_duration"])
            self.assertAlmostEqual(again["timings"]["load_ms"], again["load_duration"] / 1e6, places=3)
        reply = self.server.post("/api/generate", {"model": MODEL, "keep_alive": 0}).json
        self.assertEqual(reply["done_reason"], "unload")
        self.assertTrue(eventually(lambda: self.left() is None))
        self.assertGreater(self.server.post("/api/generate", {"model": MODEL}).json["load_duration"], 1e6)
        self.assertGreater(self.left(), 1e6)  # what was asked for an earlier loading is forgotten

    def test_let_go_without_loading(self):
        for path, key in (("/api/generate", "response"), ("/api/chat", "message")):
            for _ in range(2):  # loaded, and not
                reply = self.server.post(path, {"model": MODEL + ":latest", "keep_alive": 0}).json
                self.assertEqual((reply["model"], reply["done"], reply["done_reason"]), (MODEL, True, "unload"))
                self.assertIn(key, reply)
                self.assertNotIn("load_duration", reply)
                self.assertIsNone(self.left())
            reply = self.server.post(path, {"model": "nobody", "keep_alive": 0})
            self.assertEqual(reply.status, 404)
            self.assertIn("nobody", reply.json["error"])
            self.generate(keep_alive=-1)
        self.assertEqual(self.server.post("/api/generate", {"keep_alive": 0}).status, 400)
        self.assertEqual(self.server.post("/api/generate", {"model": MODEL, "keep_alive": 0, "images": "x"}).status, 400)

    def test_let_go_while_in_use(self):
        """As soon as it has no users."""
        connection = self.server.connect()
        connection.request("POST", "/api/generate", json.dumps({"model": MODEL, "prompt": "Hi", "raw": True, "keep_alive": -1}))
        response = connection.getresponse()
        response.readline()
        reply = self.server.post("/api/generate", {"model": MODEL, "keep_alive": 0}).json
        self.assertEqual(reply["done_reason"], "unload")
        self.assertIn(b'"done":true', response.read())
        connection.close()
        self.assertTrue(eventually(lambda: self.left() is None))
        self.generate(keep_alive=-1)

    def test_a_name_with_a_tag_of_its_own(self):
        """Only the tag that a client adds is taken off."""
        self.assertIn(TAGGED, [model["id"] for model in self.server.get("/v1/models").json["data"]])
        body = {"model": TAGGED + ":latest"}
        self.assertEqual(self.server.post("/api/generate", body).json["done_reason"], "load")
        self.assertIsNotNone(self.left(TAGGED))
        self.assertEqual(self.server.post("/api/generate", dict(body, keep_alive=0)).json["done_reason"], "unload")
        self.assertTrue(eventually(lambda: self.left(TAGGED) is None))

    def pinned(self):
        return self.server.get("/v1/models/" + MODEL).json["pinned"]

    def test_lists_read_files_once(self):
        """A file is described again when its size or time changes, not for each list of models."""
        path = os.path.join(FOLDER, "described.gguf")
        shutil.copy(tiny("llama"), path)

        def family():
            models = {model["name"]: model for model in self.server.get("/api/tags").json["models"]}
            return models["described"]["details"]["family"]
        self.assertEqual(family(), "llama")
        facts = os.stat(path)
        with open(path, "r+b") as file:
            file.write(bytes(facts.st_size))
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        self.assertEqual(family(), "llama")
        os.utime(path, (1000, 1000))
        self.assertEqual(family(), "")
        os.remove(path)

    def test_pin(self):
        self.assertFalse(self.pinned())
        reply = self.server.post("/models/pin", {"model": MODEL})
        self.assertEqual((reply.status, reply.json["id"], reply.json["pinned"]), (200, MODEL, True))
        self.assertTrue(self.pinned())
        self.assertEqual(self.server.metric("spry_model_pinned"), 1)
        self.generate(keep_alive=0)
        self.assertGreater(self.left(), 1e6)
        self.assertEqual(self.server.post("/api/generate", {"model": MODEL, "keep_alive": 0}).json["done_reason"], "unload")
        self.assertGreater(self.left(), 1e6)  # it stays all the same
        self.assertFalse(self.server.post("/models/pin", {"model": MODEL, "pin": False}).json["pinned"])
        self.assertTrue(eventually(lambda: self.left() is None))
        self.generate(keep_alive=-1)
        self.refused(self.server.post("/models/pin", {"model": "nobody"}), 404, "nobody")
        self.refused(self.server.post("/models/pin", {"model": "../" + MODEL}), 404)
        self.refused(self.server.post("/models/pin", {"pin": True}), 400, "model")
        self.refused(self.server.post("/models/pin", {"model": MODEL, "pin": 1}), 400, "pin")


class Plain(ServerTest):
    def test_nobody_pins(self):
        for body in ({"model": MODEL}, {"model": MODEL, "pin": False}, {"model": "nobody"}):
            self.refused(self.server.post("/models/pin", body), 403, "--allow-pin")
        self.assertFalse(self.server.get("/v1/models/" + MODEL).json["pinned"])


class Named(ServerTest):
    """Names that the command line gives."""
    arguments = ("own/name:1=" + MODEL, "--alias", "quick, Small", "--tags", "chat,tales", "--only-named")

    def test_names(self):
        data = self.server.get("/v1/models").json["data"]
        self.assertEqual([(model["id"], model["aliases"], model["tags"]) for model in data],
                         [("own/name:1", ["own/name:1", "quick", "Small"], ["chat", "tales"])])
        for name in ("own/name:1", "Own/Name:1", "quick", "SMALL", "own/name:1:latest"):
            self.assertEqual(self.server.chat(model=name, max_tokens=1).json["model"], "own/name:1")
            self.assertEqual(self.server.get("/v1/models/" + name.replace(":latest", "")).json["id"], "own/name:1")
        for name in (MODEL, "quick,", "name:1", "x" * 200):
            self.assertEqual(self.server.chat(model=name, max_tokens=1).status, 404, name)
        self.assertEqual(self.server.get("/props").json["role"], "model")
        self.assertNotEqual(server_support.spry("serve", "--port", "0", "x" * 128 + "=" + MODEL, stdin=None).code, 0)


class Loading(ServerTest):
    """/models/load and /models/unload, where nothing else loads a model, and one at a time is loaded."""
    folder = os.path.join(HOME, "load-models")
    arguments = ("one", "two", "--models-dir", folder, "--only-named", "--no-autoload", "--models-max", "1")

    @classmethod
    def setUpClass(cls):
        os.makedirs(cls.folder)
        for name in ("one", "two"):
            shutil.copy(tiny("llama"), os.path.join(cls.folder, name + ".gguf"))
        super().setUpClass()

    def states(self):
        return {model["id"]: model["status"]["value"] for model in self.server.get("/v1/models").json["data"]}

    def test_loading(self):
        props = self.server.get("/props").json
        self.assertEqual((props["is_sleeping"], props["models_autoload"], props["max_instances"], props["role"]),
                         (True, False, 1, "router"))
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/completion", {"prompt": "a"}), ("/tokenize", {"content": "a"}),
                           ("/v1/embeddings", {"input": "a"})):
            self.refused(self.server.post(path, dict(body, model="two")), 400, "/models/load")
        self.assertEqual(self.states(), {"one": "unloaded", "two": "unloaded"})
        for name, other in (("one", "two"), ("two", "one"), ("TWO", "one")):
            self.assertEqual(self.server.post("/models/load", {"model": name}).json, {"success": True})
            self.assertEqual(self.states(), {name.lower(): "loaded", other: "unloaded"})
            self.assertEqual(self.server.post("/tokenize", {"content": "a", "model": name}).status, 200)
        for _ in range(2):  # one that is not loaded, too
            self.assertEqual(self.server.post("/models/unload", {"model": "two"}).json, {"success": True})
            self.assertEqual(self.states(), {"one": "unloaded", "two": "unloaded"})
        for path in ("/models/load", "/models/unload"):
            self.refused(self.server.post(path, {"model": "three"}), 404, "three")
            self.refused(self.server.post(path, {"model": "../one"}), 404)
            self.refused(self.server.post(path, {}), 400, "model")
            self.refused(self.server.post(path, {"model": 1}), 400, "model")


class Looking(ServerTest):
    """Reading the state of a server does not keep its model loaded, and does not load it."""
    arguments = ("--keep-alive", "1")

    def test_sleep(self):
        self.assertTrue(eventually(lambda: self.server.get("/props").json["is_sleeping"]))
        self.assertTrue(self.server.get("/props").json["is_sleeping"])
        self.assertEqual(self.server.chat(max_tokens=1).status, 200)


if __name__ == "__main__":
    server_support.main()
