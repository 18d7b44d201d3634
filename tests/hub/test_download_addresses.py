"""Where a download may be redirected to, and what may be the address of the hub."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import OptionError
from pipelines.hub import InsecureMirror, addresses, plan_pull, pull
from pipelines.hub.transfer import RemoteRepository, fetch_listing
from tests.conftest import REPOSITORY
from tests.fixtures.hub import Answer, Hub
from tests.hub.conftest import TINY, WEIGHTS, refused, whisper_files

pytestmark = pytest.mark.usefixtures("impatient", "canary")


# Redirects


@pytest.mark.parametrize("key", ["", "config.json", WEIGHTS])
@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("file:///etc/passwd", "neither http nor https"),
        ("ftp://127.0.0.1/x", "neither http nor https"),
        ("http://192.0.2.1/x", "another host over plain http"),
        ("http://models.example/x", "another host over plain http"),
        ("https:///x", "has no host"),
        ("http://[::1/x", "not an address"),
        ("http://127.0.0.1:99999/x", "not an address"),
        ("http://127.0.0.1/\x7f", "not an address"),
        ("//" + "x" * 9000, "longer than 8192 characters"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_redirects(hub: Hub, key: str, location: str, said: str) -> None:
    hub.host_files(TINY, whisper_files())
    hub.answers[key] = Answer(302, body=b"", headers={"Location": location})
    refused(said)


@pytest.mark.parametrize("key", ["", "config.json", WEIGHTS])
def test_the_body_of_a_redirect_is_not_read(hub: Hub, key: str) -> None:
    hub.host_files(TINY, whisper_files())
    headers = {"Location": "/elsewhere", "Content-Length": None, "Content-Encoding": "gzip"}
    hub.answers[key] = Answer(302, body=itertools.repeat(bytes(65536)), headers={**headers})
    refused("it answered 404")
    assert hub.sent.get(key, 0) < 64_000_000


def test_redirects_without_end(hub: Hub) -> None:
    hub.host_files(TINY, whisper_files())
    url = f"/{TINY}/resolve/{'a' * 40}/config.json"
    hub.answers["config.json"] = Answer(302, body=b"", headers={"Location": url})
    refused("config.json is redirected more than 5 times")
    assert len(hub.requests) < 10


def test_a_redirect_to_another_server_brings_no_other_content(
    hub: Hub, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be followed, without the token, and what it brings is compared with the list."""
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    other = Hub()
    try:
        other.host_files(TINY, {"config.json": b'{"model_type": "marian!"}'})
        hub.host_files(TINY, {**whisper_files(), "config.json": b'{"model_type": "whisper"}'})
        url = f"{other.url}/{TINY}/resolve/{'a' * 40}/config.json"
        hub.answers["config.json"] = Answer(302, body=b"", headers={"Location": url})
        refused("config.json arrived damaged and was deleted")
        assert other.tokens == {"resolve": {""}}
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("source", "location", "allowed"),
    [
        ("https://huggingface.co/a", "https://cdn.hf.co/b", True),
        ("https://huggingface.co/a", "/b", True),
        ("https://huggingface.co/a", "http://huggingface.co/a", False),
        ("https://huggingface.co/a", "http://cdn.hf.co/b", False),
        ("https://huggingface.co/a", "//cdn.hf.co/b", True),
        ("https://huggingface.co/a", "https://localhost/b", False),
        ("https://huggingface.co/a", "https://127.8.8.8:8443/b", False),
        ("https://huggingface.co/a", "https://[::1]/b", False),
        ("https://huggingface.co/a", "javascript:alert(1)", False),
        ("http://mirror.lan/a", "http://mirror.lan:81/b", True),
        ("http://mirror.lan/a", "https://storage.lan/b", True),
        ("http://mirror.lan/a", "http://storage.lan/b", False),
        ("http://mirror.lan/a", "http://127.0.0.1/b", False),
        ("http://127.0.0.1:5/a", "http://localhost:6/b", True),
    ],
)
def test_which_redirects_are_followed(source: str, location: str, allowed: bool) -> None:
    if allowed:
        assert addresses.redirect_target(source, location)
    else:
        with pytest.raises(ValueError, match="^which "):
            addresses.redirect_target(source, location)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://huggingface.co/a", "https://HUGGINGFACE.co:443/b", True),
        ("https://huggingface.co/a", "https://huggingface.co:444/b", False),
        ("https://huggingface.co/a", "https://huggingface.co.evil.example/b", False),
        ("https://huggingface.co/a", "https://huggingface.co@evil.example/b", False),
        ("https://huggingface.co/a", "http://huggingface.co/b", False),
    ],
)
def test_where_a_token_may_go(one: str, other: str, same: bool) -> None:
    assert addresses.same_origin(one, other) is same


@pytest.mark.parametrize(
    ("loopback", "setting", "sent"),
    [(True, "", True), (False, "", False), (False, "0", False), (False, "1", True)],
)
def test_a_token_is_not_sent_over_plain_http(
    hub: Hub, loopback: bool, setting: str, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "hf_" + "x" * 34
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("EDGEAPP_TOKEN_OVER_HTTP", setting)
    monkeypatch.setattr(addresses, "_is_loopback", lambda _: loopback)
    hub.host_files(TINY, whisper_files())
    fetch_listing(RemoteRepository(TINY, hub.url))
    assert hub.tokens == {"api": {f"Bearer {token}" if sent else ""}}


@pytest.mark.parametrize(
    ("endpoint", "allowed"),
    [("https://mirror.lan", True), ("http://mirror.lan", False), ("http://[::1]:9", True)],
)
def test_to_which_hubs_a_token_goes(endpoint: str, allowed: bool) -> None:
    assert addresses.may_send_token(endpoint) is allowed


# The address of the hub


@pytest.mark.parametrize(
    ("endpoint", "warned"),
    [
        ("http://mirror.lan", True),
        ("http://192.168.1.5:8080/hf", True),
        ("http://localhost.evil.example", True),
        ("https://mirror.lan", False),
        ("http://127.0.0.1:9", False),
        ("http://localhost:9", False),
        ("http://[::1]:9", False),
    ],
)
def test_plain_http_is_warned_of(endpoint: str, warned: bool) -> None:
    warning = addresses.insecure_mirror(endpoint)
    assert (warning is not None) is warned
    if warning is not None:
        assert endpoint in warning
        assert "\n" not in warning


@pytest.mark.parametrize("ask", [pull, plan_pull])
def test_the_warning_comes_before_the_first_request(
    hub: Hub, ask: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    hub.host_files(TINY, whisper_files())
    monkeypatch.setattr(constants, "ENDPOINT", "http://mirror.lan")
    # Warnings are errors here.
    with pytest.raises(InsecureMirror, match="reached over plain http"):
        ask("tiny")
    assert hub.requests == []


@pytest.mark.parametrize("endpoint", ["file:///etc", "mirror.lan", "", "http://", "https://a b"])
def test_an_address_that_is_none(hub: Hub, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    with pytest.raises(OptionError, match="HF_ENDPOINT is ") as error:
        pull("tiny")
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_command_line_warns_and_goes_on(tmp_path: Path) -> None:
    """In two lines: the warning, and that there is no such host."""
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "c"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "edgeapp", "models", "pull", "tiny"],
        cwd=REPOSITORY,
        env={**environment, "HF_ENDPOINT": "http://mirror.invalid"},
        capture_output=True,
        text=True,
        check=False,
    )
    warning, problem = done.stderr.strip().splitlines()
    assert warning.startswith("edgeapp: the hub http://mirror.invalid is reached over plain http")
    assert "HF_HUB_OFFLINE is set" in problem
