"""Settings from the machine's profile and from variables: what they set, what overrides them, and what is refused."""

import json
import os
import re
import subprocess
import tempfile

from cli_support import CliTest, FAILURE, HOME, OK, SPRY, USAGE, environment, limit_memory, main, spry, tiny

STORED = os.path.join(HOME, ".local", "share", "spry", "profile.json")
ANSWER = ("run", "-p", "Once", "--raw", "--temperature", "0", "--ignore-end", "--json")


def profile(settings=None, machine=None, **section):
    """The path of a new profile with one section."""
    if settings is not None:
        section["settings"] = settings
    return written({"format": "spry-profile-1", "machines": {machine or this_machine: section}})


def written(document):
    handle, path = tempfile.mkstemp(dir=HOME, suffix=".json")
    with os.fdopen(handle, "w") as file:
        file.write(document if isinstance(document, str) else json.dumps(document))
    return path


def setUpModule():
    """A profile of another machine is refused with the id of this one."""
    global this_machine
    refused = spry(*ANSWER, "--profile", written({"format": "spry-profile-1", "machines": {"another": {}}}))
    this_machine = re.search("this one, ([0-9a-f]{16});", refused.errors).group(1)


class Variables(CliTest):
    def generated(self, *arguments, **variables):
        return self.succeeds(spry(*ANSWER, *arguments, **variables)).json["generated_tokens"]

    def test_variables_set_options_and_flags_override(self):
        self.assertEqual(self.generated(SPRY_MAX_TOKENS="3"), 3)
        self.assertEqual(self.generated("-n", "2", SPRY_MAX_TOKENS="3"), 2)
        self.assertEqual(self.generated("-n", "2", SPRY_MAX_TOKENS=""), 2)

    def test_variables_override_the_profile(self):
        path = profile({"run": {"max_tokens": 4}})
        self.assertEqual(self.generated("--profile", path), 4)
        self.assertEqual(self.generated(SPRY_PROFILE=path), 4)
        self.assertEqual(self.generated(SPRY_PROFILE=path, SPRY_MAX_TOKENS="3"), 3)

    def test_flags_take_ones_and_zeros(self):
        shown = spry("run", "-p", "Once", "--raw", "-n", "1", SPRY_STATS="1")
        self.assertIn("tokens/s", shown.errors)
        self.assertEqual(self.generated("-n", "1", SPRY_STATS="0"), 1)

    def test_misspelt_variables(self):
        for name, near in (("SPRY_THREDS", "SPRY_THREADS"), ("SPRY_MAX_TOKEN", "SPRY_MAX_TOKENS"),
                           ("SPRY_TEMPRETAURE", "SPRY_TEMPERATURE"), ("SPRY_threadss", "SPRY_THREADS")):
            shown = spry("run", "-p", "Once", "--raw", "-n", "1", **{name: "2"})
            self.assertEqual(shown.code, OK)
            self.assertEqual(shown.errors, "spry: the variable %s sets nothing: did you mean %s?\n" % (name, near))
        for name in ("SPRY_THREADS", "SPRY_GRACE", "SPRY_PORT", "SPRY_X", "SPRY_", "SPRY_ENTIRELY_DIFFERENT",
                     "SPRY_RANK_TIMEOUT", "NSPRY_THREDS", "SPRY_" + 200 * "T"):
            self.succeeds(spry("run", "-p", "Once", "--raw", "-n", "1", **{name: "2"}))

    def test_wrong_values_name_the_variable(self):
        for name, value in (("SPRY_MAX_TOKENS", "many"), ("SPRY_KV_TYPE", "f17"), ("SPRY_STATS", "2"),
                            ("SPRY_THREADS", "-1"), ("SPRY_TEMPERATURE", "nan")):
            with self.subTest(name=name):
                self.fails(spry("run", "-p", "Once", **{name: value}), USAGE, name + " is '" + value + "', but must be")

    def test_what_is_measured_is_never_a_variable(self):
        page = spry("bench", "--help", SPRY_POLICY="offline", SPRY_DRAFT="auto").text
        self.assertIn("Usage: spry bench", page)
        refused = spry("bench", "--measured", "nothing.json", SPRY_POLICY="offline", SPRY_DRAFT="auto")
        self.fails(refused, USAGE, "--measured needs --baseline or --targets")

    def test_pages_name_variables(self):
        self.assertIn("SPRY_ and its name", " ".join(spry("serve", "--help-all").text.split()))
        self.assertIn("| `--kv-type` | `SPRY_KV_TYPE` | `kv_type` |", spry("help", "--markdown").text)
        self.assertNotIn("SPRY_HELP", spry("help", "--markdown").text)


