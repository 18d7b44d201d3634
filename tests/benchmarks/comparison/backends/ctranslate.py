"""CTranslate2, the engine of faster-whisper too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ctranslate2
import numpy as np

from tests.benchmarks.comparison.backends.base import Configuration, PeerBackend, Runner
from tests.benchmarks.comparison.shapes import Shape, converted_folder
from tests.benchmarks.comparison.work import Line, features, sentence

__all__ = ["CTranslate2", "compute_types"]

_SYNONYMS = {"int8", "int16"}  # with the default float type of the device


def compute_types(device: str) -> list[str]:
    """The compute types that the device supports, without synonyms."""
    return sorted(ctranslate2.get_supported_compute_types(device) - _SYNONYMS)


class CTranslate2(PeerBackend):
    """CTranslate2 in each compute type that the device supports."""

    def dtypes(self) -> Sequence[str]:
        return compute_types(self.device)

    def batch_configurations(self, best: Configuration, cores: int) -> Sequence[Configuration]:
        shared = [
            replace(best, threads=cores // workers, workers=workers)
            for workers in sorted({2, cores})
            if cores % workers == 0 and cores > 1
        ]
        return [*shared, *(replace(each, batch=64) for each in (best, *shared))]

    def load(self, configuration: Configuration) -> Runner:
        whisper = self.shape.kind == "whisper"
        make = ctranslate2.models.Whisper if whisper else ctranslate2.Translator
        model = make(
            str(converted_folder(self.folder)),
            device=self.device,
            compute_type=configuration.dtype,
            intra_threads=configuration.threads,
            inter_threads=configuration.workers,
        )
        return (_Whisper if whisper else _Marian)(model, self.shape, configuration)


class _Whisper(Runner):
    def __init__(self, model: Any, shape: Shape, configuration: Configuration) -> None:
        self._model, self._shape, self._configuration = model, shape, configuration

    def encode(self, count: int) -> Any:
        return self._model.encode(ctranslate2.StorageView.from_array(features(self._shape, count)))

    def repeat(self, encoded: Any, batch: int) -> Any:
        whole = np.repeat(np.asarray(encoded), batch, axis=0)
        return ctranslate2.StorageView.from_array(whole)

    def decode(
        self, encoded: Any, tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        prompt = list(self._shape.prompt)
        results = self._model.generate(
            encoded,
            [prompt] * encoded.shape[0],
            beam_size=1,
            # CTranslate2 generates at most half of this, and no more than fit after the prompt.
            max_length=max(2 * tokens, tokens + len(prompt) - 1),
            suppress_blank=False,
            suppress_tokens=[self._shape.eos],
        )
        return [result.sequences_ids[0] for result in results]

    def step_bytes(self, encoded: Any) -> tuple[float, float]:
        return _step_bytes(self._configuration.dtype)


class _Marian(Runner):
    def __init__(self, model: Any, shape: Shape, configuration: Configuration) -> None:
        self._model, self._shape, self._configuration = model, shape, configuration
        self._names = [f"t{number}" for number in range(int(shape.config["vocab_size"]))]
        self._names[shape.eos] = "</s>"

    def encode(self, count: int) -> list[list[str]]:
        return [[self._names[i] for i in sentence(self._shape)]] * count

    def repeat(self, encoded: list[list[str]], batch: int) -> list[list[str]]:
        return encoded * batch

    def decode(
        self, encoded: list[list[str]], tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        results = self._model.translate_batch(
            encoded, beam_size=1, max_decoding_length=tokens, min_decoding_length=tokens
        )
        return [[int(name[1:]) for name in result.hypotheses[0]] for result in results]

    def step_bytes(self, encoded: Any) -> tuple[float, float]:
        return _step_bytes(self._configuration.dtype)

    def translate(self, lines: Sequence[Line]) -> int:
        wanted: dict[int, list[list[str]]] = defaultdict(list)
        for line in lines:
            wanted[line.tokens].append([self._names[i] for i in line.ids])
        # Asynchronous, so that no worker waits for the end of a batch. CTranslate2 sorts by length.
        pending = [
            result
            for tokens, group in wanted.items()
            for result in self._model.translate_batch(
                group,
                beam_size=1,
                max_decoding_length=tokens,
                min_decoding_length=tokens,
                max_batch_size=self._configuration.batch or 32,
                asynchronous=True,
            )
        ]
        return sum(len(each.result().hypotheses[0]) for each in pending)


def _step_bytes(dtype: str) -> tuple[float, float]:
    weight, _, rest = dtype.partition("_")
    sizes = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "int16": 2.0}
    return sizes[weight], sizes[rest or weight]
