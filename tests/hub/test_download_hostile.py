"""Answers of a server that is broken or hostile: one clear line, in bounded time and memory, and
nothing written outside the cache or left half-written inside it."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import resource
import shutil
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ModelError
from pipelines.hub import listing, pull, resolve, transfer
from tests.fixtures.hub import Answer, Hub
from tests.hub.conftest import TINY, WEIGHTS, Files, refusal, refused, whisper_files

INDEX = f"{WEIGHTS}.index.json"

# Two hundred cases of a twentieth of a second each.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("impatient", "canary")]


# The description of the repository


def changed(name: str, **fields: Any) -> Callable[[dict[str, Any]], Any]:
    """The honest description with other facts about one file."""

    def change(info: dict[str, Any]) -> dict[str, Any]:
        for entry in info["siblings"]:
            if entry["rfilename"] == name:
                entry.update(fields)
        return info

    return change


def without_shards(files: Files, shards: Files) -> Files:
    """A model whose index names these files."""
    index = {"weight_map": {f"tensor{i}": name for i, name in enumerate(shards)}}
    kept = {k: v for k, v in files.items() if k not in (WEIGHTS, "pytorch_model.bin")}
    return {**kept, INDEX: json.dumps(index).encode(), **shards}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../../../../x", "leads out of the repository"),
        ("a/../../x", "leads out of the repository"),
        ("..", "leads out of the repository"),
        ("a/./x", "leads out of the repository"),
        ("a//x", "leads out of the repository"),
        ("..\\..\\x", "leads out of the repository"),
        ("/etc/passwd", "an absolute path"),
        ("\\\\server\\share", "an absolute path"),
        ("C:\\x", "an absolute path"),
        ("c:x", "an absolute path"),
        ("", "an absolute path"),
        ("x\0.json", "control characters"),
        ("x\n.json", "control characters"),
        ("\x1b[2Jx", "control characters"),
        ("x\ud800", "control characters"),
        ("x" * 256, "longer than a file name can be"),
        ("ä" * 128, "longer than a file name can be"),
        ("folder/" * 700 + "x", "longer than a file name can be"),
        ("CONFIG.JSON", "one file on some systems"),
        ("Vocab.json", "one file on some systems"),
        ("model.\u017fafetensors", "one file on some systems"),
        ("config.json", "lists 'config.json' twice"),
        (None, "without a name"),
        (["x"], "without a name"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_names_of_files(hub: Hub, name: Any, said: str) -> None:
    hub.host_files(TINY, whisper_files())
    entry = {"rfilename": name, "size": 1, "blobId": "a" * 40}
    hub.listing = lambda info: info | {"siblings": [*info["siblings"], entry]}
    refused(said)


@pytest.mark.parametrize(
    "shard",
    [
        "con.safetensors",
        "NUL.bin",
        "com1.x.safetensors",
        "-rf.bin",
        ".hidden.bin",
        "sub/model.bin",
        "back\\slash.bin",
        "umläut.bin",
        "x" * 250 + ".bin",
        "script.py",
        "bidi\u202e.bin",
    ],
)
def test_names_of_shards(hub: Hub, shard: str) -> None:
    """They come from a file of the repository, and become names in the cache."""
    hub.host_files(TINY, without_shards(whisper_files(), {shard: b"weights"}))
    refused("which it does not hold")
    assert hub.fetched() == ["config.json", INDEX]


@pytest.mark.parametrize("twin", ["Model-1.safetensors", "model-1.SAFETENSORS"])
def test_shards_that_are_one_file_on_some_systems(hub: Hub, twin: str) -> None:
    shards = {"model-1.safetensors": b"1", twin.replace("SAFE", "safe"): b"2"}
    if twin.endswith("SAFETENSORS"):
        shards = {"model-1.safetensors": b"1", "MODEL-1.safetensors": b"2"}
    hub.host_files(TINY, without_shards(whisper_files(), shards))
    refused("which are one file on some systems")


def test_thousands_of_shards(hub: Hub) -> None:
    shards = {f"model-{i:05}.safetensors": b"" for i in range(5000)}
    hub.host_files(TINY, without_shards(whisper_files(), shards))
    refused("names 5,000 files of weights")


@pytest.mark.parametrize("key", ["vocab.json", WEIGHTS])
@pytest.mark.parametrize(
    "size",
    [-1, 1.5, True, "12", [1], 10**30, float("inf"), float("nan"), (1 << 40) + 1],
    ids=repr,
)
def test_sizes_out_of_range(hub: Hub, key: str, size: Any) -> None:
    hub.host_files(TINY, whisper_files())
    hub.listing = changed(key, size=size)
    refused("it announces a size of")
    assert hub.fetched() == []


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("config.json", {"blobId": "../../../../x"}),
        ("config.json", {"blobId": "A" * 40}),
        ("config.json", {"blobId": "a" * 40 + "\n"}),
        ("config.json", {"blobId": 5}),
        ("config.json", {"blobId": "a" * 64}),
        (WEIGHTS, {"lfs": {"sha256": "../../../../x"}}),
        (WEIGHTS, {"lfs": {"sha256": "a" * 40}}),
        (WEIGHTS, {"lfs": {}}),
        (WEIGHTS, {"lfs": "a" * 64 + "/../x"}),
    ],
)
def test_hashes_that_are_none(hub: Hub, key: str, fields: dict[str, Any]) -> None:
    hub.host_files(TINY, whisper_files())
    hub.listing = changed(key, **fields)
    refused(f"as the hash of '{key}'")
    assert hub.fetched() == []


@pytest.mark.parametrize("fields", [{"blobId": None}, {"size": None}])
def test_a_file_without_size_or_hash(hub: Hub, fields: dict[str, Any]) -> None:
    hub.host_files(TINY, whisper_files())
    hub.listing = changed("vocab.json", **fields)
    refused("it lists vocab.json without its size or its hash")


@pytest.mark.parametrize(
    "commit", ["../../../../x", "main", "", None, 7, "a" * 39, "A" * 40, "a" * 40 + "/..", "é" * 40]
)
def test_commits_that_are_none(hub: Hub, commit: Any) -> None:
    hub.host_files(TINY, whisper_files())
    hub.listing = lambda info: info | {"sha": commit}
    refused("which is not 40 hexadecimal digits")
    assert hub.fetched() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Sign in to the network</html>", "not readable JSON"),
        (b"", "not readable JSON"),
        (b"\xff\xfe\x00", "not readable JSON"),
        (b"[" * 1_000_000, "not readable JSON"),
        (b'{"siblings":' * 200_000, "not readable JSON"),
        (b'{"sha": ' + b"9" * 100_000 + b"}", "not readable JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"sha": "' + b"a" * 40 + b'"}', "has no list of files"),
        (b'{"sha": "' + b"a" * 40 + b'", "siblings": {"x": 1}}', "has no list of files"),
        (b'{"sha": "' + b"a" * 40 + b'", "siblings": [3]}', "an entry without a name"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_descriptions_that_are_none(hub: Hub, body: bytes, said: str) -> None:
    hub.host_files(TINY, whisper_files())
    hub.answers[""] = Answer(body=body)
    refused(said)


def test_a_description_without_end(hub: Hub) -> None:
    hub.host_files(TINY, whisper_files())
    hub.answers[""] = Answer(body=itertools.repeat(b" " * 65536))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused("is larger than 16,777,216 bytes")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB
    assert hub.sent[""] < 64_000_000


def test_thousands_of_files_are_no_problem(hub: Hub) -> None:
    hub.host_files(TINY, whisper_files())
    more = [{"rfilename": f"runs/{i}/events", "size": 9, "blobId": "a" * 40} for i in range(50_000)]
    hub.listing = lambda info: info | {"siblings": info["siblings"] + more}
    assert pull("tiny").source == "hub"


# Headers


@pytest.mark.parametrize("header", ["ETag", "X-Linked-ETag", "X-Repo-Commit"])
@pytest.mark.parametrize(
    "value",
    ['"../../../../x"', "../x", "/etc/x", 'W/"../../x"', '"..\\x"', "a\x01b", '"a/../../x"'],
    ids=ascii,
)
@pytest.mark.parametrize("key", ["config.json", WEIGHTS])
def test_headers_that_are_paths(hub: Hub, key: str, header: str, value: str) -> None:
    hub.host_files(TINY, whisper_files())
    hub.answers[key] = Answer(headers={header: value})
    refused(key)


@pytest.mark.parametrize("header", ["ETag", "X-Linked-ETag"])
@pytest.mark.parametrize("value", ['W/"abc/d=="', '"5f-1:7"', "x" * 4000, ""])
def test_other_headers_name_nothing(hub: Hub, hub_cache: Path, header: str, value: str) -> None:
    """Mirrors have version marks of their own. The cache has the hub's."""
    files = whisper_files()
    hub.host_files(TINY, files)
    for name in ("config.json", WEIGHTS):
        hub.answers[name] = Answer(headers={header: value})
    folder = pull("tiny").folder
    blob = (folder / WEIGHTS).readlink()
    assert str(blob) == f"../../blobs/{hashlib.sha256(files[WEIGHTS]).hexdigest()}"
    git = hashlib.sha1(b"blob %d\0" % len(files["config.json"]) + files["config.json"])
    assert str((folder / "config.json").readlink()) == f"../../blobs/{git.hexdigest()}"


