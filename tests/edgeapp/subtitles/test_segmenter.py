"""Committed text becomes cues that end with sentences and can be read."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from edgeapp.subtitles.formats import Cue
from edgeapp.subtitles.segmenter import SubtitleSegmenter


def cues(*pieces: tuple[str, float, float]) -> list[Cue]:
    builder = SubtitleSegmenter()
    return [*chain.from_iterable(builder.add(*piece) for piece in pieces), *builder.flush()]


def test_a_cue_ends_with_its_sentence() -> None:
    found = cues((" I am", 0, 1), (" here. And", 1, 3), (" you?", 3, 4))
    assert found == [Cue(0, 2, "I am here."), Cue(2, 4, "And you?")]


def test_a_piece_without_a_space_goes_on_the_word() -> None:
    assert cues((" walk", 0, 1), ("ing.", 1, 2)) == [Cue(0, 2, "walking.")]


@given(
    st.lists(st.tuples(st.sampled_from([" a", " long.", " word", " b? c", " "]), st.floats(0, 3)))
)
def test_nothing_is_lost_and_no_cue_is_too_long(parts: list[tuple[str, float]]) -> None:
    pieces, now = [], 0.0
    for text, length in parts:
        pieces.append((text, now, now + length))
        now += length
    found = cues(*pieces)
    assert " ".join(cue.text for cue in found).split() == "".join(t for t, _ in parts).split()
    assert all(len(cue.text) <= 84 for cue in found)
    assert all(a.end <= b.start + 1e-9 for a, b in zip(found, found[1:], strict=False))
