"""Lessons: what a Whisper model wrote for single windows, and what its decoder layers attended to.

A lesson is one file, NAME.safetensors, that teach.py writes and train.py reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

LIKELY = 8  # of the teacher's probabilities at each position, the greatest


@dataclass(frozen=True)
class Lesson:
    """One window.

    keys, values: bfloat16 [layers, heads, positions, head_dim], of the cross-attention of the
        teacher's layers that the student's are made from.
    ids: int64 [tokens], the prompt and what the teacher wrote, end of text included.
    prompt: how many of the ids are the prompt.
    likely_ids, likely_probs: [tokens − prompt, LIKELY], what the teacher held for likely at each
        id that it wrote.
    """

    keys: Tensor
    values: Tensor
    ids: Tensor
    prompt: int
    likely_ids: Tensor
    likely_probs: Tensor


def save_lesson(path: Path, lesson: Lesson) -> None:
    """Write a lesson; a reader finds the whole file or none."""
    tensors = {
        "keys": lesson.keys.bfloat16().contiguous(),
        "values": lesson.values.bfloat16().contiguous(),
        "ids": lesson.ids.int(),
        "prompt": torch.tensor(lesson.prompt),
        "likely_ids": lesson.likely_ids.int(),
        "likely_probs": lesson.likely_probs.float(),
    }
    part = path.with_suffix(".part")
    save_file(tensors, part)
    part.replace(path)


def load_lesson(path: Path, layers: list[int]) -> Lesson:
    """Read a lesson, of its keys and values those of some layers, by their places in the file."""
    with safe_open(path, "pt") as file:
        keys, values = (
            torch.cat([file.get_slice(name)[i : i + 1] for i in layers])
            for name in ("keys", "values")
        )
        return Lesson(
            keys,
            values,
            file.get_tensor("ids").long(),
            int(file.get_tensor("prompt")),
            file.get_tensor("likely_ids").long(),
            file.get_tensor("likely_probs"),
        )


def written(path: Path) -> list[int]:
    """The ids that the teacher wrote in a lesson."""
    with safe_open(path, "pt") as file:
        ids: list[int] = file.get_tensor("ids")[int(file.get_tensor("prompt")) :].tolist()
    return ids
