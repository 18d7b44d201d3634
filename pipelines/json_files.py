"""JSON files of models, which may come from anybody: read in bounded time and memory."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from pipelines.errors import CheckpointError

CONFIG_BYTES = 8 << 20  # the largest index of weights has 1 MB
TOKENIZER_BYTES = 256 << 20  # the largest tokenizers have 35 MB


_NONBLOCK = getattr(os, "O_NONBLOCK", 0)


def read_json_object(path: Path, largest: int = CONFIG_BYTES) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: The file.
        largest: The limit of its size in bytes.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: It cannot be read, is no regular file, too large, or no JSON object, or it
            holds NaN, an infinite number, or too many nested brackets.
    """
    value = _read_json(path, largest)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return value


def read_model_json(path: Path, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file of a model folder; empty where it is missing and `optional`.

    Raises:
        CheckpointError: The file is damaged, or missing and not optional.
    """
    try:
        return read_json_object(path, TOKENIZER_BYTES)
    except FileNotFoundError:
        if optional:
            return {}
        raise CheckpointError(f"{path.parent} is incomplete: it has no {path.name}") from None


def read_json_list(path: Path, largest: int = CONFIG_BYTES) -> list[Any]:
    """The list in a JSON file. Args and Raises as `read_json_object`."""
    value = _read_json(path, largest)
    if not isinstance(value, list):
        raise CheckpointError(f"{path} does not hold a JSON list")
    return value


def _read_json(path: Path, largest: int) -> Any:
    try:
        check_regular(path, largest)
        # O_NONBLOCK: to open a named pipe that was put there meanwhile must not wait for a writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NONBLOCK)) as file:
            content = file.read(largest + 1)
        if len(content) > largest:
            raise ValueError(_too_large(largest))
        return json.loads(content, parse_constant=_refuse_constant, parse_float=_finite)
    except FileNotFoundError:
        raise
    except RecursionError:
        raise CheckpointError(
            f"{path} cannot be read: its brackets are nested too deeply"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CheckpointError(f"{path} cannot be read: {reason}") from error


def check_regular(path: Path, largest: int) -> None:
    """Check that a file is neither a folder, a pipe nor a device, and not too large.

    Raises:
        OSError: There is no such file, or it cannot be looked up.
        ValueError: It is something else, or larger than `largest` bytes. The message is the end of
            a sentence.
    """
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise ValueError("it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is a device or a pipe")
    if status.st_size > largest:
        raise ValueError(_too_large(largest))


def _too_large(largest: int) -> str:
    return f"it is larger than {largest:,} bytes"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"it holds {text[:40]}, which is too large for a number")
    return value
