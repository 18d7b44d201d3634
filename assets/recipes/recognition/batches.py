"""Batches to train the recognizer on: log-mels with their tokens, harder as it learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from augment import equalize, limit_band, mask, warp_mel
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info
from whisper.audio import mel_filters
from windows import IGNORED, WINDOW, Composer, Example, is_plain

FRAMES_PER_BATCH, FRAMES_AT_FIRST = 7_000, 5_000
# Plain voices and small batches until the attention aligns.
PLAIN_UNTIL, MASK_FROM = 1_200, 3_000
DISGUISE_FROM, DISGUISE_FOR, DISGUISE_MOST = 1_500, 2_500, 0.6


@dataclass
class Batch:
    mel: Tensor  # [n, 80, frames]
    inputs: Tensor  # [n, tokens]
    labels: Tensor
    texts: list[str]

    def to(self, device: torch.device) -> Batch:
        """Its tensors there."""
        mel, inputs, labels = (each.to(device) for each in (self.mel, self.inputs, self.labels))
        return replace(self, mel=mel, inputs=inputs, labels=labels)


def log_mel(samples: Tensor) -> Tensor:
    """openai-whisper's features of [n, samples], each row with a floor of its own."""
    window = torch.hann_window(400)
    power = torch.stft(samples, 400, 160, window=window, return_complex=True)[..., :-1].abs() ** 2
    mel = (mel_filters("cpu", 80) @ power).clamp(min=1e-10).log10()
    return (torch.maximum(mel, mel.amax(dim=(1, 2), keepdim=True) - 8) + 4) / 4


def collate(examples: list[Example], composer: Composer, step: int) -> Batch:
    r, strength, eot = composer.random, composer.strength, composer.tokens.eot
    longest = max(len(e.samples) for e in examples)
    longest = min(-(-longest // 320) * 320, WINDOW)
    samples = torch.zeros(len(examples), longest)
    for row, e in enumerate(examples):
        samples[row, : len(e.samples)] = torch.from_numpy(e.samples[:longest])
    mel = log_mel(samples)
    for row, e in enumerate(examples):
        if r.random() < 1.2 * strength:
            mel[row] = warp_mel(mel[row], r)
        if r.random() < 0.8 * strength:
            mel[row] = equalize(mel[row], r)
        if r.random() < 0.15 * strength:
            mel[row] = limit_band(mel[row], r)
        if e.pad_mel_from is not None:
            mel[row, :, e.pad_mel_from // 160 + 1 :] = 0.0
        if step > MASK_FROM:
            mel[row] = mask(mel[row], r)
    tokens = max(len(e.inputs) for e in examples)
    inputs = torch.full((len(examples), tokens), eot)
    labels = torch.full((len(examples), tokens), IGNORED)
    for row, e in enumerate(examples):
        inputs[row, : len(e.inputs)] = torch.tensor(e.inputs)
        labels[row, : len(e.labels)] = torch.tensor(e.labels)
    return Batch(mel, inputs, labels, [e.text for e in examples])


class Batches:
    """Endless batches: single sentences sorted by length, windows of several, some of nothing."""

    def __init__(self, composer: Composer, frames: int) -> None:
        self._composer, self._frames, self._queue = composer, frames, []

    def next(self, step: int, share_of_full: float) -> Batch:
        c = self._composer
        c.strength = min(DISGUISE_MOST, max(0.0, (step - DISGUISE_FROM) / DISGUISE_FOR))
        if c.plain != (step < PLAIN_UNTIL):
            c.plain, self._queue = step < PLAIN_UNTIL, []
        if c.random.random() < share_of_full:
            examples = [c.several() for _ in range(self._frames // 1000)]
            examples[0] = c.nothing()
            if c.random.random() < 0.5:
                examples[1] = c.single(None, WINDOW)
        else:
            if not self._queue:
                order = [i for i, item in enumerate(c.items) if not c.plain or is_plain(item)]
                c.random.shuffle(order)
                # Neighbours in length, in random order: sorted within pools of 1,500.
                pools = [order[i : i + 1500] for i in range(0, len(order), 1500)]
                for pool in pools:
                    pool.sort(key=lambda i: len(c.items[i][0]))
                    room = FRAMES_AT_FIRST if c.plain else self._frames
                    self._queue += _cut(pool, [len(c.items[i][0]) for i in pool], room)
                c.random.shuffle(self._queue)
            examples = [c.single(i) for i in self._queue.pop()]
            if c.random.random() < 0.6 and not c.plain:
                examples[0] = c.single(None)
            if c.random.random() < 0.1 and len(examples) > 1 and not c.plain:
                examples[-1] = c.nothing()
                examples[-1].samples = examples[-1].samples[: len(examples[0].samples)]
        return collate(examples, c, step)


class Feed(IterableDataset[Batch]):
    """Batches as training needs them at a time: put together here, or ahead by other processes."""

    def __init__(self, composer: Composer, frames: int, seed: str) -> None:
        self._composer, self._frames, self._seed = composer, frames, seed
        self._now = torch.zeros(2).share_memory_()

    def tell(self, step: int, share_of_full: float) -> None:
        """What those that follow are to be like."""
        self._now[0], self._now[1] = step, share_of_full

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        if worker is not None:
            torch.set_num_threads(1)
            self._composer.random.seed(f"{self._seed}/{worker.id}")
        batches = Batches(self._composer, self._frames)
        while True:
            step, share_of_full = self._now.tolist()
            yield batches.next(int(step), share_of_full)


def _cut(pool: list[int], lengths: list[int], room: int) -> list[list[int]]:
    batches, current = [], []
    for index, length in zip(pool, lengths, strict=True):
        frames = length // 160 + 80
        if current and (len(current) + 1) * frames > room:
            batches.append(current)
            current = []
        current.append(index)
    return [*batches, current]
