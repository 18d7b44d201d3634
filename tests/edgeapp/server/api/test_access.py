"""Who may use the interfaces: tokens, hosts, origins; and what happens to those who leave."""

from __future__ import annotations

import errno
import json
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from edgeapp.cli import main
from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.options import ServerOptions
from edgeapp.server.serve import serve
from edgeapp.settings import Settings
from pipelines.errors import InputError, OptionError, OutputError
from tests.edgeapp.server.conftest import serving_routes

AWAY: dict[str, Any] = {"host": "0.0.0.0"}


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "folder" / "tokens.json")


def local(url: str) -> str:
    return url.replace("0.0.0.0", "127.0.0.1")


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_tokens_are_stored_as_hashes_that_only_the_user_can_read(tokens: TokenFile) -> None:
    secret = tokens.add("laptop")
    for path in tokens._path.parent.iterdir():
        assert secret not in path.read_text("utf-8")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert tokens.name_of(secret) == "laptop"
    assert TokenFile(tokens._path).name_of(secret) == "laptop"
    for wrong in ("", "laptop", secret[:-1], secret + "x", "x" * 100_000):
        assert tokens.name_of(wrong) is None
    for name in ("laptop", "", "a b", "../x", "x" * 65):
        with pytest.raises(OptionError):
            tokens.add(name)
    with pytest.raises(InputError):
        tokens.revoke("phone")


CHANGES = """
import sys
from pathlib import Path
from edgeapp.server.access import tokens as module
module._LOCKED_S = 300.0  # each change waits for a disk that may be busy
name, tokens = sys.argv[1], module.TokenFile(Path(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(12):
    tokens.add(f"{name}-{number}")
    if number % 2:
        tokens.revoke(f"{name}-{number}")
"""