def test_a_file_that_xet_has_comes_by_http(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Xet's own client is outside the rules, and would send the token to an address of the hub's
    choice."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    files = whisper_files()
    hub.host_files(TINY, files)
    route = f"{hub.url}/api/models/{TINY}/xet-read-token/x"
    headers = {"X-Xet-Hash": "a" * 64, "X-Xet-Refresh-Route": route, "X-Xet-Cas-Url": hub.url}
    hub.answers[WEIGHTS] = Answer(headers=dict(headers))
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]
    assert not any("xet" in request for request in hub.requests)


def test_the_client_of_this_process_stays_as_it_is(hub: Hub) -> None:
    """Other code shares it, and may have set its own."""
    from huggingface_hub import close_session, get_session, set_client_factory
    from huggingface_hub.utils import _http

    before = _http._GLOBAL_CLIENT_FACTORY

    def factory() -> Any:
        client = before()
        client.headers["X-Of-Others"] = "1"
        return client

    hub.host_files(TINY, whisper_files())
    set_client_factory(factory)
    try:
        session, hooks = get_session(), dict(get_session().event_hooks)
        pull("tiny")
        assert get_session() is session
        assert not session.is_closed
        assert session.event_hooks == hooks
        assert session.headers["X-Of-Others"] == "1"
    finally:
        set_client_factory(before)
        close_session()


