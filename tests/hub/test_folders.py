"""Models given by their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import CheckpointError, ModelNotFound
from pipelines.hub import ResolvedModel, resolve
from tests.hub.conftest import Cached, opus_files, whisper_files, write_files


def test_a_folder_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_files(tmp_path / "mine/my-whisper", whisper_files())
    expected = ResolvedModel("my-whisper", "asr", folder, "folder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    assert resolve(folder) == expected
    for spelling in (str(folder), "./mine/my-whisper", "mine/my-whisper", "~/my-whisper"):
        assert resolve(spelling) == expected
    monkeypatch.chdir(folder)
    assert resolve(".") == expected


def test_a_model_folder_goes_before_the_names_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: Cached, bundled: Path
) -> None:
    """A folder that merely has the name of a model does not."""
    download = cached("openai/whisper-tiny", whisper_files())
    tiny = write_files(tmp_path / "here/tiny", opus_files())
    demo = write_files(tmp_path / "here/demo", opus_files())
    monkeypatch.chdir(tmp_path / "here")
    for name, folder in (("tiny", tiny), ("demo", demo)):
        found = resolve(name)
        assert (found.folder, found.source) == (folder, "folder")
        assert found.note == f"using the folder {name} here, not the model of that name"
        assert resolve(f"./{name}").folder == resolve(Path(name)).folder == folder
    other = tmp_path / "other"
    for name in ("tiny", "demo"):
        (other / name).mkdir(parents=True)
    monkeypatch.chdir(other)
    assert resolve("tiny").folder == download
    assert resolve("demo").folder == bundled / "demo"


def test_a_folder_goes_before_the_hub_id_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: Cached
) -> None:
    cached("models/mine", whisper_files())
    mine = write_files(tmp_path / "models/mine", opus_files())
    monkeypatch.chdir(tmp_path)
    assert resolve("models/mine").folder == mine


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CheckpointError) as error:
        resolve(empty)
    assert (
        str(error.value) == f"{empty} is not a usable model folder: it has no readable config.json"
    )

    for content in ("{not json", "[1, 2]", "", "\ufeff\x00"):
        (empty / "config.json").write_text(content)
        with pytest.raises(CheckpointError, match="no readable config.json"):
            resolve(empty)
    (empty / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match="no readable config.json"):
        resolve(empty)
    (empty / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="it has the model_type 'bert'"):
        resolve(empty)

    lacking = write_files(tmp_path / "lacking", opus_files())
    (lacking / "target.spm").unlink()
    with pytest.raises(CheckpointError, match="it lacks target.spm"):
        resolve(lacking)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_text("x")
    with pytest.raises(ModelNotFound, match="is a file, not a model folder"):
        resolve(str(file))
    for path in (tmp_path / "gone", f"{tmp_path}/gone\0", "../../nowhere/at/all"):
        with pytest.raises(ModelNotFound, match="does not exist"):
            resolve(path)
    with pytest.raises(ModelNotFound, match="home"):
        resolve("~no-such-user-here/model")
    with pytest.raises(ModelNotFound, match="too long"):
        resolve("/" + "x" * 5000)
