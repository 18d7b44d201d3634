"""What a job has finished, as the journal keeps it: with all digits, and read back as it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from pipelines import Segment, Translation
    from pipelines.asr import Checkpoint

__all__ = ["LinesPiece", "PassagesPiece", "Piece", "PieceCollector", "TranscriptPiece"]

_KEEP_EVERY_S = 0.5  # so much work a killed run loses at most
T = TypeVar("T")


class Piece(Protocol):
    """Finished work that a later run need not do again."""

    def as_json(self) -> str:
        """The piece as text."""
        ...

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The piece that `as_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: It was written by another version.
        """
        ...


@dataclass(frozen=True)
class TranscriptPiece:
    """What was finished of a recording between two checkpoints.

    Attributes:
        segments: The recognised segments.
        cues: Their translations, as far as sentences are complete.
        checkpoint: Where the work goes on.
    """

    segments: tuple[Segment, ...]
    cues: tuple[Cue, ...]
    checkpoint: Checkpoint

    def as_json(self) -> str:
        """The piece as text; floats keep all their digits."""
        return json.dumps(
            {
                "segments": [asdict(segment) for segment in self.segments],
                "cues": [asdict(cue) for cue in self.cues],
                "checkpoint": asdict(self.checkpoint),
            },
            ensure_ascii=False,
        )

    @classmethod
    def of_json(cls, text: str) -> TranscriptPiece:
        from pipelines import Segment, Word
        from pipelines.asr import Alternative, Checkpoint, TokenLogprob

        def segment(values: dict[str, Any]) -> Segment:
            words = tuple(Word(**word) for word in values.pop("words"))
            alternatives = tuple(
                Alternative(each["text"], each["score"], tuple(each["tokens"]))
                for each in values.pop("alternatives", ())
            )
            logprobs = tuple(
                TokenLogprob(tuple(each["utf8"]), each["logprob"])
                for each in values.pop("token_logprobs", ())
            )
            values["tokens"] = tuple(values["tokens"])
            return Segment(
                **values, words=words, alternatives=alternatives, token_logprobs=logprobs
            )

        content = json.loads(text)
        checkpoint = content["checkpoint"]
        return cls(
            tuple(map(segment, content["segments"])),
            tuple(Cue(**cue) for cue in content["cues"]),
            Checkpoint(**{**checkpoint, "prompt": tuple(checkpoint["prompt"])}),
        )


@dataclass(frozen=True)
class LinesPiece:
    """Consecutive lines of a translated text.

    Attributes:
        lines: As they are written, with their endings.
        failed: How many of them are empty because the model could not translate them.
    """

    lines: tuple[str, ...]
    failed: int = 0

    def as_json(self) -> str:
        """The piece as text."""
        return json.dumps({"lines": self.lines, "failed": self.failed}, ensure_ascii=False)

    @classmethod
    def of_json(cls, text: str) -> LinesPiece:
        content = json.loads(text)
        return cls(tuple(content["lines"]), content["failed"])


@dataclass(frozen=True)
class PassagesPiece:
    """Consecutive translated passages of a subtitle file.

    Attributes:
        translations: Their texts and word alignments, without sentences and warnings.
    """

    translations: tuple[Translation, ...]

    def as_json(self) -> str:
        """The piece as text."""
        passages = [
            {
                "source": each.source,
                "text": each.text,
                "alignment": None if each.alignment is None else asdict(each.alignment),
            }
            for each in self.translations
        ]
        return json.dumps(passages, ensure_ascii=False)

    @classmethod
    def of_json(cls, text: str) -> PassagesPiece:
        from pipelines import Translation
        from pipelines.translation import Alignment

        def alignment(values: dict[str, Any] | None) -> Alignment | None:
            if values is None:
                return None
            return Alignment(**{name: tuple(map(tuple, pairs)) for name, pairs in values.items()})

        return cls(
            tuple(
                Translation(each["source"], each["text"], alignment=alignment(each["alignment"]))
                for each in json.loads(text)
            )
        )


class PieceCollector(Generic[T]):
    """Collects small results, and hands them on as a piece now and then. A context manager.

    What is left is handed on at the exit, after an error and Ctrl-C too.

    Args:
        keep: Takes the results since the last call.
    """

    def __init__(self, keep: Callable[[list[T]], None]) -> None:
        self._keep = keep
        self._results: list[T] = []
        self._kept_at = time.monotonic()

    def add(self, result: T) -> None:
        """Add a result, in order."""
        self._results.append(result)
        if time.monotonic() - self._kept_at >= _KEEP_EVERY_S:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._flush()

    def _flush(self) -> None:
        results, self._results = self._results, []
        if results:
            self._keep(results)
        self._kept_at = time.monotonic()
