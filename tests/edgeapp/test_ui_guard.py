"""What the page's server gives to whom: addresses, origins, logins, limits."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.websockets import WebSocketDisconnect

from edgeapp.settings import Settings
from edgeapp.ui.guard import Guard
from edgeapp.ui.routes import our_routes
from edgeapp.ui.server import ServerOptions, read_logins
from edgeapp.ui.shelf import Shelf
from pipelines.errors import OptionError
from pipelines.models import assets_folder

OURS = {"origin": "http://127.0.0.1"}
LINE = "ws://127.0.0.1/edgeapp/session"
Client = Any


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """A client of all that is not Gradio's, behind the guard; no models are loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # httpx has a successor
        from starlette.testclient import TestClient
    ends = []

    def client(**options: Any) -> Client:
        chosen = ServerOptions(**options)
        ours = our_routes(Shelf(Settings()), chosen, tmp_path / "history.db")
        ends.append(ours.close)
        page = Route("/", lambda request: PlainTextResponse("the page"))
        guard = Middleware(Guard, person=ours.person, loopback=chosen.loopback)
        app = Starlette(routes=[page, *ours.routes], middleware=[guard])
        return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)

    yield client
    for end in ends:
        end()


def refused(client: Client, headers: dict[str, str]) -> bool:
    """Whether there is no line for a browser that sends such headers."""
    with pytest.raises(WebSocketDisconnect) as closed:  # noqa: SIM117
        with client.websocket_connect(LINE, headers=headers):
            pass
    return bool(closed.value.code == 4403)


def test_every_answer_forbids_other_hosts(serve: Callable[..., Client]) -> None:
    headers = serve().get("/").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_other_names_and_pages_are_refused(serve: Callable[..., Client]) -> None:
    client = serve()
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"host": "localhost:7860"}).status_code == 200
    foreign = {"origin": "http://evil.example"}
    assert client.post("/edgeapp/export", headers=foreign, content=b"{}").status_code == 403
    assert refused(client, foreign)
    assert refused(client, {})
    with client.websocket_connect(LINE, headers=OURS) as line:
        assert line.receive_json()["type"] == "hello"


def test_strangers_stay_at_the_door(serve: Callable[..., Client]) -> None:
    client = serve(logins=(("anna", "one two"), ("ben", "three")))
    assert client.get("/").headers["location"] == "/login"
    for path in ("/config", "/theme.css", "/gradio_api/info", "/assets/a.js"):
        assert client.get(path).status_code == 401
    assert client.post("/edgeapp/export", content=b"{}").status_code == 401
    assert refused(client, OURS)
    for user, password in (("anna", "three"), ("anna", ""), ("carl", "x"), ("", "")):
        wrong = client.post("/login", data={"user": user, "password": password})
        assert wrong.status_code == 403
        assert "That is not right" in wrong.text
    right = client.post("/login", data={"user": "anna", "password": "one two"})
    assert right.status_code == 303
    assert "HttpOnly" in right.headers["set-cookie"]
    assert "SameSite=strict" in right.headers["set-cookie"]
    assert client.get("/").status_code == 200
    with client.websocket_connect(LINE, headers=OURS) as line:
        assert line.receive_json()["person"] == "anna"
    client.post("/logout")
    assert client.get("/").status_code == 303


