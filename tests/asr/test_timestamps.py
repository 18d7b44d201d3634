"""Whisper's timestamp tokens: the logit filter against openai-whisper's, and the segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from whisper.decoding import ApplyTimestampRules

from pipelines.asr import TranscribeOptions, Transcriber
from pipelines.asr.timestamps import TokenSpan, WhisperTimestamps, split_at_timestamps
from pipelines.engine import Engine, LogitFilter, apply_filters
from pipelines.errors import RequestError

VOCAB = 30
PROMPT = (7, 3)


@pytest.mark.oracle
@pytest.mark.parametrize("initial", [None, 0, 3])
@given(
    generated=st.lists(st.one_of(st.integers(0, 9), st.integers(15, VOCAB - 1)), max_size=10),
    seed=st.integers(0, 1000),
    tilt=st.floats(-4, 4),
)
@settings(max_examples=150)
def test_timestamps_equal_openai_whisper(
    initial: int | None, generated: list[int], seed: int, tilt: float
) -> None:
    begin, eot = 15, 10
    tokenizer = SimpleNamespace(no_timestamps=14, timestamp_begin=begin, eot=eot)
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    logits[begin:] += tilt  # so that both outcomes of the probability test occur
    theirs = logits[None].clone()
    sequence = torch.tensor([[*PROMPT, *generated]])
    ApplyTimestampRules(tokenizer, len(PROMPT), initial).apply(theirs, sequence)
    ours = WhisperTimestamps(begin, eot, 14, initial)
    torch.testing.assert_close(apply_filters([ours], logits, PROMPT, generated), theirs[0])


def test_it_is_a_logit_filter_that_checks_its_ids() -> None:
    assert isinstance(WhisperTimestamps(15, 10, 14), LogitFilter)
    for begin in (10, VOCAB):
        with pytest.raises(RequestError, match="do not fit"):
            WhisperTimestamps(begin, 10, None).bind(PROMPT, VOCAB, torch.device("cpu"))


@pytest.mark.parametrize(
    ("tokens", "spans", "advance"),
    [
        # No pair: one segment that ends at the last timestamp, or with the window.
        ((100, 1, 2), [(0.0, 30.0, (100, 1, 2))], 3000),
        ((100, 1, 150), [(0.0, 1.0, (100, 1, 150))], 3000),
        # Cut off after a pair: the next window begins there.
        ((100, 1, 150, 150, 2), [(0.0, 1.0, (100, 1, 150))], 100),
        # A single timestamp at the end: the window is complete.
        (
            (100, 1, 150, 160, 2, 200),
            [(0.0, 1.0, (100, 1, 150)), (1.2, 2.0, (160, 2, 200))],
            3000,
        ),
    ],
)
def test_two_timestamps_in_a_row_separate_segments(
    tokens: tuple[int, ...], spans: list[tuple[float, float, tuple[int, ...]]], advance: int
) -> None:
    found, frames = split_at_timestamps(tokens, 100, 3000)
    assert found == [TokenSpan(*span) for span in spans]
    assert frames == advance


@pytest.mark.slow
def test_timestamps_beyond_the_window_are_suppressed(
    engine: Engine, whisper_folder: Callable[..., Path]
) -> None:
    """And no others: speech may end with the window."""
    folder = whisper_folder("tiny", source_positions=100)
    recognizer = Transcriber(folder, engine=engine).recognizer
    begin = recognizer.tokenizer.special.timestamp_begin
    last = begin + round(recognizer.window_s / 0.02)
    end = recognizer.model.architecture.vocab_size
    assert last + 1 < end, "the vocabulary is made for longer windows"
    suppressed = recognizer.suppressed_tokens(TranscribeOptions())
    assert [each for each in suppressed if each >= begin] == list(range(last + 1, end))


def limited(generated: list[int], *, wants_time: bool, prompt: Sequence[int] = PROMPT) -> list[int]:
    """Return the ids that are allowed after some, in a sound that ends at timestamp 4."""
    logits = torch.zeros(VOCAB)
    logits[15:] = 5.0 if wants_time else -5.0
    left = apply_filters([WhisperTimestamps(15, 10, 14, None, 4)], logits, prompt, generated)
    return [id_ for id_, logit in enumerate(left.tolist()) if logit != -float("inf")]


def test_no_timestamp_is_after_the_end_of_the_sound() -> None:
    assert limited([], wants_time=True) == [15, 16, 17, 18]
    assert limited([15, 1], wants_time=True) == [16, 17, 18, 19]
    assert limited([15, 1], wants_time=False) == [*range(14), 16, 17, 18, 19]


def test_the_text_ends_with_the_sound() -> None:
    assert limited([15, 1, 19], wants_time=True) == [10, 11, 12, 13]
    assert limited([15, 1, 18], wants_time=True) == [18, 19]


def test_a_prefix_in_the_prompt_has_begun_the_text() -> None:
    """So that text follows it, not the first timestamp."""
    assert limited([], wants_time=False, prompt=(11, 15, 3)) == [*range(14), 16, 17, 18, 19]
