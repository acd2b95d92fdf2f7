"""The Python binding, as installed, under the system's python3."""

import ctypes
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest
import weakref

import install_support
from install_support import CC, HOME, MODELS, PREFIX, ROOT, SANITIZER, install, library_folder, run

if SANITIZER and "LD_PRELOAD" not in os.environ:  # its run time must be there before an interpreter without it starts
    name = "libasan.so" if "address" in SANITIZER[0] else "libtsan.so"
    os.execve(sys.executable, [sys.executable, *sys.argv], dict(
        os.environ, LD_PRELOAD=run(CC, "-print-file-name=" + name).strip(), ASAN_OPTIONS="detect_leaks=0"))

MODEL = os.path.join(MODELS, "Spry-Tales-29M.gguf")
install()
FOLDER = os.path.join(PREFIX, "share", "spry", "python")
os.environ["SPRY_LIBRARY"] = os.path.join(library_folder(), "libspry.so")
sys.path.insert(0, FOLDER)
import spry  # noqa: E402


class Names(unittest.TestCase):
    """Models by name: those installed with the library, and those of the user's folder."""

    def test_names(self):
        models = os.path.join(HOME, "named", "spry", "models")
        os.makedirs(models)
        shutil.copy(os.path.join(MODELS, "Spry-Tales-Draft-4M.gguf"), os.path.join(models, "mine.gguf"))
        before = os.environ.get("XDG_DATA_HOME")
        os.environ["XDG_DATA_HOME"] = os.path.join(HOME, "named")
        self.addCleanup(lambda: os.environ.update(XDG_DATA_HOME=before) if before else os.environ.pop("XDG_DATA_HOME"))
        for name, parameters in (("mine", 3.5e6), ("mine.gguf", 3.5e6), ("Spry-Tales-29M", 29e6)):
            with spry.Engine(name, context=64) as engine:
                self.assertGreater(engine.info["parameters"], parameters)
        for name in ("nothing", "hf:me/nothing", "../spry/models/mine", ""):
            with self.assertRaises(spry.Error) as caught:
                spry.Engine(name)
            self.assertIn("spry pull" if name[:1] in "nh" and name else "", str(caught.exception))


class Pictures(unittest.TestCase):
    def test_a_model_that_sees(self):
        folder = os.path.join(ROOT, "tests", "data", "models", "qwen3-vl")
        cat, dog = (os.path.join(folder, "image%d.png" % i) for i in (0, 1))
        settings = {"max_tokens": 8, "temperature": 0, "ignore_end": True}
        with spry.Engine(folder, context=256) as engine:
            self.assertTrue(engine.sees)

            def ask(*images):
                return engine.chat([{"role": "user", "content": "What is it?", "images": list(images)}], **settings).result()

            replies = [ask(cat), ask(dog), ask(cat, dog), ask()]
            self.assertEqual(len({reply.text for reply in replies}), 4)
            with open(cat, "rb") as file:
                again = ask(file.read())
            self.assertEqual(again.text, replies[0].text)
            self.assertEqual(again.reused_tokens, again.prompt_tokens - 1)
            talk = engine.conversation(**settings)
            self.assertEqual("".join(talk.say("What is it?", images=[cat])), replies[0].text)
            self.assertTrue("".join(talk.say("Why?")))
            several = engine.batch([[{"role": "user", "content": "What is it?", "images": [one]}] for one in (cat, dog)], **settings)
            self.assertEqual([one.text for one in several], [one.text for one in replies[:2]])
            with self.assertRaises(spry.Error) as caught:
                ask(b"<svg/>")
            self.assertIn("picture 1 is no PNG", str(caught.exception))
        with spry.Engine(MODEL, context=64) as engine:
            self.assertFalse(engine.sees)
            with self.assertRaises(spry.Error) as caught:
                engine.chat([{"role": "user", "content": "What is it?", "images": [cat]}])
            self.assertIn("cannot see pictures", str(caught.exception))


FOX = "Tell me a story about a brave little fox."


def c_values(expressions):
    """Values of C expressions over spry.h."""
    source = os.path.join(HOME, "values.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <spry.h>\n#include <stdio.h>\nint main(void)\n{\n%s}\n" % "".join(
            '    printf("%%lld\\n", (long long)(%s));\n' % expression for expression in expressions))
    run(CC, source, "-I", os.path.join(PREFIX, "include"), "-o", source[:-2])
    return [int(line) for line in run(source[:-2], env={"LD_PRELOAD": ""}).split()]


