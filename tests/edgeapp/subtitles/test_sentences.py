"""Segments become passages that end where sentences end."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from edgeapp.subtitles.formats import Cue
from edgeapp.subtitles.sentences import SentenceJoiner
from tests.edgeapp.subtitles.test_formats import segment


def passages(*spans: tuple[float, float, str]) -> list[Cue]:
    collector = SentenceJoiner()
    segments = [segment(i, start, end, text) for i, (start, end, text) in enumerate(spans)]
    return [*chain.from_iterable(map(collector.add, segments)), *collector.flush()]


def test_a_sentence_over_two_segments_is_one_passage() -> None:
    assert passages((0, 2, " I went to the"), (2, 4, " station."), (4, 5, " Then home.")) == [
        Cue(0, 4, "I went to the station."),
        Cue(4, 5, "Then home."),
    ]


def test_closing_marks_belong_to_the_sentence() -> None:
    assert len(passages((0, 1, ' He said "no."'), (1, 2, " (Really?)"), (2, 3, " Yes"))) == 3


def test_a_long_pause_ends_a_passage() -> None:
    assert [cue.text for cue in passages((0, 2, " and so"), (9, 10, " on"))] == ["and so", "on"]


def test_text_without_an_end_comes_out_all_the_same() -> None:
    spans = [(i * 5.0, i * 5.0 + 5, f" word{i}") for i in range(20)]
    found = passages(*spans)
    assert max(cue.end - cue.start for cue in found) <= 40
    assert " ".join(cue.text for cue in found) == " ".join(f"word{i}" for i in range(20))


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from([" a", " b.", "", " c?"])), max_size=30))
def test_no_words_are_lost_and_times_stay_in_order(parts: list[tuple[float, str]]) -> None:
    spans, now = [], 0.0
    for length, text in parts:
        spans.append((now, now + length, text))
        now += length
    found = passages(*spans)
    assert " ".join(cue.text for cue in found).split() == "".join(t for _, t in parts).split()
    assert all(a.end <= b.start for a, b in zip(found, found[1:], strict=False))
