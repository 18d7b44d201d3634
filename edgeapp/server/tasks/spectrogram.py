"""A recording's mel spectrogram as an image, drawn above its transcript."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.asr import Samples

__all__ = ["spectrogram"]

_COLUMNS, _BANDS = 1_000, 48
_SHORTEST_HOP = 160  # samples: 10 ms
_RANGE_DB = 70.0  # below the loudest value; quieter values are 0


def spectrogram(samples: Samples) -> dict[str, object]:
    """A mel spectrogram for the page.

    Args:
        samples: Mono audio at 16 kHz, shape (samples,).

    Returns:
        "columns" and "bands": its size. "pixels": base64 of uint8 (columns, bands), low bands
        first, 255 the loudest. "seconds": the length of the recording.
    """
    import librosa
    import numpy as np

    from pipelines import SAMPLE_RATE

    hop = max(_SHORTEST_HOP, len(samples) // _COLUMNS)
    power = librosa.feature.melspectrogram(
        y=samples, sr=SAMPLE_RATE, n_fft=1024, hop_length=hop, n_mels=_BANDS, pad_mode="constant"
    )
    loudness = librosa.power_to_db(power, ref=np.max, top_db=_RANGE_DB)
    pixels = np.round((loudness + _RANGE_DB) * (255 / _RANGE_DB)).clip(0, 255).astype(np.uint8)
    return {
        "columns": int(pixels.shape[1]),
        "bands": _BANDS,
        "pixels": base64.b64encode(np.ascontiguousarray(pixels.T).tobytes()).decode(),
        "seconds": round(len(samples) / SAMPLE_RATE, 3),
    }
