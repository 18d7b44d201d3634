"""What the constructors of all models share: where a model runs, and which heads align it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from pipelines.errors import OptionError


def device_name(device: str, index: int | Sequence[int]) -> str:
    """Return the engine's name of a device.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        index: The number of the GPU; of a sequence only one. 0 leaves the choice to `device`.

    Raises:
        OptionError: Several GPUs are named, or the device has no numbers or one already.
    """
    if not isinstance(index, int):
        if len(index) != 1:
            raise OptionError(
                f"device_index: one model runs on one device, not on {len(index)}; open it once "
                "for each of them"
            )
        index = index[0]
    if index == 0:
        return device
    if index < 0:
        raise OptionError(f"device_index must be 0 or more, not {index}")
    if device not in ("auto", "cuda"):
        raise OptionError(f"device {device} and device_index {index} exclude each other")
    return f"cuda:{index}"


def alignment_heads(
    named: Iterable[Sequence[int]] | None, layers: int, heads: int, default: range
) -> tuple[tuple[int, int], ...]:
    """Return the (decoder layer, head) pairs whose cross-attention aligns the output.

    Args:
        named: Those of a model's generation_config.json, if it names any.
        layers: Decoder layers.
        heads: Heads of each.
        default: The layers of which all heads are taken if none are named.

    Raises:
        TypeError: `named` does not hold pairs of numbers.
        ValueError: A named head is not one of the decoder.
    """
    try:
        pairs = tuple((operator.index(layer), operator.index(head)) for layer, head in named or ())
    except (TypeError, ValueError) as error:
        raise TypeError(f"alignment_heads must be pairs of numbers, not {named!r}") from error
    if not all(0 <= layer < layers and 0 <= head < heads for layer, head in pairs):
        raise ValueError(f"alignment_heads must be heads of {layers} layers, not {list(pairs)}")
    return pairs or tuple((layer, head) for layer in default for head in range(heads))