class Layout(unittest.TestCase):
    """The structs and numbers that the binding repeats equal the header."""

    def test_structs(self):
        wanted = []
        for name, struct in spry._STRUCTS.items():
            wanted.append(("sizeof(%s)" % name, ctypes.sizeof(struct)))
            for member, *_ in struct._fields_:
                field = getattr(struct, member)
                wanted.append(("offsetof(%s, %s)" % (name, member), field.offset))
                wanted.append(("sizeof(((%s *)0)->%s)" % (name, member), field.size))
        values = c_values([expression for expression, _ in wanted])
        self.assertGreater(len(values), 200)
        for (expression, here), there in zip(wanted, values):
            self.assertEqual(here, there, expression)

    def test_numbers(self):
        wanted = [("SPRY_OK" if status == 0 else "SPRY_ERR_" + status.name, int(status)) for status in spry.Status]
        wanted += [("SPRY_FINISH_" + name.upper(), number) for number, name in spry._FINISH.items()]
        wanted += [("SPRY_DRAFT_" + name.upper(), number) for name, number in spry._DRAFTS.items()]
        names = {"grammar": "GBNF", "choices": "CHOICE"}
        wanted += [("SPRY_" + names.get(name, name.upper()), number) for name, number in spry._CONSTRAINTS.items()]
        wanted += [("SPRY_VERSION_MAJOR", spry.VERSION[0]), ("SPRY_VERSION_MINOR", spry.VERSION[1]),
                   ("SPRY_DRAFT_MOST", spry._DRAFT_MOST), ("SPRY_PARTS_ROOM", spry._PARTS_ROOM)]
        self.assertEqual(c_values([name for name, _ in wanted]), [number for _, number in wanted])
        with open(os.path.join(PREFIX, "include", "spry.h"), encoding="utf-8") as file:
            declared = set(re.findall(r"(?m)^    (SPRY_(?:OK|ERR_\w+|FINISH_\w+)) = ", file.read()))
        self.assertLessEqual(declared, {name for name, _ in wanted})  # a new one must be taken up here, too


