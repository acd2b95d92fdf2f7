"""Memory of a server: what it takes after loading, under work and when idle again; limits and use are told apart."""

import server_support
from server_support import MODEL, Server, ServerTest

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
