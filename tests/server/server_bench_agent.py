"""spry bench --agent: a session of a coding agent here and on a server."""

import json
import os

import server_support
from agents_support import FOLDER, make_model
from server_support import Server

import cli_bench_mix
import cli_support
from cli_support import FAILURE, HOME, USAGE, spry

TURNS = 20


class Agent(cli_support.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.model = make_model(FOLDER + "8192", 8192)

    def agent(self, *arguments):
        return spry("bench", self.model, "--agent", "--mix-scale", "0.05", "--threads", "1", *arguments)

    def test_here_and_there(self):
        """The same session has the same tokens, and finds the same ones in the cache, here and on a server of spry."""
        server = Server("model=" + self.model, "--only-named")
        saved = os.path.join(HOME, "agent.json")
        try:
            report = self.succeeds(self.agent("--json", "--save", saved, "--url", "http://127.0.0.1:%d" % server.port)).json
        finally:
            server.stop()
        here, there = report["runs"]
        self.assertEqual((report["format"], report["scale"], here["error"], there["error"]), ("spry-agent-report-1", 0.05, None, None))
        self.assertEqual(len(here["requests"]), TURNS + 1)
        counts = [[(r["prompt_tokens"], r["hit_tokens"]) for r in run["requests"]] for run in (here, there)]
        self.assertEqual(*counts)
        prompts, hits = zip(*counts[0])
        for turn in range(2, TURNS + 1):
            prompt, hit, before = prompts[turn - 1], hits[turn - 1], prompts[turn - 2]
            if turn in (9, 16):  # old results are cleared: what comes after them is computed again
                self.assertLess(hit, 0.9 * before)
            else:
                self.assertGreater(prompt, before)
                self.assertGreater(hit, before - 64)
        self.assertEqual(hits[0], 0)
        self.assertGreater(hits[TURNS], 0.9 * prompts[TURNS])  # another session in another folder
        self.assertAlmostEqual(here["session"]["hit_share"], sum(hits[:TURNS]) / sum(prompts[:TURNS]), 4)
        self.assertAlmostEqual(here["session"]["ttft_ms"], sum(r["ttft_ms"] for r in here["requests"][:TURNS]), 1)
        names = [figure["what"] for figure in report["figures"]]
        for name in ("first tokens of a session, together", "first token of another session", "server: cached in another session"):
            self.assertIn(name, names)
        again = self.succeeds(spry("bench", "--measured", saved, "--baseline", saved, "--json")).json
        self.assertTrue(again["gate"]["passed"])

    def test_table(self):
        text = self.succeeds(self.agent()).text
        self.assertRegex(text, r"(?m)^20 +\d[\d,]* +\d+\.\d %")
        self.assertRegex(text, r"(?m)^another session +\d")
        self.assertRegex(text, r"(?m)^all of the session +\d")

    def test_agreement(self):
        """What was cached gives the bits of what is computed: every prediction of every answer."""
        saved = os.path.join(HOME, "agreement.json")
        result = self.succeeds(self.agent("--agreement", "--save", saved))
        with open(saved, encoding="utf-8") as file:
            run = json.load(file)["runs"][0]
        self.assertGreater(run["session"]["hit_share"], 0.5)
        compared = [request["agreement"]["predictions"] for request in run["requests"]]
        self.assertGreater(min(compared), 1)
        agreed = run["agreement"]
        self.assertEqual((agreed["turns"], agreed["predictions"], agreed["same_top"], agreed["identical"], agreed["divergence"]),
                         (TURNS + 1, sum(compared), 1, 1, 0))
        self.assertIn("the same most probable token 100.00 %, the same bits 100.00 %", result.text)

    def test_a_server_that_dies(self):
        server = cli_bench_mix.Server("openai", lives=3)
        try:
            result = self.agent("--url", server.url)
        finally:
            server.close()
        self.assertEqual(result.code, FAILURE)
        self.assertIn("3 of 21 requests were measured", result.errors)
        self.assertRegex(result.text, r"(?m)^3 .* 25\.0 %")
        path, body = server.bodies[2]
        self.assertEqual([message["role"] for message in body["messages"]], ["system", "user"] + 2 * ["assistant", "tool"])
        self.assertEqual((path, len(body["tools"])), ("/v1/chat/completions", 14))

    def test_what_does_not_fit(self):
        self.fails(spry("bench", "--shape", "tiny", "--agent"), FAILURE, "agent session, request 1", "--mix-scale")
        for arguments, words in ((["--mix", "chat"], "measure different things"), (["--batch", "2"], "--batch is not part of a workload"),
                                 (["--requests", "3"], "--requests needs --mix"), (["--url-model", "x"], "--url-model needs --url"),
                                 (["--together", "2"], "--together needs --mix"), (["--mix-scale", "0"], "--mix-scale")):
            self.fails(spry("bench", "--agent", *arguments), USAGE, words)
        self.fails(spry("bench", "--agreement"), USAGE, "--agreement needs --agent")


if __name__ == "__main__":
    server_support.main()
