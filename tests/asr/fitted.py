"""A Whisper with the full vocabulary, a 30 s window and two small layers, fitted on the recordings
until it writes text and timestamps.

The encoder stays random and runs once over the windows; the decoder is overfitted on them. Ten
seconds of training are enough: oracle and product run the same weights, so the text only has to
exist, not to be correct everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from whisper.audio import log_mel_spectrogram, pad_or_trim
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import Tokenizer, get_tokenizer

from tests.asr.recordings import PHRASES, RECORDINGS, TRANSLATED, Recording, samples_of

__all__ = ["fit", "unfitted"]

_WINDOW_S = 30.0
_STRIDE = 10  # the decoder learns from every tenth frame, 0.2 s: a tenth of the work


@dataclass(frozen=True)
class _Example:
    """A training example.

    Attributes:
        window: Index of its window.
        tokens: Prompt, text, end of text.
        start: Index of the start token. The language token after it is a target.
        text_from: All tokens from this index on are targets; the task before them is not.
        silent: The window holds no speech; the target is the no-speech token.
    """

    window: int
    tokens: tuple[int, ...]
    start: int
    text_from: int
    silent: bool


def fit(steps: int = 400, seed: int = 0) -> Whisper:
    """The fitted model, in openai-whisper's class. Restores torch's settings."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more threads do not speed up so small a model
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _fitted(steps, np.random.default_rng(seed)).eval().requires_grad_(False)
    finally:
        torch.set_num_threads(threads)


def unfitted() -> Whisper:
    """A model of the same shape, with random weights that are not trained."""
    model = Whisper(ModelDimensions(80, 1500, 64, 4, 2, 51_865, 448, 64, 4, 2))
    return model.eval().requires_grad_(False)


def _fitted(steps: int, rng: np.random.Generator) -> Whisper:
    model = unfitted().train().requires_grad_(True)
    windows: list[Tensor] = []
    examples = list(_examples(windows))
    # Tokens that never occur keep a zero embedding: their logits are 0, and the softmax over
    # the whole vocabulary needs only those that do.
    used = sorted({t for e in examples for t in e.tokens} | {get_tokenizer(True).no_speech})
    table = nn.Parameter(torch.randn(len(used), 64) * 0.3)
    nn.init.normal_(model.decoder.positional_embedding, std=0.1)
    with torch.no_grad():
        encoded_windows = torch.cat([model.encoder(w[None])[:, ::_STRIDE] for w in windows])
    parameters = [p for n, p in model.decoder.named_parameters() if n != "token_embedding.weight"]
    optimiser = torch.optim.AdamW([table, *parameters], lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    for _ in range(steps):
        batch = [examples[i] for i in rng.integers(len(examples), size=8)]
        loss = _loss(model, table, batch, encoded_windows, used, rng)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([table, *parameters], 1.0)
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        model.decoder.token_embedding.weight.zero_()
        model.decoder.token_embedding.weight[used] = table
    return model


def _examples(windows: list[Tensor]) -> Iterator[_Example]:
    """Examples for every window of a correct decoding, with and without previous text.

    The windows' spectrograms are appended to `windows`.
    """
    for recording in RECORDINGS.values():
        mel = log_mel_spectrogram(torch.from_numpy(samples_of(recording)), padding=480_000)
        yield from _readings(recording, mel, "transcribe", PHRASES, windows)
        if recording.language == "de":
            yield from _readings(recording, mel, "translate", TRANSLATED, windows)
        if recording.seconds < 45:
            yield from _readings(recording, mel, "transcribe", PHRASES, windows, stamped=False)
        windows.append(mel[:, :3000])  # the window of language detection
        start = get_tokenizer(True, language=recording.language).sot_sequence
        yield _Example(len(windows) - 1, start, 0, len(start), silent=False)


def _readings(
    recording: Recording,
    mel: Tensor,
    task: str,
    phrases: tuple[str, ...],
    windows: list[Tensor],
    *,
    stamped: bool = True,
) -> Iterator[_Example]:
    tokenizer = get_tokenizer(True, language=recording.language, task=task)
    start = tokenizer.sot_sequence
    if not stamped:
        start = tokenizer.sot_sequence_including_notimestamps
    frames = mel.shape[1] - 3000
    at, history = 0.0, []  # type: float, list[int]
    while round(at * 100) < frames:
        seek = round(at * 100)
        windows.append(pad_or_trim(mel[:, seek : min(seek + 3000, frames)], 3000))
        text, at = _window_tokens(recording, at, tokenizer, phrases, stamped)
        for before in [[], history[-223:]] if history else [[]]:
            prompt = ((tokenizer.sot_prev, *before) if before else ()) + start
            tokens = (*prompt, *text, tokenizer.eot)
            yield _Example(
                len(windows) - 1, tokens, len(prompt) - len(start), len(prompt), not text
            )
        history += text


def _window_tokens(
    recording: Recording, at: float, tokenizer: Tokenizer, phrases: tuple[str, ...], stamped: bool
) -> tuple[list[int], float]:
    """The target text of the window at `at` seconds, and the start of the next one in seconds."""
    begin = tokenizer.timestamp_begin
    tokens: list[int] = []
    for start, length, number in recording.phrases:
        if not at <= start < at + _WINDOW_S:
            continue
        if not stamped:
            tokens += tokenizer.encode(phrases[number])
            continue
        tokens.append(begin + round((start - at) / 0.02))
        if start + length > at + _WINDOW_S:
            return tokens, start
        tokens += tokenizer.encode(phrases[number])
        tokens.append(begin + round((start + length - at) / 0.02))
    return tokens, at + _WINDOW_S


def _loss(
    model: Whisper,
    table: nn.Parameter,
    batch: list[_Example],
    encoded_windows: Tensor,
    used: list[int],
    rng: np.random.Generator,
) -> Tensor:
    """Mean cross-entropy of the targets over the whole vocabulary."""
    rows = [np.searchsorted(used, _training_tokens(example, used, rng)) for example in batch]
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    targets = torch.full_like(ids, -100)
    for i, (example, row) in enumerate(zip(batch, rows, strict=True)):
        targets[i, example.text_from : len(row)] = ids[i, example.text_from : len(row)]
        language = get_tokenizer(True).no_speech if example.silent else None
        first = example.start + 1
        targets[i, first] = ids[i, first] if language is None else used.index(language)
    decoder = model.decoder
    x = table[ids] + decoder.positional_embedding[:longest]
    encoded = encoded_windows[[example.window for example in batch]]
    for block in decoder.blocks:
        x = block(x, encoded, mask=decoder.mask)
    logits = decoder.ln(x) @ table.T
    others = float(np.log(model.dims.n_vocab - len(used)))
    logits = nn.functional.pad(logits, (0, 1), value=others)[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten())


def _training_tokens(
    example: _Example, used: list[int], rng: np.random.Generator
) -> tuple[int, ...]:
    """The tokens of an example; in silence the text is random."""
    if not example.silent:
        return example.tokens
    return (*example.tokens[: example.text_from], *rng.choice(used, size=12), example.tokens[-1])
