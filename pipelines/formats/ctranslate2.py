"""CTranslate2's model.bin: variables by name, in float32, float16, bfloat16, int16 or int8.

The layout is that of `ModelSpec._serialize` in CTranslate2's Python package. Quantized variables
have a scale for each row, or one for all: the value is number / scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import CheckpointError
from pipelines.formats.binary import StoredArray, open_binary, read_bytes
from pipelines.json_files import TOKENIZER_BYTES, check_regular, read_json_list

_KINDS = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_BYTES = {"float32": 4, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "bfloat16": 2}
# Until version 3 the file has the size of a number instead of its kind.
_OLD_KINDS = {4: "float32", 1: "int8", 2: "int16"}
_VERSIONS = range(2, 7)
_MOST_VARIABLES = 100_000


@dataclass(frozen=True)
class CTranslate2File:
    """An open model.bin.

    Attributes:
        path: The file.
        spec: The kind of model, such as "WhisperSpec".
        variables: Name → where it lies; aliases are entries of their own.
    """

    path: Path
    spec: str
    variables: dict[str, StoredArray]

    def __contains__(self, name: str) -> bool:
        return name in self.variables

    def scalar(self, name: str, default: float) -> float:
        """A number of the model's description."""
        if name not in self:
            return default
        stored = self.variables[name]
        if stored.shape not in ((), (1,)):
            raise CheckpointError(f"{self.path} is damaged: {name!r} is not a number")
        return float(self._numbers(stored, 0, 1)[0])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a variable. Raises CheckpointError where there is none."""
        if name not in self:
            raise CheckpointError(f"{self.path}: the weights lack {name!r}")
        return self.variables[name].shape

    @property
    def kind(self) -> str:
        """The kind of number that most of the weights are stored in."""
        sizes: dict[str, int] = {}
        for stored in self.variables.values():
            sizes[stored.kind] = sizes.get(stored.kind, 0) + math.prod(stored.shape)
        return max(sizes, key=lambda kind: sizes[kind])

    def array(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.floating]:
        """Rows of a variable: float16 where it is stored so, else float32."""
        shape = self.shape(name)
        if not shape:
            raise CheckpointError(f"{self.path} is damaged: {name!r} is a single number")
        stop = shape[0] if stop is None else stop
        if not 0 <= start <= stop <= shape[0]:
            raise CheckpointError(f"{self.path} is damaged: {name!r} has only {shape[0]} rows")
        stored, width = self.variables[name], math.prod(shape[1:])
        values = self._numbers(stored, start * width, (stop - start) * width)
        values = values.reshape(stop - start, *shape[1:])
        if stored.kind not in ("int8", "int16"):
            return values
        return values / self._scales(name, start, stop).reshape(-1, *[1] * (len(shape) - 1))

    def _scales(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        scales = self.variables.get(f"{name}_scale")
        if scales is None:
            raise CheckpointError(f"{self.path}: the weights lack {name + '_scale'!r}")
        count = math.prod(scales.shape)
        if count == 1:
            return self._numbers(scales, 0, 1).astype(np.float32)
        if count != self.variables[name].shape[0]:
            raise CheckpointError(f"{self.path}: {name!r} does not match its scales")
        return self._numbers(scales, start, stop - start).astype(np.float32)

    def _numbers(self, stored: StoredArray, first: int, count: int) -> NDArray[np.floating]:
        """Numbers of a variable as floats, without scales."""
        size = _BYTES[stored.kind]
        content = read_bytes(self.path, stored.offset + first * size, count * size)
        if stored.kind == "bfloat16":  # the upper half of a float32
            return (content.view("<u2").astype(np.uint32) << 16).view(np.float32)
        values = content.view(np.dtype(stored.kind).newbyteorder("<"))
        return values if stored.kind.startswith("float") else values.astype(np.float32)


def read_ctranslate2(path: Path) -> CTranslate2File:
    """Read the header of a model.bin, and where its variables lie.

    Raises:
        CheckpointError: It is not such a file, damaged, or of an unknown version.
    """
    with open_binary(path) as reader:
        version = reader.value("I")
        if version not in _VERSIONS:
            raise CheckpointError(f"{path} is not a model of CTranslate2: its version is {version}")
        spec = reader.text("H", 1024)
        reader.value("I")  # the revision of the spec: variables are looked up by all their names
        variables: dict[str, StoredArray] = {}
        for _ in range(reader.count("I", _MOST_VARIABLES, "variables")):
            name = reader.text("H", 1024)
            shape = reader.shape("I", reader.value("B"))
            if version >= 4:
                index = reader.count("B", len(_KINDS) - 1, "as the kind of a number")
                kind, size = _KINDS[index], reader.value("I")
            else:
                width = reader.value("B")
                if width not in _OLD_KINDS:
                    raise reader.refuse(f"a number has {width} bytes")
                kind, size = _OLD_KINDS[width], reader.value("I") * width
            if size != math.prod(shape) * _BYTES[kind]:
                raise reader.refuse(f"{name!r} of shape {list(shape)} has {size} bytes")
            variables[name] = reader.array(kind, shape, size)
        if version >= 3:
            for _ in range(reader.count("I", _MOST_VARIABLES, "aliases")):
                alias, name = reader.text("H", 1024), reader.text("H", 1024)
                if name not in variables:
                    raise reader.refuse(f"{alias!r} stands for {name!r}, which is not there")
                variables[alias] = variables[name]
                if f"{name}_scale" in variables:
                    variables.setdefault(f"{alias}_scale", variables[f"{name}_scale"])
    return CTranslate2File(path, spec, variables)


def vocabulary_words(folder: Path, name: str) -> list[str] | None:
    """The words of a vocabulary in the order of their ids; None without NAME.json and NAME.txt.

    Raises:
        CheckpointError: The file is damaged.
    """
    for path in (folder / f"{name}.json", folder / f"{name}.txt"):
        if path.is_file():
            is_json = path.suffix == ".json"
            words = read_json_list(path, TOKENIZER_BYTES) if is_json else _lines(path)
            return [str(word) for word in words]
    return None


def _lines(path: Path) -> list[str]:
    try:
        check_regular(path, TOKENIZER_BYTES)
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
