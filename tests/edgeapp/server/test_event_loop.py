"""The event loop, which serves everybody, reads no files and neither loads nor runs models."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest
from starlette.routing import Mount, Route, WebSocketRoute
from websockets.sync.client import connect
from websockets.typing import Origin

from edgeapp.history.store import Store
from edgeapp.model_pool import ModelPool
from edgeapp.server.api import libretranslate, openai_audio
from edgeapp.server.routes import AppRoutes, app_routes
from edgeapp.ui import STATIC
from pipelines.asr.transcriber import Transcriber
from pipelines.translation.translator import Translator
from tests.conftest import REPOSITORY
from tests.edgeapp.server import conftest
from tests.edgeapp.server.api.conftest import QUESTION, recording
from tests.edgeapp.server.api.test_gradio_client import client, question, serving_page

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("kernels")]

_BLOCKING: tuple[tuple[Any, str], ...] = (
    (io, "open"),
    (os, "listdir"),
    (os, "scandir"),
    (libretranslate, "rank_text_languages"),
    (openai_audio, "complete_reply"),
    (ModelPool, "transcriber"),
    (ModelPool, "translator"),
    (Transcriber, "__init__"),
    (Translator, "__init__"),
    (Store, "run"),
)
# Of the program itself, and small.
_ALLOWED = ("/proc/", str(STATIC))


@pytest.fixture
def in_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called in a thread that runs an event loop, by our own code."""
    called: list[str] = []

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            path = str(arguments[0]) if arguments else ""
            caller = _caller(sys._getframe(1))
            if _runs_a_loop() and caller and not path.startswith(_ALLOWED):
                called.append(f"{name} of {path} in {caller}")
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in _BLOCKING:
        watch(owner, name)
    return called


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _caller(frame: FrameType | None) -> str:
    """The innermost line outside the standard library, if it is the program's; else ""."""
    standard = sysconfig.get_path("stdlib")
    while frame is not None:
        file = frame.f_code.co_filename
        packaged = "site-packages" in file
        if packaged or (not file.startswith(standard) and not file.startswith("<")):
            own = not packaged and file.startswith((f"{REPOSITORY}/edgeapp", f"{REPOSITORY}/pip"))
            return f"{file}:{frame.f_lineno}" if own else ""
        frame = frame.f_back
    return ""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, AppRoutes]]:
    made: list[AppRoutes] = []

    def make(*arguments: Any) -> AppRoutes:
        made.append(app_routes(*arguments))
        return made[0]

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-models"))
    monkeypatch.setattr(conftest, "app_routes", make)
    with conftest.serving_routes(tmp_path, upload_mb=8, minutes=2.0) as url:
        yield url, made[0]


