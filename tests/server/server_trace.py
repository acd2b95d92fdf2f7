"""Where time and energy go: parts that add up, traces, disks that fill up."""

import functools
import json
import os
import re
import socket
import subprocess
import threading
import time

import server_support
from server_support import HOME, MODEL, TALE, Server, ServerTest, eventually, spry

NAMES = {"read", "template", "tokenize", "queue", "lookup", "restore", "prefill", "draft", "decode", "sampling", "grammar",
         "detokenize", "write", "others", "preprocess", "encode"}
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
            began = time.monotonic()
            reply = self.server.post(path, body)
            wall_ms = (time.monotonic() - began) * 1e3
            self.assertEqual(reply.status, 200, reply.text)
            if body.get("stream"):
                answer = reply.events[-2]
            else:
                answer = reply.lines[-1] if path == "/api/chat" else reply.json
            with self.subTest(path=path, body=str(body)[:80]):
                yield body, wall_ms, answer["timings"]

    def test_they_add_up(self):
        nearest = 0  # to what the client's clock says; others may have had the processor in between
        for body, wall_ms, timings in self.asks():
            for parts, whole in (("parts_ms", "total_ms"), ("first_parts_ms", "ttft_ms")):
                self.assertLessEqual(set(timings[parts]), NAMES)
                self.assertAlmostEqual(sum(timings[parts].values()), timings[whole], delta=0.02 * timings[whole])
                self.assertTrue(all(ms > 0 for ms in timings[parts].values()))
            self.assertLessEqual(timings["ttft_ms"], timings["total_ms"])
            self.assertLessEqual(timings["total_ms"], wall_ms)
            nearest = max(nearest, timings["total_ms"] / wall_ms)
            if timings["generated_tokens"] > 1:
                self.assertGreater(timings["parts_ms"]["decode"], 0)
            if "guided_json" in body:
                self.assertGreater(timings["parts_ms"]["grammar"], 0)
        self.assertGreater(nearest, 0.5)

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
        self.assertGreater(max(one["parts_ms"].get("queue", 0) for one in timings), 0)

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
            short = "before a counter changed" in timings["why_no_energy"]  # a GPU's is read four times a second
            self.assertEqual("spry_energy_joules_total" in metrics, short)
        else:
            self.assertNotIn("why_no_energy", timings)
            self.assertGreater(timings["energy"]["joules"], 0)
            self.assertAlmostEqual(timings["energy"]["joules_per_100_tokens"], timings["energy"]["joules"] * 5, places=3)
            self.assertIn("spry_energy_joules_total{device=", metrics)


class PutBack(server_support.unittest.TestCase):
    def test_waiting_again_is_waiting(self):
        """An answer that made room for others and was given up before its turn came. On a processor: a GPU would have made
        all of the answers by then."""
        server = Server("--draft", "none", "--context", "1024", kv="8M", device=("--device", "cpu"))
        body = json.dumps({"messages": TALE, "max_tokens": 900, "stream": True, "ignore_eos": True})
        streams = [server.connect() for _ in range(3)]
        for stream in streams:
            stream.request("POST", "/v1/chat/completions", body)
        self.assertTrue(eventually(lambda: server.metric("spry_preempted_total")))
        time.sleep(0.2)
        for stream in streams:
            stream.close()
        self.assertTrue(eventually(lambda: server.metric("spry_requests_running") == 0))
        watching = server.connect()
        watching.request("GET", "/watch")
        requests = json.loads(watching.getresponse().readline()[6:])["requests"]
        watching.close()
        queues = [request["parts_ms"]["queue"] for request in requests if request["state"] == "cancelled"]
        self.assertGreater(max(queues), 150)
        self.assertEqual(server.stop(), 0, server.log)


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


def while_it_counts(test):
    """For a test with the imitated counter: a new server for each of its runs, and one of them has to pass. A run in which
    this program was stopped, so that the counter did not change, does not count: the server then measures something else, or
    refuses to measure at all."""
    @functools.wraps(test)
    def run(self):
        failures, until = 0, time.monotonic() + 120
        while time.monotonic() < until:
            self.begin()
            try:
                return test(self)
            except AssertionError:
                failures += self.longest_s < 0.03
                if failures == 5:
                    raise
            finally:
                self.end()
        print("SKIPPED server_trace %s: this machine is too busy for a counter that keeps time" % test.__name__)
        return self.skipTest("too busy")
    return run


def cpu_watts(energy):
    """Without the parts of a GPU, where the machine has one."""
    return energy["watts"] * energy["cpu_joules"] / energy["joules"]


