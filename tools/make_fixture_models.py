"""Writes tests/fixtures: tiny random models of each architecture as GGUF files, and their logits by transformers.

For each model: NAME.gguf (F32, a byte-level BPE of 288 tokens inside), and for each of two prompts NAME-pI.bin, the
logits of all positions (float32, [tokens, vocabulary]), computed by transformers in float64. manifest.json lists the
prompts with their token ids, the greedy continuation and the margin between the two best logits at each of its steps.

Needs torch and transformers (tested with 2.9 and 4.57), on the CPU. The result depends only on the seeds below.
"""

import argparse
import json
import math
import pathlib

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GraniteConfig,
                          GraniteForCausalLM, LlamaConfig, LlamaForCausalLM, Olmo3Config, Olmo3ForCausalLM, Phi3Config,
                          Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

from fixture_json import write_json
from gguf_file import F32, GgufFile

VOCAB_SIZE = 288
CONTEXT = 256
GREEDY_TOKENS = 24
TOKEN_NORMAL, TOKEN_CONTROL = 1, 3

PROMPTS = [
    "The sea was calm.",
    "\"It's 1851,\" said the captain;\n  then he looked out over the grey sea, and the old ship went on and on \u2013 caf\u00e9!",
]
TOKENIZER_TEXT = ["the captain said that the sea and the ship were there, and that he had been on the other side "
                  "of it; in the end they went on and on, as the others did."]

PATTERNS = {
    "qwen2": (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+"),
    "llama-bpe": (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+"),
}
# The first two are the tokens that begin and end a text.
SPECIAL_TOKENS = {
    "qwen2": ["<|endoftext|>", "<|im_end|>", "<|im_start|>"],
    "llama-bpe": ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
}

# Rope scaling of Llama 3 with an original context so short that the prompts reach all three of its frequency bands.
LLAMA3_SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 64}

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
# So short an original context that every prompt is beyond it: transformers would change the table in mid-text.
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.0, 1.1, 1.3, 1.7, 2.5, 4.0, 7.0, 12.0]}

FIXTURES = [
    # seed, name, what it shows, architecture, config
    (1, "qwen2-tied", "QKV bias, grouped queries, tied output", "qwen2",
     {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}),
    (2, "qwen2-untied", "QKV bias, one KV head, own output matrix", "qwen2",
     {"num_attention_heads": 4, "num_key_value_heads": 1, "tie_word_embeddings": False}),
    (23, "llama", "interleaved rope pairs, grouped queries, own output matrix", "llama",
     {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}),
    (24, "llama3-scaled", "Llama 3 rope scaling, grouped queries, tied output", "llama",
     {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True, "rope_scaling": LLAMA3_SCALING}),
    (35, "qwen3-tied", "norms on Q and K, head size unlike width / heads, tied output", "qwen3",
     {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True, "head_dim": 16}),
    (46, "gemma2", "soft caps, GELU, post-norms, scaled embedding, a window in every other layer", "gemma2",
     {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False, "head_dim": 16,
      "query_pre_attn_scalar": 16, "sliding_window": 9, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0,
      "layer_types": ["sliding_attention", "full_attention"]}),
    (47, "gemma3", "a window and a rotation of its own in one layer, norms on Q and K, GELU, post-norms", "gemma3",
     {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True, "head_dim": 16,
      "query_pre_attn_scalar": 16, "sliding_window": 5, "rope_local_base_freq": 100.0,
      "layer_types": ["full_attention", "sliding_attention"]}),
    (58, "granite", "scales of embedding, scores, residual stream and logits", "granite",
     {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False, "embedding_multiplier": 6.0,
      "attention_multiplier": 0.3, "residual_multiplier": 0.4, "logits_scaling": 1.5}),
    (49, "olmo3", "no pre-norms, post-norms, norms on whole rows of Q and K, a window in one layer", "olmo2",
     {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False, "sliding_window": 6,
      "layer_types": ["sliding_attention", "full_attention"]}),
    (50, "phi3", "one tensor of Q, K and V, one of gate and up, part of a head rotates", "phi3",
     {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False, "pad_token_id": 0,
      "partial_rotary_factor": 0.5, "sliding_window": None}),
    (61, "phi3-long", "longrope, a window in every layer", "phi3",
     {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False, "pad_token_id": 0,
      "sliding_window": 7, "original_max_position_embeddings": 8, "rope_scaling": LONGROPE}),
    (62, "qwen3-yarn", "yarn, heads of 32", "qwen3",
     {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False, "head_dim": 32,
      "rope_scaling": YARN}),
]
CLASSES = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM),
           "qwen3": (Qwen3Config, Qwen3ForCausalLM), "gemma2": (Gemma2Config, Gemma2ForCausalLM),
           "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM), "granite": (GraniteConfig, GraniteForCausalLM),
           "olmo2": (Olmo3Config, Olmo3ForCausalLM), "phi3": (Phi3Config, Phi3ForCausalLM)}
