"""Completions of shells: the words that the program offers, and the scripts in their shells, where these are installed."""

import os
import shutil
import subprocess
import unittest

import cli_support
from cli_support import HOME, SPRY, USAGE, environment, spry


def words(*line):
    return [text.split("\t")[0] for text in spry("completions", "--", *line).text.splitlines()]


class Words(cli_support.CliTest):
    def test_commands(self):
        self.assertEqual(words("ru"), ["run"])
        self.assertLessEqual({"run", "serve", "pull", "help", "completions"}, set(words("")))
        self.assertEqual(words("help", "inspec"), ["inspect"])
        self.assertEqual(words("chats", "re"), ["resume"])
        self.assertLessEqual({"ppl", "kl", "span"}, set(words("eval", "")))
        self.assertLessEqual({"list", "remove"}, set(words("models", "")))

    def test_flags_and_their_words(self):
        self.assertEqual(words("run", "--kv-t"), ["--kv-type"])
        self.assertEqual(words("run", "--kv-type", ""), ["auto", "f16", "q8_0", "f32", "q4_0"])
        self.assertEqual(words("run", "--kv-type=q"), ["--kv-type=q8_0", "--kv-type=q4_0"])
        self.assertEqual(words("run", "--no-sav"), ["--no-save"])
        self.assertIn("--json", words("chats", "show", "--"))
        self.assertNotIn("--port", words("run", "--"))
        self.assertEqual(words("run", "-p", ""), [])
        self.assertEqual(words("run", "--json-schema", ""), [":files"])
        self.assertEqual(words("run", "--models-dir", ""), [":folders"])
        self.assertEqual(words("no-such-command", ""), [])

    def test_models(self):
        self.assertEqual(words("run", "qwen3:0.6"), ["qwen3:0.6b", ":files"])
        self.assertIn("Spry-Tales-29M", words("run", "Spry"))
        data = os.path.join(HOME, "data-completions")
        os.makedirs(os.path.join(data, "spry", "models"), exist_ok=True)
        with open(os.path.join(data, "spry", "models", "mine.gguf"), "wb") as file:
            file.write(b"x")
        self.assertIn("mine\t", spry("completions", "--", "chat", "mi", XDG_DATA_HOME=data).text)

    def test_wrong_use(self):
        self.fails(spry("completions"), USAGE, "bash, zsh or fish")
        self.fails(spry("completions", "tcsh"), USAGE, "bash, zsh or fish")


class Shells(unittest.TestCase):
    """`spry` of the scripts is the program under test."""

    def shell(self, name, script):
        folder = os.path.join(HOME, "bin")
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(folder, "spry")):
            os.symlink(SPRY, os.path.join(folder, "spry"))
        env = environment(PATH=folder + ":" + os.environ.get("PATH", ""))
        result = subprocess.run([name, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HOME, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return result.stdout.decode().splitlines()

    def bash(self, *line):
        quoted = " ".join("'%s'" % word for word in line)
        return self.shell("bash", "source <(spry completions bash); COMP_WORDS=(%s); COMP_CWORD=%d; _spry; "
                          "printf '%%s\\n' \"${COMPREPLY[@]}\"" % (quoted, len(line) - 1))

    def test_bash(self):
        self.assertEqual(self.bash("spry", "ru"), ["run"])
        self.assertEqual(self.bash("spry", "run", "--kv-type", ""), ["auto", "f16", "q8_0", "f32", "q4_0"])
        # Bash makes words of = and : by itself.
        self.assertEqual(self.bash("spry", "run", "--kv-type", "=", "q"), ["q8_0", "q4_0"])
        self.assertEqual(self.bash("spry", "run", "qwen3", ":", "0.6"), ["0.6b"])
        with open(os.path.join(HOME, "a schema.json"), "w", encoding="ascii") as file:
            file.write("{}")
        self.assertEqual(self.bash("spry", "run", "--json-schema", "a "), ["a schema.json"])

    def test_other_shells_accept_their_scripts(self):
        for name, check in (("zsh", "zsh -n"), ("fish", "fish --no-execute")):
            if not shutil.which(name):
                print("SKIPPED cli_completions %s: the shell is not installed" % name)
                continue
            self.shell("bash", "spry completions %s > script.%s && %s script.%s" % (name, name, check, name))


if __name__ == "__main__":
    cli_support.main()
