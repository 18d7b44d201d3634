"""faster-whisper: CTranslate2 with features of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from faster_whisper import WhisperModel

from tests.benchmarks.comparison.backends.base import Configuration, PeerBackend, Runner
from tests.benchmarks.comparison.backends.ctranslate import compute_types
from tests.benchmarks.comparison.shapes import Shape, converted_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FasterWhisper"]


class FasterWhisper(PeerBackend):
    """faster-whisper in each compute type that the device supports."""

    def dtypes(self) -> Sequence[str]:
        return compute_types(self.device)

    def load(self, configuration: Configuration) -> Runner:
        model = WhisperModel(
            str(converted_folder(self.folder)),
            device=self.device,
            compute_type=configuration.dtype,
            cpu_threads=configuration.threads,
        )
        return _Transcribe(model, self.shape)


class _Transcribe(Runner):
    """Transcribes whole windows only: steps and encoding are measured with CTranslate2."""

    def __init__(self, model: WhisperModel, shape: Shape) -> None:
        self._model, self._shape = model, shape

    def encode(self, count: int) -> Any:
        raise NotImplementedError

    def repeat(self, encoded: Any, batch: int) -> Any:
        raise NotImplementedError

    def decode(
        self, encoded: Any, tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        raise NotImplementedError

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        prompt = len(self._shape.prompt)
        segments, _ = self._model.transcribe(
            samples,
            language="en",
            beam_size=1,
            temperature=0.0,
            compression_ratio_threshold=None,
            log_prob_threshold=None,
            no_speech_threshold=None,
            condition_on_previous_text=False,
            suppress_blank=False,
            # No end of text and no timestamps: random weights generate them, and faster-whisper
            # drops them.
            suppress_tokens=list(range(self._shape.eos, self._shape.config["vocab_size"])),
            without_timestamps=True,
            # CTranslate2 generates at most half of the length that faster-whisper passes on, less
            # one for the no-speech probability.
            max_new_tokens=max(2 * tokens + 2, tokens + prompt) - prompt,
        )
        return [token for segment in segments for token in segment.tokens]
