"""Writes what real models continue texts with, by transformers in float64 on the dequantized weights: NAME_greedy.json.

For 20 prompts: the token ids, up to 32 greedy tokens, the second best at each of them, and the margin between the logits of
both.

An engine that multiplies with quantized weights rounds activations to 8 bits, so that choices with a small margin may differ.
How small is computed here too: `noise_rms` is the RMS distance, less the mean, that the logits of all greedy positions have
from those of the same model with the input of every matrix rounded, as inferno does: in blocks of 256 (K formats) or
32 elements (the others) to multiples of the largest magnitude / 127.

Needs torch, transformers (tested with 2.15 and 5.23) and gguf, and the models (make model, make model NAME=gemma3-270m).

usage: tools/make_greedy_references.py --out DIR smollm2 gemma3-270m
"""

import argparse
import dataclasses
import pathlib

import torch

import transformers_float64  # noqa: F401  before transformers
from fixture_json import write_json
from gguf import GGMLQuantizationType, GGUFReader, dequantize
from make_fixture_models import CLASSES, INTERLEAVED, LAYER_TENSORS, OTHER_TENSORS, PLUS_ONE
from transformers import AutoTokenizer, __version__

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEW_TOKENS = 32
EXACT_TYPES = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)

TEXTS = [
    "Once upon a time",
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n",
    "The three primary colours are",
    "In 1969, the first humans",
    "To make a cup of tea, first",
    "The opposite of hot is",
    "Dear Sir or Madam,\n\n",
    "1, 2, 3, 4, 5,",
]
QUESTIONS = [
    "What is an atom?",
    "Name three fruits.",
    "Write a haiku about the sea.",
    "How many legs does a spider have?",
    "Translate 'good morning' into French.",
    "Why is the sky blue?",
    "What is 12 + 30?",
    "Give me a short recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
    "Explain gravity to a child.",
]
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n")
MORE_TEXTS = [
    "Die Hauptstadt von Deutschland ist",
    "Monday, Tuesday, Wednesday,",
    "The quick brown fox",
    "import numpy as np\n\n",
    "Q: What is an atom?\nA:",
    "Il était une fois",
    "The mitochondria is the",
    "<html>\n<head>\n",
    "Roses are red, violets are",
    # More tokens than the window of 512.
    " ".join(f"The number after {n} is {n + 1}." for n in range(1, 65)),
]


@dataclasses.dataclass
class Model:
    file: str
    texts: list[str]


MODELS = {"smollm2": Model("smollm2-135m-instruct.gguf", TEXTS + [CHAT.format(question) for question in QUESTIONS]),
          "gemma3-270m": Model("gemma3-270m.gguf", TEXTS + MORE_TEXTS)}


