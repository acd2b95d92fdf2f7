"""The interfaces of Ollama and llama-server, and what a server tells about itself."""

import json
import re

import server_support
from server_support import MODEL, TALE, ServerTest, spry


class Ollama(ServerTest):
    options = {"temperature": 0, "num_predict": 12}

    def wanted(self):
        return spry("run", "-p", "Tell me a tale.", "-n", "12", "--temperature", "0").text[:-1]

    def test_chat(self):
        reply = self.server.post("/api/chat", {"model": MODEL + ":latest", "messages": TALE, "options": self.options})
        self.assertEqual(reply.headers["content-type"], "application/x-ndjson")
        lines = reply.lines
        self.assertEqual("".join(line["message"]["content"] for line in lines), self.wanted())
        self.assertEqual([line["done"] for line in lines], [False] * (len(lines) - 1) + [True])
        self.assertEqual(lines[-1]["done_reason"], "length")
        self.assertEqual(lines[-1]["eval_count"], 12)
        whole = self.server.post("/api/chat", {"model": MODEL, "messages": TALE, "options": self.options,
                                               "stream": False}).json
        self.assertEqual(whole["message"]["content"], self.wanted())

    def test_generate(self):
        body = {"model": MODEL, "prompt": "Tell me a tale.", "options": self.options}
        lines = self.server.post("/api/generate", body).lines
        self.assertEqual("".join(line["response"] for line in lines), self.wanted())
        raw = self.server.post("/api/generate", dict(body, prompt="Once upon a", raw=True, stream=False)).json
        self.assertEqual(raw["response"], spry("run", "-p", "Once upon a", "--raw", "-n", "12", "--temperature",
                                               "0").text[:-1])
        shaped = self.server.post("/api/generate", dict(body, stream=False, format={"type": "boolean"})).json
        self.assertIn(shaped["response"].strip(), ("true", "false"))

    def test_context(self):
        """A conversation that goes on with the tokens of the last answer."""
        body = {"model": MODEL, "prompt": "Tell me a tale.", "options": self.options, "stream": False}
        first = self.server.post("/api/generate", body).json
        prompt = self.server.post("/apply-template", {"messages": TALE}).json["prompt"]
        wanted = self.server.post("/tokenize", {"content": prompt + first["response"]}).json["tokens"]
        self.assertEqual(first["context"], wanted)
        second = self.server.post("/api/generate", dict(body, prompt="And then?", context=first["context"])).json
        more = self.server.post("/apply-template", {"messages": [{"role": "user", "content": "And then?"}]}).json["prompt"]
        ids = first["context"] + self.server.post("/tokenize", {"content": more}).json["tokens"]
        self.assertEqual(second["prompt_eval_count"], len(ids))
        self.assertEqual(second["context"][: len(ids)], ids)
        alone = self.server.post("/completion", {"prompt": ids, "temperature": 0, "n_predict": 12}).json["content"]
        self.assertEqual(second["response"], alone)
        lines = self.server.post("/api/generate", dict(body, stream=True)).lines
        self.assertEqual(lines[-1]["context"], first["context"])
        ended = self.server.post("/api/generate", dict(body, options={"temperature": 0, "num_predict": 1500})).json
        self.assertEqual(ended["done_reason"], "stop")  # the model's own end is not in the context
        wanted = self.server.post("/tokenize", {"content": prompt + ended["response"]}).json["tokens"]
        self.assertEqual(ended["context"], wanted)
        raw = self.server.post("/api/generate", dict(body, raw=True)).json
        self.assertNotIn("context", raw)
        for context in ("x", [-1], [10 ** 9], ["x"], {"a": 1}):
            reply = self.server.post("/api/generate", dict(body, context=context))
            self.assertEqual(reply.status, 400)
            self.assertIn("context", reply.json["error"])

    def test_nothing_to_say_loads(self):
        for path, body in (("/api/generate", {"model": MODEL}), ("/api/chat", {"model": MODEL, "messages": []})):
            self.assertEqual(self.server.post(path, body).json["done_reason"], "load")

    def test_models(self):
        self.assertIn(MODEL, [model["name"] for model in self.server.get("/api/tags").json["models"]])
        self.server.post("/api/generate", {"model": MODEL})
        self.assertIn(MODEL, [model["name"] for model in self.server.get("/api/ps").json["models"]])
        shown = self.server.post("/api/show", {"model": MODEL}).json
        self.assertIn("im_start", shown["template"])
        self.assertEqual(shown["model_info"]["vocabulary"], 8192)
        self.assertRegex(self.server.get("/api/version").json["version"], r"^\d+\.\d+")

    def test_errors_are_one_string(self):
        for path, body, status in (("/api/chat", {"model": "nobody", "messages": TALE}, 404),
                                   ("/api/chat", {"messages": TALE}, 400), ("/api/generate", {"model": MODEL, "prompt": 3}, 400),
                                   ("/api/chat", {"model": MODEL, "messages": TALE, "options": {"top_p": "x"}}, 400),
                                   ("/api/embed", {"model": MODEL, "input": 5}, 400), ("/api/pull", {"model": "x"}, 404),
                                   ("/api/chat", "{", 400)):
            reply = self.server.post(path, body)
            self.assertEqual(reply.status, status, reply.text)
            self.assertIsInstance(reply.json["error"], str)