def test_guessing_is_slowed_down(
    serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.ui.logins._PAUSE_S", 0)
    client = serve(logins=(("anna", "one"),))
    answers = [client.post("/login", data={"user": "anna", "password": str(n)}) for n in range(11)]
    assert [answer.status_code for answer in answers] == [403] * 10 + [429]
    assert client.post("/login", data={"user": "anna", "password": "one"}).status_code == 429


def test_what_nobody_foresaw_is_told_to_the_tab_that_asked(
    serve: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error", "/srv/secret")

    monkeypatch.setattr("edgeapp.ui.desk.Desk.answer", fail)
    monkeypatch.setattr("edgeapp.ui.socket.TextTask", fail)
    said = "this went wrong inside EdgeApp (OSError: Input/output error)"
    with serve().websocket_connect(LINE, headers=OURS) as line:
        assert line.receive_json()["type"] == "hello"
        line.send_json({"type": "models", "id": 1})
        assert line.receive_json() == {"type": "answer", "id": 1, "error": said}
        line.send_json({"type": "text", "number": 1, "text": "a"})
        answer = line.receive_json()
        assert (answer["type"], answer["kind"], answer["message"]) == ("error", "text", said)
        line.send_text("[" * 100_000)  # deeper than the parser goes
        assert "RecursionError" in line.receive_json()["message"]
    assert "Traceback" in capsys.readouterr().err


def test_uploads_have_limits(serve: Callable[..., Client]) -> None:
    client = serve(upload_mb=1)
    assert client.put("/edgeapp/upload/nobody", content=b"x").status_code == 404
    with client.websocket_connect(LINE, headers=OURS) as line:
        path = f"/edgeapp/upload/{line.receive_json()['session']}"
        too_much = client.put(path, content=b"x" * ((1 << 20) + 1))
        assert (too_much.status_code, "1 MB" in too_much.text) == (413, True)
        streamed = client.put(path, content=iter([b"x" * (1 << 19)] * 3))
        assert streamed.status_code == 413
        assert client.put(path, content=b"x" * 1000).json() == {"bytes": 1000}
        line.send_json({"type": "live"})
        assert "rate is missing" in line.receive_json()["message"]
        line.send_json({"type": "live", "rate": 1})
        assert "1 Hz cannot be used" in line.receive_json()["message"]
        line.send_text("[]")
        assert "JSON object" in line.receive_json()["message"]
        line.send_json({"type": "nonsense", "id": 7})
        answer = line.receive_json()
        assert (answer["id"], "nothing is known" in answer["error"]) == (7, True)
        line.send_json({"type": "text", "number": 1, "text": "a" * 200_001})
        assert "200,000 are taken here" in line.receive_json()["message"]
        line.send_json({"type": "live", "rate": 16000, "model": "/etc"})
        assert "not among the models" in line.receive_json()["message"]
    assert client.put(path, content=b"x").status_code == 404, "a closed tab sends nothing"


def test_recordings_have_a_longest(serve: Callable[..., Client]) -> None:
    client = serve(minutes=0.01)
    question = assets_folder() / "samples" / "question.flac"
    with client.websocket_connect(LINE, headers=OURS) as line:
        path = f"/edgeapp/upload/{line.receive_json()['session']}"
        line.send_json({"type": "file", "name": "question.flac"})
        assert "choose a file first" in line.receive_json()["message"]
        client.put(path, content=question.read_bytes())
        line.send_json({"type": "file", "name": "question.flac"})
        told = line.receive_json()["message"]
        assert told == "question.flac lasts 0.1 minutes; 0.01 are taken here (--max-minutes)"
        assert line.receive_json()["type"] == "idle"


def test_the_disk_is_not_anybodys_to_fill(serve: Callable[..., Client]) -> None:
    client = serve(sessions=1)
    with (
        client.websocket_connect(LINE, headers=OURS) as one,
        client.websocket_connect(LINE, headers=OURS) as two,
    ):
        tokens = [line.receive_json()["session"] for line in (one, two)]
        assert client.put(f"/edgeapp/upload/{tokens[0]}", content=b"x").status_code == 200
        full = client.put(f"/edgeapp/upload/{tokens[1]}", content=b"x")
        assert (full.status_code, "this machine is busy" in full.text) == (503, True)


def test_exports(serve: Callable[..., Client]) -> None:
    client = serve()

    def ask(**message: Any) -> Any:
        return client.post("/edgeapp/export", headers=OURS, content=json.dumps(message))

    cues = [{"start": 0, "end": 1.5, "text": " Hello."}]
    assert ask(format="srt", cues=cues).text == "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n"
    assert ask(format="exe", cues=cues).status_code == 400
    assert ask(format="txt", cues=[{"text": "no times"}]).status_code == 400
    assert ask(format="txt", cues=3).status_code == 400
    assert ask(cues=cues).status_code == 400


def test_strangers_change_no_models(serve: Callable[..., Client]) -> None:
    client = serve(host="0.0.0.0")
    with client.websocket_connect(LINE, headers=OURS) as line:
        line.receive_json()
        for message in ({"type": "plan", "name": "tiny"}, {"type": "remove", "name": "demo"}):
            line.send_json({**message, "id": 1})
            assert "--auth" in line.receive_json()["error"]
        line.send_json({"type": "pull", "name": "tiny"})
        assert "--auth" in line.receive_json()["message"]


def test_reading_logins(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("anna:a:b\n\nben:c\n", "utf-8")
    assert read_logins(None) == ()
    assert read_logins("anna:pass word") == (("anna", "pass word"),)
    assert read_logins(str(users)) == (("anna", "a:b"), ("ben", "c"))
    for wrong in ("anna", ":x", "anna:", str(tmp_path / "absent.txt")):
        with pytest.raises(OptionError, match="--auth takes"):
            read_logins(wrong)


@pytest.mark.parametrize(
    "options",
    [{"port": 70_000}, {"sessions": 0}, {"upload_mb": 0}, {"minutes": 0},
     {"ssl_certfile": Path("x")}],
)  # fmt: skip
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        ServerOptions(**options)
