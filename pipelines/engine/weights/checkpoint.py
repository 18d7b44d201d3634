"""A Hugging Face model folder → named tensors. Safetensors, or a PyTorch .bin read with
weights_only=True and nothing looser."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pipelines.engine.weights.quantised import QuantisedWeight, quantise_weight
from pipelines.errors import CheckpointError
from pipelines.notices import ignore_warning

__all__ = ["Weights", "open_weights"]


# Bytes of a file that are read before it is mapped anew.
_READ_CHUNK_BYTES = 16 << 20
_SMALL = 1 << 16


class Weights:
    """The tensors of a checkpoint by name, each read when asked for and checked for its shape.

    Names are tried as given and with the prefix "model.", which some exports leave out.
    translate: what the checkpoint calls what the engine calls by the names of BART's family.
    """

    def __init__(
        self,
        folder: Path,
        readers: dict[str, Callable[[], Tensor]],
        translate: Callable[[str], str] = str,
    ) -> None:
        self._folder = folder
        self._readers = readers
        self._translate = translate
        self._shared: dict[tuple[str, torch.device, torch.dtype], Tensor | QuantisedWeight] = {}

    def named(self, translate: Callable[[str], str]) -> Weights:
        """The same weights, found under names of another family."""
        return Weights(self._folder, self._readers, translate)

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor `name` in its stored precision, of exactly this shape.

        Raises CheckpointError when it is missing, of another shape, or not of floats.
        """
        read = self._find(name)
        if read is None:
            raise CheckpointError(f"{self._folder}: the weights lack {name!r}")
        tensor = read()
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{self._folder}: {name!r} has the shape {list(tensor.shape)}, "
                f"but config.json asks for {list(shape)}"
            )
        if not tensor.is_floating_point():
            raise CheckpointError(f"{self._folder}: {name!r} holds {tensor.dtype}, not floats")
        return tensor

    def shared(
        self, name: str, rows: int, width: int, device: torch.device, dtype: torch.dtype
    ) -> Tensor | QuantisedWeight:
        """As `take`, on a device and in a dtype (int8: quantised): one and the same to all who ask
        for it."""
        key = (self._translate(name), device, dtype)
        if key not in self._shared:
            whole = self.take(name, rows, width)
            small = dtype == torch.int8
            self._shared[key] = (
                quantise_weight(whole).to(device) if small else whole.to(device, dtype)
            )
        return self._shared[key]

    def stacked(self, names: Sequence[str], *shape: int) -> Tensor:
        """Several tensors of one shape, one below the other."""
        return torch.cat([self.take(name, *shape) for name in names])

    def _find(self, name: str) -> Callable[[], Tensor] | None:
        name = self._translate(name)
        return self._readers.get(name) or self._readers.get(name.removeprefix("model."))


def open_weights(folder: Path) -> Weights:
    """The weights in a model folder, read lazily.

    Looks for model.safetensors, its sharded index, then pytorch_model.bin and its sharded index.
    Raises CheckpointError when there is none, a file is damaged, or a .bin holds more than tensors.
    """
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        single = folder / index.removesuffix(".index.json")
        if single.exists():
            return Weights(folder, _readers(single))
        if (folder / index).exists():
            return Weights(folder, _sharded(folder / index))
    raise CheckpointError(
        f"{folder} holds no weights: neither model.safetensors nor pytorch_model.bin is there"
    )


def _sharded(index: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is no index of weights: {_reason(error)}") from error
    readers: dict[str, Callable[[], Tensor]] = {}
    for file in sorted(map(str, files)):
        if Path(file).name != file:
            raise CheckpointError(f"{index} points outside its folder: {file!r}")
        readers.update(_readers(index.parent / file))
    return readers


def _readers(path: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        return _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    except CheckpointError:
        raise
    except (OSError, SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged or incomplete: {_reason(error)}") from error


class _Safetensors:
    """A file that is mapped into memory anew from time to time, so that what has been read of it,
    and laid out elsewhere, does not stay."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self._file: Any = safe_open(path, framework="pt")

    def names(self) -> list[str]:
        return list(self._file.keys())

    def take(self, name: str) -> Tensor:
        if self._read > _READ_CHUNK_BYTES:
            self._file, self._read = safe_open(self._path, framework="pt"), 0
        tensor: Tensor = self._file.get_tensor(name)
        self._read += tensor.nbytes
        # A norm's weights would keep everything mapped that has been read beside them.
        return tensor.clone() if tensor.nbytes <= _SMALL else tensor


def _safetensors(path: Path) -> dict[str, Callable[[], Tensor]]:
    file = _Safetensors(path)
    return {name: partial(file.take, name) for name in file.names()}


def _pickled(path: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        state = _load(path, mmap=True)
    except RuntimeError:
        # The format before zip files cannot be mapped into memory.
        state = _load(path, mmap=False)
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} holds no named tensors")
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    return {name: partial(tensors.__getitem__, name) for name in tensors}


def _load(path: Path, *, mmap: bool) -> object:
    try:
        # Both announce what, if it is so, ends in an error of this reader.
        ignore_warning("Detected pickle protocol", UserWarning)
        ignore_warning("'torch.load' received a zip file that looks like", UserWarning)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        if "GLOBAL " in str(error):  # the name of something to import and call
            raise CheckpointError(
                f"{path} holds more than tensors, which could run code; it is not loaded. "
                "Convert it to safetensors where you trust it"
            ) from error
        raise _unreadable(path) from error
    except RuntimeError as error:
        if "weights_only" in str(error):  # a tar, as before PyTorch 0.1.10, or TorchScript
            raise _unreadable(path) from error
        raise


def _unreadable(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged, or of a kind that cannot be read without running its code; "
        "it is not loaded. Convert it to safetensors where you trust it"
    )


def _reason(error: Exception) -> str:
    """One line; some of torch's errors have many, some none."""
    lines = str(error).strip().splitlines()
    if lines:
        return lines[0]
    return "it ends too early" if isinstance(error, EOFError) else type(error).__name__
