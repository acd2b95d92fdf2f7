"""Priorities: batch requests give way to others, on every interface, and their answers stay the same."""

import json
import threading

import server_support
from server_support import MODEL, TALE, ServerTest


class Priority(ServerTest):
    arguments = ("--parallel", "2")

    @server_support.once_of(3)
    def test_batch_gives_way(self):
        long = dict(max_tokens=500, ignore_eos=True, priority="batch")
        alone = self.server.chat(**long).json["choices"][0]["message"]["content"]
        answers, order = [], []

        def ask():
            answers.append(self.server.chat(**long).json["choices"][0]["message"]["content"])
            order.append("batch")

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        self.assertTrue(server_support.eventually(lambda: self.server.metric("spry_requests_running") == 2))
        reply = self.server.chat(messages=[{"role": "user", "content": "Now!"}], max_tokens=4)
        order.append("interactive")
        self.assertEqual(reply.status, 200, reply.text)
        for thread in threads:
            thread.join()
        self.assertLess(order.index("interactive"), 2)  # four batch requests still waited
        self.assertEqual(set(answers), {alone})
        self.assertGreater(self.server.metric("spry_preempted_total"), 0)

    def test_every_interface_reads_it(self):
        for path, body in (("/v1/chat/completions", {"messages": TALE}), ("/v1/completions", {"prompt": "Once"}),
                           ("/completion", {"prompt": "Once"}), ("/v1/messages", {"messages": TALE}),
                           ("/v1/responses", {"input": "Once"}), ("/api/chat", {"messages": TALE, "stream": False}),
                           ("/api/generate", {"prompt": "Once", "stream": False})):
            if path.startswith("/api"):
                body["options"] = {"num_predict": 4}
            elif path == "/v1/responses":
                body["max_output_tokens"] = 4
            elif path == "/completion":
                body["n_predict"] = 4
            else:
                body["max_tokens"] = 4
            body["model"] = MODEL
            for priority in ("batch", "interactive", None):
                self.assertEqual(self.server.post(path, dict(body, priority=priority)).status, 200, path)
            for wrong in ("urgent", "", 5, ["batch"]):
                reply = self.server.post(path, dict(body, priority=wrong))
                self.assertEqual(reply.status, 400, path)
                self.assertIn("priority", reply.text)


if __name__ == "__main__":
    server_support.main()
