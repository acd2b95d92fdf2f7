"""Access: limits of keys, what keys see of each other, the audit log, public metrics."""

import json
import os
import signal
import threading

import server_support
from server_support import HOME, MODEL, Server, TALE

PROMPT_WORDS = "forty-two purple wombats"


def bearer(key):
    return {"Authorization": "Bearer " + key}


def write_keys(name, *lines):
    path = os.path.join(HOME, name)
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


class Access(server_support.unittest.TestCase):
    server = None

    def start(self, *arguments):
        self.server = Server(*arguments)
        return self.server

    def tearDown(self):
        if self.server:
            self.assertEqual(self.server.stop(), 0)

    def chat(self, key, path="/v1/chat/completions", **fields):
        body = dict({"model": MODEL, "messages": TALE, "max_tokens": 8, "temperature": 0}, **fields)
        return self.server.post(path, body, **(bearer(key) if key else {}))

    def refused(self, reply, word):
        self.assertEqual(reply.status, 429, reply.text)
        self.assertIn(word, reply.text)
        self.assertTrue(1 <= int(reply.headers["retry-after"]) <= 61, reply.headers)

    def test_requests_a_minute(self):
        # One a minute: the requests below come within that on the slowest machine.
        self.start("--api-key-file", write_keys("keys-1", "alpha", "beta requests=1000", "# none"), "--key-requests", "1")
        self.assertEqual(self.chat("alpha", max_tokens=1).status, 200)
        self.refused(self.chat("alpha"), "requests a minute")
        self.assertEqual(self.chat("alpha").json["error"]["code"], "rate_limit_exceeded")
        self.assertEqual(self.server.post("/api/chat", {"model": MODEL, "messages": TALE}, **bearer("alpha")).json.keys(),
                         {"error"})
        reply = self.chat("alpha", "/v1/messages")
        self.refused(reply, "requests a minute")
        self.assertEqual((reply.json["type"], reply.json["error"]["type"]), ("error", "rate_limit_error"))
        self.assertEqual(self.server.get("/v1/models", **bearer("alpha")).status, 200)  # looking is free
        for _ in range(5):
            self.assertEqual(self.chat("beta").status, 200)
        self.assertEqual(self.chat("gamma").status, 401)

    def test_tokens_a_minute(self):
        self.start("--api-key-file", write_keys("keys-2", "alpha tokens=20", "beta"))
        self.assertEqual(self.chat("alpha").status, 200)  # gets into debt
        self.assertTrue(server_support.eventually(lambda: self.chat("alpha", max_tokens=2).status == 429))
        self.refused(self.chat("alpha"), "tokens a minute")
        self.assertEqual(self.chat("beta").status, 200)

    def test_at_a_time(self):
        self.start("--key-concurrent", "1")
        begun, done = threading.Event(), []

        def slow():
            connection = self.server.connect()
            connection.request("POST", "/v1/chat/completions", json.dumps(
                {"messages": TALE, "max_tokens": 400, "stream": True, "ignore_eos": True}))
            response = connection.getresponse()
            response.read(10)
            begun.set()
            done.append(response.read()[-14:])
            connection.close()

        thread = threading.Thread(target=slow)
        thread.start()
        begun.wait()
        self.refused(self.chat(None), "at a time")
        thread.join()
        self.assertIn(b"[DONE]", done[0])
        self.assertTrue(server_support.eventually(lambda: self.chat(None).status == 200))

    def test_bad_key_files(self):
        for line in ("alpha requests=x", "alpha requests=-1", "alpha tokens=99999999999", "alpha beta", "alpha name=",
                     "alpha request=5"):
            result = server_support.spry("serve", "--port", "0", "--api-key-file", write_keys("keys-bad", line), stdin=None)
            self.assertNotEqual(result.code, 0, line)
            self.assertIn("line 1", result.err.decode(), line)
            self.assertNotIn("alpha", result.err.decode().replace("keys-bad", ""), line)

    def test_only_admins_change_models(self):
        self.start("--api-key-file", write_keys("keys-6", "alpha admin", "beta name=b"), "--allow-pull", "--allow-pin")
        changes = [("POST", "/models/load"), ("POST", "/models/unload"), ("POST", "/models/pin"), ("POST", "/lora-adapters"),
                   ("POST", "/api/create"), ("POST", "/api/copy"), ("POST", "/api/pull"), ("DELETE", "/api/delete")]
        for method, path in changes:
            reply = self.server.ask(method, path, {"model": MODEL}, bearer("beta"))
            self.assertEqual((reply.status, "admin" in reply.text), (403, True), (path, reply.text))
        self.assertEqual(self.server.post("/models/load", {"model": MODEL}, **bearer("alpha")).status, 200)
        for path, body in (("/api/generate", {}), ("/api/chat", {}), ("/api/generate", {"prompt": "a"}), ("/api/embed", {"input": "a"}),
                           ("/api/chat", {"messages": [{"role": "user", "content": "a"}], "options": {"num_predict": 1}})):
            reply = self.server.post(path, dict(body, model=MODEL, keep_alive=0), **bearer("beta"))
            self.assertEqual(reply.status, 200 if body else 403, (path, reply.text))
        loaded = self.server.get("/api/ps", **bearer("alpha")).json["models"]
        self.assertEqual([model["name"] for model in loaded], [MODEL])
        self.assertEqual(self.chat("beta", max_tokens=1).status, 200)

    def test_keys_are_read_again(self):
        path = write_keys("keys-7", "alpha", "beta")
        server = self.start("--api-key-file", path)
        stored = server.post("/v1/responses", {"model": MODEL, "input": "Hello", "max_output_tokens": 4}, **bearer("beta"))
        write_keys("keys-7", "gamma", "beta requests=1000")
        server.process.send_signal(signal.SIGHUP)
        self.assertTrue(server_support.eventually(lambda: self.chat("gamma", max_tokens=1).status == 200))
        self.assertEqual(self.chat("alpha", max_tokens=1).status, 401)
        self.assertEqual(server.get("/v1/responses/" + stored.json["id"], **bearer("beta")).status, 200)
        self.assertEqual(server.get("/v1/responses/" + stored.json["id"], **bearer("gamma")).status, 404)
        write_keys("keys-7", "delta nonsense")
        server.process.send_signal(signal.SIGHUP)
        self.assertTrue(server_support.eventually(lambda: "stay as they are" in "".join(server.log)))
        self.assertEqual(self.chat("gamma", max_tokens=1).status, 200)

    def test_keys_do_not_see_each_other(self):
        self.start("--api-key-file", write_keys("keys-3", "alpha", "beta"))
        stored = self.server.post("/v1/responses", {"model": MODEL, "input": "Hello", "max_output_tokens": 4}, **bearer("alpha"))
        self.assertEqual(stored.status, 200, stored.text)
        path = "/v1/responses/" + stored.json["id"]
        self.assertEqual(self.server.get(path, **bearer("alpha")).status, 200)
        self.assertEqual(self.server.get(path, **bearer("beta")).status, 404)

    def test_metrics_need_a_key(self):
        keys = write_keys("keys-4", "alpha")
        self.start("--api-key-file", keys)
        self.assertEqual(self.server.get("/metrics").status, 401)
        self.assertEqual(self.server.get("/metrics", **bearer("alpha")).status, 200)
        self.assertEqual(self.server.stop(), 0)
        self.start("--api-key-file", keys, "--public-metrics")
        self.assertEqual(self.server.get("/metrics").status, 200)
        self.assertEqual(self.server.get("/v1/models").status, 401)

    def test_audit_log(self):
        path = os.path.join(HOME, "audit.jsonl")
        self.start("--api-key-file", write_keys("keys-5", "alpha-secret name=alice requests=3", "beta-secret"),
                   "--audit-log", path)
        messages = [{"role": "user", "content": PROMPT_WORDS}]
        self.chat("alpha-secret", messages=messages)
        self.chat("beta-secret", messages=messages, stream=True)
        self.chat("wrong", messages=messages)
        self.server.get("/no/such/path?secret=1", **bearer("alpha-secret"))
        self.chat("alpha-secret", messages=5)
        self.server.post("/v1/embeddings", {"model": MODEL, "input": PROMPT_WORDS}, **bearer("alpha-secret"))
        self.chat("alpha-secret", messages=messages)  # one too many
        self.assertTrue(server_support.eventually(lambda: open(path).read().count("\n") == 7))
        text = open(path).read()
        self.assertNotIn("wombats", text)
        self.assertNotIn("secret", text)
        lines = sorted((json.loads(line) for line in text.splitlines()), key=lambda line: line["request"])
        self.assertEqual([(line["key"], line["status"], line["path"]) for line in lines],
                         [("alice", 200, "/v1/chat/completions"), (2, 200, "/v1/chat/completions"),
                          (None, 401, "/v1/chat/completions"), ("alice", 404, "/no/such/path"),
                          ("alice", 400, "/v1/chat/completions"), ("alice", 200, "/v1/embeddings"),
                          ("alice", 429, "/v1/chat/completions")])
        self.assertEqual([(line["model"], line["prompt_tokens"] > 0, line["generated_tokens"]) for line in lines],
                         [(MODEL, True, 8), (MODEL, True, 8), (None, False, 0), (None, False, 0), (None, False, 0),
                          (MODEL, True, 0), (None, False, 0)])
        self.assertEqual({(line["method"], line["address"], line["complete"]) for line in lines},
                         {("POST", "127.0.0.1", True), ("GET", "127.0.0.1", True)})
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertGreater(line["ms"], 0)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_audit_log_on_standard_error(self):
        self.start("--audit-log", "-")
        self.assertEqual(self.chat(None).status, 200)
        self.assertTrue(server_support.eventually(lambda: any('"generated_tokens":8' in line for line in self.server.log)))
        result = server_support.spry("serve", "--port", "0", "--audit-log", "/no/such/folder/x", stdin=None)
        self.assertNotEqual(result.code, 0)
        self.assertIn("--audit-log", result.err.decode())


if __name__ == "__main__":
    server_support.main()
