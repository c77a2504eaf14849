"""Writes the tokenizer data of tests/data: small vocabularies of our own, and what reference tokenizers do with them.

- vocab/books-KIND.gguf: the first merges of the built-in model's vocabulary with the pre-tokenizer KIND, no tensors;
  tokens/books-KIND.jsonl: for each string of tokens/strings.jsonl its `ids`, `ids_plain` (no added token recognized) and
  whether decoding gives the string back; decode/books-KIND.jsonl: random ids, their bytes and the decoded text.
  All by Hugging Face's tokenizers.
- vocab/books-spm.gguf, tokens/books-spm.jsonl: a SentencePiece BPE trained on TEXT, and the strings' ids by sentencepiece.
- vocab/books-gemma4.gguf, tokens/books-gemma4.jsonl: the same tokens as a BPE of characters with a list of merges, as
  Gemma 4 has them, and the strings' ids by Hugging Face's tokenizers.

- vocab/books-unigram.gguf, tokens/books-unigram.jsonl: the same with a SentencePiece Unigram and its usual normalization.
- vocab/books-wordpiece.gguf, tokens/books-wordpiece.jsonl: a WordPiece vocabulary trained on TEXT, and the strings' ids by
  Hugging Face's tokenizers.

Needs the packages tokenizers, sentencepiece and gguf (tested with 0.23, 0.2 and 0.17).

usage: tools/make_tokenizer_references.py TEXT    (a text in the public domain, for the SentencePiece vocabulary)
"""

