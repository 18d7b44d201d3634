"""Rules for readable subtitles: the lines, the reading speed and the times that a style allows."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines import OptionError

__all__ = ["DEFAULT_STYLE", "STYLES", "SubtitleStyle", "style_of"]


@dataclass(frozen=True)
class SubtitleStyle:
    """Limits of a cue. Wide characters (Chinese, Japanese, Korean) count as two.

    Attributes:
        name: The name of the style.
        max_line_width: Characters per line.
        max_lines: Lines per cue.
        max_characters_per_s: Reading speed: characters, spaces included, per second.
        min_duration_s: Shortest time that a cue is shown.
        max_duration_s: Longest time that a cue is shown.
        min_gap_s: Shortest time between two cues.
    """

    name: str
    max_line_width: int = 42
    max_lines: int = 2
    max_characters_per_s: float = 20.0
    min_duration_s: float = 5 / 6
    max_duration_s: float = 7.0
    min_gap_s: float = 0.0

    @property
    def max_characters(self) -> int:
        """Characters per cue. A break in the middle of a cue takes the place of a space."""
        return self.max_line_width * self.max_lines


# netflix: Timed Text Style Guide, general requirements (two frames at 24 frames per second).
# bbc: Subtitle Guidelines 1.2: 37 characters (the limit of teletext), 160 to 180 words per minute,
# which is 180 / 60 * 5.5 characters per second, at least one second.
STYLES = {
    style.name: style
    for style in (
        SubtitleStyle("plain"),
        SubtitleStyle("netflix", max_characters_per_s=17.0, min_gap_s=2 / 24),
        SubtitleStyle(
            "bbc", max_line_width=37, max_characters_per_s=16.5, min_duration_s=1.0, min_gap_s=0.08
        ),
    )
}
DEFAULT_STYLE = STYLES["plain"]


def style_of(name: str) -> SubtitleStyle:
    """The style with a name.

    Raises:
        OptionError: There is none.
    """
    try:
        return STYLES[name]
    except KeyError:
        raise OptionError(f"subtitle style {name!r} is not one of {', '.join(STYLES)}") from None
