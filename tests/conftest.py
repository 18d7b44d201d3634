"""What every test has: a home of its own, no network but 127.0.0.1, and the fixtures that stand
in for downloaded models and for the hub. Markers and workers are in tests/workers.py."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from platformdirs import user_cache_path

from edgeapp.temporary_folders import make_temporary_folder
from tests.real_weights import FOLDER_VARIABLE, hub_cache_of, transformers_folder, weights_folder

pytest_plugins = ["tests.tally", "tests.workers"]  # these import this file, not the other way

REPOSITORY = Path(__file__).resolve().parents[1]

_SITE = REPOSITORY / "tests" / "fixtures" / "site"  # has the sitecustomize of programs

_home: Path | None = None
_environment: dict[str, str] = {}

# What a developer may have set and what would lead a test out of its sandbox.
_UNWANTED = ("HF_", "HUGGINGFACE", "TRANSFORMERS_", "EDGEAPP_", "PIP_", "http", "all_proxy")
_FOR_TESTS = "EDGEAPP_TEST_"


@dataclass
class Exactness:
    """What was compared with transformers, token for token."""

    models: int = 0
    prompts: int = 0
    tokens: int = 0
    ties: int = 0


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one (`pytest -n`)."""
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """Set before any test module, and so before torch or huggingface_hub, is imported."""
    global _home, _environment
    # A shell ignores Ctrl-C for what it runs in the background, and all programs that tests start
    # and interrupt would do the same.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = is_worker(config)
    # A worker inherits the sandbox of the process that started it, where the cache is another.
    kernels = os.environ["EDGEAPP_KERNELS"] if worker else user_cache_path("edgeapp") / "kernels"
    weights = weights_folder()
    _environment = dict(os.environ)
    # glibc gives each thread a heap of its own, whose freed memory no other thread gets; with two
    # heaps a worker, which runs hundreds of threads in turn, stays small. Programs that tests start
    # have as many as usual.
    if worker:
        os.environ.pop("MALLOC_ARENA_MAX", None)
    else:
        os.environ["MALLOC_ARENA_MAX"] = "2"
    _home = _new_home(config)
    # pytest keeps the folders of its last runs.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    for name in _environment:
        unwanted = name.lower().startswith(tuple(prefix.lower() for prefix in _UNWANTED))
        if unwanted and not name.startswith(_FOR_TESTS):
            del os.environ[name]
    os.environ.update(
        HOME=str(_home),
        # What a test leaves there, or a program that it kills, goes with the home.
        TMPDIR=str(_temporary(_home)),
        XDG_CACHE_HOME=str(_home / "cache"),
        XDG_CONFIG_HOME=str(_home / "config"),
        XDG_DATA_HOME=str(_home / "data"),
        XDG_STATE_HOME=str(_home / "state"),
        # But compiled kernels, whose names tell what they were made from.
        EDGEAPP_KERNELS=str(kernels),
        # And real weights.
        **{FOLDER_VARIABLE: str(weights or "")},
        HF_HOME=str(_home / "huggingface"),
        # No test needs a recognizer for people's voices but those of the choice, which unset this.
        EDGEAPP_MODEL="demo",
        # A port where nothing listens: a test that means to reach a hub names its own.
        HF_ENDPOINT="http://127.0.0.1:9",
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_HUB_DISABLE_XET="1",
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        NO_PROXY="127.0.0.1",
        # As for the hub; and without the indexes of pip's settings on this machine.
        PIP_INDEX_URL="http://127.0.0.1:9/simple/",
        PIP_RETRIES="0",
        PIP_CONFIG_FILE=os.devnull,
        # Workers share the cores. A thread that waits sleeps: torch may be loaded before
        # `pipelines`, which would set this.
        OMP_NUM_THREADS="1" if worker else "2",
        MKL_NUM_THREADS="1" if worker else "2",
        OMP_WAIT_POLICY="PASSIVE",
        # oneDNN keeps 1,024 kernels, of whose half a megabyte each it frees a part with them; the
        # tests of one file need few at a time.
        ONEDNN_PRIMITIVE_CACHE_CAPACITY="64",
        TOKENIZERS_PARALLELISM="false",
        # What tests start finds the checkout from any folder.
        PYTHONPATH=os.pathsep.join([str(_SITE), str(REPOSITORY)]),
    )
    tempfile.tempdir = None  # where TMPDIR says
    _do_not_time_examples()


def _do_not_time_examples() -> None:
    """Let examples of Hypothesis take as long as they take: that says how busy the machine is."""
    from hypothesis import HealthCheck, settings

    # The parent is Hypothesis's profile for CI where this is CI.
    untimed = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("edgeapp", settings.default, **untimed)
    settings.load_profile("edgeapp")


def _new_home(config: pytest.Config) -> Path:
    """A folder for this process. One that was killed leaves it to the next run to be removed, a
    worker to the process that started it."""
    if not is_worker(config):
        return make_temporary_folder("tests")
    home = Path(tempfile.gettempdir()) / config.workerinput["workerid"]
    home.mkdir(mode=0o700)
    return home


