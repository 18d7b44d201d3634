"""What an encoder takes of a chunk of sound: the samples, or what transformers makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.errors import ModelError
from pipelines.json_files import read_model_json
from pipelines.processors import open_feature_extractor

_MIN_SAMPLES = SAMPLE_RATE // 10  # shorter sound is padded: the encoders' convolutions need some
_NORM_EPS = 1e-7  # as in transformers


class RawSound:
    """The samples themselves, as Moonshine takes them.

    Raises:
        ModelError: It takes sound at another rate.
    """

    def __init__(self, folder: Path, name: str) -> None:
        config = read_model_json(folder / "preprocessor_config.json", optional=True)
        _check_rate(config.get("sampling_rate", SAMPLE_RATE), name)
        self._normalize = bool(config.get("do_normalize", False))

    def __call__(self, samples: Samples) -> Tensor:
        """Samples [n] → [at least a tenth of a second]."""
        sound = _padded(samples)
        if self._normalize:
            sound = (sound - sound.mean()) / (sound.var(correction=0) + _NORM_EPS).sqrt()
        return sound


class TransformersFeatures:
    """What a feature extractor of transformers makes.

    Raises:
        CheckpointError: There is no feature extractor, or it is damaged.
        ModelError: It takes sound at another rate.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._extractor: Any = open_feature_extractor(folder)
        _check_rate(getattr(self._extractor, "sampling_rate", None), name)

    def __call__(self, samples: Samples) -> Tensor:
        """Samples [n] → what the model's encoder takes of them, without the batch dimension."""
        sound = _padded(samples).numpy()
        made = self._extractor(sound, sampling_rate=SAMPLE_RATE, return_tensors="pt")
        features: Tensor = made["input_values" if "input_values" in made else "input_features"][0]
        return features


def _padded(samples: Samples) -> Tensor:
    missing = max(0, _MIN_SAMPLES - len(samples))
    return torch.nn.functional.pad(torch.as_tensor(samples), (0, missing))


def _check_rate(rate: object, name: str) -> None:
    if rate != SAMPLE_RATE:
        raise ModelError(f"{name} takes sound at {rate} Hz; only {SAMPLE_RATE} Hz is possible")
