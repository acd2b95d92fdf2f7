"""spry bench --mix and --url: drawn and replayed workloads, servers of both interfaces, servers that die; --chunk LIST."""

import http.server
import json
import os
import tempfile
import threading

import cli_support
from cli_support import FAILURE, HOME, OK, USAGE, spry

SMALL = {"format": "spry-mix-1", "prompt": {"96": 1, "160": 1}, "answer": {"3": 1, "5": 1},
         "systems": {"helper": {"tokens": 64, "share": 3}, "coder": {"tokens": 40}}}
QUICK = ["--shape", "tiny", "--threads", "1", "--kv-bytes", "64M"]


class Server(http.server.ThreadingHTTPServer):
    """Answers as a model server does: `words` pieces of text for each request. It dies in the middle of an answer after
    `lives` answers, and has nothing to say from then on."""
    daemon_threads = True

    def __init__(self, api, lives=1000, usage=True, knows_eos=True, models=("first-model", "second")):
        super().__init__(("127.0.0.1", 0), Handler)
        self.api, self.lives, self.usage, self.knows_eos, self.models = api, lives, usage, knows_eos, models
        self.bodies, self.keys, self.lock = [], [], threading.Lock()
        self.url = "http://127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def reply(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        s = self.server
        if s.api == "openai" and self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": name} for name in s.models]})
        elif s.api == "ollama" and self.path == "/api/tags":
            self.reply(200, {"models": [{"name": name} for name in s.models]})
        else:
            self.reply(404, {"error": "nothing here"})

    def do_POST(self):
        s = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not s.knows_eos and "ignore_eos" in body:
            self.reply(400, {"error": {"message": "Unrecognized request argument: ignore_eos"}})
            return
        with s.lock:
            s.bodies.append((self.path, body))
            s.keys.append(self.headers.get("Authorization"))
            dies = s.lives <= 0
            s.lives -= 1
        self.send_response(200)
        self.end_headers()
        if s.api == "openai":
            self.openai(body["max_tokens"], dies)
        else:
            self.ollama(body["options"]["num_predict"], dies)

    def openai(self, count, dies):
        def event(value):
            self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        event({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for _ in range(1 if dies else count):
            event({"choices": [{"delta": {"content": "word "}, "finish_reason": None}]})
        if dies:
            return
        event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        if self.server.usage:
            event({"choices": [], "usage": {"prompt_tokens": 200, "completion_tokens": count,
                                            "prompt_tokens_details": {"cached_tokens": 50}}})
        self.wfile.write(b"data: [DONE]\n\n")

    def ollama(self, count, dies):
        def line(value):
            self.wfile.write(json.dumps(value).encode() + b"\n")
        for _ in range(1 if dies else count):
            line({"message": {"role": "assistant", "content": "word "}, "done": False})
        if not dies:
            line({"message": {"content": ""}, "done": True, "prompt_eval_count": 100, "eval_count": count})


class MixTest(cli_support.CliTest):
    def file(self, name, content):
        folder = tempfile.mkdtemp(dir=HOME)
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def lines(self, *lines):
        return self.file("replay.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def mix(self, mix, *arguments):
        return spry("bench", "--mix", mix if isinstance(mix, str) else self.file("mix.json", mix), *QUICK, *arguments)

    def report(self, mix, *arguments):
        return self.succeeds(self.mix(mix, "--json", *arguments)).json

    def server(self, *arguments, **options):
        server = Server(*arguments, **options)
        self.addCleanup(server.close)
        return server


class Drawn(MixTest):
    def test_form_of_the_report(self):
        report = self.report(SMALL, "--requests", "6", "--together", "2")
        self.assertEqual([report[key] for key in ("format", "model", "mix", "requests", "together", "scale", "seed")],
                         ["spry-mix-report-1", "tiny-q4_0", "mix.json", 6, 2, 1.0, 1])
        run, = report["runs"]
        self.assertEqual((run["where"], run["api"], run["model"], run["completed"], run["error"]), ("here", None, None, 6, None))
        for figure in (run["ttft_ms"], run["between_ms"]):
            self.assertGreater(figure["p50"], 0)
            self.assertLessEqual(figure["p50"], figure["p95"])
            self.assertLessEqual(figure["p95"], figure["p99"])
        self.assertEqual(len(run["requests"]), 6)
        for request in run["requests"]:
            self.assertIn(request["system"], ("helper", "coder"))
            self.assertIn(request["answer_tokens"], (3, 5))
            self.assertEqual(request["answer_tokens"], request["wanted_tokens"])
            self.assertLess(min(abs(request["prompt_tokens"] - n) for n in (96, 160)), 8)  # tokens may join
            self.assertLessEqual(request["ttft_ms"], request["total_ms"])
        self.assertEqual(run["answer_tokens"], sum(r["answer_tokens"] for r in run["requests"]))
        self.assertEqual(sum(s["requests"] for s in run["systems"]), 6)

    def test_system_prompts_are_hits(self):
        targets = os.path.join(tempfile.mkdtemp(dir=HOME), "targets.json")
        with open(targets, "w", encoding="utf-8") as file:
            json.dump({"format": "spry-targets-1", "machines": {"*": {"mix_found_share": 0.95}}}, file)
        report = self.report(SMALL, "--requests", "8", "--together", "1", "--targets", targets)
        self.assertEqual([(t["what"], t["verdict"]) for t in report["targets"]["targets"]], [("known system prompts found", "met")])
        run, = report["runs"]
        first = {}
        for request in run["requests"]:
            known = first.setdefault(request["system"], request)
            if known is request:
                self.assertLess(request["hit_tokens"], 64)  # nothing of it was seen before, except the template
            else:
                self.assertGreaterEqual(request["hit_tokens"], 32)
        self.assertEqual(run["found_share"], 1)
        for system in run["systems"]:
            mine = [r for r in run["requests"] if r["system"] == system["system"]]
            self.assertAlmostEqual(system["hit_share"], sum(r["hit_tokens"] for r in mine) / sum(r["prompt_tokens"] for r in mine), 5)

    def test_a_seed_gives_its_lengths(self):
        def lengths(seed):
            run, = self.report(SMALL, "--requests", "8", "--seed", seed)["runs"]
            return [(r["system"], r["wanted_tokens"]) for r in run["requests"]]
        self.assertEqual(lengths("5"), lengths("5"))
        self.assertNotEqual(lengths("5"), lengths("6"))

    def test_names_and_scale(self):
        for name in ("uniform", "chat", "documents", "agent", "writing"):
            report = self.report(name, "--mix-scale", "0.06", "--requests", "2")
            self.assertEqual((report["mix"], report["runs"][0]["completed"]), (name, 2))
        self.fails(self.mix("uniform"), FAILURE, "uniform has requests of", "the model's context is 1024", "--mix-scale 0.")

    def test_table(self):
        result = self.succeeds(self.mix(SMALL, "--requests", "3"))
        self.assertRegex(result.text, r"mix mix.json: 3 requests, 4 together, seed 1\n")
        self.assertRegex(result.text, r"helper +\d .* %\n")
        self.assertLessEqual(max(map(len, result.text.splitlines())), 100)

    def test_saved(self):
        path = os.path.join(HOME, "mix-report.json")
        self.succeeds(self.mix(SMALL, "--requests", "2", "--save", path))
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["runs"][0]["completed"], 2)

    def test_baseline_and_targets(self):
        path, folder = os.path.join(HOME, "mix-base.json"), tempfile.mkdtemp(dir=HOME)
        mix, targets = self.file("mix.json", SMALL), os.path.join(folder, "targets.json")
        with open(targets, "w", encoding="utf-8") as file:
            json.dump({"format": "spry-targets-1", "machines": {"*": {"mix_ttft_p95_ms": 1e9, "mix_tps": 1e9, "memory_bytes": 1}}}, file)
        first = self.mix(mix, "--requests", "3", "--seed", "7", "--together", "2", "--save", path, "--targets", targets, "--json")
        self.assertEqual((first.code, first.errors), (FAILURE, ""))
        self.assertEqual({t["what"]: t["verdict"] for t in first.json["targets"]["targets"]},
                         {"first token, p95": "met", "all answers": "missed"})
        again = self.mix(mix, "--baseline", path, "--max-drop", "100%", "--json")  # its seed and number of requests are the baseline's
        self.assertIn(again.code, (OK, FAILURE), again.errors)
        self.assertEqual([again.json[key] for key in ("requests", "seed", "together")], [3, 7, 2])
        self.assertLessEqual({"first token, p50", "between tokens, p99", "all answers", "cached of prompts"},
                             {f["what"] for f in again.json["gate"]["figures"]})
        self.fails(self.mix(mix, "--baseline", path, "--seed", "8"), FAILURE, "seed is 7 there and 8 here")
        self.fails(self.mix("chat", "--mix-scale", "0.05", "--baseline", path), FAILURE, "the mix is 'mix.json' there and 'chat' here")

    def test_bad_distributions(self):
        for change, words in (({"prompt": {"-5": 1}}, "'-5' is not a length"), ({"answer": {"0": 1}}, "'0' is not a length"),
                              ({"prompt": {"96": -1}}, "prompt.96 is not a share"), ({"prompt": {"96": 0}}, "no length with a share above 0"),
                              ({"prompt": {}}, "no length with a share above 0"), ({"prompt": [96]}, "\"prompt\" is not an object"),
                              ({"format": "spry-mix-2"}, "\"format\" is not"), ({"colour": 1}, "colour is not known"),
                              ({"systems": {"a": {"tokens": -1}}}, "systems.a"), ({"systems": {"a": {"tokens": 96}}}, "no room"),
                              ({"prompt": {str(i): 1 for i in range(1, 30)}}, "more than 16 lengths"), ({"systems": {"a": 3}}, "not an object"),
                              ({"systems": {"a": {"share": 0}}}, "no system prompt has a share")):
            self.fails(self.mix({**SMALL, **change}), FAILURE, "mix.json", words)
        self.fails(self.mix("no-such-mix"), FAILURE, "no-such-mix", "uniform, chat")
        self.fails(self.mix(self.file("broken.json", "{\n\"format\": \"spry-mix-1\",")), FAILURE, "broken.json")


class Replayed(MixTest):
    def test_lines_of_every_kind(self):
        system = {"role": "system", "content": "You are terse. " * 20}
        path = self.lines({"messages": [system, {"role": "user", "content": "Say one."}], "max_tokens": 2},
                          {"custom_id": "a", "body": {"messages": [system, {"role": "user", "content": "Say two."}], "max_tokens": 3}},
                          {"prompt": "Say three.", "max_tokens": 4},
                          {"prompt_tokens": 90, "answer_tokens": 5, "system": "made", "system_tokens": 40})
        run, = self.report(path, "--together", "1")["runs"]
        self.assertEqual([r["answer_tokens"] for r in run["requests"]], [2, 3, 4, 5])
        self.assertEqual([r["system"] is None for r in run["requests"]], [False, False, True, False])
        self.assertEqual(run["requests"][0]["system"], run["requests"][1]["system"])
        self.assertGreaterEqual(run["requests"][1]["hit_tokens"], 32)
        self.assertEqual(self.report(path, "--requests", "6")["runs"][0]["completed"], 6)  # again from its beginning

    def test_many_system_prompts(self):
        path = self.lines(*({"messages": [{"role": "system", "content": "Number %d" % i}, {"role": "user", "content": "x"}],
                             "max_tokens": 1} for i in range(20)))
        run, = self.report(path)["runs"]
        self.assertEqual((len(run["systems"]), run["systems"][-1]["system"], run["systems"][-1]["requests"]), (16, "others", 5))

    def test_bad_lines(self):
        good = {"prompt": "Hello.", "max_tokens": 2}
        for bad, words in (({"prompt_tokens": -5}, "\"prompt_tokens\" is not a whole number"), ({"prompt": "x", "max_tokens": -1}, "\"max_tokens\""),
                           ({"prompt_tokens": 5, "answer_tokens": 0}, "\"answer_tokens\""), ({}, "none of"), ({"prompt": ""}, "none of"),
                           ({"messages": []}, "\"messages\""), ({"messages": [{"role": "user"}]}, "messages[0]"),
                           ({"prompt_tokens": 50, "system_tokens": 9}, "needs \"system\""), ({"prompt_tokens": 1.5}, "\"prompt_tokens\""),
                           ({"prompt_tokens": 1 << 40}, "\"prompt_tokens\"")):
            self.fails(self.mix(self.lines(good, bad)), FAILURE, "replay.jsonl", "line 2", words)
        self.fails(self.mix(self.file("replay.jsonl", json.dumps(good) + "\n{\"prompt\": \n")), FAILURE, "line 2")
        self.fails(self.mix(self.file("replay.jsonl", "\n \n")), FAILURE, "no request")
        self.fails(self.mix(self.lines(good, {"prompt": "word " * 3000})), FAILURE, "line 2", "pass the context")
        self.fails(self.mix(self.lines({"prompt_tokens": 90, "system": "a", "system_tokens": 40}, {"prompt_tokens": 90, "system": "a"})),
                   FAILURE, "line 2", "has 256 tokens, but 40")


class Servers(MixTest):
    def test_openai(self):
        server = self.server("openai")
        report = self.report(SMALL, "--requests", "5", "--together", "2", "--url", server.url + "/v1/", "--url-key", "secret")
        here, there = report["runs"]
        self.assertEqual((there["where"], there["api"], there["model"], there["completed"]), (server.url, "openai", "first-model", 5))
        self.assertEqual([r["answer_tokens"] for r in there["requests"]], [r["wanted_tokens"] for r in here["requests"]])
        self.assertAlmostEqual(there["hit_share"], 0.25)
        self.assertEqual({s["system"]: s["hit_share"] for s in there["systems"]}, {s["system"]: 0.25 for s in here["systems"]})
        self.assertGreater(there["ttft_ms"]["p50"], 0)
        self.assertEqual(set(server.keys), {"Bearer secret"})
        for path, body in server.bodies:
            self.assertEqual((path, body["model"], body["stream"], body["temperature"], body["ignore_eos"]),
                             ("/v1/chat/completions", "first-model", True, 0, True))
            self.assertEqual([m["role"] for m in body["messages"]], ["system", "user"])
        self.assertEqual(len({body["messages"][1]["content"] for _, body in server.bodies}), 5)

    def test_ollama(self):
        server = self.server("ollama")
        _, there = self.report(SMALL, "--requests", "3", "--url", server.url, "--url-model", "second")["runs"]
        self.assertEqual((there["api"], there["model"], there["completed"], there["prompt_tokens"]), ("ollama", "second", 3, 300))
        self.assertEqual((there["hit_share"], {s["hit_share"] for s in there["systems"]}), (None, {None}))
        self.assertEqual({(path, body["model"]) for path, body in server.bodies}, {("/api/chat", "second")})
        result = self.succeeds(self.mix(SMALL, "--requests", "2", "--url", server.url))
        self.assertIn("not told", result.text)
        self.assertIn("%s (ollama, first-model)" % server.url, result.text)

    def test_a_server_that_tells_less(self):
        server = self.server("openai", usage=False, knows_eos=False)
        _, there = self.report(SMALL, "--requests", "3", "--url", server.url)["runs"]
        self.assertEqual((there["completed"], there["hit_share"], there["prompt_tokens"]), (3, None, 0))
        self.assertEqual([r["answer_tokens"] for r in there["requests"]], [r["wanted_tokens"] for r in there["requests"]])

    def test_a_server_that_dies(self):
        for api in ("openai", "ollama"):
            server = self.server(api, lives=2)
            saved = os.path.join(HOME, "died.json")
            result = self.mix(SMALL, "--requests", "6", "--together", "1", "--url", server.url, "--json", "--save", saved)
            self.assertEqual(result.code, FAILURE)
            self.one_sentence(result, server.url, "ended the connection in the middle of an answer", "2 of 6 requests were measured")
            here, there = result.json["runs"]
            self.assertEqual((here["completed"], here["error"], there["completed"]), (6, None, 2))
            self.assertIn("in the middle of an answer", there["error"])
            self.assertEqual(len(there["requests"]), 2)
            with open(saved, encoding="utf-8") as file:
                self.assertEqual(json.load(file), result.json)
        server = self.server("openai", lives=0)
        result = self.mix(SMALL, "--requests", "2", "--url", server.url)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("ended after 0 of 2 requests", result.text)

    def test_no_server(self):
        server = Server("openai")
        server.close()
        self.fails(self.mix(SMALL, "--url", server.url), FAILURE, server.url, "is no server of OpenAI's or Ollama's interface")
        self.fails(self.mix(SMALL, "--url", self.server("neither").url), FAILURE, "/v1/models: status 404; /api/tags: status 404")
        self.fails(self.mix(SMALL, "--url", self.server("openai", models=()).url), FAILURE, "the server has no model")
        self.fails(self.mix(SMALL, "--url", "localhost:8080"), FAILURE, "does not begin with http://")

    def test_flags_that_contradict(self):
        for arguments, words in ((["--url", "http://x"], "--url needs --mix or --agent"), (["--requests", "3"], "--requests needs --mix"),
                                 (["--seed", "3"], "--seed needs --mix or --agent"), (["--mix", "chat", "--url-model", "m"], "--url-model needs --url"),
                                 (["--mix", "chat", "--prefill", "9"], "--prefill is not part of a workload"),
                                 (["--mix", "chat", "--batch", "9"], "--batch is not part of a workload"),
                                 (["--mix", "chat", "--reuse"], "measure different things"), (["--mix", "chat", "--draft", "auto"], "measure different things"),
                                 (["--mix", "chat", "--chunk", "1,2"], "measure different things"),
                                 (["--mix", "chat", "--policy"], "--policy is measured without"),
                                 (["--mix", "chat", "--together", "0"], "--together"), (["--mix", "chat", "--mix-scale", "0"], "--mix-scale")):
            self.fails(spry("bench", *arguments), USAGE, words)


class Chunks(MixTest):
    def sweep(self, *arguments):
        return spry("bench", *QUICK, "--repeat", "1", *arguments)

    def test_every_length_with_every_chunk(self):
        report = self.succeeds(self.sweep("--chunk", "0,16,64", "--prefill", "40,100,2000", "--json")).json
        self.assertEqual([(p["chunk"], p["tokens"]) for p in report["points"]], [(c, n) for c in (0, 16, 64) for n in (40, 100)])
        self.assertEqual({p["tokens"] for p in report["skipped"]}, {2000})
        for point in report["points"]:
            self.assertGreater(point["tps"], 0)
            self.assertLessEqual(point["longest_step_ms"], 1000 * point["tokens"] / point["tps"] * 1.001)
        whole = [p for p in report["points"] if p["chunk"] == 0]
        for point in whole:  # one step is all there is
            self.assertAlmostEqual(point["longest_step_ms"] * point["tps"] / 1000 / point["tokens"], 1, 3)

    def test_table(self):
        result = self.succeeds(self.sweep("--chunk", "0,16", "--prefill", "40"))
        self.assertRegex(result.text, r"\n +whole +40 ")
        self.assertRegex(result.text, r"\n +16 +40 ")

    def test_baseline(self):
        path = os.path.join(HOME, "chunks.json")
        self.succeeds(self.sweep("--chunk", "0,16", "--prefill", "40", "--save", path))
        result = self.succeeds(spry("bench", "--baseline", path, "--measured", path, "--json"))
        self.assertEqual({f["what"] for f in result.json["gate"]["figures"]},
                         {"prefill 40 in one step", "prefill 40 in one step, longest step", "prefill 40 by 16", "prefill 40 by 16, longest step"})

    def test_one_chunk_is_a_setting(self):
        result = self.succeeds(self.sweep("--chunk", "16", "--prefill", "40", "--decode-depth", "0", "--batch", "1", "--tokens", "2", "--json"))
        self.assertEqual((result.json["format"], result.json["settings"]["chunk"]), ("spry-bench-1", 16))

    def test_bad_chunks(self):
        for text in ("1,x", "-1", "70000", "1,,2", "none"):
            self.fails(self.sweep("--chunk", text), USAGE, "--chunk")
        self.fails(self.sweep("--chunk", "1,2", "--decode-depth", "4"), USAGE, "--decode-depth", "--chunk")


if __name__ == "__main__":
    cli_support.main()
