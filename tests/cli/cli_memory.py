"""KV memory as a person meets it: a cache folder that outlives the program, fragments, a context that slides."""

import os
import shutil
import struct
import subprocess

import cli_support
from cli_support import FAILURE, HOME, SPRY, USAGE, environment, spry, tiny

LONG = "Once upon a time there was a small boat that lived by the sea. " * 12


class Memory(cli_support.CliTest):
    def folder(self):
        path = os.path.join(HOME, "pages")
        shutil.rmtree(path, ignore_errors=True)
        return path

    def answer(self, *options, prompt=LONG):
        return self.succeeds(spry("run", "--raw", "-p", prompt, "-n", "12", "--temperature", "0", "--json",
                                  *options)).json

    def pages(self, folder):
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".page"))

    # ---- the context

    def test_a_large_context_costs_nothing_at_the_start(self):
        """Without --context it is the model's own, and memory is taken only as it is used."""
        with open(tiny("qwen3"), "rb") as file:
            data = bytearray(file.read())
        at = data.index(b"qwen3.context_length") + len("qwen3.context_length")
        self.assertEqual(struct.unpack_from("<I", data, at), (4,))  # the value is a uint32
        struct.pack_into("<I", data, at + 4, 131072)
        model = os.path.join(HOME, "large.gguf")
        with open(model, "wb") as file:
            file.write(data)
        self.addCleanup(os.remove, model)

        def resident(*options):
            process = subprocess.Popen([SPRY, "run", model, "-p", "hello", "-n", "4", "--json", *options],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=environment())
            out = process.stdout.read()
            process.stdout.close()
            process.stderr.close()
            status, use = os.wait4(process.pid, 0)[1:]
            process.returncode = status
            self.assertEqual(status, 0, out)
            return use.ru_maxrss * 1024

        self.assertLess(resident() - resident("--context", "256"), 16 << 20)
        self.assertIn("of 131072 tokens", spry("run", model, "-p", "hello", "-n", "4", "--stats").errors)

    # ---- the folder

    def test_a_second_process_restores(self):
        folder = self.folder()
        first, plain = self.answer("--cache-dir", folder), self.answer()
        second = self.answer("--cache-dir", folder)
        self.assertEqual(first["restored_tokens"], 0)
        self.assertGreaterEqual(second["restored_tokens"], 128)
        self.assertEqual(second["reused_tokens"], second["restored_tokens"])
        self.assertEqual([first["tokens"], second["tokens"]], [plain["tokens"]] * 2)
        third = self.answer("--cache-dir", folder)  # has nothing new to write
        written = len(self.pages(folder))  # the last page may be written after the answer was reported
        self.assertIn(third["kv"]["disk_files"], (written - 1, written))

    def test_damaged_files_are_no_harm(self):
        folder = self.folder()
        plain = self.answer("--cache-dir", folder)
        files = self.pages(folder)
        for i, name in enumerate(files):  # names say nothing about the order of pages
            with open(name, "r+b") as file:
                if i % 3 == 0:
                    file.truncate(1000)
                elif i % 3 == 1:
                    file.seek(50000)
                    file.write(b"\xff" * 64)
                else:
                    file.truncate(0)
                    file.write(b"not a page")
        os.truncate(os.path.join(folder, "index.db"), 100)
        result = spry("run", "--raw", "-p", LONG, "-n", "12", "--temperature", "0", "--json", "--cache-dir", folder)
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(result.json["tokens"], plain["tokens"])
        self.assertLess(result.json["restored_tokens"], plain["prompt_tokens"] - 64)

    def test_other_models_find_nothing(self):
        folder = self.folder()
        self.answer("--cache-dir", folder)
        other = self.answer("Spry-Tales-Draft-4M", "--cache-dir", folder)
        kind = self.answer("--kv-type", "q8_0", "--cache-dir", folder)
        kernels = self.answer("--cpu", "ref", "--cache-dir", folder, "--threads", "2")
        self.assertEqual([other["restored_tokens"], kind["restored_tokens"], kernels["restored_tokens"]], [0, 0, 0])
        self.assertGreater(self.answer("--cache-dir", folder)["restored_tokens"], 0)

    def test_two_at_once_and_a_limit(self):
        folder = self.folder()
        command = [SPRY, "run", "--raw", "-p", LONG, "-n", "12", "--temperature", "0", "--cache-dir", folder,
                   "--cache-disk-bytes", "600K"]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
                for _ in range(2)]
        texts = [process.communicate(timeout=cli_support.TIMEOUT) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], texts)
        self.assertEqual(texts[0][0], texts[1][0])
        self.assertLessEqual(sum(os.path.getsize(path) for path in self.pages(folder)), 600 << 10)

    def test_folders_that_cannot_be(self):
        file = os.path.join(HOME, "a-file")
        with open(file, "w", encoding="utf-8") as out:
            out.write("x")
        for folder in (file, os.path.join(file, "below")):
            result = spry("run", "-p", "x", "-n", "1", "--cache-dir", folder)
            self.fails(result, FAILURE, "a-file")

    # ---- fragments

    def test_fragments(self):
        folder = self.folder()
        paths = []
        for number, text in enumerate(("The fox lived in the forest and had a red coat. " * 8,
                                       "The king had a golden cup that he loved very much. " * 8)):
            paths.append(os.path.join(HOME, "fragment-%d.txt" % number))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)

        def ask(order, *options):
            spans = [part for path in order for part in ("--span", path)]
            return self.succeeds(spry("run", "-p", "Who is it?", "-n", "12", "--temperature", "0", "--json", *spans,
                                      "--cache-dir", folder, *options)).json
        cold = ask(paths)
        warm, turned = ask(paths), ask(paths[::-1])
        self.assertEqual(cold["tokens"], warm["tokens"])
        self.assertGreater(turned["span_tokens"], 64)
        self.assertLessEqual(abs(turned["repaired_tokens"] - 64), 32)  # two pages for two fragments, in whole pages
        self.assertGreater(turned["restored_tokens"], 64)
        whole, alone = ask(paths, "--span-repair", "all"), ask(paths, "--span-repair", "all")
        self.assertEqual((whole["span_tokens"], whole["repaired_tokens"]), (0, 0))
        self.assertEqual(whole["tokens"], alone["tokens"])
        self.assertEqual(ask(paths, "--span-repair", "0")["repaired_tokens"], 0)
        self.fails(spry("run", "-p", "x", "--span", paths[0], "--raw"), USAGE, "--span")
        self.fails(spry("run", "-p", "x", "--span", "/no/such/file"), FAILURE, "/no/such/file")
        first, spread = (ask(paths, "--span-repair", mode + ":32")["repaired_tokens"] for mode in ("first", "spread"))
        self.assertTrue(0 < first and 0 < spread, (first, spread))
        for bound in (0.03, 0.004):
            some = ask(paths, "--span-repair", "auto:%g" % bound)
            self.assertTrue(0 < some["span_divergence"] <= bound, some)
        self.assertEqual(ask(paths, "--span-repair", "auto")["repaired_tokens"],
                         ask(paths, "--span-repair", "auto:0.03")["repaired_tokens"])
        for wrong in ("some", "first:", "first:x", "last:3", "auto:", "auto:0", "auto:x", "auto:11", "536870912", "first:536870912"):
            self.fails(spry("run", "-p", "x", "--span", paths[0], "--span-repair", wrong), FAILURE, "--span-repair")

    # ---- the context

    def test_sliding(self):
        limits = ("--context", "128", "--ignore-end")
        short = "Once upon a time"

        def ask(*options, tokens="400"):
            return spry("run", "--raw", "-p", short, "-n", tokens, "--temperature", "0", "--json", *limits, *options)
        full = ask()
        self.assertEqual(full.json["finish"], "context")
        self.assertIn("context of 128 tokens is full", full.errors)
        for options in (("--slide",), ("--keep", "40"), ("--slide", "--chunk", "7")):
            result = self.succeeds(ask(*options))
            self.assertEqual(result.json["finish"], "length")
            self.assertEqual(result.json["generated_tokens"], 400)
        slid = [self.succeeds(ask("--slide", "--chunk", chunk)).json["tokens"] for chunk in ("1", "32")]
        self.assertEqual(slid[0], slid[1])
        self.assertEqual(slid[0][:100], full.json["tokens"][:100])
        self.fails(ask("--keep", "120"), FAILURE, "keeping 120")

    def test_a_prompt_longer_than_the_context(self):
        long = spry("run", "--raw", "-p", LONG, "-n", "4", "--context", "128", "--json")
        self.fails(long, FAILURE, "the context holds 128")
        slid = spry("run", "--raw", "-p", LONG, "-n", "4", "--context", "128", "--json", "--slide")
        self.assertEqual(self.succeeds(slid).json["finish"], "length")

    def test_sizes(self):
        self.fails(spry("run", "-p", "x", "--kv-bytes", "1K"), FAILURE, "--context")
        self.fails(spry("run", "-p", "x", "--kv-bytes", "much"), USAGE, "--kv-bytes")
        small = self.answer("--kv-bytes", "20M")
        self.assertLessEqual(small["kv"]["pages"] * small["kv"]["page_bytes"], 20 << 20)
        self.assertEqual(small["tokens"], self.answer()["tokens"])


if __name__ == "__main__":
    cli_support.main()