# Content


@pytest.mark.parametrize("key", ["config.json", "vocab.json", WEIGHTS])
def test_content_of_the_announced_size_that_is_another(hub: Hub, key: str) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.answers[key] = Answer(body=bytes(len(files[key])))
    kind = "SHA-256" if key == WEIGHTS else "git SHA-1"
    refused(f"{key} arrived damaged and was deleted: its {kind} is not the published one")
    hub.answers.clear()
    assert (pull("tiny").folder / key).read_bytes() == files[key]


@pytest.mark.parametrize("key", ["config.json", "vocab.json", WEIGHTS])
@pytest.mark.parametrize("more", [-3, -1, 1, 1000])
def test_another_length(hub: Hub, key: str, more: int) -> None:
    """What the answer says of its own length is enough to refuse it."""
    content = whisper_files()[key]
    hub.host_files(TINY, whisper_files())
    hub.answers[key] = Answer(body=content[:more] if more < 0 else content + bytes(more))
    has = len(content) + more
    refused(f"{key} is announced with {len(content):,} bytes, and has {has:,}")


@pytest.mark.parametrize("key", ["config.json", WEIGHTS])
def test_a_body_without_end(hub: Hub, hub_cache: Path, key: str) -> None:
    content = whisper_files()[key]
    hub.host_files(TINY, whisper_files())
    endless = itertools.chain([content], itertools.repeat(bytes(65536)))
    hub.answers[key] = Answer(body=endless, headers={"Content-Length": None})
    refused(f"{key} is announced with {len(content):,} bytes, and has more")
    assert hub.sent[key] < 64_000_000, "it is cut off at once"


def test_a_body_that_ends_early_and_does_not_say_so(hub: Hub, hub_cache: Path) -> None:
    """It may be a connection that broke off: what came is kept, and continued by a next pull."""
    files = whisper_files()
    hub.host_files(TINY, files)
    half = files[WEIGHTS][:1000]
    hub.answers[WEIGHTS] = Answer(body=half, headers={"Content-Length": None})
    assert "the connection was closed too early" in refusal("tiny")
    (partial,) = hub_cache.rglob("*.incomplete")
    assert partial.read_bytes() == half
    hub.answers.clear()
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_range_that_was_not_asked_for(hub: Hub, hub_cache: Path) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.answers[WEIGHTS] = Answer(206, headers={"Content-Range": "bytes 5-9/10"})
    refused("came from another byte than the one asked for")


def test_a_range_that_the_server_does_not_have(hub: Hub, hub_cache: Path) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    hub.cuts[WEIGHTS] = [60_000, *[0] * 20]
    assert "continues from" in refusal("tiny")
    hub.answers[WEIGHTS] = Answer(416, body=b"")
    refused(f"is announced with {len(files[WEIGHTS]):,} bytes, and has at most 60,000")


