"""BLEU and chrF of a translator on the test sentences, each with all its known references.

    python assets/recipes/translation/evaluate.py --data ../shared/data \
        --model assets/models/demo-en-de

The table goes to the standard output, for assets/recipes/card.py; examples to the other one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import zip_longest
from pathlib import Path

import sacrebleu
import torch
from prepare import pairs
from tqdm import tqdm
from transformers import MarianMTModel, MarianTokenizer

BATCH = 50


@torch.inference_mode()
def translate(folder: Path, sentences: list[str], beams: int) -> list[str]:
    tokenizer = MarianTokenizer.from_pretrained(folder)
    model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    # Sentences of like length together: less padding.
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translations = [""] * len(sentences)
    for start in tqdm(range(0, len(order), BATCH), unit="batch"):
        rows = order[start : start + BATCH]
        inputs = tokenizer([sentences[i] for i in rows], return_tensors="pt", padding=True)
        ids = model.generate(**inputs, num_beams=beams, max_new_tokens=128)
        for i, text in zip(
            rows, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True
        ):
            translations[i] = text
    return translations


def reversed_references(data: Path, references: dict[str, list[str]]) -> dict[str, list[str]]:
    """For the German of each test pair, every English sentence that is known to mean it."""
    known: dict[str, list[str]] = {german: [] for _, german in pairs(data, "test")}
    for english, translations in references.items():
        for german in known.keys() & set(translations):
            known[german].append(english)
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--reverse", action="store_true", help="German to English")
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    path = arguments.data / "tatoeba-eng-deu/test-references.json"
    references: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    if arguments.reverse:
        references = reversed_references(arguments.data, references)
    began = time.monotonic()
    translations = translate(arguments.model, list(references), arguments.beams)
    seconds = time.monotonic() - began

    # sacrebleu wants one list per reference number; None, unlike "", is no reference at all.
    known = [list(column) for column in zip_longest(*references.values())]
    print("| compared with | sentences | BLEU | chrF |")
    print("|---|---|---|---|")
    for name, lists in ("the first reference", known[:1]), ("all known references", known):
        score = sacrebleu.corpus_bleu(translations, lists).score
        chrf = sacrebleu.corpus_chrf(translations, lists).score
        print(f"| {name} | {len(references)} | {score:.1f} | {chrf:.1f} |")
    how = "Greedy" if arguments.beams == 1 else f"{arguments.beams} beams"
    print(f"\n{how}, float32, sacrebleu; measured by `assets/recipes/translation/evaluate.py`.")
    print(f"{seconds:.0f} s", file=sys.stderr)
    for source, translation in list(zip(references, translations, strict=True))[:5]:
        print(f"  {source} → {translation}", file=sys.stderr)


if __name__ == "__main__":
    main()
