"""Where time and energy go: parts that add up, traces, disks that fill up."""

import json
import os
import re
import subprocess
import threading
import time

import server_support
from server_support import HOME, MODEL, SLOW, TALE, Server, ServerTest, eventually, spry

NAMES = {"read", "template", "tokenize", "queue", "lookup", "restore", "prefill", "draft", "decode", "sampling", "grammar",
         "detokenize", "write", "others"}
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 9}}, "required": ["age"]}


def events_of(path):
    """The events of a trace, by category; M: names of lanes."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    events = json.loads(text)
    assert text.count("\n") == len(events) + 2, "an event a line"
    found = {"M": [event for event in events if event["ph"] == "M"]}
    for event in events:
        if event["ph"] == "X":
            found.setdefault(event["cat"], []).append(event)
    return found


def end(event):
    return event["ts"] + event["dur"]


class Parts(ServerTest):
    def asks(self):
        """Each kind of request that makes tokens: how long it took here, and its timings."""
        stream = {"messages": TALE, "max_tokens": 40, "temperature": 0, "stream": True}
        for path, body in (("/v1/chat/completions", {"messages": TALE, "max_tokens": 60, "temperature": 0}),
                           ("/v1/chat/completions", {"messages": TALE, "max_tokens": 30, "temperature": 0, "n": 3}),
                           ("/v1/chat/completions", {"messages": TALE, "guided_json": SCHEMA, "max_tokens": 40}),
                           ("/v1/chat/completions", stream),
                           ("/v1/completions", {"prompt": ["Once", "The fox"], "max_tokens": 20, "echo": True, "logprobs": 1}),
                           ("/v1/completions", {"prompt": "Once", "max_tokens": 0, "echo": True}),
                           ("/completion", {"prompt": "Once upon a", "n_predict": 30}),
                           ("/api/chat", {"model": MODEL, "messages": TALE, "options": {"num_predict": 20}}),
                           ("/api/generate", {"model": MODEL, "prompt": "Hi", "options": {"num_predict": 20}, "stream": False})):
            began = time.time()
            reply = self.server.post(path, body)
            wall_ms = (time.time() - began) * 1e3
            self.assertEqual(reply.status, 200, reply.text)
            if body.get("stream"):
                answer = reply.events[-2]
            else:
                answer = reply.lines[-1] if path == "/api/chat" else reply.json
            with self.subTest(path=path, body=str(body)[:80]):
                yield body, wall_ms, answer["timings"]

    def test_they_add_up(self):
        for body, wall_ms, timings in self.asks():
            for parts, whole in (("parts_ms", "total_ms"), ("first_parts_ms", "ttft_ms")):
                self.assertLessEqual(set(timings[parts]), NAMES)
                self.assertAlmostEqual(sum(timings[parts].values()), timings[whole], delta=0.02 * timings[whole])
                self.assertTrue(all(ms > 0 for ms in timings[parts].values()))
            self.assertLessEqual(timings["ttft_ms"], timings["total_ms"])
            self.assertLessEqual(timings["total_ms"], wall_ms)
            self.assertGreater(timings["total_ms"], 0.9 * wall_ms - 20 * SLOW)
            if timings["generated_tokens"] > 1:
                self.assertGreater(timings["parts_ms"]["decode"], timings["parts_ms"]["sampling"])
                self.assertAlmostEqual(timings["ttft_ms"], timings["total_ms"] - timings["decode_ms"],
                                       delta=0.1 * timings["total_ms"] + 10 * SLOW)
            if "guided_json" in body:
                self.assertGreater(timings["parts_ms"]["grammar"], 0)

    def test_they_add_up_when_many_ask(self):
        timings = []

        def ask(number):
            messages = [{"role": "user", "content": "Tell me tale %d. " % number * 20}]
            timings.append(self.server.chat(messages=messages, max_tokens=20).json["timings"])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(timings), 12)
        for one in timings:
            self.assertAlmostEqual(sum(one["parts_ms"].values()), one["total_ms"], delta=0.02 * one["total_ms"])
            self.assertAlmostEqual(sum(one["first_parts_ms"].values()), one["ttft_ms"], delta=0.02 * one["ttft_ms"])
        self.assertGreater(max(one["parts_ms"]["queue"] for one in timings), 1)

    def test_loading_is_waiting(self):
        self.server.post("/api/generate", {"model": MODEL, "keep_alive": 0})
        timings = self.server.chat(max_tokens=2).json["timings"]
        self.assertGreater(timings["load_ms"], 1)
        self.assertGreaterEqual(timings["first_parts_ms"]["queue"], timings["load_ms"])

    def test_energy(self):
        """Measured or not: never a number out of thin air."""
        timings = self.server.chat(max_tokens=20).json["timings"]
        metrics = self.server.get("/metrics").text
        if timings["energy"] is None:
            self.assertGreater(len(timings["why_no_energy"]), 20)
            self.assertNotIn("spry_energy_joules_total", metrics)
        else:
            self.assertNotIn("why_no_energy", timings)
            self.assertGreater(timings["energy"]["joules"], 0)
            self.assertAlmostEqual(timings["energy"]["joules_per_100_tokens"], timings["energy"]["joules"] * 5, places=3)
            self.assertIn("spry_energy_joules_total{device=", metrics)


WATTS = 40
# A machine of one's own, whose /sys/class has nothing but one counter of energy.
IMITATION = """mount -t tmpfs none /sys/class || exit 1
counter=/sys/class/powercap/intel-rapl:0
mkdir -p $counter && echo package-0 >$counter/name && echo 262143328850 >$counter/max_energy_range_uj || exit 1
echo 1000 >$counter/energy_uj
exec "$@"
"""
UNDER = ["unshare", "-rm", "sh", "-c", IMITATION, "sh"]


def can_imitate():
    try:
        return subprocess.run([*UNDER, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Energy(server_support.unittest.TestCase):
    """A counter that goes up as if the processor drew 40 watts."""

    def count(self, path):
        began = time.time()
        while not self.over:
            with open(path, "r+", encoding="ascii") as file:
                file.write("%d\n" % (1000 + (time.time() - began) * WATTS * 1e6))
            time.sleep(0.001)

    def test_measured(self):
        if not can_imitate():
            self.skipTest("this machine lets nobody have a /sys of his own")
        server = Server("--draft", "none", under=UNDER)
        self.over = False
        path = "/proc/%d/root/sys/class/powercap/intel-rapl:0/energy_uj" % server.process.pid
        counter = threading.Thread(target=self.count, args=(path,))
        counter.start()
        try:
            server.chat(max_tokens=2)
            timings = server.chat(max_tokens=200).json["timings"]
            energy = timings["energy"]
            self.assertNotIn("why_no_energy", timings)
            self.assertAlmostEqual(energy["cpu_joules"], WATTS * timings["total_ms"] / 1e3, delta=energy["cpu_joules"] / 5)
            self.assertAlmostEqual(energy["joules_per_100_tokens"], energy["joules"] / 2, places=3)
            self.assertGreater(energy["watts"], WATTS * 0.8)
            total = float(re.search(r'spry_energy_joules_total\{device="cpu"\} (\S+)', server.get("/metrics").text).group(1))
            self.assertGreater(total, energy["cpu_joules"])
            # Two at once have half of it each.
            shares = []
            both = [threading.Thread(target=lambda: shares.append(server.chat(max_tokens=200).json["timings"]["energy"]))
                    for _ in range(2)]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join()
            self.assertLess(min(share["cpu_joules"] / share["joules"] * share["watts"] for share in shares), WATTS * 0.8)
        finally:
            self.over = True
            counter.join()
            self.assertEqual(server.stop(), 0, server.log)


class Traces(server_support.unittest.TestCase):
    def run_server(self, path, *options):
        server = Server("--trace", path, *options)
        reply = server.chat(max_tokens=30, n=2)
        self.assertEqual(reply.status, 200)
        connection = server.connect()
        connection.request("POST", "/v1/chat/completions",
                           json.dumps({"messages": TALE, "max_tokens": 1500, "stream": True, "ignore_eos": True}))
        connection.getresponse().readline()
        connection.close()  # leaves in the middle
        self.assertEqual(server.chat(max_tokens=0).status, 400)
        self.assertEqual(server.chat(max_tokens=5, stream=True).status, 200)
        return server

    def test_requests_and_their_parts(self):
        path = os.path.join(HOME, "requests.json")
        server = self.run_server(path)
        self.assertTrue(eventually(lambda: server.metric("spry_requests_running") == 0))
        self.assertEqual(server.stop(), 0, server.log)
        found = events_of(path)
        self.assertNotIn("op", found)
        self.assertGreater(len(found["step"]), 30)
        lanes = {event["tid"]: event["args"]["name"] for event in found["M"] if event["name"] == "thread_name"}
        requests = found["request"]
        self.assertGreaterEqual(len(requests), 3)
        self.assertEqual(requests[0]["args"]["generated_tokens"], 60)
        self.assertEqual(len({request["args"]["request"] for request in requests}), len(requests))
        for request in requests:
            self.assertRegex(lanes[request["tid"]], r"^request \d+$")
            parts = sorted((part for part in found["part"] if part["tid"] == request["tid"] and
                            request["ts"] - 0.01 <= part["ts"] <= end(request)), key=lambda part: part["ts"])
            self.assertLessEqual({part["name"] for part in parts}, NAMES)
            self.assertAlmostEqual(sum(part["dur"] for part in parts), request["dur"], delta=0.02 * request["dur"])
            for part, following in zip(parts, parts[1:]):
                self.assertLessEqual(end(part), following["ts"] + 0.01)
            self.assertEqual((parts[0]["name"], parts[-1]["name"]), ("read", "write"))
        answers = [answer for answer in found["answer"] if answer["args"]["generated_tokens"] == 30]
        self.assertEqual(len({answer["tid"] for answer in answers}), 2)  # each of the two has a line

    def test_ops(self):
        path = os.path.join(HOME, "ops.json")
        server = self.run_server(path, "--trace-ops")
        self.assertEqual(server.stop(), 0, server.log)
        found = events_of(path)
        self.assertLessEqual({"qkv", "attend", "gate_up", "down", "logits"}, {op["name"] for op in found["op"]})

    def test_batch(self):
        path, questions = os.path.join(HOME, "batch.json"), os.path.join(HOME, "questions.jsonl")
        with open(questions, "w", encoding="utf-8") as file:
            for number in range(4):
                file.write(json.dumps({"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions",
                                       "body": {"messages": TALE, "max_tokens": 4}}) + "\n")
        result = spry("batch", questions, os.path.join(HOME, "traced.jsonl"), "--trace", path, "--kv-bytes", "64M")
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(len(events_of(path)["request"]), 4)

    def test_full_disk(self):
        server = self.run_server("/dev/full", "--trace-ops")
        time.sleep(1.5)  # by now it has seen that it is full
        self.assertEqual(server.chat(max_tokens=3).status, 200)
        self.assertEqual(server.chat(max_tokens=3).status, 200)
        self.assertEqual(server.stop(), 1)
        self.assertEqual(sum("the trace cannot be written any more" in line for line in server.log), 1, server.log)
        said = [line for line in server.log if "/dev/full" in line]
        self.assertEqual(len(said), 1, server.log)
        self.assertIn("not whole: No space left on device", said[0])

    def test_wrong_use(self):
        empty = os.path.join(HOME, "empty.jsonl")
        with open(empty, "w", encoding="utf-8") as file:
            file.write("\n")
        for options, words in ((["--trace", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
                               (["--trace-ops"], "--trace-ops needs --trace"), (["--trace", HOME], HOME)):
            for command in (["serve"], ["batch", empty, os.path.join(HOME, "none.jsonl")]):
                result = spry(*command, *options, "--kv-bytes", "64M", stdin=None)
                self.assertEqual(result.code, 1, result.errors)
                self.assertIn(words, result.errors)


if __name__ == "__main__":
    server_support.main()
