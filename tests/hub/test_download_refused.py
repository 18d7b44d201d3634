"""Downloads that cannot be: the hub refuses, has another kind of model, or is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.errors import OptionError
from pipelines.hub import pull
from tests.conftest import REPOSITORY
from tests.fixtures.hub import Hub
from tests.hub.conftest import (
    TINY,
    Cached,
    opus_files,
    refusal,
    resolve_here,
    whisper_files,
)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_repository_that_is_not_there(hub: Hub) -> None:
    message = refusal("someone/nothing")
    assert "has no model someone/nothing, or you have no access to it; check the name" in message
    assert message.startswith(f"{hub.url} ")
    hub.host_files(TINY, whisper_files()).refuse = "missing"
    assert f"has no model {TINY}" in refusal("tiny")


@pytest.mark.parametrize("token", [None, "hf_" + "x" * 34])
def test_a_gated_repository(hub: Hub, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a token the hub answers 401, with one that has no access 403."""
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    hub.host_files(TINY, whisper_files()).refuse = "gated"
    message = refusal("tiny")
    assert f"accept them at {hub.url}/{TINY}" in message
    assert "`hf auth login`" in message
    assert not resolve_here("tiny")


def test_the_token_stays_with_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files come from another address, which gets no token."""
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    hub.host_files(TINY, whisper_files())
    pull("tiny")
    assert hub.tokens["resolve"] == {"Bearer hf_" + "x" * 34}
    assert hub.tokens["content"] == {""}


def test_kinds_of_models_that_do_not_run_here(hub: Hub) -> None:
    hub.host_files("openai/gpt2", {**opus_files(), "config.json": b'{"model_type": "gpt2"}'})
    said = "openai/gpt2 has the model_type 'gpt2'; what runs here: whisper, marian, m2m_100"
    assert said in refusal("openai/gpt2")
    assert hub.fetched() == ["config.json"], "nothing large was fetched to find that out"

    hub.host_files("some/lists", {"README.md": b"# Lists"})
    assert "has no config.json" in refusal("some/lists")

    only_tf = whisper_files()
    del only_tf["model.safetensors"], only_tf["pytorch_model.bin"]
    hub.host_files("some/tf-whisper", only_tf)
    assert "neither model.safetensors nor pytorch_model.bin" in refusal("some/tf-whisper")

    no_tokenizer = opus_files()
    del no_tokenizer["source.spm"]
    hub.host_files("some/opus", no_tokenizer)
    assert "cannot be used: it lacks source.spm" in refusal("some/opus")


@pytest.mark.parametrize("shard", ["model-1-of-1.safetensors", "../../x", "sub/model.safetensors"])
def test_an_index_that_names_what_is_not_there(hub: Hub, shard: str, hub_cache: Path) -> None:
    files = whisper_files()
    del files["model.safetensors"], files["pytorch_model.bin"]
    files["model.safetensors.index.json"] = f'{{"weight_map": {{"a": "{shard}"}}}}'.encode()
    hub.host_files(TINY, files)
    message = refusal("tiny")
    assert f"model.safetensors.index.json names {shard}, which it does not hold" in message
    files["model.safetensors.index.json"] = b"[]"
    hub.host_files(TINY, files)
    assert "names no files" in refusal("tiny")


@pytest.mark.parametrize(
    "name", ["no such name", "a/b.git", "a/../b", "x/" + "y" * 200, "", "/a/b"]
)
def test_what_is_no_name_is_not_asked_for(hub: Hub, name: str) -> None:
    with pytest.raises(OptionError, match="neither a known model nor a hub id"):
        pull(name)
    assert hub.requests == []


def test_the_hub_is_down(hub: Hub, hub_cache: Path) -> None:
    hub.stop()
    message = refusal("tiny")
    problem = f"{TINY} cannot be downloaded from {hub.url}: there is no connection to it"
    assert f"{problem}, this machine may be offline (" in message
    assert f"it is not in {hub_cache} either" in message
    assert "try again once the hub can be reached" in message


@pytest.mark.usefixtures("offline")
def test_offline_by_setting(hub: Hub, hub_cache: Path) -> None:
    hub.host_files(TINY, whisper_files())
    message = refusal("tiny")
    assert "HF_HUB_OFFLINE is set" in message
    assert f"it is not in {hub_cache} either" in message
    assert "try again once the hub can be reached" in message
    assert hub.requests == []


def test_the_copy_in_the_cache_does_without_the_hub(hub: Hub, cached: Cached) -> None:
    folder = cached(TINY, whisper_files())
    hub.stop()
    found = pull("tiny")
    assert (found.folder, found.source) == (folder, "cache")
    assert found.note is not None
    assert "\n" not in found.note
    assert found.note.endswith("the copy in the cache is used")


@pytest.mark.usefixtures("impatient")
def test_the_hub_breaks_down_on_the_way(hub: Hub) -> None:
    """After the list of files: what the client says then is a guess at several causes."""
    hub.host_files(TINY, whisper_files())
    hub.fail_after("config.json", 500)
    message = refusal("tiny")
    assert "it answered 500 Internal Server Error" in message
    assert "continues from the files in" in message
    hub.fail_after(None, 0)
    assert pull("tiny").source == "hub"


@pytest.mark.slow
def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgeapp", "models", "pull", "tiny"],
        cwd=REPOSITORY,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert "HF_HUB_OFFLINE is set" in line
    assert str(tmp_path) in line
