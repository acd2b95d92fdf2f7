"""Stored chats: written while they are talked, listed, shown, resumed, deleted, exported."""

import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import tempfile

import cli_support
from cli_chat import Chat
from cli_support import FAILURE, HOME, OK, TIMEOUT, USAGE, spry, tiny

GOODBYE = "saved as chat %d; continue with: spry chats resume %d"


class ChatsTest(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = os.path.join(self.folder, "spry", "chats.db")
        self.open_chats = []
        self.addCleanup(lambda: [chat.process.kill() for chat in self.open_chats if chat.process.poll() is None])

    def begin(self, *arguments, command=("run", tiny("qwen3"), "--seed", "1", "-n", "8"), **changes):
        changes.setdefault("XDG_DATA_HOME", self.folder)
        chat = Chat(*arguments, command=command, **changes)
        self.open_chats.append(chat)
        return chat

    def chat(self, *arguments, **changes):
        chat = self.begin(*arguments, **changes)
        chat.wait_for("> ")
        return chat

    def resume(self, *arguments, **changes):
        chat = self.begin(*arguments, command=("chats", "resume"), **changes)
        chat.wait_for("The last:")
        chat.wait_for("\n> ")  # the last exchange
        chat.wait_for("\n> ")
        return chat

    def talk(self, *messages, options=(), **changes):
        """One whole chat; returns what it showed."""
        chat = self.chat(*options, **changes)
        for message in messages:
            chat.say(message)
        self.assertEqual(chat.leave(), OK)
        return chat.shown

    def chats(self, *arguments, **changes):
        changes.setdefault("XDG_DATA_HOME", self.folder)
        return spry("chats", *arguments, **changes)

    def stored(self, name="latest", **changes):
        return self.succeeds(self.chats("show", name, "--json", **changes)).json

    def listed(self, *arguments):
        return self.succeeds(self.chats("list", "--json", *arguments)).json

    def change(self, *statements):
        """Changes the file behind the program's back."""
        database = sqlite3.connect(self.file)
        with database:
            for statement in statements:
                database.execute(*statement) if isinstance(statement, tuple) else database.execute(statement)
        database.close()

    def said(self, chat):
        return [m["content"] for m in chat["messages"][::2]]


class Storing(ChatsTest):
    def test_after_every_answer(self):
        chat = self.chat("--system", "You are a boat.")
        self.assertEqual(self.listed(), [])
        for i, message in enumerate(("Hello, boat", "And then?")):
            chat.say(message)
            self.assertEqual(len(self.stored()["messages"]), 2 * i + 2)
        stored = self.stored("1")
        self.assertEqual((stored["id"], stored["title"], stored["model"]), (1, "Hello, boat", "model-f32"))
        self.assertEqual(stored["model_path"], os.path.realpath(tiny("qwen3")))
        self.assertEqual(stored["system"], "You are a boat.")
        self.assertEqual(stored["settings"], {"seed": "1", "max_tokens": 8})
        self.assertEqual([m["role"] for m in stored["messages"]], ["user", "assistant"] * 2)
        self.assertRegex(stored["created"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(chat.leave(), OK)
        self.assertIn(GOODBYE % (1, 1), chat.shown)
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)

    def test_survives_being_killed(self):
        chat = self.chat()
        chat.say("Hello")
        before = self.stored()
        chat.type("half a mess")
        chat.process.send_signal(signal.SIGKILL)
        self.assertEqual(chat.process.wait(TIMEOUT), -signal.SIGKILL)
        self.assertEqual(self.stored(), before)
        self.talk("Another")
        self.assertEqual([c["id"] for c in self.listed()], [2, 1])

    def test_nothing_said_nothing_stored(self):
        self.assertNotIn("saved as", self.talk())
        self.assertNotIn("saved as", self.talk("/title Empty", "/system none"))
        self.assertEqual(self.listed(), [])

    def test_turned_off(self):
        shown = self.talk("Hello", "/title x", "/forget", options=["--no-save"])
        self.assertNotIn("saved as", shown)
        self.assertEqual(shown.count("This chat is not stored."), 2)
        self.assertFalse(os.path.exists(self.file))

    def test_forget(self):
        chat = self.chat()
        chat.say("Hello")
        self.assertEqual(len(self.listed()), 1)
        chat.say("/forget")
        self.assertIn("The stored chat is deleted", chat.shown)
        chat.say("More")
        chat.say("/clear")
        chat.say("And more")
        self.assertEqual(chat.leave(), OK)
        self.assertNotIn("saved as", chat.shown)
        self.assertEqual(self.listed(), [])

    def test_title_and_system_message(self):
        chat = self.chat()
        chat.say("one two three four five six seven eight nine ten eleven twelve thirteen")
        self.assertEqual(self.stored()["title"], "one two three four five six seven eight nine ten eleven")
        chat.say("/title  A  boat  trip ")
        self.assertEqual(self.stored()["title"], "A boat trip")
        chat.say("/system You are a ship.")
        self.assertEqual(self.stored()["system"], "You are a ship.")
        chat.say("/title")
        self.assertIn("/title needs a title", chat.shown)
        chat.leave()
        self.talk("/title Named before", "Hello")
        self.assertEqual(self.stored()["title"], "Named before")

    def test_another_conversation_is_another_chat(self):
        path = os.path.join(self.folder, "saved.json")
        shown = self.talk("First", "/save " + path, "/clear", "Second", "/load " + path, "Third")
        self.assertIn(GOODBYE % (3, 3), shown)
        self.assertEqual([c["id"] for c in self.listed()], [3, 2, 1])
        self.assertEqual(self.said(self.stored("1")), ["First"])
        self.assertEqual(self.said(self.stored("2")), ["Second"])
        self.assertEqual(self.said(self.stored("3")), ["First", "Third"])
        self.assertIn(GOODBYE % (4, 4), self.talk("Fourth", "/clear"))

    def test_another_file(self):
        path = os.path.join(self.folder, "mine.db")
        shown = self.talk("Hello", options=["--chats", path])
        self.assertIn(GOODBYE % (1, 1) + " --chats " + path, shown)
        self.assertFalse(os.path.exists(self.file))
        self.assertEqual(len(self.succeeds(self.chats("list", "--json", "--chats", path)).json), 1)

    def test_two_at_once(self):
        one, two = self.chat(), self.chat()
        one.say("One")
        two.say("Two")
        one.say("One more")
        self.assertEqual((one.leave(), two.leave()), (OK, OK))
        self.assertEqual(self.said(self.stored("1")), ["One", "One more"])
        self.assertEqual(self.said(self.stored("2")), ["Two"])


class StoringFails(ChatsTest):
    def goes_on_unsaved(self, words, options=(), **changes):
        chat = self.begin(*options, **changes)
        chat.wait_for("this chat is not stored: ")
        chat.wait_for("\n> ")
        chat.say("Hello")
        chat.say("More")
        self.assertEqual(chat.leave(), OK)
        self.assertEqual(chat.shown.count("not stored"), 1)
        for part in words:
            self.assertIn(part, chat.shown)
        self.assertNotIn("saved as", chat.shown)

    def test_files_that_cannot_be(self):
        path = os.path.join(self.folder, "file")
        with open(path, "wb") as file:
            file.write(b"not a database " * 100)
        for where, words in ((self.folder, "is not a regular file"), (path, "is not a file of stored chats"),
                             (self.folder + "/none/x.db", "cannot create"), ("/sys/chats.db", "cannot create"),
                             ("", "is empty")):
            with self.subTest(where=where):
                self.goes_on_unsaved([words], ["--chats", where])
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"not a database " * 100)

    def test_newer_version(self):
        self.talk("Hello")
        self.change("PRAGMA user_version = 99")
        self.goes_on_unsaved(["written by a newer spry", "version 99"])

    def test_no_home(self):
        self.goes_on_unsaved(["HOME is not set", "--chats FILE"], XDG_DATA_HOME=None, HOME=None)

    def test_full_disk_and_room_again(self):
        chat = self.chat()
        chat.say("Hello")
        unlimited = resource.prlimit(chat.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(chat.process.pid, resource.RLIMIT_FSIZE, (4096, unlimited[1]))
        chat.say("Lost?")
        chat.say("Lost too?")
        self.assertEqual(chat.shown.count("this chat is not stored: "), 1)
        self.assertIn("chats.db: cannot", chat.shown)
        self.assertEqual(self.said(self.stored()), ["Hello"])
        resource.prlimit(chat.process.pid, resource.RLIMIT_FSIZE, unlimited)
        chat.say("Room again")
        self.assertEqual(self.said(self.stored()), ["Hello", "Lost?", "Lost too?", "Room again"])
        self.assertEqual(chat.leave(), OK)
        self.assertNotIn("are not stored", chat.shown)

    def test_what_is_missing_at_the_end_is_said(self):
        chat = self.chat("--no-history")
        chat.say("Hello")
        limits = resource.prlimit(chat.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(chat.process.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
        chat.say("Lost")
        self.assertEqual(chat.leave(), OK)
        self.assertIn("the last 2 turns of chat 1 are not stored", chat.shown)
        self.assertEqual(self.said(self.stored()), ["Hello"])

    def test_deleted_from_elsewhere(self):
        chat = self.chat()
        chat.say("Hello")
        self.succeeds(self.chats("delete", "1"))
        chat.say("More")
        chat.say("And more")
        self.assertEqual(chat.shown.count("it was deleted by another process"), 1)
        self.assertEqual(chat.leave(), OK)
        self.assertNotIn("saved as", chat.shown)
        self.assertEqual(self.listed(), [])


class Listing(ChatsTest):
    def test_table(self):
        self.talk("First question")
        self.talk("Second question", "More")
        self.change("UPDATE chats SET updated = updated - 3 * 3600000 - 2000 WHERE id = 1")
        lines = self.succeeds(self.chats("list")).text.splitlines()
        self.assertEqual(lines[0].split(), ["id", "age", "turns", "model", "title"])
        self.assertRegex(lines[1], r"^ 2 +\d s +4  model-f32  Second question$")
        self.assertRegex(lines[2], r"^ 1 +3 h +2  model-f32  First question$")
        self.assertEqual(len(lines), 3)
        self.assertEqual(len(self.succeeds(self.chats("list", "--limit", "1")).text.splitlines()), 2)
        self.assertEqual([c["id"] for c in self.listed("--limit", "1")], [2])
        chat = self.listed()[1]
        self.assertEqual((chat["id"], chat["turns"], chat["title"]), (1, 2, "First question"))

    def test_fits_the_terminal(self):
        self.talk("Hello")
        self.change(("UPDATE chats SET title = ?, model = ?", ("日本語 " * 40, "m" * 100)))
        for columns in (40, 80, 120):
            page = Chat(command=("chats", "list"), columns=columns, XDG_DATA_HOME=self.folder)
            self.assertEqual(page.drain(), OK)
            rows = page.shown.splitlines()
            wide = [sum(2 if ord(c) > 0x2FFF else 1 for c in row) for row in rows]
            self.assertLessEqual(max(wide), columns)
            self.assertGreaterEqual(max(wide), columns - 1)
            self.assertEqual(rows[1].count("…"), 2)
        self.assertIn("日本語 " * 40, self.chats("list").text)

    def test_more_than_the_limit_is_said_on_a_terminal(self):
        for _ in range(2):
            self.talk("Hello")
        page = Chat("--limit", "1", command=("chats", "list"), XDG_DATA_HOME=self.folder)
        page.drain()
        self.assertIn("--limit 0 shows all", page.shown)

    def test_nothing_there(self):
        result = self.chats("list")
        self.assertEqual((result.code, result.out), (OK, b""))
        self.one_sentence(result, "no chats are stored yet")
        self.assertEqual(self.listed(), [])
        self.talk("Hello")
        self.chats("delete", "1")
        result = self.chats("list")
        self.assertEqual((result.code, result.out), (OK, b""))
        self.one_sentence(result, "no chats are stored")


class Showing(ChatsTest):
    def test_transcript(self):
        self.talk("/system Be kind.", "Hello", "And then?")
        stored = self.stored()
        page = self.succeeds(self.chats("show", "1")).text
        self.assertEqual(page, self.chats("show", "latest").text)
        self.assertRegex(page, r"^Chat 1: Hello\nWith model-f32, 4 turns, begun 20..-..-.. ..:.., last changed ")
        self.assertIn("\n\nSystem: Be kind.\n\n> Hello\n" + stored["messages"][1]["content"], page)
        self.assertIn("\n\n> And then?\n" + stored["messages"][3]["content"], page)
        self.assertTrue(page.endswith("\n"))

    def test_lines_that_went_on(self):
        self.talk("Hello")
        self.change("UPDATE messages SET content = 'one\ntwo\n' WHERE number = 1")
        self.assertIn("\n> one\n. two\n. \n", self.chats("show", "1").text)

    def test_terminals_are_safe(self):
        self.talk("Hello")
        evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r"
        self.change(("UPDATE chats SET title = ?, model = ?, system = ?", (evil, evil, evil)),
                    ("UPDATE messages SET content = ?", (evil,)))
        for command in (("list",), ("show", "1"), ("show", "1", "--json"), ("list", "--json"), ("export", "1"),
                        ("export", "1", "--format", "text"), ("export", "1", "--format", "markdown")):
            with self.subTest(command=command):
                page = Chat(command=("chats", *command), XDG_DATA_HOME=self.folder, NO_COLOR="1")
                self.assertEqual(page.drain(), OK)
                self.assertNotRegex(page.raw, rb"\x1b|\x07|\xc2\x9b|\x7f|\r[^\n]")
        chat = self.begin(command=("chats", "resume"), NO_COLOR="1")
        chat.wait_for("The last:\n")
        chat.wait_for("> ?]0;owned")
        self.assertNotIn(b"\x1b]0;owned", chat.raw)
        self.assertNotIn(b"\xc2\x9b31m", chat.raw)
        self.assertEqual(self.stored()["messages"][0]["content"], evil)

    def test_export(self):
        self.talk("/system Be kind.", "Hello", "/title A boat")
        stored = self.stored()
        self.assertEqual(self.succeeds(self.chats("export", "1")).json, stored)
        self.assertEqual(self.chats("export", "1", "--format", "text").text, self.chats("show", "1").text)
        markdown = self.succeeds(self.chats("export", "latest", "--format", "markdown")).text
        self.assertTrue(markdown.startswith("# A boat\n\nWith model-f32, begun "))
        self.assertIn("\n## System\n\nBe kind.\n\n## User\n\nHello\n\n## Assistant\n\n", markdown)
        for name, text in (("a.md", markdown), ("a.txt", self.chats("show", "1").text), ("a", None), ("a.json", None)):
            path = os.path.join(self.folder, name)
            self.succeeds(self.chats("export", "1", path))
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text or self.chats("export", "1").text)
        self.fails(self.chats("export", "1", "/nowhere/at/all"), FAILURE, "/nowhere/at/all: cannot create")
        self.fails(self.chats("export", "1", "--format", "pdf"), USAGE, "json, markdown, text")

    def test_exported_json_can_be_loaded(self):
        path = os.path.join(self.folder, "chat.json")
        self.talk("/system Be kind.", "Hello")
        stored = self.stored()
        self.succeeds(self.chats("export", "1", path))
        chat = self.chat()
        chat.say("/load " + path)
        self.assertIn("Loaded: 2 turns.", chat.shown)
        chat.say("More")
        chat.leave()
        self.assertEqual(self.stored("2")["messages"][:2], stored["messages"])
        self.assertEqual(self.stored("2")["system"], "Be kind.")


class Resuming(ChatsTest):
    def test_goes_on_as_if_never_left(self):
        self.talk("Hello", "And then?", "More")
        self.talk("Hello")
        chat = self.resume()
        self.assertIn("Chat 2, 2 turns so far.", chat.shown)
        answer = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", self.stored("2")["messages"][1]["content"])
        self.assertIn("> Hello\n" + answer, chat.shown)
        chat.say("And then?")
        self.assertEqual(chat.leave(), OK)
        self.assertIn(GOODBYE % (2, 2), chat.shown)
        chat = self.resume("2")
        chat.say("More")
        chat.leave()
        self.assertEqual(self.stored("2")["messages"], self.stored("1")["messages"])
        self.assertEqual(len(self.listed()), 2)

    def test_with_its_cache(self):
        """The record says where the pages are; they are read back, not computed again."""
        pages = os.path.join(self.folder, "pages")
        self.talk("Once upon a time there was a small boat. " * 6, options=("--cache-dir", pages))
        chat = self.resume("--stats")
        chat.say("And then?")
        chat.leave()
        self.assertRegex(chat.shown, r"more were cached, \d+ of them on disk")

    def test_settings_come_back_and_flags_replace_them(self):
        options = ["--temperature", "0.25", "--top-k", "7", "--stop", "xyz", "--stop", "abc", "--kv-type", "f32",
                   "--context", "512", "--ignore-end", "--verbose", "--models-dir", "."]
        self.talk("Hello", options=options)
        first = {"seed": "1", "max_tokens": 8, "temperature": 0.25, "top_k": 7, "stop": ["xyz", "abc"],
                 "kv_type": "f32", "context": 512, "ignore_end": True, "models_dir": os.path.realpath(HOME)}
        self.assertEqual(self.stored()["settings"], first)
        chat = self.resume()
        self.assertIn("512 tokens of context", chat.shown)
        chat.say("More")
        chat.leave()
        self.assertEqual(self.stored()["settings"], first)
        chat = self.resume("1", "--temperature", "0.8", "--stop", "end", "--no-ignore-end", "--system", "Be kind.")
        chat.say("More")
        chat.leave()
        del first["ignore_end"]  # given, and the default
        first["temperature"] = 0.8
        first["stop"] = ["end"]
        self.assertEqual(self.stored()["settings"], first)
        self.assertEqual(self.stored()["system"], "Be kind.")

    def test_settings_of_another_version(self):
        self.talk("Hello")
        self.change(("UPDATE chats SET settings = ?",
                     ('{"top_p": 17, "kv_type": "q99", "flux_capacitor": true, "max_tokens": 8}',)))
        chat = self.resume()
        self.assertIn("a setting of the stored chat is ignored: top_p is '17'", chat.shown)
        self.assertIn("kv_type is 'q99'", chat.shown)
        self.assertNotIn("flux", chat.shown)
        chat.say("More")
        self.assertEqual(chat.leave(), OK)
        for settings in ("", "[]", "nonsense", '{"stop": 5}'):
            self.change(("UPDATE chats SET settings = ?", (settings,)))
            self.assertEqual(self.resume("-n", "8").leave(), OK)

    def test_bundled_model(self):
        command = ("run", "Spry-Tales-Draft-4M", "-n", "4")
        self.talk("Hello", command=command)
        self.assertEqual(self.stored()["model_path"], "bundled")
        chat = self.resume()
        self.assertIn("Spry-Tales-Draft-4M, ", chat.shown)
        self.assertEqual(chat.leave(), OK)

    def test_model_that_is_gone(self):
        path = os.path.join(self.folder, "moved.gguf")
        shutil.copyfile(tiny("qwen3"), path)
        self.talk("Hello", command=("run", path, "-n", "8"))
        os.unlink(path)
        chat = self.begin(command=("chats", "resume"))
        self.assertEqual(chat.drain(), FAILURE)
        self.assertIn("chat 1 used the model %s, which no longer exists; choose another with --model" % path, chat.shown)
        chat = self.resume("--model", tiny("llama"))
        chat.say("More")
        self.assertEqual(chat.leave(), OK)
        self.assertEqual(self.stored()["model_path"], os.path.realpath(tiny("llama")))
        self.assertEqual(len(self.stored()["messages"]), 4)

    def test_relative_names_work_from_elsewhere(self):
        self.talk("Hello", command=("run", os.path.relpath(tiny("qwen3"), HOME), "-n", "8"))
        self.assertEqual(self.stored()["model_path"], os.path.realpath(tiny("qwen3")))

    def test_without_saving(self):
        self.talk("Hello")
        chat = self.resume("--no-save")
        chat.say("More")
        self.assertEqual(chat.leave(), OK)
        self.assertNotIn("saved as", chat.shown)
        self.assertEqual(self.said(self.stored()), ["Hello"])

    def test_in_two_places(self):
        self.talk("Hello")
        one, two = self.resume(), self.resume("1")
        one.say("One")
        two.say("Two")
        self.assertIn("chat 1 was changed by another process; this chat continues as a new one", two.shown)
        two.say("Two more")
        one.say("One more")
        self.assertEqual((one.leave(), two.leave()), (OK, OK))
        self.assertEqual(self.said(self.stored("1")), ["Hello", "One", "One more"])
        self.assertEqual(self.said(self.stored("2")), ["Hello", "Two", "Two more"])
        self.assertIn(GOODBYE % (2, 2), two.shown)

    def test_needs_a_terminal(self):
        self.fails(self.chats("resume"), USAGE, "needs a terminal")


class Deleting(ChatsTest):
    def test_says_how_many(self):
        for _ in range(4):
            self.talk("Hello")
        self.assertEqual(self.succeeds(self.chats("delete", "2")).text, "Deleted 1 chat.\n")
        self.assertEqual(self.succeeds(self.chats("delete", "1", "latest", "1", "--yes")).text, "Deleted 2 chats.\n")
        self.assertEqual([c["id"] for c in self.listed()], [3])
        self.fails(self.chats("delete", "3", "99"), FAILURE, "there is no chat 99")
        self.assertEqual([c["id"] for c in self.listed()], [3])
        self.talk("Hello")
        self.assertEqual([c["id"] for c in self.listed()], [5, 3])

    def test_asks_on_a_terminal(self):
        self.talk("Hello")
        for answer, words, left in (("n\r", "Nothing was deleted.", 1), ("\r", "Nothing was deleted.", 1),
                                    ("y\r", "Deleted 1 chat.", 0)):
            page = self.begin(command=("chats", "delete", "1"))
            page.wait_for("Delete 1 chat permanently? [y/N] ")
            page.type(answer)
            page.wait_for(words)
            self.assertEqual(page.drain(), OK)
            self.assertEqual(len(self.listed()), left)
        self.talk("Hello")
        page = self.begin(command=("chats", "delete", "2", "--yes"))
        page.wait_for("Deleted 1 chat.")
        self.assertEqual(page.drain(), OK)


class WrongUse(ChatsTest):
    def test_commands(self):
        self.assertEqual(self.chats().text, self.chats("list").text)
        self.fails(self.chats("lits"), USAGE, "`spry chats lits`", "did you mean list?")
        self.fails(self.chats("--nonsense"), USAGE, "unknown option --nonsense")
        for command in ("show", "delete", "export"):
            self.fails(self.chats(command), USAGE, command + " needs the number of a chat")
        self.fails(self.chats("list", "5"), USAGE, "unexpected argument '5'")
        for command in ("list", "show", "resume", "delete", "export"):
            page = self.succeeds(self.chats(command, "--help-all")).text
            self.assertTrue(page.startswith("Usage: spry chats %s " % command))
            self.assertIn("\nExamples:\n  spry chats %s" % command, page)
            self.assertIn("--chats FILE", page)
            self.assertLessEqual(max(map(len, page[: page.index("\nExamples:")].splitlines())), 80)

    def test_ids(self):
        self.fails(self.chats("show", "1"), FAILURE, "no chats are stored yet")
        self.talk("Hello")
        for command in ("show", "delete", "export"):
            for wrong in ("zero", "0", "-- -1".split()[1], "1.5", "18446744073709551616", ""):
                self.fails(self.chats(command, "--", wrong), USAGE, "is not the number of a chat")
            self.fails(self.chats(command, "99"), FAILURE, "there is no chat 99 in " + self.file)
        self.chats("delete", "1")
        self.fails(self.chats("show", "latest"), FAILURE, "no chats are stored")
        resumed = self.begin("7", command=("chats", "resume"))
        self.assertEqual(resumed.drain(), FAILURE)
        self.assertIn("there is no chat 7", resumed.shown)

    def test_files(self):
        missing = os.path.join(self.folder, "missing.db")
        for command in (["list"], ["show", "1"], ["delete", "1"], ["export", "1"]):
            self.fails(self.chats(*command, "--chats", missing), FAILURE, missing + ": cannot open: No such file")
            self.fails(self.chats(*command, "--chats", self.folder), FAILURE, "is not a regular file")
        self.assertFalse(os.path.exists(missing))
        self.talk("Hello")
        self.change("PRAGMA user_version = 2")
        self.fails(self.chats("list"), FAILURE, "written by a newer spry")
        self.change("PRAGMA user_version = 1", "DROP TABLE messages")
        self.fails(self.chats("show", "1"), FAILURE, "is damaged", "move it away")
        with open(self.file, "r+b") as file:
            file.write(b"rubbish!" * 4)
        self.fails(self.chats("list"), FAILURE, "is not a file of stored chats")
        other = os.path.join(self.folder, "other.db")
        database = sqlite3.connect(other)
        database.execute("CREATE TABLE recipes (name TEXT)")
        database.commit()
        database.close()
        self.fails(self.chats("list", "--chats", other), FAILURE, "a database of another program")

    def test_full_output(self):
        self.talk("Hello")
        for command in (["list"], ["list", "--json"], ["show", "1"], ["export", "1"]):
            with open("/dev/full", "wb") as full:
                result = self.chats(*command, stdout=full)
            self.assertEqual(result.code, FAILURE)
            self.one_sentence(result, "cannot write to standard output")


if __name__ == "__main__":
    cli_support.main()
