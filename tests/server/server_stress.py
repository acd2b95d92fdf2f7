"""Many clients at once that ask for everything there is, leave at any moment and let models go meanwhile: at the end
nothing runs, nothing waits, and the server answers. SPRY_STRESS multiplies the number of requests."""

import http.client
import json
import os
import random
import shutil
import socket
import threading
import time

import server_support
from server_support import MODEL, TALE, ServerTest, eventually, tiny

CLIENTS, REQUESTS = 10, 12 * int(os.environ.get("SPRY_STRESS", "1"))
MODELS = (MODEL, "llama", "qwen3")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}


def request_of(pick):
    """One request: method, path, body."""
    model, tokens = pick.choice(MODELS), pick.choice((1, 5, 40, 300))
    chat = {"model": model, "messages": [{"role": "user", "content": "Tale %d. " % pick.randrange(4) * pick.choice((1, 30))}],
            "max_tokens": tokens, "stream": pick.random() < 0.6, "ignore_eos": pick.random() < 0.5,
            "priority": pick.choice(("batch", "interactive"))}
    fragments = [{"type": "text", "text": "Once %d. " % pick.randrange(3) * 40, "cache": "span"}, {"type": "text", "text": "Go on."}]
    return pick.choice((
        ("POST", "/v1/chat/completions", chat),
        ("POST", "/v1/chat/completions", dict(chat, n=3, temperature=1)),
        ("POST", "/v1/chat/completions", dict(chat, guided_json=SCHEMA)),
        ("POST", "/v1/chat/completions", dict(chat, messages=[{"role": "user", "content": fragments}], answer_span=True)),
        ("POST", "/v1/completions", {"model": model, "prompt": ["Once upon a time. " * 20] * 3, "echo": True, "logprobs": 2,
                                     "max_tokens": pick.choice((0, 8)), "stream": pick.random() < 0.5}),
        ("POST", "/v1/embeddings", {"model": model, "input": ["Text %d. " % i * 20 for i in range(pick.choice((1, 40)))]}),
        ("POST", "/api/chat", {"model": model, "messages": TALE, "options": {"num_predict": tokens}}),
        ("POST", "/api/generate", {"model": model, "keep_alive": 0}),
        ("POST", "/api/generate", {"model": model, "prompt": "Hi", "options": {"num_predict": tokens}, "keep_alive": pick.choice((0, 1, -1))}),
        ("POST", "/v1/messages", {"model": model, "messages": TALE, "max_tokens": tokens, "stream": True}),
        ("POST", "/v1/responses", {"model": model, "input": "Hi", "max_output_tokens": tokens, "stream": True}),
        ("POST", "/completion", {"model": model, "prompt": "word " * 200, "n_predict": tokens, "stream": True}),
        ("GET", "/metrics", None), ("GET", "/watch", None), ("GET", "/slots", None), ("GET", "/api/ps", None)))


class Stress(ServerTest):
    folder = os.path.join(server_support.HOME, "stress")
    arguments = ("--models-dir", folder, "--parallel", "3", "--queue", "6", "--context", "512", "--pool-bytes", "256M")

    @classmethod
    def setUpClass(cls):
        os.makedirs(cls.folder)
        for name in MODELS[1:]:
            shutil.copy(tiny(name), os.path.join(cls.folder, name + ".gguf"))
        cls.server = server_support.Server(*cls.arguments, kv="5M")

    def visit(self, pick):
        """Makes one request and reads all of the answer, some of it or nothing."""
        method, path, body = request_of(pick)
        connection = self.server.connect()
        try:
            connection.request(method, path, json.dumps(body) if body else None)
            patience = "a bit" if path == "/watch" else pick.choice(("all", "all", "a bit", "none", "reset"))
            if patience == "reset":
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if patience in ("none", "reset"):
                time.sleep(pick.choice((0, 0.01, 0.2)))
                return None
            response = connection.getresponse()
            if patience == "all":
                response.read()
            else:
                response.read1(pick.choice((1, 500)))
            return response.status
        except (http.client.HTTPException, ConnectionError):
            return 0  # a queue that is full may be said before the body is read
        finally:
            connection.close()

    def test_all_at_once(self):
        statuses, failures = [], []

        def client(number):
            pick = random.Random(number)
            try:
                for _ in range(REQUESTS):
                    statuses.append(self.visit(pick))
            except Exception as failure:  # whatever it is, the test tells it
                failures.append(failure)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        self.assertEqual(failures, [])
        self.assertLessEqual(set(statuses), {None, 0, 200, 400, 429, 503}, statuses)
        self.assertGreater(statuses.count(200), CLIENTS)
        self.assertTrue(eventually(lambda: not any(self.server.metric(name, model)
                                                   for name in ("spry_requests_running", "spry_requests_waiting")
                                                   for model in MODELS)))
        self.alive()


if __name__ == "__main__":
    server_support.main()
