"""Downloads that end early, by the connection, the user or the disk, and the one after that."""

from __future__ import annotations

import hashlib
import os
import resource
from pathlib import Path

import pytest

from pipelines.errors import ModelNotFound
from pipelines.hub import PullProgress, plan_pull, pull, remove, resolve, transfer
from pipelines.hub.listing import RemoteFile
from pipelines.hub.snapshot import Snapshot
from pipelines.hub.transfer import RemoteRepository, fetch_listing
from tests.fixtures.hub import Answer, Hub
from tests.hub.conftest import TINY, WEIGHTS, Cached, refusal, resolve_here, whisper_files


@pytest.mark.usefixtures("impatient")
def test_a_second_pull_goes_on_where_the_first_was_cut(hub: Hub, hub_cache: Path) -> None:
    files = whisper_files()
    size = len(files[WEIGHTS])
    hub.host_files(TINY, files)
    # 60,000 bytes, and then nothing each time that the client tries again.
    hub.cuts[WEIGHTS] = [60_000, *[0] * 20]
    message = refusal("tiny")
    assert "cannot be downloaded from http://127.0.0.1:" in message
    assert f"the next download continues from the files in {hub_cache}" in message
    with pytest.raises(ModelNotFound, match="only partly on this machine"):
        resolve("tiny")

    hub.cuts.clear()
    hub.requests.clear()
    told: list[PullProgress] = []
    folder = pull("tiny", told.append).folder
    (content,) = [r for r in hub.requests if r.startswith("GET /content/")]
    assert content == f"GET /content/{TINY}/{WEIGHTS} bytes=60000-"
    assert hub.fetched() == [WEIGHTS], "the small files were there"
    assert (folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    # What was there counts as done from the start.
    done = [state.done_bytes for state in told]
    assert told[-1].total_bytes - size + 60_000 in done
    assert done[-1] == told[-1].total_bytes
    assert not list(hub_cache.rglob("*.incomplete"))


@pytest.mark.usefixtures("impatient")
def test_one_pull_survives_several_cuts(hub: Hub) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.cuts[WEIGHTS] = [50_000, 70_000, 0, 10_000]
    told: list[PullProgress] = []
    folder = pull("tiny", told.append).folder
    assert (folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    ranges = [r.split()[2:] for r in hub.requests if r.startswith("GET /content/")]
    assert ranges == [
        [], ["bytes=50000-"], ["bytes=120000-"], ["bytes=120000-"], ["bytes=130000-"],
    ]  # fmt: skip
    done = [state.done_bytes for state in told]
    assert done == sorted(done)
    assert done[-1] == told[-1].total_bytes


@pytest.mark.usefixtures("impatient")
def test_a_server_that_knows_no_ranges(hub: Hub) -> None:
    """It sends everything again, which must not land behind what is there."""
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.honours_ranges = False
    hub.cuts[WEIGHTS] = [60_000]
    told: list[PullProgress] = []
    assert (pull("tiny", told.append).folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert told[-1].done_bytes == told[-1].total_bytes
    # And it is not asked for ever.
    remove("tiny")
    hub.cuts[WEIGHTS] = [60_000, 50_000] * 20
    assert "cannot be downloaded" in refusal("tiny")
    assert hub.fetched().count(WEIGHTS) < 12


@pytest.mark.slow
def test_an_interrupt_keeps_what_has_come(hub: Hub, hub_cache: Path) -> None:
    """Ctrl-C arrives in this thread, where the progress is told."""
    files = {**whisper_files(), WEIGHTS: os.urandom(25_000_000)}
    hub.host_files(TINY, files)

    def interrupt(state: PullProgress) -> None:
        if state.file == WEIGHTS and state.done_bytes > 15_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", interrupt)
    (partial,) = hub_cache.rglob("*.incomplete")
    have = partial.stat().st_size
    assert 0 < have < 25_000_000
    with pytest.raises(ModelNotFound, match="only partly"):
        resolve("tiny")
    hub.requests.clear()
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert f"GET /content/{TINY}/{WEIGHTS} bytes={have}-" in hub.requests


def test_a_file_that_is_not_checked_is_not_shown(
    hub: Hub, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be killed between a file's last byte and the comparison of its hash."""
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.answers[WEIGHTS] = Answer(body=bytes(len(files[WEIGHTS])))

    def kill(path: Path, file: RemoteFile) -> str:
        if file.name == WEIGHTS:
            raise KeyboardInterrupt
        return original(path, file)

    original = transfer.content_digest
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "content_digest", kill)
        with pytest.raises(KeyboardInterrupt):
            pull("tiny")
    with pytest.raises(ModelNotFound, match="only partly"):
        resolve("tiny")
    assert "arrived damaged and was deleted" in refusal("tiny")
    hub.answers.clear()
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_an_error_of_the_progress_is_passed_on_as_it_is(hub: Hub) -> None:
    """And the file is not asked for again."""
    hub.host_files(TINY, whisper_files())
    told: list[str] = []

    def stop(state: PullProgress) -> None:
        told.append(state.file)
        if told.count(WEIGHTS) == 3:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="^no more$"):
        pull("tiny", stop)
    assert hub.fetched().count(WEIGHTS) <= 1


@pytest.mark.usefixtures("impatient")
def test_a_refused_redirect_keeps_what_has_come(hub: Hub, hub_cache: Path) -> None:
    """As a network sends it that wants a login first."""
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.cuts[WEIGHTS] = [60_000, *[0] * 20]
    assert "continues from" in refusal("tiny")
    hub.cuts.clear()
    hub.answers[WEIGHTS] = Answer(302, body=b"", headers={"Location": "http://192.0.2.1/login"})
    assert "another host over plain http" in refusal("tiny")
    (partial,) = hub_cache.rglob("*.incomplete")
    assert partial.stat().st_size == 60_000


def test_a_download_that_waits_for_another_process_can_be_stopped(
    hub: Hub, hub_cache: Path
) -> None:
    files = whisper_files()
    snapshot = Snapshot(TINY, hub.host_files(TINY, files).commit)
    weights = fetch_listing(RemoteRepository(TINY, hub.url)).files[WEIGHTS]
    told: list[str] = []

    def stop(state: PullProgress) -> None:
        told.append(state.file)
        if told.count(WEIGHTS) == 4:
            raise KeyboardInterrupt

    with snapshot.locked(weights), pytest.raises(KeyboardInterrupt):
        pull("tiny", stop)
    assert WEIGHTS not in hub.fetched()
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]


@pytest.mark.usefixtures("impatient")
def test_a_small_file_that_is_cut_is_fetched_again(hub: Hub) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.cuts["vocab.json"] = [3]
    folder = pull("tiny").folder
    assert (folder / "vocab.json").read_bytes() == files["vocab.json"]


def test_a_partial_file_of_other_content_is_not_continued(hub: Hub, hub_cache: Path) -> None:
    """Its end would not fit; the sum tells, and the next attempt starts anew."""
    files = whisper_files()
    hub.host_files(TINY, files)
    blobs = hub_cache / "models--openai--whisper-tiny" / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / f"{hashlib.sha256(files[WEIGHTS]).hexdigest()}.incomplete"
    partial.write_bytes(b"something else" * 100)
    assert "arrived damaged and was deleted" in refusal("tiny")
    assert not resolve_here("tiny")
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    # Longer than the file: that much is plain from the start.
    remove("tiny")
    blobs.mkdir(parents=True)
    partial.write_bytes(b"x" * (len(files[WEIGHTS]) + 1))
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_full_disk(hub: Hub, hub_cache: Path) -> None:
    """As on a full disk, writing fails in the middle: no file may grow beyond 64,000 bytes."""
    files = whisper_files()
    hub.host_files(TINY, files)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, hard))
    try:
        message = refusal("tiny")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert message == f"{TINY} cannot be stored in {hub_cache}: File too large"
    assert not resolve_here("tiny")
    # With room again, it goes on.
    hub.requests.clear()
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert any(r.endswith("bytes=64000-") for r in hub.requests)