def make_config(reader, architecture):
    def value(key, otherwise=None):
        field = reader.fields.get(f"{architecture}.{key}")
        return otherwise if field is None else field.contents()

    embedding = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    heads = value("attention.head_count")
    head_dim = value("attention.key_length", value("embedding_length") // heads)
    options = {"vocab_size": int(embedding.shape[1]), "hidden_size": value("embedding_length"), "head_dim": head_dim,
               "intermediate_size": value("feed_forward_length"), "num_hidden_layers": value("block_count"),
               "num_attention_heads": heads, "num_key_value_heads": value("attention.head_count_kv"),
               "max_position_embeddings": value("context_length"), "tie_word_embeddings": True,
               "rms_norm_eps": value("attention.layer_norm_rms_epsilon")}
    theta = {"rope_type": "default", "rope_theta": value("rope.freq_base", 10000.0)}
    if architecture == "gemma3":
        # Every sixth layer sees all positions; the others a window, with a rotation of their own.
        local = {"rope_type": "default", "rope_theta": value("rope.freq_base_swa", 10000.0)}
        options |= {"sliding_window": value("attention.sliding_window"), "query_pre_attn_scalar": head_dim,
                    "layer_types": ["full_attention" if (layer + 1) % 6 == 0 else "sliding_attention"
                                    for layer in range(value("block_count"))],
                    "rope_parameters": {"full_attention": theta, "sliding_attention": local}}
    else:
        options["rope_parameters"] = theta
    return CLASSES[architecture][0](**options)


def split_rope_pairs(weight, heads):
    """The inverse of make_fixture_models.interleave_rope_pairs."""
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def load(path):
    """(the model, the block of activations that each matrix's product rounds, by transformers' names)"""
    reader = GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    config = make_config(reader, architecture)
    names = LAYER_TENSORS | OTHER_TENSORS.get(architecture, {})
    state, blocks = {}, {}
    for tensor in reader.tensors:
        stem = tensor.name.removesuffix(".weight")
        array = dequantize(tensor.data, tensor.tensor_type).astype("f8")
        if "norm" in stem and architecture in PLUS_ONE:
            array -= 1
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            theirs = f"model.layers.{layer}.{names[part]}"
            if architecture in INTERLEAVED and part in ("attn_q", "attn_k"):
                array = split_rope_pairs(array, len(array) // config.head_dim)
        else:
            theirs = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[stem]
        state[f"{theirs}.weight"] = torch.from_numpy(array)
        if tensor.tensor_type not in EXACT_TYPES:
            linear = "lm_head" if stem == "token_embd" else theirs
            blocks[linear] = 256 if tensor.tensor_type.name.endswith("_K") else 32
    model = CLASSES[architecture][1](config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"{path}: {missing} missing, {unexpected} unexpected")
    model.tie_weights()
    return model.eval(), blocks


def round_activations(block):
    def hook(_, arguments):
        x = arguments[0]
        parts = x.reshape(-1, block)
        step = parts.abs().amax(1, keepdim=True) / 127
        return (torch.where(step > 0, torch.round(parts / step) * step, 0.0).reshape(x.shape),)
    return hook


@torch.inference_mode()
def continue_greedily(model, prompt, end):
    """(greedy tokens, the second best, margins, logits [greedy tokens, vocabulary])"""
    cache, step, greedy, rows = None, prompt, [], []
    while len(greedy) < NEW_TOKENS and (not greedy or greedy[-1] != end):
        result = model(torch.tensor([step]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = result.past_key_values
        rows.append(result.logits[0, -1])
        greedy.append(int(rows[-1].argmax()))
        step = greedy[-1:]
    logits = torch.stack(rows)
    best = torch.topk(logits, 2)
    return greedy, best.indices[:, 1].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist(), logits


@torch.inference_mode()
def noise_variances(model, blocks, prompts, logits):
    """Of the difference that rounded activations make, one per greedy position: a shift of all logits changes no choice."""
    hooks = [model.get_submodule(name).register_forward_pre_hook(round_activations(block)) for name, block in blocks.items()]
    variances = []
    for prompt, exact in zip(prompts, logits):
        ids = prompt["ids"] + prompt["greedy"][:-1]
        rounded = model(torch.tensor([ids]), use_cache=False, logits_to_keep=len(exact)).logits[0]
        variances.append((rounded - exact).var(1, correction=0))
    for hook in hooks:
        hook.remove()
    return torch.cat(variances)


def make_reference(name, out):
    path = ROOT / "models" / MODELS[name].file
    model, blocks = load(path)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    prompts, logits = [], []
    for text in MODELS[name].texts:
        ids = tokenizer(text)["input_ids"]
        greedy, seconds, margins, rows = continue_greedily(model, ids, tokenizer.eos_token_id)
        prompts.append({"text": text, "ids": ids, "greedy": greedy, "seconds": seconds,
                        "margins": [round(margin, 4) for margin in margins]})
        logits.append(rows)
        print(repr(tokenizer.decode(greedy)), flush=True)
    noise = float(noise_variances(model, blocks, prompts, logits).mean().sqrt())
    write_json(out / f"{name}_greedy.json",
               {"made_by": f"tools/make_greedy_references.py: transformers {__version__} in float64",
                "noise_rms": round(noise, 4), "prompts": prompts})
    print(f"{name}: noise {noise:.4f}; {sum(len(prompt['greedy']) for prompt in prompts)} greedy tokens, "
          f"{sum(margin < 4 * noise for prompt in prompts for margin in prompt['margins'])} with a margin below 4 times the noise")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=MODELS)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "fixtures")
    arguments = parser.parse_args()
    for name in arguments.names:
        make_reference(name, arguments.out)


if __name__ == "__main__":
    main()
