"""Silero's voice activity network, evaluated in numpy.

At 31 small frames a second, torch's dispatch costs more than the arithmetic: this takes a third of
the time of Silero's own TorchScript, on one thread, independent of torch's thread settings. Only
the weights of the silero_vad package are used: importing it would change torch's thread settings
for the whole process.
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

FRAME = 512  # samples for which the network gives one probability: 32 ms at 16 kHz

_CONTEXT = 64  # samples of the previous frame in the network's input
_PAD = 64  # samples mirrored at the end of the frame
_WINDOW, _HOP = 256, 128  # STFT of the input, in samples
_BINS = _WINDOW // 2 + 1
_STRIDES = (1, 2, 2, 1)  # of the four convolutions of width three
_HIDDEN = 128
_BATCH = 104  # frames encoded at once: 3.3 s of audio
_SMALL_MATRIX = 8  # rows up to which numpy multiplies instead of torch


class SileroDetector:
    """Probability of speech in each frame of a stream, given all frames before it.

    A detector holds the state of one stream. The weights are shared by all detectors.
    """

    def __init__(self) -> None:
        """
        Raises:
            ModelNotFound: the package silero-vad is not installed.
            CheckpointError: its weights are missing or unexpected.
        """
        self._weights = _load()
        self._context = np.zeros(_CONTEXT, np.float32)
        self._hidden = np.zeros(_HIDDEN, np.float32)
        self._cell = np.zeros(_HIDDEN, np.float32)

    def __call__(self, frame: Samples) -> float:
        """Probability 0…1 of speech in `frame` [512]; finite samples, clipped to -1…1."""
        return self.probabilities(frame)[0]

    def probabilities(self, samples: Samples) -> list[float]:
        """The probabilities of n successive frames [n × 512].

        The encoder, which does not depend on earlier frames, runs on up to 104 frames at once.
        This takes a fifth of the time.
        """
        result: list[float] = []
        for start in range(0, len(samples), _BATCH * FRAME):
            # One sample far out of range would distort the LSTM's state permanently.
            frames = np.clip(samples[start : start + _BATCH * FRAME], -1.0, 1.0)
            result += self._decode(self._encode(self._inputs(frames.reshape(-1, FRAME))))
        return result

    def _inputs(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """Frames [n, 512] → network inputs [n, context + frame + mirrored end]."""
        x = np.empty((len(frames), _CONTEXT + FRAME + _PAD), np.float32)
        x[0, :_CONTEXT] = self._context
        x[1:, :_CONTEXT] = frames[:-1, -_CONTEXT:]
        x[:, _CONTEXT : _CONTEXT + FRAME] = frames
        x[:, -_PAD:] = frames[:, -_PAD - 1 : -1][:, ::-1]
        self._context = frames[-1, -_CONTEXT:].copy()
        return x

    def _encode(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Network inputs [n, context + frame + pad] → LSTM gate inputs [n, 4 hidden]."""
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
        """LSTM gate inputs [n, 4 hidden] (gates in torch's order) → probabilities [n]."""
        weights, hidden, cell = self._weights, self._hidden, self._cell
        states = np.empty((len(inputs), _HIDDEN), np.float32)
        for step, gate_input in enumerate(inputs):
            # sigmoid(x) = (tanh(x / 2) + 1) / 2, which cannot overflow; the weights hold x / 2.
            gates = np.tanh(gate_input + hidden @ weights.cell_hidden).reshape(4, _HIDDEN)
            input_gate, forget_gate, output_gate = gates[[0, 1, 3]] * 0.5 + 0.5
            cell = forget_gate * cell + input_gate * gates[2]
            hidden = output_gate * np.tanh(cell)
            states[step] = hidden
        self._hidden, self._cell = hidden, cell
        logits = np.maximum(states, 0.0) @ weights.output + weights.output_bias
        result: list[float] = (np.tanh(logits * 0.5) * 0.5 + 0.5).tolist()
        return result


def _product(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """a @ b. Large products use torch: numpy's thread pool would compete with torch's."""
    if len(a) <= _SMALL_MATRIX:
        small: NDArray[np.float32] = a @ b
        return small
    import torch

    large: NDArray[np.float32] = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
    return large


@dataclass(frozen=True)
class _Weights:
    """Weights for row vectors times matrices.

    Attributes:
        fourier: STFT basis [window, 2 bins].
        convolutions: (kernel [3 · in, out], bias [out]) each.
        cell_input: [in, 4 hidden], halved for the gates with a sigmoid.
        cell_hidden: [hidden, 4 hidden], halved alike.
        cell_bias: [4 hidden], halved alike.
        output: [hidden].
        output_bias: scalar.
    """

    fourier: NDArray[np.float32]
    convolutions: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    cell_input: NDArray[np.float32]
    cell_hidden: NDArray[np.float32]
    cell_bias: NDArray[np.float32]
    output: NDArray[np.float32]
    output_bias: np.float32


@lru_cache(maxsize=1)
def _load() -> _Weights:
    """Read the weights, once per process.

    From the package's TorchScript: its safetensors file holds an older model.
    """
    import torch

    path = _package() / "data" / "silero_vad.jit"
    try:
        ignore_warning("`torch.jit.load` is", DeprecationWarning)
        script = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        tensors = dict(script._model.state_dict())
        return _arrange({name: tensor.numpy() for name, tensor in tensors.items()})
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not the voice activity model expected there ({error}); "
            "reinstall the package silero-vad"
        ) from error


def _package() -> Path:
    """The folder of the package silero_vad, found without importing it."""
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise ModelNotFound(
            "voice activity detection needs the package silero-vad, which is not installed; "
            "run: pip install silero-vad"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _arrange(tensors: dict[str, NDArray[np.float32]]) -> _Weights:
    """Lay out tensors, keyed by their TorchScript names, for row vectors times matrices."""
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
        output=tensors["decoder.decoder.2.weight"].reshape(-1),
        output_bias=tensors["decoder.decoder.2.bias"][0],
    )
