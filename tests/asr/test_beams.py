"""Recordings with beams, against `whisper.transcribe` on the same weights in float32."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from pipelines.asr import TextDelta, TranscribeOptions
from pipelines.errors import OptionError
from tests.asr.conftest import Pair
from tests.asr.oracle import assert_same, of_openai
from tests.asr.recordings import RECORDINGS, samples_of

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("short", {"beam_size": 5}),
        ("short", {"beam_size": 2, "length_penalty": 0.6}),
        ("german", {"beam_size": 3, "patience": 2.0, "suppress_tokens": (-1, 30)}),
        ("short", {"beam_size": 4, "patience": 0.5, "without_timestamps": True}),
    ],
)
def test_beams_equal_openai_whisper(fitted: Pair, name: str, options: dict[str, Any]) -> None:
    samples = samples_of(RECORDINGS[name])
    with warnings.catch_warnings():  # it sorts tensors with numpy
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs = of_openai(fitted.theirs, samples, temperature=0.0, **options)
    ours = list(fitted.ours.transcribe(samples, temperature=0.0, openai_rules=True, **options))
    assert_same(ours, theirs["segments"])


def test_live_text_of_beams_is_the_text(fitted: Pair) -> None:
    """Live text of beam search is the common prefix of the beams, and is not retracted."""
    samples = samples_of(RECORDINGS["short"])
    events = list(fitted.ours.stream(samples, temperature=0.0, beam_size=4))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    segments = fitted.ours.transcribe(samples, temperature=0.0, beam_size=4)
    assert text.split() == "".join(segment.text for segment in segments).split()


def test_the_best_of_several_samples_is_likelier(fitted: Pair) -> None:
    samples = samples_of(RECORDINGS["short"])
    chosen = {"temperature": 1.3, "language": "en"}
    one = next(fitted.ours.transcribe(samples, best_of=1, **chosen))
    best = next(fitted.ours.transcribe(samples, best_of=6, **chosen))
    again = next(fitted.ours.transcribe(samples, best_of=6, **chosen))
    assert best.avg_logprob > one.avg_logprob
    assert best.tokens == again.tokens, "the seed makes it repeatable"


@pytest.mark.parametrize(
    "wrong", [{"beam_size": 0}, {"best_of": 0}, {"patience": 2.0}, {"length_penalty": 1.5}]
)
def test_invalid_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        TranscribeOptions(**wrong)