def test_no_change_of_the_tokens_is_lost_between_processes(tokens: TokenFile) -> None:
    """A revoked token stays revoked while others are made."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CHANGES, name, str(tokens._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b", "c")
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait(300) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    kept = {f"{name}-{number}" for name in "abc" for number in range(0, 12, 2)}
    assert {token.name for token in tokens.tokens} == kept


def test_a_change_does_not_wait_for_ever(
    tokens: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.server.access.tokens._LOCKED_S", 0.05)
    with tokens._changing(), pytest.raises(OutputError, match="locked by another process"):
        TokenFile(tokens._path).add("laptop")
    assert tokens.name_of(tokens.add("laptop")) == "laptop"


@pytest.mark.skipif(sys.platform == "win32", reason="has other locks")
def test_tokens_on_a_file_system_without_locks(
    tokens: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*of: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    monkeypatch.setattr("edgeapp.server.access.tokens._LOCKED_S", 0.0)
    secret = tokens.add("laptop")
    assert tokens.name_of(secret) == "laptop"
    tokens.revoke("laptop")
    assert tokens.tokens == ()


def test_a_damaged_file_lets_nobody_in(
    thread_server: Callable[..., str], tokens: TokenFile
) -> None:
    secret = tokens.add("laptop")
    tokens._path.write_text("[{}]", "utf-8")
    with pytest.raises(InputError, match="no file of tokens"):
        tokens.name_of(secret)
    url = local(thread_server(tokens=tokens, **AWAY)) + "v1/models"
    assert httpx.get(url, headers=bearer(secret)).status_code == 401
    here = thread_server(tokens=tokens) + "v1/models"
    assert httpx.get(here, headers=bearer("unused")).status_code == 200


@pytest.mark.slow
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEAPP_TOKENS", str(tmp_path / "tokens.json"))

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["tokens", *arguments])
        assert ended.value.code in (None, 0)
        return capsys.readouterr().out

    secret = run("new", "laptop").strip()
    assert TokenFile(tmp_path / "tokens.json").name_of(secret) == "laptop"
    assert run("list").startswith("laptop\t20")
    run("revoke", "laptop")
    assert run("list") == ""


def test_off_loopback_a_token_is_needed_and_can_be_revoked(
    thread_server: Callable[..., str], tokens: TokenFile
) -> None:
    secret = tokens.add("laptop")
    url = local(thread_server(tokens=tokens, **AWAY)) + "v1/models"
    refused = httpx.get(url)
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert httpx.get(url, headers=bearer("wrong")).status_code == 401
    assert httpx.get(url, headers=bearer(secret)).status_code == 200
    tokens.revoke("laptop")
    assert httpx.get(url, headers=bearer(secret)).status_code == 401


def test_wrong_tokens_are_throttled_and_right_ones_are_not(
    thread_server: Callable[..., str], tokens: TokenFile
) -> None:
    secret = tokens.add("laptop")
    url = local(thread_server(tokens=tokens, **AWAY)) + "v1/models"
    with httpx.Client() as client:
        codes = [client.get(url, headers=bearer(f"guess {i}")).status_code for i in range(12)]
        assert codes == [401] * 10 + [429] * 2
        assert client.get(url, headers=bearer(secret)).status_code == 200
        form = {"user": "laptop", "password": secret}
        login = client.post(url.replace("v1/models", "login"), data=form)
        assert login.status_code == 303, "wrong tokens lock no login page"


def test_a_token_logs_in_on_the_page(thread_server: Callable[..., str], tokens: TokenFile) -> None:
    secret = tokens.add("laptop")
    url = local(thread_server(tokens=tokens, **AWAY))
    with httpx.Client() as client:
        form = {"user": "laptop", "password": secret}
        assert client.post(f"{url}login", data={**form, "user": "phone"}).status_code == 403
        assert client.post(f"{url}login", data=form).status_code == 303
        assert client.get(f"{url}edgeapp/user").json() == {"user": "token laptop"}
        tokens.revoke("laptop")
        assert client.get(f"{url}edgeapp/user").status_code == 401


def test_nothing_starts_that_nobody_could_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEAPP_TOKENS", str(tmp_path / "none.json"))
    with pytest.raises(OptionError, match="edgeapp tokens new"):
        serve(Settings(), ServerOptions(host="0.0.0.0"))
    with pytest.raises(OptionError, match="exclude each other"):
        ServerOptions(logins=(("anna", "x"),), open_to_all=True)


def test_a_signal_closes_the_line_before_the_server_ends() -> None:
    import signal

    import uvicorn

    from edgeapp.server.serve import draining_server

    drained: list[bool] = []
    server = draining_server(uvicorn.Config("none"), lambda: drained.append(True))
    server.handle_exit(signal.SIGTERM, None)
    assert drained == [True]
    assert server.should_exit


@pytest.mark.slow
def test_other_sites_and_other_names_are_refused(thread_server: Callable[..., str]) -> None:
    url = thread_server()
    for path in ("v1/models", "metrics", "health"):
        answer = httpx.get(url + path, headers={"origin": "http://evil.example"})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
        assert httpx.get(url + path, headers={"host": "evil.example"}).status_code == 400
    error = httpx.get(f"{url}v1/unknown").json()["error"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.slow
def test_beyond_the_line_requests_are_told_when_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgeapp.server.api import routes
    from edgeapp.server.api.recognition import Recognition, RecognitionStarted

    begun, go_on = threading.Event(), threading.Event()

    def waiting(self: Recognition, cancelled: Callable[[], bool]) -> Any:
        begun.set()
        assert go_on.wait(60)
        yield RecognitionStarted("en", 1.0, "demo")

    monkeypatch.setattr(Recognition, "run", waiting)
    monkeypatch.setattr(routes, "MAX_WAITING", 2)
    answers: list[httpx.Response] = []
    with serving_routes(tmp_path, sessions=1) as url:

        def send() -> None:
            answers.append(
                httpx.post(
                    f"{url}v1/audio/transcriptions",
                    files={"file": b"x"},
                    data={"model": "whisper-1"},
                    timeout=60,
                )
            )

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while not answers:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        go_on.set()
        for thread in threads:
            thread.join(60)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 429]
    assert answers[0].status_code == 429
    assert 1 <= int(answers[0].headers["retry-after"]) <= 120
    assert answers[0].json()["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.slow
def test_a_client_that_leaves_frees_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is at work on a recording that would take long; another one waits behind it."""
    from edgeapp.server.api.recognition import Recognition

    begun, ended = threading.Event(), threading.Event()

    def endless(self: Recognition, cancelled: Callable[[], bool]) -> Any:
        begun.set()
        try:
            while not cancelled():
                time.sleep(0.01)
            return
            yield
        finally:
            ended.set()

    monkeypatch.setattr(Recognition, "run", endless)
    log: list[str] = []
    with serving_routes(tmp_path, log=log.append, sessions=1) as url:
        body = (
            b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
            b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\nx\r\n'
            b"--x--\r\n"
        )
        for leaves_while_streaming in (False, True):
            begun.clear()
            ended.clear()
            sent = body
            if leaves_while_streaming:
                sent = (
                    b'--x\r\ncontent-disposition: form-data; name="stream"\r\n\r\ntrue\r\n' + body
                )
            parts = urlsplit(url)
            with socket.create_connection((parts.hostname or "", parts.port or 0)) as line:
                line.sendall(
                    b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                    b"content-type: multipart/form-data; boundary=x\r\n"
                    b"content-length: %d\r\n\r\n" % len(sent) + sent
                )
                assert begun.wait(60)
                assert "edgeapp_working 1" in httpx.get(f"{url}metrics").text
            assert ended.wait(60), "the work ends when its client leaves"
            deadline = time.monotonic() + 60
            while "edgeapp_working 0" not in httpx.get(f"{url}metrics").text:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    routes = [json.loads(line)["route"] for line in log]
    assert routes.count("/v1/audio/transcriptions") == 2
