"""Uploaded recordings → samples, within the server's limits of duration and memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.memory_limit import MemoryLimit, MemoryLimitReached

if TYPE_CHECKING:
    from pipelines.asr import Samples

__all__ = ["load_recording"]

_DECODING_BYTES = 1 << 30  # address space of the decoder process; its libraries take 200 MB
_DECODING_S = 600.0  # three hours of FLAC take about 15 s on two cores
_TURN_CHECKED_S = 0.2
_decoding = threading.Lock()


def load_recording(
    path: Path,
    name: str,
    *,
    limit: MemoryLimit,
    max_duration_s: float,
    cancelled: Callable[[], bool],
    warned: Callable[[str, type[Warning]], None] = lambda message, category: None,
    keep_unlike: bool = False,
) -> Samples:
    """Decode a recording in a child process.

    Args:
        path: The file.
        name: Its name on the client's machine, for messages.
        limit: Of the memory of the server, which the samples must fit into.
        max_duration_s: The longest recording that is accepted.
        cancelled: Whether the work was cancelled; asked several times a second.
        warned: Takes a warning and its category.
        keep_unlike: Keep two channels where they hold different sound.

    Returns:
        Float32 at 16 kHz: mono [n], or with `keep_unlike` perhaps two channels [n, 2].

    Raises:
        DecodingCancelled: The work was cancelled.
        LongAudio: It is longer than `max_duration_s`.
        MemoryLimitReached: There is no room for it now.
        AudioError: It cannot be decoded.
    """
    from pipelines.asr import load_audio_isolated
    from pipelines.errors import LongAudio

    with _turn(limit, cancelled):
        fits_s = limit.longest_sound_s
        try:
            return load_audio_isolated(
                path,
                name=name,
                max_duration_s=min(max_duration_s, fits_s),
                memory_bytes=_DECODING_BYTES,
                time_s=_DECODING_S,
                cancelled=cancelled,
                warned=warned,
                keep_unlike=keep_unlike,
            )
        except LongAudio:
            if fits_s >= max_duration_s:
                raise
            raise MemoryLimitReached(
                f"{name} lasts more than {fits_s:.0f} s, for which the memory limit of "
                "this server has room now; try again later"
            ) from None


@contextmanager
def _turn(limit: MemoryLimit, cancelled: Callable[[], bool]) -> Iterator[None]:
    """With a limit one recording at a time: the memory of each is known before the next one."""
    from pipelines.asr import DecodingCancelled

    if limit.limit is None:
        yield
        return
    while not _decoding.acquire(timeout=_TURN_CHECKED_S):
        if cancelled():
            raise DecodingCancelled
    try:
        yield
    finally:
        _decoding.release()
