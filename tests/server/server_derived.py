"""Derived models: made, copied, shown, used and deleted as Ollama's clients do; names in any case; models for any name."""

import os
import shutil

import server_support
from server_support import HOME, MODEL, TALE, Server, ServerTest, tiny

FOLDER = os.path.join(HOME, "derived-models")
os.makedirs(FOLDER, exist_ok=True)


class Derived(ServerTest):
    arguments = ("--models-dir", FOLDER, "--allow-pull")

    def make(self, status=200, **fields):
        reply = self.server.post("/api/create", fields)
        self.assertEqual(reply.status, status, reply.text)
        return reply.json

    def ask(self, model, **fields):
        body = {"model": model, "messages": TALE, "stream": False, "options": {"num_predict": 8, "temperature": 0}}
        reply = self.server.post("/api/chat", dict(body, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def names(self):
        return [model["name"] for model in self.server.get("/api/tags").json["models"]]

    def remove(self, name):
        return self.server.ask("DELETE", "/api/delete", {"model": name})

    def test_settings_and_system(self):
        self.make(model="brief", **{"from": MODEL.lower()}, system="Be brief.", parameters={"num_predict": 3, "temperature": 0})
        whole = self.ask("brief", options={})
        self.assertEqual(whole["eval_count"], 3)
        self.assertEqual(self.ask("brief:latest", options={"num_predict": 5})["eval_count"], 5)  # the request decides
        asked = [{"role": "system", "content": "Be brief."}] + TALE
        self.assertEqual(whole["prompt_eval_count"], self.ask(MODEL, messages=asked)["prompt_eval_count"])
        other = self.ask("brief", messages=[{"role": "system", "content": "x"}] + TALE)["prompt_eval_count"]
        self.assertNotEqual(other, whole["prompt_eval_count"])
        chat = self.server.post("/v1/chat/completions", {"model": "brief", "messages": TALE}).json
        self.assertEqual(chat["usage"]["completion_tokens"], 3)
        self.assertEqual(chat["usage"]["prompt_tokens"], whole["prompt_eval_count"])
        shown = self.server.post("/api/show", {"model": "brief"}).json
        self.assertEqual((shown["system"], shown["details"]["parent_model"]), ("Be brief.", MODEL))
        self.assertIn("num_predict 3", shown["parameters"])
        again = self.make(model="again", modelfile=shown["modelfile"])
        self.assertEqual(again, {"status": "success"})
        self.assertEqual(self.ask("again", options={})["prompt_eval_count"], whole["prompt_eval_count"])
        self.make(model="third", **{"from": "brief"}, parameters={"num_predict": 2})
        third = self.ask("third", options={})
        self.assertEqual((third["eval_count"], third["prompt_eval_count"]), (2, whole["prompt_eval_count"]))

    def test_modelfile(self):
        text = '# a tale\nFROM %s\nPARAMETER stop "zz"\nPARAMETER stop ","\nPARAMETER temperature 0\nSYSTEM """Tell\na tale."""\n' % MODEL
        self.make(model="tale", modelfile=text + 'TEMPLATE """{{ messages[-1].content }}"""\n')
        reply = self.ask("tale", messages=[{"role": "user", "content": "Once upon a"}], options={"num_predict": 20})
        self.assertEqual((reply["prompt_eval_count"], reply["message"]["content"]), (3, " time"))
        for wrong in ("ADAPTER x\n", 'FROM %s\nSYSTEM """x' % MODEL, "SYSTEM x", "FROM nothing"):
            self.make(status=400, model="wrong", modelfile=wrong)
        for wrong in ({"template": "{{ .System }}"}, {"parameters": {"frob": 1}}, {"parameters": {"top_k": "x"}}, {"quantize": "q4_0"}):
            self.make(status=400, model="wrong", **{"from": MODEL}, **wrong)
        for name in ("", "../x", ".x", "a/b", MODEL, "x" * 300):
            self.make(status=400, model=name, **{"from": MODEL})
        self.assertNotIn("wrong", self.names())

    def test_copy_and_delete(self):
        self.assertEqual(self.server.post("/api/copy", {"source": MODEL, "destination": "copy"}).status, 200)
        self.assertIn("copy", self.names())
        self.assertEqual(self.ask("copy")["message"], self.ask(MODEL)["message"])
        self.assertEqual(self.server.post("/api/copy", {"source": "nobody", "destination": "x"}).status, 404)
        self.assertEqual(self.server.post("/api/copy", {"source": MODEL, "destination": MODEL}).status, 400)
        self.assertEqual(self.remove("copy").status, 200)
        self.assertNotIn("copy", self.names())
        self.assertEqual(self.remove("copy").status, 404)
        self.assertEqual(self.remove(MODEL).status, 400)  # it is in the program
        shutil.copy(tiny("llama"), os.path.join(FOLDER, "small.gguf"))
        self.assertIn("small", self.names())
        self.server.post("/completion", {"model": "small", "prompt": [1, 2], "n_predict": 1})
        self.assertEqual(self.remove("small").status, 200)
        self.assertFalse(os.path.exists(os.path.join(FOLDER, "small.gguf")))

    def test_show(self):
        shown = self.server.post("/api/show", {"model": MODEL.upper()}).json
        self.assertEqual(shown["model_info"]["qwen3.context_length"], 2048)
        self.assertEqual(shown["model_info"]["general.architecture"], "qwen3")
        self.assertEqual((shown["details"]["family"], shown["details"]["format"]), ("qwen3", "gguf"))
        self.assertRegex(shown["details"]["quantization_level"], "^Q")
        self.assertIn("completion", shown["capabilities"])
        tags = self.server.get("/api/tags").json["models"]
        self.assertTrue(all(model["details"]["family"] for model in tags))
        version = self.server.get("/api/version").json["version"]
        self.assertGreaterEqual([int(part) for part in version.split(".")], [0, 6, 4])
        self.ask(MODEL)
        loaded = self.server.get("/api/ps").json["models"][0]
        self.assertLess(loaded["size"], loaded["size_limit"])

    def test_names_in_any_case(self):
        for name in (MODEL.lower(), MODEL.upper() + ":latest"):
            self.assertEqual(self.server.chat(model=name).json["model"], MODEL)
        self.refused(self.server.chat(model="gpt-4"), 404, "gpt-4")

    def test_long_chats_slide(self):
        turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word %d " % i * 40} for i in range(101)]
        reply = self.ask(MODEL, messages=[{"role": "system", "content": "Be brief."}] + turns)
        self.assertLess(reply["prompt_eval_count"], 2048)
        self.assertGreater(reply["prompt_eval_count"], 1000)
        long = self.ask(MODEL, messages=turns[:9], options={"num_predict": 2200, "temperature": 0, "stop": ["never"]})
        self.assertIn(long["done_reason"], ("stop", "length"))
        endless = {"model": MODEL, "messages": [{"role": "user", "content": "word " * 5000}], "stream": False}
        cut = self.server.post("/api/chat", {**endless, "options": {"num_predict": 4}})
        self.assertEqual(cut.status, 200, cut.text)
        self.assertGreater(cut.json["timings"]["dropped_tokens"], 2000)
        self.assertEqual(self.server.post("/api/chat", {**endless, "context_overflow": "error"}).status, 400)

    def test_thoughts(self):
        self.ask(MODEL, think=False)
        for think in (True, "low", "much", 3):  # its template has no thoughts
            reply = self.server.post("/api/chat", {"model": MODEL, "messages": TALE, "think": think})
            self.assertEqual(reply.status, 400)
            self.assertIn("think", reply.json["error"])


class Others(server_support.unittest.TestCase):
    def test_without_permission(self):
        server = Server()
        try:
            for method, path, body in (("POST", "/api/create", {"model": "x", "from": MODEL}), ("DELETE", "/api/delete", {"model": MODEL}),
                                       ("POST", "/api/copy", {"source": MODEL, "destination": "x"})):
                self.assertEqual(server.ask(method, path, body).status, 403)
        finally:
            server.stop()

    def test_any_model(self):
        server = Server("--any-model")
        try:
            reply = server.chat(model="gpt-4")
            self.assertEqual((reply.status, reply.json["model"]), (200, MODEL))
        finally:
            server.stop()


if __name__ == "__main__":
    server_support.main()
