"""Models of hubs, by `spry pull`, `spry run` and `spry models`, against a server that answers as Hugging Face and Ollama's
registry do: redirects, ranges, checksums, tokens, limits of requests, broken connections, full disks."""

import hashlib
import http.server
import json
import os
import pty
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import server_support
from server_support import HOME, SPRY, environment, eventually, spry, tiny

DRAFTER = os.path.join(server_support.ROOT, "models", "Spry-Tales-Draft-4M.gguf")
FOLDER = tiny("llama", "")


class Hub(http.server.BaseHTTPRequestHandler):
    """The hub's API, its redirects, and the host that has the files, with the habits that the class is told to have."""

    files = {}        # repository -> {path: bytes}
    blobs = {}        # digest -> bytes
    manifests = {}    # "library/name/tag" -> object
    token = None      # what private repositories want
    cuts = []         # bytes after which a connection breaks, one for each request of a file
    statuses = []     # instead of answers with bytes of files; None: an answer
    damage = False    # one byte is wrong
    ranges = True
    pause = 0.0       # seconds for every 64 kB
    asked = []        # (path, Range, Authorization)
    lock = threading.Lock()
    busy = most = 0   # transfers at once
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        cls = type(self)
        path = self.path.split("?")[0]
        with cls.lock:
            cls.asked.append((path, self.headers.get("Range"), self.headers.get("Authorization")))
        part = path.split("/")
        if path.startswith("/cdn/"):
            self.send_file(cls.blobs[part[2]])
        elif cls.token and self.headers.get("Authorization") != "Bearer " + cls.token:
            self.refuse(401)
        elif path.startswith("/api/models/") and "/".join(part[3:5]) in cls.files:
            self.send_json(self.tree(cls.files["/".join(part[3:5])]))
        elif len(part) > 5 and part[3] == "resolve" and "/".join(part[5:]) in cls.files.get("/".join(part[1:3]), {}):
            self.redirect(cls.files["/".join(part[1:3])]["/".join(part[5:])])
        elif path.startswith("/v2/") and "/manifests/" in path and "/".join(part[2:4] + part[5:]) in cls.manifests:
            self.send_json(cls.manifests["/".join(part[2:4] + part[5:])])
        elif path.startswith("/v2/") and "/blobs/" in path and part[-1][7:] in cls.blobs:
            self.redirect(cls.blobs[part[-1][7:]])
        else:
            self.refuse(404)

    @staticmethod
    def tree(files):
        """Large files have a checksum, small ones only the name of a git object."""
        return [{"type": "file", "path": path, "size": len(data), "oid": "0" * 40,
                 **({"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}} if len(data) > 10000 else {})}
                for path, data in files.items()] + [{"type": "directory", "path": "docs", "oid": "0" * 40, "size": 0}]

    def refuse(self, status, *headers):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_json(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def redirect(self, data):
        digest = hashlib.sha256(data).hexdigest()
        self.blobs.setdefault(digest, data)
        # By another name of this host, as another host: tokens must not follow.
        self.refuse(302, ("Location", "http://localhost:%d/cdn/%s" % (self.server.server_address[1], digest)))

    def send_file(self, data):
        cls = type(self)
        with cls.lock:
            status = cls.statuses.pop(0) if cls.statuses else None
            cut = cls.cuts.pop(0) if cls.cuts else None
            cls.busy += 1
            cls.most = max(cls.most, cls.busy)
        try:
            if status:
                self.refuse(status, *((("Retry-After", "1"),) if status == 429 else ()))
                return
            begin, end = 0, len(data)
            wanted = self.headers.get("Range")
            if wanted and cls.ranges:
                first, last = wanted[len("bytes="):].split("-")
                begin, end = int(first), int(last) + 1
                self.send_response(206)
                self.send_header("Content-Range", "bytes %d-%d/%d" % (begin, end - 1, len(data)))
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            if cls.damage and begin <= 5000 < end:
                data = data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]
            stop = min(end, begin + cut) if cut is not None else end
            for at in range(begin, stop, 65536):
                self.wfile.write(data[at:min(at + 65536, stop)])
                time.sleep(cls.pause)
            if stop < end:
                self.close_connection = True
        except OSError:
            self.close_connection = True
        finally:
            with cls.lock:
                cls.busy -= 1


class HubTest(unittest.TestCase):
    def setUp(self):
        with open(DRAFTER, "rb") as file:
            self.body = file.read()
        self.hub = type("Habits", (Hub,), {"files": {}, "blobs": {}, "manifests": {}, "cuts": [], "statuses": [],
                                           "asked": [], "lock": threading.Lock()})
        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.hub)
        self.web.handle_error = lambda *_: None  # clients that leave
        self.thread = threading.Thread(target=self.web.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.url = "http://127.0.0.1:%d" % self.web.server_address[1]
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.cache = tempfile.mkdtemp(dir=HOME)
        self.changes = {"HF_ENDPOINT": self.url, "SPRY_OLLAMA_REGISTRY": self.url, "HF_HUB_CACHE": self.cache,
                        "OLLAMA_MODELS": self.cache, "HF_TOKEN": None}
        self.hub.files["me/Tales-GGUF"] = {"README.md": b"hello", "tales-Q8_0.gguf": self.body[:99999],
                                           "tales-Q4_K_M.gguf": self.body, "tales-Q4_K_S.gguf": self.body[:12345],
                                           "mmproj-Q4_K_M.gguf": b"no model"}

    def tearDown(self):
        self.web.shutdown()
        self.web.server_close()
        self.thread.join()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.cache)

    def run_spry(self, *arguments):
        return spry(*arguments, "--models-dir", self.folder, stdin=None, **self.changes)

    def pulled(self, *arguments):
        result = self.run_spry("pull", *arguments)
        self.assertEqual(result.code, 0, result.errors)
        return result

    def refused(self, words, *arguments):
        result = self.run_spry("pull", *arguments)
        self.assertEqual(result.code, 1, result.errors)
        self.assertIn(words, result.errors)

    def same(self, name, body):
        with open(os.path.join(self.folder, name), "rb") as file:
            self.assertEqual(file.read(), body)
        self.assertEqual([one for one in os.listdir(self.folder) if one.startswith(".") and not one.endswith(".hub")], [])

    def asked_files(self):
        return [one for one in self.hub.asked if one[0].startswith("/cdn/")]


class Api(HubTest):
    """Pulling by short names and names of hubs over HTTP, as the page and Ollama's clients do."""

    def setUp(self):
        super().setUp()
        data = os.path.join(self.cache, "data")
        os.makedirs(os.path.join(data, "spry"))
        with open(os.path.join(data, "spry", "catalogue.json"), "w", encoding="utf-8") as file:
            json.dump({"models": [{"name": "tales:4m", "source": "hf:me/Tales-GGUF", "bytes": 5, "licence": "MIT", "use": "tales"},
                                  {"name": "huge:1t", "source": "hf:me/Huge", "bytes": 1e15}]}, file)
        self.changes["XDG_DATA_HOME"] = data

    def serve(self, *arguments):
        server = server_support.Server("--models-dir", self.folder, *arguments, **self.changes)
        self.addCleanup(server.stop)
        return server

    def test_a_short_name_is_pulled_and_answers(self):
        server = self.serve("--allow-pull")
        listed = server.get("/v1/catalogue").json
        self.assertEqual([(m["name"], m["licence"] if "licence" in m else None, m["fits"], m["here"]) for m in listed["models"]],
                         [("tales:4m", "MIT", True, None), ("huge:1t", None, False, None)])
        self.assertTrue(listed["pull"])
        lines = server.post("/api/pull", {"model": "tales:4m"}).lines
        self.assertEqual(lines[-1], {"status": "success"})
        self.assertIn("completed", lines[-2])
        self.same("tales-Q4_K_M.gguf", self.body)
        self.assertEqual(server.get("/v1/catalogue").json["models"][0]["here"], "tales-Q4_K_M")
        for name in ("tales:4m", "hf:me/Tales-GGUF", "tales-Q4_K_M"):
            reply = server.post("/v1/chat/completions", {"model": name, "max_tokens": 2,
                                                         "messages": [{"role": "user", "content": "x"}]})
            self.assertEqual((reply.status, reply.json["model"]), (200, "tales-Q4_K_M"), name)
        self.hub.asked.clear()
        for name in ("tales:4m", "hf:me/Tales-GGUF"):
            self.assertEqual(server.post("/api/pull", {"model": name}).json, {"status": "success"})
        self.assertEqual(self.hub.asked, [])
        # The program finds it by the same names.
        self.assertEqual(self.run_spry("run", "tales:4m", "-p", "x", "-n", "2", "--json").json["model"], "tales-Q4_K_M")

    def test_what_cannot_be_pulled(self):
        server = self.serve("--allow-pull")
        for body, status, words in (({"model": "tales"}, 200, ""), ({"model": "nothing"}, 404, "hf:OWNER/REPO[:TYPE]"),
                                    ({"model": "hf:me/Huge"}, 404, "404"), ({"model": "hf:me"}, 400, "hf:OWNER/REPO"),
                                    ({"model": "x", "source": "nothing"}, 400, "a name of the catalogue")):
            reply = server.post("/api/pull", {**body, "stream": False})
            self.assertEqual(reply.status, status, reply.text)
            self.assertIn(words, reply.text)
        server = self.serve()
        self.assertFalse(server.get("/v1/catalogue").json["pull"])
        for name in ("huge:1t", "hf:me/Huge"):
            reply = server.post("/api/pull", {"model": name})
            self.assertEqual((reply.status, "--allow-pull" in reply.json["error"]), (403, True))

    def test_no_network(self):
        self.changes["HF_ENDPOINT"] = "http://127.0.0.1:1"
        self.refused("127.0.0.1", "tales:4m")
        master, slave = pty.openpty()
        process = subprocess.Popen([SPRY, "run", "tales:4m", "-p", "x", "--models-dir", self.folder], stdin=slave,
                                   stdout=subprocess.PIPE, stderr=slave, env=environment(**self.changes))
        os.close(slave)
        self.assertEqual((process.communicate(timeout=server_support.TIMEOUT)[0], process.returncode), (b"", 1))
        told = " ".join(os.read(master, 4096).decode().split())
        os.close(master)
        self.assertRegex(told, "is not on this machine, and cannot be downloaded: .*127.0.0.1")
        reply = self.serve("--allow-pull").post("/api/pull", {"model": "tales:4m", "stream": False})
        self.assertGreaterEqual(reply.status, 400)
        self.assertIn("127.0.0.1", reply.json["error"])
        self.assertEqual(os.listdir(self.folder), [])


class HuggingFace(HubTest):
    def test_types(self):
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)
        self.assertGreater(len(self.asked_files()), 4)  # in ranges
        self.hub.asked.clear()
        self.assertIn("is in", self.pulled("hf:me/Tales-GGUF").text)
        self.assertEqual(self.hub.asked, [])
        self.pulled("hf:me/Tales-GGUF:q4_k_s", "other")
        self.same("other.gguf", self.body[:12345])
        self.refused("tales-Q8_0.gguf", "hf:me/Tales-GGUF:Q4_K")
        self.refused("already contains", "hf:me/Tales-GGUF", "other")
        self.refused("404", "hf:me/nothing")
        self.hub.files["me/empty"] = {"a.bin": b"x"}
        self.refused("neither GGUF", "hf:me/empty")
        for name in ("hf:me", "hf:", "hf:me/", "hf:/x", "hf:me/x/y", "hf:../x", "hf:me/a b", "hf:me/x:", "ollama:", "ollama:a:b:c"):
            self.refused("hf:OWNER/REPO", name)

    def test_several_at_once(self):
        self.hub.pause = 0.02
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)
        self.assertGreater(self.hub.most, 1)

    def test_it_runs_under_its_name(self):
        result = self.run_spry("run", "hf:me/Tales-GGUF", "-p", "x", "-n", "2", "--json")
        self.assertEqual(result.code, 1)
        self.assertIn("spry pull hf:me/Tales-GGUF", result.errors)
        self.pulled("hf:me/Tales-GGUF")
        result = self.run_spry("run", "hf:me/Tales-GGUF", "-p", "x", "-n", "2", "--json")
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(result.json["model"], "tales-Q4_K_M")
        self.assertEqual(self.run_spry("run", "hf:me/../x", "-p", "x").code, 1)

    def test_an_offer_on_a_terminal(self):
        for answer, code in ((b"n\n", 1), (b"\n", 0)):
            master, slave = pty.openpty()
            process = subprocess.Popen([SPRY, "run", "hf:me/Tales-GGUF", "-p", "x", "-n", "2", "--models-dir", self.folder],
                                       stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=environment(**self.changes))
            os.close(slave)
            seen = b""
            while b"[Y/n]" not in seen:
                self.assertTrue(select.select([master], [], [], server_support.TIMEOUT)[0], seen)
                seen += os.read(master, 4096)
            self.assertIn(b"Download tales-Q4_K_M", seen)
            os.write(master, answer)
            out, _ = process.communicate(timeout=server_support.TIMEOUT)
            os.close(master)
            self.assertEqual((process.returncode, bool(out)), (code, code == 0))

    def test_folders(self):
        files = {}
        for name in os.listdir(FOLDER):
            if not name.startswith("golden") and not name.endswith(".gguf"):
                with open(os.path.join(FOLDER, name), "rb") as file:
                    files[name] = file.read()
        self.hub.files["me/Tiny"] = {**files, "pytorch_model.bin": b"x", ".gitattributes": b"", "docs/a.json": b"{}"}
        self.hub.cuts = [5000, 5000]
        self.pulled("hf:me/Tiny")
        for name, data in files.items():
            with open(os.path.join(self.folder, "Tiny", name), "rb") as file:
                self.assertEqual(file.read(), data)
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "Tiny"))), sorted(files))
        result = self.run_spry("run", "hf:me/Tiny", "-p", "x", "-n", "2", "--json")
        self.assertEqual(result.code, 0, result.errors)
        self.refused("no GGUF files", "hf:me/Tiny:Q4_0")

    def test_split_files(self):
        parts = {"Q8_0/tales-Q8_0-%05d-of-00002.gguf" % (i + 1): self.body[i * 20000:i * 20000 + 20000] for i in range(2)}
        self.hub.files["me/Split"] = {**parts, "Q4_0/tales-Q4_0-00001-of-00002.gguf": b"GGUF"}
        self.pulled("hf:me/Split:Q8_0")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "Split-Q8_0"))),
                         ["tales-Q8_0-0000%d-of-00002.gguf" % (i + 1) for i in range(2)])

    def test_tokens(self):
        self.hub.token = "secret"
        self.refused("HF_TOKEN", "hf:me/Tales-GGUF")
        self.changes["HF_TOKEN"] = "wrong"
        self.refused("may not read", "hf:me/Tales-GGUF")
        self.changes["HF_TOKEN"] = "secret"
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)
        self.assertEqual({one[2] for one in self.asked_files()}, {None})  # the other host gets no token

    def test_cut_ten_times(self):
        self.hub.cuts = [1000 * (i + 1) for i in range(10)]
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)

    def test_too_many_requests_and_errors(self):
        self.hub.statuses = [429, 503, None, 500]
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)
        self.hub.statuses = [404] * 8
        self.refused("404", "hf:me/Tales-GGUF:Q8_0")

    def test_servers_without_ranges(self):
        self.hub.ranges, self.hub.cuts = False, [None, None, None, None, 50000]
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)

    def test_wrong_bytes(self):
        self.hub.damage = True
        self.refused("SHA-256", "hf:me/Tales-GGUF")
        self.assertEqual(os.listdir(self.folder), [])
        self.hub.damage = False
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)

    def test_interrupted_and_asked_again(self):
        self.hub.pause = 0.05
        process = subprocess.Popen([SPRY, "pull", "hf:me/Tales-GGUF", "--models-dir", self.folder],
                                   env=environment(**self.changes), stderr=subprocess.PIPE)
        record = os.path.join(self.folder, ".tales-Q4_K_M.gguf.part.from")
        self.assertTrue(eventually(lambda: os.path.exists(record) and b"#" in open(record, "rb").read()))
        self.assertIn("already being pulled", self.run_spry("pull", "hf:me/Tales-GGUF").errors)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=server_support.TIMEOUT)
        self.assertEqual(process.returncode, 130)
        with open(record, "rb") as file:
            there = file.read().split(b"\n", 1)[1]
        self.hub.pause = 0
        self.hub.asked.clear()
        self.pulled("hf:me/Tales-GGUF")
        self.same("tales-Q4_K_M.gguf", self.body)
        ranges = {one[1] for one in self.asked_files()}  # a request of the first process may arrive late, for a missing part
        self.assertEqual(len(ranges), len(there) - there.count(b"#"))

    def test_full_disks(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000000, 1000000))

        result = subprocess.run([SPRY, "pull", "hf:me/Tales-GGUF", "--models-dir", self.folder], capture_output=True,
                                check=False, env=environment(**self.changes), preexec_fn=limit, timeout=server_support.TIMEOUT)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"cannot write", result.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "tales-Q4_K_M.gguf")))

        class Huge(bytes):
            def __len__(self):
                return 1 << 60

        self.hub.files["me/Huge"] = {"huge-Q4_0.gguf": Huge(b"GGUF")}
        self.refused("left", "hf:me/Huge")

    def test_files_in_its_cache_are_used_there(self):
        snapshot = os.path.join(self.cache, "models--me--Tales-GGUF", "snapshots", "abc")
        os.makedirs(snapshot)
        os.makedirs(os.path.join(self.cache, "models--me--Tales-GGUF", "refs"))
        with open(os.path.join(self.cache, "models--me--Tales-GGUF", "refs", "main"), "w", encoding="utf-8") as file:
            file.write("abc")
        os.symlink(DRAFTER, os.path.join(snapshot, "tales-Q8_0.gguf"))
        self.assertIn(snapshot, self.pulled("hf:me/Tales-GGUF:Q8_0").text)
        result = self.run_spry("run", "hf:me/Tales-GGUF:Q8_0", "-p", "x", "-n", "2", "--json")
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual((self.hub.asked, os.listdir(self.folder)), ([], []))
        self.pulled("hf:me/Tales-GGUF:Q4_K_M")  # another one is not there
        self.assertIn("tales-Q4_K_M.gguf", os.listdir(self.folder))


