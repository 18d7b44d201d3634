"""A server without a recognizer for people's voices: it runs and translates, and says what to do
before it receives any sound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from pipelines.hub import assets_folder
from tests.edgeapp.server.conftest import serving_routes

pytestmark = pytest.mark.slow
TEXT = "Can you tell me when the next train to Boston leaves?"
RECORDING = {"file": ("a.flac", (assets_folder() / "samples" / "question.flac").read_bytes())}
SAID = (
    "no recognizer is on this machine: looked in the models of this machine, and the bundled demo "
    "is only for synthetic voices that speak English; download base (Whisper base, 99 languages, "
    "145 MB): `edgeapp models pull base`"
)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_cache: Path) -> Iterator[str]:
    monkeypatch.delenv("EDGEAPP_MODEL")
    with serving_routes(tmp_path) as address:
        yield address


def field(name: str, value: str) -> str:
    return f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


FILE = '--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'


@pytest.mark.parametrize(
    ("path", "form", "megabytes"),
    [
        ("v1/audio/transcriptions", field("model", "whisper-1") + FILE, 1),
        ("v1/audio/translations", field("language", "en") + field("model", "whisper-1") + FILE, 1),
        ("v1/audio/transcriptions", FILE, 40),
        ("v1/audio/translations", field("language", "en") + FILE, 40),
    ],
)
def test_recordings_are_refused_before_they_are_sent(
    path: str, form: str, megabytes: int, url: str
) -> None:
    client = HTTPConnection(urlsplit(url).netloc, timeout=60)
    client.putrequest("POST", f"/{path}")
    client.putheader("Content-Length", f"{megabytes << 20}")
    client.putheader("Content-Type", "multipart/form-data; boundary=x")
    client.endheaders(form.encode())
    reply = client.getresponse()  # nothing of the recording has been sent
    assert (reply.status, reply.headers["x-should-retry"]) == (503, "false")
    assert json.loads(reply.read())["error"]["message"] == SAID
    client.close()


@pytest.mark.parametrize("fields", [{}, {"model": "whisper-1"}])
def test_a_short_form_that_names_no_other_model_is_refused(
    fields: dict[str, str], url: str
) -> None:
    reply = httpx.post(f"{url}v1/audio/transcriptions", data=fields, files=RECORDING, timeout=60)
    assert (reply.status_code, reply.json()["error"]["message"]) == (503, SAID)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("file_first", [True, False])
def test_a_model_that_the_request_names_is_used(file_first: bool, url: str) -> None:
    model = {"model": (None, "demo")}
    form = RECORDING | model if file_first else model | RECORDING
    reply = httpx.post(f"{url}v1/audio/transcriptions", files=form, timeout=120)
    assert (reply.status_code, reply.json()["text"]) == (200, TEXT)


def test_a_websocket_whose_address_names_a_model_is_served(url: str) -> None:
    address = f"{url.replace('http', 'ws')}v1/realtime?intent=transcription&model=demo"
    with connect(address, open_timeout=60) as client:
        assert json.loads(client.recv(60))["type"] == "session.created"


@pytest.mark.parametrize(
    "path",
    [
        "v1/realtime?intent=transcription",
        "v1/live?rate=16000",
        "v1/live?rate=16000&model=whisper-1",
    ],
)
def test_a_websocket_gets_an_error_and_is_closed(path: str, url: str) -> None:
    with connect(f"{url.replace('http', 'ws')}{path}", open_timeout=60) as client:
        event = json.loads(client.recv(60))
        with pytest.raises(ConnectionClosed):
            client.recv(60)
        assert client.close_code == 1008
    assert event["type"] == "error"
    assert event.get("message") == SAID or event["error"]["message"] == SAID


def test_the_rest_works(url: str) -> None:
    assert httpx.get(f"{url}health").status_code == 200
    text = {"q": "Where is the station?", "source": "en", "target": "de"}
    answer = httpx.post(f"{url}translate", json=text, timeout=120)
    assert answer.json()["translatedText"] == "Wo ist der Bahnhof?"
    assert httpx.get(f"{url}v1/models").status_code == 200
