"""A translation as one line of output: text, tab-separated columns, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines import Translation
    from pipelines.translation import Alignment, SentenceTranslation

__all__ = ["WRITERS", "as_json", "as_text", "as_tsv"]


def as_text(translation: Translation) -> str:
    """The translated text; an alignment follows after " ||| ", as marian-decoder writes it."""
    text, alignment = _one_line(translation.text), translation.alignment
    return text if alignment is None else f"{text} ||| {alignment.pharaoh}".rstrip(" ")


def as_tsv(translation: Translation) -> str:
    """Source, translation and, if computed, alignment. Tabs inside texts become spaces."""
    columns = [translation.source, translation.text]
    if translation.alignment is not None:
        columns.append(translation.alignment.pharaoh)
    return "\t".join(_one_line(column).replace("\t", " ") for column in columns)


def as_json(translation: Translation) -> str:
    """An object: source, text, sentences, warnings and, if computed, alignment."""
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
                **_alternatives(sentence),
            }
            for sentence in translation.sentences
        ],
        "warnings": list(translation.warnings),
    }
    if translation.alignment is not None:
        content["alignment"] = _alignment_object(translation, translation.alignment)
    return json.dumps(content, ensure_ascii=False)


def _alternatives(sentence: SentenceTranslation) -> dict[str, Any]:
    """The results of a search, best first, where several were asked for."""
    if not sentence.alternatives:
        return {}
    found = [{"text": a.text, "score": round(a.score, 4)} for a in sentence.alternatives]
    return {"alternatives": found}


def _alignment_object(translation: Translation, alignment: Alignment) -> dict[str, Any]:
    """The alignment with its words as texts and character ranges."""

    def words(text: str, spans: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
        return [{"text": text[start:end], "start": start, "end": end} for start, end in spans]

    return {
        "pharaoh": alignment.pharaoh,
        "source_words": words(translation.source, alignment.source_words),
        "target_words": words(translation.text, alignment.target_words),
        "links": [list(link) for link in alignment.links],
    }


def _one_line(text: str) -> str:
    """The text without line feeds, so that one input line makes one output line."""
    return " ".join(text.split("\n"))


WRITERS: Mapping[str, Callable[[Translation], str]] = {
    "text": as_text,
    "tsv": as_tsv,
    "json": as_json,
}
