"""Silero's voice activity network, evaluated in numpy.

Thirty-one small frames a second do not pay for torch's dispatch: this takes a third of the time
of Silero's own TorchScript, on one thread, whatever torch's thread settings are. They stay as
they are, too: the silero_vad package sets them for the whole process when it is imported, so
only its weights are used.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.asr.arrays import Samples
from pipelines.errors import CheckpointError, ModelNotFound

__all__ = ["FRAME", "SileroDetector"]

FRAME = 512  # samples that the network judges at once: 32 ms at 16 kHz

_CONTEXT = 64  # samples of the frame before that it also sees
_PAD = 64  # samples mirrored behind the frame
_WINDOW, _HOP = 256, 128  # of the spectrogram, samples
_BINS = _WINDOW // 2 + 1
_STRIDES = (1, 2, 2, 1)  # of the four convolutions, each three wide
_HIDDEN = 128


class SileroDetector:
    """How likely a frame holds speech, given all those before it.

    One detector is one stream: a new one has heard nothing. Weights are shared between all.
    """

    def __init__(self) -> None:
        """Raises ModelNotFound or CheckpointError where the silero-vad package lacks a part."""
        self._weights = _load()
        # [context | frame | mirrored end]
        self._input = np.zeros(_CONTEXT + FRAME + _PAD, np.float32)
        self._hidden = np.zeros(_HIDDEN, np.float32)
        self._cell = np.zeros(_HIDDEN, np.float32)

    def __call__(self, frame: Samples) -> float:
        """Probability, 0…1, that `frame` [512] holds speech; finite samples, clipped to -1…1."""
        x = self._input
        x[:_CONTEXT] = x[FRAME : FRAME + _CONTEXT]
        # One sample far out of range would leave its trace in the state for good.
        np.clip(frame, -1.0, 1.0, out=x[_CONTEXT : _CONTEXT + FRAME])
        x[-_PAD:] = x[-2 * _PAD - 1 : -_PAD - 1][::-1]
        return self._decode(self._encode(x))

    def _encode(self, x: Samples) -> NDArray[np.float32]:
        """[context + frame + pad] → what the recurrent cell sees of it [hidden]."""
        weights = self._weights
        windows = np.stack([x[i : i + _WINDOW] for i in range(0, len(x) - _WINDOW + 1, _HOP)])
        spectrum = windows @ weights.fourier  # [4, bins of the real, then the imaginary part]
        power = np.square(spectrum)
        y = np.sqrt(power[:, :_BINS] + power[:, _BINS:])  # [4, bins]
        for (kernel, bias), stride in zip(weights.convolutions, _STRIDES, strict=True):
            padded = np.zeros((len(y) + 2, y.shape[1]), np.float32)
            padded[1:-1] = y
            patches = [padded[i : i + 3].reshape(-1) for i in range(0, len(y), stride)]
            y = np.maximum(np.stack(patches) @ kernel + bias, 0.0)  # [4, 2, 1, 1 steps, channels]
        first: NDArray[np.float32] = y[0]
        return first

    def _decode(self, seen: NDArray[np.float32]) -> float:
        """One step of the LSTM (gates in torch's order), and its verdict."""
        weights = self._weights
        gates = np.concatenate([seen, self._hidden]) @ weights.cell + weights.cell_bias
        keep_in, forget, new, out = gates.reshape(4, _HIDDEN)
        self._cell = _sigmoid(forget) * self._cell + _sigmoid(keep_in) * np.tanh(new)
        self._hidden = _sigmoid(out) * np.tanh(self._cell)
        verdict = np.maximum(self._hidden, 0.0) @ weights.verdict + weights.verdict_bias
        return float(_sigmoid(verdict))


def _sigmoid(x: Any) -> Any:
    return 0.5 * np.tanh(0.5 * x) + 0.5  # this form cannot overflow


@dataclass(frozen=True)
class _Weights:
    """fourier: [window, 2 bins]. convolutions: (kernel [3 · in, out], bias [out]) each.
    cell: [in + hidden, 4 hidden]. verdict: [hidden]."""

    fourier: NDArray[np.float32]
    convolutions: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    cell: NDArray[np.float32]
    cell_bias: NDArray[np.float32]
    verdict: NDArray[np.float32]
    verdict_bias: np.float32


@lru_cache(maxsize=1)
def _load() -> _Weights:
    """Read once a process. The package's safetensors hold an older model than its TorchScript."""
    import torch

    path = _package() / "data" / "silero_vad.jit"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch: to be replaced by torch.export
            script = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        tensors = dict(script._model.state_dict())
        return _arranged({name: tensor.numpy() for name, tensor in tensors.items()})
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not the voice activity model expected there ({error}); "
            "reinstall the package silero-vad"
        ) from error


def _package() -> Path:
    """Where silero_vad is installed; looked up, not imported."""
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise ModelNotFound(
            "voice activity detection needs the package silero-vad, which is not installed; "
            "run: pip install silero-vad"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _arranged(tensors: dict[str, NDArray[np.float32]]) -> _Weights:
    """The tensors by their names in the TorchScript, laid out for row vectors times matrices."""
    convolutions = []
    for i in range(len(_STRIDES)):
        kernel = tensors[f"encoder.{i}.reparam_conv.weight"]  # [out, in, 3]
        bias = tensors[f"encoder.{i}.reparam_conv.bias"]
        rows = kernel.transpose(2, 1, 0).reshape(-1, len(bias))
        convolutions.append((np.ascontiguousarray(rows), bias))
    cell = [tensors["decoder.rnn.weight_ih"], tensors["decoder.rnn.weight_hh"]]
    return _Weights(
        fourier=np.ascontiguousarray(tensors["stft.forward_basis_buffer"][:, 0].T),
        convolutions=tuple(convolutions),
        cell=np.ascontiguousarray(np.concatenate(cell, axis=1).T),
        cell_bias=tensors["decoder.rnn.bias_ih"] + tensors["decoder.rnn.bias_hh"],
        verdict=tensors["decoder.decoder.2.weight"].reshape(-1),
        verdict_bias=tensors["decoder.decoder.2.bias"][0],
    )
