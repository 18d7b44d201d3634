"""The audio formats of the Realtime interface → float32 samples at 16 kHz."""

from __future__ import annotations

from typing import Literal

import numpy as np
import soxr

from pipelines import SAMPLE_RATE
from pipelines.asr import Samples

__all__ = ["AudioDecoder", "AudioFormat"]

AudioFormat = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
_RATES: dict[AudioFormat, int] = {"audio/pcm": 24_000, "audio/pcmu": 8_000, "audio/pcma": 8_000}


class AudioDecoder:
    """Decodes and resamples a stream of bytes.

    Args:
        format: 16-bit little-endian mono at 24 kHz, or G.711 μ-law or A-law at 8 kHz.
    """

    def __init__(self, format: AudioFormat) -> None:
        self._format = format
        self._rate = _RATES[format]
        self._rest = b""
        self._resampler = soxr.ResampleStream(self._rate, SAMPLE_RATE, 1, dtype="float32")

    def decode(self, data: bytes) -> Samples:
        """The samples of a block; half a sample is kept for the next one."""
        return self._resampled(self._samples(data), last=False)

    def finish(self) -> Samples:
        """The samples that the resampler has held back. Audio may follow."""
        samples = self._resampled(np.zeros(0, np.float32), last=True)
        self._resampler = soxr.ResampleStream(self._rate, SAMPLE_RATE, 1, dtype="float32")
        return samples

    def _samples(self, data: bytes) -> Samples:
        if self._format == "audio/pcm":
            data = self._rest + data
            whole = len(data) & ~1
            self._rest = data[whole:]
            values = np.frombuffer(data[:whole], "<i2")
        else:
            table = _MU_LAW if self._format == "audio/pcmu" else _A_LAW
            values = table[np.frombuffer(data, np.uint8)]
        return values.astype(np.float32) / 32768.0

    def _resampled(self, samples: Samples, *, last: bool) -> Samples:
        resampled: Samples = self._resampler.resample_chunk(samples, last=last)
        return resampled


def _mu_law_table() -> np.ndarray:
    """16-bit samples of the 256 codes of μ-law (ITU-T G.711)."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = (((code & 0x0F) << 3) + 0x84 << ((code & 0x70) >> 4)) - 0x84
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _a_law_table() -> np.ndarray:
    """16-bit samples of the 256 codes of A-law (ITU-T G.711)."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent, mantissa = (code & 0x70) >> 4, (code & 0x0F) << 4
    magnitude = np.where(
        exponent == 0, mantissa + 8, (mantissa + 0x108) << np.maximum(exponent - 1, 0)
    )
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


_MU_LAW, _A_LAW = _mu_law_table(), _a_law_table()
