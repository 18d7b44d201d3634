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

from tests.edgeapp.server.conftest import serving_routes

pytestmark = pytest.mark.slow
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


@pytest.mark.parametrize("path", ["v1/audio/transcriptions", "v1/audio/translations"])
def test_recordings_are_refused_before_they_are_sent(path: str, url: str) -> None:
    client = HTTPConnection(urlsplit(url).netloc, timeout=60)
    client.putrequest("POST", f"/{path}")
    client.putheader("Content-Length", "1000000")
    client.putheader("Content-Type", "multipart/form-data; boundary=x")
    client.endheaders()
    reply = client.getresponse()  # nothing of the body has been sent
    assert (reply.status, reply.headers["x-should-retry"]) == (503, "false")
    assert json.loads(reply.read())["error"]["message"] == SAID
    client.close()


@pytest.mark.parametrize("path", ["v1/realtime?intent=transcription", "v1/live?rate=16000"])
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