class Ollama(HubTest):
    def setUp(self):
        super().setUp()
        self.digest = hashlib.sha256(self.body).hexdigest()
        self.hub.blobs[self.digest] = self.body
        self.manifest = {"schemaVersion": 2, "layers": [
            {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64, "size": 3},
            {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + self.digest, "size": len(self.body)}]}
        self.hub.manifests["library/tales/latest"] = self.hub.manifests["me/tales/1b"] = self.manifest

    def test_the_registry(self):
        self.pulled("ollama:tales")
        self.same("tales.gguf", self.body)
        self.pulled("ollama:me/tales:1b")
        self.same("tales-1b.gguf", self.body)
        result = self.run_spry("run", "ollama:tales", "-p", "x", "-n", "2", "--json")
        self.assertEqual(result.code, 0, result.errors)
        self.refused("404", "ollama:tales:3b")
        self.hub.manifests["library/odd/latest"] = {"layers": [{"mediaType": "x"}]}
        self.refused("names no model", "ollama:odd")
        self.hub.damage = True
        self.refused("SHA-256", "ollama:tales", "again")

    def test_models_in_its_folder_are_used_there(self):
        place = os.path.join(self.cache, "manifests", "registry.ollama.ai", "library", "tales")
        os.makedirs(place)
        os.makedirs(os.path.join(self.cache, "blobs"))
        with open(os.path.join(place, "latest"), "w", encoding="utf-8") as file:
            json.dump(self.manifest, file)
        os.symlink(DRAFTER, os.path.join(self.cache, "blobs", "sha256-" + self.digest))
        self.assertIn("blobs", self.pulled("ollama:tales").text)
        result = self.run_spry("run", "ollama:tales", "-p", "x", "-n", "2", "--json")
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(result.json["model"], "ollama:tales")
        self.assertEqual((self.hub.asked, os.listdir(self.folder)), ([], []))


