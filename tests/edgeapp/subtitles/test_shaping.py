"""Words with times become cues that keep to their style."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeapp.subtitles.check import violations
from edgeapp.subtitles.line_breaks import (
    break_cost,
    display_width,
    fits,
    lay_out,
    words_to_break,
)
from edgeapp.subtitles.shaping import TimedWord, shape, shape_words, timed_words
from edgeapp.subtitles.style import STYLES, SubtitleStyle, style_of
from pipelines import OptionError
from pipelines.subtitles import Cue

_WORDS = (
    "the house on hill and but New York Smith, went. Yes! where nobody der alte Mann und "
    "internationalization a 3,000 people 東京は とても。"
).split()
_STYLES = st.sampled_from(list(STYLES.values()))


@st.composite
def _speech(
    draw: st.DrawFn,
    most: int = 40,
    pauses: tuple[float, ...] = (0.0, 0.0, 0.05, 0.3, 0.8, 3.0),
    longest_s: float = 1.5,
) -> list[TimedWord]:
    words, at = [], 0.0
    for _ in range(draw(st.integers(0, most))):
        text = draw(st.sampled_from(_WORDS))
        at += draw(st.sampled_from(pauses))
        end = at + draw(st.floats(0.0, longest_s))
        words.append(TimedWord(f" {text}", at, end))
        at = end
    return words


@pytest.mark.slow
@settings(max_examples=150)
@given(_speech(), _STYLES)
def test_all_rules_hold_that_the_speech_allows(
    words: list[TimedWord], style: SubtitleStyle
) -> None:
    cues = shape_words(words, style)
    assert "".join("".join(c.text.split()) for c in cues) == "".join(
        "".join(w.text.split()) for w in words
    )
    for found in violations(cues, style):
        cue = cues[found.cue - 1]
        following = cues[found.cue] if found.cue < len(cues) else None
        # What depends on the speed of the speaker holds where the next cue leaves the time.
        assert found.rule in ("speed", "short", "break", "gap", "order"), found
        if found.rule in ("speed", "short"):
            at_limit = cue.end - cue.start >= style.max_duration_s - 0.01
            assert at_limit or following is not None, found
            if following is not None and not at_limit:
                assert following.start - cue.end <= style.min_gap_s + 0.01, found
        if found.rule == "gap":  # the next cue begins with its first word, at once
            assert following is not None
            assert following.start - cue.start < style.min_gap_s, found


@pytest.mark.slow
@settings(max_examples=60)
@given(_speech(most=9, pauses=(0.0, 0.0, 0.2, 0.6), longest_s=0.5), _STYLES)
def test_no_division_of_the_words_breaks_fewer_rules(
    words: list[TimedWord], style: SubtitleStyle
) -> None:
    """What is too fast for the reader was spoken that fast."""
    rules = ("speed", "short", "break")
    found = [each for each in violations(shape_words(words, style), style) if each.rule in rules]
    inner = range(1, len(words))
    for count in range(len(words)):
        for cuts in combinations(inner, count):
            groups = [words[a:b] for a, b in pairwise((0, *cuts, len(words)))]
            cues = [_longest_cue(group, style) for group in groups]
            if None in cues:
                continue
            ends = [*(cue.start - style.min_gap_s for cue in cues[1:] if cue), math.inf]
            shown = [
                replace(cue, end=min(cue.end, end))
                for cue, end in zip(cues, ends, strict=True)
                if cue
            ]
            other = [each for each in violations(shown, style) if each.rule in (*rules, "order")]
            assert len(found) <= len(other), (found, other)


def _longest_cue(words: list[TimedWord], style: SubtitleStyle) -> Cue | None:
    """A cue of all words, shown as long as the style allows; None where they do not fit."""
    texts = [word.text for word in words]
    pause = max((b.start - a.end for a, b in pairwise(words)), default=0.0)
    if len(words) > 1 and not (
        fits(texts, style.max_line_width, style.max_lines)
        and words[-1].end - words[0].start <= style.max_duration_s
        and pause <= 2.0  # a cue never spans a longer one
    ):
        return None
    start = words[0].start
    text = lay_out(texts, style.max_line_width, style.max_lines)
    return Cue(start, start + style.max_duration_s, text)


def test_a_cue_ends_with_its_sentence_where_there_is_room() -> None:
    text = " I have seen the old house. It was empty when I came to the village last summer."
    cues = shape([Cue(0.0, 6.0, text)])
    assert [cue.text.replace("\n", " ") for cue in cues] == [
        "I have seen the old house.",
        "It was empty when I came to the village last summer.",
    ]


def test_a_long_pause_ends_a_cue() -> None:
    words = [TimedWord(" one", 0.0, 0.5), TimedWord(" two", 3.0, 3.5)]
    assert [cue.text for cue in shape_words(words)] == ["one", "two"]


def test_a_cue_stays_until_it_can_be_read() -> None:
    words = [TimedWord(" Extraordinarily", 1.0, 1.2), TimedWord(" complicated.", 1.2, 1.4)]
    (cue,) = shape_words(words, style_of("netflix"))
    assert cue.end - cue.start >= len("Extraordinarily complicated.") / 17


def test_words_of_a_segment_without_times_share_its_time() -> None:
    words = timed_words([Cue(2.0, 4.0, " ab cd")])
    assert [(w.text, w.start, w.end) for w in words] == [(" ab", 2.0, 3.0), (" cd", 3.0, 4.0)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "He could rise and seem to complain against the weather.",
            ["He could rise and seem", "to complain against the weather."],
        ),
        (
            "We went to the market, but the shops were already closed.",
            ["We went to the market,", "but the shops were already closed."],
        ),
        (
            "I was told yesterday evening that Mr. Brown would come.",
            ["I was told yesterday evening", "that Mr. Brown would come."],
        ),
        (
            "Er hat mir gesagt, dass der Zug nach Berlin ausfällt.",
            ["Er hat mir gesagt,", "dass der Zug nach Berlin ausfällt."],
        ),
    ],
)
def test_lines_break_where_a_reader_pauses(text: str, lines: list[str]) -> None:
    assert lay_out(words_to_break(text), 42, 2).split("\n") == lines


def test_wide_characters_take_two_columns() -> None:
    assert display_width("東京a") == 5
    assert words_to_break("「東京」へ。a b") == ["「東", "京」", "へ。", "a", " b"]


@pytest.mark.parametrize(
    ("before", "after"), [("the", "house"), ("New", "York"), ("Mr.", "Smith"), ("eine", "Frau")]
)
def test_units_are_not_broken(before: str, after: str) -> None:
    assert break_cost(before, after) > break_cost("house", "stands") > break_cost("house,", "it")


def test_the_checker_names_each_rule() -> None:
    cues = [
        Cue(0.0, 0.2, "Too short for this text"),
        Cue(0.1, 9.0, "one\ntwo\nthree"),
        Cue(9.0, 10.0, "A line that has far more characters than the forty-two allowed"),
        Cue(10.0, 12.0, "in the\nhouse"),
        Cue(12.0, 13.0, " "),
    ]
    found = {(v.cue, v.rule) for v in violations(cues, style_of("netflix"))}
    assert found == {
        (1, "short"), (1, "speed"), (1, "overlap"),
        (2, "lines"), (2, "long"), (2, "gap"),
        (3, "width"), (3, "speed"), (3, "gap"),
        (4, "break"), (4, "gap"),
        (5, "empty"),
    }  # fmt: skip


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(OptionError, match="plain, netflix, bbc"):
        style_of("disney")


def test_a_cue_ends_where_its_lines_could_not_break_well() -> None:
    """Its only two lines would be "… furnished to the / others, …"."""
    text = "To whom the software is furnished to the others, subject to following conditions."
    (whole,) = (lay_out(words_to_break(text), 42, 2),)
    assert whole.split("\n")[0].endswith(" the")
    cues = shape([Cue(0.0, 6.0, text)])
    assert " ".join(cue.text.replace("\n", " ") for cue in cues) == text
    assert not list(violations(cues))


def test_times_in_hundredths_are_no_violation() -> None:
    """ass files have no more."""
    style = STYLES["netflix"]
    cues = [Cue(0.0, 1.92, "One."), Cue(2.0, 3.0, "Two.")]
    assert [each.rule for each in violations(cues, style)] == ["gap"]
    assert not list(violations(cues, style, "ass"))
