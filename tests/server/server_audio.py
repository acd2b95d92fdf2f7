"""/v1/audio/transcriptions, /translations and /speech: forms, formats, bad input, and OpenAI's npm client. The recogniser is
a command, so that what it hears and says is known."""

import array
import http.client
import io
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
import wave

import server_support
from server_support import FETCHING, HOME, Server, ServerTest, eventually, spry

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients")
WORDS = "Good morning."
RATE = 16000


def sound(seconds=1.5, rate=RATE):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(array.array("h", [int(9000 * math.sin(i / 7)) for i in range(int(seconds * rate))]).tobytes())
    return out.getvalue()


def crc(data, bits, polynomial):
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = ((value << 1) ^ (polynomial if value >> (bits - 1) else 0)) & ((1 << bits) - 1)
    return value.to_bytes(bits // 8, "big")


def flac(samples, rate=RATE, block=4096):
    """A FLAC file of 16-bit samples as they are, without prediction."""
    about = (rate << 44) | (15 << 36) | len(samples)
    out = b"fLaC\x80\0\0\x22" + block.to_bytes(2, "big") * 2 + bytes(6) + about.to_bytes(8, "big") + bytes(16)
    for number in range(0, (len(samples) + block - 1) // block):
        part = samples[number * block:(number + 1) * block]
        head = b"\xff\xf8\x70\x08" + bytes([number]) + (len(part) - 1).to_bytes(2, "big")
        frame = head + crc(head, 8, 7) + b"\x02" + b"".join(sample.to_bytes(2, "big", signed=True) for sample in part)
        out += frame + crc(frame, 16, 0x8005)
    return out


def form(fields, boundary="a-boundary"):
    body = b""
    for name, value in fields.items():
        extra = '; filename="sound.wav"' if name == "file" else ""
        body += ('--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n' % (boundary, name, extra)).encode()
        body += (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return body + b"--" + boundary.encode() + b"--\r\n"


def missing():
    result = spry("voice", "--say", "Hello.", "--out", os.path.join(HOME, "probe.wav"))
    return None if result.code == 0 else result.errors.strip()


WHY_NOT = missing()
if WHY_NOT:
    print("SKIPPED server_audio: %s" % WHY_NOT)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class EndlessCommand(ServerTest):
    """A recogniser that says more than any transcript holds, and then stays, is ended with all it has started; the server
    goes on."""

    arguments = ("--stt-cmd", "sleep 1234.5 & head -c 2000000 /dev/zero | tr '\\0' a; wait")

    @staticmethod
    def sleepers():
        found = []
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as file:
                    found += [name] if file.read() == b"sleep\0001234.5\0" else []
            except OSError:
                pass
        return found

    def test_it_is_ended(self):
        for _ in range(2):
            reply = self.server.ask("POST", "/v1/audio/transcriptions", form({"file": sound()}),
                                    {"Content-Type": "multipart/form-data; boundary=a-boundary"})
            self.assertIn(reply.status, (200, 503), reply.text[:200])
        self.assertTrue(server_support.eventually(lambda: not self.sleepers()))
        self.alive()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Audio(ServerTest):
    arguments = ("--stt-cmd", "wc -c >heard; echo ' %s '" % WORDS)

    def send(self, path="transcriptions", content="multipart/form-data; boundary=a-boundary", **fields):
        fields.setdefault("file", sound())
        return self.server.ask("POST", "/v1/audio/" + path, form({k: v for k, v in fields.items() if v is not None}),
                               {"Content-Type": content})

    def test_formats(self):
        self.assertEqual(self.send(model="whisper-1").json, {"text": WORDS})
        with open(os.path.join(HOME, "heard"), encoding="utf-8") as file:
            self.assertEqual(int(file.read()), 3 * RATE)
        self.assertEqual(self.send(response_format="text").text, WORDS + "\n")
        self.assertEqual(self.send(response_format="srt").text, "1\n00:00:00,000 --> 00:00:01,500\n%s\n\n" % WORDS)
        vtt = self.send(response_format="vtt")
        self.assertEqual(vtt.text, "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n%s\n\n" % WORDS)
        self.assertIn("text/vtt", vtt.headers["content-type"])
        verbose = self.send(response_format="verbose_json").json
        self.assertEqual((verbose["task"], verbose["duration"], len(verbose["segments"])), ("transcribe", 1.5, 1))

    def test_files(self):
        self.assertEqual(self.send(file=sound(rate=44100)).status, 200)
        for wrong, words in ((b"", "not a sound file"), (b"hello", "not a sound file"), (sound()[:20], "not a sound file"),
                             (sound(0), "no sound")):
            reply = self.send(file=wrong)
            self.assertEqual(reply.status, 400, reply.text)
            self.assertIn(words, reply.json["error"]["message"])

    def test_wrong_fields(self):
        for field, value in (("response_format", "pdf"), ("temperature", "warm"), ("temperature", "2"), ("stream", "true"),
                             ("timestamp_granularities[]", "word"), ("language", b"\xff"), ("prompt", b"a\0b")):
            reply = self.send(**{field: value})
            self.assertEqual(reply.status, 400, (field, reply.text))
            self.assertEqual(reply.json["error"]["param"], field.replace("[]", ""))
        reply = self.send(file=None)
        self.assertEqual((reply.status, reply.json["error"]["param"]), (400, "file"))
        self.assertEqual(self.send(content="application/json").status, 415)
        self.assertEqual(self.send(content="multipart/form-data").status, 400)
        self.assertEqual(self.send(content="multipart/form-data; boundary=another").status, 400)
        many = {"field%d" % i: "x" for i in range(40)}
        self.assertEqual(self.send(**many).status, 400)
        self.assertEqual(self.send("translations").status, 400)

    def test_what_hears_and_speaks(self):
        reply = self.server.ask("GET", "/v1/audio")
        self.assertEqual((reply.status, reply.json["recogniser"]), (200, "command"))
        self.assertIn(reply.json["synthesiser"], ("flite", "espeak"))

    def speak(self, **fields):
        body = {"model": "tts-1", "voice": "alloy", "input": WORDS}
        body.update(fields)
        return self.server.post("/v1/audio/speech", body)

    def test_speech(self):
        reply = self.speak()
        self.assertEqual((reply.status, reply.headers["content-type"]), (200, "audio/wav"))
        with wave.open(io.BytesIO(reply.body)) as file:
            self.assertEqual((file.getframerate(), file.getnchannels(), file.getsampwidth()), (RATE, 1, 2))
        samples = array.array("h", reply.body[44:])
        self.assertGreater(max(samples), 2000)
        pcm = self.speak(response_format="pcm")
        self.assertEqual(pcm.headers["content-type"], "audio/pcm")
        self.assertAlmostEqual(len(pcm.body) / 2, 1.5 * len(samples), delta=2)  # 24 kHz
        for voice in "rms", "onyx", "slt":
            self.assertEqual(self.speak(voice=voice).status, 200)
        self.assertGreater(len(self.speak(input="One. Two. Three, four. " * 20).body), 20 * len(reply.body))

    def test_flac(self):
        """Another process reads it: the same samples, and damage anywhere is an answer or a refusal."""
        server = Server("--stt-cmd", "cat >samples; echo x")
        samples = sound()[44:]
        file = flac(array.array("h", samples))

        def send(data):
            return server.ask("POST", "/v1/audio/transcriptions", form({"file": data}),
                              {"Content-Type": "multipart/form-data; boundary=a-boundary"})
        self.assertEqual(send(sound()).status, 200)
        with open(os.path.join(HOME, "samples"), "rb") as heard:
            plain = heard.read()
        reply = send(file)
        if "is not there" in reply.text:
            print("SKIPPED server_audio flac: built without libsndfile")
            self.assertEqual(server.stop(), 0)
            self.skipTest("no libsndfile")
        self.assertEqual(reply.status, 200, reply.text)
        with open(os.path.join(HOME, "samples"), "rb") as heard:
            self.assertEqual(heard.read(), plain)
        for at in range(4, 60, 5):
            damaged = file[:at] + bytes([file[at] ^ 0xff]) + file[at + 1:]
            self.assertIn(send(damaged).status, (200, 400), at)
        for size in (4, 20, 42, 50, 5000):
            self.assertIn(send(file[:size]).status, (200, 400), size)
        self.assertEqual(server.stop(), 0)

    def test_rare_formats(self):
        """Libsndfile would read them."""
        aiff = b"FORM" + (46).to_bytes(4, "big") + b"AIFFCOMM" + (18).to_bytes(4, "big") + bytes.fromhex(
            "0001" "00000000" "0010" "400DFA00000000000000") + b"SSND" + (8).to_bytes(4, "big") + bytes(8)
        for sound in (aiff, b".snd" + bytes(28), b"caff" + bytes(40)):
            reply = self.send(file=sound)
            self.assertEqual((reply.status, "WAV, FLAC, Ogg or MP3" in reply.text), (400, True), reply.text)

    def test_speech_refused(self):
        for fields in ({"input": ""}, {"input": None}, {"input": 7}, {"input": "x" * 70000}, {"voice": "nobody's"},
                       {"response_format": "mp3"}, {"speed": 2}, {"stream_format": "sse"}):
            reply = self.speak(**fields)
            self.assertEqual(reply.status, 400, (list(fields), reply.text))
            self.assertIn(reply.json["error"]["param"], (next(iter(fields)), None))

    def test_client(self):
        if not shutil.which("npm") or not shutil.which("node"):
            print("SKIPPED server_audio client: npm is not there")
            self.skipTest("no npm")
        folder = tempfile.mkdtemp(prefix="spry-audio-", dir=HOME)
        with open(os.path.join(HERE, "package.json"), encoding="utf-8") as file:
            version = json.load(file)["dependencies"]["openai"]
        shutil.copy(os.path.join(HERE, "audio.mjs"), folder)
        try:
            done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", "openai@" + version], cwd=folder,
                                  capture_output=True, timeout=FETCHING, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            done = False
        if not done:
            print("SKIPPED server_audio client: npm cannot fetch it")
            self.skipTest("no client")
        path = os.path.join(folder, "sound.wav")
        with open(path, "wb") as file:
            file.write(sound())
        result = subprocess.run(["node", "audio.mjs", "http://127.0.0.1:%d" % self.server.port, "none", path, WORDS],
                                cwd=folder, capture_output=True, timeout=server_support.TIMEOUT, check=False)
        lines = result.stdout.decode("utf-8").splitlines()
        self.assertEqual([line for line in lines if not line.startswith("passed ")], [], result.stderr)
        self.assertEqual(len(lines), 6)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Voices(unittest.TestCase):
    def speak(self, server, **fields):
        return server.post("/v1/audio/speech", dict({"model": "tts-1", "voice": "alloy", "input": WORDS}, **fields))

    def test_many_names(self):
        """Each name opens a voice; those that are not speaking make way for others."""
        server = Server("--tts-cmd", "head -c 2000 /dev/zero; cat >/dev/null")
        for i in range(40):
            self.assertEqual(self.speak(server, voice="v%d" % i).status, 200)
        for name in ("../../etc/passwd", "/etc/passwd", "-f", "a/../b", "v" * 100):
            self.assertEqual(self.speak(server, voice=name).status, 400, name)
        self.assertEqual(server.stop(), 0)

    def test_the_end_of_the_server(self):
        """A command that does not end is ended with the server, and when its client leaves."""
        server = Server("--tts-cmd", "sleep 1000", "--grace", "0")
        clients = [server.connect() for _ in range(2)]
        for client in clients:
            client.request("POST", "/v1/audio/speech", json.dumps({"voice": "alloy", "input": WORDS}))

        def commands():
            found = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, check=False).stdout.split()
            return len(found)
        self.assertTrue(eventually(lambda: commands() == 2))
        clients[0].close()
        self.assertTrue(eventually(lambda: commands() == 1))
        self.assertEqual(server.stop(), 0)
        clients[1].close()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class LongClauses(unittest.TestCase):
    """"w" has three syllables: texts of it take the longest to speak."""

    def ask(self, server, text):
        connection = server.connect()
        connection.request("POST", "/v1/audio/speech", json.dumps({"input": text, "voice": "alloy"}))
        return connection

    def begin(self, server):
        """A text of many clauses, of which the first is being spoken."""
        before = server.cpu()
        connection = self.ask(server, "w" * 60000)
        self.assertTrue(eventually(lambda: subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True,
                                                          check=False).stdout or server.cpu() > before + 1))
        return connection

    def test_the_end_does_not_wait(self):
        """Also within a clause. Processor time tells: that of all children is the server's."""
        used = []
        for cut in False, True:
            server = Server("--grace", "0")
            connection = self.begin(server) if cut else self.ask(server, "w" * 200)
            if not cut:
                connection.getresponse().read()
            server.process.send_signal(signal.SIGTERM)
            _, status, usage = os.wait4(server.process.pid, 0)
            server.process.returncode = status
            self.assertEqual(status, 0)
            used.append(usage.ru_utime + usage.ru_stime)
            connection.close()
            server.stop()
        if not server_support.SANITIZED:
            self.assertLess(used[1], used[0] / 2 + 0.2)

    def test_the_end_between_clauses(self):
        """Of many short clauses, those that are not begun are left out."""
        server = Server("--grace", "0")
        connection = self.ask(server, "Yes. " * 10000)
        response = connection.getresponse()
        self.assertTrue(response.read(100000))
        server.process.send_signal(signal.SIGTERM)
        try:
            size = len(response.read())
        except http.client.IncompleteRead as cut:
            size = len(cut.partial)
        self.assertLess(size, 12 << 20)  # what sockets hold; all of it takes more than 100 MB
        connection.close()
        self.assertEqual(server.stop(), 0)

    def test_others_are_spoken_meanwhile(self):
        server = Server()
        connection = self.begin(server)
        self.assertEqual(self.ask(server, WORDS).getresponse().status, 200)
        reply = self.ask(server, WORDS).getresponse()
        self.assertGreater(len(reply.read()), 10000)
        connection.close()  # in the middle of a clause
        self.assertTrue(eventually(lambda: not subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True,
                                                              check=False).stdout))
        self.assertEqual(server.stop(), 0)


class Missing(ServerTest):
    arguments = ("--whisper", "/nowhere/whisper.bin", "--tts-cmd", "exit 1")

    def test_no_model(self):
        body = form({"file": sound()})
        reply = self.server.ask("POST", "/v1/audio/transcriptions", body,
                                {"Content-Type": "multipart/form-data; boundary=a-boundary"})
        self.assertEqual(reply.status, 404)
        self.assertIn("/nowhere/whisper.bin", reply.json["error"]["message"])


if __name__ == "__main__":
    server_support.main()
