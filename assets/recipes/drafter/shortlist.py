"""The ids that a drafter can write: those that are frequent, and all that are not text."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

from lessons import written

from pipelines.asr.tokenizer import WhisperTokenizer

SHORTLIST = "shortlist.json"
SENTENCES = 100_000  # of Tatoeba, whose ids are counted


def make_shortlist(
    model: Path, lessons: Path, data: Path | None, size: int, run: Path
) -> list[int]:
    """The shortlist of a run, in ascending order; counted once and kept in its folder.

    Ids of text are counted in the lessons and in Tatoeba's sentences. Where they are fewer than
    `size`, the lowest others are added: byte pair encoding gives frequent text low ids. End of text
    and the timestamps come besides.
    """
    kept = run / SHORTLIST
    if kept.exists():
        ids: list[int] = json.loads(kept.read_text(encoding="utf-8"))
        return ids
    tokenizer = WhisperTokenizer(model)
    special = tokenizer.special
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    last = special.timestamp_begin + config["max_source_positions"]  # the end of the window
    counts = Counter[int]()
    for path in lessons.rglob("*.safetensors"):
        counts.update(written(path))
    if data is not None:
        with gzip.open(data / "tatoeba-eng-deu/train.tsv.gz", "rt", encoding="utf-8") as file:
            for line, _ in zip(file, range(SENTENCES), strict=False):
                counts.update(tokenizer.encode(" " + line.split("\t", 1)[0]))
    text = [token for token, _ in counts.most_common() if token < special.eot][:size]
    low = (token for token in range(special.eot) if token not in {*text})
    text += [token for token, _ in zip(low, range(size - len(text)), strict=False)]
    found = sorted([*text, special.eot, *range(special.timestamp_begin, last + 1)])
    kept.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return found
