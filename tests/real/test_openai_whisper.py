"""In float32 Whisper base writes what openai-whisper writes, with the same times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.asr.oracle import in_openai, of_openai
from tests.real.conftest import Ours, Recordings, Report, Weights, alignment_heads


def openai_whisper(folder: Path) -> Any:
    model = in_openai(folder)
    heads = torch.zeros(model.dims.n_text_layer, model.dims.n_text_head)
    for layer, head in alignment_heads(folder):
        heads[layer, head] = 1
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    return model


@pytest.mark.parametrize("name", ["voices", pytest.param("german", marks=pytest.mark.campaign)])
def test_segments_and_word_times_equal_openai_whisper(
    name: str,
    folder: Path,
    weights: Weights,
    exact: Ours,
    recordings: Recordings,
    report: Report,
) -> None:
    recording = recordings[name]
    found = exact.find(recording, words=True)
    model = weights.of("openai-whisper", lambda: openai_whisper(folder))
    theirs = of_openai(model, recording.samples, temperature=0.0, word_timestamps=True)
    assert found.text == theirs["text"]
    ours = [word for segment in found.segments for word in segment.words]
    words = [word for segment in theirs["segments"] for word in segment["words"]]
    assert [word.word for word in ours] == [word["word"] for word in words]
    far = [
        (word.word, word.start, word.end, other["start"], other["end"])
        for word, other in zip(ours, words, strict=True)
        if max(abs(word.start - other["start"]), abs(word.end - other["end"])) > 1e-6
    ]
    report.say(
        f"times of {name}: {len(words) - len(far)} of {len(words)} words as openai-whisper's"
    )
    # An alignment may tie, too.
    assert len(far) <= len(words) // 100, far
    for word, other in zip(ours, words, strict=True):
        assert word.probability == pytest.approx(other["probability"], abs=1e-3)
