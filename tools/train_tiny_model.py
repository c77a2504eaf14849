"""Trains the small Qwen3-architecture model that is built into inferno.

The corpus is public-domain books: xz-compressed text files, books separated by a NUL line, children's books first. The
script trains a byte-level BPE of 8,192 tokens with Qwen's pre-tokenizer, then the model in bfloat16 with AdamW for a
given time on one GPU, and writes a checkpoint (config.json, tokenizer.json, model-*.safetensors) and reference.json:
last-position logits and greedy tokens of a few prompts. tools/tiny_model_to_gguf.py turns the checkpoint into GGUF.

Needs torch (CUDA), transformers, tokenizers, safetensors and numpy.
"""

import argparse
import json
import lzma
import pathlib
import random
import time

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB_SIZE = 8192
END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = [END_OF_TEXT, "<|im_start|>", "<|im_end|>"]
QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")

SEQUENCE = 512  # tokens
BATCH = 128     # sequences
PEAK_LEARNING_RATE = 2e-3
WARM_UP_SECONDS = 20.0
DECAY_BEGINS = 0.3  # share of the time after which the learning rate falls linearly to zero

VALIDATION_TOKENS = 400_000
CHILDREN_TOKENS = 4_400_000  # the children's books, validation included, come first
CHILDREN_WEIGHT = 3          # and are weighted by this factor

PART_BYTES = 15_500_000  # largest checkpoint part

PROMPTS = [
    "Once upon a time", "It was a dark and stormy night", '"Elementary, my dear Watson," said',
    "The old captain looked out over the sea", "In the year 1851,", "Alice",
]

START = time.time()


def say(*words):
    print(f"[{time.time() - START:6.1f}]", *words, flush=True)


def read_books(paths):
    text = "\n\x00\n".join(lzma.open(path, "rt", encoding="utf-8").read() for path in paths)
    books = [book.strip() for book in text.split("\x00") if len(book) > 1000]
    say("books", len(books), "characters", len(text))
    return books


def pieces(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


def train_tokenizer(books):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=SPECIAL_TOKENS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # A fifth of the text is plenty for 8,192 tokens.
    random.seed(1)
    sample = [piece for book in books for piece in pieces(book, 20_000) if random.random() < 0.2]
    tokenizer.train_from_iterator(sample, trainer)
    say("tokenizer trained", tokenizer.get_vocab_size())
    return tokenizer


def encode_books(tokenizer, books):
    """All books as one array of token ids, an end token after each book."""
    end_of_text = tokenizer.token_to_id(END_OF_TEXT)
    chunks = []  # (text, it is the last of its book)
    for book in books:
        parts = pieces(book, 50_000)
        chunks += [(part, part_index + 1 == len(parts)) for part_index, part in enumerate(parts)]
    ids = []
    for begin in range(0, len(chunks), 2048):
        group = chunks[begin:begin + 2048]
        for encoding, (_, last) in zip(tokenizer.encode_batch([text for text, _ in group]), group):
            ids.append(np.array(encoding.ids + ([end_of_text] if last else []), dtype=np.uint16))
    return np.concatenate(ids)


def load_tokens(corpus, cache):
    """The tokenizer and the corpus as token ids, from the cache folder when they are there."""
    ids_path, tokenizer_path = cache / "ids.npy", cache / "tokenizer.json"
    if ids_path.exists():
        tokenizer, ids = Tokenizer.from_file(str(tokenizer_path)), np.load(ids_path)
    else:
        books = read_books(corpus)
        tokenizer = train_tokenizer(books)
        ids = encode_books(tokenizer, books)
        cache.mkdir(parents=True, exist_ok=True)
        np.save(ids_path, ids)
        tokenizer.save(str(tokenizer_path))
    say("tokens", len(ids))
    return tokenizer, torch.from_numpy(ids.astype(np.int32)).cuda()


def make_model(end_of_text):
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE, hidden_size=512, intermediate_size=1280, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_theta=10000.0, bos_token_id=end_of_text, eos_token_id=end_of_text, pad_token_id=end_of_text,
        attention_dropout=0.0)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Qwen3ForCausalLM(config).cuda()
    say("parameters", sum(parameter.numel() for parameter in model.parameters()))
    return model