def test_a_cache_that_cannot_be_made(hub: Hub, hub_cache: Path) -> None:
    hub.host_files(TINY, whisper_files())
    hub_cache.write_text("a file")
    assert f"{TINY} cannot be stored in {hub_cache}: " in refusal("tiny")


# Without the hub


@pytest.mark.parametrize("setting", ["HF_HUB_OFFLINE", None])
def test_a_plan_without_the_hub_lists_the_model_in_the_cache(
    hub: Hub, cached: Cached, setting: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    folder = cached(TINY, whisper_files())
    hub.stop()
    if setting:
        monkeypatch.setattr(constants, setting, True)
    plan = plan_pull("tiny")
    assert (plan.repository, plan.missing_bytes) == (TINY, 0)
    assert dict(plan.files)[WEIGHTS] == (folder / WEIGHTS).stat().st_size
    assert plan.note is not None
    assert plan.note.endswith("the copy in the cache is used")


@pytest.mark.usefixtures("impatient")
def test_a_plan_without_the_hub_and_without_the_model(hub: Hub) -> None:
    hub.stop()
    with pytest.raises(ModelNotFound, match="cannot be downloaded"):
        plan_pull("tiny")


def test_a_plan_of_a_bundled_model_has_nothing_to_download(hub: Hub, bundled: Path) -> None:
    plan = plan_pull("demo")
    assert plan.missing_bytes == 0
    assert dict(plan.files)["config.json"] == (bundled / "demo" / "config.json").stat().st_size
    assert hub.requests == []


def test_what_killed_downloads_left_is_removed(hub: Hub, hub_cache: Path) -> None:
    """A day later, once the model is complete: until then a download may go on there."""
    storage = hub_cache / f"models--{TINY.replace('/', '--')}"
    (storage / "blobs").mkdir(parents=True)
    old = [storage / "blobs" / f"{'a' * 64}.incomplete", storage / "main.0123.tmp"]
    new = [storage / "blobs" / f"{'b' * 64}.incomplete", storage / "main.4567.tmp"]
    for path in old + new:
        path.write_text("half")
    for path in old:
        os.utime(path, (0, 0))
    hub.host_files(TINY, whisper_files())
    pull("tiny")
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in new)