def _temporary(home: Path) -> Path:
    """The folder for temporary files of a home. Its name is short: sockets are made there too, and
    their paths are limited to 107 bytes."""
    folder = home / "t"
    folder.mkdir()
    return folder


def pytest_unconfigure(config: pytest.Config) -> None:
    os.environ.clear()
    os.environ.update(_environment)
    tempfile.tempdir = None
    if _home is not None:
        shutil.rmtree(_home, ignore_errors=True)


@pytest.fixture(scope="session")
def kernels(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The int8 kernels, compiled before the test (20 s where the cache lacks them), by one worker
    for all. For tests with limits of time, and for those that start the program."""
    from filelock import FileLock

    from pipelines.engine.kernels.loader import load_kernels

    folder = tmp_path_factory.getbasetemp()
    # A worker's lies in that of the whole run.
    with FileLock((folder.parent if is_worker(pytestconfig) else folder) / "kernels.lock"):
        load_kernels()


@pytest.fixture(autouse=True)
def _no_journal_of_other_tests() -> None:
    """A recording that another test has transcribed is not done."""
    if _home is not None:
        for path in (_home / "data").glob("edgeapp/jobs.db*"):
            path.unlink(missing_ok=True)


@pytest.fixture(scope="session", autouse=True)
def _only_this_machine() -> Iterator[None]:
    """No test speaks to another machine, or asks for its address."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo
    here = ("127.0.0.1", "::1", "localhost", None, "")

    def checked_connect(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] in here, f"a test asks {address}"
        connect(self, address)

    def checked_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        assert name in here, f"a test looks up {name}"
        return look_up(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", checked_connect)
        patch.setattr(socket, "getaddrinfo", checked_look_up)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Other people's recordings and texts, where the checkout has them beside it."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the shared data, which is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def real_base() -> Path:
    """The published Whisper base in transformers' layout."""
    weights = weights_folder()
    folders = [REPOSITORY.parent / "shared" / "models" / "whisper-base"]
    folders += [transformers_folder(weights)] if weights else []
    for folder in folders:
        if folder.is_dir():
            return folder
    pytest.skip(
        f"needs the published Whisper base, which is not at {' or '.join(map(str, folders))}"
    )


@pytest.fixture(scope="session")
def real_hub_cache() -> Path:
    """A Hugging Face cache with the published tiny.en and base, from the package index."""
    weights = weights_folder()
    if weights is None or not (cache := hub_cache_of(weights)).is_dir():
        pytest.skip("needs the published tiny.en, which `python -m tests.real_weights` fetches")
    return cache


@pytest.fixture(scope="session")
def whisper_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`write_whisper` into a folder of its own, once a session for the same arguments."""
    from tests.fixtures.checkpoints import write_whisper

    return _once(write_whisper, tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="session")
def marian_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`write_marian` into a folder of its own, once a session for the same arguments."""
    from tests.fixtures.checkpoints import write_marian

    return _once(write_marian, tmp_path_factory.mktemp("marian"))


@pytest.fixture(scope="session")
def many_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`write_many` into a folder of its own, once a session for the same arguments."""
    from tests.fixtures.checkpoints import write_many

    return _once(write_many, tmp_path_factory.mktemp("many"))


def _once(write: Callable[..., Path], root: Path) -> Callable[..., Path]:
    written: dict[str, Path] = {}

    def folder(shape: str, **options: Any) -> Path:
        key = f"{shape} {sorted(options.items())}"
        if key not in written:
            written[key] = write(root / f"{len(written)}" / shape, shape, **options)
        return written[key]

    return folder


@pytest.fixture(scope="session")
def pulse_microphone() -> Iterator[Any]:
    """A microphone (tests.fixtures.pulse.PulseMicrophone) into which tests speak recordings."""
    from tests.fixtures.pulse import missing, running_pulse

    if lacking := missing():
        if any(_environment.get(name) for name in ("CI", "EDGEAPP_CI")):
            pytest.fail(lacking)
        pytest.skip(lacking)
    with running_pulse() as microphone:
        yield microphone


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache, for this process and for those that it starts."""
    from huggingface_hub import constants

    cache = tmp_path / "hub-cache"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return cache


@pytest.fixture
def hub(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in hub (tests.fixtures.hub.Hub) that the client asks, with an empty cache."""
    from huggingface_hub import constants

    from tests.fixtures.hub import Hub

    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    # What the client worked out from HF_ENDPOINT when it was imported.
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def index(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in package index (tests.fixtures.index.Index) that pip asks, with an empty cache."""
    from tests.fixtures.index import Index

    server = Index()
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def unpaused_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafting is never paused or shortened, however long it takes: small random models lose time
    by it."""
    from pipelines.engine.decoding.speculative.timing import DraftTiming

    allows_drafts = DraftTiming.allows_drafts

    def unpaused(self: DraftTiming, sequences: int) -> bool:
        self._pause = 0
        return allows_drafts(self, sequences)

    monkeypatch.setattr(DraftTiming, "allows_drafts", unpaused)
    monkeypatch.setattr(DraftTiming, "best_length", lambda self, sequences: 16)
