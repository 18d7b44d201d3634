"""For other devices in the network: a certificate, an address, links that log in once."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgeapp.cli import main
from edgeapp.server.access import certificate as certificates
from edgeapp.server.access import login_links
from edgeapp.server.access.addresses import reachable, url_host
from edgeapp.server.access.certificate import names_of_this_machine, own_certificate
from edgeapp.server.access.login_links import LoginLinks
from tests.edgeapp.server.test_security import SAME_ORIGIN

HERE = "192.0.2.7"
NAMES = ("localhost", "127.0.0.1", "::1", HERE)


@pytest.fixture(autouse=True)
def _in_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may not ask the system for the way to another machine."""
    for module in ("access.addresses", "access.certificate", "viewers.sharing"):
        monkeypatch.setattr(f"edgeapp.server.{module}.lan_address", lambda *_: HERE)


def test_a_certificate_is_kept_until_it_no_longer_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tls"
    first = own_certificate(folder, NAMES)
    assert first.made
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        first.certfile, first.keyfile
    )
    assert stat.S_IMODE(first.keyfile.stat().st_mode) == 0o600
    assert len(first.fingerprint.split(":")) == 32
    again = own_certificate(folder, NAMES[:2])
    assert (again.made, again.fingerprint) == (False, first.fingerprint)
    moved = own_certificate(folder, (*NAMES, "192.0.2.8"))
    assert moved.made, "the machine has a new address"

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=380)

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Later)
        assert own_certificate(folder, NAMES).made, "it ends soon"
    first.keyfile.write_text("damaged", "utf-8")
    assert own_certificate(folder, NAMES).made
    assert "localhost" in names_of_this_machine()


def test_a_certificate_has_a_client_that_believes_it(tmp_path: Path) -> None:
    """The handshake of a client that trusts the file, by name and by address."""
    own = own_certificate(tmp_path, NAMES)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(own.certfile, own.keyfile)
    for name in NAMES:
        client = ssl.create_default_context(cafile=str(own.certfile))
        at_client, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        here = client.wrap_bio(at_client, to_client, server_hostname=name)
        there = server.wrap_bio(to_client, at_client, server_side=True)
        done = []
        for side in (here, there) * 3:
            try:
                side.do_handshake()
                done.append(side)
            except ssl.SSLWantReadError:
                pass
        assert here in done, name


def test_the_addresses_that_are_printed_can_be_opened() -> None:
    assert reachable("127.0.0.1") == ("127.0.0.1", None)
    assert reachable("192.0.2.9") == ("192.0.2.9", "192.0.2.9")
    assert reachable("0.0.0.0") == ("127.0.0.1", HERE)
    assert reachable("::") == ("::1", HERE)
    assert url_host("fd00::1") == "[fd00::1]"


def test_a_link_works_once_and_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    links, now = LoginLinks(), [1000.0]
    # Not time.monotonic itself: event loops in other threads, servers of other tests, read it.
    monkeypatch.setattr(login_links, "time", SimpleNamespace(monotonic=lambda: now[0]))
    secret, other = links.make("anna"), links.make("")
    assert links.take("guess") is None
    assert links.take(secret) == "anna"
    assert links.take(secret) is None
    assert links.take(other) == "", "the owner, who has no name"
    late = links.make("anna")
    now[0] += login_links.LOGIN_LINK_S
    assert not links.valid(late)
    assert links.take(late) is None


@pytest.mark.slow
def test_a_link_logs_a_browser_in(serve: Callable[..., Any]) -> None:
    client = serve(host="0.0.0.0", login_link=True)
    assert client.get("/").headers["location"] == "/login"
    path = f"/enter/{client.login_link('')}"
    assert client.get(path).status_code == 200
    assert client.get(path).status_code == 200, "a preview does not use it up"
    assert client.get("/").status_code == 303
    assert client.post(path, headers=SAME_ORIGIN | {"origin": "http://evil"}).status_code == 403
    assert client.post(path, headers=SAME_ORIGIN).status_code == 303
    assert client.get("/").status_code == 200
    client.cookies.clear()
    assert client.post(path, headers=SAME_ORIGIN).status_code == 410
    assert client.get(path).status_code == 410
    assert client.get("/").status_code == 303


def test_strangers_get_the_captions_of_their_link_only(serve: Callable[..., Any]) -> None:
    client = serve(host="0.0.0.0", login_link=True)
    client.post(f"/enter/{client.login_link('')}", headers=SAME_ORIGIN)
    with client.websocket_connect("ws://127.0.0.1/edgeapp/session", headers=SAME_ORIGIN) as page:
        page.send_json({"type": "share", "id": 1})
        while (reply := page.receive_json())["type"] != "reply":
            pass
        token = reply["share"]
        assert reply["qr"].startswith("<svg")
        assert reply["url"] == f"http://{HERE}/view/{token}", "an address for others"
        client.cookies.clear()  # a stranger from here on
        assert client.get(f"/view/{token}").status_code == 200
        assert client.get(f"/overlay/{token}").status_code == 200
        assert client.get("/view/guess").status_code == 404
        assert client.get("/").status_code == 303
        viewing = f"ws://127.0.0.1/edgeapp/view/{token}"
        with client.websocket_connect(viewing, headers=SAME_ORIGIN) as viewer:
            viewer.send_json({"type": "history", "search": "", "id": 1})
            viewer.send_text("[" * 100_000)
            viewer.send_json({"target": "de"})
            hello = viewer.receive_json()
            assert (hello["type"], hello["lines"]) == ("view", []), "and no history"
            page.send_json({"type": "unshare", "share": token, "id": 2})
            assert viewer.receive_json()["type"] == "view_ended"
        assert client.get(f"/view/{token}").status_code == 404


def test_one_command_serves_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setattr(
        "edgeapp.commands.options.server.tls_folder", lambda: tmp_path / "certificate"
    )
    calls: list[Any] = []
    monkeypatch.setattr("edgeapp.server.serve.serve", lambda *given: calls.append(given))
    with pytest.raises(SystemExit) as ended:
        main(["ui", "--lan"])
    assert ended.value.code in (None, 0)
    options = calls.pop()[1]
    assert (options.host, options.login_required, options.login_link) == ("0.0.0.0", True, True)
    assert options.ssl_certfile.is_file()
    assert "its SHA-256 is" in capsys.readouterr().err
