"""Settings: the environment overrides the file, which overrides defaults; errors are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeapp.settings import Settings, load_settings, parse_threads
from pipelines.errors import OptionError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("EDGEAPP_CONFIG", str(path))
    for name in ("MODEL", "TRANSLATION_MODEL", "DEVICE", "COMPUTE_TYPE", "THREADS"):
        monkeypatch.delenv(f"EDGEAPP_{name}", raising=False)
    return path


def test_without_a_file(file: Path) -> None:
    assert load_settings() == Settings()


def test_the_environment_overrides_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('model = "base"\nthreads = 3\ncompute_type = "float32"\n')
    monkeypatch.setenv("EDGEAPP_MODEL", "small")
    assert load_settings() == Settings(model="small", compute_type="float32", threads=3)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('modle = "base"', "unknown setting 'modle'"),
        ("model = 3", "model must be a string"),
        ("model = ", "cannot be read"),
        ('threads = "many"', "threads must be"),
        ("threads = 0", "threads must be"),
        ("ask_to_download = 3", "ask_to_download must be true or false, not 3"),
        ("transcribe = 3", r"\[transcribe\] must be a table, not 3"),
        ("transcribe = false", r"\[transcribe\] must be a table, not False"),
        ("translate = ''", r"\[translate\] must be a table, not ''"),
        ("[transcribe]\nbeam = 3", r"\[transcribe\] no such option: beam; .* beam_size\?"),
        ("[transcribe]\nbeam-size = 3", r"no such option: beam-size; .* beam_size\?"),
        ("[transcribe]\nvad_threshold = 0.4", r"did you mean vad_parameters.threshold\?"),
        ("[translate]\nalignments = true", r"alignments; did you mean word_alignments\?"),
        ("[transcribe]\nlanguages = 3", r"\[transcribe\] languages must be a list of texts"),
        ("[transcribe]\nlanguages = ['en', 3]", r"\[transcribe\] languages must be a list of te"),
        ("[transcribe]\nbeam_size = true", "beam_size must be a whole number, not True"),
        ("[transcribe]\nclip_timestamps = true", "clip_timestamps takes seconds, .* not True"),
        ("[transcribe]\nbeam_size = 0", r"\[transcribe\] beam_size must be 1 or more, not 0"),
        ("[transcribe]\nlanguage = 3", r"\[transcribe\] language must be a text, not 3"),
        ("[transcribe]\nmultilingual = 'no'", "multilingual must be true or false, not 'no'"),
        ("[transcribe]\nvad_parameters.treshold = 1", "vad_parameters: no such option: treshold"),
        ("[translate]\npriority = 3", "no such option: priority"),
    ],
)
def test_invalid_settings_are_reported(file: Path, text: str, error: str) -> None:
    file.write_text(text)
    with pytest.raises(OptionError, match=error):
        load_settings()


def test_threads() -> None:
    assert parse_threads("auto") == "auto"
    assert parse_threads("2") == 2
