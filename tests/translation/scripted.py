"""A scripted model: it generates the tokens that a test gives, for cases no real model ensures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.engine import Architecture, Event, FinishReason, Request
from pipelines.translation import Translator

__all__ = ["Script", "ScriptedEngine", "ScriptedStream", "scripted"]

# (source ids, the request) → the tokens that follow its prompt. Without eos they end at
# max_new_tokens.
Script = Callable[[tuple[int, ...], Request], Sequence[int]]


@dataclass
class ScriptedStream:
    request: Request
    tokens: Sequence[int]
    read: int = 0
    cancelled: bool = False
    ready = worth_reading = False  # no token is computed before it is read

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        options = self.request.options
        if self.cancelled or self.read >= min(len(self.tokens), options.max_new_tokens):
            raise StopIteration
        token = self.tokens[self.read]
        self.read += 1
        last = self.read == options.max_new_tokens
        reason = FinishReason.LENGTH if last else None
        if token in options.eos_ids:
            reason = FinishReason.EOS
            self.tokens = self.tokens[: self.read]
        return Event((token,), (-0.5,), reason)

    def cancel(self) -> None:
        self.cancelled = True

    def __enter__(self) -> ScriptedStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()


@dataclass
class ScriptedEngine:
    """Engine and model in one."""

    architecture: Architecture
    script: Script
    streams: list[ScriptedStream] = field(default_factory=list)
    encoded: list[int] = field(default_factory=list)
    takes_any_shapes = False

    def load(self, folder: Path, shortlist: Sequence[int] | None = None) -> ScriptedEngine:
        return self

    def check_process(self) -> None:
        """Do nothing: it works in any process."""

    def encode(self, sources: Sequence[Sequence[int]], priority: int = 0) -> list[Any]:
        longest = self.architecture.max_source_positions
        assert all(0 < len(source) <= longest for source in sources)
        self.encoded.append(len(sources))
        return [tuple(source) for source in sources]

    def stream(self, request: Request) -> ScriptedStream:
        source: Any = request.encoded
        stream = ScriptedStream(request, list(self.script(source, request)))
        self.streams.append(stream)
        return stream


def scripted(like: Translator, script: Script) -> tuple[Translator, ScriptedEngine]:
    """A translator with the tokenizer of `like` and a scripted model."""
    engine = ScriptedEngine(like.model.architecture, script)
    fake: Any = engine
    return Translator(like.model.folder, engine=fake), engine
