"""Several processes that compute one model together, started by mpirun."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import cli_support
from cli_support import HOME, SPRY, environment, spry, tiny

RANK_TIMEOUT = cli_support.TIMEOUT
# Open MPI refuses to run as root, or more processes than cores, unless told otherwise.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_mpi_yield_when_idle": "1", "ASAN_OPTIONS": "detect_leaks=0"}


def mpirun(ranks, *arguments, program=SPRY, **changes):
    process = subprocess.run(["mpirun", "-n", str(ranks), program, *arguments], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=RANK_TIMEOUT, cwd=HOME,
                             env=environment(**MPI, **changes))
    return cli_support.Result(process)


def words(result):
    """mpirun's output is a terminal, where lines are wrapped."""
    return result.text.split()


class Models(cli_support.CliTest):
    def logits(self, ranks, *model):
        path = os.path.join(HOME, "logits-%d" % ranks)
        result = mpirun(ranks, "logits", *model, "--ids", "1,5,9,20,33,7,2,11", "--rows", "all", "-o", path)
        self.assertEqual(result.code, 0, result.errors)
        with open(path, "rb") as file:
            return file.read()

    def test_logits_have_the_same_bits_on_any_number_of_ranks(self):
        for name in ("qwen3", "qwen3-moe", "gemma3", "cohere", "hunyuan", "gpt-oss-mxfp4"):
            alone = self.logits(1, tiny(name, ""))
            for ranks in (2, 3, 4):
                with self.subTest(model=name, ranks=ranks):
                    self.assertEqual(self.logits(ranks, tiny(name, "")), alone)

    def test_what_needs_values_of_other_ranks(self):
        """Latents, norms over all heads, gates made sparse by their whole row."""
        for name in ("deepseek-v2", "deepseek-v3", "olmo2", "gemma3n"):
            with self.subTest(model=name):
                self.assertEqual(self.logits(3, tiny(name, "")), self.logits(1, tiny(name, "")))

    def test_files_quantised_weights_and_types_of_keys(self):
        for model in ([tiny("qwen3")], [tiny("llama-256", ""), "--quantize", "q4_0"], [tiny("phi3", ""), "--kv-type", "f32"]):
            with self.subTest(model=model):
                self.assertEqual(self.logits(2, *model), self.logits(1, *model))

    def test_the_bundled_model_and_its_drafter(self):
        arguments = ["run", "-p", "Once upon a time", "-n", "40", "--temp", "0"]
        self.assertEqual(words(self.succeeds(mpirun(2, *arguments))), words(spry(*arguments)))

    def test_more_ranks_than_heads(self):
        result = mpirun(5, "run", tiny("qwen3"), "-p", "a")
        self.assertNotEqual(result.code, 0)
        self.assertIn("spry: the model has 4 heads, too few for 5 ranks: start at most 4", result.errors)

    def test_ranks_with_other_files(self):
        folders = [tempfile.mkdtemp(dir=HOME) for _ in range(2)]
        for folder, model in zip(folders, ("qwen3", "llama")):
            shutil.copy(tiny(model), os.path.join(folder, "model.gguf"))
        command = ["mpirun"]
        for folder in folders:
            command += ["-n", "1", "-wdir", folder, SPRY, "run", "model.gguf", "-p", "a", ":"]
        result = subprocess.run(command[:-1], stdin=subprocess.DEVNULL, capture_output=True, timeout=RANK_TIMEOUT,
                                env=environment(**MPI))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(b"spry: rank 1: model.gguf is another model than that of rank 0", result.stderr)

    def test_a_rank_without_the_file(self):
        folders = [tempfile.mkdtemp(dir=HOME) for _ in range(2)]
        shutil.copy(tiny("qwen3"), os.path.join(folders[0], "model.gguf"))
        command = ["mpirun"]
        for folder in folders:
            command += ["-n", "1", "-wdir", folder, SPRY, "run", "model.gguf", "-p", "a", ":"]
        result = subprocess.run(command[:-1], stdin=subprocess.DEVNULL, capture_output=True, timeout=RANK_TIMEOUT,
                                env=environment(**MPI))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(b"spry: rank 1: model.gguf", result.stderr)

    def test_a_program_without_the_module(self):
        folder = tempfile.mkdtemp(dir=HOME)
        program = shutil.copy(SPRY, folder)
        result = mpirun(2, "run", tiny("qwen3"), "-p", "a", program=program)
        self.assertNotEqual(result.code, 0)
        self.assertIn("spry: mpirun started 2 processes, but spry's MPI module cannot be opened", result.errors)

    def test_commands_without_a_model_end(self):
        self.assertIn("Usage: spry run", mpirun(2, "run", "--help").text)
        result = mpirun(2, "run", "/nowhere", "-p", "a")
        self.assertNotEqual(result.code, 0)
        self.assertIn("/nowhere", result.errors)