class Use(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = spry.Engine(MODEL, context=1024, kv_bytes=64 << 20)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def test_describes_itself(self):
        self.assertEqual(self.engine.info["vocabulary"], 8192)
        self.assertEqual(self.engine.info["context"], 1024)
        self.assertEqual(self.engine.info["architecture"], "Qwen3")
        self.assertRegex(spry.version(), r"^\d+\.\d+\.\d+$")

    def test_tokens_and_back(self):
        for text in ("A fox.", "", "naïve \U0001f98a", "a\0b", "<|im_end|>"):
            self.assertEqual(self.engine.detokenize(self.engine.tokenize(text)), text)
        self.assertEqual(len(self.engine.tokenize("<|im_end|>", special=True)), 1)
        self.assertGreater(len(self.engine.tokenize("<|im_end|>")), 1)

    def test_chat_streams(self):
        answer = self.engine.chat([{"role": "user", "content": FOX}], max_tokens=24, temperature=0)
        pieces = list(answer)
        self.assertGreater(len(pieces), 5)
        self.assertEqual("".join(pieces), answer.reply.text)
        self.assertEqual((answer.reply.finish, answer.reply.generated_tokens), ("length", 24))
        self.assertEqual(list(answer), [])
        self.assertEqual(self.engine.chat(FOX, max_tokens=24, temperature=0).result().text, answer.reply.text)

    def test_complete_takes_text_or_ids(self):
        text = self.engine.complete("Once upon a time", max_tokens=8, temperature=0).result().text
        ids = self.engine.tokenize("Once upon a time")
        self.assertEqual(self.engine.complete(ids, max_tokens=8, temperature=0).result().text, text)

    def test_conversation_reuses_what_it_computed(self):
        talk = self.engine.conversation(system="You tell stories.", max_tokens=40, temperature=0)
        first = "".join(talk.say(FOX))
        self.assertEqual([message["role"] for message in talk.messages], ["system", "user", "assistant"])
        self.assertEqual(talk.messages[-1]["content"], first)
        answer = self.engine.chat(talk.messages + [{"role": "user", "content": "And then?"}], max_tokens=1)
        self.assertGreaterEqual(answer.result().reused_tokens, 32)

    def test_batch_gives_what_each_gives_alone(self):
        prompts = ["Tell me a story about a %s." % word for word in ("fox", "bear", "ship", "king", "wolf", "star")]
        together = self.engine.batch(prompts, max_tokens=10, temperature=0)
        self.assertEqual([reply.text for reply in together],
                         [self.engine.chat(prompt, max_tokens=10, temperature=0).result().text for prompt in prompts])
        self.assertEqual(self.engine.batch([]), [])

    def test_more_jobs_than_may_wait(self):
        vectors = self.engine.embed(["number %d" % n for n in range(400)])
        self.assertEqual(len(vectors), 400)
        self.assertEqual(vectors[7], self.engine.embed("number 7"))

    def test_embeddings(self):
        fox, same, sea = self.engine.embed(["a brave little fox", "a brave little fox", "The sea was dark."])
        self.assertEqual(len(fox), self.engine.info["embedding"])
        self.assertAlmostEqual(sum(x * x for x in fox), 1, places=5)
        self.assertEqual(fox, same)
        self.assertLess(sum(x * y for x, y in zip(fox, sea)), 0.99)

    def test_settings(self):
        ask = self.engine.chat
        hero = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 10}},
                "required": ["age"], "additionalProperties": False}
        self.assertIn(json.loads(ask("A hero.", json_schema=hero).result().text)["age"], range(10, 100))
        self.assertIn(ask("Yes or no?", choices=["yes", "no"]).result().text, ("yes", "no"))
        self.assertRegex(ask("A number.", regex="[0-9]{3}").result().text, r"^\d{3}$")
        self.assertEqual(ask("Say it.", grammar='root ::= "it"').result().text, "it")
        whole = ask(FOX, max_tokens=24, temperature=0).result().text
        word = whole.split()[4]
        cut = ask(FOX, max_tokens=24, temperature=0, stop=[word]).result()
        self.assertEqual((cut.finish, cut.text), ("stop", whole[: whole.index(word)]))
        drawn = [ask(FOX, max_tokens=12, temperature=1.0, seed=seed).result().text for seed in (5, 5, 6)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        first = self.engine.tokenize(whole)[0]
        self.assertFalse(ask(FOX, max_tokens=4, temperature=0, logit_bias={first: float("-inf")}).result().text
                         .startswith(whole.split()[0]))

    def test_errors(self):
        def fails(status, function, *arguments, **settings):
            with self.assertRaises(spry.Error) as caught:
                function(*arguments, **settings)
            self.assertEqual(caught.exception.status, status)
            self.assertNotIn("\n", str(caught.exception))
            self.assertTrue(str(caught.exception))
        fails(spry.Status.FILE, spry.Engine, "no-such-model.gguf")
        fails(spry.Status.INPUT, spry.Engine, MODEL, kv_type="q9")
        fails(spry.Status.INPUT, self.engine.chat, FOX, grammar="root ::= (")
        fails(spry.Status.INPUT, self.engine.chat, FOX, draft="model")
        fails(spry.Status.CONTEXT, self.engine.complete, [1] * 5000)
        for kind, settings in ((TypeError, {"colour": 1}), (TypeError, {"regex": "a", "grammar": "b"}),
                               (ValueError, {"max_tokens": -1}), (ValueError, {"stop": "a\0b"}),
                               (TypeError, {"max_tokens": "3"}), (TypeError, {"draft": "often"})):
            with self.assertRaises(kind):
                self.engine.chat(FOX, **settings)
        with self.assertRaises(TypeError):
            spry.Engine(MODEL, colour=1)
        self.assertEqual(self.engine.chat(FOX, max_tokens=1).result().finish, "length")

    def test_leaving_early(self):
        answer = self.engine.chat(FOX, ignore_end=True)
        next(answer)
        gone = weakref.ref(answer)
        del answer  # a dropped answer is freed, and its computation ends
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(spry._queues, {})
        answer = self.engine.chat(FOX, ignore_end=True)
        next(answer)
        answer.cancel()
        answer.cancel()
        self.assertEqual(answer.result().finish, "cancelled")
        with self.engine.chat(FOX, ignore_end=True) as answer:
            next(answer)
        self.assertEqual(list(answer), [])
        with self.assertRaises(spry.Error):
            answer.result()

    def test_threads(self):
        expected = self.engine.chat(FOX, max_tokens=16, temperature=0).result().text
        texts = []

        def work():
            for _ in range(3):
                texts.append(self.engine.chat(FOX, max_tokens=16, temperature=0).result().text)
                self.engine.embed("a text")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, [expected] * 12)


