"""Real servers: the command in a process of its own, or EdgeApp's routes in a thread."""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from edgeapp.memory_limit import MemoryLimit
from edgeapp.model_pool import ModelPool
from edgeapp.server.access.security import SecurityMiddleware, program_route
from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.options import ServerOptions
from edgeapp.server.request_log import RequestLog
from edgeapp.server.routes import app_routes
from edgeapp.server.serve import server_config
from edgeapp.server.transport.connections import Connections, LimitedListener
from edgeapp.settings import Settings, load_settings
from tests.fixtures.browser import serving


@pytest.fixture(scope="package", autouse=True)
def _patient_clients() -> Iterator[None]:
    """By default, httpx waits for 5 s, and a busy machine may take longer."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "read", "write", "pool"):
            patch.setattr(DEFAULT_TIMEOUT_CONFIG, name, 120.0)
        yield


def server_environment(folder: Path) -> dict[str, str]:
    """The environment of a server with the bundled models only, and a history of its own."""
    return dict(os.environ) | {
        "EDGEAPP_CONFIG": str(folder / "none.toml"),
        "EDGEAPP_HISTORY": str(folder / "history.db"),
        "HF_HUB_CACHE": str(folder / "no-models"),
        "HF_HUB_OFFLINE": "1",
    }


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an `edgeapp ui` for all networks, which all tests of a session share."""
    folder = tmp_path_factory.mktemp("server")
    options = ("--host", "0.0.0.0", "--no-auth", "--threads", "1")
    with serving(server_environment(folder), *options, log=folder / "log.txt") as server:
        yield server.url.replace("0.0.0.0", "127.0.0.1")


@contextmanager
def serving_routes(
    folder: Path,
    *,
    connections: Connections | None = None,
    tokens: TokenFile | None = None,
    log: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Iterator[str]:
    """EdgeApp's own routes, without Gradio's page, on uvicorn in a thread of this process.

    folder: for the history. log: gets the lines of the log. options: of the server. Yields the
    server's address.
    """
    chosen = ServerOptions(**options)
    connections = connections or Connections(proxies=chosen.proxies)
    listener = LimitedListener(connections, socket.AF_INET)
    listener.bind((chosen.host, 0))
    listener.listen()
    limit = MemoryLimit(chosen.memory_bytes)
    pool = ModelPool(load_settings(), listed_only=True, memory_limit=limit)
    own = app_routes(pool, chosen, folder / "history.db", tokens)
    secured = SecurityMiddleware(
        Starlette(routes=own.routes),
        own.service.logins,
        hosts=chosen.host_names,
        allow_origins=chosen.allow_origins,
        proxies=chosen.proxies,
    )
    app = RequestLog(secured, own.service.metrics, program_route, log)
    tls = {"ssl_certfile": chosen.ssl_certfile, "ssl_keyfile": chosen.ssl_keyfile}
    server = uvicorn.Server(server_config(app, connections, lifespan="off", **tls))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        deadline = time.monotonic() + 120
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield f"http://{chosen.host}:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(120)
        own.close()
        if thread.is_alive():  # where does it wait?
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
        assert not thread.is_alive()


@pytest.fixture
def thread_server(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts `serving_routes` with some options, and returns its address."""
    with ExitStack() as stack:

        def start(**options: Any) -> str:
            return stack.enter_context(serving_routes(tmp_path, **options))

        yield start


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes clients of EdgeApp's own routes behind the security middleware; no model is loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # httpx has a successor
        from starlette.testclient import TestClient
    ends = []

    def client(**options: Any) -> Any:
        chosen = ServerOptions(**options)
        own = app_routes(ModelPool(Settings(), listed_only=True), chosen, tmp_path / "history.db")
        ends.append(own.close)
        page = Route("/", lambda request: PlainTextResponse("the page"))
        broken = Route("/favicon.ico", _fail)
        app = Starlette(routes=[page, broken, *own.routes])
        secured = SecurityMiddleware(
            app,
            own.service.logins,
            hosts=chosen.host_names,
            allow_origins=chosen.allow_origins,
            proxies=chosen.proxies,
        )
        made = TestClient(
            secured,
            base_url="http://127.0.0.1",
            follow_redirects=False,
            raise_server_exceptions=False,
        )
        made.login_link = own.make_login_link
        return made

    yield client
    for end in ends:
        end()


def _fail(request: Request) -> PlainTextResponse:
    raise ZeroDivisionError
