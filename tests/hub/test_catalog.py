"""What is on this machine, and getting rid of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipelines.errors import ModelError, ModelNotFound
from pipelines.hub import list_models, remove, resolve
from tests.hub.conftest import Cached, opus_files, whisper_files, write_files


def test_the_list_has_bundled_models_then_downloads(bundled: Path, cached: Cached) -> None:
    tiny = cached("openai/whisper-tiny", whisper_files())
    cached("Helsinki-NLP/opus-mt-en-de", opus_files())
    cached("someone/tuned", whisper_files())
    models = list_models()
    assert [(m.name, m.task, m.source, m.repository) for m in models] == [
        ("demo", "asr", "bundled", None),
        ("demo-en-de", "translation", "bundled", None),
        ("demo-de-en", "translation", "bundled", None),
        ("opus-mt-en-de", "translation", "cache", "Helsinki-NLP/opus-mt-en-de"),
        ("tiny", "asr", "cache", "openai/whisper-tiny"),
        ("someone/tuned", "asr", "cache", "someone/tuned"),
    ]
    assert models[4].folder == tiny
    assert models[4].size_bytes == sum(map(len, whisper_files().values()))
    for model in models:
        assert resolve(model.name).folder == model.folder


def test_the_list_leaves_out_what_cannot_be_used(
    bundled: Path, cached: Cached, hub_cache: Path
) -> None:
    shutil.rmtree(bundled / "demo")
    half = cached("openai/whisper-tiny", whisper_files())
    for weights in ("model.safetensors", "pytorch_model.bin"):
        (half / weights).unlink()
    cached("openai/gpt2", {"config.json": b'{"model_type": "gpt2"}', "model.safetensors": b"x"})
    cached("nobody", whisper_files())
    (hub_cache / "models--broken--json" / "snapshots" / "c").mkdir(parents=True)
    (hub_cache / "models--empty--one").mkdir()
    (hub_cache / "datasets--some--data" / "snapshots").mkdir(parents=True)
    (hub_cache / "version.txt").write_text("1")
    (hub_cache / "models--a--file").write_text("not a folder")
    assert [model.name for model in list_models()] == ["demo-en-de", "demo-de-en"]


def test_without_a_cache_there_are_the_bundled_ones(bundled: Path, hub_cache: Path) -> None:
    assert [model.name for model in list_models()] == ["demo", "demo-en-de", "demo-de-en"]
    hub_cache.write_text("a file where the cache should be")
    assert [model.name for model in list_models()] == ["demo", "demo-en-de", "demo-de-en"]


@pytest.mark.parametrize("name", ["tiny", "openai/whisper-tiny"])
def test_removing_frees_the_bytes_of_every_revision(
    name: str, cached: Cached, hub_cache: Path
) -> None:
    cached("openai/whisper-tiny", whisper_files(), "a" * 40)
    # Shares all of its files but one with the other revision.
    cached("openai/whisper-tiny", {**whisper_files(), "README.md": b"# New"}, "b" * 40)
    kept = cached("openai/whisper-tiny.en", whisper_files())
    locks = hub_cache / ".locks" / "models--openai--whisper-tiny"
    locks.mkdir(parents=True)

    freed = remove(name)

    on_disk = sum(map(len, whisper_files().values())) + len(b"# New") + len("a" * 40)
    assert freed == on_disk
    assert not (hub_cache / "models--openai--whisper-tiny").exists()
    assert not locks.exists()
    assert resolve("tiny.en").folder == kept
    with pytest.raises(ModelNotFound, match="not on this machine"):
        resolve("tiny")
    with pytest.raises(ModelNotFound, match=f"not in {hub_cache}"):
        remove(name)


def test_half_a_download_can_be_removed(cached: Cached) -> None:
    cached("openai/whisper-tiny", {"config.json": b'{"model_type": "whisper"}'})
    assert remove("tiny") > 0


def test_what_was_not_downloaded_is_not_removed(
    bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = write_files(tmp_path / "mine", whisper_files())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="part of the program"):
        remove("demo")
    for spelling in (str(mine), "./mine", "mine", "~", ".", ".."):
        with pytest.raises(ModelError, match="a folder outside the cache"):
            remove(spelling)
    with pytest.raises(ModelNotFound, match="did you mean tiny"):
        remove("tinyy")
    assert (mine / "model.safetensors").exists()
    assert (bundled / "demo").is_dir()


@pytest.mark.parametrize("name", ["x/../../..", "a/..", "openai/whisper-tiny/../..", "", "a/b/c"])
def test_no_name_removes_anything_outside_the_cache(
    name: str, cached: Cached, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = cached("openai/whisper-tiny", whisper_files())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError):
        remove(name)
    assert (tiny / "config.json").is_file()


def test_a_cache_that_cannot_be_written_is_said(
    cached: Cached, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached("openai/whisper-tiny", whisper_files())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(ModelError, match=f"removed from {hub_cache}: Permission denied"):
        remove("tiny")