class Llama(ServerTest):
    def test_completion(self):
        body = {"prompt": "Once upon a", "n_predict": 10, "temperature": 0}
        wanted = spry("run", "-p", "Once upon a", "--raw", "-n", "10", "--temperature", "0").text[:-1]
        whole = self.server.post("/completion", body).json
        self.assertEqual(whole["content"], wanted)
        self.assertEqual((whole["stop_type"], whole["tokens_predicted"]), ("limit", 10))
        events = self.server.post("/completion", dict(body, stream=True)).events
        self.assertEqual("".join(event["content"] for event in events), wanted)
        self.assertEqual([event["stop"] for event in events], [False] * (len(events) - 1) + [True])
        banned = self.server.post("/tokenize", {"content": wanted}).json["tokens"][0]
        other = self.server.post("/completion", dict(body, logit_bias=[[banned, False]])).json["content"]
        self.assertNotEqual(other, wanted)

    def test_tokens_and_back(self):
        for text in ("Once upon a time", "na\u00efve \U0001f600", "", "a\0b"):
            ids = self.server.post("/tokenize", {"content": text}).json["tokens"]
            self.assertEqual(self.server.post("/detokenize", {"tokens": ids}).json["content"], text)
        pieces = self.server.post("/tokenize", {"content": "Once upon", "with_pieces": True}).json["tokens"]
        self.assertEqual([piece["piece"] for piece in pieces], ["Once", " upon"])
        self.refused(self.server.post("/tokenize", {"content": 5}), 400, "content")
        self.refused(self.server.post("/detokenize", {"tokens": [10 ** 8]}), 400, "100000000")
        self.refused(self.server.post("/detokenize", {"tokens": ["x"]}), 400, "tokens[0]")

    def test_template(self):
        prompt = self.server.post("/apply-template", {"messages": TALE}).json["prompt"]
        self.assertEqual(prompt, "<|im_start|>user\nTell me a tale.<|im_end|>\n<|im_start|>assistant\n")

    def test_about_itself(self):
        self.assertEqual(self.server.get("/health").json, {"status": "ok"})
        props = self.server.get("/props").json
        self.assertEqual((props["model_alias"], props["default_generation_settings"]["n_ctx"]), (MODEL, 2048))
        self.assertGreaterEqual(props["together"]["limit"], 1)
        self.assertIn("auto: a job begins at once", props["together"]["why"])
        slots = self.server.get("/slots").json
        self.assertEqual([(slot["id"], slot["n_ctx"], slot["is_processing"]) for slot in slots],
                         [(i, 2048, False) for i in range(props["total_slots"])])
        self.assertEqual(props["default_generation_settings"]["params"]["top_k"], 40)
        memory = props["memory"]
        self.assertLess(memory["kv_used"], memory["kv_limit"])
        self.assertLess(memory["used"], memory["limit"])

    def test_metrics(self):
        before = self.server.metric("spry_generated_tokens_total") or 0
        self.server.chat(max_tokens=9)
        self.assertEqual(self.server.metric("spry_generated_tokens_total"), before + 9)
        text = self.server.get("/metrics").text
        for name in ("spry_time_to_first_token_seconds", "spry_inter_token_seconds", "spry_queue_seconds",
                     "spry_time_to_first_call_seconds"):
            self.assertIn("# TYPE %s histogram" % name, text)
            counts = [int(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "_bucket")]
            self.assertEqual(counts, sorted(counts))
            self.assertIn('le="+Inf"} %d' % counts[-1], text)
        self.assertEqual(self.server.metric("spry_requests_running"), 0)
        self.assertEqual(self.server.metric("spry_batch_limit"), 8)
        self.assertGreater(self.server.metric("spry_step_rows_total"), self.server.metric("spry_step_decode_rows_total"))
        self.assertGreater(self.server.metric("spry_kv_bytes"), 0)
        self.assertRegex(text, "(?m)^# HELP spry_steps_total .*of all its jobs")
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) \S+ .+|[a-z_0-9:]+(\{[^}]*\})? [-+.\deE]+)$')

    def test_guesses(self):
        """By place, by length and by what was taken back: each adds up to the same."""
        again = "The fox ran to the river. " * 12
        asked = 0
        while not self.server.metric("spry_drafted_tokens_total"):  # a slow moment of the machine can make drafts not worth it
            self.assertLess(asked, 50)
            asked += 1
            self.server.post("/completion", {"prompt": again, "n_predict": 60, "temperature": 0})
        text = self.server.get("/metrics").text

        def numbers(name, label):
            rows = re.findall(r'(?m)^spry_draft_%s_total\{model="%s",%s="(\d+)"\} (\d+)$' % (name, MODEL, label), text)
            return {int(place): int(number) for place, number in rows}

        tried, accepted = numbers("tried", "position"), numbers("accepted", "position")
        self.assertEqual((list(tried), list(accepted)), (list(range(1, 17)), list(range(1, 17))))
        self.assertGreater(tried[1], 0)
        for place in range(1, 16):
            self.assertLessEqual(tried[place + 1], accepted[place])
            self.assertLessEqual(accepted[place], tried[place])
        lengths = numbers("steps", "length")
        self.assertEqual(sum(accepted.values()), self.server.metric("spry_accepted_tokens_total"))
        self.assertEqual(sum(length * steps for length, steps in lengths.items()),
                         self.server.metric("spry_drafted_tokens_total"))
        answers = [sum(numbers(name, "tokens").values()) for name in ("refused_p50", "refused_p95")]
        self.assertGreaterEqual(answers[0], 1)
        self.assertEqual(answers[0], answers[1])
        body = {"prompt": again, "n_predict": 60, "temperature": 0}
        with_drafts = self.server.post("/completion", body).json["content"]
        drafted = self.server.metric("spry_drafted_tokens_total")
        self.assertEqual(self.server.post("/completion", {**body, "draft": False}).json["content"], with_drafts)
        self.assertEqual(self.server.metric("spry_drafted_tokens_total"), drafted)

    def test_watch(self):
        self.server.chat(max_tokens=3)
        connection = self.server.connect()
        connection.request("GET", "/watch")
        response = connection.getresponse()
        self.assertEqual(response.getheader("content-type"), "text/event-stream")
        snapshots = []
        while len(snapshots) < 2:
            line = response.readline().decode("utf-8")
            if line.startswith("data: "):
                snapshots.append(json.loads(line[6:]))
        connection.close()
        self.assertGreater(snapshots[1]["now_ms"], snapshots[0]["now_ms"] + 300)
        request = snapshots[0]["requests"][-1]
        self.assertEqual((request["state"], request["generated_tokens"]), ("done", 3))
        self.assertLessEqual({"read", "template", "tokenize", "queue", "prefill", "decode"}, set(request["parts_ms"]))
        energy = snapshots[0]["energy"]
        self.assertEqual(sorted(energy), ["cpu_joules", "gpu_joules", "why"])
        measured = [energy[device] for device in ("cpu_joules", "gpu_joules") if energy[device] is not None]
        self.assertEqual(bool(measured), not energy["why"])
        self.assertTrue(all(joules > 0 for joules in measured))
        machine = snapshots[0]["machine"]
        self.assertGreater(machine["resident_bytes"], 1 << 20)
        self.assertTrue(all(set(one) == {"what", "fix"} for one in machine["slowed_by"]))
        metrics = self.server.get("/metrics").text
        self.assertRegex(metrics, r"\nspry_resident_bytes [1-9]")
        for name, value in machine.items():
            if name not in ("slowed_by", "resident_bytes"):
                self.assertEqual("\nspry_machine_%s " % name in metrics, value is not None, name)
        model = snapshots[0]["models"][0]
        self.assertEqual((model["name"], model["state"]), (MODEL, "loaded"))
        self.assertLessEqual(model["kv"]["idle"], model["kv"]["cached"])
        self.assertEqual((model["together"]["limit"], model["pinned"]), (8, False))
        self.assertIn("auto: a job begins at once", model["together"]["why"])

    def test_page(self):
        page = self.server.get("/")
        self.assertEqual(page.headers["content-type"], "text/html; charset=utf-8")
        self.assertIn("default-src 'none'", page.headers["content-security-policy"])
        self.assertIn("<!doctype html>", page.text.lower())
        for path, kind in (("/page.css", "text/css"), ("/page.js", "text/javascript")):
            self.assertTrue(self.server.get(path).headers["content-type"].startswith(kind))
        head = self.server.ask("HEAD", "/")
        self.assertEqual((head.status, head.body), (200, b""))


if __name__ == "__main__":
    server_support.main()
