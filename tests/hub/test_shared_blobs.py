"""Files that huggingface_hub 2 keeps once for all repositories of a cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.hub import find_leftovers, model_details, pull, remove
from tests.edgeapp.test_cli import run
from tests.fixtures.hub import Hub
from tests.hub.conftest import OPUS, TINY, WEIGHTS, Cached, opus_files, whisper_files

TWIN = "someone/whisper-tiny-copy"
Shared = Callable[[str, Path], Path]
_REF_BYTES = 40  # of refs/main
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def shared(hub_cache: Path) -> Shared:
    """shared(repository, snapshot) moves the weights to the store, as a download by
    huggingface_hub does, and returns where they lie."""
    from huggingface_hub.utils import _shared_blobs

    def share(repository: str, snapshot: Path) -> Path:
        blob = snapshot / (snapshot / WEIGHTS).readlink()
        content = blob.read_bytes()
        xet_hash = hashlib.blake2s(content).hexdigest()
        assert _shared_blobs.publish_blob_to_shared_store(
            blob_path=str(blob),
            xet_hash=xet_hash,
            cache_dir=hub_cache,
            expected_size=len(content),
        )
        assert blob.is_symlink()
        return blob.resolve()

    return share


def test_list_verify_remove(cached: Cached, shared: Shared, capsys: Capture) -> None:
    files = whisper_files()
    stored = shared(TINY, cached(TINY, files))
    total = sum(map(len, files.values()))
    assert model_details("tiny").size_bytes == total
    code, out, _ = run("models", "list", "--json", capsys=capsys)
    (listed,) = (m for m in map(json.loads, out.splitlines()) if m["name"] == "tiny")
    assert (code, listed["size_bytes"]) == (0, total)

    code, out, err = run("models", "verify", "tiny", capsys=capsys)
    assert (code, err) == (0, "")
    assert f"{WEIGHTS}\tok\n" in out

    code, _, err = run("models", "rm", "tiny", capsys=capsys)
    assert (code, err) == (0, f"edgeapp: removed tiny, {total / 1e6:.1f} MB freed\n")
    assert not stored.exists()
    assert find_leftovers() == []


def test_a_changed_byte_in_the_store_is_found(
    cached: Cached, shared: Shared, capsys: Capture
) -> None:
    stored = shared(TINY, cached(TINY, whisper_files()))
    stored.chmod(0o600)
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    code, out, err = run("models", "verify", "tiny", capsys=capsys)
    assert code != 0
    assert f"{WEIGHTS}\tchanged\n" in out
    assert f"{WEIGHTS} does not have its published hash" in err


def test_weights_that_another_model_shares_stay(
    cached: Cached, shared: Shared, capsys: Capture
) -> None:
    files = whisper_files()
    stored = shared(TINY, cached(TINY, files))
    twin = cached(TWIN, files | {"README.md": b"a copy"})
    assert shared(TWIN, twin) == stored
    code, _, err = run("models", "rm", "tiny", capsys=capsys)
    assert (code, err) == (0, "edgeapp: removed tiny, 0.0 MB freed\n")
    assert (twin / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert run("models", "verify", TWIN, capsys=capsys)[0] == 0
    code, _, err = run("models", "rm", TWIN, capsys=capsys)
    assert (code, err) == (0, f"edgeapp: removed {TWIN}, 0.2 MB freed\n")
    assert not stored.exists()


def test_all_revisions_of_a_model_are_removed(cached: Cached, shared: Shared) -> None:
    files = whisper_files()
    newer = files | {WEIGHTS: b"newer weights"}
    stored = [shared(TINY, cached(TINY, files)), shared(TINY, cached(TINY, newer, commit="b" * 40))]
    assert len(set(stored)) == 2
    ref = len("a" * 40)
    assert remove("tiny") == sum(map(len, files.values())) + len(newer[WEIGHTS]) + ref
    assert not any(blob.exists() for blob in stored)


def test_prune_deletes_what_no_model_links_to(
    cached: Cached, shared: Shared, hub_cache: Path, capsys: Capture
) -> None:
    files = whisper_files()
    stored = shared(TINY, cached(TINY, files))
    opus = {WEIGHTS if name == "pytorch_model.bin" else name: c for name, c in opus_files().items()}
    kept = shared(OPUS, cached(OPUS, opus))
    shutil.rmtree(hub_cache / f"models--{TINY.replace('/', '--')}")  # as a person does it
    code, out, err = run("models", "prune", "--dry-run", capsys=capsys)
    assert (code, out) == (0, f"{stored}\t0.2 MB\tno model links to it\n")
    assert err == "edgeapp: 0.2 MB would be freed\n"
    (leftover,) = find_leftovers()
    again = cached(TINY, files)
    assert shared(TINY, again) == stored  # downloaded again meanwhile
    leftover.remove()
    assert (again / WEIGHTS).read_bytes() == files[WEIGHTS]
    shutil.rmtree(hub_cache / f"models--{TINY.replace('/', '--')}")
    assert run("models", "prune", capsys=capsys)[0] == 0
    assert not stored.exists()
    assert kept.is_file()
    assert find_leftovers() == []


def test_a_folder_named_blobs_that_is_no_store_is_left_alone(
    cached: Cached, shared: Shared, hub_cache: Path
) -> None:
    stored = shared(TINY, cached(TINY, whisper_files()))
    (hub_cache / "blobs" / ".huggingface-shared-blobs").write_text("2\n")
    shutil.rmtree(hub_cache / f"models--{TINY.replace('/', '--')}")
    assert find_leftovers() == []
    assert stored.is_file()


def test_pull_takes_the_weights_of_the_store(
    hub: Hub, cached: Cached, shared: Shared, hub_cache: Path
) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    folder = pull("tiny").folder
    stored = shared(TINY, folder)
    (folder / WEIGHTS).unlink()
    assert pull("tiny").folder == folder
    assert (folder / WEIGHTS).resolve() == stored


def test_a_damaged_file_of_the_store_is_replaced(
    hub: Hub, cached: Cached, shared: Shared, hub_cache: Path
) -> None:
    """By a file of the model's own: another one still links to that of the store."""
    files = whisper_files()
    hub.host_files(TINY, files)
    stored = shared(TINY, cached(TINY, files))
    assert shared(TWIN, cached(TWIN, files)) == stored
    stored.chmod(0o600)
    stored.write_bytes(bytes(len(files[WEIGHTS])))
    remove("tiny")
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert stored.is_file()


