"""Passages in two languages, and subtitles of both."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeapp.subtitles.line_breaks import display_width
from edgeapp.subtitles.passages import bilingual, passages
from pipelines.subtitles import Cue, Transcript

TALK = Transcript(
    "en",
    (Cue(0, 2, " Good"), Cue(2, 3, " morning."), Cue(3, 4, " Hm."), Cue(5, 9, " Thank you.")),
    (Cue(0, 3, "Guten Morgen."), Cue(5, 9, "Danke.")),
    "de",
)


def test_segments_go_with_the_sentence_that_they_begin_in() -> None:
    read = [(each.start, each.text, each.translation) for each in passages(TALK)]
    assert read == [
        (0, "Good morning.", "Guten Morgen."), (3, "Hm.", ""), (5, "Thank you.", "Danke."),
    ]  # fmt: skip


def test_both_languages_are_in_a_cue() -> None:
    cues = bilingual(TALK)
    assert [cue.text for cue in cues] == [
        "Good morning.\nGuten Morgen.",
        "Hm.",
        "Thank you.\nDanke.",
    ]
    assert [(cue.start, cue.end) for cue in cues] == [(0, 3), (3, 4), (5, 9)]


WORD = st.text(alphabet="abcdefgh", min_size=1, max_size=12)
SENTENCE = st.lists(WORD, min_size=1, max_size=60).map(" ".join)


@settings(max_examples=60)
@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=4))
def test_no_word_is_lost_and_each_language_has_two_lines_at_most(
    sentences: list[tuple[str, str]],
) -> None:
    cues = [Cue(20 * i, 20 * i + 20, f" {text}") for i, (text, _) in enumerate(sentences)]
    meant = [Cue(20 * i, 20 * i + 20, text) for i, (_, text) in enumerate(sentences)]
    shown = bilingual(Transcript("en", tuple(cues), tuple(meant), "de"))
    words = " ".join(cue.text for cue in shown).split()
    assert sorted(words) == sorted(" ".join(f"{a} {b}" for a, b in sentences).split())
    for cue, following in pairwise([*shown, Cue(1e9, 1e9, "")]):
        assert cue.start <= cue.end <= following.start + 1e-6
    # A sentence of few words cannot be shown in as many parts as a long translation needs.
    if all(4 * len(a.split()) >= len(b.split()) for a, b in sentences):
        for cue in shown:
            lines = cue.text.split("\n")
            assert len(lines) <= 4, cue
            assert all(display_width(line) <= 42 for line in lines), cue


@pytest.mark.slow
def test_a_hostile_transcript_is_divided_in_time() -> None:
    text = "word " * 20_000
    assert len(bilingual(Transcript("en", (Cue(0, 9, text),), (Cue(0, 9, text),), "de"))) > 100
