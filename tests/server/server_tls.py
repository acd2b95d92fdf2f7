"""HTTPS: a certificate made for the occasion, and everything that must work over it as it does without."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import unittest
import warnings

import server_http
import server_support
from server_support import HOME, TALE, Reply, Server, ServerTest, eventually, once_of, spry

CHAT = "/v1/chat/completions"
LONG = {"messages": TALE, "max_tokens": 1900, "temperature": 0, "stream": True, "ignore_eos": True}
OPENSSL = shutil.which("openssl")


def make_certificate(name):
    """The paths of a self-signed certificate for 127.0.0.1 and of its key."""
    cert, key = os.path.join(HOME, name + ".pem"), os.path.join(HOME, name + ".key")
    subprocess.run([OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                    key, "-out", cert, "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    return cert, key


class SafeServer(Server):
    def __init__(self, cert, *arguments):
        self.context = ssl.create_default_context(cafile=cert)
        super().__init__(*arguments)

    def connect(self, timeout=server_support.TIMEOUT):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.context)


@unittest.skipUnless(OPENSSL, "openssl is not there")
class Safe(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.cert, cls.key = make_certificate("own")
        cls.server = SafeServer(cls.cert, "--tls-cert", cls.cert, "--tls-key", cls.key, "--idle-timeout", "15",
                                "--max-connections", "12", "--max-body", "2K")

    def at_rest(self):
        return self.server.metric("spry_requests_running") == 0 and self.server.metric("spry_requests_waiting") == 0

    def begin(self):
        connection = self.server.connect()
        connection.request("POST", CHAT, json.dumps(LONG))
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        return connection, response

    def test_answers_and_pages(self):
        self.assertTrue(any("listening on https://" in line for line in self.server.log))
        self.assertEqual(self.server.get("/health").status, 200)
        self.assertIn("<html", self.server.get("/").text)
        own = "localhost:%d" % self.server.port
        self.assertEqual(self.server.get("/v1/models", Host=own, Origin="https://" + own).status, 200)
        self.assertEqual(self.server.get("/v1/models", Origin="https://evil.example").status, 403)
        events = self.server.chat(stream=True).events
        self.assertEqual(events[-1], "[DONE]")

    @once_of(5)
    def test_streams_come_word_by_word(self):
        connection, response = self.begin()
        began = time.monotonic()
        response.readline()
        first = time.monotonic() - began
        for _ in range(400):
            response.readline()
        self.assertLess(first, (time.monotonic() - began) / 2)
        connection.close()
        response.close()
        self.assertTrue(eventually(self.at_rest))

    def test_who_leaves_is_noticed(self):
        files = self.server.descriptors()
        for leave_politely in (True, False):
            streams = [self.begin() for _ in range(4)]
            for connection, response in streams:
                response.readline()
                if leave_politely and connection.sock:
                    with contextlib.suppress(ssl.SSLError):  # what was under way still comes
                        connection.sock.unwrap()
                response.close()
                connection.close()
            self.assertTrue(eventually(self.at_rest))
        for _ in range(3):
            connection = self.server.connect()
            connection.request("POST", CHAT, json.dumps(dict(LONG, stream=False)))
            time.sleep(0.05)
            connection.close()
        self.assertTrue(eventually(self.at_rest))
        self.assertTrue(eventually(lambda: self.server.descriptors() <= files + 1))

    def test_limits(self):
        self.refused(self.server.post(CHAT, b" " * 5000), 413, "bytes")
        silent = [self.server.socket() for _ in range(12)]  # no hand is shaken
        self.assertTrue(eventually(lambda: self.closed(silent)))
        self.alive()

    @staticmethod
    def closed(sockets):
        for one in sockets:
            one.settimeout(0.01)
            try:
                if one.recv(100):
                    return False
            except socket.timeout:
                return False
            except OSError:
                pass
        return True

    def test_what_is_no_tls(self):
        with self.server.socket() as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            try:
                self.assertNotIn(b"200 OK", plain.recv(1000))
            except ConnectionError:
                pass
        with self.assertRaises(ssl.SSLError):
            http.client.HTTPSConnection("127.0.0.1", self.server.port, context=ssl.create_default_context()).connect()
        self.assertEqual(self.server.get("/health").status, 200)

    def test_weak_ciphers_are_refused(self):
        for ciphers, fine in (("ECDHE+AESGCM", True), ("ECDHE+CHACHA20", True), ("AES128-GCM-SHA256", False),
                              ("ECDHE-ECDSA-AES128-SHA", False), ("AES256-SHA", False), ("DHE", False)):
            context = ssl.create_default_context(cafile=self.cert)
            context.set_ciphers(ciphers + ":@SECLEVEL=0")
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=server_support.TIMEOUT)
            try:
                connection.request("GET", "/health")
                self.assertEqual(Reply(connection.getresponse()).status, 200)
                self.assertTrue(fine, ciphers)
            except (ssl.SSLError, ConnectionError):
                self.assertFalse(fine, ciphers)
            finally:
                connection.close()

    def test_the_certificate_is_read_again(self):
        """New connections get the new one, and connections that are open go on."""
        cert, key = make_certificate("renewed")
        server = SafeServer(cert, "--tls-cert", cert, "--tls-key", key)
        open_one = server.connect()
        open_one.request("GET", "/health")
        self.assertEqual(Reply(open_one.getresponse()).status, 200)
        make_certificate("renewed")
        server.process.send_signal(signal.SIGHUP)
        self.assertTrue(server_support.eventually(lambda: "read again" in "".join(server.log)))
        with self.assertRaises(ssl.SSLError):
            server.get("/health")
        server.context = ssl.create_default_context(cafile=cert)
        self.assertEqual(server.get("/health").status, 200)
        open_one.request("GET", "/health")
        self.assertEqual(Reply(open_one.getresponse()).status, 200)
        self.assertEqual(server.stop(), 0)
        open_one.close()

    def test_old_versions_are_refused(self):
        for version, fine in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True), (ssl.TLSVersion.TLSv1_1, False)):
            context = ssl.create_default_context(cafile=self.cert)
            context.set_ciphers("ALL:@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is old is the point
                context.minimum_version = context.maximum_version = version
            connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=server_support.TIMEOUT)
            try:
                connection.request("GET", "/health")
                self.assertEqual(Reply(connection.getresponse()).status, 200)
                self.assertTrue(fine, version)
            except (ssl.SSLError, ConnectionError):
                self.assertFalse(fine, version)
            finally:
                connection.close()


class WrappedServer(SafeServer):
    """Its sockets, too, have TLS."""

    def socket(self, timeout=server_support.TIMEOUT):
        return self.context.wrap_socket(super().socket(timeout), server_hostname="127.0.0.1")


def wrapped(*arguments):
    cert, key = make_certificate("wrapped")
    return WrappedServer(cert, "--tls-cert", cert, "--tls-key", key, *arguments)


@unittest.skipUnless(OPENSSL, "openssl is not there")
class SafeHeads(server_http.Heads):
    """Everything that holds for heads without TLS: errors in JSON, and never two answers."""

    @classmethod
    def setUpClass(cls):
        cls.server = wrapped(*cls.arguments)

    def test_handshake_cut_at_any_byte(self):
        files = self.server.descriptors()
        hello = ssl.MemoryBIO()
        session = self.server.context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1")
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
        first = hello.read()
        for n in range(0, len(first), 7):
            with Server.socket(self.server) as plain:
                plain.sendall(first[:n])
            with Server.socket(self.server) as plain:  # and with a wrong byte
                plain.sendall(first[:n] + bytes([first[n] ^ 0x55]) + first[n + 1:])
        self.assertTrue(eventually(lambda: self.server.descriptors() <= files + 1))
        self.alive()

    def test_byte_by_byte(self):
        """The handshake and a request in records of one byte."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self.server.context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        request = server_http.post("Content-Length: %d" % len(server_http.BODY), "Connection: close")
        with Server.socket(self.server) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def exchange(step):
                while True:
                    try:
                        return step()
                    except ssl.SSLWantReadError:
                        for byte in outgoing.read():
                            plain.sendall(bytes([byte]))
                        part = plain.recv(65536)
                        self.assertTrue(part)
                        incoming.write(part)

            exchange(session.do_handshake)
            for byte in request:
                session.write(bytes([byte]))
            self.assertTrue(exchange(lambda: session.read(65536)).startswith(b"HTTP/1.1 200 "))


