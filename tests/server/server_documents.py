"""/v1/documents/text and pages: PDFs through pdftotext and pdftoppm, or a script in the place of the first, so that what it
writes is known."""

import base64
import os
import select
import shutil
import tempfile
import unittest

import server_support
from server_support import HOME, Server, ServerTest

TYPE = {"Content-Type": "multipart/form-data; boundary=a-boundary"}


def form(data, name="file", filename="paper.pdf"):
    head = '--a-boundary\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n\r\n' % (name, filename)
    return head.encode() + data + b"\r\n--a-boundary--\r\n"


def pdf(*lines):
    """A page with these lines; none: a page without text."""
    words = "".join("(%s) Tj 0 -20 Td " % line for line in lines)
    stream = "BT /F1 12 Tf 50 700 Td %s ET" % words if lines else ""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
               "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
               "<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
               "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    out, places = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += "%d 0 obj\n%s\nendobj\n" % (number, body)
    table = "".join("%010d 00000 n \n" % place for place in places)
    return (out + "xref\n0 6\n0000000000 65535 f \n%strailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
            % (table, len(out))).encode()


class Documents(ServerTest):
    def read(self, data, server=None, **more):
        return (server or self.server).ask("POST", "/v1/documents/text", form(data, **more), TYPE)

    def test_what_is_no_pdf_is_refused(self):
        for data in (b"", b"%PDF", b"just text", b"\x89PNG\r\n\x1a\n" + bytes(100)):
            self.refused(self.read(data), 400, "must be a PDF")
        self.refused(self.read(pdf("x"), name="other"), 400, "must be a PDF")
        self.refused(self.server.post("/v1/documents/text", {"file": "x"}), 415, "multipart/form-data")

    @unittest.skipUnless(shutil.which("pdftotext"), "SKIPPED server_documents: pdftotext is not installed")
    def test_the_text_of_a_real_one(self):
        reply = self.read(pdf("The fox came at night.", "The hens were afraid."), filename='../../x";\u202e.pdf')
        self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(reply.json["text"].split(), "The fox came at night. The hens were afraid.".split())
        self.refused(self.read(pdf()), 422, "no text")
        self.refused(self.read(b"%PDF-1.4\n" + bytes(range(256)) * 50), 422, "damaged")
        self.refused(self.read(pdf("x")[:300]), 422)

    @unittest.skipUnless(shutil.which("pdftoppm"), "SKIPPED server_documents: pdftoppm is not installed")
    def test_the_pages_of_a_real_one(self):
        def pages(data):
            return self.server.ask("POST", "/v1/documents/pages", form(data), TYPE)

        two = pdf("The fox came at night.").replace(b"/Kids [3 0 R] /Count 1", b"/Kids [3 0 R 3 0 R] /Count 2")
        for data, count in ((pdf("x"), 1), (two, 2), (pdf(), 1)):
            reply = pages(data)
            self.assertEqual((reply.status, len(reply.json["pages"])), (200, count), reply.text[:200])
            for page in reply.json["pages"]:
                self.assertTrue(page.startswith("data:image/png;base64,"))
                file = base64.b64decode(page.split(",")[1], validate=True)
                self.assertEqual((file[:4], file[16:24], file[-8:-4]), (b"\x89PNG", b"\0\0\3\0\0\0\4\0", b"IEND"))
        self.refused(pages(b"%PDF-1.4\n" + bytes(range(256)) * 50), 422, "damaged")
        self.refused(pages(b"text"), 400, "must be a PDF")


class Reader(ServerTest):
    """A folder that has only a shell and the script that takes pdftotext's place."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="spry-documents-", dir=HOME)
        os.symlink(shutil.which("sh"), os.path.join(cls.folder, "sh"))
        cls.server = Server(under=(shutil.which("env"), "PATH=" + cls.folder))

    def read(self, script):
        path = os.path.join(self.folder, "pdftotext")
        if script is None:
            if os.path.exists(path):
                os.remove(path)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!%s\n%s\n" % (shutil.which("sh"), script))
            os.chmod(path, 0o755)
        return self.server.ask("POST", "/v1/documents/text", form(pdf("x")), TYPE)

    def test_without_it(self):
        self.refused(self.read(None), 501, "poppler-utils")

    def test_its_limits(self):
        self.assertEqual(self.read('echo "$(ulimit -t) $(ulimit -v)"').json["text"].split(), ["20", "1048576"])

    def test_what_it_writes(self):
        self.assertEqual(self.read("printf 'a \\377 b'").json["text"], "a \ufffd b")
        self.assertEqual(self.read("while read -r line; do printf '%s' \"$line\"; break; done").json["text"], "%PDF-1.4")
        self.refused(self.read("printf ' \\n\\n'"), 422, "no text")
        self.refused(self.read("printf 'half of it'; exit 1"), 422, "damaged")
        self.refused(self.read("kill -9 $$"), 422, "damaged")
        self.refused(self.read("while :; do printf '%65536s' x; done"), 413, "more than")
        self.alive()

    def test_how_many_wait(self):
        """One is read and seven wait; all end when their clients leave."""
        path = os.path.join(self.folder, "pdftotext")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!%s\nwhile :; do :; done\n" % shutil.which("sh"))
        os.chmod(path, 0o755)
        clients = [self.server.connect() for _ in range(9)]
        for client in clients:
            client.request("POST", "/v1/documents/text", form(pdf("x")), TYPE)

        def answered():
            return [client for client in clients if select.select([client.sock], [], [], 0)[0]]
        self.assertTrue(server_support.eventually(answered))
        self.assertEqual([client.getresponse().status for client in answered()], [503])
        for client in clients:
            client.close()
        self.assertTrue(server_support.eventually(lambda: self.read("echo x").status == 200))


if __name__ == "__main__":
    server_support.main()
