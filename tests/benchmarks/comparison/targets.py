"""What EdgeApp aims at against each rival, and whether it got there."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.comparison.backends.registry import CT2, FASTER, HF, HF_EXACT, OURS
from tests.benchmarks.comparison.figures import Figure

__all__ = ["target_of", "target_rows", "better"]

# (piece of work, rival) → how many times as good as it.
_AIMS = {
    ("step 1", CT2): 2.0,
    ("step 1", HF_EXACT): 8.0,
    ("encode", CT2): 1.5,
    ("encode", HF_EXACT): 2.0,
    ("window", FASTER): 1.7,
    ("windows 8", CT2): 1.5,
    ("lines", CT2): 1.5,
    ("memory", HF_EXACT): 2.0,
    ("memory", CT2): 1 / 1.3,
}
_GPU_AIMS = {("step 1", HF): 5.0}
_TINY_STEP = 1.5
_GROWTH = 1.3  # times as much, at most


def better(unit: str, one: float, other: float) -> float:
    """How many times as good `one` is as `other`."""
    return one / other if unit == "tokens/s" else other / one


def target_of(shape: str, work: str, rival: str, on_gpu: bool = False) -> float | None:
    """How many times as good as this EdgeApp is to be; None where nothing was set out."""
    if on_gpu:
        return _GPU_AIMS.get((work, rival))
    if (shape, work, rival) == ("whisper-tiny", "step 1", CT2):
        return _TINY_STEP
    return _AIMS.get((work, rival))


def target_rows(figures: Sequence[Figure], on_gpu: bool = False) -> dict[str, str]:
    """For one piece of work: rival → "2.10 ×, aim 1.5: hit"."""
    ours = next((each for each in figures if each.rival == OURS and each.runs), None)
    if ours is None:
        return {}
    if ours.work == "growth":
        return {OURS: f"aim {_GROWTH:g}: {'hit' if ours.median <= _GROWTH else 'missed'}"}
    return {
        each.rival: _verdict(
            better(each.unit, ours.median, each.median),
            target_of(each.shape, each.work, each.rival, on_gpu),
        )
        for each in figures
        if each.runs and each.rival != OURS
    }


def _verdict(ratio: float, aim: float | None) -> str:
    if aim is None:
        return f"{ratio:.2f} ×"
    return f"{ratio:.2f} ×, aim {aim:.2g}: {'hit' if ratio >= aim else 'missed'}"