@unittest.skipUnless(OPENSSL, "openssl is not there")
class SafeBodies(server_http.Bodies):
    @classmethod
    def setUpClass(cls):
        cls.server = wrapped(*cls.arguments)


@unittest.skipUnless(OPENSSL, "openssl is not there")
class SafeCrowd(unittest.TestCase):
    """Idle and slow connections lock out no other, and end."""

    def test_shedding(self):
        server, crowd = wrapped("--max-connections", "32", "--head-timeout", "3600", "--idle-timeout", "3600"), []
        try:
            for i in range(120):
                crowd.append(Server.socket(server) if i % 3 == 0 else server.socket())
                if i % 3 == 2:
                    with contextlib.suppress(OSError):  # it may have given way already
                        crowd[-1].sendall(b"GET /health HTTP/1.1\r\nHost: local")
            for _ in range(40):
                self.assertEqual(server.get("/health").status, 200)
            self.assertTrue(eventually(lambda: server.threads() < 32 + 64 + 40))
        finally:
            for one in crowd:
                one.close()
            self.assertEqual(server.stop(), 0)

    def test_heads_that_never_come(self):
        server = wrapped("--head-timeout", "1")
        try:
            threads = server.threads()
            crowd = []
            for i in range(20):
                with contextlib.suppress(OSError):  # its handshake may already take too long
                    crowd.append(Server.socket(server) if i % 2 else server.socket())
            self.assertTrue(eventually(lambda: Safe.closed(crowd)))
            self.assertTrue(eventually(lambda: server.threads() <= threads))
            for one in crowd:
                one.close()
        finally:
            self.assertEqual(server.stop(), 0)

    def test_limit_of_an_address(self):
        server = wrapped("--max-per-address", "4")
        held = [server.connect() for _ in range(4)]
        try:
            for one in held:
                one.request("GET", "/health")
                one.getresponse().read()
            with self.assertRaises(OSError):
                server.get("/health")
        finally:
            for one in held:
                one.close()
            self.assertEqual(server.stop(), 0)


