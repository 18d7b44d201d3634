"""Inputs at addresses: only if asked, never from private hosts unasked, within bounds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edgeapp.batch.find_inputs import MEDIA_SUFFIXES, find_inputs, read_list
from edgeapp.batch.remote_file import DownloadLimits, Network, RemoteFile, RemoteFiles
from edgeapp.cli import app
from pipelines import AudioError, InputError
from pipelines.hub import assets_folder

QUESTION = assets_folder() / "samples" / "question.flac"
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def served(answer: Answer) -> Iterator[int]:
    """A server on this machine; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sends(content: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(content)), **given}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def resolving(*answers: str) -> Callable[..., list[Any]]:
    """A resolver that gives each address once, in turn."""
    left = list(answers)
    return lambda host, port, **_: [(socket.AF_INET, 0, 0, "", (left.pop(0), port))]


def download(file: RemoteFile) -> bytes:
    with file.downloaded():
        return file.path.read_bytes()


def at(url: str, folder: Path, **changes: Any) -> RemoteFile:
    return replace(RemoteFile(url, folder / "one" / "talk.mp3", allow_private=True), **changes)


def test_a_file_is_downloaded_and_deleted_afterwards(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append((request.path, request.headers["Host"]))
        sends(b"sound")(request)

    with served(answer) as port:
        file = at(f"http://talks.test:{port}/a b/tälk.mp3?key=1#x", tmp_path)
        file = replace(file, network=Network(resolve=resolving("127.0.0.1")))
        assert download(file) == b"sound"
    assert asked == [("/a%20b/t%C3%A4lk.mp3?key=1", f"talks.test:{port}")]
    assert not file.path.parent.exists()
    assert file.shown == f"http://talks.test:{port}/a b/tälk.mp3"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.9", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1",
        "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "2001:0:5ef5:79fb::1", "224.0.0.1",
    ],
)  # fmt: skip
def test_private_addresses_are_refused_by_what_a_name_resolves_to(
    tmp_path: Path, address: str
) -> None:
    def connect(*_: object, **__: object) -> socket.socket:
        raise AssertionError("nothing is connected to")

    network = Network(resolving(address), connect)
    file = at("http://talks.test/a.mp3", tmp_path, allow_private=False, network=network)
    with pytest.raises(InputError, match="is a private address .* --allow-private opens it"):
        download(file)


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(tmp_path: Path) -> None:
    """A name server that answers with a private address the second time is not asked again."""
    connected: list[object] = []
    with served(sends(b"sound")) as port:

        def connect(address: object, **_: object) -> socket.socket:
            connected.append(address)
            return socket.create_connection(("127.0.0.1", port))

        network = Network(resolving("93.184.216.34", "127.0.0.1"), connect)
        file = at("http://talks.test/a.mp3", tmp_path, allow_private=False, network=network)
        assert download(file) == b"sound"
    assert connected == [("93.184.216.34", 80)]


def test_redirects_are_followed_and_checked_again(tmp_path: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        moved = request.path == "/a.mp3"
        sends(b"" if moved else b"sound", 302 if moved else 200, Location="/b.mp3")(request)

    with served(answer) as port:
        assert download(at(f"http://127.0.0.1:{port}/a.mp3", tmp_path)) == b"sound"

        def connect(_: object, **__: object) -> socket.socket:
            return socket.create_connection(("127.0.0.1", port))

        network = Network(resolving("93.184.216.34", "192.168.0.1"), connect)
        file = at("http://talks.test/a.mp3", tmp_path, allow_private=False, network=network)
        with pytest.raises(InputError, match=r"a private address \(192.168.0.1\)"):
            download(file)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (sends(b"", 404), "the server answers 404 Not Found"),
        (sends(b"", 301, Location="/again"), "leads on more than 5 times"),
        (sends(b"", 301, Location="file:///etc/passwd"), "neither http nor https"),
        (sends(b"x", Content_Encoding="gzip"), "the server compresses it"),
        (sends(b"x", Content_Length="2000"), "it has 2,000 bytes, and 1,000 are the most"),
        (sends(b"x" * 10, Content_Length="20"), "broke off after 10 of 20 bytes"),
    ],
)
def test_what_is_not_a_file_says_why(tmp_path: Path, answer: Answer, message: str) -> None:
    with served(answer) as port:
        url = f"http://127.0.0.1:{port}/a.mp3?token=secret"
        with pytest.raises(InputError, match=message) as failed:
            download(at(url, tmp_path, limits=DownloadLimits(max_bytes=1000)))
    assert "secret" not in str(failed.value)
    assert not (tmp_path / "one").exists()


