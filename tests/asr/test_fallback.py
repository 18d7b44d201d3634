"""Temperature fallback, prompts and window positions against openai-whisper, with decoding
scripted in both programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whisper.audio import log_mel_spectrogram
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import get_tokenizer

from pipelines.asr import Transcriber
from tests.asr.oracle import assert_same, of_openai
from tests.asr.scripted import Turn, script_theirs, scripted

pytestmark = pytest.mark.oracle

SOUND = np.random.default_rng(0).normal(0, 0.1, 33 * 16_000).astype(np.float32)
LOOP = " again and again" * 30

# Kinds of turns: timestamps and texts, mean log-probability, no-speech probability.
KINDS: dict[str, tuple[tuple[float | str, ...], float, float]] = {
    "good": ((0.0, " Good morning.", 30.0), -0.25, 0.0),
    "unlikely": ((0.0, " Mmh.", 30.0), -1.5, 0.0),
    "looping": ((0.0, LOOP, 30.0), -0.25, 0.0),
    "silent": ((0.0, " Thank you.", 30.0), -1.5, 0.75),
    "silent loop": ((0.0, LOOP, 30.0), -1.5, 0.75),
    "likely silent": ((0.0, " Thank you.", 30.0), -0.25, 0.75),
}


def tokens_of(*parts: float | str) -> tuple[int, ...]:
    """Tokens of times and texts."""
    tokenizer = get_tokenizer(True, language="en", task="transcribe")
    tokens: list[int] = []
    for part in parts:
        if isinstance(part, str):
            tokens += tokenizer.encode(part)
        else:
            tokens.append(tokenizer.timestamp_begin + round(part / 0.02))
    return tuple(tokens)


@pytest.fixture(scope="module")
def model() -> Whisper:
    """Not run; only its dimensions matter."""
    return Whisper(ModelDimensions(80, 1500, 8, 1, 1, 51_865, 448, 8, 1, 1)).eval()


@pytest.fixture(scope="module", autouse=True)
def _spectrum_once() -> Iterator[None]:
    """openai-whisper computes the spectrogram of SOUND once, not in each test."""
    module = sys.modules["whisper.transcribe"]
    spectrum = log_mel_spectrogram(SOUND, padding=480_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "log_mel_spectrogram", lambda *args, **kwargs: spectrum)
        yield


def assert_same_run(
    model: Whisper, real: Transcriber, turns: Sequence[Turn], **options: Any
) -> list[float]:
    """Run both programs on the turns and compare calls and segments.

    Returns:
        The temperatures of the decode calls.
    """
    transcriber, ours = scripted(real, turns)
    theirs = script_theirs(model, turns)
    segments = list(transcriber.transcribe(SOUND, language="en", openai_rules=True, **options))
    expected = of_openai(model, SOUND, language="en", **options)
    assert [a.temperature for a in ours.calls] == [a.temperature for a in theirs]
    assert [a.prompt for a in ours.calls] == [a.prompt for a in theirs]
    for mine, other in zip(ours.calls, theirs, strict=True):  # the same windows
        assert float((mine.mel - other.mel).abs().max()) <= 1e-6
    assert_same(segments, expected["segments"], tolerance=1e-9)
    return [a.temperature for a in ours.calls]


ALL = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
RUNS: dict[str, tuple[list[str], dict[str, Any], list[float]]] = {
    "good at once": (["good"], {}, [0.0, 0.0]),
    "unlikely, then good": (["unlikely", "good"], {}, [0.0, 0.2, 0.0, 0.2]),
    "looping, then good": (["looping", "looping", "good", "good"], {}, [0.0, 0.2, 0.4, 0.0]),
    "never good": (["unlikely"], {}, ALL + ALL),
    "always looping": (["looping"], {"temperature": (0.0, 0.5)}, [0.0, 0.5, 0.0, 0.5]),
    "silent": (["silent"], {}, [0.0, 0.0]),
    "silent and looping": (["silent loop"], {}, [0.0, 0.0]),
    "no speech, but likely text": (["likely silent"], {}, [0.0, 0.0]),
    "unlikely, then silent": (["unlikely", "silent"], {}, [0.0, 0.2, 0.0, 0.2]),
    "one temperature": (["unlikely"], {"temperature": 0.3}, [0.3, 0.3]),
    "loops allowed": (["looping"], {"compression_ratio_threshold": None}, [0.0, 0.0]),
    "the unlikely allowed": (["unlikely"], {"logprob_threshold": None}, [0.0, 0.0]),
    "silent without a threshold": (["silent"], {"no_speech_threshold": None}, ALL + ALL),
    "silent, likely or not": (["likely silent"], {"logprob_threshold": None}, [0.0, 0.0]),
    "exactly on a threshold": (["unlikely"], {"logprob_threshold": -1.5}, [0.0, 0.0]),
    "hot text is no prompt": ([*["unlikely"] * 3, "good"], {}, [0.0, 0.2, 0.4, 0.6] * 2),
    "warm text is a prompt": ([*["unlikely"] * 2, "good"], {}, [0.0, 0.2, 0.4] * 2),
    "exactly 0.5 is a prompt": (["good"], {"temperature": (0.5,)}, [0.5, 0.5]),
}


@pytest.mark.parametrize("name", RUNS)
def test_known_runs(model: Whisper, real: Transcriber, name: str) -> None:
    kinds, options, tried = RUNS[name]
    turns = [Turn(tokens_of(*KINDS[kind][0]), *KINDS[kind][1:]) for kind in kinds]
    assert assert_same_run(model, real, turns, **options) == tried


WORDS = st.sampled_from(
    [" Good morning.", " Grüße", " 春の雨、🌧", " ", "", " no", LOOP, " one two three"]
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[int, ...]:
    """Tokens that follow Whisper's timestamp grammar, and some that do not."""
    parts: list[float | str] = draw(st.sampled_from([[], [0.0], [1.0]]))
    for step in sorted(draw(st.lists(st.integers(10, 60), max_size=5))):
        parts = [*parts, draw(WORDS), *[step * 0.5] * draw(st.integers(1, 2))]
    # An incomplete character at the end, as at the length limit.
    tail = tokens_of(draw(st.sampled_from(["", " and", "🌧"])))
    return (*tokens_of(*parts), *tail[:1])


TURNS = st.builds(
    Turn,
    tokens=texts(),
    # Sums of these are exact, so both programs compute the same mean.
    avg_logprob=st.sampled_from([-0.125, -0.5, -1.0, -1.0625, -3.0]),
    no_speech_prob=st.sampled_from([0.0, 0.25, 0.6, 0.625, 1.0]),
)
OPTIONS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.0, 0.5), (0.8,)]),
        "compression_ratio_threshold": st.sampled_from([None, 2.4, 0.5]),
        "logprob_threshold": st.sampled_from([None, -1.0, 0.0]),
        "no_speech_threshold": st.sampled_from([None, 0.6, 0.0]),
        "condition_on_previous_text": st.booleans(),
        "initial_prompt": st.sampled_from([None, "", "Köln, 春", "word " * 300]),
        "without_timestamps": st.booleans(),
    }
)


@settings(max_examples=40)
@given(turns=st.lists(TURNS, min_size=1, max_size=7), options=OPTIONS)
def test_any_run(
    model: Whisper, real: Transcriber, turns: list[Turn], options: dict[str, Any]
) -> None:
    assert_same_run(model, real, turns, **options)
