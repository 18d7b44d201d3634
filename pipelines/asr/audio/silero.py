"""Silero's voice activity network, evaluated in numpy.

Thirty-one small frames a second do not pay for torch's dispatch: this takes a third of the time
of Silero's own TorchScript, on one thread, whatever torch's thread settings are. They stay as
they are, too: the silero_vad package sets them for the whole process when it is imported, so
only its weights are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.asr.audio.arrays import Samples
from pipelines.errors import CheckpointError, ModelNotFound
from pipelines.notices import ignore_warning

__all__ = ["FRAME", "SileroDetector"]

FRAME = 512  # samples that the network judges at once: 32 ms at 16 kHz

_CONTEXT = 64  # samples of the frame before that it also sees
_PAD = 64  # samples mirrored behind the frame
_WINDOW, _HOP = 256, 128  # of the spectrogram, samples
_BINS = _WINDOW // 2 + 1
_STRIDES = (1, 2, 2, 1)  # of the four convolutions, each three wide
_HIDDEN = 128
_AT_ONCE = 104  # frames: 3.3 s of audio
_FEW = 8  # rows of a matrix


class SileroDetector:
    """How likely a frame holds speech, given all those before it.

    One detector is one stream: a new one has heard nothing. Weights are shared between all.
    """

    def __init__(self) -> None:
        """Raises ModelNotFound or CheckpointError where the silero-vad package lacks a part."""
        self._weights = _load()
        self._context = np.zeros(_CONTEXT, np.float32)
        self._hidden = np.zeros(_HIDDEN, np.float32)
        self._cell = np.zeros(_HIDDEN, np.float32)

    def __call__(self, frame: Samples) -> float:
        """Probability, 0…1, that `frame` [512] holds speech; finite samples, clipped to -1…1."""
        return self.judge(frame)[0]

    def judge(self, samples: Samples) -> list[float]:
        """The probabilities of several frames in a row [n × 512]. What does not depend on the
        frames before is computed for many of them at once, which takes a fifth of the time."""
        verdicts: list[float] = []
        for start in range(0, len(samples), _AT_ONCE * FRAME):
            # One sample far out of range would leave its trace in the state for good.
            frames = np.clip(samples[start : start + _AT_ONCE * FRAME], -1.0, 1.0)
            verdicts += self._decode(self._encode(self._inputs(frames.reshape(-1, FRAME))))
        return verdicts

    def _inputs(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """Frames [n, 512] → [n, context + frame + mirrored end]."""
        x = np.empty((len(frames), _CONTEXT + FRAME + _PAD), np.float32)
        x[0, :_CONTEXT] = self._context
        x[1:, :_CONTEXT] = frames[:-1, -_CONTEXT:]
        x[:, _CONTEXT : _CONTEXT + FRAME] = frames
        x[:, -_PAD:] = frames[:, -_PAD - 1 : -1][:, ::-1]
        self._context = frames[-1, -_CONTEXT:].copy()
        return x

    def _encode(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Inputs [n, context + frame + pad] → their part in the gates of the cell [n, 4 hidden]."""
        weights = self._weights
        starts = range(0, x.shape[1] - _WINDOW + 1, _HOP)
        windows = np.stack([x[:, i : i + _WINDOW] for i in starts], axis=1)
        spectrum = _product(windows.reshape(-1, _WINDOW), weights.fourier)  # real, imaginary parts
        power = np.square(spectrum)
        y = np.sqrt(power[:, :_BINS] + power[:, _BINS:]).reshape(len(x), -1, _BINS)
        for (kernel, bias), stride in zip(weights.convolutions, _STRIDES, strict=True):
            length = y.shape[1]  # 4, 4, 2, 1
            padded = np.zeros((len(x), length + 2, y.shape[2]), np.float32)
            padded[:, 1:-1] = y
            patches = [padded[:, i : i + 3].reshape(len(x), -1) for i in range(0, length, stride)]
            rows = np.stack(patches, axis=1).reshape(len(x) * len(patches), -1)
            y = np.maximum(_product(rows, kernel) + bias, 0.0).reshape(len(x), len(patches), -1)
        return _product(y[:, 0], weights.cell_input) + weights.cell_bias

    def _decode(self, inputs: NDArray[np.float32]) -> list[float]:
        """The LSTM, step by step (gates in torch's order), and its verdicts."""
        weights, hidden, cell = self._weights, self._hidden, self._cell
        states = np.empty((len(inputs), _HIDDEN), np.float32)
        for step, given in enumerate(inputs):
            # A sigmoid is (tanh(x / 2) + 1) / 2, which cannot overflow; x is halved in the weights.
            gates = np.tanh(given + hidden @ weights.cell_hidden).reshape(4, _HIDDEN)
            keep_in, forget, out = gates[[0, 1, 3]] * 0.5 + 0.5
            cell = forget * cell + keep_in * gates[2]
            hidden = out * np.tanh(cell)
            states[step] = hidden
        self._hidden, self._cell = hidden, cell
        verdicts = np.maximum(states, 0.0) @ weights.verdict + weights.verdict_bias
        sure: list[float] = (np.tanh(verdicts * 0.5) * 0.5 + 0.5).tolist()
        return sure


def _product(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """a @ b. Large ones by torch: numpy's threads beside torch's would fight for the cores."""
    if len(a) <= _FEW:
        small: NDArray[np.float32] = a @ b
        return small
    import torch

    large: NDArray[np.float32] = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
    return large


@dataclass(frozen=True)
class _Weights:
    """fourier: [window, 2 bins]. convolutions: (kernel [3 · in, out], bias [out]) each.
    cell_input: [in, 4 hidden], cell_hidden: [hidden, 4 hidden], both halved where a sigmoid
    follows. verdict: [hidden]."""

    fourier: NDArray[np.float32]
    convolutions: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    cell_input: NDArray[np.float32]
    cell_hidden: NDArray[np.float32]
    cell_bias: NDArray[np.float32]
    verdict: NDArray[np.float32]
    verdict_bias: np.float32


@lru_cache(maxsize=1)
def _load() -> _Weights:
    """Read once a process. The package's safetensors hold an older model than its TorchScript."""
    import torch

    path = _package() / "data" / "silero_vad.jit"
    try:
        ignore_warning("`torch.jit.load` is", DeprecationWarning)
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
    halved = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), _HIDDEN)
    bias = tensors["decoder.rnn.bias_ih"] + tensors["decoder.rnn.bias_hh"]
    return _Weights(
        fourier=np.ascontiguousarray(tensors["stft.forward_basis_buffer"][:, 0].T),
        convolutions=tuple(convolutions),
        cell_input=np.ascontiguousarray(tensors["decoder.rnn.weight_ih"].T) * halved,
        cell_hidden=np.ascontiguousarray(tensors["decoder.rnn.weight_hh"].T) * halved,
        cell_bias=bias * halved,
        verdict=tensors["decoder.decoder.2.weight"].reshape(-1),
        verdict_bias=tensors["decoder.decoder.2.bias"][0],
    )