def test_no_route_blocks_the_event_loop(
    served: tuple[str, AppRoutes], in_the_loop: list[str]
) -> None:
    url, own = served
    asked: set[str] = set()
    files = {"file": (QUESTION, recording())}
    with httpx.Client(base_url=url, timeout=120) as browser:

        def ask(route: str, method: str = "GET", path: str = "", **options: Any) -> httpx.Response:
            asked.add(f"{method} {route}")
            reply = browser.request(method, path or route, **options)
            assert reply.status_code not in (405, 500), (route, reply.text)
            return reply

        for endpoint in ("transcriptions", "translations"):
            fields = {"model": "whisper-1", "response_format": "srt"}
            ask(f"/v1/audio/{endpoint}", "POST", files=files, data=fields)
        ask("/v1/models")
        ask("/v1/models/{name:path}", path="/v1/models/demo")
        text = {"q": ["Where is the station?"] * 3, "source": "auto", "target": "de"}
        assert ask("/translate", "POST", json=text).status_code == 200
        ask("/detect", "POST", json={"q": "Where is the station?"})
        page = {"file": ("a.html", "<p>Where is the station?</p>")}
        done = ask("/translate_file", "POST", files=page, data={"source": "auto", "target": "de"})
        ask("/download_file/{token}/{name}", path=done.json()["translatedFileUrl"])
        for route in (
            "/languages", "/frontend/settings", "/health", "/metrics", "/v1/docs",
            "/v1/openapi.json", "/edgeapp/user", "/edgeapp/sample", "/manifest.json",
            "/favicon.ico", "/login",
        ):  # fmt: skip
            ask(route)
        secret = own.make_login_link("")
        share = _page_requests(url)
        for kind in ("view", "overlay"):
            ask(f"/{kind}/{{token}}", path=f"/{kind}/{share}")
            ask(f"/{kind}/{{token}}", path=f"/{kind}/unknown")
        ask("/enter/{secret}", path=f"/enter/{secret}")
        ask("/enter/{secret}", "POST", path=f"/enter/{secret}")
        cue = {"start": 0.0, "end": 1.0, "text": "Yes."}
        ask("/edgeapp/export", "POST", json={"format": "srt", "cues": [cue], "translation": []})
        many = {"format": "srt", "cues": [cue] * 10_000, "translation": []}
        assert ask("/edgeapp/export", "POST", json=many).status_code == 200
        ask("/edgeapp/sound/{record:int}", path="/edgeapp/sound/1")
        ask("/edgeapp/static", path="/edgeapp/static/app.css")
        ask("/login", "POST", data={"user": "a", "password": "b"})
        ask("/logout", "POST")
    with _socket(url, "edgeapp/session") as page_socket:
        token = json.loads(page_socket.recv(60))["session"]
        path = f"/edgeapp/upload/{token}"
        asked.add("PUT /edgeapp/upload/{token}")
        assert httpx.put(f"{url[:-1]}{path}", content=recording()).status_code == 200
    with _socket(url, f"edgeapp/view/{share}") as viewer:
        viewer.send(json.dumps({"target": "de"}))
        assert json.loads(viewer.recv(60))["type"] == "view"
    with _socket(url, "v1/live?language=en&translate_to=de&model=demo") as live:
        live.send(json.dumps({"type": "stop"}))
        while json.loads(live.recv(60))["type"] != "end":
            pass
    with _socket(url, "v1/realtime?intent=transcription") as realtime:
        realtime.send(json.dumps({"type": "session.update", "session": {"model": "demo"}}))
        assert json.loads(realtime.recv(60))["type"] == "session.created"
    assert not in_the_loop
    assert asked == _http_routes(own), "each route is asked"


def test_no_endpoint_of_gradio_blocks_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_the_loop: list[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-models"))
    with serving_page() as (url, _):
        in_the_loop.clear()  # of its start
        caller = client(url, tmp_path)
        calls: tuple[tuple[str, Callable[[], dict[str, Any]]], ...] = (
            ("/transcribe", lambda: {"recording": question(), "model": "demo"}),
            ("/translate", lambda: {"text": "Where is the station?", "target": "de"}),
            ("/live", lambda: {"recording": question(), "translate_to": ""}),
            ("/models", dict),
        )
        for name, arguments in calls:
            caller.predict(**arguments(), api_name=name)
        caller.close()
        assert not in_the_loop


def _socket(url: str, path: str) -> Any:
    address = f"{url.replace('http', 'ws')}{path}"
    return connect(address, origin=Origin(url.rstrip("/")), open_timeout=60)


def _page_requests(url: str) -> str:
    """Ask what the page asks; returns the token of a shared session."""
    with _socket(url, "edgeapp/session") as page:
        for number, kind in enumerate(("models", "picker_options", "history", "ping", "share")):
            page.send(json.dumps({"type": kind, "id": number, "search": ""}))
            while (reply := json.loads(page.recv(60)))["type"] != "reply":
                pass
            assert "error" not in reply, reply
        return str(reply["share"])


def _http_routes(own: AppRoutes) -> set[str]:
    found = set()
    for route in own.routes:
        if isinstance(route, Route):
            methods = (route.methods or set()) - {"HEAD"}
            found |= {f"{method} {route.path}" for method in methods}
        elif isinstance(route, Mount):
            found.add(f"GET {route.path}")
        else:
            assert isinstance(route, WebSocketRoute)
    return found
