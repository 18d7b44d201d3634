"""The requests that Subtitle Edit 5 sends, field by field, and its reading of the replies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.edgeapp.server.api.conftest import Api, recording

pytestmark = pytest.mark.slow


def test_speech_to_text_streams_segments_with_times(api: Api) -> None:
    """Engine "OpenAI compatible": it reads the type of an event from its name only."""
    parts: list[tuple[str, Any]] = [
        ("file", ("audio.wav", recording("story.flac"), "audio/wav")),
        ("model", (None, "whisper-1")),
        ("language", (None, "en")),
        ("response_format", (None, "json")),
        ("timestamp_granularities[]", (None, "segment")),
        ("timestamp_granularities[]", (None, "word")),
        ("stream", (None, "true")),
        ("temperature", (None, "0.20")),
    ]
    reply = api.post(
        "v1/audio/transcriptions", files=parts, headers={"Authorization": "Bearer unused"}
    )
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    events: list[tuple[str, dict[str, Any]]] = []
    for block in reply.text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        if "event" in lines:
            events.append((lines["event"], json.loads(lines["data"])))
    assert {name for name, _ in events[:-1]} == {"transcript.text.delta"}
    name, done = events[-1]
    assert name == "transcript.text.done"
    assert "".join(content["delta"] for _, content in events[:-1]) == done["text"]
    segments = done["segments"]
    assert "".join(segment["text"] for segment in segments).strip() == done["text"]
    assert all(segment["start"] < segment["end"] for segment in segments)
    assert done["words"]


def test_automatic_translation(api: Api) -> None:
    """It posts JSON without a format, and writes line breaks as tags."""
    body = '{"q": "Good morning.<br />Where is the station?", "source": "en", "target": "de"}'
    reply = api.post(
        "translate", content=body.encode(),
        headers={"Content-Type": "application/json", "accept": "application/json"},
    )  # fmt: skip
    assert reply.status_code == 200
    assert reply.json()["translatedText"]
