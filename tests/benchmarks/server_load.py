"""Many clients at once: `python -m tests.benchmarks.server_load URL [FILE]`.

Each client sends one recording after another to /v1/audio/transcriptions of a server that speaks
OpenAI's interface (edgeapp serve, speaches, faster-whisper-server): 1 to 64 clients. A reply of 429
is tried again after its Retry-After. For each number of clients: throughput in seconds of
recordings per second, median and 95 % of the duration of a request, and lost requests.
"""

from __future__ import annotations

import argparse
import re
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from pipelines import SAMPLE_RATE, load_audio
from pipelines.hub import assets_folder

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
_TIMEOUT_S = 600.0


@dataclass
class Load:
    """What clients measured.

    Attributes:
        seconds: Of each request, from its first attempt to its reply.
        refused: Replies with 429, which were tried again.
        lost: Requests without a transcript.
        texts: All different replies.
    """

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    lost: int = 0
    texts: set[str] = field(default_factory=set)


def measure(url: str, model: str, audio: bytes, clients: int, requests: int) -> tuple[Load, float]:
    """Send recordings from many clients.

    Args:
        url: Of the server.
        model: The model to name.
        audio: A recording, in any format.
        clients: How many send at the same time.
        requests: How many they send together.

    Returns:
        What they measured, and the seconds that all took.
    """
    load, lock = Load(), threading.Lock()
    left = requests

    def take() -> bool:
        nonlocal left
        with lock:
            left -= 1
            return left >= 0

    def send() -> None:
        with httpx.Client(base_url=url, timeout=_TIMEOUT_S) as client:
            while take():
                began, text = time.monotonic(), None
                while time.monotonic() - began < _TIMEOUT_S:
                    try:
                        reply = client.post(
                            "/v1/audio/transcriptions",
                            files={"file": ("a.flac", audio)},
                            data={"model": model},
                        )
                    except httpx.HTTPError:
                        break
                    if reply.status_code == 429:
                        with lock:
                            load.refused += 1
                        time.sleep(float(reply.headers.get("retry-after", 1)))
                        continue
                    text = reply.json()["text"] if reply.status_code == 200 else None
                    break
                with lock:
                    if text is None:
                        load.lost += 1
                    else:
                        load.seconds.append(time.monotonic() - began)
                        load.texts.add(text)

    began = time.monotonic()
    threads = [threading.Thread(target=send) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return load, time.monotonic() - began


def memory_mb(url: str) -> str:
    """The memory of an EdgeApp server, from its metrics; "-" of another one."""
    try:
        text = httpx.get(f"{url}/metrics", timeout=10).text
    except httpx.HTTPError:
        return "-"
    match = re.search(r"^edgeapp_memory_bytes (\S+)$", text, re.MULTILINE)
    return f"{float(match[1]) / (1 << 20):,.0f}" if match else "-"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", default="whisper-1")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--requests", type=int, default=2, help="of each client")
    options = parser.parse_args()
    url = options.url.rstrip("/")
    path = options.file or assets_folder() / "samples" / "question.flac"
    audio, duration = path.read_bytes(), len(load_audio(path)) / SAMPLE_RATE
    measure(url, options.model, audio, 1, 1)  # loads the model
    print("| clients | audio s / s | p50 s | p95 s | 429 | lost | texts | MB |")
    print("|---|---|---|---|---|---|---|---|")
    for clients in options.clients:
        requests = clients * options.requests
        load, seconds = measure(url, options.model, audio, clients, requests)
        ordered = sorted(load.seconds) or [float("nan")]
        p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        print(
            f"| {clients} | {len(load.seconds) * duration / seconds:.1f} "
            f"| {statistics.median(ordered):.2f} | {p95:.2f} | {load.refused} | {load.lost} "
            f"| {len(load.texts)} | {memory_mb(url)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