class Server(cli_support.CliTest):
    def setUp(self):
        self.cache = tempfile.mkdtemp(dir=HOME)
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, ranks, **changes):
        errors = open(os.path.join(self.cache, "errors"), "wb+")
        process = subprocess.Popen(["mpirun", "-n", str(ranks), SPRY, "serve", tiny("qwen3"), "--port", "0",
                                    "--cache-dir", os.path.join(self.cache, "pages")], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=errors, cwd=HOME,
                                   env=environment(**MPI, **changes), start_new_session=True)
        self.processes.append(process)
        process.errors = errors
        end = time.monotonic() + RANK_TIMEOUT
        text = b""
        while b"http://" not in text:
            errors.seek(0)
            text = errors.read()
            self.assertIsNone(process.poll(), text)
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.05)
        process.url = text.decode().split("http://")[1].split()[0].rstrip("/").split("/")[0]
        return process

    def ask(self, process, tokens=8):
        body = {"prompt": "the quick brown fox jumps over the lazy dog " * 6, "max_tokens": tokens, "temperature": 0}
        request = urllib.request.Request("http://%s/v1/completions" % process.url, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=RANK_TIMEOUT) as reply:
            return json.load(reply)

    def children(self, process):
        """The ranks: children of mpirun, in the order of their start."""
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
            return [int(pid) for pid in file.read().split()]

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        process.wait(RANK_TIMEOUT)

    def read_errors(self, process):
        process.errors.seek(0)
        return process.errors.read().decode()

    def test_pages_on_disk_serve_another_number_of_ranks(self):
        first = self.start(2)
        answer = self.ask(first)
        self.stop(first)
        second = self.start(3)
        again = self.ask(second)
        self.assertEqual(again["choices"][0]["text"], answer["choices"][0]["text"])
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.stop(second)

    def test_a_killed_rank_ends_the_job(self):
        process = self.start(2)
        answer = self.ask(process)
        os.kill(self.children(process)[1], signal.SIGKILL)
        self.assertNotEqual(process.wait(RANK_TIMEOUT), 0)
        self.assertIn("signal 9", self.read_errors(process))
        again = self.start(2)
        self.assertEqual(self.ask(again)["choices"][0]["text"], answer["choices"][0]["text"])

    def test_a_stuck_rank_ends_the_job(self):
        process = self.start(2, SPRY_RANK_TIMEOUT="2")
        self.ask(process)
        stuck = self.children(process)[1]
        os.kill(stuck, signal.SIGSTOP)
        try:
            with self.assertRaises(OSError):
                self.ask(process, 60)
            self.assertNotEqual(process.wait(RANK_TIMEOUT), 0)
        finally:
            try:
                os.kill(stuck, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.assertIn("another rank has not answered", self.read_errors(process))


class Network(cli_support.CliTest):
    """Two ranks in network namespaces with their own names and addresses, as on two machines."""

    @classmethod
    def setUpClass(cls):
        cls.names = ["spry%d%s" % (os.getpid() % 100000, end) for end in "ab"]
        cls.folder = tempfile.mkdtemp(dir=HOME)
        try:
            cls.make_network()
        except (OSError, subprocess.CalledProcessError) as error:
            cls.tearDownClass()
            print("SKIPPED ranks over a network: network namespaces cannot be made here: %s" % error)
            raise unittest.SkipTest("no network namespaces")

    @classmethod
    def make_network(cls):
        a, b = cls.names
        commands = ["netns add " + a, "netns add " + b, "link add %s type veth peer name %s" % (a, b)]
        for number, name in enumerate(cls.names, 1):
            commands += ["link set %s netns %s" % (name, name), "-n %s addr add 10.77.0.%d/24 dev %s" % (name, number, name),
                         "-n %s link set lo up" % name, "-n %s link set %s up" % (name, name)]
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        cls.agent = os.path.join(cls.folder, "agent")
        with open(cls.agent, "w") as file:
            file.write('#!/bin/sh\nshift\nexec ip netns exec %s unshare --uts sh -c "hostname second; $*"\n' % b)
        os.chmod(cls.agent, 0o755)

    @classmethod
    def tearDownClass(cls):
        for name in cls.names:
            inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True).stdout.split()
            for process in inside:
                os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def command(self, *arguments):
        network = "10.77.0.0/24"
        return ["ip", "netns", "exec", self.names[0], "mpirun", "--host", "10.77.0.1:1,10.77.0.2:1", "-n", "2", "--mca",
                "plm_rsh_agent", self.agent, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", network, "--mca",
                "oob_tcp_if_include", network, "-x", "SPRY_RANK_TIMEOUT", SPRY, *arguments]

    def test_two_machines_give_the_bits_of_one(self):
        paths = [os.path.join(self.folder, name) for name in ("alone", "together")]
        arguments = ["logits", tiny("qwen3"), "--ids", "1,5,9,20,33", "--rows", "all", "-o"]
        self.assertEqual(spry(*arguments, paths[0]).code, 0)
        result = subprocess.run(self.command(*arguments, paths[1]), stdin=subprocess.DEVNULL, capture_output=True,
                                timeout=RANK_TIMEOUT, cwd=HOME, env=environment(**MPI, SPRY_RANK_TIMEOUT="60"))
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(paths[0], "rb") as alone, open(paths[1], "rb") as together:
            self.assertEqual(together.read(), alone.read())

    def test_a_cut_network_ends_the_job(self):
        process = subprocess.Popen(self.command("run", "-p", "Once", "-n", "4000", "--ignore-end", "--slide"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HOME,
                                   env=environment(**MPI, SPRY_RANK_TIMEOUT="2"))
        process.stdout.read(20)
        subprocess.run(["ip", "-n", self.names[0], "link", "set", self.names[0], "down"], check=True)
        try:
            lines = iter(process.stderr.readline, b"")
            self.assertTrue(any(b"another rank has not answered" in line for line in lines))
        finally:  # mpirun itself waits for the other machine
            subprocess.run(["ip", "-n", self.names[0], "link", "set", self.names[0], "up"], check=True)
            process.kill()
            process.communicate()


class Batch(cli_support.CliTest):
    def setUp(self):
        folder = tempfile.mkdtemp(dir=HOME)
        self.questions, self.answers = (os.path.join(folder, name) for name in ("questions.jsonl", "answers.jsonl"))

    def write(self, count, tokens):
        with open(self.questions, "w") as file:
            for i in range(count):
                body = {"prompt": "Story %d: once" % i, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
                file.write(json.dumps({"custom_id": "q%d" % i, "method": "POST", "url": "/v1/completions", "body": body}) + "\n")

    def arguments(self, answers):
        return ["batch", self.questions, answers, "--kv-bytes", "64M", "--parallel", "2", "--draft", "none", "--threads", "1"]

    def read(self, path):
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        return [(line["custom_id"], line["response"]["body"]["choices"][0]["text"]) for line in lines]

    def test_lines_are_answered_once_and_in_order(self):
        self.write(12, 8)
        alone = self.answers + "-alone"
        self.assertEqual(spry(*self.arguments(alone)).code, 0)
        result = mpirun(3, *self.arguments(self.answers))
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual([name for name, text in self.read(alone)], ["q%d" % i for i in range(12)])
        self.assertEqual(self.read(self.answers), self.read(alone))
        self.assertIn("12 skipped", mpirun(2, *self.arguments(self.answers)).errors)

    @cli_support.once_of(5)
    def test_others_answer_the_lines_of_a_killed_rank(self):
        self.setUp()
        self.write(16, 100)
        process = subprocess.Popen(["mpirun", "--enable-recovery", "-n", "3", SPRY, *self.arguments(self.answers)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HOME,
                                   env=environment(**MPI))
        while not os.path.exists(self.answers) or os.path.getsize(self.answers) == 0:
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
            ranks = file.read().split()
        self.assertEqual(len(ranks), 3)
        os.kill(int(ranks[2]), signal.SIGKILL)
        errors = process.communicate(timeout=RANK_TIMEOUT)[1]
        self.assertIn(b"spry: 1 of 3 ranks were lost", errors)
        self.assertIn(b"spry: 16 answered, 0 of them with an error", errors)
        self.assertEqual([name for name, text in self.read(self.answers)], ["q%d" % i for i in range(16)])


if __name__ == "__main__":
    if not shutil.which("mpirun") or not os.path.exists(os.path.join(os.path.dirname(SPRY), "spry_mpi.so")):
        print("SKIPPED ranks: Open MPI was not there when spry was built\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    cli_support.main()
