"""A pass over several windows is divided, so that others wait for one window of it at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest
import torch

from pipelines.engine import EncodedSource, Engine, GenerationOptions, LoadedModel, Request, Stream
from tests.engine.conftest import mel_source

LIVE, BATCH = 0, 3
LENGTH = 5


@pytest.fixture
def passes(whisper: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The model's passes in their order: "encode" or "decode"."""
    done: list[str] = []

    def counted(name: str) -> None:
        compute = getattr(whisper.backend, name)

        def wrapped(*args: object) -> object:
            done.append(name)
            return compute(*args)

        monkeypatch.setattr(whisper.backend, name, wrapped)

    counted("encode")
    counted("decode")
    return done


def meanwhile(
    whisper: LoadedModel, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]
) -> None:
    """Something happens during the next pass of the encoder."""
    encode, left = whisper.backend.encode, [happens]

    def wrapped(sources: Sequence[object]) -> list[EncodedSource]:
        while left:
            left.pop()()
        return encode(sources)

    monkeypatch.setattr(whisper.backend, "encode", wrapped)


def live_request(whisper: LoadedModel) -> Request:
    (encoded,) = whisper.encode([mel_source(whisper, 9)])
    options = GenerationOptions(max_new_tokens=LENGTH)
    return Request(encoded, (whisper.architecture.start_id,), options, priority=LIVE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("priority", "order"),
    [
        (BATCH, ["encode", *["decode"] * LENGTH, "encode", "encode"]),
        (LIVE, ["encode", "encode", "encode"]),
    ],
    ids=["batch", "live"],
)
def test_more_urgent_requests_end_before_the_next_window(
    engine: Engine,
    whisper: LoadedModel,
    passes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    priority: int,
    order: list[str],
) -> None:
    windows = [mel_source(whisper, seed) for seed in range(3)]
    alone = [whisper.encode([window])[0] for window in windows]
    request, streams = live_request(whisper), list[Stream]()
    expected = engine.generate([request])[0].tokens
    meanwhile(whisper, monkeypatch, lambda: streams.append(engine.stream(request)))
    passes.clear()
    found = whisper.encode(windows, priority)
    assert passes == order
    for ours, own in zip(found, alone, strict=True):
        assert all(map(torch.equal, ours.keys, own.keys))
        assert all(map(torch.equal, ours.values, own.values))
    assert streams[0].result().tokens == expected


def test_the_window_of_another_caller_comes_between(
    whisper: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = [mel_source(whisper, seed) for seed in range(4)]
    encode, encoded = whisper.backend.encode, list[int]()
    scheduler, threads = whisper._scheduler, list[threading.Thread]()

    def noted(sources: Sequence[torch.Tensor]) -> list[EncodedSource]:
        encoded.extend(i for i, each in enumerate(windows) for s in sources if s is each)
        return encode(sources)

    def other_caller() -> None:
        threads.append(threading.Thread(target=whisper.encode, args=([windows[3]],)))
        threads[0].start()
        deadline = time.monotonic() + 60
        while not scheduler._jobs and time.monotonic() < deadline:
            time.sleep(0.001)

    monkeypatch.setattr(whisper.backend, "encode", noted)
    meanwhile(whisper, monkeypatch, other_caller)
    whisper.encode(windows[:3], BATCH)
    threads[0].join()
    assert encoded == [0, 3, 1, 2]
