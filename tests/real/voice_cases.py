"""Ten spoken questions in several conditions, and how many words of them are recognised, for the test with real
weights."""

import array
import math
import os
import random
import re
import subprocess
import wave

RATE = 16000
QUESTIONS = [
    "What is the capital of France?",
    "Tell me a story about a small boat.",
    "How many days are there in a week?",
    "Who was the first man on the moon?",
    "Please read the letter to my brother.",
    "Why is the sky blue in the morning?",
    "Can you find a cheap hotel near the station?",
    "Which animals live in the forest at night?",
    "Turn off the light in the kitchen.",
    "Where did you put the keys of the car?",
]
VOICES = {"flite slt": ["--tts", "flite", "--voice", "slt"], "flite rms": ["--tts", "flite", "--voice", "rms"],
          "espeak": ["--tts", "espeak", "--voice", "en-us"]}
CONDITIONS = ("clean", "noise 10 dB", "8 kHz", "44.1 kHz")


def words(text):
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()


def errors(said, heard):
    """The least number of words that are wrong, missing or added."""
    said, heard = words(said), words(heard)
    row = list(range(len(heard) + 1))
    for i, a in enumerate(said, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(heard, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


def read(path):
    with wave.open(path) as file:
        return file.getframerate(), array.array("h", file.readframes(file.getnframes()))


def write(path, samples, rate=RATE):
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(array.array("h", [max(-32768, min(32767, int(x))) for x in samples]).tobytes())


def resample(samples, rate):
    """On the lines between samples: as a cheap device would."""
    step, last = RATE / rate, len(samples) - 1
    return [samples[int(i * step)] * (1 - i * step % 1) + samples[min(int(i * step) + 1, last)] * (i * step % 1)
            for i in range(int(last / step))]


def condition(samples, name, seed):
    """The question in a condition, with silence (or noise) around it: samples and rate."""
    quiet = [0] * (RATE * 6 // 10)
    whole = quiet + list(samples) + quiet
    if name == "noise 10 dB":
        generator = random.Random(seed)
        power = sum(x * x for x in samples) / len(samples)
        scale = math.sqrt(power / 10)
        return [x + generator.gauss(0, scale) for x in whole], RATE
    rate = {"8 kHz": 8000, "44.1 kHz": 44100}.get(name, RATE)
    return (whole if rate == RATE else resample(whole, rate)), rate


def make(spry, folder, conditions=CONDITIONS, voices=tuple(VOICES), questions=tuple(QUESTIONS)):
    """Yields (voice, condition, question, path)."""
    for voice in voices:
        for number, question in enumerate(questions):
            said = os.path.join(folder, "said.wav")
            subprocess.run([spry, "voice", "--say", question, "--out", said, *VOICES[voice]], check=True)
            samples = read(said)[1]
            for name in conditions:
                path = os.path.join(folder, "%s-%s-%d.wav" % (voice, name, number))
                write(path, *condition(samples, name, number))
                yield voice, name, question, path
