"""Whatever a client sends as JSON, the server answers with 2xx or 4xx, and never fails over it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.sync.client import ClientConnection, connect

from edgeapp.server.client_json import read_json
from edgeapp.server.fairness import MessageRates
from edgeapp.server.transcripts import render_message
from pipelines import EdgeError
from tests.edgeapp.server.api.conftest import Api

DEEP = 30_000
HOSTILE = {
    "too large for a float": "1e999",
    "not a number": "NaN",
    "400 digits": "9" * 400,
    "5000 digits": "9" * 5_000,
    "above 64 bits": str(2**70),
    "a negative number": "-1",
    "a fraction": "0.5",
    "a lone surrogate": '"\\ud800"',
    "two lone surrogates": '"a\\udc00b\\ud800"',
    "a zero byte": '"\\u0000"',
    "nothing": "null",
    "true": "true",
    "an object": "{}",
    "a list of null": "[null]",
    "a long text": f'"{"x" * 3_000}"',
    "brackets": "[" * DEEP,
    "nested lists": "[" * DEEP + "]" * DEEP,
    "lists of 500": "[" * 500 + "]" * 500,
    "objects of 500": '{"a":' * 500 + "1" + "}" * 500,
}
IN_FIELDS = (
    "too large for a float", "400 digits", "above 64 bits", "a negative number", "a lone surrogate",
    "nothing", "an object", "a list of null", "lists of 500",
)  # fmt: skip
FIELDS = {case: HOSTILE[case] for case in IN_FIELDS}
LIBRETRANSLATE = {
    "translate": ("q", "source", "target", "format", "alternatives", "api_key"),
    "detect": ("q", "api_key"),
}
GOOD = {"q": '"Hello."', "source": '"en"', "target": '"de"'}
REALTIME_FIELDS = (
    "session", "session.type", "session.include", "session.edgeapp", "session.audio",
    "session.audio.input", "session.audio.input.format", "session.audio.input.format.rate",
    "session.audio.input.transcription", "session.audio.input.transcription.language",
    "session.audio.input.transcription.model", "session.audio.input.turn_detection",
    "session.audio.input.turn_detection.threshold", "session.audio.input.noise_reduction",
    "event_id", "type",
)  # fmt: skip
BETA_FIELDS = (
    "session", "session.input_audio_format", "session.input_audio_transcription",
    "session.input_audio_transcription.model", "session.turn_detection",
    "session.turn_detection.silence_duration_ms", "session.include", "session.modalities",
)  # fmt: skip
PAGE_MESSAGES: dict[str, tuple[str, ...]] = {
    "history": ("search", "offset"), "record": ("record",), "rename": ("record", "title"),
    "edit": ("record", "counts", "changes"), "restore": ("records",), "ping": ("id",),
    "keep_text": ("text", "translation", "language", "target", "instead"),
    "load": ("name",), "plan": ("name",), "stop": ("kind",), "resume": ("session",),
    "translate_sentences": ("sentences", "language", "target", "translation_model"),
    "align": ("text", "translation", "target"), "detect_language": ("text", "expected"),
    "live": ("rate", "speakers", "model", "language", "target", "number"),
    "text": ("text", "language", "target", "number"),
    "picture": ("name", "prompt", "number"), "file": ("name", "number"), "": ("type",),
}  # fmt: skip


@pytest.fixture(autouse=True)
def unlimited_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(self: MessageRates, person: str, cost: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(MessageRates, "take", take)


def body(fields: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


def nested(path: str, value: str, fields: str = "") -> str:
    """A message with a value at a path, such as session.type."""
    for name in reversed(path.split(".")):
        value, fields = f'{{{fields}"{name}": {value}}}', ""
    return value


@pytest.mark.slow
@pytest.mark.parametrize("path", LIBRETRANSLATE)
def test_libretranslate(api: Api, path: str) -> None:
    headers = {"content-type": "application/json"}
    bodies = dict(HOSTILE)
    for name in LIBRETRANSLATE[path]:
        bodies |= {f"{name}: {case}": body(GOOD | {name: value}) for case, value in FIELDS.items()}
    with httpx.Client(base_url=api.url, headers=headers, timeout=60) as client:
        for case, content in bodies.items():
            status = client.post(path, content=content).status_code
            assert status < 300 or 400 <= status < 500, case
        for content in (b'{"q": "\xed\xa0\x80"}', b"\xff\xfe{", b'\xef\xbb\xbf{"q": 1}'):
            assert client.post(path, content=content).status_code == 400


@pytest.mark.slow
def test_openai_recordings(api: Api) -> None:
    names = ("language", "prompt", "temperature", "response_format", "stream", "model",
             "chunking_strategy", "include", "timestamp_granularities[]")  # fmt: skip
    cases = [(name, value) for name in names for value in FIELDS.values()]
    cases += [(name, "\ud800") for name in names]
    cases += [
        ("chunking_strategy", f'{{"type": "server_vad", "threshold": {value}}}')
        for value in HOSTILE.values()
    ]
    with httpx.Client(base_url=api.url, timeout=60) as client:
        for name, value in cases:
            fields = {"model": "whisper-1", name: value.encode("utf-8", "surrogatepass")}
            files = {"file": ("sound.wav", b"no sound")}
            reply = client.post("v1/audio/transcriptions", data=fields, files=files)
            assert 400 <= reply.status_code < 500, (name, value[:80])


@contextmanager
def socket_of(api: Api, path: str) -> Iterator[ClientConnection]:
    address = api.url.replace("http", "ws")
    origin: Any = api.url.strip("/")
    with connect(f"{address}{path}", origin=origin, max_size=None, open_timeout=60) as socket:
        yield socket


def answer_to(socket: ClientConnection, kinds: tuple[str, ...]) -> dict[str, Any]:
    while (message := json.loads(socket.recv(60)))["type"] not in kinds:
        pass
    return dict(message)


@pytest.mark.slow
def test_realtime(api: Api) -> None:
    kinds = ("error", "session.updated", "transcription_session.updated")
    forms = {"session.update": REALTIME_FIELDS, "transcription_session.update": BETA_FIELDS}
    with socket_of(api, "v1/realtime?intent=transcription") as socket:
        for kind, paths in forms.items():
            for path in paths:
                for case, value in FIELDS.items():
                    socket.send(nested(path, value, f'"type": "{kind}", '))
                    answer = answer_to(socket, kinds)
                    if answer["type"] == "error":
                        assert answer["error"]["type"] == "invalid_request_error", (path, case)


@pytest.mark.slow
def test_live(api: Api) -> None:
    with socket_of(api, "v1/live?rate=16000") as socket:
        for value in HOSTILE.values():
            for text in (value, body({"type": value})):
                socket.send(text)
                assert "only text is" in answer_to(socket, ("error",))["message"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGE_MESSAGES)
def test_messages_of_the_page(api: Api, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket_of(api, "edgeapp/session") as socket:
        for name in PAGE_MESSAGES[kind]:
            for value in FIELDS.values():
                socket.send(body({"type": f'"{kind}"', "id": "1"} | {name: value}))
                socket.send(body({"type": '"cancel"', "kind": f'"{kind}"'}))
        socket.send('{"type": "ping", "id": "last"}')
        while True:
            message = json.loads(socket.recv(60))
            if message.get("id") == "last":
                break
            said = str(message.get("error") or message.get("message") or "")
            assert "unexpected" not in said, (name, said)
    assert "Traceback" not in capfd.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.text(st.characters(categories=("Cs",)), max_size=2),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_what_is_read_can_be_sent_again(value: Any) -> None:
    try:
        found = read_json(json.dumps(value))
    except ValueError:
        return
    assert json.loads(json.dumps(found, ensure_ascii=False, allow_nan=False).encode()) == found


@pytest.mark.parametrize("case", ["brackets", "nested lists", "lists of 500", "1e999", "NaN"])
def test_what_is_not_read(case: str) -> None:
    with pytest.raises(ValueError, match="deeply|large|not JSON|Expecting|limit"):
        read_json(HOSTILE.get(case, case))


@given(st.fixed_dictionaries({"format": st.sampled_from(["srt", "md", "zip"]), "cues": JSON},
                             optional={"title": JSON, "translation": JSON, "language": JSON,
                                       "files": JSON, "formats": JSON}))  # fmt: skip
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_exports(message: Any) -> None:
    try:
        render_message(json.dumps(message).encode())
    except EdgeError:
        return
