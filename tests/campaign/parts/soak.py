"""Many sessions in one process: memory, threads and descriptors do not grow.

`SOAK_S=600 python -m tests.campaign.worker soak --seed 4 --cases 1` asks a server in all
ways for ten minutes.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from tests.campaign import part
from tests.campaign.clients import Clients
from tests.campaign.commands import SAMPLES
from tests.campaign.part import MB, Case, Failed, Limits
from tests.campaign.sandbox import sandbox
from tests.campaign.warm import import_all
from tests.fixtures.browser import serving

KINDS = ("sockets", "sessions", "live", "texts", "requests")
# Sessions of a case, and what they may add between their second and their last third: MB, threads,
# descriptors.
SIZES = {
    "sockets": (300, 12.0, 1, 2),
    "sessions": (1500, 6.0, 1, 2),
    "live": (24, 40.0, 1, 2),
    "texts": (120, 25.0, 1, 2),
    "requests": (10_000, 12.0, 4, 4),
}
_MOST_S = 300.0  # of a case, which then has fewer sessions
_SECONDS = "SOAK_S"  # environment variable: another time


class Campaign(part.Part):
    """Data: JSON with the number of sessions and a seed."""

    name = "soak"
    limits = Limits(1500 * MB, 8192 * MB, cpu_s=400, wall_s=1200)
    fixed = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = ExitStack()

    def prepare(self) -> None:
        import_all()
        if self.sampling:
            return
        environment = sandbox(self.folder / "home")
        options = ("--device", "cpu", "--threads", "1")
        log = self.folder / "server.log"
        self.server = self._stack.enter_context(serving(environment, *options, log=log))

    def close(self) -> None:
        self._stack.close()

    def generate(self, seed: int) -> Case:
        kind = KINDS[seed % len(KINDS)]
        spec = {"count": SIZES[kind][0], "seed": seed}
        return Case(kind, json.dumps(spec).encode())

    def sample(self) -> list[Case]:
        return [Case("sessions", json.dumps({"count": 60, "seed": 0}).encode())]

    def run(self, case: Case, folder: Path) -> str:
        spec = json.loads(case.data)
        ends = time.monotonic() + float(os.environ.get(_SECONDS, _MOST_S))
        pid, one = getattr(self, f"_{case.label}")(Random(spec["seed"]), folder)
        measured = []
        for _ in range(spec["count"]):
            one()
            measured.append(_measure(pid))
            if time.monotonic() > ends:
                break
        third = len(measured) // 3
        names, grown = ("MB", "threads", "descriptors"), []
        for i in range(3):
            middle = median(row[i] for row in measured[third : 2 * third])
            grown.append(median(row[i] for row in measured[2 * third :]) - middle)
        more = ", ".join(f"{g:+.1f} {name}" for g, name in zip(grown, names, strict=True))
        outcome = f"{len(measured)} {case.label} add {more}, at {measured[-1][0]:.0f} MB"
        if any(g > most for g, most in zip(grown, SIZES[case.label][1:], strict=True)):
            raise Failed(outcome)
        return outcome

    def _sockets(self, random: Random, folder: Path) -> tuple[int, Callable[[], None]]:
        """Tabs of the real server that are opened, ask, and are closed or break off."""
        from websockets.sync.client import connect

        port = urlsplit(self.server.url).port

        def one() -> None:
            tab: Any = connect(
                f"ws://127.0.0.1:{port}/edgeapp/session", origin=f"http://127.0.0.1:{port}",
                proxy=None,
            )  # fmt: skip
            tab.recv(20)
            tab.send(json.dumps({"type": random.choice(("models", "history")), "id": 1}))
            if random.random() < 0.5:
                tab.recv(20)
            if random.random() < 0.3:
                tab.socket.close()
            tab.close()

        return self.server.process.pid, one

    def _requests(self, random: Random, folder: Path) -> tuple[int, Callable[[], None]]:
        """Requests of programs to the real server, in all ways, of which some are left."""
        return self.server.process.pid, Clients(self.server.url, random).ask

    def _sessions(self, random: Random, folder: Path) -> tuple[int, Callable[[], None]]:
        """Sessions with tasks that are cancelled, in this process, and their history."""
        from edgeapp.history import History
        from edgeapp.server.sessions import Session, Sessions
        from pipelines.subtitles import Cue
        from tests.edgeapp.server.test_sessions import Work

        sessions, history = Sessions(4), History(folder / "history.db")

        def one() -> None:
            session, work = Session(sessions, lambda message: None), Work()
            session.start(work)
            work.begun.wait(20)
            with history.recording("live") as journal:
                journal.add(Cue(0, 1, "a cue"))
            history.delete(journal.id or 0)
            session.cancel("live") if random.random() < 0.5 else session.stop("live")
            session.close()
            if not session.wait(20) or sessions.running:
                raise Failed("a closed session runs on")

        return os.getpid(), one

    def _live(self, random: Random, folder: Path) -> tuple[int, Callable[[], None]]:
        """Live sessions with one model, of which some are left in the middle."""
        from edgeapp.live.session import LiveSession
        from edgeapp.live.sources import FileSource
        from edgeapp.live.speech_channel import SpeechChannel
        from edgeapp.model_pool import ModelPool
        from edgeapp.settings import Settings
        from pipelines import LiveOptions, LiveTranscriber, load_audio

        pool = ModelPool(Settings(device="cpu", threads=1))
        transcriber, samples = pool.transcriber("demo", "en"), load_audio(SAMPLES / "question.flac")

        def one() -> None:
            session = LiveSession(SpeechChannel(LiveTranscriber(transcriber, LiveOptions())))
            left = random.choice((3, 1000))
            events: Any = session.run(FileSource(samples, speed=0))
            for number, _ in enumerate(events):
                if number >= left:
                    break
            events.close()
            gc.collect()

        return os.getpid(), one

    def _texts(self, random: Random, folder: Path) -> tuple[int, Callable[[], None]]:
        """Translations with one model, of which some are left in the middle."""
        from pipelines import TranslateOptions, Translator

        translator = Translator("demo-en-de", device="cpu", threads=1)

        def one() -> None:
            words = " ".join(random.choice(("coffee", "train", "the", "is")) for _ in range(8))
            events: Any = translator.stream(f"Where is the {words}?", TranslateOptions())
            for number, _ in enumerate(events):
                if number > 3 and random.random() < 0.1:
                    break
            events.close()
            gc.collect()

        return os.getpid(), one


def _measure(pid: int) -> tuple[float, int, int]:
    """(resident MB, threads, descriptors) of a process."""
    folder = Path(f"/proc/{pid}")
    resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    tasks, files = (len(list((folder / name).iterdir())) for name in ("task", "fd"))
    return resident / MB, tasks, files
