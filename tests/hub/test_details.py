"""What is known of a model, whether its files are the published ones, and what can be deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pipelines.hub import find_leftovers, model_details, resolve, verify_files
from tests.fixtures.checkpoints import write_whisper
from tests.formats.writers import write_pt
from tests.hub.conftest import OPUS, TINY, Cached, opus_files, whisper_files


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_details_of_a_download(cached: Cached) -> None:
    files = opus_files() | {"README.md": b"---\nlanguage:\n- en\nlicense: cc-by-4.0\n---\n# x"}
    folder = cached(OPUS, files)
    details = model_details("opus-mt-en-de")
    assert (details.family, details.task, details.languages) == (
        "marian", "translation", ("en", "de"),
    )  # fmt: skip
    assert (details.license, details.tool, details.commit) == ("cc-by-4.0", None, "a" * 40)
    assert details.size_bytes == sum(map(len, files.values()))
    assert details.origin == str(folder)


def test_a_changed_byte_is_found(cached: Cached) -> None:
    folder = cached(TINY, whisper_files())
    assert {file.state for file in verify_files("tiny")} == {"ok"}
    blob = (folder / "model.safetensors").resolve()
    content = bytearray(blob.read_bytes())
    content[100] ^= 1
    blob.write_bytes(content)
    changed = [file.name for file in verify_files("tiny") if file.state == "changed"]
    assert changed == ["model.safetensors"]


@pytest.mark.slow
def test_other_programs(own_cache: Path, tmp_path: Path) -> None:
    original = write_whisper(tmp_path / "tiny", "tiny")
    path = write_pt(original, tmp_path / "tiny.pt")
    details = model_details(str(path))
    assert (details.tool, details.kind, details.family) == ("openai-whisper", "float32", "whisper")
    assert details.origin == str(path)
    assert [(f.name, f.state) for f in verify_files(str(path))] == [("tiny.pt", "changed")]
    own = path.rename(tmp_path / "mine.pt")
    assert [(f.name, f.state) for f in verify_files(str(own))] == [("mine.pt", "unknown")]


@pytest.mark.slow
def test_leftovers(own_cache: Path, tmp_path: Path, hub_cache: Path) -> None:
    path = write_pt(write_whisper(tmp_path / "tiny", "tiny"), tmp_path / "tiny.pt")
    folder = resolve(path).folder
    assert find_leftovers() == []
    blobs = hub_cache / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    for name, age_s in (("old.incomplete", 2 * 24 * 3600), ("new.incomplete", 0)):
        (blobs / name).write_bytes(b"x" * 10)
        os.utime(blobs / name, (time.time() - age_s,) * 2)
    path.unlink()
    found = {leftover.path: leftover for leftover in find_leftovers()}
    assert set(found) == {folder, blobs / "old.incomplete"}
    assert found[folder].reason == f"{path} is gone"
    for leftover in found.values():
        leftover.remove()
    assert find_leftovers() == []
    assert not folder.exists()
    assert (blobs / "new.incomplete").exists()


@pytest.mark.slow
def test_a_leftover_folder_is_deleted_and_not_what_it_links_to(
    own_cache: Path, tmp_path: Path
) -> None:
    path = write_pt(write_whisper(tmp_path / "tiny", "tiny"), tmp_path / "tiny.pt")
    resolve(path)
    os.utime(path, (1, 1))
    (leftover,) = find_leftovers()
    assert leftover.reason == f"{path} was changed"
    assert leftover.size_bytes < path.stat().st_size
    leftover.remove()
    assert path.is_file()
