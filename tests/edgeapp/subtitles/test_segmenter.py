"""Cues end with sentences, are short enough to be read, and hold all of the text."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from edgeapp.subtitles.segmenter import SentenceJoiner, SubtitleSegmenter
from pipelines.subtitles import Cue
from tests.edgeapp.subtitles.test_formats import segment


def cues(*parts: tuple[str, float, float]) -> list[Cue]:
    segmenter = SubtitleSegmenter()
    return [*chain.from_iterable(segmenter.add(*part) for part in parts), *segmenter.flush()]


def joined(*spans: tuple[float, float, str]) -> list[Cue]:
    joiner = SentenceJoiner()
    segments = [segment(i, start, end, text) for i, (start, end, text) in enumerate(spans)]
    return [*chain.from_iterable(map(joiner.add, segments)), *joiner.flush()]


def test_a_cue_ends_with_its_sentence() -> None:
    found = cues((" I am", 0, 1), (" here. And", 1, 3), (" you?", 3, 4))
    assert found == [Cue(0, 2, "I am here."), Cue(2, 4, "And you?")]


def test_text_without_a_leading_space_continues_the_word() -> None:
    assert cues((" walk", 0, 1), ("ing.", 1, 2)) == [Cue(0, 2, "walking.")]


@given(
    st.lists(st.tuples(st.sampled_from([" a", " long.", " word", " b? c", " "]), st.floats(0, 3)))
)
def test_cues_hold_all_text_and_are_short(parts: list[tuple[str, float]]) -> None:
    timed, now = [], 0.0
    for text, length in parts:
        timed.append((text, now, now + length))
        now += length
    found = cues(*timed)
    assert " ".join(cue.text for cue in found).split() == "".join(t for t, _ in parts).split()
    assert all(len(cue.text) <= 84 for cue in found)
    assert all(a.end <= b.start + 1e-9 for a, b in zip(found, found[1:], strict=False))


def test_a_sentence_over_two_segments_is_joined() -> None:
    assert joined((0, 2, " I went to the"), (2, 4, " station."), (4, 5, " Then home.")) == [
        Cue(0, 4, "I went to the station."),
        Cue(4, 5, "Then home."),
    ]


def test_closing_marks_belong_to_the_sentence() -> None:
    assert len(joined((0, 1, ' He said "no."'), (1, 2, " (Really?)"), (2, 3, " Yes"))) == 3


def test_a_long_pause_ends_a_joined_cue() -> None:
    assert [cue.text for cue in joined((0, 2, " and so"), (9, 10, " on"))] == ["and so", "on"]


def test_text_without_punctuation_is_cut_by_length() -> None:
    spans = [(i * 5.0, i * 5.0 + 5, f" word{i}") for i in range(20)]
    found = joined(*spans)
    assert max(cue.end - cue.start for cue in found) <= 40
    assert " ".join(cue.text for cue in found) == " ".join(f"word{i}" for i in range(20))


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from([" a", " b.", "", " c?"])), max_size=30))
def test_joined_cues_hold_all_text_in_order(parts: list[tuple[float, str]]) -> None:
    spans, now = [], 0.0
    for length, text in parts:
        spans.append((now, now + length, text))
        now += length
    found = joined(*spans)
    assert " ".join(cue.text for cue in found).split() == "".join(t for _, t in parts).split()
    assert all(a.end <= b.start for a, b in zip(found, found[1:], strict=False))
