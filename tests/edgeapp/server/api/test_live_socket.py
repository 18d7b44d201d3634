"""The WebSocket of programs for live recognition: events, reconnecting, refusals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from edgeapp import memory_limit
from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.tasks.event_task import EventTask
from pipelines import SAMPLE_RATE, LiveTranscriber, load_audio
from pipelines.asr import CorrectedText, CorrectionDue
from pipelines.hub import assets_folder
from tests.edgeapp.server.api.conftest import Api
from tests.fixtures.live_options import note_options

pytestmark = pytest.mark.slow


def pcm(rate: int, name: str = "talk.flac", seconds: float = 12.0) -> bytes:
    """A recording, 16 bits, with a second of silence behind it."""
    samples = load_audio(assets_folder() / "samples" / name)[: int(seconds * SAMPLE_RATE)]
    samples = np.concatenate([samples, np.zeros(SAMPLE_RATE, np.float32)])
    resampled = soxr.resample(samples, SAMPLE_RATE, rate)
    return (32767 * np.clip(resampled, -1, 1)).astype("<i2").tobytes()


@contextmanager
def live(url: str, query: str, **options: Any) -> Iterator[ClientConnection]:
    address = url.replace("http", "ws").replace("0.0.0.0", "127.0.0.1")
    with connect(f"{address}v1/live?{query}", open_timeout=60, **options) as socket:
        yield socket


def next_event(socket: ClientConnection) -> dict[str, Any]:
    return dict(json.loads(socket.recv(60)))


def to_the_end(socket: ClientConnection) -> list[dict[str, Any]]:
    """All events until the server closes the connection."""
    events = []
    with suppress(ConnectionClosed):
        while True:
            events.append(next_event(socket))
    assert socket.close_code == 1000
    return events


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "committed").strip()


def test_a_corrected_text_names_what_it_replaces(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decoded once more is made to differ, so that it can be told from what was heard."""
    correct = LiveTranscriber.correct

    def shout(self: LiveTranscriber, due: CorrectionDue, is_wanted: Any) -> CorrectedText | None:
        correct(self, due, is_wanted)
        return CorrectedText(due.text.upper(), due.start, due.end, due.text, (), due.language)

    monkeypatch.setattr(LiveTranscriber, "correct", shout)
    with live(api.url, "language=en&correct=true") as socket:
        assert next_event(socket)["type"] == "started"
        socket.send(pcm(16_000, "question.flac"))
        socket.send(json.dumps({"type": "stop"}))
        events = to_the_end(socket)
    said = [event for event in events if event["type"] == "committed"]
    (corrected,) = [event for event in events if event["type"] == "corrected"]
    assert corrected["replaces"] == [event["id"] for event in said]
    assert corrected["text"] == "".join(event["text"] for event in said).upper()
    assert (corrected["utterance"], corrected["start"]) == (1, said[0]["start"])
    assert events[-1]["type"] == "end"


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_any_sample_rate_gives_numbered_dated_events_with_words(api: Api, rate: int) -> None:
    with live(api.url, f"rate={rate}&language=en") as socket:
        started = next_event(socket)
        assert (started["type"], started["received"]) == ("started", 0)
        socket.send(pcm(rate, "question.flac"))
        socket.send(json.dumps({"type": "stop"}))
        events = to_the_end(socket)
    assert "train to Boston" in text_of(events)
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "end"
    for event in events:
        assert event["clock"].endswith("Z")
        if event["type"] == "committed":
            assert (event["language"], event["utterance"]) == ("en", 1)
            assert 0 < event["confidence"] <= 1
            assert "".join(word["word"] for word in event["words"]) == event["text"]


def test_two_channels_are_two_speakers(api: Api) -> None:
    rate = 16_000
    names = ("question.flac", "talk.flac")
    channels = [np.frombuffer(pcm(rate, name), "<i2")[: 4 * rate] for name in names]
    longest = max(map(len, channels))
    sound = np.stack([np.pad(each, (0, longest - len(each))) for each in channels], axis=1)
    with live(api.url, f"rate={rate}&language=en&speakers=Me,Them") as socket:
        next_event(socket)
        socket.send(sound.tobytes())
        socket.send('{"type": "stop"}')
        events = to_the_end(socket)
    own = {
        name: text_of([event for event in events if event.get("speaker") == name])
        for name in ("Me", "Them")
    }
    assert "train to Boston" in own["Me"]
    assert "new house" in own["Them"]
    assert "speaker" not in events[-1]
    with live(api.url, f"rate={rate}&speakers=Me") as socket:
        assert "two different names" in next_event(socket)["message"]


