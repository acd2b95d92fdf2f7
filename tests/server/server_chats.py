"""Stored chats over HTTP: one file for the terminal and the server."""

import json
import os

import server_support
from cli_chat import Chat
from server_support import HOME, MODEL, Server, ServerTest, spry

FILE = os.path.join(HOME, "served-chats.db")


def turns(*texts):
    return [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]


class Chats(ServerTest):
    arguments = ("--allow-chats", "--chats", FILE)

    def make(self, *texts, **fields):
        reply = self.server.post("/api/chats", dict({"model": MODEL, "messages": turns(*texts)}, **fields))
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def test_from_server_to_terminal_and_back(self):
        made = self.make("Tell me of wombats.", "They dig.", system="Be brief.")
        self.assertEqual((made["title"], made["turns"], made["revision"]), ("Tell me of wombats.", 2, 1))
        shown = json.loads(spry("chats", "show", str(made["id"]), "--json", "--chats", FILE).text)
        self.assertIn("They dig.", json.dumps(shown))
        resumed = Chat(str(made["id"]), "--chats", FILE, "--max-tokens", "8", command=("chats", "resume"))
        resumed.wait_for("The last:")
        resumed.wait_for("\n> ")
        resumed.wait_for("\n> ")
        resumed.say("And then?")
        self.assertEqual(resumed.leave(), 0)
        read = self.server.get("/api/chats/%d" % made["id"]).json
        self.assertEqual([message["role"] for message in read["messages"]],
                         ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual(read["messages"][3]["content"], "And then?")
        self.assertEqual(read["revision"], 2)
        # The server goes on with what it read.
        more = [*read["messages"], *turns("Thanks.", "Welcome.")]
        changed = self.server.post("/api/chats/%d" % made["id"], {"revision": 2, "messages": more})
        self.assertEqual((changed.status, changed.json["turns"], changed.json["revision"]), (200, 6, 3))
        stale = self.server.post("/api/chats/%d" % made["id"], {"revision": 2, "messages": more})
        self.assertEqual(stale.status, 409)
        self.assertIn("changed meanwhile", stale.json["error"])

    def test_list_search_rename_delete(self):
        a, b = self.make("Purple aardvarks", "Yes."), self.make("Green newts", "They swim in AARDVARK ponds.")
        ids = [chat["id"] for chat in self.server.get("/api/chats").json["chats"]]
        self.assertLess(ids.index(b["id"]), ids.index(a["id"]))
        found = self.server.get("/api/chats?search=aardvark").json["chats"]
        self.assertEqual({chat["id"] for chat in found}, {a["id"], b["id"]})
        self.assertEqual(self.server.get("/api/chats?search=no%20such%20words").json["chats"], [])
        self.assertEqual(self.server.get("/api/chats?search=100%25").json["chats"], [])
        self.assertEqual(len(self.server.get("/api/chats?limit=1").json["chats"]), 1)
        renamed = self.server.post("/api/chats/%d" % a["id"], {"title": "About\n beasts"})
        self.assertEqual((renamed.json["title"], renamed.json["turns"]), ("About beasts", 2))
        self.assertEqual(len(self.server.get("/api/chats/%d" % a["id"]).json["messages"]), 2)
        self.assertIn("About beasts", spry("chats", "list", "--chats", FILE).text)
        self.assertEqual(self.server.ask("DELETE", "/api/chats/%d" % a["id"]).json, {"deleted": a["id"]})
        for method in ("GET", "DELETE"):
            self.assertEqual(self.server.ask(method, "/api/chats/%d" % a["id"]).status, 404)
        self.assertEqual(self.server.post("/api/chats/%d" % a["id"], {"title": "x"}).status, 404)

    def test_bad_input(self):
        for body in ({}, {"model": MODEL}, {"messages": turns("x")}, {"model": "no-such", "messages": turns("x")},
                     {"model": MODEL, "messages": []}, {"model": MODEL, "messages": [{"role": "tool", "content": "x"}]},
                     {"model": MODEL, "messages": [{"role": "user"}]}, {"model": MODEL, "messages": ["x"]},
                     {"model": MODEL, "messages": [{"role": "user", "content": "a\u0000b"}]},
                     {"model": MODEL, "messages": turns("x"), "title": 5},
                     {"model": MODEL, "messages": [*turns("x"), {"role": "system", "content": "late"}]}):
            reply = self.server.post("/api/chats", body)
            self.assertEqual(reply.status, 400, (body, reply.text))
            self.assertIsInstance(reply.json["error"], str)
        for path in ("/api/chats/x", "/api/chats/0", "/api/chats/-1", "/api/chats/99999999999999999999", "/api/chats/12/13"):
            self.assertEqual(self.server.get(path).status, 404, path)
        for limit in ("0", "-1", "x", "1001"):
            self.assertEqual(self.server.get("/api/chats?limit=" + limit).status, 400)

    def test_not_a_file_of_chats(self):
        path = os.path.join(HOME, "not-chats.db")
        with open(path, "w") as file:
            file.write("nothing")
        server = Server("--allow-chats", "--chats", path)
        self.assertEqual(server.get("/api/chats").status, 503)
        self.assertEqual(server.stop(), 0)

    def test_not_allowed(self):
        server = Server("--chats", FILE)
        for method, path in (("GET", "/api/chats"), ("GET", "/api/chats/1"), ("DELETE", "/api/chats/1")):
            self.assertEqual(server.ask(method, path).status, 403)
        self.assertEqual(server.post("/api/chats", {"title": "x"}).status, 403)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    server_support.main()
