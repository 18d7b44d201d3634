"""Drafting pauses while it takes longer than it saves, and is tried again."""

from __future__ import annotations

import pytest

from pipelines.engine.decoding.speculative.timing import DraftTiming


def run(timing: DraftTiming, steps: int, accepted: int, drafted_s: float, plain_s: float) -> int:
    """Run steps of one sequence. Returns how many of them were drafted."""
    drafted = 0
    for _ in range(steps):
        if timing.allows_drafts(1):
            timing.record_drafted(1, drafted_s, 4, accepted)
            drafted += 1
        else:
            timing.record_plain(1, plain_s)
    return drafted


def test_drafts_that_save_time_go_on() -> None:
    timing = DraftTiming()
    drafted = run(timing, 200, accepted=3, drafted_s=0.02, plain_s=0.01)
    assert drafted > 180, "a plain step is timed now and then"
    assert timing.pauses == 0
    assert timing.saved_s == pytest.approx(drafted * (4 * 0.01 - 0.02))
    assert (timing.accepted, timing.drafted) == (3 * drafted, 4 * drafted)


def test_drafts_that_lose_time_pause_ever_longer() -> None:
    timing = DraftTiming()
    drafted = run(timing, 1000, accepted=0, drafted_s=0.02, plain_s=0.01)
    assert timing.pauses >= 3
    assert drafted < 60
    assert timing.saved_s == pytest.approx(-0.01 * drafted)
    before = timing.pauses
    assert run(timing, 5000, accepted=4, drafted_s=0.02, plain_s=0.01) > 2000, "tried again"
    assert timing.pauses == before


def test_what_a_draft_saves_is_shared_by_the_batch() -> None:
    """Two accepted tokens save one plain step of two sequences, not two."""
    timing = DraftTiming()
    for _ in range(2):
        timing.record_plain(2, 0.01)
    assert timing.allows_drafts(2)
    assert not timing.allows_drafts(3), "no plain step of three sequences was timed"
    timing.record_drafted(2, 0.01, 4, 2)
    assert timing.saved_s == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("token_s", "accepted", "shortest", "longest"),
    [
        (0.0005, 4, 16, 16),  # all accepted, nearly for nothing
        (0.0005, 1, 1, 4),  # cheap, but the second token is refused
        (0.006, 3, 1, 2),  # good, but each token takes more than half a step
    ],
)
def test_the_best_length_weighs_acceptance_against_time(
    token_s: float, accepted: int, shortest: int, longest: int
) -> None:
    timing = DraftTiming()
    assert timing.best_length(1) == 16, "nothing is known yet"
    for _ in range(2):
        timing.record_plain(1, 0.01)
    for _ in range(40):
        timing.record_drafted(1, 0.01 + 4 * token_s, 4, accepted, int(accepted < 4))
    assert shortest <= timing.best_length(1) <= longest
    assert timing.best_length(3) == 16, "no plain step of three sequences was timed"
