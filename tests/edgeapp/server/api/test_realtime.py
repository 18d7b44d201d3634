"""OpenAI's Realtime interface, transcription sessions; and the `openai` package as its client."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soxr
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from edgeapp import memory_limit
from edgeapp.model_pool import ModelPool
from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.api.errors import ApiError
from edgeapp.server.api.realtime.audio_formats import AudioDecoder
from edgeapp.server.api.realtime.config import SessionConfig
from edgeapp.server.api.realtime.socket import RealtimeSocket
from edgeapp.server.fairness import MessageRates
from edgeapp.server.options import ServerOptions
from edgeapp.server.sessions import Sessions
from edgeapp.settings import Settings
from pipelines import SAMPLE_RATE, load_audio
from pipelines.hub import assets_folder
from tests.edgeapp.server.api.conftest import QUESTION, Api

pytestmark = pytest.mark.slow
ITEM = "conversation.item.input_audio_transcription"


def pcm24(silence_s: float = 1.0) -> bytes:
    """A spoken question, then silence: 16 bits at 24 kHz."""
    samples = load_audio(assets_folder() / "samples" / QUESTION)
    samples = np.concatenate([samples, np.zeros(int(silence_s * SAMPLE_RATE), np.float32)])
    resampled = soxr.resample(samples, SAMPLE_RATE, 24_000)
    return (32767 * np.clip(resampled, -1, 1)).astype("<i2").tobytes()


@contextmanager
def session(url: str, query: str = "?intent=transcription", **options: Any) -> Iterator[Any]:
    address = url.replace("http", "ws").replace("0.0.0.0", "127.0.0.1")
    with connect(f"{address}v1/realtime{query}", open_timeout=60, **options) as socket:
        yield socket


def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind, **fields}))


def append(socket: ClientConnection, audio: bytes) -> None:
    for start in range(0, len(audio), 9_600):  # of a fifth of a second
        block = base64.b64encode(audio[start : start + 9_600]).decode()
        send(socket, "input_audio_buffer.append", audio=block)


def until(socket: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """The events up to one of a kind."""
    events = []
    while not events or events[-1]["type"] != kind:
        events.append(json.loads(socket.recv(60)))
    assert len({event["event_id"] for event in events}) == len(events)
    return events


def update(**source: Any) -> dict[str, Any]:
    return {"type": "transcription", "audio": {"input": source}}


def test_server_vad_finds_the_utterance(api: Api) -> None:
    with session(api.url) as socket:
        (created,) = until(socket, "session.created")
        assert created["session"]["type"] == "transcription"
        send(socket, "session.update", session=update(transcription={"language": "en"}))
        until(socket, "session.updated")
        append(socket, pcm24())
        events = until(socket, f"{ITEM}.completed")
    kinds = [event["type"] for event in events if event["type"] != f"{ITEM}.delta"]
    assert kinds == [
        "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed", "conversation.item.added", f"{ITEM}.completed",
    ]  # fmt: skip
    assert len({event["item_id"] for event in events if "item_id" in event}) == 1
    done = events[-1]
    assert "train to Boston" in done["transcript"]
    deltas = [event["delta"] for event in events if event["type"] == f"{ITEM}.delta"]
    assert "".join(deltas).strip() == done["transcript"]
    assert done["usage"]["type"] == "duration"


def test_another_language_than_the_named_one_is_said_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pipelines.asr.live.spoken_language.SpokenLanguage.take_doubt", lambda self: "de"
    )
    with session(api.url) as socket:
        send(socket, "session.update", session=update(transcription={"language": "en"}))
        append(socket, pcm24() * 2)
        done = [until(socket, f"{ITEM}.completed")[-1] for _ in range(2)]
    assert [each.get("warnings") for each in done] == [
        ["this sounds like German, but is written as English, which was given"],
        None,
    ]


def test_the_client_commits_and_the_utterance_is_translated(api: Api) -> None:
    with session(api.url) as socket:
        fields = update(turn_detection=None) | {"edgeapp": {"translate_to": "de"}}
        send(socket, "session.update", session=fields)
        until(socket, "session.updated")
        append(socket, pcm24(0))
        send(socket, "input_audio_buffer.clear")
        until(socket, "input_audio_buffer.cleared")
        send(socket, "input_audio_buffer.commit", event_id="mine")
        (error,) = [e for e in until(socket, "error") if e["type"] == "error"]
        assert error["error"]["code"] == "input_audio_buffer_commit_empty"
        append(socket, pcm24(0))
        send(socket, "input_audio_buffer.commit")
        events = until(socket, "edgeapp.translation.completed")
    assert "train to Boston" in events[-2]["transcript"]
    assert events[-1]["language"] == "de"
    assert events[-1]["text"]
    assert events[-1]["item_id"] == events[-2]["item_id"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"type": "realtime"}, "session.type"),
        (update(noise_reduction={"type": "loud"}), "session.audio.input.noise_reduction.type"),
        (update(turn_detection={"type": "manual"}), "session.audio.input.turn_detection.type"),
        (update(turn_detection={"type": "semantic_vad", "eagerness": "very"}),
         "session.audio.input.turn_detection.eagerness"),
        (update(turn_detection={"type": "server_vad", "eagerness": "low"}),
         "session.audio.input.turn_detection.eagerness"),
        (update(format={"type": "audio/pcm", "rate": 16_000}), "session.audio.input.format.rate"),
        (update(transcription={"model": "whisper-1", "delay": "low"}),
         "session.audio.input.transcription.delay"),
        (update() | {"include": ["item.everything"]}, "session.include"),
        (update() | {"include": "item.input_audio_transcription.logprobs"}, "session.include"),
        (update() | {"voice": "alloy"}, "session.voice"),
        ("x", "session"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(change: Any, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        SessionConfig().updated(change)
    assert refused.value.param == param
    assert param in refused.value.message


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"type": "transcription"}, "session.type"),
        ({"input_audio_format": "audio/pcm"}, "session.input_audio_format"),
        ({"input_audio_noise_reduction": "near_field"}, "session.input_audio_noise_reduction"),
        ({"turn_detection": {"threshold": 2}}, "session.turn_detection.threshold"),
        ({"input_audio_transcription": None}, "session.input_audio_transcription"),
    ],
)
def test_the_beta_form_is_refused_by_its_own_names(change: Any, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        SessionConfig().updated_by_beta(change)
    assert refused.value.param == param


@pytest.mark.parametrize("eagerness", [None, "auto", "low", "medium", "high"])
def test_semantic_vad_becomes_server_vad(eagerness: str | None) -> None:
    turns = {"type": "semantic_vad", "eagerness": eagerness, "create_response": False}
    answer = SessionConfig().updated(update(turn_detection=turns)).as_session("sess_1")
    found = answer["audio"]["input"]["turn_detection"]
    assert found["type"] == "server_vad"
    expected = {"low": 1_000, "high": 300}.get(eagerness or "", 500)
    assert found["silence_duration_ms"] == expected


def test_a_session_of_the_beta_form(api: Api) -> None:
    header = {"OpenAI-Beta": "realtime=v1"}
    with session(api.url, additional_headers=header) as socket:
        until(socket, "transcription_session.created")
        fields = {
            "input_audio_format": "pcm16",
            "input_audio_transcription": {"model": "whisper-1", "language": "en", "prompt": ""},
            "input_audio_noise_reduction": {"type": "near_field"},
            "turn_detection": None,
            "include": ["item.input_audio_transcription.logprobs"],
        }
        send(socket, "transcription_session.update", session=fields)
        updated = until(socket, "transcription_session.updated")[-1]["session"]
        assert updated["turn_detection"] is None
        assert updated["input_audio_transcription"]["language"] == "en"
        assert updated["input_audio_noise_reduction"] is None
        append(socket, pcm24(0))
        send(socket, "input_audio_buffer.commit")
        events = until(socket, f"{ITEM}.completed")
    assert "conversation.item.created" in [event["type"] for event in events]
    assert "train to Boston" in events[-1]["transcript"]


@pytest.mark.parametrize("turns", [None, {"type": "semantic_vad"}])
def test_what_pipecat_and_livekit_send_is_taken(api: Api, turns: Any) -> None:
    """Noise is not reduced, and the answer says so; log-probabilities are sent."""
    with session(api.url) as socket:
        source = update(
            format={"type": "audio/pcm", "rate": 24_000},
            transcription={"model": "whisper-1", "language": "en"},
            noise_reduction={"type": "far_field"},
            turn_detection=turns,
        )
        include = ["item.input_audio_transcription.logprobs"]
        send(socket, "session.update", session=source | {"include": include})
        updated = until(socket, "session.updated")[-1]["session"]
        assert updated["audio"]["input"]["noise_reduction"] is None
        assert updated["include"] == include
        append(socket, pcm24(1.5))
        if turns is None:
            send(socket, "input_audio_buffer.commit")
        events = until(socket, f"{ITEM}.completed")
    done = events[-1]
    assert "train to Boston" in done["transcript"]
    spoken = b"".join(bytes(token["bytes"]) for token in done["logprobs"]).decode()
    assert spoken.strip() == done["transcript"]
    assert all(-30 < token["logprob"] <= 0 for token in done["logprobs"])
    deltas = [event for event in events if event["type"] == f"{ITEM}.delta"]
    assert sum((event["logprobs"] for event in deltas), []) == done["logprobs"]


def test_a_revoked_token_ends_the_session(
    thread_server: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.server.api.realtime.socket._LOGIN_CHECKED_S", 0.05)
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("phone")
    url = thread_server(host="0.0.0.0", tokens=tokens)
    with session(url, additional_headers={"authorization": f"Bearer {secret}"}) as socket:
        until(socket, "session.created")
        tokens.revoke("phone")
        with pytest.raises(ConnectionClosed):
            socket.recv(60)
        assert socket.close_code == 4403


def test_a_client_that_sends_nothing_gives_its_place_away(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.server.api.realtime.socket._IDLE_S", 0.3)
    url = thread_server(sessions=1)
    for _ in range(2):
        with session(url) as socket:
            error = until(socket, "error")[-1]["error"]
            assert error["code"] == "session_expired"
            assert "nothing was received" in error["message"]
            with pytest.raises(ConnectionClosed):
                socket.recv(60)
            assert (socket.close_code, socket.close_reason) == (4408, "idle")


def test_messages_are_read_at_a_limited_rate(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[float] = []

    async def take(self: MessageRates, person: str, cost: float) -> None:
        costs.append(cost)

    monkeypatch.setattr(MessageRates, "take", take)
    with session(api.url) as socket:
        for _ in range(3):
            send(socket, "input_audio_buffer.clear")
        for _ in range(3):
            until(socket, "input_audio_buffer.cleared")
    assert len(costs) == 3
    assert min(costs) > 0


def test_a_commit_without_speech_is_an_error(api: Api) -> None:
    with session(api.url, "?intent=transcription&model=demo") as socket:
        append(socket, bytes(48_000))
        send(socket, "input_audio_buffer.commit")
        assert until(socket, "error")[-1]["error"]["code"] == "input_audio_buffer_commit_empty"
        append(socket, pcm24(0))
        send(socket, "input_audio_buffer.commit")
        assert "train to Boston" in until(socket, f"{ITEM}.completed")[-1]["transcript"]


def test_bad_messages_do_not_end_the_session(api: Api) -> None:
    with session(api.url) as socket:
        until(socket, "session.created")
        for text in ("{", "[]", '{"type": "response.create"}', "[" * 100_000,
                     '{"type": "input_audio_buffer.append", "audio": "?"}',
                     '{"type": "session.update", "session": {"type": "x"}}'):  # fmt: skip
            socket.send(text)
            assert "message" in until(socket, "error")[-1]["error"]
        model = {"model": "large-v3"}
        send(socket, "session.update", session=update(transcription=model), event_id="mine")
        assert until(socket, "error")[-1]["error"]["code"] == "model_not_found"


def test_who_may_open_a_session(
    api: Api, thread_server: Callable[..., str], tmp_path: Path
) -> None:
    with session(api.url, "") as socket:
        assert "intent" in json.loads(socket.recv(60))["error"]["message"]
        with pytest.raises(ConnectionClosed):
            socket.recv(60)
    with pytest.raises(InvalidStatus), session(api.url, origin="http://evil.example"):
        pass
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("phone")
    url = thread_server(host="0.0.0.0", tokens=tokens)
    with pytest.raises(InvalidStatus), session(url):
        pass
    with session(url, additional_headers={"authorization": f"Bearer {secret}"}) as socket:
        until(socket, "session.created")
    keys: Any = ["realtime", f"openai-insecure-api-key.{secret}"]
    with session(url, subprotocols=keys) as socket:
        assert socket.subprotocol == "realtime"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_g711_decodes_as_the_standard_library_does() -> None:
    codes = bytes(range(256))
    audioop = pytest.importorskip("audioop", reason="not in Python 3.13")
    for kind, expected in (
        ("audio/pcmu", audioop.ulaw2lin(codes, 2)), ("audio/pcma", audioop.alaw2lin(codes, 2))
    ):  # fmt: skip
        decoder = AudioDecoder(kind)  # type: ignore[arg-type]
        found = (32768 * decoder._samples(codes)).astype(np.int16)
        assert found.tolist() == np.frombuffer(expected, "<i2").tolist()


def test_half_a_sample_waits_for_the_other_half() -> None:
    audio = pcm24(0)
    whole, halves = AudioDecoder("audio/pcm"), AudioDecoder("audio/pcm")
    one = np.concatenate([whole.decode(audio), whole.finish()])
    parts = [halves.decode(audio[i : i + 9_601]) for i in range(0, len(audio), 9_601)]
    assert np.allclose(np.concatenate([*parts, halves.finish()]), one, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client's own
def test_the_openai_client(api: Api) -> None:
    openai = pytest.importorskip("openai", reason="needs the package openai, of the extra 'test'")
    audio = base64.b64encode(pcm24()).decode()
    with openai.OpenAI(base_url=f"{api.url}v1", api_key="unused") as client:
        query = {"intent": "transcription"}
        with client.realtime.connect(model="whisper-1", extra_query=query) as connection:
            assert connection.recv().type == "session.created"
            connection.session.update(session=update(transcription={"model": "demo"}))
            connection.input_audio_buffer.append(audio=audio)
            for event in connection:
                assert event.type != "error", event
                if event.type == f"{ITEM}.completed":
                    assert "train to Boston" in event.transcript
                    break


def test_sessions_and_buffers_count_against_the_memory_limit(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, mb, free = 1 << 30, 1 << 20, 5
    monkeypatch.setattr(memory_limit, "memory_in_use", lambda: limit - free * mb)
    url = thread_server(memory_bytes=limit)
    with session(url) as socket:
        (refused,) = until(socket, "error")
        assert refused["error"]["code"] == "rate_limit_exceeded"
        assert "a live session needs about 10 MB" in refused["error"]["message"]
        with pytest.raises(ConnectionClosed):
            socket.recv(60)
        assert socket.close_code == 1013
    free = 60
    with session(url) as socket:
        send(socket, "session.update", session=update(turn_detection=None))
        until(socket, "session.updated")
        minute = base64.b64encode(bytes(2 * 24_000 * 60)).decode()
        for _ in range(4):
            send(socket, "input_audio_buffer.append", audio=minute)
        full = until(socket, "error")[-1]
        assert full["error"]["code"] == "rate_limit_exceeded"
        assert "commit or clear" in full["error"]["message"]
        send(socket, "input_audio_buffer.clear")
        until(socket, "input_audio_buffer.cleared")


def test_a_client_that_does_not_read_is_not_read() -> None:
    """The events that wait for it would fill the memory."""
    reading = asyncio.Event()

    class Socket:
        scope: dict[str, Any] = {}  # noqa: RUF012
        query_params = {"intent": "transcription"}  # noqa: RUF012
        headers: dict[str, str] = {}  # noqa: RUF012
        received = 0

        async def accept(self, subprotocol: str | None) -> None:
            pass

        async def receive_text(self) -> str:
            self.received += 1
            if self.received > 1_000:
                raise WebSocketDisconnect
            return "not JSON"

        async def send_json(self, event: Any) -> None:
            await reading.wait()

    async def has_recognizer(person: str) -> None:
        pass

    async def talk() -> tuple[int, int]:
        pool = ModelPool(Settings(), listed_only=True)
        logins = SimpleNamespace(person_of=lambda connection: "", user_of=lambda connection: "")
        service: Any = SimpleNamespace(
            pool=pool, logins=logins, options=ServerOptions(), check_recognizer=has_recognizer
        )
        socket: Any = Socket()
        serving = asyncio.create_task(RealtimeSocket(service, Sessions(1)).serve(socket))
        before = -1
        while socket.received != before:
            before = socket.received
            for _ in range(1_000):
                await asyncio.sleep(0)
        reading.set()
        await serving
        return before, socket.received

    unread, read = asyncio.run(talk())
    assert unread < 300
    assert read == 1_001
