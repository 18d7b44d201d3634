"""kill -9 and SIGTERM at random moments of batch work: the next run ends with equal files."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from random import Random

from tests.campaign import part
from tests.campaign.commands import SAMPLES, run_fork
from tests.campaign.part import MB, Case, Failed, Limits
from tests.campaign.warm import import_all

KINDS = ("lines", "subtitles", "transcribe", "watch")
_SAMPLED = ("lines", "subtitles", "watch")
_FLAGS = ("--compute-type", "int8", "--device", "cpu", "--threads", "1")
_TRANSLATE = ("translate", "in", "-o", "out", "-m", "demo-en-de", *_FLAGS)
COMMANDS = {
    "lines": _TRANSLATE,
    "subtitles": _TRANSLATE,
    "transcribe": ("transcribe", "in", "-o", "out", "-m", "demo", "-f", "json,srt",
                   "--translate-to", "de", "--batch-size", "2", *_FLAGS),
    "watch": ("watch", "in", "out", "--once", "--settle", "0.1", "-m", "demo", "-f", "srt",
              "--translate-to", "de", *_FLAGS),
}  # fmt: skip
_WORDS = ("apples", "trains", "letters", "houses", "coffee", "rain", "music", "books")


_KILLS = 3  # of a case


class Campaign(part.Part):
    """Data: JSON with the moments, as shares of the work of a run without kills, and the signals.

    The fixed seeds have thirty kills and more of each verb.
    """

    name = "kills"
    limits = Limits(1200 * MB, 8192 * MB, cpu_s=240, wall_s=2000)
    fixed = 12 * len(KINDS)

    def prepare(self) -> None:
        import_all()
        self.expected: dict[str, dict[str, bytes]] = {}
        self.whole_cpu_s: dict[str, float] = {}
        for kind in _SAMPLED if self.sampling else KINDS:
            folder = self.folder / f"whole-{kind}"
            _fill(kind, folder / "in")
            ended = run_fork(
                COMMANDS[kind], folder, environment=_environment(folder), timeout_s=500
            )
            if ended.code:
                raise Failed(f"{kind}: without a kill it ends with {ended.code}: {ended.said}")
            self.whole_cpu_s[kind] = ended.cpu_s
            self.expected[kind] = _contents(folder / "out")

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        moments = [random.uniform(0.1, 1.0) for _ in range(_KILLS)]
        most = random.uniform(0.3, 0.9) / sum(moments)  # so that each comes before the end
        signals = (signal.SIGKILL, signal.SIGTERM)
        kills = [(round(most * moment, 3), random.choice(signals)) for moment in moments]
        return Case(KINDS[seed % len(KINDS)], json.dumps({"kills": kills}).encode())

    def sample(self) -> list[Case]:
        """Three kills of each verb but `transcribe`, of which tests/e2e/test_resume.py has them."""
        kills = [(0.4, signal.SIGKILL), (0.2, signal.SIGTERM), (0.3, signal.SIGKILL)]
        return [Case(kind, json.dumps({"kills": kills}).encode()) for kind in _SAMPLED]

    def run(self, case: Case, folder: Path) -> str:
        _fill(case.label, folder / "in")
        command, killed = COMMANDS[case.label], 0
        for share, number in json.loads(case.data)["kills"]:
            ended = run_fork(
                command, folder, environment=_environment(folder),
                kill=(share * self.whole_cpu_s[case.label], number), timeout_s=500,
            )  # fmt: skip
            killed += ended.signalled
            if b"Traceback" in ended.err:
                raise Failed(f"after signal {number}: {ended.said[-1500:]}")
            for path in (folder / "out").rglob("*"):
                whole = self.expected[case.label].get(path.relative_to(folder / "out").as_posix())
                known = path.is_dir() or path.suffix in (".part", ".tmp")
                if not known and path.read_bytes() != whole:
                    raise Failed(f"{path.name} is not whole after a kill")
        ended = run_fork(command, folder, environment=_environment(folder), timeout_s=500)
        if ended.code:
            raise Failed(f"the next run ends with {ended.code}: {ended.said[-1500:]}")
        found = _contents(folder / "out")
        if found != self.expected[case.label]:
            raise Failed(f"the outputs differ: {sorted(found)}")
        return f"{case.label}: equal after {killed} kills"


def _fill(kind: str, folder: Path) -> None:
    """Inputs of some seconds of work."""
    folder.mkdir(parents=True)
    random = Random(kind)
    lines = [
        f"Tom has {number} green {random.choice(_WORDS)} and likes them {random.choice(_WORDS)}."
        for number in range(400)
    ]
    if kind == "lines":
        (folder / "deep").mkdir()
        (folder / "a.txt").write_text("\n".join(lines[:300]) + "\n")
        (folder / "deep" / "b.txt").write_text("\n".join(lines[300:]))
    elif kind == "subtitles":
        times = [f"00:{n // 20:02}:{3 * n % 60:02}" for n in range(len(lines) + 1)]
        (folder / "film.srt").write_text(
            "".join(
                f"{n + 1}\n{times[n]},000 --> {times[n]},900\n{line}\n\n"
                for n, line in enumerate(lines)
            )
        )
    else:
        for name in ("talk", "story"):
            shutil.copy(SAMPLES / f"{name}.flac", folder)
        if kind == "watch":
            (folder / "a.txt").write_text("\n".join(lines[:100]) + "\n")


def _environment(folder: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(folder / "data")}


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
