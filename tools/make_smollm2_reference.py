"""Writes llama.cpp's greedy tokens of SmolLM2-135M-Instruct: tests/fixtures/smollm2_greedy.json.

For 20 prompts: the token ids, up to 32 greedy tokens and the margin between the two best logits at each of them. The
margin below which a choice is noise is measured too: `noise_rms` is the RMS distance, less the mean, between these logits and
those of the same weights as F32, that is without quantized activations, over all greedy positions.

Needs llama-cpp-python and numpy, and the model (make model).
"""

import argparse
import pathlib
import tempfile

import llama_cpp
import numpy as np

from fixture_json import write_json

NEW_TOKENS = 32

PROMPTS = [
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


def load(path):
    """One thread and an f32 cache: nothing between the logits and the model but its own arithmetic."""
    return llama_cpp.Llama(str(path), n_ctx=512, n_threads=1, n_threads_batch=1, logits_all=True, flash_attn=False,
                           type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, verbose=False)


def logits_after(model, ids):
    model.reset()
    model.eval(ids)
    return np.array(model.scores[:len(ids)], dtype=np.float32)


def continue_greedily(model, prompt):
    """(greedy tokens, margins, logits [greedy tokens, vocabulary])"""
    ids, rows = list(prompt), []
    model.reset()
    model.eval(prompt)
    while len(rows) < NEW_TOKENS:
        rows.append(np.array(model.scores[model.n_tokens - 1], dtype=np.float32))
        ids.append(int(rows[-1].argmax()))
        if ids[-1] == model.token_eos():
            break
        model.eval(ids[-1:])
    best = np.sort(np.stack(rows), axis=1)[:, -2:]
    return ids[len(prompt):], best[:, 1] - best[:, 0], np.stack(rows)


def write_as_f32(source, target):
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
    parameters.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), parameters) != 0:
        raise SystemExit(f"llama.cpp could not convert {source} to F32")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, default=root / "models" / "smollm2-135m-instruct.gguf")
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests" / "fixtures" / "smollm2_greedy.json")
    arguments = parser.parse_args()

    model = load(arguments.model)
    prompts, logits = [], []
    for text in PROMPTS + [CHAT.format(question) for question in QUESTIONS]:
        ids = model.tokenize(text.encode(), add_bos=False, special=True)
        greedy, margins, rows = continue_greedily(model, ids)
        prompts.append({"text": text, "ids": ids, "greedy": greedy, "margins": [round(float(m), 4) for m in margins]})
        logits.append(rows)
        print(repr(model.detokenize(greedy).decode(errors="replace")))

    with tempfile.TemporaryDirectory() as folder:
        exact_path = pathlib.Path(folder) / "f32.gguf"
        write_as_f32(arguments.model, exact_path)
        exact_model = load(exact_path)
        variances = []
        for prompt, rows in zip(prompts, logits):
            exact = logits_after(exact_model, prompt["ids"] + prompt["greedy"][:-1])[len(prompt["ids"]) - 1:]
            variances.append((rows - exact).var(axis=1))  # a shift of all logits changes no choice
    noise = float(np.sqrt(np.concatenate(variances).mean()))

    reference = {"made_by": f"tools/make_smollm2_reference.py: llama-cpp-python {llama_cpp.__version__}, f32 cache",
                 "noise_rms": round(noise, 4), "prompts": prompts}
    write_json(arguments.out, reference)
    print(f"noise {noise:.4f}; {sum(len(p['greedy']) for p in prompts)} greedy tokens, "
          f"{sum(m < 2 * noise for p in prompts for m in p['margins'])} with a margin below twice the noise")


if __name__ == "__main__":
    main()
