"""Vision towers in GGUF files (mmproj), as llama.cpp's converter writes them: the same answers as from the folder, found
beside a model, and files that do not fit."""

import json
import os
import shutil
import struct
import tempfile

import cli_support
from cli_support import HOME, spry, tiny

PICTURE = os.path.join(tiny("qwen3-vl", ""), "image1.png")
SMALL = os.path.join(tiny("qwen3-vl", ""), "image0.png")
KINDS = {"F32": 0, "F16": 1, "BF16": 30}
LAYER = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "attn.qkv": "attn_qkv",
         "layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.out_proj": "attn_out", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
         "attention_norm": "ln1", "ffn_norm": "ln2", "attention.q_proj": "attn_q", "attention.k_proj": "attn_k",
         "attention.v_proj": "attn_v", "attention.o_proj": "attn_out", "feed_forward.gate_proj": "ffn_gate",
         "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down", "layernorm_before": "ln1",
         "layernorm_after": "ln2", "attention.projection_layer": "attn_out", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_out", "input_layernorm": "ln1",
         "pre_feedforward_layernorm": "ln2", "post_attention_layernorm": "attn_post_norm",
         "post_feedforward_layernorm": "ffn_post_norm"}
SCALES = {"lambda_1": "ls1.weight", "lambda_2": "ls2.weight"}
WHOLE = {"patch_embed.proj": "v.patch_embd", "embeddings.patch_embedding": "v.patch_embd", "patch_conv": "v.patch_embd",
         "pos_embed": "v.position_embd", "embeddings.position_embedding": "v.position_embd", "merger.norm": "v.post_ln",
         "merger.ln_q": "v.post_ln", "post_layernorm": "v.post_ln", "ln_pre": "v.pre_ln", "merger.linear_fc1": "mm.0",
         "merger.linear_fc2": "mm.2", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2",
         "multi_modal_projector.mm_soft_emb_norm": "mm.soft_emb_norm",
         "multi_modal_projector.mm_input_projection_weight": "mm.input_projection.weight",
         "connector.modality_projection.proj": "mm.model.fc", "multi_modal_projector.norm": "mm.input_norm",
         "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
         "multi_modal_projector.linear_1": "mm.1", "multi_modal_projector.linear_2": "mm.2",
         "multi_modal_projector.layer_norm": "mm.input_norm", "embeddings.cls_token": "v.class_embd",
         "embeddings.patch_embeddings.projection": "v.patch_embd", "patch_embedder.input_proj": "v.patch_embd",
         "embeddings.position_embeddings": "v.position_embd.weight",
         "patch_embedder.position_embedding_table": "v.position_embd.weight",
         "embed_vision.embedding_projection": "mm.input_projection"}
INTERNVL = {"mm.input_norm": "mm.model.mlp.0", "mm.1": "mm.model.mlp.1", "mm.2": "mm.model.mlp.3"}
PREFIXES = ("model.visual.", "visual.", "vision_tower.vision_model.", "vision_tower.", "model.vision_model.",
            "model.vision_tower.vision_model.", "model.vision_tower.", "model.", "")
PROJECTORS = {"qwen3-vl": "qwen3vl_merger", "qwen2.5-vl": "qwen2.5vl_merger", "gemma3-vl": "gemma3",
              "smolvlm": "idefics3", "mistral3": "pixtral", "internvl": "internvl", "lfm2-vl": "lfm2",
              "gemma4-vl": "gemma4v"}


