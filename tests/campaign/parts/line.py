"""A live session whose line is cut again and again: no sound is lost, no caption comes twice.

Sessions of 1, 4, 15 and 60 minutes, whose sound is sent as fast as the server takes it; then one of
an hour in real time; each as far as the part's time allows:

    python -m tests.campaign --parts line --hours 1    # with the hour, faster than real time
    python -m tests.campaign --parts line --hours 2    # and with the hour in real time
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.campaign import part
from tests.campaign.commands import SAMPLES
from tests.campaign.part import MB, Case, Failed, Limits
from tests.campaign.sandbox import sandbox
from tests.campaign.warm import import_all
from tests.fixtures.browser import serving

RATE = 16_000  # Hz
CUTS = 10
WINDOW_S, BLOCK_S = 30, 1  # as in live-line.js
MINUTES = (1, 4, 15, 60)  # of the first cases
SPARE = 1.2  # of the time that a session of this length took at the speed of the one before
START_S = 30.0  # beyond its sound: of a session in real time
WAITS_S = 120.0
DEVIATION = 0.15  # of the number of words from what was said: recognition errs, too


class Campaign(part.Part):
    """Data: JSON with the seconds of sound, the number of cuts, a seed, and whether the sound is
    sent in real time."""

    name = "line"
    limits = Limits(1500 * MB, 8192 * MB, cpu_s=600, wall_s=7200)
    fixed = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = ExitStack()
        self._made = 0
        self._minutes, self._began = 0, 0.0  # of the latest case

    def prepare(self) -> None:
        import_all()
        options = ("--device", "cpu", "--threads", "1")
        log = self.folder / "server.log"
        environment = sandbox(self.folder / "home")
        server = self._stack.enter_context(serving(environment, *options, log=log))
        self.port = urlsplit(server.url).port

    def close(self) -> None:
        self._stack.close()

    def generate(self, seed: int) -> Case:
        now = time.monotonic()
        left_s, took_s = self.ends_at - now, now - self._began
        real_time = self._made == len(MINUTES) and left_s > 3600 + START_S
        # Longer and longer, while there is time for it at the speed of the case before.
        size = min(self._made, len(MINUTES) - 1)
        while size and not real_time and left_s * self._minutes < SPARE * took_s * MINUTES[size]:
            size -= 1
        self._made += 1
        self._minutes, self._began = MINUTES[size], now
        spec = {
            "seconds": 60 * self._minutes, "cuts": CUTS, "seed": seed, "real_time": real_time,
        }  # fmt: skip
        label = f"{self._minutes}-minutes{'-in-real-time' * real_time}"
        return Case(label, json.dumps(spec).encode())

    def sample(self) -> list[Case]:
        return [Case("short", json.dumps({"seconds": 24, "cuts": 3, "seed": 0}).encode())]

    def run(self, case: Case, folder: Path) -> str:
        import numpy as np

        from pipelines import load_audio

        spec = json.loads(case.data)
        story = (load_audio(SAMPLES / "story.flac") * 32767).astype("<i2")
        sound = np.resize(story, spec["seconds"] * RATE)
        random = Random(spec["seed"])
        cuts = sorted(random.randrange(len(sound)) for _ in range(spec["cuts"]))
        line = _Line(self.port, sound, real_time=spec.get("real_time", False))
        for cut in cuts:
            line.send_until(cut)
            line.cut(silent=random.random() < 0.5)
        line.send_until(len(sound))
        line.finish()
        if abs(line.heard_s - spec["seconds"]) > 0.1:
            raise Failed(f"{line.heard_s} of {spec['seconds']} s were recognized")
        words = " ".join(line.texts).split()
        once = (SAMPLES / "story.txt").read_text("utf-8").split()
        expected = len(once) * len(sound) / len(story)
        if abs(len(words) / expected - 1) > DEVIATION:
            raise Failed(f"{len(words)} words instead of some {expected:.0f}")
        return f"{spec['cuts']} cuts"


class _Line:
    """What live-line.js does: sends sound, keeps what is not confirmed, and resumes.

    Args:
        port: Of the server.
        sound: All samples, 16 bit.
        real_time: Send them as they would be spoken, not as fast as the server takes them.
    """

    def __init__(self, port: int | None, sound: Any, *, real_time: bool) -> None:
        self._port, self._sound, self._real_time = port, sound, real_time
        self._began = time.monotonic()
        self.sent = self.taken = 0  # samples
        self.heard_s = 0.0  # at the end: how much was recognized
        self.texts: list[str] = []
        self._lines: dict[int, str] = {}
        self._ended = False
        self._socket, self._token = self._connect()
        message = {"type": "live", "language": "en", "rate": RATE, "resumable": True, "keep": False}
        self._socket.send(json.dumps(message))

    def _connect(self) -> tuple[Any, str]:
        from websockets.sync.client import connect

        origin = f"http://127.0.0.1:{self._port}"
        socket = connect(
            f"ws://127.0.0.1:{self._port}/edgeapp/session", origin=origin, proxy=None,
            max_size=None,
        )  # fmt: skip
        hello = json.loads(socket.recv(WAITS_S))
        return socket, hello["session"]

    def send_until(self, position: int) -> None:
        """Send sound up to a position, at most `WINDOW_S` ahead of recognition."""
        while self.sent < position:
            end = min(position, self.sent + BLOCK_S * RATE)
            wait_s = self._began + end / RATE - time.monotonic() if self._real_time else 0.0
            if wait_s > 0:  # it is not spoken yet
                time.sleep(wait_s)
            if self.sent - self.taken < WINDOW_S * RATE:
                self._socket.send(self._sound[self.sent : end].tobytes())
                self.sent = end
                self._take(0.0)
            else:
                self._take(WAITS_S)

    def cut(self, *, silent: bool) -> None:
        """Lose the connection, which the server may not notice, and go on with another one."""
        lost, token = self._socket, self._token
        if not silent:
            lost.socket.close()
        self._socket, self._token = self._connect()
        self._socket.send(json.dumps({"type": "resume", "session": token}))
        deadline = time.monotonic() + WAITS_S
        while True:
            message = json.loads(self._socket.recv(max(0.1, deadline - time.monotonic())))
            if message["type"] == "not_resumed":
                raise Failed("the session was not resumed")
            if message["type"] == "live_resumed":
                break
        if silent:
            lost.socket.close()
        self.sent, self.taken = message["received"], message["taken"]
        self._lines = {line["id"]: line["text"] for line in message["lines"]}

    def finish(self) -> None:
        """End the session, and wait for the rest."""
        self._socket.send(json.dumps({"type": "stop", "kind": "live"}))
        while not self._ended:
            self._take(WAITS_S)
        self.texts = list(self._lines.values())
        self._socket.close()

    def _take(self, wait_s: float) -> None:
        """Handle the messages that are there; the first one within `wait_s`, or TimeoutError."""
        while True:
            try:
                message = json.loads(self._socket.recv(wait_s))
            except TimeoutError:
                if wait_s:
                    raise Failed(f"no message within {wait_s:.0f} s") from None
                return
            wait_s = 0.0
            kind = message["type"]
            if kind == "live_line":
                self._lines[message["id"]] = message["text"]
            elif kind == "live_status":
                self.taken = message["taken"]
            elif kind == "live_ended":
                self.heard_s = message["time"]
            elif kind == "error":
                raise Failed(message["message"])
            elif kind == "idle":
                self._ended = True
                return
