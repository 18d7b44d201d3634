"""Live captions by a recognizer that understands English only say so, at both ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgeapp.cli import main
from pipelines.hub import assets_folder, bundled_folder

TALK = assets_folder() / "samples" / "talk.flac"


@pytest.mark.slow
@pytest.mark.parametrize("language", [(), ("-l", "en")])
@pytest.mark.parametrize("foreign", [True, False])
def test_it_says_so_first_and_last_if_no_language_was_given(
    language: tuple[str, ...],
    foreign: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(bundled_folder("demo"), tmp_path / "mine.en")
    if foreign:
        monkeypatch.setattr("edgeapp.english_only._LEAST_WORD_LOGPROB", 1.0)
    monkeypatch.chdir(tmp_path)
    command = ["live", "-m", "./mine.en", "--from-file", str(TALK), "--speed", "0", *language]
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code in (0, None)
    said = capsys.readouterr().err
    told = not language
    assert said.count("understands English only; for other languages choose a multi") == told
    assert said.count("this sounds like another language than English") == (told and foreign)