def test_a_session_that_is_cut_ten_times_loses_no_sound_and_no_event(api: Api) -> None:
    rate = 16_000
    audio = pcm(rate)
    with live(api.url, f"rate={rate}") as socket:
        next_event(socket)
        socket.send(audio)
        socket.send('{"type": "stop"}')
        whole = to_the_end(socket)

    events: list[dict[str, Any]] = []
    session, received, query = "", 0, f"rate={rate}"
    block = 2 * rate // 10
    for cut in range(11):
        with live(api.url, query) as socket:
            answer = next_event(socket)
            session = answer.get("session", session)
            assert answer["type"] == ("resumed" if cut else "started")
            assert received <= answer["received"] <= len(audio) // 2
            received = answer["received"]
            end = len(audio) if cut == 10 else 2 * received + (1 + cut % 3) * 4 * block
            for start in range(2 * received, min(end, len(audio)), block):
                socket.send(audio[start : start + block])
            if cut == 10:
                socket.send('{"type": "stop"}')
                events += to_the_end(socket)
                break
            with suppress(TimeoutError):
                for _ in range(2):
                    events.append(dict(json.loads(socket.recv(0.2))))
            if cut % 2:
                socket.socket.close()  # without a closing handshake
        last = max([event.get("id", 0) for event in events], default=0)
        query = f"session={session}&after={last}"
    ids = [event["id"] for event in events]
    assert ids == sorted(set(ids)), "each event comes once"
    assert text_of(events) == text_of(whole)
    assert events[-1]["type"] == "end"
    assert events[-1]["time"] == whole[-1]["time"], "no sound is lost, and none comes twice"


def test_a_new_connection_takes_over_one_that_the_server_believes_open(api: Api) -> None:
    with live(api.url, "rate=16000") as first:
        session = next_event(first)["session"]
        first.send(pcm(16_000, "question.flac")[:32_000])
        with live(api.url, f"session={session}&after=0") as second:
            answer = next_event(second)
            assert answer["type"] == "resumed"
            second.send(pcm(16_000, "question.flac")[2 * answer["received"] :])
            second.send('{"type": "stop"}')
            assert "train to Boston" in text_of(to_the_end(second))
        with suppress(ConnectionClosed):
            while True:
                first.recv(60)
        assert first.close_code == 1013


def test_a_new_connection_takes_over_one_that_is_still_taking_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    original = EventTask.resume

    def resume(self: EventTask, send: Callable[[dict[str, Any]], None]) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(60)
        original(self, send)

    monkeypatch.setattr(EventTask, "resume", resume)
    with live(api.url, "rate=16000") as first:
        session = next_event(first)["session"]
    with live(api.url, f"session={session}") as second:
        assert begun.wait(60)
        with live(api.url, f"session={session}") as third:
            answer = next_event(third)
            assert answer["type"] == "resumed", answer
            go_on.set()
            with suppress(ConnectionClosed):
                assert not second.recv(60), "the session is the third one's"
            third.send('{"type": "stop"}')
            assert to_the_end(third)[-1]["type"] == "end"


def test_a_long_frame_waits_for_the_model_and_is_not_dropped(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.server.api.live_socket._MAX_AHEAD_S", 2.0)
    monkeypatch.setattr("edgeapp.server.api.live_socket._PIECE_S", 1.0)
    monkeypatch.setattr("edgeapp.server.tasks.browser_source._MAX_QUEUED_S", 4.0)
    audio = pcm(16_000)
    with live(api.url, "rate=16000") as socket:
        socket.send(audio)
        socket.send('{"type": "stop"}')
        events = to_the_end(socket)
    assert events[-1]["time"] == pytest.approx(len(audio) / 32_000, abs=0.01)
    assert not [event for event in events if event["type"] == "warning"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("rate=7", "7 Hz cannot be used"),
        ("rate=fast", "'rate' must be a number"),
        ("speed=2", "unknown option 'speed'"),
        ("correct=maybe", "'correct' must be true or false"),
        ("language=xx", "xx"),
        ("languages=en,xx", "xx"),
        ("language=en&languages=en,de", "exclude each other"),
        ("languages=en,de&model=demo", "demo recognizes only English, not German"),
        ("model=nothing", "is not installed here"),
        ("model=/etc", "is not installed here"),
        ("session=unknown", "begin another one"),
        ("after=3", "'after' goes with 'session'"),
        (f"hotwords={'x' * 2_001}", "'hotwords' has 2001 characters; 2,000 may be sent"),
    ],
)
def test_options_work_or_are_refused(api: Api, query: str, said: str) -> None:
    with live(api.url, query) as socket:
        event = next_event(socket)
        if event["type"] == "started":
            event = next_event(socket)
        assert event["type"] == "error"
        assert said in event["message"]
        with pytest.raises(ConnectionClosed):
            socket.recv(60)


