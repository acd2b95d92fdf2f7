"""The figures of one answer agree with each other: of spry run, with cached and restored prefixes, sliding and drafts."""

import os
import re
import tempfile

import cli_support
from cli_support import HOME, spry

PROMPT = "The miller had three sons, a mill, a donkey and a cat. " * 24


class Figures(cli_support.CliTest):
    def agree(self, *arguments):
        """Checks one answer as JSON, and returns it."""
        a = self.succeeds(spry("run", "--temperature", "0", "--seed", "1", "--ignore-end", "--json", *arguments)).json
        self.assertLessEqual(a["reused_tokens"], a["prompt_tokens"])
        self.assertLessEqual(a["restored_tokens"], a["reused_tokens"])
        self.assertLessEqual(a["span_tokens"], a["reused_tokens"])
        self.assertEqual(len(a["tokens"]), a["generated_tokens"])
        self.assertLessEqual(a["lookup_ms"] + a["restore_ms"], a["prefill_ms"])
        self.assertLessEqual(a["prefill_ms"], a["first_token_ms"])
        self.assertAlmostEqual(sum(a["parts_ms"].values()), a["total_ms"], delta=0.02 * a["total_ms"] + 0.2)
        # The whole also has what is before and after the engine's part, however long a busy machine makes it.
        beside = sum(a["parts_ms"].get(part, 0) for part in ("read", "template", "tokenize", "queue", "write", "others"))
        inside = a["first_token_ms"] + a["decode_ms"]
        self.assertLessEqual(inside, a["total_ms"] + 0.2)
        self.assertGreaterEqual(inside + beside, a["total_ms"] - 0.02 * a["total_ms"] - 0.2)
        first = a["first_parts_ms"]
        engine = sum(ms for part, ms in first.items() if part not in ("read", "template", "tokenize", "queue"))
        self.assertAlmostEqual(engine, a["first_token_ms"], delta=0.02 * a["first_token_ms"] + 0.2)
        for part, ms in first.items():
            self.assertLessEqual(ms, a["parts_ms"][part] + 0.001, part)
        drafts = a.get("drafts", {"accepted": 0, "drafted": 0})
        self.assertLessEqual(drafts["accepted"], drafts["drafted"])
        self.assertLessEqual(drafts["accepted"], a["generated_tokens"])
        return a

    def stats(self, *arguments):
        result = spry("run", "--temperature", "0", "--ignore-end", "--stats", *arguments)
        self.assertEqual(result.code, 0, result.errors)
        held, limit = map(int, re.search(r"context +(\d+) of (\d+) tokens", result.errors).groups())
        self.assertLessEqual(held, limit, result.errors)
        return result.errors

    def test_plain_and_drafts(self):
        self.agree("-p", "Once upon a time", "-n", "40")
        self.agree("-p", PROMPT, "-n", "40", "--raw", "--draft", "lookup")
        self.agree("-p", PROMPT, "-n", "8", "--raw", "--draft", "none")

    def test_restored_from_disk(self):
        folder = tempfile.mkdtemp(dir=HOME)
        prompt = PROMPT
        while self.agree("-p", prompt, "-n", "1", "--raw")["prompt_tokens"] % 32:
            prompt += " cat"
        # The prompt ends with a page, whose last token is computed again.
        options = ["-p", prompt, "-n", "4", "--raw", "--cache-dir", os.path.join(folder, "pages")]
        self.assertEqual(self.agree(*options)["restored_tokens"], 0)
        self.assertGreater(self.agree(*options)["restored_tokens"], 0)
        cached, disk = map(int, re.search(r"(\d+) more were cached, (\d+) of them on disk", self.stats(*options)).groups())
        self.assertLessEqual(disk, cached)

    def test_sliding(self):
        self.stats("-p", PROMPT[:300], "-n", "400", "--raw", "--context", "256", "--slide")


if __name__ == "__main__":
    cli_support.main()
