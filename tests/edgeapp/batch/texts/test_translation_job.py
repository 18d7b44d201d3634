"""TranslationJob: each unit has one result, whatever fails and however far is read ahead."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from edgeapp.batch.texts.inputs import TextUnit, read_units
from edgeapp.batch.texts.text_source import TextSource
from edgeapp.batch.texts.translation_job import LineTranslator, TranslationJob
from pipelines import InputError, TranslateOptions, Translation, Translator
from pipelines.errors import NumericalError


class UpperCase:
    """Translates into capitals. A part with "bad" in it fails as a whole.

    Args:
        part: Lines that are translated together.
        ahead: Parts that are read ahead of the one that is yielded.
    """

    def __init__(self, part: int, ahead: int) -> None:
        self.part, self.ahead = part, ahead

    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions | None = None
    ) -> Iterator[Translation]:
        waiting: deque[list[str]] = deque()
        part: list[str] = []
        for line in lines:
            part += [line] if line is not None else []
            if len(part) == self.part:
                waiting.append(part)
                part = []
            while len(waiting) > self.ahead:
                yield from self._translate(waiting.popleft())
        for rest in [*waiting, part]:
            yield from self._translate(rest)

    def _translate(self, part: list[str]) -> list[Translation]:
        if "bad" in part:
            raise NumericalError("NaN")
        return [Translation(line, line.upper()) for line in part]


def job(source: Path, workers: LineTranslator | None) -> TranslationJob:
    one_process = cast(Translator, UpperCase(1, 3))
    return TranslationJob(
        workers or one_process,
        one_process,
        TranslateOptions(),
        TextSource(str(source)),
        False,
        "text",
    )


def iter_units(source: Path) -> Iterator[TextUnit | None]:
    with source.open("rb", buffering=0) as file:
        yield from read_units(file)


WORDS = [("bad" if number in (0, 7, 8, 30) else f"line {number}") for number in range(50)]


@pytest.mark.parametrize("workers", [None, UpperCase(4, 4), UpperCase(16, 2), UpperCase(100, 1)])
@pytest.mark.parametrize("ending", ["\n", ""])
def test_every_line_has_one_result(
    workers: LineTranslator | None, ending: str, tmp_path: Path
) -> None:
    source = tmp_path / "a.txt"
    source.write_text("\n".join(WORDS) + ending)
    results = list(job(source, workers)._results(iter_units(source)))
    assert [unit.text for unit, _ in results] == WORDS
    assert [unit.number for unit, _ in results] == list(range(1, 51))
    for unit, result in results:
        assert isinstance(result, NumericalError) == (unit.text == "bad")
        assert isinstance(result, NumericalError) or result.text == unit.text.upper()


def test_an_input_that_cannot_be_read_on(tmp_path: Path) -> None:
    """The error is not lost when a line that was read before it fails."""
    source = tmp_path / "a.txt"
    source.write_text("one\nbad\nthree\n")

    def broken() -> Iterator[TextUnit | None]:
        yield from iter_units(source)
        raise OSError(5, os.strerror(5))

    found = job(source, None)._results(broken())
    assert [next(found)[0].number for _ in range(3)] == [1, 2, 3]
    with pytest.raises(InputError, match="cannot be read on: Input/output error"):
        next(found)


def with_settings(file: Path, **settings: object) -> TranslationJob:
    model = SimpleNamespace(folder=Path("model"), compute_type="int8")
    fields = {"shortlist": False, "source": None} | {
        name: settings.pop(name) for name in ("shortlist", "source") if name in settings
    }
    translator = cast(Translator, SimpleNamespace(model=model, **fields))
    form = cast(str, settings.pop("form", "text"))
    document = bool(settings.pop("document", False))
    options = TranslateOptions(**settings)  # type: ignore[arg-type]
    return TranslationJob(translator, translator, options, TextSource(str(file)), document, form)


def test_a_run_is_resumed_with_the_same_settings_only(tmp_path: Path) -> None:
    """The key depends on what the lines depend on, not on how the code spells it."""
    source = tmp_path / "a.txt"
    source.write_text("one\n")
    key = with_settings(source).key()
    assert key == "81cdfddd603798a736149096e09df8bdaa61b11b7592fa56797c45d4bdc539df"
    assert with_settings(source, priority=1).key() == key
    others: list[dict[str, object]] = [
        {"target": "de"}, {"source_language": "en"}, {"split_sentences": False}, {"beam_size": 4},
        {"word_alignments": True}, {"form": "tsv"}, {"document": True}, {"shortlist": True},
        {"source": "fr"},
    ]  # fmt: skip
    keys = {with_settings(source, **other).key() for other in others}
    assert len(keys) == len(others)
    assert key not in keys
