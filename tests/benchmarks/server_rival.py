"""edgeapp serve beside faster-whisper behind FastAPI: `python -m tests.benchmarks.server_rival`.

Both serve the bundled demo model, in int8, with two threads; the rival reads the same weights after
CTranslate2's converter. The servers take turns at each number of clients, so that other programs
on the machine slow both down. CPU seconds are those of the server and its children, for each
request; memory is the server's resident set after the round.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from pipelines import SAMPLE_RATE, load_audio
from pipelines.hub import assets_folder, bundled_folder
from tests.benchmarks.server_load import measure

CLIENTS = (1, 4, 16, 64)
THREADS = 2
_WINDOW_FRAMES = 1_000  # of the demo model
_STARTS_S = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


def convert(folder: Path) -> None:
    """The demo model in CTranslate2's format."""
    from ctranslate2.converters import TransformersConverter

    copied = ["tokenizer.json", "preprocessor_config.json"]
    converter = TransformersConverter(str(bundled_folder("demo")), copy_files=copied)
    converter.convert(str(folder), quantization="int8")


def serve_rival(folder: Path, port: int) -> None:
    """faster-whisper behind FastAPI, as its users write it. Does not return."""
    import faster_whisper.transcribe as library
    import uvicorn
    from fastapi import FastAPI, Form, UploadFile
    from faster_whisper import WhisperModel

    # It would pad to 30 s, and the model has a window of 10 s.
    library.pad_or_trim = partial(library.pad_or_trim, length=_WINDOW_FRAMES)
    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=THREADS)
    app = FastAPI()

    def transcribe(file: UploadFile, model_name: str = Form(alias="model")) -> dict[str, str]:
        segments, _ = model.transcribe(file.file, language="en", vad_filter=True, beam_size=1)
        return {"text": "".join(segment.text for segment in segments).strip()}

    # Types of a function inside another one cannot be postponed.
    transcribe.__annotations__ = {"file": UploadFile, "model_name": str}
    app.post("/v1/audio/transcriptions")(transcribe)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own."""
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", *command], stderr=file, stdout=file)
    try:
        deadline = time.monotonic() + _STARTS_S
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except httpx.HTTPError:
                said = log.read_text("utf-8", "replace")
                assert process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(60)


def cpu_seconds(pid: int) -> float:
    """Of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def memory_mb(pid: int) -> float:
    """The resident set of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def free_port() -> int:
    """A TCP port where no server listens now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def compare(clients: list[int], requests: int) -> None:
    """Print a table."""
    path = assets_folder() / "samples" / "question.flac"
    audio, duration = path.read_bytes(), len(load_audio(path)) / SAMPLE_RATE
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        convert(folder / "model")
        os.environ["EDGEAPP_MODEL"] = "demo"
        os.environ["EDGEAPP_HISTORY"] = str(folder / "history.db")
        os.environ["HF_HUB_CACHE"] = str(folder / "no-models")
        servers: dict[str, Any] = {}
        for name in ("edgeapp", "faster-whisper"):
            port = free_port()
            command = (
                ["edgeapp", "serve", "--port", str(port), "--threads", str(THREADS)]
                if name == "edgeapp"
                else ["tests.benchmarks.server_rival", "--rival", str(folder / "model"), str(port)]
            )
            process = stack.enter_context(running(command, port, folder / f"{name}.log"))
            servers[name] = (f"http://127.0.0.1:{port}", process.pid)
            measure(servers[name][0], "whisper-1", audio, 1, 1)  # loads the model
        print("| clients | server | audio s / s | p50 s | p95 s | CPU s | lost | texts | MB |")
        print("|---|---|---|---|---|---|---|---|---|")
        for count in clients:
            for name, (url, pid) in servers.items():
                total = max(4, count * requests)
                before = cpu_seconds(pid)
                load, seconds = measure(url, "whisper-1", audio, count, total)
                used = (cpu_seconds(pid) - before) / total
                ordered = sorted(load.seconds) or [float("nan")]
                p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
                print(
                    f"| {count} | {name} | {len(load.seconds) * duration / seconds:.1f} "
                    f"| {statistics.median(ordered):.2f} | {p95:.2f} | {used:.2f} | {load.lost} "
                    f"| {len(load.texts)} | {memory_mb(pid):,.0f} |",
                    flush=True,
                )


def main() -> None:
    """Compare, or be the rival."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--requests", type=int, default=1, help="of each client")
    parser.add_argument("--rival", nargs=2, metavar=("FOLDER", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rival:
        serve_rival(Path(options.rival[0]), int(options.rival[1]))
    else:
        compare(options.clients, options.requests)


if __name__ == "__main__":
    main()
