"""OpenAI's interface: answers equal to the answers of `spry run`, streams, shapes of answers, tools, fragments."""

import json
import threading

import server_support
from server_support import MODEL, TALE, ServerTest, spry

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"],
    "additionalProperties": False}}}
TIMINGS = {"load_ms", "queue_ms", "template_ms", "tokenize_ms", "lookup_ms", "restore_ms", "prefill_ms", "first_token_ms", "context_tokens",
           "decode_ms", "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n",
           "predicted_ms", "predicted_per_token_ms", "predicted_per_second", "ttft_ms", "total_ms", "prompt_tokens", "cached_tokens", "span_tokens", "repaired_tokens", "span_divergence",
           "generated_tokens", "drafted_tokens", "accepted_tokens", "dropped_tokens", "parts_ms", "first_parts_ms", "energy"}


def run(prompt, n=16, *options):
    return spry("run", "-p", prompt, "-n", str(n), "--temperature", "0", *options).text[:-1]


class Chat(ServerTest):
    def test_equals_run(self):
        reply = self.server.chat(max_tokens=40)
        self.assertEqual(reply.status, 200, reply.text)
        answer = reply.json
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(answer["model"], MODEL)
        self.assertEqual(answer["choices"][0]["message"], {"role": "assistant", "content": run("Tell me a tale.", 40)})
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        usage = answer["usage"]
        self.assertEqual(usage["completion_tokens"], 40)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + 40)
        self.assertEqual(set(answer["timings"]) - {"why_no_energy", "draft_n", "draft_n_accepted"}, TIMINGS)
        self.assertGreater(answer["timings"]["decode_ms"], 0)

    def test_stream_equals_whole(self):
        whole = self.server.chat(max_tokens=30).json
        reply = self.server.chat(max_tokens=30, stream=True)
        self.assertEqual(reply.headers["content-type"], "text/event-stream")
        events = reply.events
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
        self.assertEqual(text, whole["choices"][0]["message"]["content"])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(set(events[-2]["timings"]) - {"why_no_energy", "draft_n", "draft_n_accepted"}, TIMINGS)
        self.assertEqual(len({event["id"] for event in events[:-1]}), 1)

    def test_usage_at_the_end_of_a_stream(self):
        self.server.chat(max_tokens=3)
        events = self.server.chat(max_tokens=3, stream=True, stream_options={"include_usage": True}).events
        self.assertEqual(events[-2]["choices"], [])
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 3)
        self.assertGreater(events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(set(events[-2]["timings"]) - {"why_no_energy", "draft_n", "draft_n_accepted"}, TIMINGS)
        self.assertTrue(all("usage" not in event for event in events[:-2]))

    def test_several_answers(self):
        first = self.server.chat(n=3, seed=7, temperature=0.9).json
        self.assertEqual([choice["index"] for choice in first["choices"]], [0, 1, 2])
        texts = [choice["message"]["content"] for choice in first["choices"]]
        self.assertEqual(len(set(texts)), 3)
        again = self.server.chat(n=3, seed=7, temperature=0.9).json
        self.assertEqual([choice["message"]["content"] for choice in again["choices"]], texts)
        events = self.server.chat(n=3, seed=7, temperature=0.9, stream=True).events
        for index in range(3):
            text = "".join(choice["delta"].get("content", "") for event in events[:-1] for choice in event["choices"]
                           if choice["index"] == index)
            self.assertEqual(text, texts[index])

    def test_stop(self):
        text = self.server.chat().json["choices"][0]["message"]["content"]
        word = text.split(" ")[3]
        for stop in (word, [word, "never said"]):
            choice = self.server.chat(stop=stop).json["choices"][0]
            self.assertEqual(choice["message"]["content"], text[: text.index(word)])
            self.assertEqual(choice["finish_reason"], "stop")

    def test_logprobs(self):
        for stream in (False, True):
            reply = self.server.chat(max_tokens=5, logprobs=True, top_logprobs=3, stream=stream)
            if stream:
                content = [entry for event in reply.events[:-1] for choice in event["choices"]
                           for entry in (choice["logprobs"] or {"content": []})["content"]]
            else:
                content = reply.json["choices"][0]["logprobs"]["content"]
            self.assertEqual(len(content), 5)
            for entry in content:
                self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
                self.assertEqual(len(entry["top_logprobs"]), 3)
                self.assertEqual(entry["top_logprobs"][0]["token"], entry["token"])

    def test_bias(self):
        first = self.server.chat(max_tokens=1, logprobs=True).json["choices"][0]
        word = first["message"]["content"]
        ids = self.server.post("/tokenize", {"content": word}).json["tokens"]
        other = self.server.chat(max_tokens=1, logit_bias={str(ids[0]): -100}).json["choices"][0]
        self.assertNotEqual(other["message"]["content"], word)

    def test_shapes_of_answers(self):
        schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 99}},
                  "required": ["age"], "additionalProperties": False}
        asks = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
                "guided_json": schema, "json_schema": json.dumps(schema)}
        for key, value in asks.items():
            answer = self.server.chat(max_tokens=60, **{key: value}).json["choices"][0]
            self.assertEqual(answer["finish_reason"], "stop", key)
            self.assertIn(json.loads(answer["message"]["content"])["age"], range(1, 100))
        for key, value, pattern in (("guided_regex", "[0-9]{2}-[a-c]", r"^\d\d-[abc]$"),
                                    ("guided_choice", ["red", "green"], "^(red|green)$"),
                                    ("grammar", 'root ::= "x" | "y"', "^[xy]$"),
                                    ("guided_grammar", 'root ::= "x" | "y"', "^[xy]$")):
            self.assertRegex(self.server.chat(**{key: value}).json["choices"][0]["message"]["content"], pattern)
        started = self.server.chat(response_format={"type": "json_object"}).json["choices"][0]["message"]["content"]
        self.assertTrue(started.startswith("{"))

    def test_a_call_that_is_required(self):
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            answer = self.server.chat(max_tokens=120, tools=[WEATHER], tool_choice=choice, seed=1).json["choices"][0]
            self.assertEqual(answer["finish_reason"], "tool_calls", answer)
            call = answer["message"]["tool_calls"][0]
            self.assertEqual(call["function"]["name"], "weather")
            self.assertEqual(list(json.loads(call["function"]["arguments"])), ["city"])
        events = self.server.chat(max_tokens=120, tools=[WEATHER], tool_choice="required", stream=True).events
        deltas = [call for event in events[:-1] for call in event["choices"][0]["delta"].get("tool_calls", [])]
        self.assertEqual(deltas[0]["function"]["name"], "weather")
        arguments = "".join(delta["function"].get("arguments", "") for delta in deltas)
        self.assertEqual(list(json.loads(arguments)), ["city"])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "tool_calls")

    def test_calls_of_several_tools(self):
        """Any of them, one of them, only some of them; and what is counted until the first."""
        other = {"type": "function", "function": {"name": "clock", "parameters": {
            "type": "object", "properties": {"hours": {"type": "integer"}}, "required": ["hours"]}}}
        tools = [WEATHER, other]
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "clock"}}]}}
        before = self.server.metric("spry_time_to_first_call_seconds_count") or 0
        tokens_before, tokens = self.server.metric("spry_first_call_tokens_total") or 0, 0
        for choice, names in (("required", ("weather", "clock")), (allowed, ("clock",))):
            reply = self.server.chat(max_tokens=120, tools=tools, tool_choice=choice, parallel_tool_calls=False,
                                     seed=2).json
            calls = reply["choices"][0]["message"]["tool_calls"]
            self.assertEqual(len(calls), 1)
            self.assertIn(calls[0]["function"]["name"], names)
            timings = reply["timings"]
            self.assertGreaterEqual(timings["first_call_ms"], timings["ttft_ms"])
            self.assertGreater(timings["first_call_tokens"], 1)
            tokens += timings["first_call_tokens"]
            self.assertLessEqual(timings["first_call_tokens"], timings["generated_tokens"])
        self.assertEqual(self.server.metric("spry_time_to_first_call_seconds_count"), before + 2)
        self.assertEqual(self.server.metric("spry_first_call_tokens_total"), tokens_before + tokens)
        self.assertNotIn("first_call_ms", self.server.chat(max_tokens=3).json["timings"])
        for wrong in ({"tools": [WEATHER, WEATHER]}, {"tools": tools, "tool_choice": {
                "type": "function", "function": {"name": "nothing"}}}):
            self.assertEqual(self.server.chat(**wrong).status, 400)

    def test_a_call_cut_off(self):
        """What the model wrote of it is content."""
        cut = self.server.chat(max_tokens=6, tools=[WEATHER], tool_choice="required", seed=1).json["choices"][0]
        self.assertIn(cut["finish_reason"], ("length", "tool_calls"))
        if cut["finish_reason"] == "length":
            self.assertNotIn("tool_calls", cut["message"])

    def test_many_tools(self):
        """This model's template shows no tools, so they fit; the name is one of them all the same."""
        many = [{"type": "function", "function": {"name": "tool_%d" % i}} for i in range(10000)]
        reply = self.server.chat(max_tokens=60, tools=many, tool_choice="required", parallel_tool_calls=False)
        self.assertEqual(reply.status, 200)
        for call in reply.json["choices"][0]["message"].get("tool_calls", []):
            self.assertRegex(call["function"]["name"], r"^tool_\d{1,4}$")

    def test_tools_that_are_not_called(self):
        for choice in ("auto", "none"):
            answer = self.server.chat(tools=[WEATHER], tool_choice=choice).json["choices"][0]
            self.assertTrue(answer["message"]["content"])
            self.assertNotIn("tool_calls", answer["message"])

    def test_fragments(self):
        letter = {"type": "text", "text": "A fox came to the village at night. " * 20, "cache": "span"}
        ask = {"type": "text", "text": "Who came?"}

        def timings(*parts):
            return self.server.chat(messages=[{"role": "user", "content": list(parts)}], max_tokens=2).json["timings"]

        first = timings(letter, ask)
        self.assertGreater(first["span_tokens"], 100)
        moved = timings({"type": "text", "text": "Listen well, my friend."}, letter, ask)
        self.assertGreater(moved["cached_tokens"], 100)

    def test_eight_streams_equal_alone(self):
        prompts = ["Tell me tale number %d, please." % number for number in range(8)]
        alone = [self.server.chat(messages=[{"role": "user", "content": prompt}], max_tokens=40).json for prompt in prompts]
        together = [None] * 8

        def ask(number):
            together[number] = self.server.chat(messages=[{"role": "user", "content": prompts[number]}], max_tokens=40,
                                                stream=True).events

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(8):
            text = "".join(event["choices"][0]["delta"].get("content", "") for event in together[number][:-1])
            self.assertEqual(text, alone[number]["choices"][0]["message"]["content"])
        self.assertEqual(alone[3]["choices"][0]["message"]["content"], run(prompts[3], 40))

    def test_prompt_too_long(self):
        reply = self.server.chat(messages=[{"role": "user", "content": "word " * 5000}])
        self.refused(reply, 400, "5", "context")


