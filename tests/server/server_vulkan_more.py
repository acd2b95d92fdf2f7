"""More of a server on a GPU of Vulkan (server_vulkan.py): drafts, evicted pages in host memory and on disk, fragments. What a
device does cold it does warm: the same answers."""

import tempfile

import server_vulkan
from server_support import HOME, main
from server_vulkan import STORIES


class Vulkan(server_vulkan.Device):
    def test_drafts(self):
        """Those of prompt lookup, which repeated words give; draws with a seed are the same ones, too."""
        self.start("--draft", "none")
        plain = [self.ask(STORIES[0], n_predict=24, **draw)["content"] for draw in ({}, {"temperature": 1, "seed": 7})]
        self.start("--draft", "lookup")
        drafted = [self.ask(STORIES[0], n_predict=24, **draw)["content"] for draw in ({}, {"temperature": 1, "seed": 7})]
        self.assertEqual(drafted, plain)
        while not self.server.metric("spry_drafted_tokens_total"):  # a slow moment of the machine can make drafts not worth it
            self.assertEqual(self.ask(STORIES[0], n_predict=24)["content"], plain[0])

    def test_pages_in_host_memory(self):
        self.assertEqual(len(set(self.evicted(kv="2500K"))), len(STORIES))

    def test_pages_on_disk(self):
        with tempfile.TemporaryDirectory(dir=HOME) as folder:
            self.start("--draft", "none", "--cache-dir", folder)
            first = self.answers()
            self.assertEqual(self.server.stop(), 0)
            self.start("--draft", "none", "--cache-dir", folder)
            again = self.ask(STORIES[0])
            self.assertEqual(again["content"], first[0])
            self.assertGreater(again["timings"]["cache_n"], 0)
            self.assertEqual(self.answers(), first)

    def test_fragments(self):
        self.start("--draft", "none")
        parts = [{"text": "In spring: "}, {"text": STORIES[0], "cache": "span"}, {"text": " So"}]
        cold = self.ask(parts)
        moved = self.ask([{"text": "Some other words stand here now. "}, *parts[1:]])
        self.assertGreater(moved["timings"]["span_tokens"], 32)
        self.assertEqual(self.ask(parts)["content"], cold["content"])


if __name__ == "__main__":
    main()