class Life(unittest.TestCase):
    def test_close_while_another_thread_reads(self):
        engine = spry.Engine(MODEL, context=1024, kv_bytes=64 << 20)
        answers = [engine.chat(FOX, ignore_end=True) for _ in range(2)]
        next(answers[0])
        reader = threading.Thread(target=lambda: list(answers[1]))
        reader.start()
        engine.close()
        engine.close()
        reader.join()
        self.assertEqual(list(answers[0]), [])
        with self.assertRaises(spry.Error) as caught:
            engine.chat(FOX)
        self.assertEqual(str(caught.exception), "the engine is closed")

    def test_log_and_end_of_the_program(self):
        code = ("import spry\nengine = spry.Engine(%r, kv_bytes=64 << 20, log=lambda level, text: print(level, text))\n"
                "next(engine.chat('Hello', ignore_end=True))\nanswer = engine.chat('Hello', ignore_end=True)\n"
                "print(len(next(answer)) > 0)\n" % MODEL)
        lines = run(sys.executable, "-c", code, env={"PYTHONPATH": FOLDER}).splitlines()
        self.assertEqual(lines[-1], "True")
        self.assertTrue(all(re.match(r"[012] \S", line) for line in lines[:-1]) and len(lines) > 1, lines)

    def test_where_the_library_is_found(self):
        def say(folder, **env):
            changes = dict({"PYTHONPATH": folder}, **env)
            here = {name: value for name, value in os.environ.items() if name != "SPRY_LIBRARY"}
            process = subprocess.run([sys.executable, "-c", "import spry; print(spry.version())"], env=dict(here, **changes),
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=install_support.TIMEOUT)
            return process.stdout.strip() or process.stderr.splitlines()[-1]
        version = spry.version()
        self.assertIn("libspry.so was not found", say(FOLDER))
        self.assertEqual(say(FOLDER, LD_LIBRARY_PATH=library_folder()), version)
        beside = os.path.join(HOME, "beside")
        os.mkdir(beside)
        shutil.copy(os.path.join(FOLDER, "spry.py"), beside)
        os.symlink(os.environ["SPRY_LIBRARY"], os.path.join(beside, "libspry.so"))
        self.assertEqual(say(beside), version)
        self.assertRegex(say(beside, SPRY_LIBRARY="/nowhere/libspry.so"), r"spry\.Error: .*/nowhere/libspry\.so")
        self.assertRegex(say(FOLDER, SPRY_LIBRARY=ctypes.util.find_library("c")), r"spry\.Error: .* has no spry_")

    def test_another_minor_version_is_refused(self):
        major, minor = spry.VERSION
        spry.VERSION = (major, minor + 1)
        try:
            with self.assertRaises(spry.Error) as caught:
                spry._load()
        finally:
            spry.VERSION = (major, minor)
        self.assertIn("this binding is for %d.%d" % (major, minor + 1), str(caught.exception))

    def test_readme(self):
        with open(os.path.join(ROOT, "bindings", "python", "README.md"), encoding="utf-8") as file:
            code = re.search(r"(?s)```python\n(.*?)```", file.read()).group(1)
        output = run(sys.executable, "-c", code.replace("model.gguf", MODEL), env={"PYTHONPATH": FOLDER})
        self.assertRegex(output, r'\{\s*"name"\s*:\s*"[^"]{0,20}"\s*\}\n$')
        self.assertGreater(len(output), 300)
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            code = re.search(r"(?s)```python\n(.*?)```", file.read()).group(1)
        output = run(sys.executable, "-c", "import spry\n" + code.replace("model.gguf", MODEL), env={"PYTHONPATH": FOLDER})
        self.assertGreater(len(output.split()), 20)


if __name__ == "__main__":
    install_support.main()
