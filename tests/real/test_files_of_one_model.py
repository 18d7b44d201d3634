"""Whisper base as safetensors, as CTranslate2's folder and as openai-whisper's file: one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.writers import write_ctranslate2, write_pt
from tests.real.conftest import Ours, Recordings, Report, Weights

NAMES = ("voices",)  # "german" is equal too; each takes half a minute


@pytest.mark.slow
@pytest.mark.parametrize("program", ["ctranslate2", "openai-whisper"])
def test_recordings_have_the_same_text(
    program: str,
    folder: Path,
    weights: Weights,
    exact: Ours,
    recordings: Recordings,
    report: Report,
    tmp_path: Path,
) -> None:
    expected_of = {name: exact.find(recordings[name]) for name in NAMES}
    weights.drop()
    if program == "ctranslate2":
        copied = ("tokenizer.json", "preprocessor_config.json", "generation_config.json")
        made = write_ctranslate2(folder, tmp_path / "base", "float32", *copied)
    else:
        made = write_pt(folder, tmp_path / "base.pt")
    other = Ours(weights, made, "float32")
    for name in NAMES:
        expected, found = expected_of[name], other.find(recordings[name])
        assert len(expected.text.split()) > 10
        assert found.text == expected.text
        assert [(s.start, s.end, s.tokens) for s in found.segments] == [
            (s.start, s.end, s.tokens) for s in expected.segments
        ]
        report.say(f"{name} by {made.name} of {program}: the text of the safetensors")
