"""config.json of a model folder, and its values, checked: what they describe is allocated or looped
over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.families.architecture import Activation
from pipelines.json_files import read_json_object

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Names of activations in configs; some have several."""

# Limits of sizes, some ten times those of published models.
MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, MAX_VOCABULARY = 1000, 1 << 17, 1 << 17, 1 << 22
MAX_TABLE = 1 << 28  # numbers in a table of positions


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model folder.

    Raises:
        CheckpointError: It is missing, unreadable, or not a JSON object.
    """
    path = folder / "config.json"
    try:
        return read_json_object(path)
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is not a model folder: it has no config.json") from None


def count(config: Mapping[str, Any], key: str, largest: int, default: int | None = None) -> int:
    """Return the value of `key`, a number of layers, heads, positions or the like.

    Args:
        config: Content of config.json.
        key: The key whose value is checked.
        largest: The largest value that is accepted; the smallest is 1.
        default: The value if the key is missing; None if it must be there.

    Raises:
        KeyError: There is neither a value nor a default.
        ValueError: It is not a whole number, or out of range.
    """
    value = config[key] if default is None else config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"{key} {shorten(value)} is not a whole number")
    if not 1 <= value <= largest:
        raise ValueError(f"{key} {shorten(value)} is not between 1 and {largest:,}")
    return int(value)


def eos_ids(eos: Any) -> tuple[int, ...]:
    """Return the ids of the tokens that end a sequence.

    Args:
        eos: The value of eos_token_id in config.json: a number, or a list of numbers.

    Raises:
        ValueError: The list is empty.
    """
    ids = tuple(int(i) for i in eos) if isinstance(eos, list) else (int(eos),)
    if not ids:
        raise ValueError("eos_token_id is an empty list")
    return ids


def shorten(value: object) -> str:
    """Return a value for an error message."""
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