class Profile(CliTest):
    def threads(self, *arguments, **variables):
        result = spry("run", "-p", "Once", "--raw", "-n", "1", "--stats", *arguments, **variables)
        self.assertEqual(result.code, OK, result.errors)
        return int(re.search(r"(\d+) threads?,", result.errors).group(1))

    def test_every_command_takes_it_and_flags_override(self):
        path = profile({"threads": 3, "policy": "offline", "serve": {"parallel": 2}})
        self.assertEqual(self.threads("--profile", path), 3)
        self.assertEqual(self.threads("--profile", path, "--threads", "1"), 1)
        self.assertEqual(self.threads("--profile=" + path, SPRY_THREADS="2"), 2)

    def test_which_settings_come_from_it_is_one_line(self):
        path = profile({"threads": 3, "draft": "none", "chunk": 64, "serve": {"parallel": 2}}, why={"threads": "because of the test"})
        ask = ("run", "-p", "Once", "--raw", "-n", "1", "--profile", path)
        self.assertEqual(spry(*ask).errors.splitlines()[0], "spry: from the profile: threads 3, draft none, chunk 64 (spry doctor --explain says why)")
        self.assertIn("from the profile: draft none (", spry(*ask, "--threads", "2", SPRY_CHUNK="32").errors)
        self.assertEqual(spry(*ask, "--json").errors, "")  # programs read it
        self.assertNotIn("from the profile", spry(*ask, "--threads", "2", "--draft", "lookup", "--chunk", "0").errors)
        page = " ".join(self.succeeds(spry("doctor", "--explain", "--profile", path)).text.split())
        for words in ("profile " + path, "threads 3: because of the test", "serve.parallel 2", "draft none"):
            self.assertIn(words, page)
        self.fails(spry("doctor", "--explain", "--json"), USAGE, "--explain shows the profile and nothing else: omit --json")
        self.assertIn("there is no profile; spry doctor --write-profile measures and writes one",
                      " ".join(self.succeeds(spry("doctor", "--explain")).text.split()))

    def test_the_users_own_is_found_and_none_ignores_it(self):
        os.makedirs(os.path.dirname(STORED), exist_ok=True)
        os.rename(profile({"threads": 3}), STORED)
        try:
            self.assertEqual(self.threads(), 3)
            usual = self.threads("--profile", "none")
            self.assertEqual(self.threads(SPRY_PROFILE="none"), usual)
            os.rename(profile({"threads": usual + 1}, machine="another"), STORED)
            self.assertEqual(self.threads(), usual)
            self.assertNotIn("from the profile", spry("run", "-p", "Once", "--raw", "-n", "1").errors)
            self.assertIn("has no section for this machine", " ".join(self.succeeds(spry("doctor", "--explain")).text.split()))
            with open(STORED, "w") as file:
                file.write("{")
            self.fails(spry("run", "-p", "Once"), USAGE, STORED, "not valid JSON")
            self.succeeds(spry("tokenize", stdin=b"Once"))  # has no setting that a profile could have
        finally:
            os.remove(STORED)

    def test_refused(self):
        right = {"format": "spry-profile-1", "machines": {}}
        for path, words in (
                (profile({"threads": 3}, machine="another"), ["profile of other machines", this_machine]),
                (profile({"thread": 3}), ['unknown setting "thread"', '"threads"']),
                (profile({"max_tokens": 3}), ['unknown setting "max_tokens"']),
                (profile({"threads": "many"}), ["threads is a string"]),
                (profile({"kv_type": "f17"}), ["kv_type is 'f17'"]),
                (profile({"runs": {}}), ['unknown setting "runs"']),
                (profile({"run": {"portt": 3}}), ['no setting "portt"']),
                (profile({"threads": {"most": 3}}), ['unknown setting "threads"']),
                (profile([]), ["settings is not an object"]),
                (profile(colour="blue"), ['unknown key "colour"']),
                (profile({"policy": "throughput"}, targets={"p95_ms": {"0": 20}}), ["contradicts itself", "p95_ms"]),
                (written(dict(right, extra=1)), ['unknown key "extra"']),
                (written(dict(right, format="spry-profile-9")), ['"format"']),
                (written(dict(right, machines=[])), ['"machines"']),
                (written("[]"), ["object"]),
                (os.path.join(HOME, "missing.json"), ["missing.json"])):
            with self.subTest(words=words):
                self.fails(spry("run", "-p", "Once", "--profile", path), USAGE, *words)

    def test_weights_of_floats_only_are_quantised(self):
        path = profile({"quantize": "auto"})
        bundled = self.succeeds(spry(*ANSWER, "-n", "4", "--seed", "1", "--profile", path))
        self.assertEqual(bundled.json["text"], spry(*ANSWER, "-n", "4", "--seed", "1").json["text"])
        floats = [spry("run", tiny("qwen3"), "-p", "Once", "--raw", "-n", "1", "--stats", *more).errors.split("says why)\n")[-1].split("\n")[0]
                  for more in (("--profile", path), ("--quantize", "q8_0"), ())]
        self.assertEqual(floats[0], floats[1])
        self.assertNotEqual(floats[0], floats[2])

    def test_measuring_commands_stay_exact(self):
        path = profile({"quantize": "q4_0", "kv_type": "q8_0", "threads": 1})
        logits = ("logits", tiny("llama-256", ""), "--ids", "1,2,3", "-o", "-")
        self.assertEqual(spry(*logits, "--profile", path).out, spry(*logits, "--profile", "none").out)
        self.assertNotEqual(spry(*logits, "--quantize", "q4_0").out, spry(*logits, "--profile", "none").out)
        own = profile({"logits": {"quantize": "q4_0"}})
        self.assertEqual(spry(*logits, "--profile", own).out, spry(*logits, "--quantize", "q4_0").out)
        text = os.path.join(HOME, "text.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("Once upon a time there was a fox. " * 20)
        ppl = ("eval", "ppl", tiny("llama-256", ""), "-f", text)
        self.assertEqual(spry(*ppl, "--profile", path).text.splitlines()[0],
                         spry(*ppl, "--profile", "none").text.splitlines()[0])

    def test_settings_of_another_command_do_not_matter(self):
        path = profile({"parallel": 3, "serve": {"portt": 9}})
        self.succeeds(spry(*ANSWER, "-n", "1", "--profile", path))
        self.fails(spry("serve", "--profile", path), USAGE, 'serve has no setting "portt"')


class Memory(CliTest):
    """The bundled model: 2,048 tokens of f16 are 16.8 MB, of q8_0 8.9 MB."""

    def used(self, *arguments):
        result = spry("run", "-p", "Once", "-n", "1", "--seed", "1", "--stats", "--context", "2048", *arguments)
        return result, float((re.search(r"([\d.]+) kB of keys and values", result.errors) or [0, 0])[1])

    def test_keys_and_values_shrink_only_where_they_must(self):
        roomy, whole = self.used()
        self.assertNotIn("q8_0", roomy.errors)
        tight, half = self.used("--kv-bytes", "10M")
        self.assertEqual(tight.code, OK, tight.errors)
        self.assertRegex(tight.errors, "2048 tokens take 0.02 GB as f16, and 0.01 GB are left.*they are q8_0")
        self.assertLess(half, 0.6 * whole)
        self.assertEqual(tight.out, self.used("--kv-bytes", "10M", "--kv-type", "q8_0")[0].out)

    def test_what_was_asked_for_is_not_changed(self):
        self.assertEqual(self.used("--kv-bytes", "10M", "--kv-type", "f16")[0].code, FAILURE)
        result, _ = self.used("--kv-bytes", "1M")
        self.assertEqual(result.code, FAILURE)
        self.assertNotIn("q8_0", result.errors)


class Doctor(CliTest):
    def test_written_profile_is_used_and_explained(self):
        path = profile({"threads": 1}, targets={"ttft_cold_ms": 77})
        with open(path) as file:
            document = json.load(file)
        document["machines"]["another"] = {"settings": {"threads": 5}}
        with open(path, "w") as file:
            json.dump(document, file)
        done = subprocess.run([SPRY, "doctor", "--write-profile", "--profile", path, "--no-models"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1200, env=environment(),
                              preexec_fn=limit_memory)
        self.assertEqual(done.returncode, OK, done.stderr)
        with open(path) as file:
            document = json.load(file)
        section = document["machines"][this_machine]
        self.assertEqual(document["machines"]["another"], {"settings": {"threads": 5}})
        self.assertEqual(section["targets"], {"ttft_cold_ms": 77})
        settings = section["settings"]
        self.assertGreaterEqual(settings["threads"], 1)
        self.assertIn(settings["chunk"], (64, 128, 256, 512))
        self.assertEqual(settings["kv_type"], "auto")
        self.assertIn(settings["draft"], ("auto", "none"))
        self.assertEqual(settings["batch"]["policy"], "throughput")
        page = " ".join(done.stdout.decode().split())
        self.assertIn("Settings of every command profile " + path, page)
        for key, why in section["why"].items():
            value = settings
            for part in key.split("."):
                value = value[part]
            self.assertIn("%s %s: %s" % (key, value, why), page)
        self.succeeds(spry(*ANSWER, "-n", "1", "--profile", path))
        self.assertNotIn("spry", os.listdir(HOME))

    def test_refused(self):
        self.fails(spry("doctor", "--write-profile", "--threads", "1"), USAGE, "omit --threads")


if __name__ == "__main__":
    main()