# Norms of these are stored as 1 + weight in GGUF files, and applied so by transformers.
PLUS_ONE = ("gemma2", "gemma3")
# GGUF files of these have Q and K permuted.
INTERLEAVED = ("llama", "granite")

LAYER_TENSORS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
# What is called otherwise, or means something else.
OTHER_TENSORS = {
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
               "post_ffw_norm": "post_feedforward_layernorm"},
    "olmo2": {"ffn_norm": None, "post_attention_norm": "post_attention_layernorm",
              "post_ffw_norm": "post_feedforward_layernorm"},
    "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
}
OTHER_TENSORS["gemma3"] = OTHER_TENSORS["gemma2"]


def make_tokenizer(pre):
    tokenizer = Tokenizer(models.BPE())
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERNS[pre]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = VOCAB_SIZE - len(SPECIAL_TOKENS[pre])
    tokenizer.train_from_iterator(TOKENIZER_TEXT, trainers.BpeTrainer(
        vocab_size=merges, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(SPECIAL_TOKENS[pre])
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    return tokenizer


def make_model(architecture, options, seed):
    """Random weights, large enough that attention and logits are far from uniform."""
    config_class, model_class = CLASSES[architecture]
    config = config_class(vocab_size=VOCAB_SIZE, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                          max_position_embeddings=CONTEXT, rope_theta=10000.0, rms_norm_eps=1e-6,
                          attn_implementation="eager" if architecture == "gemma2" else "sdpa", **options)
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_((0 if architecture in PLUS_ONE else 1) + 0.2 * noise)
            elif name.endswith(".bias"):
                parameter.copy_(0.5 * noise)
            elif "embed_tokens" in name:  # small, or a tied model only repeats its input
                parameter.copy_(0.15 * noise)
            else:
                parameter.copy_(0.25 * noise)
    return model


def to_float64(model, architecture):
    """transformers computes norms and rope angles in float32 whatever the model's type: here they are float64 too."""
    def rms_norm(module, x):
        weight = module.weight + 1 if architecture in PLUS_ONE else module.weight
        eps = module.eps if architecture in PLUS_ONE else module.variance_epsilon
        return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    def rope_angles(module, x, position_ids, layer_type=None):
        angles = position_ids[..., None].double() * module.frequencies.double()
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos() * module.attention_scaling, angles.sin() * module.attention_scaling

    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = rms_norm.__get__(module)
        elif type(module).__name__.endswith("RotaryEmbedding"):
            module.frequencies = module.inv_freq
            if module.rope_type == "longrope":
                module.frequencies = module.rope_init_fn(module.config, "cpu", seq_len=CONTEXT)[0]
            module.forward = rope_angles.__get__(module)
    return model


def interleave_rope_pairs(weight, heads):
    """GGUF files of llama models store the rows of Q and K so that rope rotates adjacent pairs (0,1), (2,3), ... of a head;
    transformers rotates (0, d/2), (1, d/2 + 1), ..."""
    rows, cols = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def llama3_rope_factors(head_dim, theta, scaling):
    """What each rope frequency is divided by: 1 for short wavelengths, `factor` for long ones, between them a blend."""
    low_wavelength = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high_wavelength = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (i / head_dim)
        if wavelength < high_wavelength:
            factors.append(1.0)
        elif wavelength > low_wavelength:
            factors.append(scaling["factor"])
        else:
            smooth = ((scaling["original_max_position_embeddings"] / wavelength - scaling["low_freq_factor"]) /
                      (scaling["high_freq_factor"] - scaling["low_freq_factor"]))
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def add_metadata(gguf, name, architecture, config, head_dim):
    gguf.string("general.architecture", architecture)
    gguf.string("general.name", f"inferno test fixture {name}")
    gguf.string("general.license", "CC0-1.0")
    gguf.u32("general.file_type", 0)
    gguf.u32(f"{architecture}.context_length", CONTEXT)
    gguf.u32(f"{architecture}.embedding_length", config.hidden_size)
    gguf.u32(f"{architecture}.block_count", config.num_hidden_layers)
    gguf.u32(f"{architecture}.feed_forward_length", config.intermediate_size)
    gguf.u32(f"{architecture}.attention.head_count", config.num_attention_heads)
    gguf.u32(f"{architecture}.attention.head_count_kv", config.num_key_value_heads)
    gguf.f32(f"{architecture}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    gguf.f32(f"{architecture}.rope.freq_base", config.rope_theta)
    if architecture in ("qwen3", "gemma2", "gemma3"):
        gguf.u32(f"{architecture}.attention.key_length", head_dim)
        gguf.u32(f"{architecture}.attention.value_length", head_dim)
    if architecture == "llama":
        gguf.u32("llama.rope.dimension_count", head_dim)
        gguf.u32("llama.vocab_size", VOCAB_SIZE)
    scaling = getattr(config, "rope_scaling", None)
    if scaling and scaling.get("rope_type") == "yarn":
        gguf.string(f"{architecture}.rope.scaling.type", "yarn")
        gguf.f32(f"{architecture}.rope.scaling.factor", scaling["factor"])
        gguf.u32(f"{architecture}.rope.scaling.original_context_length", scaling["original_max_position_embeddings"])
    if getattr(config, "sliding_window", None) and hasattr(config, "layer_types"):
        windows = [kind == "sliding_attention" for kind in config.layer_types]
        if any(windows):
            gguf.u32(f"{architecture}.attention.sliding_window", config.sliding_window)
            gguf.booleans(f"{architecture}.attention.sliding_window_pattern", windows)
    if architecture == "gemma2":
        gguf.f32("gemma2.attn_logit_softcapping", config.attn_logit_softcapping)
        gguf.f32("gemma2.final_logit_softcapping", config.final_logit_softcapping)
    if architecture == "gemma3":
        gguf.f32("gemma3.rope.freq_base_swa", config.rope_local_base_freq)
    if architecture == "granite":
        gguf.f32("granite.embedding_scale", config.embedding_multiplier)
        gguf.f32("granite.attention.scale", config.attention_multiplier)
        gguf.f32("granite.residual_scale", config.residual_multiplier)
        gguf.f32("granite.logit_scale", config.logits_scaling)
    if architecture == "phi3":
        gguf.u32("phi3.rope.dimension_count", int(head_dim * config.partial_rotary_factor))
        gguf.u32("phi3.attention.sliding_window", config.sliding_window or 0)
        if scaling:
            original = config.original_max_position_embeddings
            factor = math.sqrt(1 + math.log(CONTEXT / original) / math.log(original))
            gguf.string("phi3.rope.scaling.type", "longrope")
            gguf.u32("phi3.rope.scaling.original_context_length", original)
            gguf.f32("phi3.rope.scaling.attn_factor", factor)


def add_tokenizer(gguf, tokenizer, pre):
    vocab = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(index) for index in range(VOCAB_SIZE)]
    types = [TOKEN_CONTROL if token in SPECIAL_TOKENS[pre] else TOKEN_NORMAL for token in tokens]
    begin, end = (tokens.index(token) for token in SPECIAL_TOKENS[pre][:2])
    gguf.string("tokenizer.ggml.model", "gpt2")
    gguf.string("tokenizer.ggml.pre", pre)
    gguf.strings("tokenizer.ggml.tokens", tokens)
    gguf.i32s("tokenizer.ggml.token_type", types)
    gguf.strings("tokenizer.ggml.merges", [merge if isinstance(merge, str) else " ".join(merge) for merge in vocab["merges"]])
    gguf.u32("tokenizer.ggml.bos_token_id", begin)
    gguf.u32("tokenizer.ggml.eos_token_id", end)
    gguf.boolean("tokenizer.ggml.add_bos_token", pre == "llama-bpe")


def add_tensors(gguf, architecture, model, head_dim):
    config, state = model.config, model.state_dict()

    def add(name, array):
        gguf.tensor(name, array.shape, F32, np.ascontiguousarray(array, dtype="<f4").tobytes())

    add("token_embd.weight", state["model.embed_tokens.weight"].numpy())
    for layer in range(config.num_hidden_layers):
        for ours, theirs in (LAYER_TENSORS | OTHER_TENSORS.get(architecture, {})).items():
            for part in ("weight", "bias"):
                tensor = state.get(f"model.layers.{layer}.{theirs}.{part}")
                if tensor is None:
                    continue
                array = tensor.numpy() + (1 if architecture in PLUS_ONE and "norm" in ours else 0)
                if architecture in INTERLEAVED and ours in ("attn_q", "attn_k"):
                    array = interleave_rope_pairs(array, len(array) // head_dim)
                add(f"blk.{layer}.{ours}.{part}", array)
    scaling = getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type") == "llama3":
        add("rope_freqs.weight", llama3_rope_factors(head_dim, config.rope_theta, scaling))
    if "long_factor" in scaling:
        add("rope_factors_long.weight", np.array(scaling["long_factor"]))
        add("rope_factors_short.weight", np.array(scaling["short_factor"]))
    add("output_norm.weight", state["model.norm.weight"].numpy() + (1 if architecture in PLUS_ONE else 0))
    if not config.tie_word_embeddings:
        add("output.weight", state["lm_head.weight"].numpy())


@torch.inference_mode()
def continue_greedily(model, ids):
    """The logits of all prompt positions, the greedy tokens, and the margin of the best logit at each of them."""
    prompt_logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    greedy, margins = [], []
    for _ in range(GREEDY_TOKENS):
        logits = model(torch.tensor([ids + greedy]), use_cache=False).logits[0, -1]
        best = torch.topk(logits, 2)
        greedy.append(best.indices[0].item())
        margins.append(round((best.values[0] - best.values[1]).item(), 6))
    return prompt_logits, greedy, margins


def make_fixture(out, seed, name, shows, architecture, options):
    pre = "llama-bpe" if architecture == "llama" else "qwen2"
    tokenizer = make_tokenizer(pre)
    model = make_model(architecture, options, seed)
    head_dim = options.get("head_dim", model.config.hidden_size // model.config.num_attention_heads)

    gguf = GgufFile()
    add_metadata(gguf, name, architecture, model.config, head_dim)
    add_tokenizer(gguf, tokenizer, pre)
    add_tensors(gguf, architecture, model, head_dim)
    gguf.write(out / f"{name}.gguf")

    to_float64(model, architecture)
    prompts = []
    for index, text in enumerate(PROMPTS):
        ids = tokenizer.encode(text).ids
        if pre == "llama-bpe":
            ids = [tokenizer.token_to_id(SPECIAL_TOKENS[pre][0])] + ids
        logits, greedy, margins = continue_greedily(model, ids)
        if any(tokenizer.id_to_token(token) in SPECIAL_TOKENS[pre] for token in greedy):
            raise SystemExit(f"{name}: the greedy text has an end token in it; choose another seed")
        file_name = f"{name}-p{index}.bin"
        logits.numpy().astype("<f4").tofile(out / file_name)
        prompts.append({"text": text, "ids": ids, "logits": file_name, "greedy": greedy, "margins": margins})
        print(f"{name} p{index}: {len(ids)} tokens, logits' standard deviation {logits.std().item():.2f}, "
              f"{len(set(greedy))} different greedy tokens, smallest margin {min(margins)}")
    return {"name": name, "model": f"{name}.gguf", "architecture": architecture, "shows": shows, "vocab": VOCAB_SIZE,
            "prompts": prompts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
    parser.add_argument("--out", type=pathlib.Path, default=default, help="folder to write to (default: tests/fixtures)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    fixtures = [make_fixture(out, *fixture) for fixture in FIXTURES]
    manifest = {"made_by": "tools/make_fixture_models.py: transformers, float64",
                "logits": "float32, little-endian, [tokens of the prompt, vocab]", "models": fixtures}
    write_json(out / "manifest.json", manifest)


if __name__ == "__main__":
    main()