@unittest.skipUnless(OPENSSL, "openssl is not there")
class Wrong(unittest.TestCase):
    def test_files(self):
        # GnuTLS does not free what it had read when it refuses the rest.
        no_leaks = {"ASAN_OPTIONS": "exitcode=99:detect_leaks=0"}
        cert, key = make_certificate("one")
        other = make_certificate("two")[1]
        rubbish = os.path.join(HOME, "rubbish.pem")
        with open(rubbish, "w", encoding="utf-8") as file:
            file.write("-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n")
        for given, words in ((("--tls-cert", cert), "--tls-key"), (("--tls-key", key), "--tls-cert"),
                             (("--tls-cert", cert, "--tls-key", "/nowhere"), "/nowhere"),
                             (("--tls-cert", "/dev/null", "--tls-key", key), "CERTIFICATE"),
                             (("--tls-cert", cert, "--tls-key", cert), "PRIVATE KEY"),
                             (("--tls-cert", rubbish, "--tls-key", key), "rubbish.pem"),
                             (("--tls-cert", cert, "--tls-key", other), "belong together")):
            result = spry("serve", "--port", "0", "--kv-bytes", "64M", *given, stdin=None, **no_leaks)
            self.assertEqual(result.code, 1, result.errors)
            self.assertIn(words, result.errors)

    def test_end(self):
        cert, key = make_certificate("three")
        server = SafeServer(cert, "--tls-cert", cert, "--tls-key", key, "--grace", "600")
        connection = server.connect()
        connection.request("POST", CHAT, json.dumps(dict(LONG, max_tokens=200)))
        response = connection.getresponse()
        server.process.terminate()
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        connection.close()
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    if not OPENSSL:
        print("SKIPPED server_tls: openssl is not there", file=sys.stderr)
    server_support.main()