class Trainer:
    def __init__(self, model, tokens):
        children = tokens[VALIDATION_TOKENS:CHILDREN_TOKENS]
        self.validation = tokens[:VALIDATION_TOKENS]
        self.tokens = torch.cat([children] * CHILDREN_WEIGHT + [tokens[CHILDREN_TOKENS:]])
        self.model = model
        self.core = torch.compile(model.model)
        matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
        vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=1e-3, betas=(0.9, 0.95), fused=True)
        self.window = torch.arange(SEQUENCE + 1, device="cuda")

    def loss(self, windows):
        """Mean cross entropy of windows (sequences, SEQUENCE + 1), each token predicted from those before it."""
        inputs, targets = windows[:, :-1], windows[:, 1:]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            hidden = self.core(input_ids=inputs, use_cache=False).last_hidden_state
            logits = torch.nn.functional.linear(hidden, self.model.lm_head.weight)
        return torch.nn.functional.cross_entropy(logits.float().view(-1, VOCAB_SIZE), targets.reshape(-1))

    def random_windows(self):
        begins = torch.randint(0, self.tokens.numel() - SEQUENCE - 1, (BATCH,), device="cuda")
        return self.tokens[begins[:, None] + self.window].long()

    def validation_loss(self):
        self.model.eval()
        length = SEQUENCE + 1
        windows = self.validation[:self.validation.numel() // length * length].view(-1, length).long()
        losses = []
        with torch.no_grad():
            for begin in range(0, min(len(windows), 512), BATCH):
                group = windows[begin:begin + BATCH]
                if len(group) == BATCH:  # another size would compile the model again
                    losses.append(self.loss(group).item())
        self.model.train()
        return sum(losses) / len(losses)

    def step(self, learning_rate):
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        loss = self.loss(self.random_windows())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def run(self, seconds):
        # Compile the training and the evaluation graph before the clock starts.
        self.loss(self.random_windows()).backward()
        self.optimizer.zero_grad()
        self.validation_loss()
        torch.cuda.synchronize()
        say("compiled")

        begin, steps = time.time(), 0
        while (elapsed := time.time() - begin) <= seconds:
            warm_up = min(1, elapsed / WARM_UP_SECONDS)
            decay = 1 - max(0.0, (elapsed / seconds - DECAY_BEGINS) / (1 - DECAY_BEGINS))
            loss = self.step(max(PEAK_LEARNING_RATE * warm_up * decay, 1e-6))
            steps += 1
            if steps % 500 == 0:
                say("step", steps, "tokens", steps * BATCH * SEQUENCE, "train", round(loss.item(), 4), "validation",
                    round(self.validation_loss(), 4))
            elif steps % 20 == 0:
                torch.cuda.synchronize()  # keeps the queue short, so that the clock above is accurate
        say("done", steps, "tokens", steps * BATCH * SEQUENCE, "validation", self.validation_loss())


def save_checkpoint(model, tokenizer, out):
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "config.json").write_text(json.dumps(model.config.to_dict(), indent=1, default=str))
    parts, size = [{}], 0
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":  # tied to the embedding
            continue
        tensor_bytes = tensor.numel() * tensor.element_size()
        if size + tensor_bytes > PART_BYTES and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][name] = tensor.contiguous()
        size += tensor_bytes
    for index, part in enumerate(parts):
        save_file(part, str(out / f"model-{index}.safetensors"))


@torch.inference_mode()
def write_reference(model, tokenizer, out):
    """The model's output in float32, as a reference for other engines, and two samples to read."""
    end_of_text = tokenizer.token_to_id(END_OF_TEXT)

    def continue_prompt(ids, **options):
        return model.generate(ids, pad_token_id=end_of_text, **options)[0, ids.shape[1]:].tolist()

    def encode(prompt):
        return torch.tensor([tokenizer.encode(prompt).ids], device="cuda")

    results = []
    for prompt in PROMPTS:
        ids = encode(prompt)
        logits = model(ids).logits[0, -1].tolist()
        greedy = continue_prompt(ids, max_new_tokens=96, do_sample=False)
        text = tokenizer.decode(greedy)
        results.append({"prompt": prompt, "ids": ids[0].tolist(), "last_logits": [round(value, 5) for value in logits],
                        "greedy": greedy, "text": text})
        say(repr(prompt), "->", text[:300].replace("\n", " / "))
    for prompt in PROMPTS[:3]:
        torch.manual_seed(3)
        sampled = continue_prompt(encode(prompt), max_new_tokens=120, do_sample=True, temperature=0.8, top_k=40)
        say("sampled", repr(prompt), "->", tokenizer.decode(sampled)[:500].replace("\n", " / "))
    (out / "reference.json").write_text(json.dumps(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=pathlib.Path, nargs="+", help="text files (.xz), books separated by a NUL line")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--seconds", type=float, required=True, help="training time")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("tiny_cache"),
                        help="folder that keeps the tokenizer and the tokens between runs (default: tiny_cache)")
    arguments = parser.parse_args()

    tokenizer, tokens = load_tokens(arguments.corpus, arguments.cache)
    model = make_model(tokenizer.token_to_id(END_OF_TEXT))
    Trainer(model, tokens).run(arguments.seconds)

    model = model.to(torch.bfloat16).eval()
    save_checkpoint(model, tokenizer, arguments.out)
    write_reference(model.float(), tokenizer, arguments.out)


if __name__ == "__main__":
    main()
