"""Many clients at once that ask for everything there is, leave at any moment and let models go meanwhile: at the end
nothing runs, nothing waits, and the server answers. SPRY_STRESS multiplies the number of requests."""

import os
import random
import shutil
import threading

import server_support
from server_support import MODEL, ServerTest, eventually, tiny
from traffic import request_of, visit

CLIENTS, REQUESTS = 10, 12 * int(os.environ.get("SPRY_STRESS", "1"))
MODELS = (MODEL, "llama", "qwen3")

class Stress(ServerTest):
    folder = os.path.join(server_support.HOME, "stress")
    arguments = ("--models-dir", folder, "--parallel", "3", "--queue", "6", "--context", "512", "--pool-bytes", "256M")

    @classmethod
    def setUpClass(cls):
        os.makedirs(cls.folder)
        for name in MODELS[1:]:
            shutil.copy(tiny(name), os.path.join(cls.folder, name + ".gguf"))
        cls.server = server_support.Server(*cls.arguments, kv="5M")

    def test_all_at_once(self):
        statuses, failures = [], []

        def client(number):
            pick = random.Random(number)
            try:
                for _ in range(REQUESTS):
                    statuses.append(visit(self.server, pick, *request_of(pick, MODELS)))
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
