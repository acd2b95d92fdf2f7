"""A server with a GPU that is imitated (tests/support/imitated_gpu.c): figures, a GPU that is lost, work that never ends,
two processes on one GPU.

The environment variable SPRY names the program with the imitated GPU."""

import os
import tempfile
import threading

from server_support import HOME, Server, ServerTest, main, tiny

os.environ["SPRY_PROFILE"] = "none"  # measuring ways to decode takes seconds here
ONCE = {"prompt": "hello", "n_predict": 6, "temperature": 0, "ignore_eos": True}


class Gpu(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.environ["IMITATED_GPU_FOLDER"] = tempfile.mkdtemp(dir=HOME)
        os.environ["IMITATED_GPU_WAIT_MS"] = str(cls.wait_ms)
        cls.server = cls.start()
        cls.model = cls.server.get("/v1/models").json["data"][0]["id"]

    wait_ms = 120000

    @staticmethod
    def start():
        return Server(tiny("qwen3"), "--device", "cuda", "--context", "128", "--draft", "none", kv="1M")

    def file(self, name):
        return os.path.join(self.folder, name)

    def happen(self, name):
        with open(self.file(name), "w", encoding="ascii"):
            pass

    def ask(self, server=None, **fields):
        return (server or self.server).post("/completion", dict(ONCE, **fields))

    def answered(self, reply):
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json["content"]

    def unload(self):
        reply = self.server.post("/api/generate", {"model": self.model, "keep_alive": 0, "stream": False})
        self.assertEqual(reply.status, 200, reply.text)

    def fails_and_goes_on(self, name, *words):
        """What happens to the GPU fails the request; the server lives, and a model that is opened anew answers as before."""
        before = self.answered(self.ask())
        self.happen(name)
        for _ in range(2):
            reply = self.ask(prompt="hello hello")
            self.assertEqual(reply.status, 503, reply.text)
            for word in words:
                self.assertIn(word, reply.json["error"]["message"])
        self.assertEqual(self.server.get("/health").status, 200)
        os.remove(self.file(name))
        self.assertEqual(self.ask().status, 503)  # a lost GPU stays lost for what is open
        self.unload()
        self.assertEqual(self.answered(self.ask()), before)


class Figures(Gpu):
    def test_metrics_and_energy(self):
        timings = self.ask(n_predict=24).json["timings"]
        metrics = self.server.get("/metrics").text
        self.assertGreater(self.server.metric("spry_steps_ahead_total", self.model), 0)
        steps, waits = (self.server.metric(name, self.model) for name in ("spry_steps_total", "spry_device_waits_total"))
        self.assertGreaterEqual(waits, steps)
        self.assertLess(waits, 2 * steps + 8)
        self.assertRegex(metrics, r"\nspry_machine_gpu_busy_percent 40\n")
        self.assertIn('spry_energy_joules_total{device="gpu"}', metrics)
        self.assertTrue(timings["energy"] is None or timings["energy"]["joules"] > 0)  # a short request may see no change

    def test_under_load(self):
        alone = [self.answered(self.ask(prompt="hello" + " you" * i)) for i in range(4)]
        got = [None] * 4

        def client(i):
            got[i] = self.ask(prompt="hello" + " you" * i).json["content"]
        threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, alone)

    def test_two_processes(self):
        with open(self.file("memory"), "rb") as file:
            held = int.from_bytes(file.read(8), "little")
        self.assertGreater(held, 0)
        second = self.start()
        try:
            self.assertEqual(self.answered(self.ask(second)), self.answered(self.ask()))
            with open(self.file("memory"), "rb") as file:
                self.assertGreater(int.from_bytes(file.read(8), "little"), held)
        finally:
            self.assertEqual(second.stop(), 0)
        os.environ["IMITATED_GPU_BYTES"] = str(held + 1000000)  # too little beside the first
        try:
            with self.assertRaisesRegex(AssertionError, "Imitated GPU 0 has [01] MB free, and"):
                self.start()
        finally:
            del os.environ["IMITATED_GPU_BYTES"]
        self.answered(self.ask())


class Lost(Gpu):
    def test_lost(self):
        self.fails_and_goes_on("lost", "Imitated GPU 0", "(error 719)")


class Endless(Gpu):
    wait_ms = 50

    def test_endless(self):
        self.fails_and_goes_on("hangs", "Imitated GPU 0", "no end after")


del Gpu  # it has no tests

if __name__ == "__main__":
    main()
