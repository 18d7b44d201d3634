"""Named tensors of a Hugging Face model folder.

Reads safetensors, or a PyTorch .bin with `weights_only=True`, which runs no code of the file, and
the files of other programs that `pipelines.formats` knows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pipelines.engine.weights.quantized import QuantizedWeight, quantize_weight
from pipelines.errors import CheckpointError
from pipelines.formats import PT_LINK, TensorReader, open_tensors, transformers_name
from pipelines.json_files import check_regular, read_json_object
from pipelines.notices import ignore_warning

# A file is mapped into memory anew after this many bytes were read from it.
_REMAP_BYTES = 16 << 20

_MOST_BYTES = 1 << 40  # of one file of weights

# Tensors of at most this many bytes are copied out of the mapped file.
_COPY_BYTES = 1 << 16

SCALE = "_scale"
"""Ends the name of the scales [rows] of a tensor that is stored in int8."""

_Reader = Callable[[], Tensor]


class Weights:
    """The tensors of a checkpoint by name, each read on demand and checked for its shape.

    Names are looked up as given and without the prefix "model.", which some exports leave out.

    Args:
        folder: the model folder, for errors.
        readers: a function for each tensor of the checkpoint that reads it.
        translate: the native model's name of a tensor → the checkpoint's.
    """

    def __init__(
        self, folder: Path, readers: dict[str, _Reader], translate: Callable[[str], str] = str
    ) -> None:
        self.folder = folder
        self._readers = _with_scales(readers)
        self._translate = translate
        self._shared: dict[tuple[str, torch.device, torch.dtype], Tensor | QuantizedWeight] = {}

    def named(self, translate: Callable[[str], str]) -> Weights:
        """The same weights with another translation of names."""
        return Weights(self.folder, self._readers, translate)

    @property
    def names(self) -> tuple[str, ...]:
        """The checkpoint's names."""
        return tuple(self._readers)

    def read(self, name: str) -> Tensor:
        """The tensor of a checkpoint's name, in its stored dtype; int8 as float32."""
        return self._readers[name]()

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def take(self, name: str, *shape: int) -> Tensor:
        """Read the tensor `name` in its stored dtype, on the CPU.

        Raises:
            CheckpointError: it is missing, not of this shape, or not of a floating-point dtype.
        """
        read = self._find(name)
        if read is None:
            raise CheckpointError(f"{self.folder}: the weights lack {name!r}")
        tensor = read()
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{self.folder}: {name!r} has the shape {list(tensor.shape)}, "
                f"but config.json asks for {list(shape)}"
            )
        if not tensor.is_floating_point():
            raise CheckpointError(f"{self.folder}: {name!r} holds {tensor.dtype}, not floats")
        return tensor

    def shared(
        self, name: str, rows: int, width: int, device: torch.device, dtype: torch.dtype
    ) -> Tensor | QuantizedWeight:
        """Read a matrix [rows, width], once per device and dtype: all callers share one object.

        For embeddings that encoder, decoder and LM head have in common.

        Args:
            dtype: a floating-point dtype, or int8 for a QuantizedWeight.

        Raises:
            CheckpointError: as `take`.
        """
        key = (self._translate(name), device, dtype)
        if key not in self._shared:
            weight = self.take(name, rows, width)
            self._shared[key] = (
                quantize_weight(weight).to(device)
                if dtype == torch.int8
                else weight.to(device, dtype)
            )
        return self._shared[key]

    def stacked(self, names: Sequence[str], *shape: int) -> Tensor:
        """Read several tensors of one shape and concatenate them along the first dimension."""
        return torch.cat([self.take(name, *shape) for name in names])

    def _find(self, name: str) -> _Reader | None:
        name = self._translate(name)
        return self._readers.get(name) or self._readers.get(name.removeprefix("model."))


def open_weights(folder: Path) -> Weights:
    """Open the weights of a model folder; tensors are read on demand.

    Looks for model.safetensors, its sharded index, then pytorch_model.bin and its sharded index,
    then for a link to weights of another program.

    Raises:
        CheckpointError: there is none of them, a file is damaged, or a .bin holds more than
            tensors.
    """
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        single = folder / index.removesuffix(".index.json")
        if single.exists():
            return Weights(folder, _readers(single))
        if (folder / index).exists():
            return Weights(folder, _sharded_readers(folder / index))
    if (folder / PT_LINK).exists():
        return Weights(folder, _readers(folder / PT_LINK))
    stored = open_tensors(folder)
    if stored is not None:
        return Weights(folder, {name: partial(_tensor, read) for name, read in stored.items()})
    raise CheckpointError(
        f"{folder} holds no weights: neither model.safetensors nor pytorch_model.bin is there"
    )


