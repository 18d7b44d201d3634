"""Decoding in a child process: equal samples, limits, crashes and cancellation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from pipelines.asr.audio import fork_server, isolated
from pipelines.asr.audio.arrays import LoudAudio, SampleBuffer
from pipelines.asr.audio.decode import DamagedAudio, load_audio
from pipelines.asr.audio.isolated import DecodingCancelled, load_audio_isolated
from pipelines.errors import AudioError, LongAudio
from pipelines.hub import assets_folder
from tests.asr.audio.hostile import endless_wav, flac, flac_frame
from tests.conftest import REPOSITORY

TALK = assets_folder() / "samples" / "talk.flac"
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux'")


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.slow)])
def children(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes, forked or started, none of which may outlive its call."""
    started: list[subprocess.Popen[bytes]] = []
    start = isolated._start_child
    if request.param == "started":
        monkeypatch.setattr(isolated, "fork_child", lambda *_: None)

    def noted() -> subprocess.Popen[bytes]:
        started.append(start())
        return started[-1]

    monkeypatch.setattr(isolated, "_start_child", noted)
    yield started
    assert started
    assert all(child.returncode is not None for child in started)


@pytest.fixture
def in_the_middle(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has something done once, when a minute has been decoded."""

    def arrange(act: Callable[[], None]) -> None:
        append = SampleBuffer.append

        def appending(self: SampleBuffer, block: Any) -> None:
            before = self.length
            append(self, block)
            if before < 60 * 16_000 <= self.length:
                act()

        monkeypatch.setattr(SampleBuffer, "append", appending)

    return arrange


def test_samples_are_the_same(tmp_path: Path, children: list[Any]) -> None:
    tone = 0.3 * np.sin(np.arange(3 * 44_100) / 20)
    stereo = tmp_path / "stereo.wav"
    soundfile.write(stereo, np.stack([tone, -tone / 2], axis=1), 44_100)
    for path in (TALK, stereo):
        np.testing.assert_array_equal(load_audio_isolated(path), load_audio(path))


def test_messages_use_the_given_name(tmp_path: Path, children: list[Any]) -> None:
    """Names come from strangers: they may hold anything."""
    name = 'so\0\n"ng" \udcff ü.mp3'
    for content, reason in ((b"", "is empty"), (flac(4, [flac_frame(0)]), "sample rate of 4 Hz")):
        path = tmp_path / "secret"
        path.write_bytes(content)
        with pytest.raises(AudioError, match=reason) as caught:
            load_audio_isolated(path, name=name)
        assert str(caught.value).startswith(name)
        assert "secret" not in str(caught.value)
    with pytest.raises(AudioError, match="there is no such file") as caught:
        load_audio_isolated(tmp_path / "missing", name=name)
    assert str(tmp_path) not in str(caught.value)


def test_warnings_are_passed_on(tmp_path: Path, children: list[Any]) -> None:
    broken, loud = tmp_path / "broken.flac", tmp_path / "loud.wav"
    broken.write_bytes(TALK.read_bytes()[:100_000])
    soundfile.write(loud, 1e20 * np.sin(np.arange(16_000) / 9), 16_000, subtype="FLOAT")
    with pytest.warns(DamagedAudio, match="it is damaged or breaks off"):
        load_audio_isolated(broken, name="it")
    told: list[tuple[str, type[Warning]]] = []
    samples = load_audio_isolated(loud, name="it", warned=lambda *one: told.append(one))
    assert float(np.abs(samples).max()) == 1.0
    assert [category for _, category in told] == [LoudAudio]
    assert told[0][0].startswith("it has samples up to 1e+20")


def test_max_duration_s_is_enforced(tmp_path: Path, children: list[Any]) -> None:
    with pytest.raises(LongAudio, match="lasts more than 5 s") as caught:
        load_audio_isolated(TALK, max_duration_s=5)
    assert caught.value.announced_s == pytest.approx(23.9, abs=0.05)


@linux
def test_memory_has_a_limit(children: list[Any]) -> None:
    with pytest.raises(
        AudioError, match="it needs more memory|it cannot be decoded: .* out of memory"
    ):
        load_audio_isolated(TALK, name="it", memory_bytes=100 << 20)


def test_time_has_a_limit(tmp_path: Path, children: list[Any]) -> None:
    began = time.monotonic()
    with pytest.raises(AudioError, match=r"it takes more than 0\.5 s to be decoded"):
        load_audio_isolated(endless_wav(tmp_path), name="it", time_s=0.5)
    assert time.monotonic() - began < 60


@linux
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGSEGV, "it cannot be decoded: the decoder crashes on it"),
        (signal.SIGABRT, "it cannot be decoded: the decoder crashes on it"),
        (signal.SIGKILL, "it was not decoded: the system ended the decoder"),
        (signal.SIGXCPU, "it takes more than 600 s"),
    ],
)
def test_a_crash_is_an_error_of_that_input(
    tmp_path: Path, children: list[Any], in_the_middle: Any, number: int, reason: str
) -> None:
    in_the_middle(lambda: os.kill(children[0].pid, number))
    with pytest.raises(AudioError, match=reason):
        load_audio_isolated(endless_wav(tmp_path), name="it")
    assert children[0].returncode == -number


def test_cancelling_ends_the_child_at_once(
    tmp_path: Path, children: list[Any], in_the_middle: Any
) -> None:
    cancelled, when = threading.Event(), []

    def cancel() -> None:
        when.append(time.monotonic())
        cancelled.set()

    in_the_middle(cancel)
    with pytest.raises(DecodingCancelled):
        load_audio_isolated(endless_wav(tmp_path), cancelled=cancelled.is_set)
    assert time.monotonic() - when[0] < 20, "the file has no end"


def test_an_interruption_ends_the_child(
    tmp_path: Path, children: list[Any], in_the_middle: Any
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    in_the_middle(interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_audio_isolated(endless_wav(tmp_path))


def test_invalid_frames_count_as_a_crash(
    monkeypatch: pytest.MonkeyPatch, children: list[Any]
) -> None:
    for frame in (
        b"S\xff\xff\xff\xff",
        b"Z\0\0\0\0",
        b"M\2\0\0\0[]",
        b"M\2\0\0\0{}",
        b"M\1\0\0\0{",
        b"S\3\0\0\0abc",
        b"S",
    ):
        answer = f"import sys; sys.stdin.readline(); sys.stdout.buffer.write({frame!r})"

        def start(answer: str = answer) -> subprocess.Popen[bytes]:
            child = subprocess.Popen(
                [sys.executable, "-c", answer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            children.append(child)
            return child

        monkeypatch.setattr(isolated, "_start_child", start)
        with pytest.raises(AudioError, match="it cannot be decoded"):
            load_audio_isolated(TALK, name="it")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="children are not forked here")
def test_a_server_that_was_killed_is_replaced() -> None:
    first = load_audio_isolated(TALK)
    (server,) = fork_server._servers.values()
    before = server._process
    assert before is not None
    before.kill()
    before.wait()
    np.testing.assert_array_equal(load_audio_isolated(TALK), first)
    assert server._process is not before


def test_the_child_loads_no_torch() -> None:
    code = "import sys, pipelines.asr.audio.isolated; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
