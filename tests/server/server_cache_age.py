"""`--cache-ttl`: cached pages that no request used for that long are computed again. The server's clock is the test's."""

import os
import struct

import server_support
from server_support import HOME, ServerTest

CLOCK = os.path.join(HOME, "clock")
SYSTEM = [{"role": "system", "content": "You tell tales of the sea. " * 40}, {"role": "user", "content": "A boat."}]


def move_clock(seconds):
    with open(CLOCK, "r+b") as file:
        file.write(struct.pack("=Q", int(seconds * 1e9)))


class CacheAge(ServerTest):
    arguments = ("--cache-ttl", "5")

    @classmethod
    def setUpClass(cls):
        with open(CLOCK, "wb") as file:
            file.write(bytes(8))
        os.environ["SPRY_TEST_CLOCK"] = CLOCK
        super().setUpClass()

    def cached(self, at):
        """Cached tokens of the prompt when it is sent at this second."""
        move_clock(at)
        return self.server.chat(messages=SYSTEM, max_tokens=1).json["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_old_pages_are_not_used(self):
        self.assertEqual(self.cached(0), 0)
        self.assertGreater(self.cached(3), 200)  # and used anew
        self.assertGreater(self.cached(6), 200)
        self.assertEqual(self.cached(13), 0)
        self.assertGreater(self.cached(14), 200)
        self.assertEqual(self.cached(20), 0)
        self.assertEqual([self.server.metric("spry_%s_prompts_total" % which) for which in ("known", "found")], [5, 3])


if __name__ == "__main__":
    server_support.main()
