"""Commands on a machine without a recognizer for people's voices: an error, or one question."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeapp.cli import main
from edgeapp.live import capture
from edgeapp.model_pool import ModelPool
from pipelines import ModelNotFound, Transcriber, hub
from pipelines.hub import ResolvedModel, assets_folder, resolve
from tests.edgeapp.test_model_pool import add_to_cache

TALK = str(assets_folder() / "samples" / "question.flac")
COMMAND = "`edgeapp models pull base`"
QUESTION = "Whisper base, 99 languages, 145 MB: download it now? [Y/n] "


@pytest.fixture(autouse=True)
def _no_recognizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_cache: Path) -> None:
    for name in ("EDGEAPP_MODEL", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes stdin, stdout and stderr a terminal, at which a person types an answer."""

    def sit(answer: str, but: str = "") -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        for name in {"stdin", "stdout", "stderr"} - {but}:
            monkeypatch.setattr(getattr(sys, name), "isatty", lambda: True)

    return sit


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.parametrize(
    "command",
    [
        ("transcribe", TALK, "-o", "out/"),
        ("live", "--from-file", TALK),
        ("watch", ".", "out"),
        ("bench", "live"),
    ],
)
def test_a_command_says_one_line_and_does_nothing(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(*command, capsys=capsys)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert err.startswith("edgeapp: no recognizer ")
    assert err.count(COMMAND) == 1
    assert not list(tmp_path.glob("out*"))


def test_a_watch_of_texts_needs_no_recognizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "question.txt").write_text("Where is the station?\n")
    (tmp_path / "in" / "talk.flac").write_bytes(Path(TALK).read_bytes())
    watch = ("watch", "in", "out", "--translate-to", "de", "--once", "--settle", "0")
    code, _, err = run(*watch, capsys=capsys)
    assert code == 0, err
    assert err.startswith("edgeapp: no recognizer is on this machine")
    assert "only texts and subtitles are done" in err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["question.de.txt"]


def test_the_bundled_one_works_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transcribe = ("transcribe", TALK, "--dry-run", "-o", "out/")
    assert run(*transcribe, "-m", "demo", capsys=capsys)[0] == 0
    (tmp_path / "config.toml").write_text('model = "demo"\n')
    assert run(*transcribe, capsys=capsys)[0] == 0
    (tmp_path / "config.toml").unlink()
    monkeypatch.setenv("EDGEAPP_MODEL", "demo")
    assert run(*transcribe, capsys=capsys)[0] == 0


@pytest.mark.parametrize("answer", ["n\n", "no\n", "what?\n", ""])
def test_a_person_who_does_not_want_it(
    answer: str,
    terminal: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(capture, "LiveCapture", opened.append)
    terminal(answer)
    code, out, err = run("live", capsys=capsys)
    assert (code, out, opened) == (3, "", [])
    assert err.count(QUESTION) == 1
    assert "which has " in err
    assert " GB free\n" in err
    assert err.splitlines()[-1].endswith(f"(Whisper base, 99 languages, 145 MB): {COMMAND}")


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["\n", "Y\n", "yes\n"])
def test_a_person_who_wants_it(
    answer: str,
    hub_cache: Path,
    whisper_folder: Callable[..., Path],
    terminal: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = []

    def pull(name: str, progress: object, source: str) -> ResolvedModel:
        asked.append((name, source))
        add_to_cache(hub_cache, "openai/whisper-base", whisper_folder("tiny"))
        return resolve(name)

    monkeypatch.setattr(hub, "pull", pull)
    terminal(answer)
    code, _, err = run("transcribe", TALK, "-o", "out/", capsys=capsys)
    assert (code, asked, err.count(QUESTION)) == (0, [("base", "auto")], 1)
    assert "using base, the best model" in err


WHO_IS_NEVER_ASKED = {
    "stdin": [],
    "stdout": [],
    "stderr": [],
    "CI": [],
    "setting": [],
    "variable": [],
    "offline": [],
    "flag": ["--no-download"],
    "whisper-ctranslate2": ["--local_files_only", "True"],
    "dry run": ["--dry-run", "-o", "out/"],
}


@pytest.mark.parametrize("why", WHO_IS_NEVER_ASKED)
def test_who_is_never_asked(
    why: str,
    tmp_path: Path,
    terminal: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal("y\n", but=why)
    if why == "CI":
        monkeypatch.setenv("CI", "true")
    if why == "setting":
        (tmp_path / "config.toml").write_text("ask_to_download = false\n")
    if why == "variable":
        monkeypatch.setenv("EDGEAPP_ASK_TO_DOWNLOAD", "off")
    if why == "offline":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code, _, err = run("transcribe", TALK, *WHO_IS_NEVER_ASKED[why], capsys=capsys)
    assert code == 3
    assert QUESTION not in err
    assert COMMAND in err


def test_a_model_that_was_named_is_not_replaced(
    terminal: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal("y\n")
    code, _, err = run("transcribe", TALK, "-m", "small", capsys=capsys)
    assert code == 3
    assert QUESTION not in err
    assert "`edgeapp models pull small`" in err


def test_python_without_a_model() -> None:
    with pytest.raises(ModelNotFound, match="no recognizer is on this machine") as error:
        Transcriber()
    assert str(error.value).endswith(": `python -m edgeapp models pull base`")
    assert error.value.download == "base"


@pytest.mark.slow
def test_python_takes_the_best_one_here(
    hub_cache: Path, whisper_folder: Callable[..., Path]
) -> None:
    folder = whisper_folder("tiny")
    add_to_cache(hub_cache, "openai/whisper-base", folder)
    with Transcriber() as transcriber:
        assert transcriber.capabilities.name == "base"
        assert transcriber.model.folder == folder.resolve()


def test_a_server_warms_up_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    from edgeapp.server import serve
    from edgeapp.settings import load_settings

    pool = ModelPool(load_settings(), listed_only=True)
    try:
        serve._warm_up(pool)
    finally:
        pool.engine.close()
    assert capsys.readouterr().err.splitlines()[-1].startswith("edgeapp: no recognizer is on this")
