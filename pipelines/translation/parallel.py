"""Many lines at a time: processes that translate them in parts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path

from pipelines.engine import Engine, ProcessPool
from pipelines.errors import OptionError
from pipelines.translation.options import TranslateOptions
from pipelines.translation.results import Translation
from pipelines.translation.translator import Translator

__all__ = ["ParallelTranslator"]

# Lines of a part: enough to fill a batch four times, so that little of the time it is half empty.
_LINES_PER_PART = 256

_Part = tuple[list[str], TranslateOptions]


class ParallelTranslator:
    """What a translator does, by so many processes with a copy of its model each.

    threads: of each of them. Raises OptionError for a translator on a GPU, which they would share.
    """

    def __init__(self, translator: Translator, workers: int, threads: int = 1) -> None:
        if translator.engine.device != "cpu":
            raise OptionError("several workers are for the CPU; leave them out, or use device cpu")
        model = translator.model
        make = partial(
            _open, model.folder, model.compute_type, threads,
            translator.name, translator.source, translator.shortlist,
        )  # fmt: skip
        self._crew: ProcessPool[_Part, list[Translation]] = ProcessPool(workers, make)

    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions | None = None
    ) -> Generator[Translation, None, None]:
        """As Translator.translate_lines; parts of 256 lines are handed out when they are done."""
        done = self._crew.map(_parts(lines, options or TranslateOptions()))
        try:
            for part in done:
                yield from part
        finally:
            done.close()

    def close(self) -> None:
        """End the processes."""
        self._crew.close()

    def __enter__(self) -> ParallelTranslator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _parts(lines: Iterable[str | None], options: TranslateOptions) -> Iterator[_Part | None]:
    part: list[str] = []
    for line in lines:
        if line is not None:
            part.append(line)
        if part and (line is None or len(part) == _LINES_PER_PART):
            yield part, options
            part = []
        if line is None:
            yield None
    if part:
        yield part, options


def _open(
    folder: Path, compute_type: str, threads: int, name: str, source: str | None, shortlist: bool
) -> Callable[[_Part], list[Translation]]:
    engine = Engine(device="cpu", compute_type=compute_type, threads=threads)
    translator = Translator(folder, engine=engine, name=name, source=source, shortlist=shortlist)

    def translate(part: _Part) -> list[Translation]:
        lines, options = part
        # The longest first: those that end last are short then, and leave the batch soon.
        order = sorted(range(len(lines)), key=lambda at: -len(lines[at]))
        done = translator.translate([lines[at] for at in order], options)
        found = dict(zip(order, done, strict=True))
        return [found[at] for at in range(len(lines))]

    return translate
