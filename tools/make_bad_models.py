"""Writes tests/data/gguf-badmodels: well-formed GGUF files that hold bad models, each a tiny random Llama with one thing
wrong. manifest.json says what `inferno generate` must do with each: "loads", "clear error", or "either" (no crash, no
hang, no huge allocation). The result depends on nothing but this script.

usage: tools/make_bad_models.py
"""

import pathlib
import random
import struct

from fixture_json import write_json
from gguf_file import F16, F32, I32, GgufFile

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/gguf-badmodels"
WIDTH, HEADS, KV_HEADS, FFN, LAYERS = 16, 4, 2, 32, 3
WORDS = "\u2581 \u2581t h e \u2581the O n c \u2581On \u2581Once o r s i".split(" ")
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + WORDS
TYPES = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(WORDS)
SCORES = [0.0] * 259 + [-float(i) for i in range(len(WORDS))]


class Model:
    """Metadata as key -> (kind, value), tensors as name -> [shape, type, bytes]; cases change them before write()."""

    def __init__(self):
        self.metadata = {
            "general.architecture": ("string", "llama"),
            "llama.context_length": ("u32", 64),
            "llama.embedding_length": ("u32", WIDTH),
            "llama.block_count": ("u32", LAYERS),
            "llama.feed_forward_length": ("u32", FFN),
            "llama.attention.head_count": ("u32", HEADS),
            "llama.attention.head_count_kv": ("u32", KV_HEADS),
            "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-5),
            "llama.rope.dimension_count": ("u32", WIDTH // HEADS),
            "llama.rope.freq_base": ("f32", 10000.0),
            "llama.vocab_size": ("u32", len(TOKENS)),
            "tokenizer.ggml.model": ("string", "llama"),
            "tokenizer.ggml.tokens": ("strings", TOKENS),
            "tokenizer.ggml.scores": ("f32s", SCORES),
            "tokenizer.ggml.token_type": ("i32s", TYPES),
            "tokenizer.ggml.bos_token_id": ("u32", 1),
            "tokenizer.ggml.eos_token_id": ("u32", 2),
            "tokenizer.ggml.unknown_token_id": ("u32", 0),
        }
        self.tensors = {}
        rng = random.Random(1)

        def matrix(name, rows, cols):
            values = [rng.gauss(0, cols ** -0.5) for _ in range(rows * cols)]
            self.tensors[name] = [(rows, cols), F16, struct.pack(f"<{len(values)}e", *values)]

        def norm(name):
            self.tensors[name] = [(WIDTH,), F32, struct.pack(f"<{WIDTH}f", *[1.0] * WIDTH)]

        matrix("token_embd.weight", len(TOKENS), WIDTH)
        norm("output_norm.weight")
        kv_rows = WIDTH // HEADS * KV_HEADS
        for i in range(LAYERS):
            norm(f"blk.{i}.attn_norm.weight")
            matrix(f"blk.{i}.attn_q.weight", WIDTH, WIDTH)
            matrix(f"blk.{i}.attn_k.weight", kv_rows, WIDTH)
            matrix(f"blk.{i}.attn_v.weight", kv_rows, WIDTH)
            matrix(f"blk.{i}.attn_output.weight", WIDTH, WIDTH)
            norm(f"blk.{i}.ffn_norm.weight")
            matrix(f"blk.{i}.ffn_gate.weight", FFN, WIDTH)
            matrix(f"blk.{i}.ffn_up.weight", FFN, WIDTH)
            matrix(f"blk.{i}.ffn_down.weight", WIDTH, FFN)

    def write(self, path):
        file = GgufFile()
        for key, (kind, value) in self.metadata.items():
            getattr(file, kind)(key, value)
        for name, (shape, type_id, data) in self.tensors.items():
            file.tensor(name, shape, type_id, data)
        file.write(path)


def key(name, kind, value):
    return lambda model: model.metadata.update({name: (kind, value)})


def no_key(name):
    return lambda model: model.metadata.pop(name)


def tensor(name, shape, type_id, item_bytes):
    size = item_bytes
    for extent in shape:
        size *= extent
    return lambda model: model.tensors.update({name: [shape, type_id, bytes(size)]})


def no_tensor(name):
    return lambda model: model.tensors.pop(name)


def fill(name, pattern):
    def change(model):
        shape, type_id, data = model.tensors[name]
        model.tensors[name] = [shape, type_id, pattern * (len(data) // len(pattern))]
    return change


ERROR, EITHER, LOADS = "clear error", "either", "loads"
CASES = {
    "ok_model": (LOADS, lambda model: None),
    "arch_empty": (ERROR, key("general.architecture", "string", "")),
    "arch_unknown": (ERROR, key("general.architecture", "string", "nosuch")),
    "arch_wrong_type": (ERROR, key("general.architecture", "u32", 7)),
    "blocks_missing": (ERROR, no_key("llama.block_count")),
    "blocks_zero": (ERROR, key("llama.block_count", "u32", 0)),
    "blocks_2e31": (ERROR, key("llama.block_count", "u32", 1 << 31)),
    "ctx_zero": (EITHER, key("llama.context_length", "u32", 0)),
    "ctx_2e31": (EITHER, key("llama.context_length", "u32", 1 << 31)),
    "embd_missing": (ERROR, no_key("llama.embedding_length")),
    "embd_wrong": (ERROR, key("llama.embedding_length", "u32", 2 * WIDTH)),
    "embd_wrong_type": (ERROR, key("llama.embedding_length", "string", str(WIDTH))),
    "eps_missing": (ERROR, no_key("llama.attention.layer_norm_rms_epsilon")),
    "eps_nan": (ERROR, key("llama.attention.layer_norm_rms_epsilon", "f32", float("nan"))),
    "ffn_wrong": (ERROR, key("llama.feed_forward_length", "u32", 20)),
    "ffn_zero": (ERROR, key("llama.feed_forward_length", "u32", 0)),
    "heads_7": (ERROR, key("llama.attention.head_count", "u32", 7)),
    "heads_zero": (ERROR, key("llama.attention.head_count", "u32", 0)),
    "kv_heads_16": (ERROR, key("llama.attention.head_count_kv", "u32", 16)),
    "kv_heads_3": (ERROR, key("llama.attention.head_count_kv", "u32", 3)),
    "kv_heads_missing": (EITHER, no_key("llama.attention.head_count_kv")),
    "kv_heads_zero": (ERROR, key("llama.attention.head_count_kv", "u32", 0)),
    "rope_dim_64": (ERROR, key("llama.rope.dimension_count", "u32", 64)),
    "rope_dim_odd": (ERROR, key("llama.rope.dimension_count", "u32", 3)),
    "rope_freq_nan": (EITHER, key("llama.rope.freq_base", "f32", float("nan"))),
    "rope_freq_zero": (EITHER, key("llama.rope.freq_base", "f32", 0.0)),
    "tensor_missing_embd": (ERROR, no_tensor("token_embd.weight")),
    "tensor_missing_norm": (ERROR, no_tensor("output_norm.weight")),
    "tensor_missing_q2": (ERROR, no_tensor("blk.2.attn_q.weight")),
    "tensor_norm_shape": (ERROR, tensor("blk.0.attn_norm.weight", (WIDTH // 2,), F32, 4)),
    "tensor_q_shape": (ERROR, tensor("blk.0.attn_q.weight", (WIDTH // 2, WIDTH), F16, 2)),
    "tensor_type_i32": (ERROR, tensor("blk.0.attn_q.weight", (WIDTH, WIDTH), I32, 4)),
    "tok_bos_out_of_range": (EITHER, key("tokenizer.ggml.bos_token_id", "u32", 99999)),
    "tok_list_empty": (ERROR, key("tokenizer.ggml.tokens", "strings", [])),
    "tok_list_missing": (ERROR, no_key("tokenizer.ggml.tokens")),
    "tok_list_short": (ERROR, key("tokenizer.ggml.tokens", "strings", TOKENS[:-5])),
    "tok_model_unknown": (ERROR, key("tokenizer.ggml.model", "string", "nosuch")),
    "tok_scores_short": (ERROR, key("tokenizer.ggml.scores", "f32s", SCORES[:100])),
    "tok_scores_wrong_type": (ERROR, key("tokenizer.ggml.scores", "i32s", [0] * len(TOKENS))),
    "tok_types_99": (EITHER, key("tokenizer.ggml.token_type", "i32s", [99] * len(TOKENS))),
    "weights_inf": (EITHER, fill("blk.1.attn_q.weight", struct.pack("<e", float("inf")))),
    "weights_nan": (EITHER, fill("token_embd.weight", struct.pack("<e", float("nan")))),
}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, (_, change) in CASES.items():
        model = Model()
        change(model)
        model.write(OUT / f"{name}.gguf")
    write_json(OUT / "manifest.json",
               {"cases": [{"file": f"{name}.gguf", "expect": expect} for name, (expect, _) in sorted(CASES.items())]})


if __name__ == "__main__":
    main()