import argparse
import json
import pathlib
import random
import tempfile

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from gguf_file import GgufFile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MERGES = 1500
SPM_TOKENS = 512
UNIGRAM_TOKENS = 800
WORDPIECE_TOKENS = 1500
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
# KIND: name in tokenizer.ggml.pre, pre-tokenizer, normalizer, whole words are looked up before merging
KINDS = {
    "gpt2": ("gpt-2", GPT2, None, False),
    "llama3": ("llama-bpe", pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3.replace("DIGITS", r"\p{N}{1,3}")), "isolated"), BYTES]), None, True),
    "qwen2": ("qwen2", pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3.replace("DIGITS", r"\p{N}")), "isolated"), BYTES]), normalizers.NFC(), False),
    "smollm": ("smollm", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2]), None, False),
}
# No merge leads to these: only a lookup of whole words finds them.
UNREACHABLE = ["\u0120identifier", "Zzyzx"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
# Runs of newlines and spaces, which are where Gemma's tokenizer differs from others.
CHARACTER_STRINGS = ["\n", "\n\n\n\n\n\n\n", "a\n \n\nb", " \n  the   end \n", "\u2581the\u2581end",
                     "<|turn>user\nHello there.<turn|>\n<|turn>model\n", "<0x41>", "\t\r\n\t"]


def read_vocabulary():
    """Tokens and merges of the built-in model: byte tokens and the first MERGES merges."""
    fields = gguf.GGUFReader(ROOT / "models/tiny-books-26m.gguf").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    first = len(tokens) - len(merges)
    return tokens[:first + MERGES], merges[:MERGES]


def byte_of_character():
    """The characters that byte-level BPE writes bytes as."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in keep}
    table.update({chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in keep)})
    return table


def make_tokenizer(kind, tokens, merges, added):
    _, pre_tokenizer, normalizer, ignore_merges = KINDS[kind]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)},
                                     [tuple(merge.split(" ")) for merge in merges], ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    if added:
        tokenizer.add_special_tokens(SPECIAL)
        tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ADDED])
    return tokenizer


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_byte_level(kind, out, strings):
    tokens, merges = read_vocabulary()
    tokens = tokens + UNREACHABLE + ADDED
    types = [CONTROL if token in SPECIAL else USER_DEFINED if token in ADDED else NORMAL for token in tokens]
    file = GgufFile()
    file.string("tokenizer.ggml.model", "gpt2")
    file.string("tokenizer.ggml.pre", KINDS[kind][0])
    file.strings("tokenizer.ggml.tokens", tokens)
    file.i32s("tokenizer.ggml.token_type", types)
    file.strings("tokenizer.ggml.merges", merges)
    file.u32("tokenizer.ggml.eos_token_id", tokens.index("<|endoftext|>"))
    file.write(out / f"vocab/books-{kind}.gguf")

    aware, plain = (make_tokenizer(kind, tokens, merges, added) for added in (True, False))
    rows = []
    for text in strings:
        ids = aware.encode(text).ids
        rows.append({"text": text, "ids": ids, "ids_plain": plain.encode(text).ids,
                     "decoded_ok": aware.decode(ids, skip_special_tokens=False) == text})
    write_lines(out / f"tokens/books-{kind}.jsonl", rows)

    byte_of = byte_of_character()
    pieces = [bytes(token, "utf-8") if token in SPECIAL + ADDED else bytes(byte_of[c] for c in token) for token in tokens]
    single = [i for i, piece in enumerate(pieces) if len(piece) == 1]
    rng = random.Random(kind)
    rows = []
    for i in range(60):
        # Single bytes, so that UTF-8 sequences are split, wrong and unfinished; and whole characters byte by byte.
        if i % 3 == 0:
            ids = [rng.randrange(len(tokens)) for _ in range(rng.randint(1, 8))]
        elif i % 3 == 1:
            ids = [rng.choice(single) for _ in range(rng.randint(1, 8))]
        else:
            text = rng.choice(["na\u00efve \u20ac5", "\U0001f525 hot", "\u4f60\u597d", "\U0001f469\u200d\U0001f680"])
            ids = [pieces.index(bytes([byte])) for byte in text.encode()][:rng.randint(2, 12)]
        rows.append({"ids": ids, "bytes_hex": b"".join(pieces[i] for i in ids).hex(),
                     "pieces_hex": [pieces[i].hex() for i in ids], "hf_decode": aware.decode(ids, skip_special_tokens=False)})
    write_lines(out / f"decode/books-{kind}.jsonl", rows)


def write_sentencepiece(text, out, strings):
    with tempfile.TemporaryDirectory() as folder:
        prefix = f"{folder}/spm"
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=prefix, model_type="bpe", vocab_size=SPM_TOKENS, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, num_threads=1,
            character_coverage=1.0, minloglevel=2)
        model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    ids = range(model.get_piece_size())
    file = GgufFile()
    file.string("tokenizer.ggml.model", "llama")
    file.strings("tokenizer.ggml.tokens", [model.id_to_piece(i) for i in ids])
    file.f32s("tokenizer.ggml.scores", [model.get_score(i) for i in ids])
    file.i32s("tokenizer.ggml.token_type", [
        UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else BYTE if model.is_byte(i) else NORMAL
        for i in ids])
    file.u32("tokenizer.ggml.bos_token_id", model.bos_id())
    file.u32("tokenizer.ggml.eos_token_id", model.eos_id())
    file.u32("tokenizer.ggml.unknown_token_id", model.unk_id())
    file.write(out / "vocab/books-spm.gguf")
    write_lines(out / "tokens/books-spm.jsonl", [{"text": text, "ids": model.encode(text)} for text in strings])


def merges_of(scores):
    """Each token from every two others it can be made of; better tokens first. `scores`: by text."""
    merges = []
    for token, score in scores.items():
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        merges += [(-score, *pair) for pair in pairs if pair[0] in scores and pair[1] in scores]
    return [(left, right) for _, left, right in sorted(merges, key=lambda merge: merge[0])]


def write_character_bpe(out, strings):
    fields = gguf.GGUFReader(out / "vocab/books-spm.gguf").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    scores = dict(zip(tokens, fields["tokenizer.ggml.scores"].contents()))
    newlines = ["\n" * count for count in range(1, 6)]
    turns = ["<|turn>", "<turn|>"]
    scores = {token: scores[token] for token, kind in zip(tokens, types) if kind == NORMAL}
    scores.update({token: 100.0 - len(token) for token in newlines})
    tokens = tokens + newlines + turns + ADDED
    types = types + [NORMAL] * len(newlines) + [CONTROL] * len(turns) + [USER_DEFINED] * len(ADDED)
    merges = merges_of(scores)
    file = GgufFile()
    file.string("tokenizer.ggml.model", "gemma4")
    file.strings("tokenizer.ggml.tokens", tokens)
    file.i32s("tokenizer.ggml.token_type", types)
    file.strings("tokenizer.ggml.merges", [" ".join(merge) for merge in merges])
    file.u32("tokenizer.ggml.bos_token_id", tokens.index("<s>"))
    file.u32("tokenizer.ggml.eos_token_id", tokens.index("</s>"))
    file.u32("tokenizer.ggml.unknown_token_id", tokens.index("<unk>"))
    file.write(out / "vocab/books-gemma4.gguf")

    rows = []
    tokenizers = []
    for added in (True, False):
        tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges, unk_token="<unk>",
                                         byte_fallback=True, fuse_unk=False))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        if added:
            tokenizer.add_special_tokens(["<s>", "</s>", *turns])
            tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ADDED])
        tokenizers.append(tokenizer)
    for text in [*strings, *CHARACTER_STRINGS]:
        aware, plain = (tokenizer.encode(text).ids for tokenizer in tokenizers)
        rows.append({"text": text, "ids": aware, "ids_plain": plain})
    write_lines(out / "tokens/books-gemma4.jsonl", rows)


def write_unigram(text, out, strings):
    with tempfile.TemporaryDirectory() as folder:
        prefix = f"{folder}/unigram"
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=prefix, model_type="unigram", vocab_size=UNIGRAM_TOKENS, num_threads=1,
            pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2)
        model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
        charsmap = sentencepiece_model_pb2.ModelProto.FromString(
            pathlib.Path(prefix + ".model").read_bytes()).normalizer_spec.precompiled_charsmap
    ids = range(model.get_piece_size())
    file = GgufFile()
    file.string("tokenizer.ggml.model", "t5")
    file.strings("tokenizer.ggml.tokens", [model.id_to_piece(i) for i in ids])
    file.f32s("tokenizer.ggml.scores", [model.get_score(i) for i in ids])
    file.i32s("tokenizer.ggml.token_type", [
        UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else NORMAL for i in ids])
    file.u8s("tokenizer.ggml.precompiled_charsmap", charsmap)
    file.u32("tokenizer.ggml.eos_token_id", model.eos_id())
    file.u32("tokenizer.ggml.unknown_token_id", model.unk_id())
    file.u32("tokenizer.ggml.padding_token_id", model.pad_id())
    file.write(out / "vocab/books-unigram.gguf")
    write_lines(out / "tokens/books-unigram.jsonl", [{"text": text, "ids": model.encode(text)} for text in strings])


def write_wordpiece(text, out, strings):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train([str(text)], trainers.WordPieceTrainer(vocab_size=WORDPIECE_TOKENS, special_tokens=MARKS,
                                                           show_progress=False))
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    file = GgufFile()
    file.string("tokenizer.ggml.model", "bert")
    file.strings("tokenizer.ggml.tokens", [
        t if t in MARKS else t[2:] if t.startswith("##") else "\u2581" + t for t in tokens])
    file.i32s("tokenizer.ggml.token_type", [CONTROL if t in MARKS else NORMAL for t in tokens])
    file.u32("tokenizer.ggml.cls_token_id", tokens.index("[CLS]"))
    file.u32("tokenizer.ggml.seperator_token_id", tokens.index("[SEP]"))
    file.u32("tokenizer.ggml.unknown_token_id", tokens.index("[UNK]"))
    file.write(out / "vocab/books-wordpiece.gguf")
    write_lines(out / "tokens/books-wordpiece.jsonl",
                [{"text": text, "ids": tokenizer.encode(text).ids} for text in strings])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path, help="a text in the public domain")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/data", help="folder to write to")
    args = parser.parse_args()
    strings = [json.loads(line) for line in (ROOT / "tests/data/tokens/strings.jsonl").read_text().splitlines()]
    (args.out / "vocab").mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        write_byte_level(kind, args.out, strings)
    write_sentencepiece(args.text, args.out, strings)
    write_character_bpe(args.out, strings)
    write_unigram(args.text, args.out, strings)
    write_wordpiece(args.text, args.out, strings)


if __name__ == "__main__":
    main()
