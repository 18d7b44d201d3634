"""In float32 Whisper base chooses the ids that transformers chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.asr.audio.features import FileFeatures
from pipelines.engine import GenerationOptions, Request
from tests.engine.oracle import assert_same_choice, encoded, greedy, reference
from tests.real.conftest import Ours, Recordings, Report, Weights, recorded

TOKENS = 60  # of a window


@pytest.mark.parametrize("name", recorded("voices", "german"))
def test_ids_of_a_window_equal_transformers(
    name: str,
    folder: Path,
    weights: Weights,
    exact: Ours,
    recordings: Recordings,
    report: Report,
) -> None:
    recording, transcriber = recordings[name], exact.transcriber
    model, special = transcriber.model, transcriber.tokenizer.special
    language = special.languages[recording.language]
    prompt = (special.sot, language, special.transcribe)
    window, _ = FileFeatures(recording.samples, 80, 3000).window(0)
    options = GenerationOptions(max_new_tokens=TOKENS, eos_ids=(special.eot,))
    (ours,) = transcriber.engine.generate([Request(model.encode([window])[0], prompt, options)])
    transformers = weights.of("transformers", lambda: reference(folder))
    source = encoded(transformers, window)
    theirs = greedy(transformers, source, prompt, TOKENS)
    agreed = assert_same_choice(transformers, source, prompt, ours.tokens, theirs)
    ties = int(agreed < len(theirs))
    report.say(f"window of {name}: {agreed} ids as transformers', {ties} near ties")
    assert agreed > 20, "a tie this early compares nothing"
