"""A translation as one line: text, columns, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines import Alignment, Translation

__all__ = ["WRITERS", "as_json", "as_text", "as_tsv"]


def as_text(translation: Translation) -> str:
    """The translation; with an alignment, " ||| " and its links, as marian-decoder writes them."""
    text = _one_line(translation.text)
    found = translation.alignment
    return text if found is None else f"{text} ||| {found.pharaoh}".rstrip(" ")


def as_tsv(translation: Translation) -> str:
    """Source, translation, and the links where there is an alignment; tabs in texts are spaces."""
    columns = [translation.source, translation.text]
    if translation.alignment is not None:
        columns.append(translation.alignment.pharaoh)
    return "\t".join(_one_line(column).replace("\t", " ") for column in columns)


def as_json(translation: Translation) -> str:
    """An object: source, text, its sentences, warnings, and the alignment where there is one."""
    content: dict[str, Any] = {
        "source": translation.source,
        "text": translation.text,
        "sentences": [
            {
                "source": sentence.source,
                "text": sentence.text,
                "avg_logprob": round(sentence.avg_logprob, 4),
                "copied": sentence.copied,
                "truncated": sentence.truncated,
            }
            for sentence in translation.sentences
        ],
        "warnings": list(translation.warnings),
    }
    if translation.alignment is not None:
        content["alignment"] = _aligned(translation, translation.alignment)
    return json.dumps(content, ensure_ascii=False)


def _aligned(translation: Translation, found: Alignment) -> dict[str, Any]:
    def words(text: str, spans: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
        return [{"text": text[first:end], "start": first, "end": end} for first, end in spans]

    return {
        "pharaoh": found.pharaoh,
        "source_words": words(translation.source, found.source_words),
        "target_words": words(translation.text, found.target_words),
        "links": [list(link) for link in found.links],
    }


def _one_line(text: str) -> str:
    """One line out for each line in, whatever the model came up with."""
    return " ".join(text.split("\n"))


WRITERS: Mapping[str, Callable[[Translation], str]] = {
    "text": as_text,
    "tsv": as_tsv,
    "json": as_json,
}
