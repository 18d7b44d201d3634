"""Downloads through the real huggingface_hub client, from a stand-in hub on 127.0.0.1: what is
fetched, what is told meanwhile, and what is not asked for twice."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.hub import PullProgress, pull, remove, resolve
from tests.fixtures.hub import Hub
from tests.hub.conftest import (
    OPUS,
    TINY,
    WEIGHTS,
    many_files,
    opus_files,
    resolve_here,
    whisper_files,
)


def blob_bytes(cache: Path) -> int:
    return sum(file.stat().st_size for file in cache.glob("models--*/blobs/*"))


def test_a_whisper_model_without_the_files_of_other_frameworks(hub: Hub, hub_cache: Path) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    found = pull("tiny")
    assert (found.name, found.task, found.source) == ("tiny", "asr", "hub")
    should_stop = {"pytorch_model.bin", "flax_model.msgpack", "tf_model.h5", "README.md"}
    should_stop |= {".gitattributes"}
    assert {file.name for file in found.folder.iterdir()} == files.keys() - should_stop
    assert sorted(hub.fetched()) == sorted(files.keys() - should_stop)
    for file in found.folder.iterdir():
        assert file.read_bytes() == files[file.name]
    assert resolve("tiny").folder == resolve(TINY).folder == found.folder


def test_an_opus_model_that_has_only_a_bin(hub: Hub) -> None:
    hub.host_files(OPUS, opus_files())
    found = pull("opus-mt-en-de")
    should_stop = {"rust_model.ot", "tf_model.h5", "README.md", ".gitattributes"}
    assert {file.name for file in found.folder.iterdir()} == opus_files().keys() - should_stop
    assert found.task == "translation"


@pytest.mark.parametrize(
    ("name", "repository", "family"),
    [
        ("nllb-200-distilled-600m", "facebook/nllb-200-distilled-600M", "m2m_100"),
        ("mbart-50-many-to-many", "facebook/mbart-large-50-many-to-many-mmt", "mbart"),
        ("flan-t5-small", "google/flan-t5-small", "t5"),
    ],
)
def test_a_model_for_many_languages(hub: Hub, name: str, repository: str, family: str) -> None:
    files = many_files(family)
    hub.host_files(repository, files)
    found = pull(name)
    assert (found.name, found.task) == (name, "translation")
    should_stop = {"rust_model.ot", "README.md"}
    assert {file.name for file in found.folder.iterdir()} == files.keys() - should_stop


def test_by_hub_id_and_by_short_name_it_is_one_download(hub: Hub) -> None:
    hub.host_files(TINY, whisper_files())
    folder = pull(TINY).folder
    fetched = len(hub.fetched())
    assert pull("whisper-tiny").folder == pull("tiny").folder == folder
    assert len(hub.fetched()) == fetched


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_shards_are_those_that_the_index_names(hub: Hub, kind: str) -> None:
    stem, _, ending = kind.partition(".")
    first, second = (f"{stem}-0000{i}-of-00002.{ending}" for i in (1, 2))
    files = whisper_files()
    del files["model.safetensors"], files["pytorch_model.bin"]
    index = f'{{"weight_map": {{"a": "{first}", "b": "{second}", "c": "{first}"}}}}'
    files |= {f"{kind}.index.json": index.encode(), first: b"1" * 900, second: b"2" * 900}
    files |= {f"{stem}-00001-of-00003.{ending}": b"left from an earlier upload"}
    hub.host_files("openai/whisper-large-v2", files)
    folder = pull("large-v2").folder
    weights = {file.name for file in folder.iterdir() if file.name.startswith(stem)}
    assert weights == {f"{kind}.index.json", first, second}


def test_a_new_revision_takes_the_old_ones_place(hub: Hub, hub_cache: Path) -> None:
    files = whisper_files()
    old = pull_of(hub, TINY, files)
    before = len(hub.fetched())
    new = pull_of(hub, TINY, {**files, "generation_config.json": b'{"better": true}'})
    assert new != old
    assert hub.fetched()[before:].count(WEIGHTS) == 0, "the weights did not change"
    assert resolve("tiny").folder == new


def pull_of(hub: Hub, repository: str, files: dict[str, bytes]) -> Path:
    hub.host_files(repository, files)
    return pull(repository).folder


# Progress, and what is not asked for twice


def test_progress_counts_every_byte_once(hub: Hub) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    told: list[PullProgress] = []
    folder = pull("tiny", told.append).folder
    total = sum(file.stat().st_size for file in folder.iterdir())
    total -= len(files["config.json"])  # fetched before anything is known
    assert {state.total_bytes for state in told} == {total}
    done = [state.done_bytes for state in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, total)
    assert told[-1].file == WEIGHTS


def test_what_is_in_the_cache_is_used_without_any_request(hub: Hub) -> None:
    hub.host_files(TINY, whisper_files())
    folder = pull("tiny").folder
    hub.requests.clear()
    assert resolve("tiny").folder == folder
    assert hub.requests == []
    # Asking for it again asks which revision is the newest, and fetches nothing.
    told: list[PullProgress] = []
    assert pull("tiny", told.append).folder == folder
    assert hub.fetched() == []
    assert len(hub.requests) <= 2
    assert told[-1].done_bytes == told[-1].total_bytes


def test_a_download_by_another_tool_is_used(hub: Hub) -> None:
    from huggingface_hub import hf_hub_download

    hub.host_files(TINY, whisper_files())
    wanted = [name for name in whisper_files() if name.endswith(("json", "txt", "safetensors"))]
    folder = Path([hf_hub_download(TINY, name) for name in wanted][0]).parent
    assert resolve("tiny").folder == folder
    fetched = len(hub.fetched())
    assert pull("tiny").folder == folder
    assert len(hub.fetched()) == fetched


def test_and_ours_by_another_tool(hub: Hub) -> None:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    hub.host_files(TINY, whisper_files())
    folder = pull("tiny").folder
    hub.stop()
    assert try_to_load_from_cache(TINY, WEIGHTS) == str(folder / WEIGHTS)
    assert hf_hub_download(TINY, "config.json", local_files_only=True) == str(
        folder / "config.json"
    )


def test_the_cache_is_sound_for_other_tools(hub: Hub, hub_cache: Path) -> None:
    from huggingface_hub import scan_cache_dir

    hub.host_files(TINY, whisper_files())
    folder = pull("tiny").folder
    found = scan_cache_dir(hub_cache)
    assert found.warnings == []
    (repository,) = found.repos
    (revision,) = repository.revisions
    assert (repository.repo_id, revision.commit_hash) == (TINY, folder.name)
    assert revision.refs == {"main"}
    assert {file.file_name for file in revision.files} == {file.name for file in folder.iterdir()}


def test_removing_and_pulling_again(hub: Hub, hub_cache: Path) -> None:
    hub.host_files(TINY, whisper_files())
    pull("tiny")
    size = blob_bytes(hub_cache)
    assert size <= remove("tiny") <= size + 100
    assert not resolve_here("tiny")
    pull("tiny")
    assert resolve_here("tiny")


def test_bundled_models_are_never_fetched(hub: Hub, bundled: Path) -> None:
    assert pull("demo-en-de").folder == bundled / "demo-en-de"
    assert hub.requests == []


def test_a_file_of_any_size_comes_by_http(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub's own download takes only Xet for the largest."""
    monkeypatch.setattr("huggingface_hub.constants.MAX_HTTP_DOWNLOAD_SIZE", 1000)
    files = whisper_files()
    hub.host_files(TINY, files)
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert not any(request.startswith("HEAD") for request in hub.requests)


def test_two_that_want_the_same_take_turns(hub: Hub) -> None:
    files = {**whisper_files(), WEIGHTS: os.urandom(5_000_000)}
    hub.host_files(TINY, files)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(pull, ["tiny", TINY])
    assert first.folder == second.folder
    assert (first.folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert hub.fetched().count(WEIGHTS) == 1
