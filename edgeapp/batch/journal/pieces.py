"""What a job has finished, as the journal keeps it: with all digits, and read back as it was."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from edgeapp.subtitles.formats import Cue

if TYPE_CHECKING:
    from pipelines import Checkpoint, Segment

__all__ = ["Piece"]


@dataclass(frozen=True)
class Piece:
    """What was finished between two checkpoints.

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
    def of_json(cls, text: str) -> Piece:
        """The piece that `as_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: It was written by another version.
        """
        from pipelines import Checkpoint, Segment, Word

        def segment(values: dict[str, Any]) -> Segment:
            words = tuple(Word(**word) for word in values.pop("words"))
            return Segment(**{**values, "tokens": tuple(values["tokens"])}, words=words)

        content = json.loads(text)
        checkpoint = content["checkpoint"]
        return cls(
            tuple(map(segment, content["segments"])),
            tuple(Cue(**cue) for cue in content["cues"]),
            Checkpoint(**{**checkpoint, "prompt": tuple(checkpoint["prompt"])}),
        )
