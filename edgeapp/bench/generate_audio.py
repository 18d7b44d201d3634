"""The same ways of decoding for Whisper models: a recording, window by window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from edgeapp.bench.generate import Comparable, Listener, describe
from edgeapp.console import format_clock
from pipelines import FRAMES_PER_SECOND, FileFeatures, Transcriber, load_audio
from pipelines.engine import (
    Drafter,
    ModelDrafter,
    NgramDrafter,
    Request,
    SuppressTokens,
)

__all__ = ["AudioSession", "windows"]


class AudioSession(Comparable[Transcriber, Tensor]):
    """Transcripts compared, without times."""

    def generate(
        self, method: str, source: Tensor, listener: Listener | None = None
    ) -> tuple[list[int], float | None]:
        """New ids of a window [mels, frames], eos included, and the share of guesses kept."""
        model = self.tool.model
        model = model.uncached() if method == "uncached" else model
        encoded = model.encode([source])[0]
        special, architecture = self.tool.tokenizer.special, model.architecture
        options = self.processor.options(self.length, architecture.eos_ids)
        times = range(special.timestamp_begin, architecture.vocab_size)
        options = replace(
            options,
            beam_size=self.beams if method == "beam" else 1,
            logit_filters=(*options.logit_filters, SuppressTokens((*special.control, *times))),
        )
        drafter = self._drafter(method, source)
        request = Request(encoded, self._prompt(), options, drafter=drafter)
        result = describe(model, request, listener)
        if drafter is None:
            return list(result.tokens), None
        return list(result.tokens), result.accepted / max(1, result.drafted)

    def _drafter(self, method: str, source: Tensor) -> Drafter | None:
        if method == "n-gram":
            return NgramDrafter(gamma=self.gamma)
        if method == "speculative":
            assert self.drafter is not None, "only with a drafter"
            model = self.drafter.model
            return ModelDrafter(model, model.encode([source])[0], self.gamma)
        return None

    def _prompt(self) -> tuple[int, ...]:
        special = self.tool.tokenizer.special
        start: Sequence[int] = (special.sot,)
        if self.tool.capabilities.multilingual:
            # Not detected: that would be timed, and an uncached model cannot.
            assert special.transcribe is not None, "all multilingual models have it"
            start = (special.sot, special.languages["en"], special.transcribe)
        return (*start, special.no_timestamps)


def windows(transcriber: Transcriber, file: Path) -> Iterator[tuple[str, Tensor]]:
    """The windows of a recording, each with when it begins. Raises AudioError."""
    architecture = transcriber.model.architecture
    frames = 2 * architecture.max_source_positions
    features = FileFeatures(load_audio(file), architecture.num_mel_bins, frames)
    for seek in range(0, round(features.duration * FRAMES_PER_SECOND), frames):
        yield format_clock(seek / FRAMES_PER_SECOND), features.window(seek)[0]
