"""Whisper tiny with its published weights: words recognised in several conditions, languages, translation, long sound,
silence, and an answer that is recognised again. SPRY is the program, SPRY_REAL the folder of weights."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))

import voice_cases  # noqa: E402
from cli_support import main  # noqa: E402

SPRY = os.path.abspath(os.environ["SPRY"])
MODEL = os.path.join(os.environ["SPRY_REAL"], "whisper-tiny.bin")
FOLDER = tempfile.TemporaryDirectory(prefix="spry-real-")


def path(name):
    return os.path.join(FOLDER.name, name)


def spry(*arguments):
    result = subprocess.run([SPRY, "voice", "--whisper", MODEL, "--no-save", *arguments], capture_output=True, check=False,
                            timeout=600, cwd=FOLDER.name)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode("utf-8")


def hear(file, *arguments):
    return spry("--transcribe", "--in", file, *arguments)


class Whisper(unittest.TestCase):
    def rate(self, cases, *arguments):
        wrong = total = 0
        for _, _, question, file in cases:
            wrong += voice_cases.errors(question, hear(file, "--language", "en", *arguments))
            total += len(voice_cases.words(question))
        return wrong / total

    def test_words(self):
        cases = list(voice_cases.make(SPRY, FOLDER.name, ("clean",), ("flite rms",), voice_cases.QUESTIONS[:5]))
        self.assertLess(self.rate(cases), 0.15)
        self.assertLess(self.rate(cases, "--whole-window"), 0.15)
        self.assertLess(self.rate(cases, "--whisper-type", "q8_0"), 0.15)

    def test_devices(self):
        """The far device hears the same; without a GPU the CPU does, and a line says so."""
        spry("--say", voice_cases.QUESTIONS[0], "--out", path("q.wav"), "--voice", "rms")
        here = hear(path("q.wav"), "--format", "verbose_json")
        self.assertEqual(hear(path("q.wav"), "--format", "verbose_json", "--device", "far"), here)
        result = subprocess.run([SPRY, "voice", "--whisper", MODEL, "--transcribe", "--format", "verbose_json", "--in",
                                 path("q.wav"), "--device", "cuda:99"], capture_output=True, check=True, timeout=600)
        self.assertEqual(result.stdout.decode(), here)
        self.assertEqual(result.stderr.count(b"no such hardware or driver here"), 1)

    def test_short_windows(self):
        """Only the sound there is is encoded, once; a sentence is written as often as it is said."""
        cases = voice_cases.make(SPRY, FOLDER.name, ("clean",), ("flite rms",), voice_cases.QUESTIONS[:5])
        for _, _, _, file in cases:
            result = subprocess.run([SPRY, "voice", "--whisper", MODEL, "--transcribe", "--in", file, "--stats", "--language",
                                     "en"], capture_output=True, check=True, timeout=600)
            self.assertIn(b"0 decoded again", result.stderr)
        for said, times in (("Yes.", 1), ("Stop.", 1), ("Turn off the light. Turn off the light.", 2)):
            spry("--say", said, "--out", path("said.wav"), "--voice", "slt")
            heard = voice_cases.words(hear(path("said.wav"), "--language", "en"))
            self.assertEqual(heard.count(voice_cases.words(said)[0]), times, heard)

    def test_noise_and_rates(self):
        cases = list(voice_cases.make(SPRY, FOLDER.name, ("noise 10 dB", "44.1 kHz"), ("flite rms",),
                                      voice_cases.QUESTIONS[:3]))
        self.assertLess(self.rate(cases), 0.4)

    def test_language(self):
        spry("--say", "Guten Tag, wie geht es Ihnen heute? Das Wetter ist sehr schön.", "--out", path("de.wav"), "--tts",
             "espeak", "--voice", "de")
        verbose = json.loads(hear(path("de.wav"), "--format", "verbose_json"))
        self.assertEqual((verbose["language"], verbose["task"]), ("german", "transcribe"))
        self.assertIn("guten tag", verbose["text"].lower())
        verbose = json.loads(hear(path("de.wav"), "--language", "de", "--translate", "--format", "verbose_json"))
        self.assertEqual((verbose["language"], verbose["task"]), ("german", "translate"))

    def test_long_sound(self):
        """More than a window: every sentence is there once, in order, with times that never go back."""
        parts = []
        for question in voice_cases.QUESTIONS:
            spry("--say", question, "--out", path("part.wav"), "--voice", "rms")
            parts.append(list(voice_cases.read(path("part.wav"))[1]) + [0] * 16000)
        voice_cases.write(path("long.wav"), sum(parts + parts[:5], []))  # whole sentences
        verbose = json.loads(hear(path("long.wav"), "--language", "en", "--format", "verbose_json"))
        self.assertGreater(verbose["duration"], 35)
        said = " ".join(voice_cases.QUESTIONS + voice_cases.QUESTIONS[:5])
        self.assertLess(voice_cases.errors(said, verbose["text"]), 0.3 * len(voice_cases.words(said)), verbose["text"])
        last = 0
        for segment in verbose["segments"]:
            self.assertLessEqual(last, segment["start"] + 0.02)
            self.assertLessEqual(segment["start"], segment["end"])
            last = segment["end"]
        self.assertLessEqual(last, verbose["duration"] + 0.02)

    def test_silence_has_no_words(self):
        voice_cases.write(path("silent.wav"), [0] * 16000 * 40)
        self.assertLess(len(hear(path("silent.wav")).strip()), 20)

    def test_bounded_memory(self):
        """Two hours, most of the file holes, within the memory of one window."""
        count = 2 * 3600 * 16000
        voice_cases.write(path("hours.wav"), [])
        with open(path("hours.wav"), "r+b") as file:
            file.seek(4)
            file.write((36 + 2 * count).to_bytes(4, "little"))
            file.seek(40)
            file.write((2 * count).to_bytes(4, "little"))
            file.truncate(44 + 2 * count)
        command = "ulimit -v 1500000; exec %s voice --transcribe --whisper %s --in hours.wav --language en" % (SPRY, MODEL)
        result = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=900, cwd=FOLDER.name)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_answer_is_recognised_again(self):
        spry("--say", "Tell me a story about a small boat.", "--out", path("q.wav"), "--voice", "rms")
        turn = json.loads(spry("--in", path("q.wav"), "--out", path("a.wav"), "--json", "--seed", "1", "-n", "48"))
        self.assertLess(voice_cases.errors("Tell me a story about a small boat.", turn["words"]), 2)
        wrong = voice_cases.errors(turn["answer"], hear(path("a.wav"), "--language", "en"))
        self.assertLess(wrong, 0.3 * len(voice_cases.words(turn["answer"])), turn["answer"])


if __name__ == "__main__":
    main()