@pytest.mark.parametrize("key", ["", "config.json", WEIGHTS])
def test_compressed_bodies(hub: Hub, key: str) -> None:
    """A thousandth of what they unpack to."""
    hub.host_files(TINY, whisper_files())
    bomb = gzip.compress(bytes(50_000_000))
    hub.answers[key] = Answer(
        body=bomb, headers={"Content-Encoding": "gzip", "Content-Length": None}
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused("is compressed ('gzip'), which was not asked for")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # kB


@pytest.mark.parametrize("key", ["", "config.json", WEIGHTS])
@pytest.mark.parametrize("status", [204, 304, 403, 418, 500, 999])
def test_other_statuses_with_bodies_without_end(hub: Hub, key: str, status: int) -> None:
    hub.host_files(TINY, whisper_files())

    class Endless:
        def __iter__(self) -> Iterator[bytes]:
            return itertools.repeat(b'{"error": "no"}' * 5000)

    hub.answers[key] = Answer(status, body=Endless(), headers={"Content-Length": None})
    refused(f"{status}")
    assert hub.sent.get(key, 0) < 64_000_000


def test_a_body_that_arrives_too_slowly(
    hub: Hub, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time for the client's time limit, and the last one never."""
    monkeypatch.setattr(transfer, "_STALL_S", 0.3)
    hub.host_files(TINY, whisper_files())
    sleep = threading.Event().wait
    drops = (sleep(0.02) or b"x" for _ in range(10_000))
    hub.answers[""] = Answer(body=drops, headers={"Content-Length": None})
    refused("arrives too slowly: ")


@pytest.mark.parametrize(
    ("key", "size", "largest"),
    [("config.json", 8 << 20, "8,388,608"), ("vocab.json", 256 << 20, "268,435,456")],
)
def test_small_files_that_are_large(hub: Hub, key: str, size: int, largest: str) -> None:
    hub.host_files(TINY, whisper_files())
    hub.listing = changed(key, size=size + 1)
    refused(f"it announces {key} with {size + 1:,} bytes; at most {largest} are accepted")


def test_more_than_fits_on_the_disk(
    hub: Hub, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.host_files(TINY, whisper_files())
    usage = namedtuple("usage", "total used free")(10**12, 10**12 - 200_000, 200_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused(f"cannot be stored in {hub_cache}: 0.0 GB are still to be downloaded")
    assert hub.fetched() == ["config.json"]
    monkeypatch.undo()


def test_what_is_there_needs_no_room(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.host_files(TINY, whisper_files())
    pull("tiny")
    usage = namedtuple("usage", "total used free")(10**12, 10**12, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert pull("tiny").source == "hub"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (b"[" * 100_000, "config.json is not a JSON object"),
        (b"\x00\x01", "config.json is not a JSON object"),
        (b'"whisper"', "config.json is not a JSON object"),
        (b'{"model_type": []}', "has the model_type []"),
        (b'{"model_type": "' + b"x" * 100_000 + b'"}', "has the model_type 'xxx"),
        (b'{"model_type": "\\u001b[2J\\n"}', "has the model_type '\\x1b[2J\\n'"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_configurations_that_are_none(hub: Hub, config: bytes, said: str) -> None:
    hub.host_files(TINY, {**whisper_files(), "config.json": config})
    message = refusal("tiny")
    assert said in message
    assert len(message) < 500
    with pytest.raises(ModelError) as error:
        resolve("tiny")
    assert len(str(error.value)) < 700


# What is in the cache already


def test_a_hostile_revision_does_not_hide_the_good_one(hub: Hub) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    good = pull("tiny").folder
    hub.host_files(TINY, {**files, WEIGHTS: b"new weights"})
    hub.answers[WEIGHTS] = Answer(body=b"bad weights")
    assert "arrived damaged" in refusal("tiny")
    assert resolve("tiny").folder == good
    assert (good / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_link_in_place_of_a_partial_file_is_not_followed(
    hub: Hub, hub_cache: Path, tmp_path: Path
) -> None:
    files = whisper_files()
    hub.host_files(TINY, files)
    blobs = hub_cache / "models--openai--whisper-tiny" / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / f"{hashlib.sha256(files[WEIGHTS]).hexdigest()}.incomplete"
    partial.symlink_to(tmp_path / "x")
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_truncated_blob_is_fetched_again(hub: Hub, hub_cache: Path) -> None:
    """Such as a machine leaves that lost its power."""
    files = whisper_files()
    hub.host_files(TINY, files)
    folder = pull("tiny").folder
    (folder / WEIGHTS).resolve().write_bytes(b"half")
    assert (pull("tiny").folder / WEIGHTS).read_bytes() == files[WEIGHTS]


@pytest.mark.parametrize(
    "name", ["model-00001-of-00002.safetensors", "pytorch_model-1.bin", "console.bin"]
)
def test_names_of_honest_shards(name: str) -> None:
    assert listing.is_shard_name(name)
