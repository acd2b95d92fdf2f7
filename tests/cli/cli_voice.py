"""spry voice: sound files and pipes in, answers as sound out; every form of sound file; and bad input."""

import array
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import time
import unittest
import wave

import cli_support
from cli_support import FAILURE, HOME, USAGE, environment, spry

RATE, STEP = 16000, 160
QUESTION = "Tell me a story about a small boat."
SPHINX = "/usr/share/pocketsphinx/model/en-us"


def path(name):
    return os.path.join(HOME, name)


def pcm_of(name):
    with wave.open(path(name)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        return array.array("h", file.readframes(file.getnframes()))


def write_wav(name, samples, rate=RATE, channels=1, width=2):
    """Samples from -1 to 1, the same in every channel."""
    scale = {1: lambda x: struct.pack("B", int(x * 127 + 128)), 2: lambda x: struct.pack("<h", int(x * 32767)),
             3: lambda x: struct.pack("<i", int(x * 8388607))[:3], 4: lambda x: struct.pack("<i", int(x * 2147483647))}
    with wave.open(path(name), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join(scale[width](x) * channels for x in samples))
    return path(name)


def write_float_wav(name, samples):
    body = struct.pack("<%df" % len(samples), *samples)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(body), b"WAVE", b"fmt ", 16, 3, 1, RATE, RATE * 4, 4, 32,
                       b"data", len(body))
    with open(path(name), "wb") as file:
        file.write(head + body)
    return path(name)


def tone_speech(seconds):
    """What voice activity detection takes for a voice: harmonics in syllables, with quiet around it."""
    def at(t):
        if not 0.5 < t < seconds - 0.7:
            return 0
        return 0.1 * math.sin(math.pi * (t * 4 % 1)) * sum(math.sin(2 * math.pi * 120 * h * t) / h for h in range(1, 12))
    return [at(i / RATE) for i in range(int(seconds * RATE))]


def voice(*arguments, **options):
    return spry("voice", "--no-save", "--seed", "1", "-n", "24", *arguments, **options)


def missing():
    """Why sound cannot be tested here, or None."""
    result = voice("--say", "Hello.", "--out", path("probe.wav"))
    return None if result.code == 0 else result.errors.strip()


WHY_NOT = missing()
HAS_SPHINX = os.path.isdir(SPHINX) and "pocketsphinx" in spry("voice", "--stt", "none", "--in", "x", "--transcribe").errors
if WHY_NOT:
    print("SKIPPED sound files: %s" % WHY_NOT)
