"""Arguments of constructors that all models have: where a model comes from, and where it runs."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.errors import OptionError

__all__ = ["device_name"]


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
