"""A server with little memory under random clients for minutes: `make soak MINUTES=n`.

Thirty-two clients send requests of every interface, with wrong ones among them, and leave when they like; models are unloaded
and loaded meanwhile, and cached pages go to disk and come back. At the end nothing runs, waits or is held; descriptors and
threads are as many as at the beginning; the last half of the time took no more memory than the half before; one answer of a
hundred is asked again of a server that has seen nothing, and has the same text.

SOAK_CLIENTS, SOAK_SEED: other numbers of clients, other requests."""

import http.client
import os
import random
import shutil
import statistics
import sys
import threading
import time

import server_support
from server_support import HOME, MODEL, Server, eventually, tiny
from traffic import WRONG, exact, request_of, visit

MODELS = (MODEL, "llama", "qwen3")
SEEING = "qwen3-vl"
REPLAYED = 100
PARALLEL = 4
SAMPLE_S = 1


def text_of(reply):
    """What an answer says, without its ids, times and figures."""
    choice = reply.json["choices"][0] if "choices" in reply.json else reply.json
    return choice.get("text") or choice.get("content") or choice.get("message", {}).get("content")


class Soak:
    def __init__(self, minutes):
        self.minutes, self.until = minutes, 0
        self.seed = int(os.environ.get("SOAK_SEED", "1"))
        self.folder, self.pages = os.path.join(HOME, "models"), os.path.join(HOME, "pages")
        os.makedirs(self.folder)
        for name in MODELS[1:]:
            shutil.copy(tiny(name), os.path.join(self.folder, name + ".gguf"))
        shutil.copytree(tiny(SEEING, ""), os.path.join(self.folder, SEEING))
        self.arguments = ("--models-dir", self.folder, "--parallel", str(PARALLEL), "--queue", "40", "--context", "512", "--pool-bytes", "256M")
        self.server = Server(*self.arguments, "--cache-dir", self.pages, "--cache-disk-bytes", "8M", "--max-per-address", "400",
                             kv="5M")
        self.lock = threading.Lock()
        self.statuses, self.failures, self.answers = {}, [], []
        self.health, self.memory = [], []
        self.asked = 0

    def fail(self, words):
        with self.lock:
            self.failures.append(words)

    def count(self, status):
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1

    # ---- clients

    def ask_exactly(self, pick):
        path, body = exact(pick, MODELS)
        reply = self.server.post(path, body)
        self.count(reply.status)
        with self.lock:
            self.asked += 1
            kept = self.asked % REPLAYED == 1
            if reply.status == 200 and kept:
                self.answers.append((path, body, text_of(reply)))

    def client(self, number):
        pick = random.Random(self.seed * 1000 + number)
        while time.monotonic() < self.until:
            try:
                chance = pick.random()
                if chance < 0.4:
                    self.ask_exactly(pick)
                elif chance < 0.5:
                    path = pick.choice(("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/completion"))
                    self.count(visit(self.server, pick, "POST", path, pick.choice(WRONG)))
                else:
                    self.count(visit(self.server, pick, *request_of(pick, MODELS, SEEING)))
            except (http.client.HTTPException, ConnectionError):
                self.count(0)
            except Exception as failure:  # whatever it is, the end tells it
                self.fail("client %d: %r" % (number, failure))

    def watch(self):
        """Memory and how long /health takes."""
        while time.monotonic() < self.until and self.server.process.poll() is None:
            began = time.monotonic()
            try:
                self.server.get("/health")
                self.health.append(time.monotonic() - began)
                with open("/proc/%d/statm" % self.server.process.pid, encoding="ascii") as file:
                    self.memory.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            except (OSError, http.client.HTTPException) as failure:
                self.fail("/health: %r" % failure)
            time.sleep(SAMPLE_S)

    # ---- the end

    def expect(self, what, check):
        if not eventually(check):
            self.fail(what)

    def idle(self):
        lines = self.server.get("/metrics").text.splitlines()
        return not [line for line in lines if line.startswith(("spry_requests_running", "spry_requests_waiting"))
                    and float(line.rsplit(" ", 1)[1])]

    def fill(self):
        """Every model can still fill all its pages: none was lost."""
        for model in (*MODELS, SEEING):
            answers = []

            def ask():
                answers.append(self.server.post("/v1/completions", {"model": model, "prompt": "Once", "max_tokens": 480,
                                                                    "ignore_eos": True, "stream": False}).status)
            asking = [threading.Thread(target=ask) for _ in range(PARALLEL)]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
            if answers != [200] * PARALLEL:
                self.fail("%s cannot use all its pages: %s" % (model, answers))

    def replay(self):
        cold = Server(*self.arguments)
        for path, body, text in self.answers:
            again = text_of(cold.post(path, body))
            if again != text:
                self.fail("%s %r: %r, and cold %r" % (path, body, text, again))
        if cold.stop() != 0:
            self.fail("the cold server: %s" % "".join(cold.log))

    def check_memory(self):
        half = self.memory[len(self.memory) // 2:]
        before, after = half[:len(half) // 2], half[len(half) // 2:]
        if not after:
            return
        early, late = statistics.median(before), statistics.median(after)
        print("memory: %.1f MiB in the third quarter, %.1f MiB in the last" % (early / 2**20, late / 2**20))
        if late > 1.02 * early + (4 << 20):
            self.fail("memory grows: %d bytes, then %d" % (early, late))

    def run(self, clients):
        for model in (*MODELS, SEEING):  # what every model needs once is there
            self.server.chat(model=model)
        self.expect("idle at the beginning", self.idle)
        descriptors, threads = self.server.descriptors(), self.server.threads()
        self.until = time.monotonic() + 60 * self.minutes
        everyone = [threading.Thread(target=self.client, args=(number,)) for number in range(clients)]
        everyone.append(threading.Thread(target=self.watch))
        for thread in everyone:
            thread.start()
        for thread in everyone:
            thread.join()
        if self.server.process.poll() is not None:
            self.fail("the server ended: %s" % "".join(self.server.log[-30:]))
        else:
            self.expect("requests without clients", self.idle)
            self.fill()
            self.expect("descriptors: %d at first" % descriptors, lambda: self.server.descriptors() <= descriptors + 4)
            self.expect("threads: %d at first" % threads, lambda: self.server.threads() <= threads + 4)
            print("descriptors %d, then %d; threads %d, then %d" % (descriptors, self.server.descriptors(), threads, self.server.threads()))
            if self.server.stop() != 0:
                self.fail("exit: %s" % "".join(self.server.log[-30:]))
        self.check_memory()
        self.replay()
        self.health.sort()
        print("replies by status: %s" % dict(sorted(self.statuses.items(), key=str)))
        print("/health: median %.1f ms, p99 %.1f ms, of %d" % (statistics.median(self.health) * 1e3,
                                                               self.health[len(self.health) * 99 // 100] * 1e3, len(self.health)))
        print("%d answers asked again of a cold server" % len(self.answers))
        if not set(self.statuses) <= {None, 0, 200, 400, 404, 429, 503}:
            self.fail("unexpected statuses")
        for words in self.failures[:20]:
            print("FAILED %s" % words)
        print("%d passed, %d failed, 0 skipped" % (not self.failures, len(self.failures)))
        return 1 if self.failures else 0


if __name__ == "__main__":
    sys.exit(Soak(float(sys.argv[1]) if len(sys.argv) > 1 else 5).run(int(os.environ.get("SOAK_CLIENTS", "32"))))