def tensors_of(folder):
    """Name: (type, shape, bytes)."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {n: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]])
            for n, t in head.items() if n != "__metadata__"}


def name_of(name):
    """The GGUF name of a Hugging Face tensor, or None."""
    for prefix in PREFIXES:
        if not name.startswith(prefix):
            continue
        rest = name[len(prefix):]
        base, _, suffix = rest.replace(".linear.", ".").rpartition(".")
        if rest in WHOLE:
            return WHOLE[rest]
        if base in WHOLE:
            return WHOLE[base] + "." + suffix
        for layers in ("blocks.", "encoder.layers.", "transformer.layers.", "encoder.layer."):
            number, _, part = base[len(layers):].partition(".")
            if base == layers + number and suffix in SCALES:
                return "v.blk.%s.%s" % (number, SCALES[suffix])
            if base.startswith(layers) and part in LAYER:
                return "v.blk.%s.%s.%s" % (number, LAYER[part], suffix)
    return None


def rows(tensor, order):
    """The tensor with its rows in another order."""
    kind, shape, data = tensor
    size = len(data) // shape[0]
    return kind, shape, b"".join(data[i * size:(i + 1) * size] for i in order)


def plus_one(tensor):
    values = [struct.unpack("<f", b"\0\0" + tensor[2][i:i + 2])[0] + 1 for i in range(0, len(tensor[2]), 2)]
    return "F32", tensor[1], struct.pack("<%df" % len(values), *values)


def converted(folder, config):
    """The tensors of a tower as the converter stores them."""
    vision, out = config["vision_config"], {}
    deep = vision.get("deepstack_visual_indexes", [])
    for name, tensor in tensors_of(folder).items():
        kind, shape, data = tensor
        new = name_of(name)
        if "deepstack_merger_list." in name:
            number, part, suffix = name.split("deepstack_merger_list.")[1].split(".")
            new = "v.deepstack.%d.%s.%s" % (deep[int(number)], part.replace("linear_", ""), suffix)
        if new == "v.patch_embd.weight" and len(shape) == 5:  # a tensor for each frame
            frame = len(data) // (shape[0] * shape[1] * shape[2])
            parts = [data[i:i + frame] for i in range(0, len(data), frame)]
            for i in range(2):
                out[new + (".1" if i else "")] = kind, [shape[0], shape[1], shape[3], shape[4]], b"".join(parts[i::2])
        elif new and "attn_qkv" in new and config["model_type"] == "qwen2_5_vl":
            third = len(data) // 3
            for i, letter in enumerate("qkv"):
                out[new.replace("qkv", letter)] = kind, [shape[0] // 3] + shape[1:], data[i * third:(i + 1) * third]
        elif new and config["model_type"] == "mistral3" and ("attn_q." in new or "attn_k." in new):
            size = shape[0] // vision["num_attention_heads"]
            out[new] = rows(tensor, [h + i % 2 * (size // 2) + i // 2 for h in range(0, shape[0], size) for i in range(size)])
        elif new == "mm.soft_emb_norm.weight":
            out[new] = plus_one(tensor)
        elif new == "v.patch_embd.weight" and len(shape) == 2:  # [y, x, channel] becomes [channel, y, x]
            side = round((shape[1] // 3) ** 0.5)
            pixels = [data[i:i + 2] for i in range(0, len(data), 2)]
            order = [row * shape[1] + k * 3 + c for row in range(shape[0]) for c in range(3) for k in range(side * side)]
            out[new] = kind, [shape[0], 3, side, side], b"".join(pixels[i] for i in order)
        elif new and config["model_type"] == "internvl" and new.startswith("mm."):
            base, _, suffix = new.rpartition(".")
            out[INTERNVL[base] + "." + suffix] = tensor
        elif new:
            out[new] = kind, shape or [1], data
    return out


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key, value):
    if isinstance(value, list):
        flags = isinstance(value[0], bool)
        body = b"".join(struct.pack("<?" if flags else "<f", v) for v in value)
        return text(key) + struct.pack("<IIQ", 9, 7 if flags else 6, len(value)) + body
    kind, body = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f"), str: (8, None)}[type(value)]
    return text(key) + struct.pack("<I", kind) + (text(value) if body is None else struct.pack(body, value))


def write(path, facts, tensors):
    head, data = b"", b""
    for name, (kind, shape, body) in tensors.items():
        data += b"\0" * (-len(data) % 32)
        shape = shape[::-1]
        head += text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape, KINDS[kind], len(data))
        data += body
    entries = b"".join(entry(k, v) for k, v in facts.items())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)) + entries + head
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


def first(value):
    return value[0] if isinstance(value, list) else value


def facts_of(model, config, recipe):
    vision, hidden = config["vision_config"], config["text_config"]["hidden_size"]
    layers = vision.get("depth", vision.get("num_hidden_layers"))
    facts = {"general.architecture": "clip", "clip.has_vision_encoder": True, "clip.projector_type": PROJECTORS[model],
             "clip.vision.projection_dim": hidden, "clip.vision.image_size": first(vision.get("image_size", 96)),
             "clip.vision.patch_size": first(vision["patch_size"]), "clip.vision.embedding_length": vision["hidden_size"],
             "clip.vision.feed_forward_length": vision["intermediate_size"], "clip.vision.block_count": layers,
             "clip.vision.attention.head_count": vision.get("num_heads", vision.get("num_attention_heads")),
             "clip.vision.attention.layer_norm_epsilon": 1e-5 if model == "mistral3" else 1e-6,
             "clip.vision.image_mean": recipe["image_mean"], "clip.vision.image_std": recipe["image_std"]}
    facts["clip.use_silu" if vision.get("hidden_act") == "silu" else "clip.use_gelu"] = True
    if "deepstack_visual_indexes" in vision:
        facts["clip.vision.is_deepstack_layers"] = [i in vision["deepstack_visual_indexes"] for i in range(layers)]
    if "fullatt_block_indexes" in vision:
        facts["clip.vision.n_wa_pattern"] = vision["fullatt_block_indexes"][0] + 1
        facts["clip.vision.window_size"] = vision["window_size"]
    if model == "mistral3":  # the converter writes the size that the tower was made for
        facts["clip.vision.image_size"] = recipe["size"]["longest_edge"]
        facts["clip.vision.spatial_merge_size"] = config["spatial_merge_size"]
    if model == "smolvlm":
        facts["clip.vision.projector.scale_factor"] = config["scale_factor"]
        facts["clip.vision.preproc_image_size"] = recipe["size"]["longest_edge"]
    if model in ("gemma3-vl", "internvl"):
        facts["clip.vision.projector.scale_factor"] = 2
    if model == "internvl":
        facts["clip.vision.preproc_max_tiles"] = recipe["max_patches"]
    if model == "lfm2-vl":  # the file has no limits of rows, and these are smaller than a published model's
        row = (recipe["encoder_patch_size"] * recipe["downsample_factor"]) ** 2
        facts["clip.vision.image_min_pixels"] = recipe["min_image_tokens"] * row
        facts["clip.vision.image_max_pixels"] = recipe["max_image_tokens"] * row
    if model == "gemma4-vl":
        facts["clip.vision.image_max_pixels"] = recipe["max_soft_tokens"] * 9 * vision["patch_size"] ** 2
    return facts


class Mmproj(cli_support.CliTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=HOME)
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def parts(self, model):
        folder = tiny(model, "")
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        with open(os.path.join(folder, "preprocessor_config.json")) as file:
            recipe = json.load(file)
        return facts_of(model, config, recipe), converted(folder, config)

    def answer(self, model, *options):
        picture = SMALL if "lfm2" in model else PICTURE  # the tiles of a larger one are of another size in the file
        return spry("run", model, "-p", "What is it?", "--image", picture, "--temp", "0", "--max-tokens", "16",
                    "--kv-type", "f32", "--cpu", "ref", *options)

    def test_same_answers(self):
        for model in PROJECTORS:
            folder, path = tiny(model, ""), self.path("mmproj-%s.gguf" % model)
            facts, tensors = self.parts(model)
            write(path, facts, tensors)
            own = self.succeeds(self.answer(folder)).text
            self.assertEqual(self.succeeds(self.answer(folder, "--mmproj", path)).text, own, model)
            if model == "gemma3-vl":  # first files have the two matrices of a layer the other way round
                swap = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
                swapped = {".".join(swap.get(p, p) for p in n.split(".")): t for n, t in tensors.items()}
                write(path, facts, swapped)
                self.assertEqual(self.succeeds(self.answer(folder, "--mmproj", path)).text, own)

    def test_beside_a_model(self):
        for model in ("qwen3-vl", "qwen2.5-vl"):
            folder, gguf = tiny(model, ""), self.path("Tiny-%s-F16.gguf" % model)
            self.succeeds(spry("convert", folder, gguf, "--type", "f32", "--force"))
            self.assertIn("cannot see pictures", self.answer(gguf).errors)
            write(self.path("mmproj-Tiny-%s-F16.gguf" % model), *self.parts(model))
            own = self.succeeds(self.answer(folder)).text
            self.assertEqual(self.succeeds(self.answer(gguf)).text, own)
            self.assertIn("cannot see pictures", self.answer(gguf, "--mmproj", "").errors)

    def refused(self, words, facts, tensors, name="mmproj-bad.gguf"):
        write(self.path(name), facts, tensors)
        result = self.answer(tiny("qwen3-vl", ""), "--mmproj", self.path(name))
        self.assertNotEqual(result.code, 0)
        self.assertIn(words, result.errors)
        self.assertEqual(len(result.errors.strip().splitlines()), 1)

    def test_bench_of_a_picture(self):
        path = self.path("mmproj-qwen3-vl.gguf")
        write(path, *self.parts("qwen3-vl"))
        bench = ("bench", tiny("qwen3-vl", ""), "--mmproj", path, "--image", "200x160", "--repeat", "2")
        report = self.succeeds(spry(*bench, "--json")).json
        image = report["image"]
        self.assertEqual((report["format"], image["width"], image["height"], image["picture_tokens"]), ("spry-image-1", 200, 160, 30))
        self.assertGreater(image["prompt_tokens"], 30)
        self.assertLess(image["tower_ms"] + image["prefill_ms"], 1.01 * image["first_ms"])
        self.assertLess(image["second_share"], 1)
        self.assertEqual([f["what"] for f in report["figures"]],
                         ["picture, first token", "picture, tower", "picture, second question, share"])
        self.assertIn("second question", self.succeeds(spry(*bench)).text)
        self.assertIn("cannot see pictures", spry("bench", "--image", "9x9", "--repeat", "1").errors)
        for sides in ("200", "0x9", "9x", "99999x9", "9x9x9"):
            self.assertIn("WIDTHxHEIGHT", spry("bench", tiny("qwen3-vl", ""), "--image", sides).errors)

    def test_files_that_do_not_fit(self):
        facts, tensors = self.parts("qwen3-vl")
        self.refused("has no vision tower", {"general.architecture": "qwen3"}, tensors)
        self.refused("'resampler' is not known", dict(facts, **{"clip.projector_type": "resampler"}), tensors)
        for key, value in {"clip.vision.patch_size": 14, "clip.vision.block_count": 5, "clip.vision.embedding_length": 64,
                           "clip.vision.feed_forward_length": 96, "clip.vision.attention.head_count": 3,
                           "clip.vision.image_size": 1 << 30, "clip.vision.spatial_merge_size": 3}.items():
            self.refused("mmproj-bad.gguf", dict(facts, **{key: value}), tensors)
        kind, shape, data = tensors["mm.2.weight"]
        narrow = dict(tensors, **{"mm.2.weight": (kind, [shape[0] // 2, shape[1]], data[:len(data) // 2])})
        narrow["mm.2.bias"] = "F32", [shape[0] // 2], b"\0" * 2 * shape[0]
        self.refused("tower of another model", facts, narrow)
        for name in ("v.patch_embd.weight", "v.position_embd.weight", "mm.0.weight", "v.blk.0.ln1.bias"):
            self.refused("is missing", facts, {n: t for n, t in tensors.items() if n != name})
        kind, shape, data = tensors["v.position_embd.weight"]
        self.refused("no square", facts,
                     dict(tensors, **{"v.position_embd.weight": (kind, [35, shape[1]], data[:len(data) * 35 // 36])}))
        facts, tensors = self.parts("gemma3-vl")
        self.refused("has no token", facts, tensors)
        facts, tensors = self.parts("smolvlm")
        self.refused("positions for pictures", dict(facts, **{"clip.vision.image_size": 64}), tensors)
        missing = self.answer(tiny("qwen3-vl", ""), "--mmproj", self.path("none.gguf"))
        self.assertIn("none.gguf", missing.errors)


if __name__ == "__main__":
    cli_support.main()
