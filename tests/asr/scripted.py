"""Scripted decoding, for this program and for openai-whisper.

Each decode call returns the next scripted turn, whatever its arguments, which are recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, cast

from torch import Tensor
from whisper.decoding import DecodingOptions, DecodingResult, DecodingTask
from whisper.model import Whisper
from whisper.tokenizer import Tokenizer, get_tokenizer
from whisper.utils import compression_ratio

from pipelines.asr import Transcriber
from pipelines.engine import Drafting, Engine, Event, FinishReason, LoadedModel, Request, Result

__all__ = ["DecodeCall", "OurScript", "Turn", "script_theirs", "scripted"]


@dataclass(frozen=True)
class Turn:
    """The result of a decode call. tokens: ids without end of text."""

    tokens: tuple[int, ...]
    avg_logprob: float = -0.25
    no_speech_prob: float = 0.0
    ended: bool = True


@dataclass(frozen=True)
class DecodeCall:
    """The arguments of a decode call. mel: the window [mels, frames]."""

    temperature: float
    prompt: tuple[int, ...]
    mel: Tensor


class _Stream:
    """Stands in for a Stream: one turn, one token an event."""

    def __init__(self, turn: Turn, eot: int) -> None:
        tokens = (*turn.tokens, *[eot] * turn.ended)
        # Log-probabilities with this mean; openai-whisper divides by the number of tokens + 1.
        scale = (len(turn.tokens) + 1) / max(len(tokens), 1)
        logprobs = (turn.avg_logprob * scale,) * len(tokens)
        reason = FinishReason.EOS if turn.ended else FinishReason.LENGTH
        self._result = Result(tokens, logprobs, reason, (turn.no_speech_prob,))
        self._events = self._iterate()
        self.ready = True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __next__(self) -> Event:
        return next(self._events)

    def _iterate(self) -> Iterator[Event]:
        tokens = self._result.tokens
        for i, token in enumerate(tokens):
            yield Event((token,), (), self._result.reason if i == len(tokens) - 1 else None)

    def result(self) -> Result:
        return self._result


@dataclass
class OurScript:
    """Stands in for Engine and LoadedModel; the encoded window is the spectrogram itself."""

    turns: Iterator[Turn]
    eot: int
    architecture: Any
    calls: list[DecodeCall] = field(default_factory=list)
    takes_any_shapes = True
    device = "cpu"

    def check_process(self) -> None: ...

    def encode(self, sources: Sequence[Tensor], priority: int = 0) -> list[Tensor]:
        return list(sources)

    def stream(self, request: Request) -> _Stream:
        mel = cast(Tensor, request.encoded)
        self.calls.append(DecodeCall(request.options.temperature, request.prompt, mel))
        return _Stream(next(self.turns), self.eot)


def scripted(real: Transcriber, turns: Sequence[Turn]) -> tuple[Transcriber, OurScript]:
    """A transcriber with the vocabulary of `real` that returns the turns, repeated."""
    transcriber, recognizer = copy(real), copy(real.recognizer)
    eot = transcriber.tokenizer.special.eot
    script = OurScript(cycle(turns), eot, transcriber.model.architecture)
    recognizer.engine, recognizer.model = cast(Engine, script), cast(LoadedModel, script)
    recognizer.drafting = Drafting(recognizer.model)
    transcriber._recognizer = recognizer
    return transcriber, script


def script_theirs(model: Whisper, turns: Sequence[Turn]) -> list[DecodeCall]:
    """Make openai-whisper's model return the turns. The returned list records its decode calls."""
    calls: list[DecodeCall] = []
    following = cycle(turns)

    def decode(mel: Tensor, options: DecodingOptions) -> DecodingResult:
        task = DecodingTask(model, options)
        calls.append(DecodeCall(options.temperature, tuple(task.initial_tokens), mel))
        return _result(next(following), task.tokenizer, mel, options)

    model.decode = decode
    return calls


def _result(
    turn: Turn, tokenizer: Tokenizer, mel: Tensor, options: DecodingOptions
) -> DecodingResult:
    """A DecodingResult as DecodingTask.run builds it."""
    text = tokenizer.decode(list(turn.tokens)).strip()
    return DecodingResult(
        audio_features=mel,
        language=options.language or get_tokenizer(True).language,
        tokens=list(turn.tokens),
        text=text,
        avg_logprob=turn.avg_logprob,
        no_speech_prob=turn.no_speech_prob,
        temperature=options.temperature,
        compression_ratio=compression_ratio(text),
    )
