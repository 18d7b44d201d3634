"""More pairs to train a translator on: what models make of both sides of those that there are.

    python assets/recipes/translation/diversify.py --data ../shared/data --run RUN \
        --forth assets/models/demo-en-de --back assets/models/demo-de-en

Every English sentence of the train part with its translation by beam search, and every German one
with what it would be in English (Nguyen et al. 2020, Data Diversification): the likeliest words, or
with --temperature drawn ones, which differ more (Edunov et al. 2018). What is unlike all
translations that are known of its sentence is left out. Adds to RUN/more.tsv.gz (English, tab,
German), which train.py reads too; takes about ten minutes for each direction on two cores.
"""

from __future__ import annotations

import argparse
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import sacrebleu
from prepare import END, PAD, pairs
from sentencepiece import SentencePieceProcessor
from tqdm import tqdm
from train import LONGEST

from pipelines.engine import Engine, GenerationOptions, Request, SuppressTokens

BEAMS = 4
NUCLEUS = 0.95
ALIKE, ALIKE_IF_DRAWN = 40.0, 30.0  # chrF
AT_ONCE = 512


def translated(
    folder: Path,
    known: dict[str, set[str]],
    subwords: SentencePieceProcessor,
    options: GenerationOptions,
    threads: int,
) -> Iterator[tuple[str, str]]:
    """(sentence, a new translation of it), where it is like one of those that are known."""
    alike = ALIKE_IF_DRAWN if options.temperature else ALIKE
    sentences = sorted(known, key=len)  # of like length together: less padding
    with (
        Engine(threads=threads) as engine,
        tqdm(total=len(sentences), unit="sentence", desc=folder.name) as bar,
    ):
        model = engine.load(folder)
        for start in range(0, len(sentences), AT_ONCE):
            chosen = sentences[start : start + AT_ONCE]
            memories = model.encode([subwords.encode(sentence) + [END] for sentence in chosen])
            results = engine.generate([Request(memory, (PAD,), options) for memory in memories])
            for sentence, result in zip(chosen, results, strict=True):
                text = subwords.decode([token for token in result.tokens if token != END])
                likeness = sacrebleu.sentence_chrf(text, sorted(known[sentence])).score
                if text not in known[sentence] and likeness >= alike:
                    yield sentence, text
            bar.update(len(chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--run", type=Path, required=True, help="where prepare.py wrote")
    parser.add_argument("--forth", type=Path, help="a model, English to German")
    parser.add_argument("--back", type=Path, help="a model, German to English")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="of what is drawn back; 0: the likeliest"
    )
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    subwords = SentencePieceProcessor(model_file=str(arguments.run / "subwords.model"))
    german_of, english_of = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for english, german in pairs(arguments.data, "train"):
        german_of[english].add(german)
        english_of[german].add(english)
    usual = GenerationOptions(LONGEST, eos_ids=(END,), logit_filters=(SuppressTokens((PAD,)),))
    likeliest = replace(usual, beam_size=BEAMS)
    drawn = replace(usual, temperature=arguments.temperature, top_p=NUCLEUS)
    ways = (
        (arguments.forth, german_of, likeliest, "{0}\t{1}\n"),
        (arguments.back, english_of, drawn, "{1}\t{0}\n"),
    )
    with gzip.open(arguments.run / "more.tsv.gz", "at", encoding="utf-8") as file:
        for model, known, options, line in ways:
            if model is not None:
                for pair in translated(model, known, subwords, options, arguments.threads):
                    file.write(line.format(*pair))


if __name__ == "__main__":
    main()
