"""The recognizer's tokenizer: byte-level BPE laid out like English-only Whisper.

    python assets/recipes/recognition/vocabulary.py --data ../shared/data --out DIR

About 1,000 pieces learned from the Tatoeba train sentences, then Whisper's special tokens in
Whisper's order, then timestamps in steps of 0.02 s up to the window's end.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from speak import DIGITS, sentences
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

PIECES = 1_000
WINDOW_SECONDS = 10
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]


def timestamps() -> list[str]:
    return [f"<|{i * 0.02:.2f}|>" for i in range(WINDOW_SECONDS * 50 + 1)]


def learn(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Whisper's texts start with a space.
    tokenizer.train_from_iterator((" " + text for text in texts), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in timestamps()]
    )
    return tokenizer


def save(tokenizer: Tokenizer, out: Path) -> None:
    """tokenizer.json and the older files beside it, as the real repositories have them."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    model = json.loads(tokenizer.to_str())["model"]
    added = {t: tokenizer.token_to_id(t) for t in [*SPECIAL, *timestamps()]}
    merges = [" ".join(pair) for pair in model["merges"]]
    (out / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    write_json(out / "vocab.json", model["vocab"] | {"<|endoftext|>": added["<|endoftext|>"]})
    write_json(out / "added_tokens.json", added)
    write_json(
        out / "special_tokens_map.json",
        dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>"),
    )
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "WhisperTokenizer",
            "add_prefix_space": False,
            "bos_token": "<|endoftext|>",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "unk_token": "<|endoftext|>",
            "model_max_length": 1024,
            "errors": "replace",
        },
    )


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    digits = [f"{a.capitalize()} {b} {c}." for a in DIGITS for b in DIGITS for c in DIGITS]
    tokenizer = learn(sentences(arguments.data, "train") + digits)
    save(tokenizer, arguments.out)
    print(f"{tokenizer.get_vocab_size()} tokens in {arguments.out}")


if __name__ == "__main__":
    main()
