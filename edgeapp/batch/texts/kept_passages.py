"""Passages of a structured text, translated and kept in the journal as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from edgeapp.batch.journal.job_journal import Job
from edgeapp.batch.journal.pieces import PassagesPiece, PieceCollector
from edgeapp.batch.run_progress import RunProgress
from edgeapp.batch.texts.translation_job import LineTranslator
from edgeapp.console import counted, print_note

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation

__all__ = ["KeptPassages"]


class KeptPassages:
    """Translates passages with their word alignments. A context manager: what is translated is in
    the journal at its end, after an error and Ctrl-C too.

    Args:
        name: The input, for messages.
        line_translator: Translates passages.
        options: Options of the translation.
        entry: The job in the journal, with the passages of earlier runs; None: nothing is kept.
        progress: Of the run.
    """

    def __init__(
        self,
        name: str,
        line_translator: LineTranslator,
        options: TranslateOptions,
        entry: Job[PassagesPiece] | None,
        progress: RunProgress,
    ) -> None:
        self._line_translator, self._progress = line_translator, progress
        self._options = replace(options, word_alignments=True)
        self._earlier = [t for piece in entry.stored() for t in piece.translations] if entry else []
        self._collector = PieceCollector["Translation"](
            lambda done: None if entry is None else entry.add(PassagesPiece(tuple(done)))
        )
        if self._earlier:
            print_note(
                f"{name}: resuming after {counted(len(self._earlier), 'translated passage')}"
            )

    def __enter__(self) -> KeptPassages:
        self._collector.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._collector.__exit__(*exc)

    def translate_lines(self, texts: Iterable[str]) -> Iterator[Translation]:
        """The translations of passages in order, those of earlier runs first."""
        texts = list(texts)
        self._progress.total(len(texts), len(self._earlier))
        yield from self._earlier
        rest = texts[len(self._earlier) :]
        for translation in self._line_translator.translate_lines(rest, self._options):
            self._collector.add(translation)
            self._progress.advance(1, lines=1)
            yield translation
