"""The real command on the bundled models, in a process of its own or as a warm fork."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from edgeapp.exit_codes import end_signals
from pipelines.hub import assets_folder
from tests.fixtures.browser import Desk, Server, chromium, missing, serving
from tests.fixtures.hub import Hosted, Hub
from tests.fixtures.index import published, wheel_row
from tests.fixtures.warm_program import warm_program

Edgeapp = Callable[..., subprocess.CompletedProcess[str]]
FRESH = [sys.executable, "-m", "edgeapp"]


@pytest.fixture(scope="session", autouse=True)
def _heed_ctrl_c() -> None:
    """A shell that starts the tests in the background has them ignore it, and their children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No settings but the sandbox's model, no models but the bundled ones, no network."""
    return _clean(tmp_path)


def _clean(folder: Path) -> dict[str, str]:
    # The compiled kernels, as a server that compiles is late for a browser; the sandbox's model.
    kept = ("EDGEAPP_KERNELS", "EDGEAPP_MODEL")
    clean = {
        k: v for k, v in os.environ.items() if k in kept or not k.startswith(("EDGEAPP_", "HF_"))
    }
    return clean | {
        "EDGEAPP_CONFIG": str(folder / "no-config.toml"),
        "HF_HUB_CACHE": str(folder / "no-models"),
        "HF_HUB_OFFLINE": "1",
    }


@pytest.fixture
def hosted_base(
    stand_in_hub: Hub, whisper_folder: Callable[..., Path], tmp_path: Path
) -> Iterator[dict[str, str]]:
    """A small model that the stand-in hub has as base; what the environment of a program that
    downloads it needs besides the address of the hub."""
    from tests.formats.writers import write_ctranslate2  # which needs torch

    made = write_ctranslate2(whisper_folder("base", dtype="float32"), tmp_path / "ct2", "float16")
    names = ("config.json", "vocabulary.json", "model.bin")
    files = {name: (made / name).read_bytes() for name in names}
    wheel = wheel_row("not-asked-for", b"")
    parts = {name: ((wheel, name, len(content)),) for name, content in files.items()}
    row = published("base", files, parts)
    (tmp_path / "rows").write_bytes(pickle.dumps({row.name: row}))
    stand_in_hub.repositories[row.repository] = Hosted(files)
    yield {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "EDGEAPP_TEST_SOURCES": str(tmp_path / "rows"),
    }
    del stand_in_hub.repositories[row.repository]


@pytest.fixture(scope="session")
def program(_compiled: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The command `edgeapp`, without the seconds that imports take; FRESH is the one with them."""
    if sys.platform != "linux":
        yield FRESH
        return
    with warm_program(_clean(tmp_path_factory.mktemp("program"))) as command:
        yield command


@pytest.fixture
def edgeapp(tmp_path: Path, environment: dict[str, str], program: list[str]) -> Edgeapp:
    """Runs the command to its end."""

    def run(*arguments: object, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*program, *map(str, arguments)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=tmp_path,
            env=environment,
            timeout=400,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    return run


@pytest.fixture
def edgeapp_here(
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Iterator[Edgeapp]:
    """As `edgeapp`, but in this process, which has loaded torch already: for tests of what is
    written, not of signals, pipes and settings that are read at the start."""
    import torch

    from edgeapp.cli import main

    def run(*arguments: object, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        capsysbinary.readouterr()
        with monkeypatch.context() as patch:
            for name in set(os.environ) - set(environment):
                if name.startswith(("EDGEAPP_", "HF_")):
                    patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
            with pytest.raises(SystemExit) as stop:
                main([str(argument) for argument in arguments])
        out, err = (each.decode() for each in capsysbinary.readouterr())
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(arguments, int(stop.value.code or 0), out, err)

    threads, handlers = torch.get_num_threads(), {n: signal.getsignal(n) for n in end_signals()}
    yield run
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def read_one_line(tmp_path: Path, environment: dict[str, str]) -> Callable[[str], None]:
    """Runs a command whose reader goes away after a line: nobody complains."""

    def run(command: str) -> None:
        done = subprocess.run(
            f"{command} | head -n 1",
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=400,
        )
        assert done.stdout.count(b"\n") == 1
        assert b"Traceback" not in done.stderr
        assert b"Exception" not in done.stderr

    return run


@pytest.fixture(scope="session", autouse=True)
def _compiled(kernels: None) -> None:
    """A server that compiles would be late for a browser."""


# Of this folder's tests, not of the session: while playwright is there, an event loop runs in the
# main thread, and tests elsewhere start their own.
@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium (playwright's) that hears the bundled story three times: for longer than
    a test takes, on a busy machine, too."""
    if lacking := missing():
        if os.environ.get("CI"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    samples, rate = soundfile.read(assets_folder() / "samples" / "story.flac")
    microphone = tmp_path_factory.mktemp("microphone") / "story.wav"
    soundfile.write(microphone, np.tile(samples, 3), rate)
    with chromium(microphone) as opened:
        yield opened


@pytest.fixture(scope="session")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Over half an hour: nobody is done with it before a test is."""
    samples, rate = soundfile.read(assets_folder() / "samples" / "story.flac", dtype="int16")
    path = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(path, np.tile(samples, 40), rate)
    return path


@pytest.fixture(scope="session")
def stand_in_hub() -> Iterator[Hub]:
    """A hub on this machine, for a server that several tests share."""
    hub = Hub()
    yield hub
    hub.stop()


@pytest.fixture(scope="session")
def page_environment(
    tmp_path_factory: pytest.TempPathFactory,
    whisper_folder: Callable[..., Path],
    stand_in_hub: Hub,
) -> dict[str, str]:
    """As `environment`, for a server that several tests share, with a hub, and with a recognizer
    of many languages in the cache: someone/many, which makes words up."""
    folder = tmp_path_factory.mktemp("page")
    storage = folder / "no-models" / "models--someone--many"
    (storage / "refs").mkdir(parents=True)
    (storage / "refs" / "main").write_text("a" * 40, "utf-8")
    (storage / "snapshots").mkdir()
    shutil.copytree(whisper_folder("tiny"), storage / "snapshots" / ("a" * 40))
    environment = _clean(folder) | {
        "EDGEAPP_HISTORY": str(folder / "history.db"),
        "HF_ENDPOINT": stand_in_hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "OMP_NUM_THREADS": "1",
    }
    del environment["HF_HUB_OFFLINE"]
    return environment


@pytest.fixture(scope="session")
def ui(page_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`edgeapp ui` for all tests that leave it as it was."""
    log = tmp_path_factory.mktemp("ui") / "log.txt"
    with serving(page_environment, log=log) as server:
        yield server


@pytest.fixture
def desk(browser: Any, ui: Server) -> Iterator[Desk]:
    """A person at the shared page."""
    sitting = Desk(browser, ui.url)
    yield sitting
    sitting.close()
