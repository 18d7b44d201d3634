"""Models that other programs have put on this machine are found by name, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import ModelNotFound
from pipelines.hub import choose_default, list_models, recognizer_languages, resolve
from tests.fixtures.checkpoints import write_marian, write_whisper
from tests.formats.writers import write_argos, write_ctranslate2, write_ggml, write_pt


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whisper") / "base"
    return write_whisper(folder, "base", dtype="float32")


@pytest.fixture
def caches(tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of other programs, empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("cache/whisper", "data/pywhispercpp/models", "data/argos-translate/packages"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@pytest.mark.slow
def test_openai_whisper(caches: Path, whisper: Path) -> None:
    with pytest.raises(ModelNotFound):
        resolve("base")
    file = write_pt(whisper, caches / "cache/whisper/base.pt")
    found = resolve("base")
    assert (found.name, found.task, found.source) == ("base", "asr", "other")
    assert found.note == f"using the model base that openai-whisper has in {file}"
    assert resolve("openai/whisper-base").folder == found.folder
    listed = [model for model in list_models() if model.source == "other"]
    assert [(m.name, m.tool, m.folder) for m in listed] == [
        ("base", "openai-whisper", found.folder)
    ]
    assert listed[0].size_bytes > file.stat().st_size
    assert choose_default("asr").folder == found.folder


@pytest.mark.slow
def test_whisper_cpp(caches: Path, whisper: Path) -> None:
    write_ggml(whisper, caches / "data/pywhispercpp/models/ggml-base-q5_1.bin", "q5_1")
    assert [m.name for m in list_models() if m.tool == "whisper.cpp"] == ["base-q5_1"]
    write_ggml(whisper, caches / "data/pywhispercpp/models/ggml-base.bin")
    assert "that whisper.cpp has in" in str(resolve("base").note)


@pytest.mark.slow
def test_faster_whisper(caches: Path, hub_cache: Path, whisper: Path) -> None:
    storage = hub_cache / "models--Systran--faster-whisper-small"
    snapshot = storage / "snapshots" / ("a" * 40)
    storage.mkdir(parents=True)
    write_ctranslate2(whisper, snapshot, "float16", "tokenizer.json")
    found = resolve("small")
    assert found.note == f"using the model small that faster-whisper has in {snapshot}"
    assert resolve("Systran/faster-whisper-small").folder == found.folder
    (listed,) = (m for m in list_models() if m.tool)
    assert listed.name == "Systran/faster-whisper-small"
    codes = recognizer_languages(listed)
    assert {"de", "en", "zh"} < set(codes), "the page offers them"
    assert len(codes) == 99


def test_argos(caches: Path, tmp_path: Path) -> None:
    marian = write_marian(tmp_path / "m", weights="safetensors", dtype="float32")
    packages = caches / "data/argos-translate/packages"
    package = write_argos(marian, packages / "translate-en_de-1_0")
    found = resolve("opus-mt-en-de")
    assert found.note == f"using the model opus-mt-en-de that Argos Translate has in {package}"
    assert choose_default("translation", "en", "de").folder == found.folder
    with pytest.raises(ModelNotFound):
        resolve("opus-mt-de-en")


@pytest.mark.slow
def test_a_changed_file_is_read_anew(caches: Path, whisper: Path, tmp_path: Path) -> None:
    file = write_pt(whisper, tmp_path / "base.pt")
    before = resolve(file).folder
    assert resolve(file).folder == before
    write_pt(write_whisper(tmp_path / "tiny", "tiny.en", dtype="float32"), file)
    after = resolve(file).folder
    assert after != before
    assert '"vocab_size": 51864' in (after / "config.json").read_text()


def test_a_folder_in_transformers_layout_comes_first(caches: Path, whisper: Path) -> None:
    (whisper / "model.bin").write_bytes(b"not a model of CTranslate2")
    assert resolve(whisper).folder == whisper
