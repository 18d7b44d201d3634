"""Ways of decoding the same source, side by side: plain, uncached, beams, drafted by a smaller
model or by n-grams."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pipelines import Translator
from pipelines.engine import (
    DebugEvent,
    GreedyProcessor,
    LogitsProcessor,
    NgramDrafter,
    Request,
    autoregressive_generate_encoder_decoder,
    speculative_generate_encoder_decoder,
)

if TYPE_CHECKING:
    from rich.table import Table

    from pipelines.engine import LoadedModel, Result

__all__ = [
    "METHODS",
    "Comparable",
    "Listener",
    "Run",
    "Session",
    "compare",
    "runs_of",
    "summary",
    "table",
    "to_json",
    "describe",
]

METHODS = ("plain", "uncached", "beam", "speculative", "n-gram")
_COLUMNS = ("method", "tokens", "tokens/s", "against plain", "guesses kept", "agreement")
Listener = Callable[[DebugEvent], None]
Pipeline = TypeVar("Pipeline")
Source = TypeVar("Source")


@dataclass(frozen=True)
class Run:
    """One source decoded in one way.

    text: what it is called. tokens: new ones. kept: share of the guesses that were right, None
    without guesses. agreement: share of plain decoding's tokens before the first that differs.
    """

    method: str
    text: str
    tokens: int
    seconds: float
    kept: float | None
    agreement: float


@dataclass
class Comparable(ABC, Generic[Pipeline, Source]):
    """What is compared, and how. tool: decodes. drafter: another one, with the same vocabulary."""

    tool: Pipeline
    drafter: Pipeline | None = None
    processor: LogitsProcessor = field(default_factory=GreedyProcessor)
    gamma: int = 5
    length: int = 64
    beams: int = 4

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that can be run: beams do not sample, and speculation needs a drafter."""
        left_out = {"beam"} if self.processor.temperature > 0 else set[str]()
        left_out |= set() if self.drafter is not None else {"speculative"}
        return tuple(method for method in METHODS if method not in left_out)

    @abstractmethod
    def generate(
        self, method: str, source: Source, listener: Listener | None = None
    ) -> tuple[list[int], float | None]:
        """New ids, eos included, and the share of guesses kept."""


class Session(Comparable[Translator, Sequence[int]]):
    """Translations compared."""

    def read(self, text: str) -> list[int]:
        """A text as the model reads it."""
        return self.tool.tokenizer.encode(text.strip(), None)

    def generate(
        self, method: str, source: Sequence[int], listener: Listener | None = None
    ) -> tuple[list[int], float | None]:
        """As Comparable.generate."""
        model, debug = self.tool.model, listener or False
        eos = model.architecture.eos_ids
        if method in ("plain", "uncached"):
            out = autoregressive_generate_encoder_decoder(
                source, model, self.length, self.processor, eos,
                use_cache=method == "plain", debug=debug,
            )  # fmt: skip
            return out[1:], None
        if method == "beam":
            return self._with_beams(source, listener), None
        drafter: object = NgramDrafter(source=tuple(source), gamma=self.gamma)
        if method == "speculative":
            assert self.drafter is not None, "only with a drafter"
            drafter = self.drafter.model
        out, kept = speculative_generate_encoder_decoder(
            source, drafter, model, self.gamma, self.processor, self.length, eos,
            use_cache=True, debug=debug,
        )  # fmt: skip
        return out[1:], kept

    def _with_beams(self, ids: Sequence[int], listener: Listener | None) -> list[int]:
        model = self.tool.model
        options = GreedyProcessor().options(self.length, model.architecture.eos_ids)
        options = replace(options, beam_size=self.beams)
        start = (model.architecture.start_id,)
        return list(
            describe(model, Request(model.encode([ids])[0], start, options), listener).tokens
        )


def describe(model: LoadedModel, request: Request, listener: Listener | None) -> Result:
    """The result of a request, of whose tokens the listener has heard as they came."""
    with model.stream(request) as stream:
        for event in stream:
            if listener is not None and event.tokens:
                listener(DebugEvent("token", event.tokens))
        return stream.result()


def compare(
    session: Comparable[Any, Source], sources: Iterable[tuple[str, Source]]
) -> Iterator[Run]:
    """Every source, with what to call it, in every way; each model is warm before it is timed."""
    for place, (name, source) in enumerate(sources):
        if place == 0:
            for method in session.methods:
                session.generate(method, source)
        yield from runs_of(session, name, source, None)


def runs_of(
    session: Comparable[Any, Source],
    name: str,
    source: Source,
    listen: Callable[[str], Listener] | None,
) -> Iterator[Run]:
    """One source in every way. listen: makes a listener for each of them."""
    plain: list[int] = []
    for method in session.methods:
        started = time.perf_counter()
        out, kept = session.generate(method, source, None if listen is None else listen(method))
        seconds = time.perf_counter() - started
        plain = out if method == "plain" else plain
        yield Run(method, name, len(out), seconds, kept, _agreement(out, plain))


def _agreement(ours: Sequence[int], plain: Sequence[int]) -> float:
    same = 0
    for mine, other in zip(ours, plain, strict=False):
        if mine != other:
            break
        same += 1
    return same / len(plain) if plain else 1.0


def summary(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """A row for each method, over all texts: the cells of the table."""
    rows = list[tuple[str, ...]]()
    plain = _speed([run for run in runs if run.method == "plain"])
    for method in METHODS:
        own = [run for run in runs if run.method == method]
        if own:
            kept = [run.kept for run in own if run.kept is not None]
            rows.append(
                (
                    method,
                    str(sum(run.tokens for run in own)),
                    f"{_speed(own):.0f}",
                    f"{_speed(own) / plain:.2f} ×" if plain else "",
                    f"{100 * mean(kept):.0f} %" if kept else "",
                    f"{100 * mean(run.agreement for run in own):.0f} %",
                )
            )
    return rows


def _speed(runs: Sequence[Run]) -> float:
    seconds = sum(run.seconds for run in runs)
    return sum(run.tokens for run in runs) / seconds if seconds else 0.0


def table(runs: Sequence[Run]) -> Table:
    """For a terminal."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(_COLUMNS):
        shown.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in summary(runs):
        shown.add_row(*row)
    return shown


def to_json(runs: Sequence[Run]) -> str:
    """One object with all runs."""
    return json.dumps({"runs": [asdict(run) for run in runs]}, ensure_ascii=False)
