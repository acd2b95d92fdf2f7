"""Models that come into the models folder: copied or downloaded, by `spry pull` and by /api/pull, also when the connection
breaks, the server lies, or the client disconnects."""

import http.server
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import server_support
from server_support import HOME, SPRY, Server, ServerTest, environment, eventually, spry, tiny

ROOT_MODEL = os.path.join(server_support.ROOT, "models", "Spry-Tales-Draft-4M.gguf")
SMALL = tiny("llama")


class Files(http.server.BaseHTTPRequestHandler):
    """One file at every path, with the habits that the class is told to have."""

    body = b""
    etag = '"one"'
    cuts = []            # bytes after which the connection breaks, one for each request
    statuses = []        # instead of answers; None: an answer
    ignore_range = False
    wrong_range = False
    no_length = False
    pause = 0.0          # seconds for every 64 kB
    asked = []           # the Range of every request

    def log_message(self, *_):
        pass

    def do_GET(self):
        cls = type(self)
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path[6:])
            self.end_headers()
            return
        if self.path.startswith("/to-file"):
            self.send_response(302)
            self.send_header("Location", "file://" + SMALL)
            self.end_headers()
            return
        wanted = self.headers.get("Range")
        cls.asked.append(wanted)
        status = cls.statuses.pop(0) if cls.statuses else None
        if status:
            self.send_error(status)
            return
        begin = 0
        if wanted and not cls.ignore_range and self.headers.get("If-Range") == cls.etag:
            begin = int(wanted[len("bytes="):-1])
            self.send_response(206)
            told = begin + 1 if cls.wrong_range else begin
            self.send_header("Content-Range", "bytes %d-%d/%d" % (told, len(cls.body) - 1, len(cls.body)))
        else:
            self.send_response(200)
        if cls.etag:
            self.send_header("ETag", cls.etag)
        if not cls.no_length:
            self.send_header("Content-Length", str(len(cls.body) - begin))
        self.end_headers()
        end = begin + cls.cuts.pop(0) if cls.cuts else len(cls.body)
        try:
            for at in range(begin, min(end, len(cls.body)), 65536):
                self.wfile.write(cls.body[at:min(at + 65536, end)])
                time.sleep(cls.pause)
        except OSError:
            pass
        self.close_connection = True


