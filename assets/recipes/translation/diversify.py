"""More pairs to train a translator on: what two models make of both sides of those that there are.

    python assets/recipes/translation/diversify.py --data ../shared/data --run RUN \
        --forth assets/models/demo-en-de --back assets/models/demo-de-en

Every English sentence of the train part with its translation by beam search, and every German one
with what it would be in English, greedily (Nguyen et al. 2020, Data Diversification). What is
unlike all translations that are known of its sentence is left out. Writes RUN/more.tsv.gz
(English, tab, German), which train.py reads too; takes a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import gzip
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import sacrebleu
from prepare import pairs
from tqdm import tqdm

from pipelines.translation import SideBySide, TranslateOptions, Translator

BEAMS = 4
ALIKE = 40.0  # chrF


def translated(
    folder: Path, known: dict[str, set[str]], beams: int, workers: int
) -> Iterator[tuple[str, str]]:
    """(sentence, a new translation of it), where it is like one of those that are known."""
    options = TranslateOptions(beam_size=beams, split_sentences=False)
    sentences = sorted(known, key=len)  # of like length together: less padding
    with SideBySide(Translator(folder, threads=1), workers) as crew:
        lines = crew.translate_lines(sentences, options)
        for done in tqdm(lines, total=len(sentences), unit="sentence", desc=folder.name):
            likeness = sacrebleu.sentence_chrf(done.text, sorted(known[done.source])).score
            if done.text not in known[done.source] and likeness >= ALIKE:
                yield done.source, done.text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--run", type=Path, required=True, help="where prepare.py wrote")
    parser.add_argument("--forth", type=Path, required=True, help="English to German")
    parser.add_argument("--back", type=Path, required=True, help="German to English")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    german_of, english_of = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for english, german in pairs(arguments.data, "train"):
        german_of[english].add(german)
        english_of[german].add(english)
    forth = translated(arguments.forth, german_of, BEAMS, arguments.workers)
    back = translated(arguments.back, english_of, 1, arguments.workers)
    with gzip.open(arguments.run / "more.tsv.gz", "wt", encoding="utf-8") as file:
        for english, german in chain(forth, ((english, german) for german, english in back)):
            file.write(f"{english}\t{german}\n")


if __name__ == "__main__":
    main()
