"""Good inputs among bad ones: the good are done as if alone, each bad one is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import part
from tests.campaign.child import run_limited
from tests.campaign.mutate import mutate
from tests.campaign.part import MB, Case, Failed, Limits, printed
from tests.campaign.recordings import encoded_forms
from tests.campaign.sandbox import REPOSITORY
from tests.campaign.warm import import_all

SAMPLES = REPOSITORY / "assets" / "samples"
FLAGS = ("--device", "cpu", "--threads", "1")
SENTENCES = "Where is the station?\n\nI would like a cup of coffee.\n"
# A folder stands for the recordings in it, and a missing name with [ ] for those that match it:
# without any, the command ends before it begins.
BAD_AUDIO = ("mutant", "empty", "missing", "text", "zeros", "picture", "noise",
             "playlist", "loop")  # fmt: skip
BAD_TEXT = ("binary", "missing", "folder", "loop")
# Texts that can be translated, of which only the good one has an expected output.
ODD_TEXT = ("empty", "nul", "crlf", "latin", "mark", "spaces", "symbols", "repeated")
STEMS = ("talk", "two words", "-dash", "ü", "new\nline", "esc\x1b]0;x\x07", "a" * 120,
         "quote'\"", "%s{}", "\udcff", "名前", ".hidden", "..x")  # fmt: skip


class Campaign(part.Part):
    """Data: JSON with the command and its inputs, in order."""

    name = "batch"
    limits = Limits(900 * MB, 8192 * MB, cpu_s=90, wall_s=120)

    def prepare(self) -> None:
        import_all()
        self.forms = encoded_forms()
        self.good = {command: self._reference(command) for command in ("transcribe", "translate")}

    def _reference(self, command: str) -> bytes:
        """The output of the good input alone."""
        spec = {"command": command, "batch_size": 8, "inputs": [{"stem": "one", "kind": "good"}]}
        case = Case(command, json.dumps(spec).encode())
        kept = self.folder / f"{command}.txt"

        def work(folder: Path) -> str:
            self._main(spec, folder)
            (output,) = (folder / "out").iterdir()
            shutil.copy(output, kept)
            return ""

        failure = run_limited(work, self.limits, self.folder).failure
        if failure or not kept.read_bytes().strip():
            raise Failed(f"{case.label} of the good input fails: {failure}")
        return kept.read_bytes()

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        command = random.choice(("transcribe", "transcribe", "translate"))
        bad = BAD_AUDIO if command == "transcribe" else BAD_TEXT + ODD_TEXT
        count = random.randrange(2, 7)
        stems = random.sample(STEMS, count)
        inputs = [
            {
                "stem": f"{i}{stem}" if random.random() < 0.5 else f"{stem}{i}",
                "kind": "good" if random.random() < 0.35 else random.choice(bad),
                "form": random.choice(sorted(self.forms)),
                "seed": random.randrange(1 << 30),
            }
            for i, stem in enumerate(stems)
        ]
        spec = {"command": command, "batch_size": random.choice((1, 8)), "inputs": inputs}
        return Case(command, json.dumps(spec).encode())

    def sample(self) -> list[Case]:
        kinds = ("good", "mutant", "loop", "text", "good", "missing", "empty")
        inputs = [
            {"stem": f"{i}{stem}", "kind": kind, "form": "flac-flac", "seed": i}
            for i, (stem, kind) in enumerate(zip(STEMS, kinds, strict=False))
        ]
        spec = {"command": "transcribe", "batch_size": 8, "inputs": inputs}
        return [Case("transcribe", json.dumps(spec).encode()), self.generate(6)]

    def run(self, case: Case, folder: Path) -> str:
        spec = json.loads(case.data)
        code = self._main(spec, folder)
        said = printed(folder)
        for word in ("Traceback", "unexpected error"):
            if word in said:
                raise Failed(f"{word} on stderr: {said[-2000:]}")
        made = {p.name: p.read_bytes() for p in (folder / "out").iterdir()}
        missing = 0
        for entry in spec["inputs"]:
            stem = Path(_file_name(spec["command"], entry)).stem
            name = f"{stem}.txt" if spec["command"] == "transcribe" else f"{stem}.de.txt"
            if entry["kind"] == "good" and made.get(name) != self.good[spec["command"]]:
                raise Failed(f"{name!r} is {made.get(name)!r}; {said[-1500:]}")
            if entry["kind"] in BAD_TEXT[1:] and name in made:
                raise Failed(f"{name!r} has an output: {made[name]!r}")
            if name not in made:
                missing += 1
                if not _is_named(stem, said):
                    raise Failed(f"{stem!r} has no output and is not named: {said[-1500:]!r}")
        if code != (1 if missing else 0):
            raise Failed(f"exit code {code} with {missing} failed inputs: {said[-1500:]}")
        return f"exit {code}"

    def _main(self, spec: dict[str, Any], folder: Path) -> int:
        """Run the command in this process; returns its exit code."""
        from edgeapp.cli import main

        (folder / "in").mkdir()
        (folder / "out").mkdir()
        paths = [self._make(folder / "in", spec["command"], entry) for entry in spec["inputs"]]
        if spec["command"] == "transcribe":
            options = ["-m", "demo", "-f", "txt", "--batch-size", str(spec["batch_size"])]
        else:
            options = ["-m", "demo-en-de"]
        output = ["-o", "out/"] if len(paths) > 1 or spec["command"] == "transcribe" else []
        output = output or ["-o", "out/one.de.txt"]
        try:
            main([spec["command"], *options, *output, *FLAGS, "--", *map(str, paths)])
        except SystemExit as end:
            return int(end.code or 0)
        raise Failed("main returned")

    def _make(self, folder: Path, command: str, entry: dict[str, Any]) -> Path:
        path, kind = folder / _file_name(command, entry), entry["kind"]
        if kind == "good" and command == "transcribe":
            shutil.copy(SAMPLES / "question.flac", path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "loop":
            path.symlink_to(path.name)
        elif kind != "missing":
            path.write_bytes(self._content(kind, entry))
        return path.relative_to(folder.parent)

    def _content(self, kind: str, entry: dict[str, Any]) -> bytes:
        random = Random(entry.get("seed", 0))
        contents = {
            "good": lambda: SENTENCES.encode(),
            "mutant": lambda: mutate(self.forms[entry["form"]], random),
            "empty": lambda: b"",
            "text": lambda: b"I am not a recording.\n" * 50,
            "zeros": lambda: bytes(100_000),
            "picture": lambda: (REPOSITORY / "assets/pictures/live.png").read_bytes(),
            "noise": lambda: random.randbytes(20_000),
            "playlist": lambda: b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.wav\n/etc/passwd\n",
            "binary": lambda: random.randbytes(300),
            "nul": lambda: b"a\0b\n\0\n",
            "crlf": lambda: b"Good morning.\r\n\r\nGood\rnight.\x0b\x0c\x85\n",
            "latin": lambda: "Größe\n".encode("latin-1"),
            "mark": lambda: "\ufeffGood morning.\n".encode(random.choice(("utf-8", "utf-16"))),
            "spaces": lambda: b" \t\n" * 20,
            "symbols": lambda: "\U0001f600 \u202e ░▒▓ </s> <unk> >>deu<< {} \ufffd\n".encode(),
            "repeated": lambda: b"no " * 400 + b"\n",
        }
        return contents[kind]()


def _file_name(command: str, entry: dict[str, Any]) -> str:
    return entry["stem"] + (".flac" if command == "transcribe" else ".txt")


def _is_named(stem: str, said: str) -> bool:
    """Whether the name is on stderr: as it is, or with its control characters replaced."""
    shown = stem.encode("utf-8", "backslashreplace").decode()
    parts = "".join(c if c.isprintable() else "\0" for c in shown).split("\0")
    lines = "".join(said.split())
    return all("".join(piece.split()) in lines for piece in parts)
