"""Exports: any transcript, of any size, and what is none."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from edgeapp.server.page import exports
from edgeapp.server.transcripts import render_message
from pipelines.errors import EdgeError, InputError
from tests.edgeapp.server import attacks

CUE = {"start": 1, "end": 2, "text": "Good morning."}


def body(**message: Any) -> bytes:
    return json.dumps({"format": "srt", "cues": [CUE], **message}).encode()


def test_a_child_process_renders_the_same(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = thread_server()
    message = body(cues=[{**CUE, "text": "Müller 日本"}] * 3)
    texts = set()
    for size in (1 << 20, 0):
        monkeypatch.setattr(exports, "_SMALL_BYTES", size)
        response, text = attacks.request(url, "POST", "/edgeapp/export", body=message)
        assert response.status == 200
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        texts.add(text)
    assert texts == {render_message(message)}
    assert "Müller 日本" in text.decode()


@pytest.mark.parametrize("small", [1 << 20, 0])
def test_what_is_no_transcript(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(exports, "_SMALL_BYTES", small)
    url = thread_server()
    response, text = attacks.request(url, "POST", "/edgeapp/export", body=b"[1, 2")
    assert response.status == 400
    assert json.loads(text)["error"].startswith("this is not a transcript")


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\xff", b"{}", b"[]", b"[" * 100_000, b'{"format": "srt", "cues": 1e999}',
        body(cues=[{**CUE, "start": float("inf")}]), body(cues=[{**CUE, "end": float("nan")}]),
        body(format="all"), body(format="exe"), body(cues=None), body(cues=[None]),
    ],
)  # fmt: skip
def test_nonsense_is_an_error_of_the_request(message: bytes) -> None:
    with pytest.raises(EdgeError):
        render_message(message)


def test_a_lone_surrogate_is_replaced() -> None:
    assert render_message(body(format="txt", cues=[{**CUE, "text": "a\udcffb"}])) == b"a?b\n"


def test_an_export_that_is_too_large(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_MAX_BYTES", 1000)
    url = thread_server()
    response, text = attacks.request(url, "POST", "/edgeapp/export", body=body(cues=[CUE] * 50))
    assert response.status == 413
    assert "too large" in json.loads(text)["error"]


def test_a_child_process_that_takes_too_long_is_ended(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_SMALL_BYTES", 0)
    monkeypatch.setattr(exports, "_LONGEST_S", 0.01)
    response, _ = attacks.request(thread_server(), "POST", "/edgeapp/export", body=body())
    assert response.status == 400


def test_several_transcripts_become_one_zip() -> None:
    cue = {"start": 0.0, "end": 1.0, "text": "Hello."}
    talk: dict[str, Any] = {"name": "talk.flac", "language": "en", "cues": [cue]}
    other = {"name": "../talk.mp3", "cues": [cue], "target": "de"}
    other["translation"] = [cue | {"text": "Hallo."}]
    files = [talk, talk | {"name": "Talk.wav"}, other]
    message = {"format": "zip", "formats": ["txt", "json"], "files": files}
    with zipfile.ZipFile(io.BytesIO(render_message(json.dumps(message).encode()))) as archive:
        assert archive.namelist() == [
            "talk.txt", "talk.json", "Talk (2).txt", "Talk (2).json",
            "_talk.txt", "_talk.de.txt", "_talk.json",
        ]  # fmt: skip
        assert archive.read("_talk.de.txt") == b"Hallo.\n"
    with pytest.raises(InputError, match="not a transcript"):
        render_message(b'{"format": "zip", "formats": ["txt"], "files": [{"name": "x"}]}')