def test_prompt_and_hotwords_reach_the_recognizer(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = note_options(monkeypatch)
    with live(api.url, "prompt=A+talk.&hotwords=ComfyUI") as socket:
        socket.send('{"type": "stop"}')
        to_the_end(socket)
    assert [(each.initial_prompt, each.hotwords) for each in options] == [("A talk.", "ComfyUI")]


def test_half_a_sample_is_refused(api: Api) -> None:
    with live(api.url, "rate=16000") as socket:
        next_event(socket)
        socket.send(b"abc")
        event = next_event(socket)
        while event["type"] == "status":
            event = next_event(socket)
        assert "pairs of bytes" in event["message"]
        with pytest.raises(ConnectionClosed):
            socket.recv(60)
        assert socket.close_code == 1008


def test_a_token_is_required_and_a_session_is_its_owners(
    thread_server: Callable[..., str], tmp_path: Path
) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    keys = {name: {"Authorization": f"Bearer {tokens.add(name)}"} for name in ("anna", "ben")}
    url = thread_server(tokens=tokens, logins=(("carla", "password"),))
    with pytest.raises(InvalidStatus, match="401"), live(url, "rate=16000"):
        pass
    with live(url, "rate=16000", additional_headers=keys["anna"]) as mine:
        session = next_event(mine)["session"]
        with live(url, f"session={session}", additional_headers=keys["ben"]) as other:
            assert next_event(other)["type"] == "error"
        origin = {"Origin": "https://evil.test"}
        wrong = {"Authorization": "Bearer wrong"}
        with (
            pytest.raises(InvalidStatus, match="403"),
            live(url, "rate=16000", additional_headers=wrong | origin),
        ):
            pass
        with live(url, "rate=1", additional_headers=keys["anna"] | origin) as other:
            assert "cannot be used" in next_event(other)["message"], "a token is no forgery"


def test_a_session_counts_against_the_memory_limit(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, mb, free = 1 << 30, 1 << 20, 20
    monkeypatch.setattr(memory_limit, "memory_in_use", lambda: limit - free * mb)
    url = thread_server(memory_bytes=limit)
    with live(url, "rate=192000") as socket:
        refused = next_event(socket)
        assert refused["type"] == "error"
        assert "a live session needs about 28 MB" in refused["message"]
        with pytest.raises(ConnectionClosed):
            next_event(socket)
        assert socket.close_code == 1013
    free = 48  # the model takes 12
    with live(url, "rate=192000") as first:
        assert next_event(first)["type"] == "started"
        first.send(bytes(2 * 192_000))
        next_event(first)
        # Its memory is kept free for it, though it holds no sound yet.
        with live(url, "rate=192000") as second:
            assert next_event(second)["type"] == "error"
        first.send('{"type": "stop"}')
        to_the_end(first)


def test_resumed_comes_first_though_recognition_goes_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = EventTask.resume

    def resume(self: EventTask, send: Callable[[dict[str, Any]], None]) -> None:
        send({"type": "partial", "id": 1, "text": "said at this moment"})
        original(self, send)

    monkeypatch.setattr(EventTask, "resume", resume)
    with live(api.url, "rate=16000&language=en") as socket:
        session = next_event(socket)["session"]
        socket.socket.close()
    with live(api.url, f"session={session}&after=0") as socket:
        assert next_event(socket)["type"] == "resumed"
        socket.send('{"type": "stop"}')
        to_the_end(socket)


def test_a_client_that_sends_nothing_gives_its_place_away(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.server.api.live_socket._IDLE_S", 2.0)
    url, spoken = thread_server(sessions=1), pcm(16_000, "question.flac")
    with live(url, "rate=16000") as socket:
        events = [next_event(socket)]
        with suppress(ConnectionClosed):
            while True:
                events.append(next_event(socket))
        assert "nothing was received" in events[-1]["message"]
        assert (socket.close_code, socket.close_reason) == (4408, "idle")
    # One that has sent all its audio waits for the events, and is not idle.
    events, deadline = [], time.monotonic() + 60
    while not events:
        assert time.monotonic() < deadline, "the place is free when the first model has ended"
        with live(url, "rate=16000&language=en") as socket:
            if next_event(socket)["type"] == "started":
                socket.send(spoken)
                socket.send('{"type": "stop"}')
                events = to_the_end(socket)
    assert "train to Boston" in text_of(events)
