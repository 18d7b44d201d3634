"""Damaged recordings: each is text, an AudioError or a warning, within little memory and time."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from random import Random

from tests.campaign import part
from tests.campaign.mutate import mutate
from tests.campaign.part import MB, Case, Failed, Limits, printed
from tests.campaign.recordings import encoded_forms

LONGEST_S = 600.0
RATE = 16_000


class Pipe(io.BytesIO):
    """A file that cannot be rewound, as stdin."""

    def seekable(self) -> bool:
        return False


class Campaign(part.Part):
    """Labels: the form of recordings.py; `.pipe` is read as from a pipe."""

    name = "media"
    # What is announced may be held: LONGEST_S of float32, twice while blocks are joined.
    limits = Limits(int(500 * MB + 2 * 4 * LONGEST_S * RATE), 4096 * MB, cpu_s=30, wall_s=60)
    shrinks = True
    fixed = 60

    def prepare(self) -> None:
        self.forms = encoded_forms()
        self.names = sorted(self.forms)
        if len(self.names) < 40:
            raise Failed(f"PyAV writes {len(self.names)} forms only: {self.names}")
        import pipelines.asr.audio.decode  # noqa: F401

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        label = self.names[seed % len(self.names)]
        data = mutate(self.forms[label], random, self.forms[random.choice(self.names)])
        return Case(label + ".pipe" * (random.random() < 0.1), data)

    def sample(self) -> list[Case]:
        return [self.generate(seed) for seed in range(len(self.names))]

    def run(self, case: Case, folder: Path) -> str:
        path = folder / "recording"
        path.write_bytes(case.data)
        try:
            return self._read(case, path)
        finally:
            if said := printed(folder):
                raise Failed(f"the libraries print: {said[:1500]}")

    def _read(self, case: Case, path: Path) -> str:
        from pipelines.asr.audio.arrays import LoudAudio
        from pipelines.asr.audio.decode import DamagedAudio, load_audio
        from pipelines.errors import AudioError, LongAudio

        source = Pipe(case.data) if case.label.endswith(".pipe") else path
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            try:
                samples = load_audio(source, LONGEST_S)
            except LongAudio:
                return "LongAudio"
            except AudioError:
                return "AudioError"
        if not {warning.category for warning in raised} <= {DamagedAudio, LoudAudio}:
            raise Failed(f"another warning: {raised[-1].message!r}")
        if not len(samples) or not abs(samples).max() <= 16:
            raise Failed(f"{len(samples)} samples up to {abs(samples).max(initial=0)}")
        return "damaged" if raised else "read"
