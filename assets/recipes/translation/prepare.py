"""Learn the subwords that both languages share, from the sentence pairs to train on.

    python assets/recipes/translation/prepare.py --data ../shared/data --out RUN

DATA/tatoeba-eng-deu holds train.tsv.gz, dev.tsv.gz and test.tsv.gz (English, tab, German) and
test-references.json; DATA/README.md says where they come from. Writes RUN/subwords.model.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

VOCABULARY = 8_000
END, UNKNOWN, PAD = 0, 1, 2


def pairs(data: Path, part: str) -> Iterator[tuple[str, str]]:
    """(English, German) of one part, sentence by sentence."""
    yield from pairs_in(data / f"tatoeba-eng-deu/{part}.tsv.gz")


def pairs_in(path: Path) -> Iterator[tuple[str, str]]:
    """(English, German) of one file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            english, german = line.rstrip("\n").split("\t")[:2]
            yield english, german


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text for pair in pairs(arguments.data, "train") for text in pair),
        model_prefix=str(arguments.out / "subwords"),
        vocab_size=VOCABULARY,
        model_type="unigram",
        character_coverage=1.0,
        eos_id=END,
        unk_id=UNKNOWN,
        pad_id=PAD,
        bos_id=-1,
        minloglevel=1,
    )
    print(f"{VOCABULARY} subwords in {arguments.out / 'subwords.model'}")


if __name__ == "__main__":
    main()
