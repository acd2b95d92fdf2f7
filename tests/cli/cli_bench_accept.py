"""spry bench --accept: every acceptance criterion with a figure, or the reason why it has none, and a verdict that follows from both."""

import cli_support
from cli_support import FAILURE, OK, spry


class Accept(cli_support.CliTest):
    def test_verdicts_follow_from_figures(self):
        result = spry("bench", "--accept", "--json")
        report = result.json
        self.assertEqual(report["format"], "spry-accept-1")
        self.assertEqual(result.code, OK if report["passed"] else FAILURE)
        for one in report["criteria"]:
            words = one["bound"].split()
            if one["value"] is None:
                self.assertIn(one["verdict"], ("not measured", "FAILED: not measured"))
            elif not words:
                self.assertEqual(one["verdict"], "reported")
            elif one["shown"].split()[0] != words[2]:  # no verdict at the bound: both are rounded
                least = float(one["shown"].split()[0].rstrip("x")) > float(words[2].rstrip("x"))
                met = least == (words[1] == "least")
                self.assertIn(one["verdict"], ("passed",) if met else ("FAILED", "machine too busy"), one)
                self.assertTrue(met or one["tries"] == 3, one)  # a miss is measured again
        self.assertEqual(report["passed"], not any(one["verdict"].startswith(("FAILED", "machine")) for one in report["criteria"]))
        self.assertEqual(len(report["criteria"]), 24)
        exact = next(one for one in report["criteria"] if one["what"].startswith("KV bytes"))
        self.assertEqual((exact["value"], exact["verdict"]), (4, "passed"))
        alignment = next(one for one in report["criteria"] if "alignment" in one["what"])
        self.assertEqual(alignment["value"], 32)


if __name__ == "__main__":
    cli_support.main()
