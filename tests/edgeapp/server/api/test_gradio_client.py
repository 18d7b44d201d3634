"""Gradio's named endpoints, called by `gradio_client` and by plain requests."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from edgeapp.model_pool import ModelPool
from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.gradio_api import endpoints
from edgeapp.server.options import ServerOptions
from edgeapp.server.serve import server_config
from edgeapp.server.transport.connections import Connections, LimitedListener
from edgeapp.settings import load_settings
from pipelines.hub import assets_folder
from tests.edgeapp.server.api.conftest import QUESTION, recording

pytestmark = pytest.mark.slow
SPOKEN = "train to Boston"
ENDPOINTS = {"/transcribe", "/translate", "/live", "/models"}


@contextmanager
def serving_page(tokens: TokenFile | None = None, **options: Any) -> Iterator[tuple[str, Any]]:
    """The whole application, page included, in a thread of this process: (address, routes)."""
    import socket

    chosen = ServerOptions(upload_mb=8, minutes=2.0, **options)
    connections = Connections()
    listener = LimitedListener(connections, socket.AF_INET)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    made: list[Any] = []

    async def serve(server: list[uvicorn.Server]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gradio's own
            from edgeapp.server.app import make_app

            pool = ModelPool(replace(load_settings(), threads=1), listed_only=True)
            app, own = make_app(pool, chosen, None, tokens)
        server.append(uvicorn.Server(server_config(app, connections)))
        made.append(own)
        await server[0].serve(sockets=[listener])

    servers: list[uvicorn.Server] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve(servers)))
    thread.start()
    try:
        deadline = time.monotonic() + 120
        while not (servers and servers[0].started):
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", made[0]
    finally:
        servers[0].should_exit = True
        thread.join(60)
        made[0].close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(tmp_path_factory.mktemp("no-models")))
        with serving_page() as served:
            yield served


def client(url: str, tmp_path: Path, **options: Any) -> Any:
    from gradio_client import Client

    return Client(
        url, verbose=False, analytics_enabled=False, download_files=str(tmp_path), **options
    )


def question() -> Any:
    from gradio_client import handle_file

    return handle_file(str(assets_folder() / "samples" / QUESTION))


def test_the_endpoints_are_described(page: tuple[str, Any]) -> None:
    info = httpx.get(f"{page[0]}gradio_api/info", headers={"x-forwarded-host": "evil.test"})
    assert "evil.test" not in info.text
    other = httpx.get(f"{page[0].replace('127.0.0.1', 'localhost')}gradio_api/info").text
    assert "127.0.0.1" not in other, "the description is not the first client's"
    named = info.json()["named_endpoints"]
    assert set(named) == ENDPOINTS
    fields = {
        name: {one["parameter_name"]: one["python_type"]["type"] for one in each["parameters"]}
        for name, each in named.items()
    }
    assert fields["/transcribe"]["recording"] == "filepath"
    assert fields["/transcribe"]["words"] == "bool"
    assert fields["/translate"]["format"] == "Literal['text', 'html']"
    assert "request" not in fields["/live"]
    returned = {name: [one["python_type"]["type"] for one in each["returns"]]
                for name, each in named.items()}  # fmt: skip
    assert returned["/transcribe"] == ["str", "dict(str, Any)"]
    assert returned["/models"] == ["list[dict(str, Any)]"]
    assert all(each["description"] for each in named.values())


def test_a_recording_is_transcribed(page: tuple[str, Any], tmp_path: Path) -> None:
    with_client = client(page[0], tmp_path)
    text, details = with_client.predict(recording=question(), words=True, api_name="/transcribe")
    assert SPOKEN in text
    assert details["language"] == "en"
    words = [word["word"] for each in details["segments"] for word in each["words"]]
    assert " ".join(words) == text
    with_client.close()


@pytest.mark.parametrize("endpoint", ["/transcribe", "/live"])
def test_results_come_no_faster_than_a_pace_and_the_last_one_is_complete(
    page: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """Each repeats the text, and Gradio visits all of its values in the event loop."""
    monkeypatch.setattr(endpoints, "_PACE_S", 3600.0)
    caller = client(page[0], tmp_path)
    job = caller.submit(recording=question(), api_name=endpoint)
    text, last = job.result(120)
    assert SPOKEN in text
    assert len(job.outputs()) <= 3, "the first item, the rest, and all segments"
    if endpoint == "/live":
        assert last["type"] == "end"
        assert "committed" in [event["type"] for event in last["earlier"]]
    else:
        assert "".join(each["text"] for each in last["segments"]).strip() == text
    caller.close()


def test_results_stream_and_errors_are_one_line(
    page: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradio_client.exceptions import AppError

    monkeypatch.setattr(endpoints, "_PACE_S", 0.0)
    caller = client(page[0], tmp_path)
    lines = "Good morning.\n\nWhere is the station?\n"
    job = caller.submit(text=lines, target="de", api_name="/translate")
    translated, details = job.result(120)
    assert details == {"source": "en", "target": "de", "via": None}
    assert translated.count("\n") == 3
    assert len(job.outputs()) == 3, "one for each line, then the end"
    assert translated.startswith(job.outputs()[0][0])
    with pytest.raises(AppError, match="xx is not supported"):
        caller.predict(text="Yes.", target="xx", api_name="/translate")
    with pytest.raises(AppError, match=r"is French.*`edgeapp models pull opus-mt-fr-de`"):
        caller.predict(text="Bonjour tout le monde", target="de", api_name="/translate")
    with pytest.raises(AppError, match=r"may be Russian.*`edgeapp models pull m2m100-418m`"):
        caller.predict(text="Привет, как дела?", target="en", api_name="/translate")
    with pytest.raises(AppError, match=r"`edgeapp models pull opus-mt-en-fr`"):
        caller.predict(text="Good morning, my friends.", target="fr", api_name="/translate")
    assert caller.predict(text="OK", target="de", api_name="/translate")[1]["source"] == "en"
    for wrong, said in (
        ({"text": 5}, "'text' must be text"),
        ({"format": "pdf"}, "'format' must be one of text, html"),
        ({"source": True}, "'source' must be text"),
    ):
        with pytest.raises(AppError, match=said):
            caller.predict(**{"text": "Yes.", "target": "de", **wrong}, api_name="/translate")
    models = caller.predict(api_name="/models")
    assert {"demo", "demo-en-de"} <= {model["name"] for model in models}
    assert not any("folder" in model for model in models)
    caller.close()


def test_live_sends_the_events_of_a_session(
    page: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "_PACE_S", 0.0)
    caller = client(page[0], tmp_path)
    job = caller.submit(recording=question(), translate_to="", api_name="/live")
    text, last = job.result(120)
    assert SPOKEN in text
    assert last["type"] == "end"
    kinds = [event["type"] for _, event in job.outputs()]
    assert kinds[0] == "speech_start" or "speech_start" in kinds[:3]
    assert "committed" in kinds
    caller.close()


def test_curl_calls_and_reads(page: tuple[str, Any]) -> None:
    """As "Use via API" shows it: POST a call, GET its events."""
    url = f"{page[0]}gradio_api/call/translate"
    event = httpx.post(url, json={"data": ["Good morning.", "de", "en", "text"]}).json()["event_id"]
    said = httpx.get(f"{url}/{event}", timeout=120).text
    assert "event: complete" in said
    data = json.loads(said.rstrip().rpartition("data: ")[2])
    assert data[0]
    assert data[1]["target"] == "de"
    by_name = url.replace("call/", "call/v2/")
    event = httpx.post(by_name, json={"text": "Good morning.", "target": "de"}).json()["event_id"]
    said = httpx.get(f"{url}/{event}", timeout=120).text
    assert json.loads(said.rstrip().rpartition("data: ")[2]) == data


def test_a_client_that_leaves_frees_its_place(page: tuple[str, Any], tmp_path: Path) -> None:
    url, own = page
    upload = httpx.post(f"{url}gradio_api/upload", files={"files": (QUESTION, recording())})
    (token,) = upload.json()
    assert "/" not in token
    data = [{"path": token, "orig_name": QUESTION, "meta": {"_type": "gradio.FileData"}},
            "", "", 1.0]  # fmt: skip
    call = httpx.post(f"{url}gradio_api/call/live", json={"data": data})
    with httpx.stream(
        "GET", f"{url}gradio_api/call/live/{call.json()['event_id']}", timeout=60
    ) as reply:
        next(reply.iter_lines())
        assert own.service.queue.working == 1
    deadline = time.monotonic() + 60
    while own.service.queue.working:
        assert time.monotonic() < deadline, "the recording would go on for 3.6 s at least"
        time.sleep(0.02)
    again = httpx.post(f"{url}gradio_api/call/live", json={"data": data}).json()["event_id"]
    said = httpx.get(f"{url}gradio_api/call/live/{again}", timeout=60).text
    assert "is not here: upload it again" in said, "a recording is used once, then deleted"


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("queue/join", {"data": [], "fn_index": 9, "session_hash": "abcdefgh"}, "'fn_index'"),
        ("queue/join", {"data": [], "fn_index": True, "session_hash": "short"}, "'session_hash'"),
        ("queue/join", {"data": {}, "fn_index": 0, "session_hash": "abcdefgh"}, "'data'"),
        ("call/live", {"data": [{"path": "http://10.0.0.1/x.mp3"}, "", "", 0]}, "not fetched"),
        ("call/live", {"data": [{"path": "/etc/passwd"}, "", "", 0]}, "must be uploaded"),
        ("call/live", {"data": [["nested"], "", "", 0]}, "an argument is"),
        ("cancel", {"session_hash": "abcdefgh", "fn_index": 0, "event_id": "x"}, "'event_id'"),
        ("call/v2/translate", {"text": "Good morning."}, "'target' is missing"),
        ("call/v2/translate", {"words": ""}, "unknown argument 'words'; there are: text, target"),
        ("call/v2/live", {"recording": {"path": "/etc/passwd"}}, "must be uploaded"),
        ("queue/join", [], "JSON object"),
    ],
)
def test_calls_are_checked_before_gradio_sees_them(
    page: tuple[str, Any], path: str, content: Any, said: str
) -> None:
    reply = httpx.post(f"{page[0]}gradio_api/{path}", json=content)
    assert reply.status_code == 400
    assert said in reply.json()["error"]


def test_a_session_belongs_to_the_person_who_began_it(tmp_path: Path) -> None:
    from gradio_client.exceptions import AuthenticationError

    tokens = TokenFile(tmp_path / "tokens.json")
    secrets = {name: tokens.add(name) for name in ("anna", "ben")}
    logins = (("carla", "password"),)  # so that a token is required
    with serving_page(tokens, logins=logins) as (url, _):
        assert httpx.get(f"{url}config").status_code == 401
        assert httpx.get(f"{url}gradio_api/info").status_code == 401
        assert httpx.post(f"{url}gradio_api/queue/join", json={}).status_code == 401
        headers = {name: {"Authorization": f"Bearer {key}"} for name, key in secrets.items()}
        caller = client(url, tmp_path, headers=headers["anna"])
        text, _ = caller.predict(text="Good morning.", target="de", api_name="/translate")
        assert text
        with_login = client(url, tmp_path, auth=("carla", "password"))
        assert with_login.predict(api_name="/models")
        with_login.close()
        with pytest.raises(AuthenticationError):
            client(url, tmp_path, auth=("carla", "wrong"))
        token = httpx.post(
            f"{url}gradio_api/upload",
            files={"files": (QUESTION, recording())}, headers=headers["anna"],
        ).json()[0]  # fmt: skip
        data = [{"path": token}, "", "", 0]
        call = httpx.post(
            f"{url}gradio_api/call/live", json={"data": data}, headers=headers["ben"]
        ).json()
        said = httpx.get(
            f"{url}gradio_api/call/live/{call['event_id']}", headers=headers["ben"], timeout=60
        )
        assert "is not here" in said.text
        # The same name of a session is another session for another person.
        joined = {"data": ["Good morning.", "de", "en", "text"], "fn_index": 1,
                  "session_hash": caller.session_hash}  # fmt: skip
        httpx.post(f"{url}gradio_api/queue/join", json=joined, headers=headers["anna"])
        other = httpx.get(
            f"{url}gradio_api/queue/data", params={"session_hash": caller.session_hash},
            headers=headers["ben"], timeout=60,
        )  # fmt: skip
        assert other.status_code == 404
        caller.close()
