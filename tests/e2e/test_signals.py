"""SIGINT, SIGTERM and SIGHUP end every command in the same way, and leave no temporary files."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.hub import assets_folder
from tests.e2e.conftest import FRESH
from tests.fixtures.hub import Answer, Hub
from tests.hub.conftest import TINY, WEIGHTS, whisper_files

STORY = assets_folder() / "samples" / "story.flac"

# Command → its arguments, the stream and the beginning of the line that tells that it works.
COMMANDS = {
    "transcribe": ("transcribe LONG -m demo -f srt,txt -o out --verbose True", "out", "["),
    "translate": ("translate many.txt -m demo-en-de", "out", "Guten"),
    "live": (f"live --from-file {STORY} -m demo -o live.txt", "out", ""),
    "ui": ("ui --no-open --port 0", "err", "edgeapp: the page is at"),
    "pull": ("models pull tiny", "hub", ""),
    "bench": ("bench live -m demo", "err", ""),
    "demo": ("demo", "err", "edgeapp: models loaded"),
}
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
CODES = {"live": (0,), "ui": (0, 130)}  # it ends as if the audio did; the page is no failure
LONGEST_S = 400


@pytest.fixture
def slow_hub() -> Iterator[Hub]:
    """A hub that never sends the end of the weights."""
    hub = Hub()
    hub.host_files(TINY, whisper_files())

    def drip() -> Iterator[bytes]:
        while True:
            yield b"x" * 1000
            time.sleep(0.2)

    size = str(len(whisper_files()[WEIGHTS]))
    hub.answers[WEIGHTS] = Answer(body=drip(), headers={"Content-Length": size})
    yield hub
    hub.stop()


# Each command meets one signal; the campaign sends every signal at random moments. The page and
# live work have handlers of their own.
_PAIRS = [(name, SIGNALS[index % len(SIGNALS)]) for index, name in enumerate(COMMANDS)]
_PAIRS += [(name, number) for name in ("live", "ui") for number in SIGNALS]
# These import what they need themselves; for "pull", libraries read settings then.
_FRESH = {("transcribe", signal.SIGINT), ("ui", signal.SIGTERM), ("pull", signal.SIGTERM)}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=f"{name}-{number.name}")
        for name, number in dict.fromkeys(_PAIRS)
    ],
)
def test_a_signal_ends_the_command(
    name: str,
    number: signal.Signals,
    tmp_path: Path,
    environment: dict[str, str],
    long_recording: Path,
    slow_hub: Hub,
    program: list[str],
) -> None:
    arguments, stream, beginning = COMMANDS[name]
    (tmp_path / "many.txt").write_text("Good morning.\n" * 50_000)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    if name == "pull":
        del environment["HF_HUB_OFFLINE"]
        environment["HF_ENDPOINT"] = slow_hub.url
    process = subprocess.Popen(
        [
            *(FRESH if (name, number) in _FRESH else program),
            *arguments.replace("LONG", str(long_recording)).split(),
        ],
        cwd=tmp_path,
        env=environment | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What is ignored outside, as under nohup, would stay ignored.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    lines: dict[str, list[str]] = {"out": [], "err": []}
    readers = [
        threading.Thread(target=lines[key].extend, args=(pipe,))
        for key, pipe in (("out", process.stdout), ("err", process.stderr))
    ]
    for reader in readers:
        reader.start()
    try:
        deadline = time.monotonic() + LONGEST_S

        def works() -> bool:
            if stream == "hub":
                return slow_hub.sent.get(WEIGHTS, 0) > 5000
            return any(line.startswith(beginning) for line in list(lines[stream]))

        while not works() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None, lines
        process.send_signal(number)
        code = process.wait(LONGEST_S)
    finally:
        process.kill()
        for reader in readers:
            reader.join()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
    said = "".join(lines["err"])
    assert "Traceback" not in said, said
    assert "Exception" not in said, said
    assert code in CODES.get(name, (130,)), said
    assert list(temporary.iterdir()) == []
    if name == "live":
        assert (tmp_path / "live.txt").exists()
    if name == "pull":
        (partial,) = Path(environment["HF_HUB_CACHE"]).rglob("*.incomplete")
        assert partial.stat().st_size
    assert not [path for path in tmp_path.rglob("*.tmp") if path.is_file()]
