"""Converts the checkpoint that train_tiny_model.py wrote to a GGUF file: BF16 matrices, F32 norms.

Needs nothing but Python. usage: tiny_model_to_gguf.py CHECKPOINT_FOLDER OUT.gguf
"""

import argparse
import json
import pathlib
import struct

from gguf_file import BF16, F32, GgufFile

END_OF_TEXT = "<|endoftext|>"
TOKEN_NORMAL, TOKEN_CONTROL = 1, 3
FILE_TYPE_BF16 = 32

# GGUF name and checkpoint name of the tensors of one layer.
LAYER_TENSORS = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
]


def tensor_names(layers):
    """(GGUF name, checkpoint name) of every tensor, in file order."""
    yield "token_embd.weight", "model.embed_tokens.weight"
    for layer in range(layers):
        for ours, theirs in LAYER_TENSORS:
            yield f"blk.{layer}.{ours}.weight", f"model.layers.{layer}.{theirs}.weight"
    yield "output_norm.weight", "model.norm.weight"


def read_safetensors(folder):
    """name -> (shape, bytes) of all tensors in the parts model-*.safetensors; all are BF16."""
    tensors = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        data = path.read_bytes()
        header_size = struct.unpack_from("<Q", data)[0]
        header = json.loads(data[8:8 + header_size])
        body = data[8 + header_size:]
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "BF16":
                raise SystemExit(f"{path}: tensor {name} is {entry['dtype']}, expected BF16")
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["shape"], body[begin:end])
    return tensors


def add_tokenizer(gguf, tokenizer, vocab_size):
    tokens, types = [None] * vocab_size, [TOKEN_NORMAL] * vocab_size
    for token, index in tokenizer["model"]["vocab"].items():
        tokens[index] = token
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], TOKEN_CONTROL
    if None in tokens:
        raise SystemExit(f"tokenizer.json has no token {tokens.index(None)}")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    end_of_text = tokens.index(END_OF_TEXT)

    gguf.string("tokenizer.ggml.model", "gpt2")
    gguf.string("tokenizer.ggml.pre", "qwen2")
    gguf.strings("tokenizer.ggml.tokens", tokens)
    gguf.i32s("tokenizer.ggml.token_type", types)
    gguf.strings("tokenizer.ggml.merges", merges)
    gguf.u32("tokenizer.ggml.bos_token_id", end_of_text)
    gguf.u32("tokenizer.ggml.eos_token_id", end_of_text)
    gguf.u32("tokenizer.ggml.padding_token_id", end_of_text)
    gguf.boolean("tokenizer.ggml.add_bos_token", False)


def add_model_metadata(gguf, config):
    rope_theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    gguf.string("general.architecture", "qwen3")
    gguf.string("general.name", "inferno tiny books 26M")
    gguf.string("general.license", "CC0-1.0")
    gguf.u32("general.file_type", FILE_TYPE_BF16)
    gguf.u32("general.quantization_version", 2)
    gguf.u32("general.alignment", 32)
    gguf.u32("qwen3.context_length", config["max_position_embeddings"])
    gguf.u32("qwen3.embedding_length", config["hidden_size"])
    gguf.u32("qwen3.block_count", config["num_hidden_layers"])
    gguf.u32("qwen3.feed_forward_length", config["intermediate_size"])
    gguf.u32("qwen3.attention.head_count", config["num_attention_heads"])
    gguf.u32("qwen3.attention.head_count_kv", config["num_key_value_heads"])
    gguf.u32("qwen3.attention.key_length", config["head_dim"])
    gguf.u32("qwen3.attention.value_length", config["head_dim"])
    gguf.f32("qwen3.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    gguf.f32("qwen3.rope.freq_base", rope_theta)
    gguf.u32("qwen3.vocab_size", config["vocab_size"])


def bf16_to_f32(data):
    """A bfloat16 is the upper 16 bits of a float32."""
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def convert(folder, out):
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tensors = read_safetensors(folder)

    gguf = GgufFile()
    add_model_metadata(gguf, config)
    add_tokenizer(gguf, tokenizer, config["vocab_size"])
    for ours, theirs in tensor_names(config["num_hidden_layers"]):
        if theirs not in tensors:
            raise SystemExit(f"{folder}: the checkpoint has no tensor {theirs}")
        shape, data = tensors.pop(theirs)
        if len(shape) == 1:
            gguf.tensor(ours, shape, F32, bf16_to_f32(data))
        else:
            gguf.tensor(ours, shape, BF16, data)
    if tensors:
        raise SystemExit(f"{folder}: unknown tensors: {', '.join(tensors)}")
    gguf.write(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path, help="folder with config.json, tokenizer.json, model-*.safetensors")
    parser.add_argument("out", type=pathlib.Path, help="GGUF file to write")
    arguments = parser.parse_args()
    convert(arguments.checkpoint, arguments.out)


if __name__ == "__main__":
    main()
