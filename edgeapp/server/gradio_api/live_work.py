"""A recording as a live session: the work of the endpoint `live`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeapp.model_pool import ModelPool
from edgeapp.server.page.picker_options import ModelChoice
from edgeapp.server.recordings import load_recording
from edgeapp.server.tasks.live_task import make_live_setup

__all__ = ["LiveWork"]


@dataclass(frozen=True)
class LiveWork:
    """A recording to be captioned live.

    Attributes:
        pool: The shared models.
        path: The recording.
        name: Its name, for messages.
        max_duration_s: The longest recording that is accepted.
        choice: Models and languages.
        speed: Relative to real time; 0: as fast as possible.
    """

    pool: ModelPool
    path: Path
    name: str
    max_duration_s: float
    choice: ModelChoice
    speed: float

    def run(self, cancelled: Callable[[], bool]) -> Generator[dict[str, Any], None, None]:
        """Caption it.

        Args:
            cancelled: Whether the work is to end.

        Yields:
            The events of the session, as JSON objects.

        Raises:
            EdgeError: The recording cannot be decoded, or a model is not installed.
        """
        from edgeapp.live.event_encoder import EventEncoder
        from edgeapp.live.sources import FileSource
        from pipelines.asr import DecodingCancelled, UpdateDecoded

        try:
            samples = load_recording(
                self.path,
                self.name,
                limit=self.pool.memory_limit,
                max_duration_s=self.max_duration_s,
                cancelled=cancelled,
            )
        except DecodingCancelled:
            return
        live = make_live_setup(self.pool, self.choice)
        encoder = EventEncoder(lambda: live.session.language)
        with live.using(self.pool):
            events = live.session.run(FileSource(samples, self.speed))
            assert isinstance(events, Generator)  # so that it can be closed
            with closing(events):
                for event in events:
                    if cancelled():
                        return
                    if not isinstance(event, UpdateDecoded):
                        yield encoder.content(event)
