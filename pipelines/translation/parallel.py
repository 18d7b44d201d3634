"""Translation of many lines in several processes, each with a copy of the model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.engine import Engine, ProcessPool
from pipelines.errors import OptionError
from pipelines.options import with_fields
from pipelines.translation.options import TranslateOptions
from pipelines.translation.pair import parts_of_lines
from pipelines.translation.results import Translation
from pipelines.translation.translator import Translator

_Part = tuple[list[str], TranslateOptions]


class ParallelTranslator:
    """Translates lines in worker processes.

    Raises:
        OptionError: The translator is on a GPU, which the processes would share, or has a drafter.
    """

    def __init__(self, translator: Translator, workers: int, threads: int = 1) -> None:
        if translator.engine.device != "cpu":
            raise OptionError("several workers are for the CPU; leave them out, or use device cpu")
        if translator.draft_report is not None:
            raise OptionError("drafts are for one process; leave out the workers, or the drafts")
        model = translator.model
        make = partial(
            _open, model.folder, model.compute_type, threads,
            translator.name, translator.source, translator.shortlist,
        )  # fmt: skip
        self._pool: ProcessPool[_Part, list[Translation]] = ProcessPool(workers, make)

    def translate_lines(
        self,
        lines: Iterable[str | None],
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Generator[Translation, None, None]:
        """As Translator.translate_lines, but yields parts of 256 lines when they are complete."""
        return self._translations(lines, with_fields(options or TranslateOptions(), overrides))

    def _translations(
        self, lines: Iterable[str | None], options: TranslateOptions
    ) -> Generator[Translation, None, None]:
        done = self._pool.map(
            None if part is None else (part, options) for part in parts_of_lines(lines)
        )
        try:
            for part in done:
                yield from part
        finally:
            done.close()

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def __enter__(self) -> ParallelTranslator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _open(
    folder: Path, compute_type: str, threads: int, name: str, source: str | None, shortlist: bool
) -> Callable[[_Part], list[Translation]]:
    """In a worker process: load the model, and return the function that translates a part."""
    engine = Engine(device="cpu", compute_type=compute_type, threads=threads)
    translator = Translator(folder, engine=engine, name=name, source=source, shortlist=shortlist)

    def translate(part: _Part) -> list[Translation]:
        lines, options = part
        # The longest first: the last sentences of the batch are then short and end soon.
        order = sorted(range(len(lines)), key=lambda index: -len(lines[index]))
        done = translator.translate([lines[index] for index in order], options)
        by_index = dict(zip(order, done, strict=True))
        return [by_index[index] for index in range(len(lines))]

    return translate
