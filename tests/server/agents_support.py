"""A server on the script device (tests/support/script): answers are written in a script, prompts of any length take no time."""

import json
import os
import random
import shutil
import struct
import tempfile

from server_support import HOME, Server, tiny

START = "<|im_start|>assistant\n"
FOLDER = os.path.join(HOME, "script-model")
# Tools the way Qwen's template writes them; instructions may be anywhere.
TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\n<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\n\\nA call is <tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"""


def make_model(folder=FOLDER, context=1 << 18):
    """A model whose numbers do not matter, with the vocabulary of tests/data/models/qwen3 and a long context."""
    if os.path.isdir(folder):
        return folder
    os.makedirs(folder)
    source = tiny("qwen3", "")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(source, name), folder)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                  layer_types=["full_attention"], max_position_embeddings=context, dtype="bfloat16")
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
    numbers = random.Random(1)  # always the same model: with other numbers, answers may be tokens without text
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], 32], "model.norm.weight": [32],
              layer + "input_layernorm.weight": [32], layer + "post_attention_layernorm.weight": [32],
              layer + "self_attn.q_norm.weight": [32], layer + "self_attn.k_norm.weight": [32]}
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"):
        shapes[layer + name + "_proj.weight"] = [32, 32]
    head, data, at = {}, b"", 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * count]}
        data += b"".join(struct.pack("<H", 0x3C00 + numbers.randrange(256)) for _ in range(count))
        at += 2 * count
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return folder


def make_seeing_model(folder=FOLDER + "-sees", context=1 << 18):
    """The same with the vision tower of tests/data/models/qwen3-vl, which is computed."""
    if os.path.isdir(folder):
        return folder
    shutil.copytree(tiny("qwen3-vl", ""), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["text_config"]["max_position_embeddings"] = context
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
    return folder


class ScriptServer(Server):
    """`rules`: what it answers; see tests/support/script/script_device.c. The model is served as `name`; `sees`: it has a vision
    tower."""

    def __init__(self, *arguments, rules=(), name="script", context=1 << 18, sees=False):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.script, self.log_file = os.path.join(self.folder, "script.json"), os.path.join(self.folder, "prompts.jsonl")
        self.hold_file = os.path.join(self.folder, "hold")
        self.answer(*rules)
        os.environ["SPRY_SCRIPT"] = self.script
        model = make_seeing_model() if sees else make_model(FOLDER + str(context), context)
        super().__init__("%s=%s" % (name, model), "--only-named", *arguments,
                         kv="256M", device=("--device", "script"))

    def answer(self, *rules):
        """Texts answer everything; others are (answer, texts that the prompt has, how often it has others)."""
        rules = [(rule,) if isinstance(rule, str) else rule for rule in rules]
        with open(self.script + ".new", "w", encoding="utf-8") as file:
            json.dump({"start": START, "skip": "<think>\n\n</think>\n\n", "log": self.log_file, "hold": self.hold_file,
                       "rules": [dict(zip(("answer", "has", "count"), rule)) for rule in rules]}, file)
        os.rename(self.script + ".new", self.script)

    def prompts(self):
        """The prompts so far; they are forgotten."""
        if not os.path.exists(self.log_file):
            return []
        with open(self.log_file, encoding="utf-8") as file:
            found = [json.loads(line) for line in file]
        os.remove(self.log_file)
        return found

    def hold(self, held):
        """While it is held, no step ends."""
        if held:
            with open(self.hold_file, "w", encoding="utf-8"):
                pass
        else:
            os.remove(self.hold_file)


def call(name, **arguments):
    """The text of a call, as the model writes it."""
    return "<tool_call>\n%s\n</tool_call>" % json.dumps({"name": name, "arguments": arguments})
