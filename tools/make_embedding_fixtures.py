#!/usr/bin/env python3
"""Writes tests/data/embeddings: a tiny model of each kind that makes embeddings or ranks, with random weights, and what
transformers makes of token ids in float64 (manifest.json: pooled and of unit length; of rankers the score).

Needs the packages torch, numpy and transformers (tested with 2.9, 2.4 and 5.22).

usage: tools/make_embedding_fixtures.py [--out FOLDER]
"""

import argparse
import json
import pathlib

import numpy
import torch

import transformers_float64  # noqa: F401  before transformers
import transformers
from gguf_file import F32, GgufFile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY, WIDTH, FFN, HEADS, CONTEXT = 96, 32, 48, 2, 128
MEAN, CLS, LAST, RANK = 1, 2, 3, 4
SIZES = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": FFN, "num_attention_heads": HEADS,
         "max_position_embeddings": CONTEXT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXTS = [[5], [1, 17, 33, 2], [1, *range(3, 30), 2], [(7 * i + 3) % VOCABULARY for i in range(100)]]

BERT = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
        "encoder.layer.N.attention.self.query": "attn_q", "encoder.layer.N.attention.self.key": "attn_k",
        "encoder.layer.N.attention.self.value": "attn_v", "encoder.layer.N.attention.output.dense": "attn_output",
        "encoder.layer.N.attention.output.LayerNorm": "attn_output_norm", "encoder.layer.N.intermediate.dense": "ffn_up",
        "encoder.layer.N.output.dense": "ffn_down", "encoder.layer.N.output.LayerNorm": "layer_output_norm",
        "pooler.dense": "cls", "classifier": "cls.output"}
NOMIC = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
         "embeddings.LayerNorm": "token_embd_norm", "layers.N.self_attn.q_proj": "attn_q",
         "layers.N.self_attn.k_proj": "attn_k", "layers.N.self_attn.v_proj": "attn_v",
         "layers.N.self_attn.o_proj": "attn_output", "layers.N.post_attention_layernorm": "attn_output_norm",
         "layers.N.mlp.gate_proj": "ffn_gate", "layers.N.mlp.up_proj": "ffn_up", "layers.N.mlp.down_proj": "ffn_down",
         "layers.N.post_mlp_layernorm": "layer_output_norm"}
MODERN = {"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
          "layers.N.attn.Wqkv": "attn_qkv", "layers.N.attn.Wo": "attn_output", "layers.N.attn_norm": "attn_norm",
          "layers.N.mlp_norm": "ffn_norm", "layers.N.mlp.Wi": "ffn_up", "layers.N.mlp.Wo": "ffn_down"}
DECODER = {"embed_tokens": "token_embd", "norm": "output_norm", "layers.N.self_attn.q_proj": "attn_q",
           "layers.N.self_attn.k_proj": "attn_k", "layers.N.self_attn.v_proj": "attn_v",
           "layers.N.self_attn.o_proj": "attn_output", "layers.N.self_attn.q_norm": "attn_q_norm",
           "layers.N.self_attn.k_norm": "attn_k_norm", "layers.N.mlp.gate_proj": "ffn_gate",
           "layers.N.mlp.up_proj": "ffn_up", "layers.N.mlp.down_proj": "ffn_down", "layers.N.input_layernorm": "attn_norm"}
QWEN3 = DECODER | {"layers.N.post_attention_layernorm": "ffn_norm", "score": "cls.output"}
GEMMA = DECODER | {"layers.N.post_attention_layernorm": "post_attention_norm",
                   "layers.N.pre_feedforward_layernorm": "ffn_norm", "layers.N.post_feedforward_layernorm": "post_ffw_norm"}


class Kind:
    """A model, its names, and the keys of its file beside the sizes."""

    def __init__(self, architecture, model, names, pooling, keys, dense=()):
        self.architecture, self.model, self.names, self.pooling = architecture, model, names, pooling
        self.keys, self.dense = keys, dense