def _with_scales(readers: dict[str, _Reader]) -> dict[str, _Reader]:
    """The readers, of which those of int8 tensors multiply by the scales stored beside them."""
    scales = {
        name: read
        for name, read in readers.items()
        if name.endswith(SCALE) and name.removesuffix(SCALE) in readers
    }
    if not scales:
        return readers
    return {
        name: partial(_scaled, read, scales[f"{name}{SCALE}"])
        if f"{name}{SCALE}" in scales
        else read
        for name, read in readers.items()
        if name not in scales
    }


def _scaled(read: _Reader, read_scales: _Reader) -> Tensor:
    tensor, scales = read(), read_scales()
    return tensor.float() * scales.float()[(...,) + (None,) * (tensor.ndim - 1)]


def _tensor(read: TensorReader) -> Tensor:
    array = read()
    # An array that is a view of the bytes of a file may not be writable, which torch asks for.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _sharded_readers(index: Path) -> dict[str, _Reader]:
    """Readers for all shards that an index.json lists. Shards lie in the index's own folder."""
    try:
        files = set(read_json_object(index)["weight_map"].values())
    except (OSError, CheckpointError, KeyError, TypeError, AttributeError) as error:
        reason = _first_line(error).removeprefix(f"{index} ")
        raise CheckpointError(f"{index} is not an index of weights: {reason}") from error
    readers: dict[str, _Reader] = {}
    for file in sorted(map(str, files)):
        if Path(file).name != file:
            raise CheckpointError(f"{index} points outside its folder: {file!r}")
        readers.update(_readers(index.parent / file))
    return readers


def _readers(path: Path) -> dict[str, _Reader]:
    """Readers for the tensors of one file."""
    try:
        check_regular(path, _MOST_BYTES)
        return _safetensors_readers(path) if path.suffix == ".safetensors" else _bin_readers(path)
    except CheckpointError:
        raise
    except (OSError, SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged or incomplete: {_first_line(error)}") from error
    except MemoryError as error:
        size = path.stat().st_size
        raise CheckpointError(
            f"{path} cannot be mapped into memory: it has {size / 1e9:,.1f} GB, more than this "
            "process may use; it is damaged, or the limit (ulimit -v) is too low"
        ) from error


class _SafetensorsFile:
    """A safetensors file, mapped into memory anew every `_REMAP_BYTES`.

    The pages that were read stay resident as long as their mapping does. By then their tensors
    have been converted to another layout, so they would only take memory.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read_bytes = path, 0
        self._file: Any = safe_open(path, framework="pt")

    def names(self) -> list[str]:
        return list(self._file.keys())

    def take(self, name: str) -> Tensor:
        if self._read_bytes > _REMAP_BYTES:
            self._file, self._read_bytes = safe_open(self._path, framework="pt"), 0
        tensor: Tensor = self._file.get_tensor(name)
        self._read_bytes += tensor.nbytes
        # Small tensors are used as they are, such as the weights of a norm: a view would keep the
        # whole mapping alive.
        return tensor.clone() if tensor.nbytes <= _COPY_BYTES else tensor


def _safetensors_readers(path: Path) -> dict[str, _Reader]:
    file = _SafetensorsFile(path)
    return {name: partial(file.take, name) for name in file.names()}


def _bin_readers(path: Path) -> dict[str, _Reader]:
    try:
        state = _torch_load(path, mmap=True)
    except RuntimeError:
        # The legacy format, from before zip files, cannot be mapped into memory.
        state = _torch_load(path, mmap=False)
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} holds no named tensors")
    inner = state.get("model_state_dict")
    if isinstance(inner, dict):  # openai's files have the sizes of the model beside the tensors
        state = {transformers_name(str(name)): value for name, value in inner.items()}
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    return {name: partial(tensors.__getitem__, name) for name in tensors}


def _torch_load(path: Path, *, mmap: bool) -> object:
    try:
        # Both warn of files that this function refuses with an error of its own.
        ignore_warning("Detected pickle protocol", UserWarning)
        ignore_warning("'torch.load' received a zip file that looks like", UserWarning)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        if "GLOBAL " in str(error):  # names an object to import and call
            raise CheckpointError(
                f"{path} holds more than tensors, which could run code; it is not loaded. "
                "If you trust it, convert it to safetensors"
            ) from error
        raise _unreadable(path) from error
    except RuntimeError as error:
        if "weights_only" in str(error):  # a tar, as before PyTorch 0.1.10, or TorchScript
            raise _unreadable(path) from error
        raise


def _unreadable(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged, or of a kind that cannot be read without running its code; "
        "it is not loaded. If you trust it, convert it to safetensors"
    )


def _first_line(error: Exception) -> str:
    """The first line of an error's message; some of torch's have many lines, some none."""
    lines = str(error).strip().splitlines()
    if lines:
        return lines[0]
    return "it ends too early" if isinstance(error, EOFError) else type(error).__name__