def test_size_and_time_are_bounded(tmp_path: Path) -> None:
    ended = threading.Event()

    def without_end(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        with_content = request.path == "/large"
        try:
            while not ended.wait(0 if with_content else 0.01):
                request.wfile.write(b"x" * (5000 if with_content else 1))
        except OSError:
            return

    with served(without_end) as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(InputError, match="more than 100,000 bytes"):
            download(at(f"{url}/large", tmp_path, limits=DownloadLimits(max_bytes=100_000)))
        with pytest.raises(InputError, match=r"takes longer than 0.3 s"):
            download(at(f"{url}/slow", tmp_path, limits=DownloadLimits(max_s=0.3)))
        ended.set()


@pytest.mark.parametrize("url", ["http://me:secret@talks.test/", "http:///a", "http://a:99999/"])
def test_addresses_that_are_none(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match=r"passwords in addresses|not an address"):
        download(at(url, tmp_path))


def test_errors_name_the_address_and_not_the_temporary_file(tmp_path: Path) -> None:
    with served(sends(b"no sound")) as port:
        file = at(f"http://127.0.0.1:{port}/talk.mp3", tmp_path)
        with pytest.raises(AudioError) as failed, file.downloaded():
            raise AudioError(f"{file.path} is not audio")
    assert str(failed.value) == f"{file.url} is not audio"


def test_names_of_results_come_from_the_address(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("https://talks.test/day%201/a.mp3?x=/b.wav\n")
    names = [*read_list(tmp_path / "list"), "HTTPS://talks.test/..%2F..%2Fa.mp3", "http://x.test"]
    found = find_inputs(names, MEDIA_SUFFIXES, RemoteFiles())
    assert [Path(each.path).name for each in found] == ["a.mp3", "_.._a.mp3", "download"]
    (refused,) = find_inputs(names[:1], MEDIA_SUFFIXES)
    assert "opened only if asked: --allow-urls" in (refused.problem or "")


@pytest.mark.slow
def test_a_recording_at_an_address_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with served(sends(QUESTION.read_bytes())) as port:
        url = f"http://localhost:{port}/question.flac?key=secret"
        options = ["-m", "demo", "--threads", "1", "-o", "out", "-f", "txt"]

        def transcribe(*more: str) -> tuple[int, str]:
            result = CliRunner().invoke(app, ["transcribe", url, *options, *more])
            return result.exit_code, result.stderr

        code, err = transcribe()
        assert (code, err.count("\n")) == (1, 1)
        assert "opened only if asked" in err
        code, err = transcribe("--allow-urls")
        assert code == 1
        assert "is a private address" in err
        allowed = ("--allow-urls", "--allow-private")
        assert (
            "download, then transcribe"
            in CliRunner().invoke(app, ["transcribe", url, *options, *allowed, "--dry-run"]).stdout
        )
        assert transcribe(*allowed)[0] == 0
        assert "train" in (tmp_path / "out" / "question.txt").read_text("utf-8")
        code, err = transcribe(*allowed)
        assert (code, "done already" in err, "secret" in err) == (0, True, False)
        jobs = CliRunner().invoke(app, ["jobs"]).stdout
        assert "secret" not in jobs


@pytest.mark.slow
def test_a_failed_download_is_retried_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    asked, busy = list[str](), [True]

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        first = request.path.startswith("/first.txt")
        sends(b"Good morning.\n", status=503 if first and busy[0] else 200)(request)

    with served(answer) as port:
        host = f"http://localhost:{port}"

        def translate(*more: str) -> tuple[int, str, str]:
            urls = [f"{host}/first.txt?key=secret", f"{host}/second.txt"]
            options = ["-m", "demo-en-de", "--from", "en", "--threads", "1", "-o", "out/"]
            network = ["--allow-urls", "--allow-private"]
            result = CliRunner().invoke(app, ["translate", *urls, *options, *network, *more])
            return result.exit_code, result.stderr, result.stdout

        code, err, _ = translate()
        assert (code, "the server answers 503" in err) == (1, True)
        assert [path.partition("?")[0] for path in asked] == ["/first.txt", "/second.txt"]
        jobs = CliRunner().invoke(app, ["jobs", "--failed"]).stdout
        assert f"failed  {host}/first.txt – " in jobs
        assert "secret" not in jobs
        plan = translate("--retry-failed", "--dry-run")[2].splitlines()
        assert [line.split(": ")[1] for line in plan] == [
            "download, then translate",
            "has not failed",
        ]
        code, err, _ = translate("--retry-failed")
        assert code == 1  # it fails again, and stays in the journal
        busy[0] = False
        code, err, _ = translate("--retry-failed")
        assert code == 0, err
        assert asked[2:] == ["/first.txt?key=secret"] * 2
        assert (tmp_path / "out" / "first.de.txt").read_text("utf-8").strip()
        assert "no job has failed" in CliRunner().invoke(app, ["jobs", "--failed"]).stderr
