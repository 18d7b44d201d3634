"""A true-vocabulary, 30 s Whisper of two small layers, fitted on tones until it writes text and
timestamps, as an openai-whisper model and as a Hugging Face folder of the same weights.

Its recordings are chords: each stands for a phrase. The encoder stays random, so it is run once
over the few windows there are; the decoder learns them by heart, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from whisper.audio import log_mel_spectrogram, pad_or_trim
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import Tokenizer, get_tokenizer

from tests.fixtures.checkpoints import write_whisper

__all__ = ["RECORDINGS", "Recording", "fit", "samples_of", "write_folder"]

WINDOW_S = 30.0
PHRASES = (
    " Good morning.",
    " Where is the station?",
    " Grüße aus Köln!",
    " 春の雨、🌧 again.",
    " One two three four five.",
    " Please repeat the question.",
)
TRANSLATED = (
    " Hello.",
    " The station, where?",
    " Greetings.",
    " Rain in spring.",
    " Five numbers.",
    " Once more.",
)


@dataclass(frozen=True)
class Recording:
    """phrases: (start in s, length in s, number of the phrase); times on a grid of 0.5 s."""

    language: str
    seconds: float
    phrases: tuple[tuple[float, float, int], ...]


def _talk(start: float, stop: float, order: str) -> tuple[tuple[float, float, int], ...]:
    """Phrases one after the other, in the order given, from `start` on until `stop`."""
    talk, at = [], start
    for turn in range(100):
        number = int(order[turn % len(order)])
        length = 4.0 + 0.5 * (turn % 4)
        if at + length > stop:
            break
        talk.append((at, length, number))
        at += length + (0.5 if turn % 3 else 0.0)
    return tuple(talk)


RECORDINGS = {
    # Phrases cross the ends of windows, which then end with a start that the next one takes up.
    "long": Recording("en", 70.0, _talk(0.5, 69.5, "0123450213")),
    # Half a minute of silence: a window without speech, from where a window is done at 30 s.
    "silence": Recording("en", 75.0, _talk(0.0, 29.5, "5430") + _talk(60.5, 75.0, "1024")),
    "german": Recording("de", 41.0, _talk(0.5, 40.5, "2210")),
    "short": Recording("en", 9.5, _talk(0.5, 9.5, "14")),
}


def samples_of(recording: Recording) -> NDArray[np.float32]:
    """The recording as mono float32 at 16 kHz."""
    noise = np.random.default_rng(int(recording.seconds))
    sound = noise.normal(0.0, 1e-4, int(recording.seconds * 16_000))
    for start, length, number in recording.phrases:
        t = np.arange(int(length * 16_000)) / 16_000
        pitch = 300.0 * 1.5**number
        chord = 0.2 * np.sin(2 * np.pi * pitch * t) + 0.1 * np.sin(2 * np.pi * 1.3 * pitch * t)
        if recording.language == "de":
            chord += 0.1 * np.sin(2 * np.pi * 6000.0 * t)
        at = int(start * 16_000)
        sound[at : at + len(chord)] += chord * np.minimum(1.0, np.minimum(t, t[::-1]) / 0.02)
    return sound.astype(np.float32)


@dataclass(frozen=True)
class _Example:
    window: int
    tokens: tuple[int, ...]
    learn_from: int  # the first token of this position on is to be predicted
    silent: bool


def _window_tokens(
    recording: Recording, at: float, tokenizer: Tokenizer, phrases: tuple[str, ...]
) -> tuple[list[int], float]:
    """What to say of the window at `at` seconds, and where the next one begins."""
    begin = tokenizer.timestamp_begin
    tokens: list[int] = []
    for start, length, number in recording.phrases:
        if not at <= start < at + WINDOW_S:
            continue
        tokens.append(begin + round((start - at) / 0.02))
        if start + length > at + WINDOW_S:
            return tokens, start
        tokens += tokenizer.encode(phrases[number])
        tokens.append(begin + round((start + length - at) / 0.02))
    return tokens, at + WINDOW_S


def _examples(windows: list[Tensor]) -> Iterator[_Example]:
    """Every window that correct decoding meets, with and without the text before it.

    The windows' spectra are appended to `windows`.
    """
    for recording in RECORDINGS.values():
        samples = torch.from_numpy(samples_of(recording))
        mel = log_mel_spectrogram(samples, padding=480_000)
        frames = mel.shape[1] - 3000
        tasks = [("transcribe", PHRASES), ("translate", TRANSLATED)]
        for task, phrases in tasks if recording.language == "de" else tasks[:1]:
            tokenizer = get_tokenizer(True, language=recording.language, task=task)
            start = tokenizer.sot_sequence
            at, history = 0.0, []  # type: float, list[int]
            while round(at * 100) < frames:
                seek = round(at * 100)
                windows.append(pad_or_trim(mel[:, seek : min(seek + 3000, frames)], 3000))
                said, at = _window_tokens(recording, at, tokenizer, phrases)
                for before in ([], history[-223:])[: 2 if history else 1]:
                    prompt = ((tokenizer.sot_prev, *before) if before else ()) + start
                    tokens = (*prompt, *said, tokenizer.eot)
                    first = len(prompt) - len(start) + 1
                    yield _Example(len(windows) - 1, tokens, first, not said)
                history += said
            windows.append(mel[:, :3000])  # as language detection hears it
            yield _Example(len(windows) - 1, start, 1, not recording.phrases)


def fit(steps: int = 400, seed: int = 0) -> Whisper:
    """The fitted model, in openai-whisper's class."""
    torch.manual_seed(seed)
    dims = ModelDimensions(80, 1500, 64, 4, 2, 51_865, 448, 64, 4, 2)
    model = Whisper(dims)
    tokenizer = get_tokenizer(True)
    windows: list[Tensor] = []
    examples = list(_examples(windows))
    # Tokens that never occur keep a zero embedding: their logits are 0, and the softmax over
    # the whole vocabulary needs only those that do.
    used = sorted({t for e in examples for t in e.tokens} | {tokenizer.no_speech})
    number = {token: i for i, token in enumerate(used)}
    table = nn.Parameter(torch.randn(len(used), 64) * 0.3)
    nn.init.normal_(model.decoder.positional_embedding, std=0.1)
    with torch.no_grad():
        heard = torch.cat([model.encoder(w[None]) for w in windows])
    parameters = [p for n, p in model.decoder.named_parameters() if n != "token_embedding.weight"]
    optimiser = torch.optim.AdamW([table, *parameters], lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    rng = np.random.default_rng(seed)
    others = float(np.log(dims.n_vocab - len(used)))
    for _ in range(steps):
        batch = [examples[i] for i in rng.integers(len(examples), size=8)]
        loss = _loss(model, table, batch, heard, number, others, tokenizer, rng)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([table, *parameters], 1.0)
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        model.decoder.token_embedding.weight.zero_()
        model.decoder.token_embedding.weight[used] = table
    print(loss.item(), len(examples), max(len(e.tokens) for e in examples))
    return model.eval()


def _loss(
    model: Whisper,
    table: nn.Parameter,
    batch: list[_Example],
    heard: Tensor,
    number: dict[int, int],
    others: float,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
) -> Tensor:
    """Mean cross-entropy over the whole vocabulary of what is to be predicted."""
    rows = [[number[t] for t in _said(e, list(number), tokenizer, rng)] for e in batch]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    wanted = torch.full_like(ids, -100)
    for i, (example, row) in enumerate(zip(batch, rows, strict=True)):
        first = example.learn_from
        wanted[i, first : len(row)] = ids[i, first : len(row)]
        wanted[i, first + 1] = -100  # the task is told, not heard
        if example.silent:
            wanted[i, first] = number[tokenizer.no_speech]
    decoder = model.decoder
    x = table[ids] + decoder.positional_embedding[:longest]
    memory = heard[[e.window for e in batch]]
    for block in decoder.blocks:
        x = block(x, memory, mask=decoder.mask)
    logits = decoder.ln(x) @ table.T
    rest = torch.full_like(logits[..., :1], others)
    logits = torch.cat([logits, rest], dim=-1)[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), wanted[:, 1:].flatten())


def _said(
    example: _Example, used: list[int], tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[int, ...]:
    """The tokens of an example; in silence anything is as likely as anything else."""
    if not example.silent:
        return example.tokens
    prompt = example.tokens[: example.learn_from + 2]
    return (*prompt, *rng.choice(used, size=12).tolist(), tokenizer.eot)
