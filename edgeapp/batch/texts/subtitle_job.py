"""A subtitle file → the same file in another language."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.journal.job_journal import Job
from edgeapp.batch.journal.pieces import PassagesPiece
from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.run_progress import RunProgress
from edgeapp.batch.texts.kept_passages import KeptPassages
from edgeapp.batch.texts.repeated_warnings import RepeatedWarnings
from edgeapp.batch.texts.translation_job import LineTranslator, key_settings
from edgeapp.documents.subtitle_file import SubtitleFile, parse, read
from edgeapp.documents.subtitle_translation import passages, translate_subtitles
from edgeapp.documents.text_encoding import NO_HINT, EncodingHint
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translator

__all__ = ["SubtitleJob"]


@dataclass
class SubtitleJob:
    """One subtitle file.

    Attributes:
        line_translator: Translates passages.
        options: Options of the translation.
        source: The file.
        bilingual: Keep the original lines above their translation.
        style: Width of the lines, and reading speed.
        content: What `source` holds, where it was read from a pipe; None: it is a file.
        entry: The job in the journal, with the passages of earlier runs; None: nothing is kept.
        writer: Writes the output.
        lines: Cues of the file, once it is read.
        progress: Of the run.
        shown: The name for messages; "": `source`.
        hint: What is known about the encoding of the file.
    """

    line_translator: LineTranslator
    options: TranslateOptions
    source: Path
    bilingual: bool = False
    style: SubtitleStyle = DEFAULT_STYLE
    content: bytes | None = None
    entry: Job[PassagesPiece] | None = None
    writer: ResultWriter = field(default_factory=ResultWriter)
    lines: int = 0
    progress: RunProgress = field(default_factory=RunProgress)
    shown: str = ""
    hint: EncodingHint = NO_HINT

    def key(self, translator: Translator) -> str:
        """The key of the passages: all that their translations depend on."""
        return self.writer.digests.job_key(
            self.source,
            verb="translate subtitles",
            suffix=self.source.suffix.lower(),
            **self.hint.settings,
            **key_settings(translator, self.options),
        )

    def _read(self) -> SubtitleFile:
        """The subtitles. Raises InputError if they are none."""
        if self.content is None:
            return read(self.source, self.hint)
        suffix = self.source.suffix.removeprefix(".")
        return parse(self.content, suffix, self.source.stem, self.hint)

    def run(self, target: Path | None) -> None:
        """Translate the file.

        Args:
            target: The output file; None is stdout.

        Raises:
            InputError: It is no subtitle file.
            OptionError: The output has the ending of another format.
            OutputError, NumericalError.
        """
        if target is not None and target.suffix.lower() != self.source.suffix.lower():
            raise OptionError(
                f"{self.source} stays {self.source.suffix.lower()} when it is translated: "
                f"{target} has another ending"
            )
        file = self._read()
        self.lines = len(file.cues)
        content, name = b"", self.shown or str(self.source)
        kept = KeptPassages(name, self.line_translator, self.options, self.entry, self.progress)
        cues = (f"cue {passage.fragments[0].cue + 1}" for passage in passages(file))
        with kept, RepeatedWarnings(name) as warnings:
            for done in translate_subtitles(
                file, kept.translate_lines, style=self.style, bilingual=self.bilingual
            ):
                if isinstance(done, bytes):
                    content = done
                    continue
                cue = next(cues)
                for warning in done.warnings:
                    warnings.add(warning, cue)
        if target is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            self.writer.write(target, content)
