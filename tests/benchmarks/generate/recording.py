"""Compares decoding methods on a recording, window by window, with a Whisper model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from edgeapp.console import format_clock
from pipelines import Transcriber, load_audio
from pipelines.asr import FRAMES_PER_SECOND, FileFeatures
from pipelines.engine import (
    Drafter,
    ModelDrafter,
    NgramDrafter,
    Request,
    SuppressTokens,
)
from tests.benchmarks.generate.methods import Comparison, Listener, run_request

__all__ = ["TranscriptionComparison", "windows"]


class TranscriptionComparison(Comparison[Transcriber, Tensor]):
    """Methods compared on windows [mels, frames]; text without timestamps."""

    def generate(
        self, method: str, source: Tensor, listener: Listener | None = None
    ) -> tuple[list[int], float | None]:
        """As Comparison.generate."""
        model = self.pipeline.model
        model = model.uncached() if method == "uncached" else model
        encoded = model.encode([source])[0]
        special, architecture = self.pipeline.recognizer.tokenizer.special, model.architecture
        options = self.processor.options(self.length, architecture.eos_ids)
        timestamps = range(special.timestamp_begin, architecture.vocab_size)
        suppressed = SuppressTokens((*special.control, *timestamps))
        options = replace(
            options,
            beam_size=self.beams if method == "beam" else 1,
            logit_filters=(*options.logit_filters, suppressed),
        )
        drafter = self._drafter(method, source)
        request = Request(encoded, self._prompt(), options, drafter=drafter)
        result = run_request(model, request, listener)
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
        special = self.pipeline.recognizer.tokenizer.special
        start: Sequence[int] = (special.sot,)
        if self.pipeline.capabilities.multilingual:
            # The language is not detected: that would be timed, and an uncached model cannot.
            assert special.transcribe is not None, "all multilingual models have it"
            start = (special.sot, special.languages["en"], special.transcribe)
        return (*start, special.no_timestamps)


def windows(transcriber: Transcriber, file: Path) -> Iterator[tuple[str, Tensor]]:
    """The windows of a recording.

    Yields:
        Start time as text, and features [mels, frames].

    Raises:
        AudioError: The file cannot be decoded.
    """
    architecture = transcriber.model.architecture
    frames = 2 * architecture.max_source_positions
    features = FileFeatures(load_audio(file), architecture.num_mel_bins, frames)
    for seek in range(0, round(features.duration * FRAMES_PER_SECOND), frames):
        yield format_clock(seek / FRAMES_PER_SECOND), features.window(seek)[0]