class Models(HubTest):
    def test_listing_and_removing(self):
        self.assertIn("empty", self.run_spry("models").text)
        self.pulled(DRAFTER, "small")
        self.pulled(FOLDER, "tiny")
        os.symlink(os.path.join(self.folder, "small.gguf"), os.path.join(self.folder, "link.gguf"))
        for name in ("small.gguf", "tiny"):
            os.utime(os.path.join(self.folder, name), (1000000000, 1000000000))
        self.assertEqual(self.run_spry("run", "small", "-p", "x", "-n", "1").code, 0)
        models = {one["name"]: one for one in self.run_spry("models", "--json").json["models"]}
        self.assertEqual(set(models), {"small", "tiny", "link"})
        self.assertEqual(models["small"]["bytes"], len(self.body))
        self.assertGreater(models["small"]["last_used"], "2020")
        self.assertIn("small", self.run_spry("models").text)
        self.assertEqual(self.run_spry("models", "remove", "link", "tiny").code, 0)
        self.assertEqual([one for one in os.listdir(self.folder) if one[0] != "."], ["small.gguf"])
        self.assertEqual(self.run_spry("models", "rm", "tiny").code, 1)
        self.assertEqual(self.run_spry("models", "remove", "../x").code, 1)
        self.assertEqual(self.run_spry("models", "remove").code, 2)
        self.assertEqual(self.run_spry("models", "shrink").code, 2)
        self.assertEqual(self.run_spry("models", "rm", "small").code, 0)


if __name__ == "__main__":
    server_support.main()
