"""Socket activation: the server answers on the socket that a service manager has opened for it."""

import os
import subprocess
import sys

import server_support
from server_support import HOME, SPRY, TIMEOUT, Server, ServerTest, environment

# Opens a socket as number 3, as systemd does, writes its port into a file, and becomes the server. Arguments: the kind of
# socket, the number of sockets that LISTEN_FDS tells, what is added to the process number in LISTEN_PID, the file, the server.
MANAGER = """import os, socket, sys
kind, count, other, path, server = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:]
if kind == "unix":
    file = socket.socket(socket.AF_UNIX)
    file.bind(path + ".socket")
elif kind == "udp":
    file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
else:
    file = socket.socket()
    file.bind(("0.0.0.0" if kind == "everywhere" else "127.0.0.1", 0))
if kind not in ("udp", "deaf"):
    file.listen()
with open(path, "w") as out:
    out.write(str(file.getsockname()[1]) if kind != "unix" else "")
if file.fileno() == 3:
    os.set_inheritable(3, True)
else:
    os.dup2(file.fileno(), 3)
os.environ.update(LISTEN_PID=str(os.getpid() + other), LISTEN_FDS=count, LISTEN_FDNAMES="spry.socket")
os.execv(server[0], server)
"""
PORT = os.path.join(HOME, "port")


def manager(kind="tcp", count=1, other=0):
    return [sys.executable, "-c", MANAGER, kind, str(count), str(other), PORT]


def passed_port():
    with open(PORT, encoding="ascii") as file:
        return int(file.read())


class Activated(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(under=manager())

    def test_it_answers_on_the_socket(self):
        self.assertEqual(self.server.port, passed_port())
        self.alive()

    def test_processes_that_it_starts_get_neither_socket_nor_variables(self):
        with open("/proc/%d/environ" % self.server.process.pid, "rb") as file:  # as it was at the beginning
            self.assertIn(b"LISTEN_FDS=1", file.read())
        with open("/proc/%d/fdinfo/3" % self.server.process.pid, encoding="ascii") as file:
            flags = int(dict(line.split(":", 1) for line in file.read().splitlines())["flags"], 8)
        self.assertTrue(flags & os.O_CLOEXEC)
        self.assertTrue(flags & os.O_NONBLOCK)


class Passed(ServerTest):
    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def test_variables_of_another_process_do_not_count(self):
        server = Server(under=manager(other=1))
        self.assertNotEqual(server.port, passed_port())
        self.assertEqual(server.chat(max_tokens=2).status, 200)
        self.assertEqual(server.stop(), 0)

    def fails(self, under, *words):
        result = subprocess.run([*under, SPRY, "serve", "--port", "0"], capture_output=True, text=True, timeout=TIMEOUT, cwd=HOME,
                                env=environment(), check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_what_is_no_listening_socket_is_refused(self):
        for kind in ("udp", "deaf", "unix"):
            self.fails(manager(kind), "descriptor 3", "is not a TCP socket that listens")
        self.fails(manager(count=2), "passes 2 sockets")
        self.fails(manager(count="many"), "passes many sockets")

    def test_other_machines_need_keys(self):
        self.fails(manager("everywhere"), "0.0.0.0 is reachable from other machines")


if __name__ == "__main__":
    server_support.main()