if not HAS_SPHINX:
    print("SKIPPED PocketSphinx: not built with it, or its language data are not there")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Files(cli_support.CliTest):
    def test_say(self):
        for arguments in (), ("--voice", "rms"), ("--tts", "espeak"), ("--tts", "espeak", "--voice", "de"):
            self.succeeds(voice("--say", QUESTION, "--out", path("said.wav"), *arguments))
            samples = pcm_of("said.wav")
            self.assertGreater(len(samples), RATE, arguments)
            self.assertLess(len(samples), 6 * RATE, arguments)
            self.assertGreater(max(samples), 2000, arguments)
        self.succeeds(voice("--say", "...", "--out", path("said.wav")))  # nothing to say is silence
        self.assertEqual(len(pcm_of("said.wav")), 0)

    @unittest.skipUnless(HAS_SPHINX, "no PocketSphinx")
    def test_wav_to_wav(self):
        self.succeeds(voice("--say", QUESTION, "--out", path("q.wav"), "--voice", "rms"))
        result = voice("--in", path("q.wav"), "--out", path("a.wav"), "--json", "--stats")
        self.assertEqual(result.code, 0, result.errors)
        turn = result.json
        self.assertEqual(turn["recogniser"], "pocketsphinx")
        self.assertIn("story", turn["words"])
        self.assertIn("boat", turn["words"])
        times = turn["timings"]
        self.assertLess(0, times["words_ms"])
        self.assertLess(times["words_ms"], times["first_token_ms"])
        self.assertLess(times["first_token_ms"], times["first_sound_ms"])
        self.assertAlmostEqual(len(pcm_of("a.wav")) / RATE, times["sound_s"], 3)
        self.assertEqual(turn["usage"]["completion_tokens"], 24)
        self.assertIn("of its length", result.errors)

    @cli_support.once_of(5)
    def test_speech_begins_before_the_answer_ends(self):
        write_wav("tone.wav", tone_speech(3))
        result = voice("--in", path("tone.wav"), "--out", path("a.wav"), "--json", "--stt-cmd",
                       "cat >/dev/null; echo Tell me a long story.", "-n", "200", "--ignore-end")
        times = result.json["timings"]
        self.assertLess(times["first_sound_ms"], times["answer_ms"])
        self.assertGreater(times["sound_s"], 10)

    def test_turns_are_traced_and_reported(self):
        write_wav("tone.wav", tone_speech(3))
        result = voice("--in", path("tone.wav"), "--out", path("a.wav"), "--json", "--trace", path("turn.json"), "--stt-cmd",
                       "cat >/dev/null; echo Tell me a story.")
        times = result.json["timings"]
        with open(path("turn.json"), encoding="utf-8") as file:
            turn = {e["name"]: e["dur"] / 1000 for e in json.load(file) if e.get("cat") == "turn"}
        for name in "words", "first token", "first sound", "answer":
            self.assertAlmostEqual(turn[name], times[name.replace(" ", "_") + "_ms"], delta=0.01)
        text = self.succeeds(spry("report", path("turn.json"), "-o", "-")).text
        turns = json.loads(text.split('id="data">')[1].split("</script>")[0])["files"][0]["turns"]
        self.assertEqual({turn["turn"]: turn["count"] for turn in turns}["first sound"], 1)

    def test_commands(self):
        write_wav("tone.wav", tone_speech(3))
        result = voice("--in", path("tone.wav"), "--out", path("a.wav"), "--json", "--stt-cmd",
                       "wc -c >bytes; echo; echo '  What is this?  '", "--tts-cmd", "cat >text; head -c 32001 /dev/zero")
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(result.json["words"], "What is this?")
        with open(path("bytes"), encoding="utf-8") as file:
            self.assertTrue(1.5 * 2 * RATE < int(file.read()) < 3 * 2 * RATE)
        with open(path("text"), encoding="utf-8") as file:
            self.assertIn(file.read().strip(), result.json["answer"])
        self.assertEqual(len(pcm_of("a.wav")) % 16000, 0)  # the odd byte is no sample

    def test_stored_like_a_typed_chat(self):
        write_wav("tone.wav", tone_speech(3))
        chats = ["--chats", path("chats.db")]
        result = spry("voice", "--in", path("tone.wav"), "--stt-cmd", "cat >/dev/null; echo Who is brave?", "-n", "8", *chats)
        self.assertEqual(result.code, 0, result.errors)
        shown = spry("chats", "show", "1", *chats)
        self.assertIn("Who is brave?", shown.text)

    def bytes_heard(self, name):
        result = self.succeeds(voice("--in", path(name), "--transcribe", "--stt-cmd", "wc -c"))
        return int(result.text)

    def test_forms_of_files(self):
        """Any rate, width and number of channels is the same second of sound."""
        for rate in 8000, 11025, 44100, 96000:
            write_wav("form.wav", [0.3 * math.sin(i / 9) for i in range(rate)], rate)
            self.assertAlmostEqual(self.bytes_heard("form.wav") / 2 / RATE, 1, 1, rate)
        second = [0.3 * math.sin(i / 9) for i in range(RATE)]
        for width in 1, 2, 3, 4:
            write_wav("form.wav", second, width=width)
            self.assertEqual(self.bytes_heard("form.wav"), 2 * RATE, width)
        for channels in 2, 6:
            write_wav("form.wav", second, channels=channels)
            self.assertEqual(self.bytes_heard("form.wav"), 2 * RATE, channels)
        write_float_wav("form.wav", second)
        self.assertEqual(self.bytes_heard("form.wav"), 2 * RATE)
        write_float_wav("form.wav", [float("nan"), float("inf")] * 8000)
        self.assertEqual(self.bytes_heard("form.wav"), 2 * RATE)

    def test_formats(self):
        write_wav("form.wav", tone_speech(2))
        run = lambda form: self.succeeds(voice("--in", path("form.wav"), "--transcribe", "--format", form, "--stt-cmd",
                                               "cat >/dev/null; echo Good morning."))
        self.assertEqual(run("text").text, "Good morning.\n")
        self.assertEqual(run("json").json, {"text": "Good morning."})
        verbose = run("verbose_json").json
        self.assertEqual((verbose["task"], verbose["language"], verbose["duration"]), ("transcribe", "english", 2))
        self.assertEqual([(s["start"], s["end"], s["text"]) for s in verbose["segments"]], [(0, 2, "Good morning.")])
        self.assertEqual(run("srt").text, "1\n00:00:00,000 --> 00:00:02,000\nGood morning.\n\n")
        self.assertEqual(run("vtt").text, "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nGood morning.\n\n")

    def test_only_whisper_translates(self):
        write_wav("form.wav", tone_speech(2))
        self.fails(voice("--in", path("form.wav"), "--transcribe", "--translate", "--stt-cmd", "cat >/dev/null; echo x"),
                   FAILURE, "cannot translate")

    def test_no_speech(self):
        noise = random.Random(1)
        for name, samples in (("silence", [0] * 2 * RATE), ("noise", [noise.gauss(0, 0.1) for _ in range(4 * RATE)]),
                              ("click", [0] * RATE + [0.9] * 100 + [0] * RATE), ("nothing", [])):
            write_wav("quiet.wav", [max(-1, min(1, x)) for x in samples])
            self.fails(voice("--in", path("quiet.wav"), "--out", path("a.wav"), "--stt-cmd", "echo no"), FAILURE,
                       "no speech was found", "quiet.wav")
            self.assertTrue(name)

    def test_music(self):
        """Notes rise above the noise as syllables do; a recogniser that finds no words in them is one sentence."""
        notes = [220, 277.2, 329.6, 246.9]
        write_wav("music.wav", [0.2 * math.exp(-3 * (t * 2 % 1)) * math.sin(2 * math.pi * notes[int(t * 2) % 4] * t)
                                + 0.1 * math.sin(2 * math.pi * 110 * t) for t in (i / RATE for i in range(6 * RATE))])
        self.fails(voice("--in", path("music.wav"), "--out", path("a.wav"), "--stt-cmd", "cat >/dev/null"), FAILURE, "no ")

    def test_bad_files(self):
        tell = ["--transcribe", "--stt-cmd", "cat >/dev/null; echo words"]
        write_wav("whole.wav", tone_speech(2))
        with open(path("whole.wav"), "rb") as file:
            whole = file.read()
        for cut in 0, 3, 11, 30:
            with open(path("cut.wav"), "wb") as file:
                file.write(whole[:cut])
            self.fails(voice("--in", path("cut.wav"), *tell), FAILURE, "cut.wav", "not a sound file")
        with open(path("cut.wav"), "wb") as file:
            file.write(whole[:20000])
        self.assertEqual(self.succeeds(voice("--in", path("cut.wav"), *tell)).text, "words\n")  # what there is of it
        with open(path("text.wav"), "wb") as file:
            file.write(b"This is no sound. " * 1000)
        self.fails(voice("--in", path("text.wav"), *tell), FAILURE, "text.wav", "not a sound file")
        self.fails(voice("--in", path("nowhere.wav"), *tell), FAILURE, "nowhere.wav")
        self.fails(voice("--in", HOME, *tell), FAILURE, HOME)
        write_wav("empty.wav", [])
        self.fails(voice("--in", path("empty.wav"), *tell), FAILURE, "there is no sound")

    def test_two_hours(self):
        """A file of two hours, most of it holes, is refused as a question after five minutes, within the limit of
        memory that every test has."""
        size = 2 * 3600 * RATE * 2
        with open(path("long.wav"), "wb") as file:
            file.write(struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2,
                                   16, b"data", size))
            file.truncate(44 + size)
        self.fails(voice("--in", path("long.wav"), "--stt-cmd", "echo no"), FAILURE, "longer than 300 seconds")
        self.fails(voice("--in", path("long.wav"), "--transcribe", "--stt-cmd", "echo no"), FAILURE, "longer than 300")

    def test_bad_parts(self):
        write_wav("tone.wav", tone_speech(2))
        tone = ["--in", path("tone.wav"), "--out", path("a.wav")]
        echo = ["--stt-cmd", "cat >/dev/null; echo Hello."]
        self.fails(voice(*tone, "--stt-cmd", "cat >/dev/null; exit 7"), FAILURE, "failed with status 7")
        self.fails(voice(*tone, "--stt-cmd", "cat >/dev/null"), FAILURE, "no words were recognised")
        self.fails(voice(*tone, *echo, "--tts-cmd", "exit 3"), FAILURE, "failed with status 3")
        self.fails(voice(*tone, "--stt", "ears"), FAILURE, "no recogniser 'ears'", "whisper, command")
        self.fails(voice(*tone, *echo, "--tts", "mouth"), FAILURE, "no synthesiser 'mouth'")
        self.fails(voice(*tone, *echo, "--tts", "espeak", "--voice", "klingonese"), FAILURE, "espeak-ng", "klingonese")
        self.fails(voice(*tone, "--whisper", path("tone.wav")), FAILURE, "not a Whisper model")
        self.fails(voice(*tone, "--whisper", cli_support.tiny("llama", "")), FAILURE, "model_type is llama, not whisper")
        self.fails(voice(*tone, "--whisper", cli_support.tiny("whisper", "")), FAILURE, "no tokenizer.json")
        self.fails(voice(*tone, "--stt", "whisper"), FAILURE, "--whisper")
        cuda = voice(*tone, "--whisper", cli_support.tiny("whisper", ""), "--device", "cuda:99")
        self.assertEqual(cuda.code, FAILURE)
        self.assertEqual([line.split(": ")[-1] for line in cuda.errors.splitlines()],
                         ["no such hardware or driver here, or a program without its kernels; the CPU computes instead",
                          "no tokenizer.json, so its tokens cannot become text"])
        self.fails(voice(*tone, "--whisper", cli_support.tiny("whisper", ""), "--device", "tpu"), FAILURE, "'tpu'")
        self.fails(voice("--in", path("tone.wav"), "--out", "/nowhere/a.wav", *echo), FAILURE, "/nowhere/a.wav")

    @unittest.skipUnless(HAS_SPHINX, "no PocketSphinx")
    def test_no_language_data(self):
        write_wav("tone.wav", tone_speech(2))
        result = voice("--in", path("tone.wav"), "--transcribe", "--stt", "pocketsphinx", "--sphinx-model", HOME)
        self.fails(result, FAILURE, "no language data")
        self.fails(voice("--in", path("tone.wav"), "--transcribe", "--language", "de"), FAILURE, "English")

    def test_no_device(self):
        """No microphone is a sentence; sound libraries may have written lines of their own before it."""
        if os.path.isdir("/dev/snd"):
            print("SKIPPED no microphone: this machine may have one")
            return
        result = voice("--stt-cmd", "echo no")
        self.assertEqual(result.code, FAILURE)
        self.assertRegex(result.errors.splitlines()[-1], "^spry: .*(microphone|sound)")

    def test_unplugged(self):
        """A microphone, or a loudspeaker, that goes away in the middle of a sentence ends the conversation."""
        compiler = shutil.which("cc")
        if not compiler or not re.search(rb"libportaudio", subprocess.run(
                ["ldd", os.path.join(os.path.dirname(cli_support.SPRY), "spry_voice.so")], capture_output=True).stdout):
            print("SKIPPED unplugged: no compiler, or not built with PortAudio")
            return
        os.makedirs(path("sound"), exist_ok=True)
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "portaudio_imitation.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", path("sound/libportaudio.so.2"), source], check=True)
        for what in "microphone", "loudspeaker":
            result = voice("--stt-cmd", "cat >/dev/null; echo Hello.", LD_LIBRARY_PATH=path("sound"), UNPLUGGED=what)
            self.fails(result, FAILURE, "the %s is gone: unplugged" % what)