def kinds():
    auto, pairs = transformers.AutoModel, transformers.AutoModelForSequenceClassification
    eps = {"attention.layer_norm_epsilon": 1e-12}
    bert = transformers.BertConfig(**SIZES, num_hidden_layers=3, type_vocab_size=2)
    ranker = transformers.BertConfig(**SIZES, num_hidden_layers=2, type_vocab_size=2, num_labels=1)
    nomic = transformers.NomicBertConfig(**SIZES, num_hidden_layers=3)
    modern = transformers.ModernBertConfig(**SIZES, num_hidden_layers=5, local_attention=16, cls_token_id=1, sep_token_id=2)
    heads = {"num_key_value_heads": 1, "head_dim": 16}
    qwen = transformers.Qwen3Config(**SIZES, **heads, num_hidden_layers=3)
    qwen_ranker = transformers.Qwen3Config(**SIZES, **heads, num_hidden_layers=2, num_labels=2)
    gemma = transformers.Gemma3TextConfig(**SIZES, **heads, num_hidden_layers=7, sliding_window=16,
                                          query_pre_attn_scalar=16, use_bidirectional_attention=True)
    dense = [torch.randn(48, WIDTH, dtype=torch.float64) / 6, torch.randn(WIDTH, 48, dtype=torch.float64) / 6]
    kv = {"attention.head_count_kv": 1, "attention.key_length": 16, "attention.value_length": 16,
          "attention.layer_norm_rms_epsilon": 1e-6}
    return {
        "bert": Kind("bert", auto.from_config(bert, add_pooling_layer=False), BERT, MEAN, eps),
        "bert-cls": Kind("bert", auto.from_config(bert, add_pooling_layer=False), BERT, CLS, eps),
        "bert-rank": Kind("bert", pairs.from_config(ranker), BERT, RANK, eps),
        "nomic-bert": Kind("nomic-bert", auto.from_config(nomic), NOMIC, MEAN, eps | {"rope.freq_base": 1000.0}),
        "modern-bert": Kind("modern-bert", auto.from_config(modern), MODERN, CLS, {
            "attention.layer_norm_epsilon": 1e-5, "attention.sliding_window": 16, "rope.freq_base": 160000.0,
            "rope.freq_base_swa": 10000.0}),
        "qwen3": Kind("qwen3", auto.from_config(qwen), QWEN3, LAST, kv | {"rope.freq_base": 10000.0}),
        "qwen3-rank": Kind("qwen3", pairs.from_config(qwen_ranker), QWEN3, RANK, kv | {"rope.freq_base": 10000.0}),
        "gemma-embedding": Kind("gemma-embedding", auto.from_config(gemma), GEMMA, MEAN, kv | {
            "attention.sliding_window": 16, "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0}, dense),
    }


def randomize(kind):
    for name, tensor in kind.model.named_parameters():
        norm = "norm" in name.lower()
        middle = 1.0 if norm and name.endswith("weight") and not kind.architecture.startswith("gemma") else 0.0
        tensor.data = middle + torch.randn_like(tensor.data) * (0.2 if norm else 0.25)


def gguf_name(name, names):
    stem, suffix = name.rsplit(".", 1)
    for prefix in ("bert.", "model."):
        stem = stem.removeprefix(prefix)
    parts = stem.split(".")
    numbers = [part for part in parts if part.isdigit()]
    key = ".".join("N" if part.isdigit() else part for part in parts)
    return (f"blk.{numbers[0]}." if numbers else "") + f"{names[key]}.{suffix}"


def write_vocabulary(file):
    """Letters, as WordPiece tokens that begin a word and that go on."""
    marks = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    letters = [chr(ord("a") + i) for i in range(26)]
    tokens = marks + ["\u2581" + letter for letter in letters] + letters
    tokens += [f"\u2581[unused{i}]" for i in range(VOCABULARY - len(tokens))]
    file.string("tokenizer.ggml.model", "bert")
    file.strings("tokenizer.ggml.tokens", tokens)
    file.i32s("tokenizer.ggml.token_type", [3 if token in marks else 1 for token in tokens])


def write(kind, path):
    config = kind.model.config
    file = GgufFile()
    file.string("general.architecture", kind.architecture)
    keys = {"block_count": config.num_hidden_layers, "context_length": CONTEXT, "embedding_length": WIDTH,
            "feed_forward_length": FFN, "attention.head_count": HEADS, "pooling_type": kind.pooling} | kind.keys
    for key, value in keys.items():
        (file.u32 if isinstance(value, int) else file.f32)(f"{kind.architecture}.{key}", value)
    for name, tensor in kind.model.state_dict().items():
        if name.endswith("position_ids"):
            continue
        data = tensor.detach().numpy().astype(numpy.float32)
        if kind.architecture.startswith("gemma") and "norm" in name:
            data = data + 1
        file.tensor(gguf_name(name, kind.names), list(data.shape), F32, data.astype(numpy.float32).tobytes())
    if kind.architecture == "bert":
        write_vocabulary(file)
    for i, matrix in enumerate(kind.dense):
        file.tensor(f"dense_{i + 2}.weight", list(matrix.shape), F32, matrix.numpy().astype(numpy.float32).tobytes())
    file.write(path)


def reference(kind, ids):
    """What the model makes of ids: a vector of unit length, or a score of a pair whose second text begins halfway."""
    tokens = torch.tensor([ids])
    second = len(ids) // 2
    with torch.no_grad():
        if kind.pooling == RANK:
            if kind.architecture == "bert":
                types = torch.tensor([[int(i >= second) for i in range(len(ids))]])
                return {"second": second, "score": kind.model(tokens, token_type_ids=types).logits[0, 0].item()}
            rows = kind.model.model(tokens).last_hidden_state[0]
            return {"score": torch.softmax(kind.model.score(rows[-1]), -1)[0].item()}
        rows = kind.model(tokens).last_hidden_state[0]
    vector = {MEAN: rows.mean(0), CLS: rows[0], LAST: rows[-1]}[kind.pooling]
    for matrix in kind.dense:
        vector = matrix @ vector
    return {"embedding": (vector / vector.norm()).tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/data/embeddings", help="folder to write to")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(5)
    manifest = []
    for name, kind in kinds().items():
        randomize(kind)
        # The file holds floats: the reference computes with the same numbers.
        for tensor in [*kind.model.parameters(), *kind.dense]:
            tensor.data = torch.from_numpy(tensor.detach().numpy().astype(numpy.float32).astype(numpy.float64))
        kind.model.eval()
        kind.model.set_attn_implementation("eager")
        write(kind, out / f"{name}.gguf")
        for ids in TEXTS:
            manifest.append({"model": name, "ids": ids} | reference(kind, ids))
    (out / "manifest.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in manifest) + "\n]\n")


if __name__ == "__main__":
    main()