class Energy(server_support.unittest.TestCase):
    """A counter that goes up as if the processor drew 40 watts, which therefore computes."""

    def setUp(self):
        if not can_imitate():
            self.skipTest("a process cannot have a /sys of its own on this machine")

    def begin(self):
        self.server = Server("--draft", "none", "--idle-timeout", "3600", under=UNDER, device=("--device", "cpu"))
        self.over = False
        self.longest_s = 0  # between two counts
        path = os.path.join("/proc", str(self.server.process.pid), "root", "sys/class/powercap/intel-rapl:0/energy_uj")
        self.counter = threading.Thread(target=self.count, args=(path,))
        self.counter.start()
        self.server.chat(max_tokens=2)

    def end(self):
        self.over = True
        self.counter.join()
        self.assertEqual(self.server.stop(), 0, self.server.log)

    def count(self, path):
        began = last = time.time()
        while not self.over:
            now = time.time()
            with open(path, "r+", encoding="ascii") as file:
                file.write("%d\n" % (1000 + (now - began) * WATTS * 1e6))
            self.longest_s, last = max(self.longest_s, now - last), now
            time.sleep(0.001)

    def energy_of(self, reply):
        timings = reply.json["timings"]
        self.assertNotIn("why_no_energy", timings)
        return timings["energy"]

    @while_it_counts
    def test_measured(self):
        reply = self.server.chat(max_tokens=200, ignore_eos=True)
        timings, energy = reply.json["timings"], self.energy_of(reply)
        self.assertAlmostEqual(energy["cpu_joules"], WATTS * timings["total_ms"] / 1e3, delta=energy["cpu_joules"] / 5)
        self.assertAlmostEqual(energy["joules_per_100_tokens"], energy["joules"] / 2, places=3)
        self.assertAlmostEqual(cpu_watts(energy), WATTS, delta=WATTS / 5)
        total = re.search(r'spry_energy_joules_total\{device="cpu"\} (\S+)', self.server.get("/metrics").text).group(1)
        self.assertGreater(float(total), energy["cpu_joules"])

    @while_it_counts
    def test_two_at_once_have_half_of_it_each(self):
        for others, body in (("/v1/chat/completions", {"messages": TALE, "max_tokens": 600, "temperature": 0, "ignore_eos": True}),
                             ("/v1/embeddings", {"input": ["Once upon a time. " * 50] * 48})):
            other = threading.Thread(target=self.server.post, args=(others, body))
            steps = self.server.metric("spry_steps_total")
            other.start()
            self.assertTrue(eventually(lambda: self.server.metric("spry_steps_total") > steps))
            energy = self.energy_of(self.server.chat(max_tokens=100))
            other.join()
            self.assertLess(cpu_watts(energy), WATTS * 0.8, others)
        alone = self.energy_of(self.server.post("/v1/embeddings", body))
        self.assertAlmostEqual(cpu_watts(alone), WATTS, delta=WATTS / 5)
        self.assertIsNone(alone["joules_per_100_tokens"])
        echo = {"prompt": "Once upon a time. " * 100, "echo": True, "logprobs": 1, "max_tokens": 0}
        echoed = self.energy_of(self.server.post("/v1/completions", echo))
        self.assertAlmostEqual(cpu_watts(echoed), WATTS, delta=WATTS / 5)

    @while_it_counts
    def test_a_body_that_comes_slowly(self):
        """Watts are measured over the work, however long the client took."""
        body = json.dumps({"messages": TALE, "max_tokens": 100, "temperature": 0}).encode("ascii")
        client = self.server.socket()
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body))
        time.sleep(1.5)
        client.sendall(body)
        reply = b"".join(iter(lambda: client.recv(1 << 16), b""))
        client.close()
        timings = json.loads(reply.split(b"\r\n\r\n", 1)[1])["timings"]
        self.assertNotIn("why_no_energy", timings)
        self.assertGreater(timings["parts_ms"]["read"], 1000)
        self.assertAlmostEqual(cpu_watts(timings["energy"]), WATTS, delta=WATTS / 5)
        self.assertLess(timings["energy"]["cpu_joules"], WATTS * (timings["total_ms"] - 1000) / 1e3)

    @while_it_counts
    def test_an_answer_nobody_reads(self):
        """Once it is made it uses nothing any more, and the next one has all of what it uses."""
        body = json.dumps({"prompt": "Once upon a time. " * 300, "echo": True, "logprobs": 20, "n": 8, "max_tokens": 60,
                           "stream": True, "ignore_eos": True}).encode("ascii")  # the prompt comes back 8 times
        made = self.server.metric("spry_step_decode_rows_total") + 8 * 59  # the first tokens come of the prompt
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.server.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(eventually(lambda: self.server.metric("spry_step_decode_rows_total") >= made))
        energy = self.energy_of(self.server.chat(max_tokens=100))
        self.assertEqual(self.server.metric("spry_requests_running"), 8)  # as far as its reader goes
        client.close()
        self.assertAlmostEqual(cpu_watts(energy), WATTS, delta=WATTS / 5)

    @while_it_counts
    def test_watching_is_cheap(self):
        """However many watch, the counters are read once a second."""
        connection = self.server.connect()
        connection.request("GET", "/watch")
        response = connection.getresponse()
        seen, began = [], time.monotonic()
        while len(seen) < 6:
            line = response.readline().decode("utf-8")
            if line.startswith("data: "):
                seen.append(json.loads(line[6:])["energy"])
        connection.close()
        self.assertTrue(all(energy["why"] == "" for energy in seen))
        self.assertGreater(seen[-1]["cpu_joules"], seen[0]["cpu_joules"])
        self.assertLessEqual(len({energy["cpu_joules"] for energy in seen}), time.monotonic() - began + 2)


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

    def test_a_body_that_comes_late(self):
        """A request begins with its head; one that ends before the body is there is in another lane."""
        path = os.path.join(HOME, "late.json")
        server = Server("--trace", path)
        body = json.dumps({"messages": TALE, "max_tokens": 2}).encode("utf-8")
        late = socket.create_connection(("127.0.0.1", server.port))
        late.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
                     b"Expect: 100-continue\r\n\r\n" % len(body))
        self.assertIn(b" 100 ", late.recv(100))  # its head is read
        self.assertEqual(server.chat(max_tokens=2).status, 200)
        late.sendall(body)
        self.assertIn(b" 200 ", late.recv(100))
        late.close()
        self.assertTrue(eventually(lambda: server.metric("spry_requests_running") == 0))
        self.assertEqual(server.stop(), 0, server.log)
        first, second = sorted(events_of(path)["request"], key=lambda request: request["ts"])
        self.assertGreater(end(first), second["ts"])
        self.assertNotEqual(first["tid"], second["tid"])

    def test_embeddings(self):
        path = os.path.join(HOME, "embeddings.json")
        server = Server("--trace", path)
        tokens = server.post("/v1/embeddings", {"input": ["Once upon a time. " * 40] * 20}).json["usage"]["prompt_tokens"]
        self.assertEqual(server.post("/v1/embeddings", {"input": [[]]}).status, 400)
        self.assertEqual(server.stop(), 0, server.log)
        found = events_of(path)
        request, refused = found["request"]
        self.assertEqual((request["args"]["prompt_tokens"], request["args"]["generated_tokens"]), (tokens, 0))
        parts = [part for part in found["part"]
                 if part["tid"] == request["tid"] and request["ts"] - 0.01 <= part["ts"] < end(request) - 0.01]
        self.assertAlmostEqual(sum(part["dur"] for part in parts), request["dur"], delta=0.02 * request["dur"])
        self.assertLessEqual({"read", "tokenize", "prefill", "write"}, {part["name"] for part in parts})
        self.assertNotIn("reading", found)  # jobs of a request leave the trace to it
        self.assertEqual(refused["args"]["prompt_tokens"], 0)

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

        def is_told():  # by the first request after the first write
            self.assertEqual(server.chat(max_tokens=3).status, 200)
            return any("can no longer be written" in line for line in server.log)

        self.assertTrue(eventually(is_told))
        self.assertEqual(server.chat(max_tokens=3).status, 200)
        self.assertEqual(server.stop(), 1)
        self.assertEqual(sum("the trace file can no longer be written" in line for line in server.log), 1, server.log)
        said = [line for line in server.log if "/dev/full" in line]
        self.assertEqual(len(said), 1, server.log)
        self.assertIn("not whole: No space left on device", said[0])

    def test_wrong_use(self):
        empty = os.path.join(HOME, "empty.jsonl")
        with open(empty, "w", encoding="utf-8") as file:
            file.write("\n")
        for options, words, code in ((["--trace", "/nowhere/at/all.json"], "/nowhere/at/all.json", 1),
                                     (["--trace-ops"], "--trace-ops needs --trace", 2), (["--trace", HOME], HOME, 1)):
            for command in (["serve"], ["batch", empty, os.path.join(HOME, "none.jsonl")]):
                result = spry(*command, *options, "--kv-bytes", "64M", stdin=None)
                self.assertEqual(result.code, code, result.errors)
                self.assertIn(words, result.errors)


if __name__ == "__main__":
    server_support.main()