# What is removed, and what is said to be freed


def test_other_repositories_do_not_matter(cached: Cached, hub_cache: Path) -> None:
    files = whisper_files()
    cached(TINY, files)
    refs = hub_cache / "datasets--a--b" / "refs"
    refs.mkdir(parents=True)
    (refs / "._main").write_bytes(b"\x00\x05\x16\x07\xff\xfe")  # as macOS leaves it
    (refs.parent / "snapshots").mkdir()
    assert find_leftovers() == []
    assert remove("tiny") == sum(map(len, files.values())) + _REF_BYTES


def test_a_repository_whose_branch_names_no_commit(cached: Cached) -> None:
    files = whisper_files()
    storage = cached(TINY, files).parent.parent
    (storage / "refs" / "main").write_text("b" * 40)
    assert remove("tiny") == sum(map(len, files.values())) + _REF_BYTES
    assert not storage.exists()


def test_a_second_name_of_a_file_is_not_counted(cached: Cached) -> None:
    files = whisper_files()
    blob = (cached(TINY, files) / WEIGHTS).resolve()
    blob.with_name(f"{blob.name}.incomplete").hardlink_to(blob)
    assert remove("tiny") == sum(map(len, files.values())) + _REF_BYTES


def test_a_repository_on_another_disk(
    hub: Hub, cached: Cached, hub_cache: Path, tmp_path: Path
) -> None:
    """Its folder is a link, which is removed as well: it would be in the way of a download."""
    files = whisper_files()
    hub.host_files(TINY, files)
    storage = cached(TINY, files).parent.parent
    other = storage.rename(tmp_path / "other")
    storage.symlink_to(other)
    assert remove("tiny") == sum(map(len, files.values())) + _REF_BYTES
    assert not other.exists()
    assert not storage.is_symlink()
    assert pull("tiny").source == "hub"
