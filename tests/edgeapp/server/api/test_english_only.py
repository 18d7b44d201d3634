"""A recognizer that understands English only says so to programs, if they name no language."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from websockets.sync.client import connect

from pipelines import SAMPLE_RATE, load_audio
from pipelines.hub import assets_folder, bundled_folder
from tests.edgeapp.server.api.conftest import Api, recording
from tests.edgeapp.server.conftest import serving_routes

pytestmark = pytest.mark.slow
MODEL = "someone/mine.en"
NOTES = [
    f"{MODEL} understands English only; for other languages choose a multilingual model, such as "
    "base (`edgeapp models pull base`)",
    f"this sounds like another language than English, which is all that {MODEL} understands",
]


@pytest.fixture
def api(tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A server with such a recognizer, to which all probabilities are those of another language."""
    monkeypatch.setattr("edgeapp.english_only._LEAST_LOGPROB", 1.0)
    monkeypatch.setattr("edgeapp.english_only._LEAST_WORD_LOGPROB", 1.0)
    storage = hub_cache / "models--someone--mine.en"
    (storage / "refs").mkdir(parents=True)
    (storage / "refs" / "main").write_text("a" * 40, "utf-8")
    shutil.copytree(bundled_folder("demo"), storage / "snapshots" / ("a" * 40))
    monkeypatch.delenv("EDGEAPP_MODEL")
    with serving_routes(tmp_path, minutes=2.0) as url:
        yield Api(url, [])


def pcm(rate: int) -> bytes:
    """A talk and a second of silence, 16 bits."""
    samples = load_audio(assets_folder() / "samples" / "talk.flac")
    samples = np.concatenate([samples, np.zeros(SAMPLE_RATE, np.float32)])
    resampled = soxr.resample(samples, SAMPLE_RATE, rate)
    return (32767 * np.clip(resampled, -1, 1)).astype("<i2").tobytes()


def events(api: Api, path: str, messages: list[Any], last: str, count: int = 1) -> list[Any]:
    """What a WebSocket sends to the messages, up to the last event of a type."""
    received: list[Any] = []
    with connect(f"{api.url.replace('http', 'ws')}{path}", open_timeout=60) as socket:
        for message in messages:
            socket.send(message if isinstance(message, bytes) else json.dumps(message))
        while sum(event["type"] == last for event in received) < count:
            received.append(json.loads(socket.recv(120)))
    return received


@pytest.mark.parametrize(("language", "notes"), [({}, NOTES), ({"language": "en"}, [])])
def test_a_recording(api: Api, language: dict[str, str], notes: list[str]) -> None:
    for kind in ("json", "verbose_json"):
        reply = api.transcribe(recording("talk.flac"), response_format=kind, **language)
        assert reply.json().get("warnings", []) == notes
    reply = api.transcribe(recording("talk.flac"), stream="true", **language)
    [done] = [line for line in reply.text.splitlines() if '"transcript.text.done"' in line]
    assert json.loads(done.removeprefix("data: ")).get("warnings", []) == notes


@pytest.mark.parametrize(("query", "notes"), [("", NOTES), ("&language=en", [])])
def test_live_events(api: Api, query: str, notes: list[str]) -> None:
    stop = {"type": "stop"}
    heard = events(api, f"v1/live?rate=16000{query}", [pcm(16_000), stop], "end")
    warnings = [at for at, event in enumerate(heard) if event["type"] == "warning"]
    assert [heard[at]["message"] for at in warnings] == notes
    if notes:
        first, last = warnings
        assert "speech_start" not in {event["type"] for event in heard[:first]}
        assert last == len(heard) - 2, "the end follows"


def test_realtime_items(api: Api) -> None:
    """Each warning comes once, in a field that clients do not know and ignore."""
    turns = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
    audio = base64.b64encode(pcm(24_000)).decode()
    commit = {"type": "input_audio_buffer.commit"}
    append = {"type": "input_audio_buffer.append", "audio": audio}
    done = "conversation.item.input_audio_transcription.completed"
    update = {"type": "session.update", "session": turns}
    messages = [update, append, commit, append, commit]
    heard = events(api, "v1/realtime?intent=transcription", messages, done, 2)
    assert [event.get("warnings") for event in heard if event["type"] == done] == [NOTES, None]
