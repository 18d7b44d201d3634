"""kill -9 at random moments, and bits that flip on the disk: what was acknowledged is there."""

from __future__ import annotations

import json
import random as randoms
import shutil
import signal
import sys
import wave
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import part
from tests.campaign.commands import SAMPLES, run_command
from tests.campaign.part import MB, Case, Failed, Limits
from tests.campaign.warm import import_all
from tests.fixtures.hub import Hub
from tests.hub.conftest import TINY, WEIGHTS, whisper_files

KINDS = ("database", "database", "database", "kernels", "kernels", "history", "pull", "live")
# Prints the number of each cue that is stored.
_WRITER = """
import sys
from pathlib import Path
from edgeapp.history import History
from pipelines.subtitles import Cue
with History(Path(sys.argv[1])) as history, history.recording("live") as journal:
    for number in range(100_000):
        journal.add(Cue(number, number + 1, f"cue {number} of many"))
        print(number, flush=True)
"""


class Campaign(part.Part):
    """Data: JSON with a seed and the moment in seconds."""

    name = "crash"
    limits = Limits(1200 * MB, 8192 * MB, cpu_s=90, wall_s=120)
    fixed = len(KINDS)

    def prepare(self) -> None:
        import_all()
        from edgeapp.history import History
        from pipelines.engine.kernels import loader
        from pipelines.subtitles import Cue

        self.database = self.folder / "whole.db"
        with History(self.database) as history:
            for number in range(40):
                with history.recording("live", title=f"talk {number}") as journal:
                    journal.extend([Cue(i, i + 1, f"word {number} {i}") for i in range(20)])
        level = loader.expected_isa()
        kernels = level and loader._cache_path(level)
        self.kernels = kernels if kernels and kernels.is_file() else None

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        kind = KINDS[seed % len(KINDS)]
        spec = {"seed": random.randrange(1 << 30), "at": round(random.uniform(0.2, 8.0), 3)}
        return Case(kind, json.dumps(spec).encode())

    def sample(self) -> list[Case]:
        return [case for case in map(self.generate, range(24)) if case.label in KINDS[:5]]

    def run(self, case: Case, folder: Path) -> str:
        spec = json.loads(case.data)
        return f"{case.label}: {getattr(self, f'_{case.label}')(spec, folder)}"

    def _database(self, spec: dict[str, Any], folder: Path) -> str:
        """A damaged database is repaired, replaced and kept aside, or refused with one line."""
        from edgeapp.history import History
        from pipelines.errors import OutputError

        path = folder / "history.db"
        damaged = _flipped(self.database.read_bytes(), Random(spec["seed"]))
        path.write_bytes(damaged)
        outcome, warnings = "works", list[str]()
        with History(path, warnings.append) as history:
            for work in (
                lambda: history.list(), lambda: history.search("word 3"), lambda: history.open(5),
                lambda: history.rename(3, "new"), lambda: history.delete(2),
                lambda: history.add_text("after the damage", "nach dem Schaden"),
                lambda: history.search("damage"), lambda: history.clear(),
            ):  # fmt: skip
                try:
                    work()
                except OutputError:
                    outcome = "OutputError"
        if any("\n" in line for line in warnings):
            raise Failed(f"not one line: {warnings}")
        aside = list(folder.glob("history.db.broken-*"))
        if warnings and any("kept as" in line for line in warnings) and not aside:
            raise Failed(f"nothing is kept aside: {warnings}")
        return "kept aside" if aside else outcome

    def _kernels(self, spec: dict[str, Any], folder: Path) -> str:
        """Machine code with a flipped bit is never loaded."""
        from pipelines.engine.kernels.code_cache import read_cached

        if self.kernels is None:
            raise part.Skipped("this machine has no compiled kernels")
        whole = self.kernels.read_bytes()
        copy = folder / "kernels" / self.kernels.name
        copy.parent.mkdir(mode=0o700)
        damaged = _flipped(whole, Random(spec["seed"]))
        copy.write_bytes(damaged)
        copy.chmod(0o600)
        if read_cached(copy) is not None and damaged != whole:
            raise Failed("damaged kernels are loaded")
        return "refused"

    def _history(self, spec: dict[str, Any], folder: Path) -> str:
        from edgeapp.history import History

        path = folder / "history.db"
        ended = run_command(
            [path], folder, program=(sys.executable, "-c", _WRITER),
            signals=[(2 + spec["at"] / 2, signal.SIGKILL)],
        )  # fmt: skip
        lines = ended.out.decode().split("\n")[:-1]
        if not lines:
            return "killed before the first cue"
        with History(path) as history:
            record = history.open(history.list()[0].id)
        assert record is not None
        stored = len(record.transcript.segments)
        if stored < len(lines):
            raise Failed(f"{len(lines)} cues were acknowledged, {stored} are stored")
        return "all cues stored"

    def _pull(self, spec: dict[str, Any], folder: Path) -> str:
        random = Random(spec["seed"])
        files = {**whisper_files(), WEIGHTS: randoms.Random(1).randbytes(3_000_000)}
        hub = Hub()
        hub.host_files(TINY, files)
        hub.cuts[WEIGHTS] = [random.randrange(3_000_000) for _ in range(3)]
        environment = {
            "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": str(folder / "cache"),
        }  # fmt: skip
        pull = ("models", "pull", "tiny")
        try:
            run_command(
                pull, folder, environment=environment, signals=[(spec["at"], signal.SIGKILL)]
            )
            ended = run_command(pull, folder, environment=environment)
        finally:
            hub.stop()
        if ended.code:
            raise Failed(f"the next pull ends with {ended.code}: {ended.said[-1500:]}")
        model = Path(ended.out.decode().strip())
        for file in model.iterdir():
            if file.read_bytes() != files[file.name]:
                raise Failed(f"{file.name} is not what the hub has")
        left = [p.name for p in (folder / "cache").rglob("*.incomplete")]
        if left:
            raise Failed(f"left behind: {left}")
        return "completed"

    def _live(self, spec: dict[str, Any], folder: Path) -> str:
        shutil.copy(SAMPLES / "story.flac", folder)
        run_command(
            ("live", "--from-file", "story.flac", "--speed", "8", "-m", "demo", "-o", "a.srt",
             "-o", "a.jsonl", "--save-audio", "a.wav", "--device", "cpu", "--threads", "1"),
            folder, signals=[(2 + spec["at"], signal.SIGKILL)],
        )  # fmt: skip
        if not (folder / "a.wav").exists():
            return "killed before it listened"
        with wave.open(str(folder / "a.wav")) as audio:
            if len(audio.readframes(audio.getnframes())) != 2 * audio.getnframes():
                raise Failed("the audio is shorter than its header says")
        text = (folder / "a.srt").read_text("utf-8")
        blocks = text.split("\n\n")
        if text and (blocks.pop() or not all(" --> " in b.split("\n")[1] for b in blocks)):
            raise Failed(f"an incomplete cue: {text[-300:]!r}")
        for line in (folder / "a.jsonl").read_text("utf-8").splitlines():
            json.loads(line)
        return f"{'cues' if blocks else 'no cue'} whole"


def _flipped(data: bytes, random: Random) -> bytes:
    """A copy with flipped bits, a blank page, or an end that is missing."""
    changed = bytearray(data)
    kind = random.choice(("bit", "bit", "bits", "head", "page", "end"))
    if kind == "end":
        return bytes(changed[: random.randrange(len(data))])
    if kind == "page":
        start = random.randrange(len(data)) & ~0xFFF
        changed[start : start + 4096] = bytes(len(changed[start : start + 4096]))
    for _ in range({"bits": 200, "page": 0}.get(kind, 1)):
        changed[random.randrange(100 if kind == "head" else len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)