class Arguments(cli_support.CliTest):
    def test_wrong(self):
        for arguments in (("--transcribe",), ("--transcribe", "--in", "-"), ("--say", "x"), ("--in", "x.wav", "--out", "-"),
                          ("--format", "pdf")):
            self.assertEqual(voice(*arguments).code, USAGE, arguments)


class Line:
    """Both ends of a conversation over pipes, one step of 10 ms at a time. Its clock are the steps, so how long an
    answer takes changes only how many steps pass before it is heard."""

    def __init__(self, *arguments):
        self.lines = open(path("live.lines"), "w+")
        self.process = subprocess.Popen([cli_support.SPRY, "voice", "--in", "-", "--out", "-", "--json", *arguments],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.lines, cwd=HOME,
                                        env=environment())

    def step(self, samples=None):
        """Sends a step (silence by default); returns whether sound came back."""
        data = array.array("h", [int(32767 * x) for x in samples or [0] * STEP]).tobytes()
        self.process.stdin.write(data)
        self.process.stdin.flush()
        back = self.process.stdout.read(2 * STEP)
        assert len(back) == 2 * STEP
        return any(back)

    def say(self, samples):
        return [self.step(samples[i:i + STEP]) for i in range(0, len(samples) - STEP + 1, STEP)]

    def wait_for(self, done):
        """Silence until done(whether sound came back)."""
        ends = time.monotonic() + 600
        while not done(self.step()):
            assert time.monotonic() < ends, "nothing heard"
            time.sleep(0.005)

    def written(self):
        self.lines.seek(0)
        return self.lines.read()

    def wait_for_turns(self, count):
        self.wait_for(lambda sound: self.written().count("\n") == count)

    def turns(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        code, lines = self.process.wait(), self.written()
        self.lines.close()
        assert code == 0, lines
        return [json.loads(line) for line in lines.splitlines()]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Live(cli_support.CliTest):
    recogniser = ["--stt-cmd", "cat >/dev/null; echo Tell me a story.", "--seed", "1", "-n", "60", "--ignore-end"]

    def test_conversation(self):
        """Two turns: the second finds the first in the cache, and both are stored."""
        line = Line(*self.recogniser, "--chats", path("live.db"), "-n", "12")
        for i in range(2):
            line.say(tone_speech(2.5))
            line.wait_for(bool)
            line.wait_for_turns(i + 1)
        turns = line.turns()
        self.assertEqual([t["interrupted"] for t in turns], [False, False], turns)
        self.assertGreater(turns[1]["usage"]["cached_tokens"], turns[0]["usage"]["prompt_tokens"] - 8)
        self.assertEqual(spry("chats", "show", "1", "--chats", path("live.db")).text.count("Tell me a story."), 3)  # and the title

    def test_barge_in(self):
        line = Line(*self.recogniser, "--chats", path("barge.db"))
        line.say(tone_speech(2.5))
        line.wait_for(bool)
        for _ in range(350):
            line.step()  # three and a half seconds of the answer
        second = tone_speech(2.5)
        loud = [i // STEP for i, x in enumerate(second) if abs(x) > 0.01]
        heard = line.say(second)
        self.assertFalse(any(heard[loud[0] + 15:loud[-1]]), "it spoke for more than 150 ms")
        turns = line.turns()
        self.assertEqual([t["interrupted"] for t in turns], [True, False])
        self.assertLess(len(turns[0]["answer"]), len(turns[1]["answer"]) / 2)
        for turn in turns:
            self.assertGreaterEqual(turn["timings"]["first_sound_ms"], turn["timings"]["first_token_ms"])
        self.assertGreater(turns[0]["timings"]["first_sound_ms"], 0)

    def test_no_barge_in(self):
        line = Line(*self.recogniser, "--no-save", "--no-barge-in", "-n", "16")
        line.say(tone_speech(2.5))
        line.wait_for(bool)
        line.say(tone_speech(2))
        self.assertEqual([t["interrupted"] for t in line.turns()], [False])

    def test_pause_within_a_sentence(self):
        """A pause shorter than --pause does not end an utterance: there is one turn, with all of it."""
        line = Line("--stt-cmd", "wc -c", "--no-save", "--seed", "1", "-n", "4", "--pause", "600")
        line.say(tone_speech(2.5)[:RATE * 18 // 10] + [0] * (RATE * 3 // 10) + tone_speech(2.5)[RATE // 2:])
        turns = line.turns()
        self.assertEqual(len(turns), 1, turns)
        self.assertGreater(int(turns[0]["words"]), 2 * 2.5 * RATE)

    def test_silence_and_empty(self):
        line = Line(*self.recogniser, "--no-save")
        self.assertEqual(line.turns(), [])
        line = Line(*self.recogniser, "--no-save")
        for _ in range(300):
            self.assertFalse(line.step())
        self.assertEqual(line.turns(), [])


if __name__ == "__main__":
    cli_support.main()
