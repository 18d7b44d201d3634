"""Targets for EdgeApp against each library, and whether they are met."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.comparison.backends.registry import CT2, FASTER, HF, HF_EXACT, OURS
from tests.benchmarks.comparison.figures import Figure

__all__ = ["target_of", "target_rows", "better"]

# (task, library) → factor by which EdgeApp is to be faster (smaller, for memory).
_TARGETS = {
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
_GPU_TARGETS = {("step 1", HF): 5.0}
_TINY_STEP_TARGET = 1.5
_MAX_GROWTH = 1.3  # time of a late step over an early one


def better(unit: str, one: float, other: float) -> float:
    """The factor by which `one` is better than `other`."""
    return one / other if unit == "tokens/s" else other / one


def target_of(shape: str, work: str, peer: str, on_gpu: bool = False) -> float | None:
    """The factor by which EdgeApp is to be better than a library; None without a target."""
    if on_gpu:
        return _GPU_TARGETS.get((work, peer))
    if (shape, work, peer) == ("whisper-tiny", "step 1", CT2):
        return _TINY_STEP_TARGET
    return _TARGETS.get((work, peer))


def target_rows(figures: Sequence[Figure], on_gpu: bool = False) -> dict[str, str]:
    """For the figures of one task: library → "2.10 ×, aim 1.5: hit"."""
    ours = next((each for each in figures if each.peer == OURS and each.runs), None)
    if ours is None:
        return {}
    if ours.work == "growth":
        return {OURS: f"aim {_MAX_GROWTH:g}: {'hit' if ours.median <= _MAX_GROWTH else 'missed'}"}
    return {
        each.peer: _verdict(
            better(each.unit, ours.median, each.median),
            target_of(each.shape, each.work, each.peer, on_gpu),
        )
        for each in figures
        if each.runs and each.peer != OURS
    }


def _verdict(ratio: float, target: float | None) -> str:
    if target is None:
        return f"{ratio:.2f} ×"
    return f"{ratio:.2f} ×, aim {target:.2g}: {'hit' if ratio >= target else 'missed'}"
