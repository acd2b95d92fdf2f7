"""A server on a GPU of Vulkan, which is Mesa's lavapipe here: masks, and evicted pages of 8 bits in host memory.
server_vulkan_more.py has the cases that take longer."""

import glob
import os
import unittest

from server_support import Server, main

DRIVERS = glob.glob("/usr/share/vulkan/icd.d/lvp_icd.*.json")
os.environ["SPRY_PROFILE"] = "none"  # measuring ways to decode takes seconds here
if DRIVERS:
    os.environ["VK_ICD_FILENAMES"] = DRIVERS[0]
STORIES = ["The %s met the %s by the river, and the %s met the %s. " % (a, b, a, b) * 6
           for a, b in (("fox", "hen"), ("cat", "dog"), ("owl", "hare"), ("king", "queen"))]


@unittest.skipUnless(DRIVERS, "no driver that is a CPU (mesa-vulkan-drivers)")
class Device(unittest.TestCase):
    def start(self, *arguments, kv="64M"):
        self.server = Server("--context", "256", *arguments, kv=kv, device=("--device", "vulkan"))
        self.addCleanup(lambda server: self.assertEqual(server.stop(), 0), self.server)

    def ask(self, prompt, path="/completion", **fields):
        reply = self.server.post(path, dict({"prompt": prompt, "n_predict": 8, "temperature": 0, "ignore_eos": True}, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def answers(self):
        return [self.ask(story)["content"] for story in STORIES]

    def evicted(self, *arguments, kv):
        """Fewer pages than the stories have: those of the first ones go to host memory, and come back."""
        self.start("--draft", "none", *arguments, kv=kv)
        first = self.answers()
        self.assertGreater(self.server.metric("spry_kv_host_saved_total"), 0)
        self.assertEqual(self.answers(), first)
        self.assertGreater(self.server.metric("spry_kv_host_loaded_total"), 0)
        return first


class Vulkan(Device):
    def test_the_device(self):
        self.start("--verbose")
        self.assertTrue(any("computed on vulkan" in line for line in self.server.log), self.server.log)
        self.assertTrue(any("without a copy" in line for line in self.server.log), self.server.log)

    def test_masks(self):
        """A grammar's masks, with draws."""
        self.start("--draft", "none")
        for seed in range(3):
            content = self.ask("A number:", grammar='root ::= "[" [0-9] ", " [0-9] "]"', temperature=1, seed=seed, ignore_eos=False,
                               n_predict=32)["content"]
            self.assertRegex(content, r"^\[\d, \d\]$")

    def test_pages_of_8_bits_in_host_memory(self):
        self.evicted("--kv-type", "q8_0", kv="1400K")


if __name__ == "__main__":
    main()
