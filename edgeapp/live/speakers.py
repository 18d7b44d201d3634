"""Names of the speakers of a session with a channel for each."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines import OptionError

__all__ = ["MAX_SPEAKER_CHARACTERS", "checked_speakers"]

MAX_SPEAKER_CHARACTERS = 40


def checked_speakers(names: Sequence[str]) -> tuple[str, ...]:
    """The names of the channels, without white space around them.

    Args:
        names: two; none: one channel, whose speaker has no name.

    Raises:
        OptionError: there is another number of names, they are equal, or one is empty or too long.
    """
    stripped = tuple(" ".join(name.split()) for name in names)
    if not stripped:
        return ()
    if len(stripped) != 2 or len(set(stripped)) != 2:
        raise OptionError(f"two different names of speakers are needed, not {', '.join(names)!r}")
    for name in stripped:
        if not name or len(name) > MAX_SPEAKER_CHARACTERS or not name.isprintable():
            raise OptionError(
                f"the name of a speaker has 1 to {MAX_SPEAKER_CHARACTERS} printable characters: "
                f"{name[:60]!r}"
            )
    return stripped