class Completion(ServerTest):
    def ask(self, **fields):
        body = {"prompt": "Once upon a", "max_tokens": 8, "temperature": 0}
        body.update(fields)
        return self.server.post("/v1/completions", body)

    def test_equals_run(self):
        answer = self.ask().json
        self.assertEqual(answer["object"], "text_completion")
        self.assertEqual(answer["choices"][0]["text"], run("Once upon a", 8, "--raw"))
        events = self.ask(stream=True).events
        self.assertEqual("".join(event["choices"][0]["text"] for event in events[:-1]), answer["choices"][0]["text"])

    def test_ways_to_write_the_prompt(self):
        ids = self.server.post("/tokenize", {"content": "Once upon a"}).json["tokens"]
        wanted = self.ask().json["choices"][0]["text"]
        for prompt in (["Once upon a"], ids, [ids]):
            self.assertEqual(self.ask(prompt=prompt).json["choices"][0]["text"], wanted)
        for prompt, word in ((7, "prompt"), ([], "empty"), ([-1], "prompt[0]"), ([10 ** 9], "prompt[0]"), ("", "empty"),
                             (None, "prompt"), (["a", 5], "prompt[1] must"), (["a", ""], "prompt[1] is empty"), ([ids, [-1]], "prompt[1][0]"),
                             ([[1, 2, 3], [4, 70000]], "prompt[1][1] is 70000"), ([[1], [2, {}]], "prompt[1][1] must"),
                             (["a", "b " * 3000], "prompt[1] has"),
                             # too long is seen before anything else
                             ([1] * 3000 + [{}], "prompt has 3001 tokens"), ([[1], [1] * 3000 + [{}]], "prompt[1] has 3001")):
            self.refused(self.ask(prompt=prompt), 400, word)

    def test_several_prompts(self):
        prompts = ["Once upon a", "The fox", "There was a bear who"]
        fields = {"temperature": 0.9, "seed": 5, "n": 2, "echo": True, "logprobs": 1}
        alone = [self.ask(prompt=prompt, **fields).json for prompt in prompts]
        wanted = [choice for answer in alone for choice in answer["choices"]]
        together = self.ask(prompt=prompts, **fields).json
        self.assertEqual([choice["index"] for choice in together["choices"]], list(range(6)))
        for choice, other in zip(together["choices"], wanted):
            self.assertEqual({**choice, "index": 0}, {**other, "index": 0})
        for key in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(together["usage"][key], sum(answer["usage"][key] for answer in alone))
        events = self.ask(prompt=prompts, stream=True, **fields).events
        for index in range(6):
            text = "".join(choice["text"] for event in events[:-1] for choice in event["choices"]
                           if choice["index"] == index)
            self.assertEqual(text, wanted[index]["text"])
        ids = [self.server.post("/tokenize", {"content": prompt}).json["tokens"] for prompt in prompts]
        self.assertEqual([choice["text"] for choice in self.ask(prompt=ids, **fields).json["choices"]],
                         [choice["text"] for choice in wanted])
        many = self.ask(prompt=["Once"] * 128, max_tokens=1).json["choices"]
        self.assertEqual(([choice["index"] for choice in many], len({choice["text"] for choice in many})),
                         (list(range(128)), 1))
        self.refused(self.ask(prompt=["Once"] * 129), 400, "129", "128")
        self.refused(self.ask(prompt=["Once"] * 65, n=2), 400, "65", "128")
        self.refused(self.ask(prompt=["Once", "word " * 5000]), 400, "context")

    def test_echo_with_logprobs(self):
        plain = self.ask(max_tokens=3, logprobs=2).json["choices"][0]
        echoed = self.ask(max_tokens=3, logprobs=2, echo=True).json["choices"][0]
        self.assertEqual(echoed["text"], "Once upon a" + plain["text"])
        logprobs = echoed["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), echoed["text"])
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertEqual(logprobs["token_logprobs"][-3:], plain["logprobs"]["token_logprobs"])
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
            self.assertTrue(echoed["text"][offset:].startswith(token))
        # What the model said itself is as probable when it is read as when it was said.
        said = self.ask(prompt=echoed["text"], max_tokens=0, logprobs=0, echo=True).json["choices"][0]
        self.assertEqual(said["text"], echoed["text"])
        for read, spoken in zip(said["logprobs"]["token_logprobs"][-3:], plain["logprobs"]["token_logprobs"]):
            self.assertAlmostEqual(read, spoken, places=5)

    def test_lists_and_other_paths(self):
        models = self.server.get("/v1/models").json
        self.assertIn(MODEL, [model["id"] for model in models["data"]])
        self.assertEqual(self.server.get("/v1/models/" + MODEL).json["id"], MODEL)
        self.refused(self.server.get("/v1/models/nobody"), 404, "nobody")
        self.assertEqual(self.server.chat(model="nobody").status, 404)
        other = self.server.chat(model="Spry-Tales-Draft-4M").json
        self.assertEqual(other["model"], "Spry-Tales-Draft-4M")
        self.assertEqual(self.server.chat(model="Llama-Tales-Draft-4M").json["model"], "Spry-Tales-Draft-4M")

    def test_what_the_model_recommends(self):
        def text(**more):
            return self.server.chat(seed=3, max_tokens=40, **more).json["choices"][0]["message"]["content"]
        recommended = text(temperature=None)
        self.assertEqual(text(temperature=0.5, top_p=0.95, min_p=0.05), recommended)
        self.assertNotEqual(text(temperature=1, top_p=1, min_p=0), recommended)


TEMPLATE = ("{%% for message in messages %%}{{ message.role }}: {{ message.content }}\n{%% endfor %%}"
            "{%% if tools %%}{{ tools | tojson }} <tool_call>{%% endif %%}assistant: %s")


class MarkedCalls(ServerTest):
    """A template that writes calls between marks: the prompt opens the mark, the answer goes on from there."""

    arguments = ("--chat-template", TEMPLATE % "")

    def test_required(self):
        for stream in (False, True):
            reply = self.server.chat(max_tokens=150, tools=[WEATHER], tool_choice="required", stream=stream)
            if stream:
                calls = [call for event in reply.events[:-1] for call in event["choices"][0]["delta"].get("tool_calls", [])]
                name, arguments = calls[0]["function"]["name"], "".join(call["function"].get("arguments", "") for call in calls)
            else:
                call = reply.json["choices"][0]["message"]["tool_calls"][0]
                name, arguments = call["function"]["name"], call["function"]["arguments"]
            self.assertEqual((name, list(json.loads(arguments))), ("weather", ["city"]))

    def test_template_sees_tools(self):
        body = {"messages": TALE, "tools": [WEATHER]}
        self.assertIn("maxLength", self.server.post("/apply-template", body).json["prompt"])
        plain = self.server.chat(max_tokens=1).json["usage"]["prompt_tokens"]
        self.assertGreater(self.server.chat(max_tokens=1, tools=[WEATHER]).json["usage"]["prompt_tokens"], plain + 20)
        self.assertEqual(self.server.chat(max_tokens=1, tools=[WEATHER], tool_choice="none").json["usage"]["prompt_tokens"],
                         plain)


class Thoughts(ServerTest):
    """A template that opens a thought for the model."""

    arguments = ("--chat-template", TEMPLATE % "<think>\n")

    def test_thoughts_are_told_apart(self):
        message = self.server.chat().json["choices"][0]["message"]
        self.assertEqual(message["content"], "")
        self.assertTrue(message["reasoning_content"])
        events = self.server.chat(stream=True).events
        thought = "".join(event["choices"][0]["delta"].get("reasoning_content", "") for event in events[:-1])
        self.assertEqual(thought, message["reasoning_content"])
        plain = self.server.chat(reasoning_format="none").json["choices"][0]["message"]
        self.assertNotIn("reasoning_content", plain)
        self.assertEqual(plain["content"].strip(), thought.strip())


class Folder(ServerTest):
    """Models of a folder, loaded when they are asked for."""

    arguments = ("--models-dir", server_support.os.path.join(server_support.ROOT, "tests", "data", "models"))

    def test_by_name(self):
        names = [model["id"] for model in self.server.get("/v1/models").json["data"]]
        self.assertLessEqual({MODEL, "qwen3", "llama", "gemma3"}, set(names))
        for name in ("qwen3", "llama", MODEL):
            reply = self.server.chat(model=name, max_tokens=4)
            self.assertEqual((reply.status, reply.json["model"]), (200, name))
        for name in ("../models/qwen3", "qwen3/model-f32.gguf", "./qwen3", "/" + server_support.tiny("qwen3")):
            self.assertEqual(self.server.chat(model=name).status, 404, name)


if __name__ == "__main__":
    server_support.main()
