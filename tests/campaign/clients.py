"""Clients of all interfaces of a server, by turns: what they ask is random, the replies checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import httpx
import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from pipelines import SAMPLE_RATE, load_audio
from tests.campaign.commands import SAMPLES
from tests.campaign.part import Failed

__all__ = ["Clients"]

_QUESTION = SAMPLES / "question.flac"
_ANSWER_S = 120.0
_BLOCK_BYTES = SAMPLE_RATE  # half a second


class Clients:
    """Clients of OpenAI's, LibreTranslate's and Gradio's interfaces, and of the live socket.

    Args:
        url: Of the server, with the slash behind it.
        random: Chooses what is asked.
    """

    def __init__(self, url: str, random: Random) -> None:
        self._url, self._random = url, random
        self._recording = _QUESTION.read_bytes()
        samples = load_audio(_QUESTION)
        silence = np.zeros(SAMPLE_RATE, np.float32)
        sound = np.concatenate([samples, silence])
        self._pcm = (32767 * np.clip(sound, -1, 1)).astype("<i2").tobytes()
        self._asked: tuple[Callable[[], None], ...] = (
            self._transcribe, self._transcribe, self._stream, self._translate, self._translate,
            self._live, self._gradio,
        )  # fmt: skip

    def ask(self) -> None:
        """One request of a random kind. Raises Failed for a wrong reply."""
        self._random.choice(self._asked)()

    def _form(self, **fields: str) -> dict[str, Any]:
        return {
            "files": {"file": (_QUESTION.name, self._recording)},
            "data": {"model": "whisper-1", "language": "en", **fields},
            "timeout": _ANSWER_S,
        }

    def _transcribe(self) -> None:
        wanted = self._random.choice(("json", "text", "srt", "verbose_json"))
        form = self._form(response_format=wanted)
        reply = httpx.post(f"{self._url}v1/audio/transcriptions", **form)
        if reply.status_code != 200 or "Boston" not in reply.text:
            raise Failed(f"transcriptions: {reply.status_code} {reply.text[:200]}")

    def _stream(self) -> None:
        """A streamed reply, of which some are left at once."""
        form = self._form(stream="true", **{"include[]": "logprobs"})
        with httpx.stream("POST", f"{self._url}v1/audio/transcriptions", **form) as reply:
            if self._random.random() < 0.3:
                return
            said = "".join(reply.iter_text())
        if not said.endswith("data: [DONE]\n\n"):
            raise Failed(f"a stream ends with {said[-200:]}")

    def _translate(self) -> None:
        words = " ".join(self._random.choice(("coffee", "train", "the", "is")) for _ in range(8))
        content = {"q": [f"Where is the {words}?"] * 3, "source": "auto", "target": "de"}
        reply = httpx.post(f"{self._url}translate", json=content, timeout=_ANSWER_S)
        if reply.status_code not in (200, 400):  # the words may look like another language
            raise Failed(f"translate: {reply.status_code} {reply.text[:200]}")

    def _live(self) -> None:
        """A session that is cut once and taken up, to its end."""
        address = f"{self._url.replace('http', 'ws', 1)}v1/live"
        cut = self._random.randrange(0, len(self._pcm), 2)
        with connect(f"{address}?language=en", open_timeout=_ANSWER_S, proxy=None) as socket:
            session = self._next(socket)["session"]
            self._send(socket, self._pcm[:cut])
            self._next(socket)
            socket.socket.close()
        query = f"session={session}&after=0"
        with connect(f"{address}?{query}", open_timeout=_ANSWER_S, proxy=None) as socket:
            resumed = self._next(socket)
            self._send(socket, self._pcm[2 * resumed["received"] :])
            socket.send('{"type": "stop"}')
            text = ""
            with suppress(ConnectionClosed):
                while True:
                    event = self._next(socket)
                    text += event["text"] if event["type"] == "committed" else ""
        if "Boston" not in text:
            raise Failed(f"a session that was cut heard {text!r}")

    def _gradio(self) -> None:
        """A call of a named endpoint, whose client sometimes leaves."""
        url = f"{self._url}gradio_api/call/"
        files = {"files": (_QUESTION.name, self._recording)}
        (token,) = httpx.post(f"{self._url}gradio_api/upload", files=files).json()
        recording = {"path": token, "meta": {"_type": "gradio.FileData"}}
        reply = httpx.post(f"{url}v2/transcribe", json={"recording": recording})
        event = reply.json()["event_id"]
        with httpx.stream("GET", f"{url}transcribe/{event}", timeout=_ANSWER_S) as stream:
            if self._random.random() < 0.3:
                return
            said = "".join(stream.iter_text())
        if "Boston" not in said:
            raise Failed(f"Gradio's call says {said[-200:]}")

    @staticmethod
    def _send(socket: ClientConnection, audio: bytes) -> None:
        for start in range(0, len(audio), _BLOCK_BYTES):
            socket.send(audio[start : start + _BLOCK_BYTES])

    @staticmethod
    def _next(socket: ClientConnection) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(socket.recv(_ANSWER_S))
        if event["type"] == "error":
            raise Failed(f"the live socket says {event['message']}")
        return event
