"""`edgeapp ui`: how its options become settings and options of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeapp.cli import main
from edgeapp.server.options import ServerOptions
from edgeapp.settings import Settings, history_file


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command; returns what would be served."""
    config = tmp_path / "config.toml"
    monkeypatch.setenv("EDGEAPP_CONFIG", str(config))
    monkeypatch.delenv("EDGEAPP_HISTORY", raising=False)
    calls: list[tuple[Settings, ServerOptions]] = []
    monkeypatch.setattr("edgeapp.server.serve.serve", lambda *given: calls.append(given))

    def run(*arguments: str, settings: str = "") -> tuple[Settings, ServerOptions]:
        config.write_text(settings, "utf-8")
        with pytest.raises(SystemExit) as ended:
            main(["ui", *arguments])
        assert ended.value.code in (None, 0)
        return calls.pop()

    return run


@pytest.mark.parametrize(
    ("arguments", "settings", "kept"),
    [
        ((), "", True),
        ((), "history = false", False),
        (("--no-history",), "", False),
        (("--no-history",), "history = true", False),
        (("--history",), "history = false", True),
        (("--history",), "", True),
    ],
)
def test_the_flag_goes_before_the_setting(
    served: Any, arguments: tuple[str, ...], settings: str, kept: bool
) -> None:
    chosen, _ = served(*arguments, settings=settings)
    assert (history_file(chosen) is not None) == kept


def test_the_flag_keeps_the_file_of_the_setting(served: Any, tmp_path: Path) -> None:
    chosen, _ = served("--history", settings='history = "notes.db"')
    assert history_file(chosen) == tmp_path / "notes.db"
    assert history_file(served("--no-history", settings='history = "notes.db"')[0]) is None


@pytest.mark.slow
def test_strangers_see_no_history(served: Any) -> None:
    away = ("--host", "0.0.0.0", "--no-auth")
    assert history_file(served(*away)[0]) is None
    assert history_file(served(*away, "--history")[0]) is not None
    assert history_file(served("--no-auth")[0]) is not None, "this machine only"
    assert history_file(served("--host", "0.0.0.0", "--auth", "anna:x")[0]) is not None


def test_trusted_proxies(served: Any) -> None:
    flags = ("--trusted-proxy", "10.0.0.1", "--trusted-proxy", "fd00::/8")
    _, options = served(*flags, settings='trusted_proxy = "192.0.2.1"')
    assert "10.0.0.1" in options.proxies
    assert "fd00::7" in options.proxies
    assert "192.0.2.1" not in options.proxies
    _, options = served(settings='trusted_proxy = "192.0.2.1, 198.51.100.0/24"')
    assert "192.0.2.1" in options.proxies
    assert "198.51.100.3" in options.proxies
    assert not served()[1].proxies.networks


def test_an_invalid_proxy_is_an_error_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ui", "--trusted-proxy", "proxy.example"])
    assert ended.value.code == 2
    assert "'proxy.example' is not an address or a network" in capsys.readouterr().err