class PullTest(unittest.TestCase):
    def setUp(self):
        with open(ROOT_MODEL, "rb") as file:
            body = file.read()
        self.habits = type("Habits", (Files,), {"body": body, "cuts": [], "statuses": [], "asked": []})
        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.habits)
        self.thread = threading.Thread(target=self.web.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.url = "http://127.0.0.1:%d" % self.web.server_address[1]
        self.folder = tempfile.mkdtemp(dir=HOME)

    def tearDown(self):
        self.web.shutdown()
        self.web.server_close()
        self.thread.join()
        shutil.rmtree(self.folder)

    def pull(self, *arguments):
        return spry("pull", *arguments, "--models-dir", self.folder, stdin=None)

    def pulled(self, *arguments):
        result = self.pull(*arguments)
        self.assertEqual(result.code, 0, result.errors)

    def refused(self, words, *arguments):
        before = sorted(os.listdir(self.folder))
        result = self.pull(*arguments)
        self.assertEqual(result.code, 1, result.errors)
        self.assertIn(words, result.errors)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def same(self, name, body):
        with open(os.path.join(self.folder, name), "rb") as file:
            self.assertEqual(file.read(), body)
        self.assertEqual([one for one in os.listdir(self.folder) if one.startswith(".")], [])


class Local(PullTest):
    def test_files_and_folders(self):
        with open(SMALL, "rb") as file:
            body = file.read()
        self.pulled(SMALL)
        self.same("model-f32.gguf", body)
        self.pulled("file://" + SMALL, "second.gguf")
        self.same("second.gguf", body)
        self.pulled(tiny("llama", ""), "third")
        self.assertIn("config.json", os.listdir(os.path.join(self.folder, "third")))
        self.assertFalse([name for name in os.listdir(os.path.join(self.folder, "third")) if name.endswith(".gguf")])
        for name in ("second", "third"):
            result = spry("inspect", name, "--models-dir", self.folder)
            self.assertEqual(result.code, 0, result.errors)
        self.refused("already", SMALL, "second")
        self.refused("already", SMALL, "third")

    def test_what_is_refused(self):
        text = os.path.join(HOME, "text.gguf")
        with open(text, "w", encoding="utf-8") as file:
            file.write("no model")
        empty = tempfile.mkdtemp(dir=HOME)
        self.refused("not a GGUF", text)
        self.refused("config.json", empty)
        self.refused("no such", "/nowhere")
        self.refused("no such", "file:///nowhere")
        self.refused("a path, file", "ftp://127.0.0.1/x.gguf")
        self.refused("not a regular", "/dev/zero", "x")
        for name in ("../x", "a/b", ".hidden", "", "..", "x" * 128, "a\nb", "a\x7fb"):
            self.refused("name", SMALL, name)
        self.assertEqual(spry("pull").code, 2)

    def test_no_link_leads_out(self):
        outside = os.path.join(HOME, "outside.txt")
        with open(outside, "w", encoding="utf-8") as file:
            file.write("mine")
        os.symlink(outside, os.path.join(self.folder, ".a.gguf.part"))
        os.symlink(outside, os.path.join(self.folder, "b.gguf"))
        self.refused(".a.gguf.part", SMALL, "a")
        self.refused("already", SMALL, "b")
        with open(outside, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")


class Web(PullTest):
    def test_plain_and_moved(self):
        self.pulled(self.url + "/a/tales%20one.gguf?x=1")
        self.same("tales one.gguf", self.habits.body)
        self.pulled(self.url + "/moved/x.gguf", "other")
        self.same("other.gguf", self.habits.body)

    def test_connections_that_break(self):
        self.habits.cuts = [1000, 700000, 3]
        self.pulled(self.url + "/x.gguf")
        self.same("x.gguf", self.habits.body)
        self.assertEqual(self.habits.asked, [None, "bytes=1000-", "bytes=701000-", "bytes=701003-"])

    def test_without_a_tag_it_begins_anew(self):
        self.habits.etag, self.habits.cuts = "", [1000]
        self.pulled(self.url + "/x.gguf")
        self.same("x.gguf", self.habits.body)
        self.assertEqual(self.habits.asked, [None, None])

    def test_servers_that_know_no_ranges(self):
        self.habits.ignore_range, self.habits.cuts = True, [1000]
        self.pulled(self.url + "/x.gguf")
        self.same("x.gguf", self.habits.body)

    def test_interrupted_and_asked_again(self):
        self.habits.pause = 0.1
        process = subprocess.Popen([SPRY, "pull", self.url + "/x.gguf", "--models-dir", self.folder], env=environment(),
                                   stderr=subprocess.PIPE)
        part = os.path.join(self.folder, ".x.gguf.part")
        self.assertTrue(eventually(lambda: os.path.exists(part) and os.path.getsize(part) > 300000))
        result = self.pull(self.url + "/x.gguf")
        self.assertIn("already", result.errors)  # the first one has the lock
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=server_support.TIMEOUT)
        self.assertEqual(process.returncode, 130)
        there = os.path.getsize(part)
        self.habits.pause, self.habits.asked = 0, []
        self.pulled(self.url + "/x.gguf")
        self.same("x.gguf", self.habits.body)
        self.assertEqual(self.habits.asked, ["bytes=%d-" % there])

    def test_a_file_that_changed_meanwhile(self):
        self.habits.cuts, self.habits.statuses = [5000], [None, 404]
        self.assertEqual(self.pull(self.url + "/x.gguf").code, 1)
        self.assertIn(".x.gguf.part", os.listdir(self.folder))
        self.habits.etag, self.habits.body = '"two"', b"GGUF" + self.habits.body[:9999:-1]
        self.pulled(self.url + "/x.gguf")
        self.same("x.gguf", self.habits.body)

    def test_another_address_does_not_go_on(self):
        self.habits.cuts, self.habits.statuses = [5000], [None, 404]
        self.assertEqual(self.pull(self.url + "/x.gguf").code, 1)
        self.habits.asked = []
        self.pulled(self.url + "/y/x.gguf")
        self.same("x.gguf", self.habits.body)
        self.assertEqual(self.habits.asked, [None])

    def test_servers_that_lie(self):
        self.habits.wrong_range, self.habits.cuts = True, [1000]
        self.pulled(self.url + "/x.gguf")
        self.same("x.gguf", self.habits.body)

    def test_what_is_refused(self):
        self.habits.statuses = [404]
        self.refused("404", self.url + "/x.gguf")
        self.habits.statuses = [500]
        self.refused("500", self.url + "/x.gguf")
        self.refused("ile", self.url + "/to-file")
        self.refused("name", self.url + "/")
        self.refused("valid URL", "http://")
        self.habits.body = b"<html>"
        self.refused("not a GGUF", self.url + "/x.gguf")
        self.habits.body = b""
        self.refused("empty", self.url + "/x.gguf")
        self.habits.body, self.habits.no_length = b"GGUF", True
        self.refused("the size", self.url + "/x.gguf")
        self.web.server_close()
        self.refused("onnect", "http://127.0.0.1:1/x.gguf")

    def test_more_than_the_disk_has(self):
        class Huge(bytes):
            def __len__(self):
                return 1 << 60

        self.habits.body = Huge(b"GGUF")
        self.refused("left", self.url + "/x.gguf")


class Api(PullTest):
    def setUp(self):
        super().setUp()
        self.server = Server("--allow-pull", "--models-dir", self.folder)

    def tearDown(self):
        self.assertEqual(self.server.stop(), 0, "".join(self.server.log))
        super().tearDown()

    def test_lines_of_progress(self):
        self.habits.pause = 0.02
        reply = self.server.post("/api/pull", {"model": "mine:latest", "source": self.url + "/x.gguf"})
        self.assertEqual(reply.status, 200, reply.text)
        lines = reply.lines
        self.assertEqual(lines[-1], {"status": "success"})
        steps = [line for line in lines if "completed" in line]
        self.assertGreater(len(steps), 1)
        self.assertEqual([line["completed"] for line in steps], sorted(line["completed"] for line in steps))
        self.assertTrue(all(line["total"] == len(self.habits.body) and line["status"] == "pulling mine" for line in steps))
        self.assertEqual(steps[-1]["completed"], steps[-1]["total"])
        self.assertIn("mine", [model["name"] for model in self.server.get("/api/tags").json["models"]])
        answer = self.server.post("/api/generate", {"model": "mine", "prompt": "Once", "stream": False,
                                                    "options": {"num_predict": 3}})
        self.assertEqual(answer.status, 200, answer.text)
        self.assertEqual(self.server.post("/api/pull", {"model": "mine"}).json, {"status": "success"})

    def test_copies_and_whole_answers(self):
        self.assertEqual(self.server.post("/api/pull", {"model": SMALL, "stream": False}).json, {"status": "success"})
        self.assertIn("model-f32", [model["name"] for model in self.server.get("/api/tags").json["models"]])
        reply = self.server.post("/api/pull", {"model": "x", "source": ROOT_MODEL[:-5], "stream": False})
        self.assertEqual((reply.status, "no such" in reply.json["error"]), (404, True))
        self.habits.statuses = [404]
        reply = self.server.post("/api/pull", {"model": self.url + "/z.gguf", "stream": False})
        self.assertEqual((reply.status, "404" in reply.json["error"]), (404, True))

    def test_errors(self):
        for body, status in (({}, 400), ({"model": "nobody"}, 404), ({"model": "../x", "source": SMALL}, 400),
                             ({"model": ".x", "source": SMALL}, 400), ({"model": "x", "source": "relative.gguf"}, 400),
                             ({"model": "x", "source": 7}, 400), ({"model": "x", "source": "gopher://x"}, 400)):
            reply = self.server.post("/api/pull", body)
            self.assertEqual(reply.status, status, reply.text)
            self.assertIsInstance(reply.json["error"], str)
        self.habits.body = b"<html>"
        lines = self.server.post("/api/pull", {"model": self.url + "/x.gguf"}).lines
        self.assertIn("not a GGUF", lines[-1]["error"])
        self.assertEqual(os.listdir(self.folder), [])

    def test_leaving_stops_it(self):
        self.habits.pause = 0.1
        threads = self.server.threads()
        for number, stream in enumerate((True, False), 1):
            connection = self.server.connect()
            connection.request("POST", "/api/pull", json.dumps({"model": self.url + "/x.gguf", "stream": stream}))
            self.assertTrue(eventually(lambda: len(self.habits.asked) == number))
            connection.close()
            self.assertTrue(eventually(lambda: self.server.threads() <= threads))
        self.habits.pause = 0
        self.assertEqual(self.server.post("/api/pull", {"model": self.url + "/x.gguf"}).lines[-1], {"status": "success"})
        self.same("x.gguf", self.habits.body)


class NotAllowed(ServerTest):
    def test_nothing_is_pulled_unless_allowed(self):
        reply = self.server.post("/api/pull", {"model": SMALL})
        self.assertEqual(reply.status, 403)
        self.assertIn("--allow-pull", reply.json["error"])


if __name__ == "__main__":
    server_support.main()
