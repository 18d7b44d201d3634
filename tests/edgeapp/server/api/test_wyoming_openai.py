"""The requests that wyoming-openai sends for Home Assistant, and its reading of the replies."""

from __future__ import annotations

import asyncio
import io
import wave
from typing import Any

import numpy as np
import pytest

from pipelines import SAMPLE_RATE, load_audio
from pipelines.hub import assets_folder
from tests.edgeapp.server.api.conftest import QUESTION, Api

openai = pytest.importorskip("openai", reason="needs the package openai, of the extra 'test'")

pytestmark = pytest.mark.slow


def spoken() -> io.BytesIO:
    """A recording as it comes from a satellite: a WAV file that is written chunk by chunk."""
    samples = load_audio(assets_folder() / "samples" / QUESTION)
    pcm = (32767 * np.clip(samples, -1, 1)).astype("<i2").tobytes()
    file = io.BytesIO()
    file.name = "recording.wav"
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        for start in range(0, len(pcm), 2_048):
            writer.writeframes(pcm[start : start + 2_048])
    file.seek(0)
    return file


def test_a_spoken_command_is_transcribed_at_once_and_streamed(api: Api) -> None:
    async def both() -> tuple[str, list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{api.url}v1", api_key="unused") as client:
            wanted: dict[str, Any] = {
                "model": "whisper-1", "language": "en", "temperature": openai.omit,
                "prompt": openai.omit, "response_format": "json",
            }  # fmt: skip
            create = client.audio.transcriptions.create
            plain = await create(file=spoken(), stream=openai.omit, **wanted)
            stream = await create(file=spoken(), stream=True, **wanted)
            return plain.text, [event async for event in stream]

    text, events = asyncio.run(both())
    assert "train to Boston" in text
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert "".join(deltas) == text, "it keeps the deltas only"
