"""Compares decoding methods on the same sources: plain, uncached, beam search, speculative with a
draft model or with n-grams."""

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
    "Comparison",
    "Listener",
    "Run",
    "TranslationComparison",
    "compare",
    "run_request",
    "runs_of",
    "summary",
    "table",
    "to_json",
]

METHODS = ("plain", "uncached", "beam", "speculative", "n-gram")
_COLUMNS = ("method", "tokens", "tokens/s", "vs plain", "drafts accepted", "agreement")
Listener = Callable[[DebugEvent], None]
Pipeline = TypeVar("Pipeline")
Source = TypeVar("Source")


@dataclass(frozen=True)
class Run:
    """One source decoded with one method.

    Attributes:
        method: One of METHODS.
        text: Name of the source.
        tokens: Number of new tokens.
        seconds: Time of encoding and decoding.
        kept: Share of the draft tokens that were accepted; None without drafts.
        agreement: Share of the tokens of plain decoding before the first difference.
    """

    method: str
    text: str
    tokens: int
    seconds: float
    kept: float | None
    agreement: float


@dataclass
class Comparison(ABC, Generic[Pipeline, Source]):
    """A pipeline and the settings of all methods.

    Attributes:
        pipeline: Decodes.
        drafter: Pipeline of the draft model, with the same vocabulary; None leaves out
            speculative decoding.
        processor: Turns logits into probabilities and samples from them.
        gamma: Draft tokens per step.
        length: Maximum number of new tokens.
        beams: Number of beams.
        use_cache: False: plain, speculative and n-gram decoding read the whole output again at each
            step.
    """

    pipeline: Pipeline
    drafter: Pipeline | None = None
    processor: LogitsProcessor = field(default_factory=GreedyProcessor)
    gamma: int = 5
    length: int = 64
    beams: int = 4
    use_cache: bool = True

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that can run: beams need temperature 0 and the cache, speculation needs a
        drafter; without the cache, plain decoding is the uncached one."""
        left_out = {"beam"} if self.processor.temperature > 0 else set[str]()
        left_out |= set() if self.use_cache else {"beam", "uncached"}
        left_out |= set() if self.drafter is not None else {"speculative"}
        return tuple(method for method in METHODS if method not in left_out)

    @abstractmethod
    def generate(
        self, method: str, source: Source, listener: Listener | None = None
    ) -> tuple[list[int], float | None]:
        """Decode a source with one method.

        Args:
            method: One of `methods`.
            source: Input of the encoder.
            listener: Is called with tokens as they are decoded.

        Returns:
            New token ids with eos, and the share of accepted draft tokens (None without drafts).
        """


class TranslationComparison(Comparison[Translator, Sequence[int]]):
    """Methods compared on texts; sources are token ids."""

    def encode(self, text: str) -> list[int]:
        """The source ids of a text."""
        return self.pipeline.tokenizer.encode(text.strip(), None)

    def generate(
        self, method: str, source: Sequence[int], listener: Listener | None = None
    ) -> tuple[list[int], float | None]:
        """As Comparison.generate."""
        model, debug = self.pipeline.model, listener or False
        eos = model.architecture.eos_ids
        if method in ("plain", "uncached"):
            out = autoregressive_generate_encoder_decoder(
                source, model, self.length, self.processor, eos,
                use_cache=self.use_cache and method == "plain", debug=debug,
            )  # fmt: skip
            return out[1:], None
        if method == "beam":
            return self._beam_search(source, listener), None
        drafter: object = NgramDrafter(source=tuple(source), gamma=self.gamma)
        if method == "speculative":
            assert self.drafter is not None, "only with a drafter"
            drafter = self.drafter.model
        out, accepted = speculative_generate_encoder_decoder(
            source, drafter, model, gamma=self.gamma, logits_processor=self.processor,
            max_gen_len=self.length, eos_tokens_id=eos, use_cache=self.use_cache, debug=debug,
        )  # fmt: skip
        return out[1:], accepted

    def _beam_search(self, ids: Sequence[int], listener: Listener | None) -> list[int]:
        model = self.pipeline.model
        options = GreedyProcessor().options(self.length, model.architecture.eos_ids)
        options = replace(options, beam_size=self.beams)
        start = (model.architecture.start_id,)
        request = Request(model.encode([ids])[0], start, options)
        return list(run_request(model, request, listener).tokens)


def run_request(model: LoadedModel, request: Request, listener: Listener | None) -> Result:
    """The result of a request; its tokens go to the listener as they are decoded."""
    with model.stream(request) as stream:
        for event in stream:
            if listener is not None and event.tokens:
                listener(DebugEvent("token", event.tokens))
        return stream.result()


def compare(
    comparison: Comparison[Any, Source], sources: Iterable[tuple[str, Source]]
) -> Iterator[Run]:
    """Run all methods on all sources. The first source is decoded once before, to warm up.

    Args:
        comparison: What decodes, and how.
        sources: (name, source) pairs.
    """
    for index, (name, source) in enumerate(sources):
        if index == 0:
            for method in comparison.methods:
                comparison.generate(method, source)
        yield from runs_of(comparison, name, source, None)


def runs_of(
    comparison: Comparison[Any, Source],
    name: str,
    source: Source,
    listen: Callable[[str], Listener] | None,
) -> Iterator[Run]:
    """Run all methods on one source.

    Args:
        comparison: What decodes, and how.
        name: Name of the source.
        source: Input of the encoder.
        listen: Makes a listener for a method; None listens to none.
    """
    plain: list[int] = []
    for method in comparison.methods:
        started = time.perf_counter()
        listener = None if listen is None else listen(method)
        ids, accepted = comparison.generate(method, source, listener)
        seconds = time.perf_counter() - started
        plain = ids if method == "plain" else plain
        yield Run(method, name, len(ids), seconds, accepted, _agreement(ids, plain))


def _agreement(ids: Sequence[int], plain: Sequence[int]) -> float:
    """Share of `plain` before the first difference."""
    same = 0
    for one, other in zip(ids, plain, strict=False):
        if one != other:
            break
        same += 1
    return same / len(plain) if plain else 1.0


def summary(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """The cells of the table: one row per method, over all sources."""
    rows = list[tuple[str, ...]]()
    plain = _speed([run for run in runs if run.method == "plain"])
    for method in METHODS:
        own = [run for run in runs if run.method == method]
        if own:
            accepted = [run.kept for run in own if run.kept is not None]
            rows.append(
                (
                    method,
                    str(sum(run.tokens for run in own)),
                    f"{_speed(own):.0f}",
                    f"{_speed(own) / plain:.2f} ×" if plain else "",
                    f"{100 * mean(accepted):.0f} %" if accepted else "",
                    f"{100 * mean(run.agreement for run in own):.0f} %",
                )
            )
    return rows


def _speed(runs: Sequence[Run]) -> float:
    """Tokens per second over all runs."""
    seconds = sum(run.seconds for run in runs)
    return sum(run.tokens for run in runs) / seconds if seconds else 0.0


def table(runs: Sequence[Run]) -> Table:
    """The summary as a table for a terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(_COLUMNS):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in summary(runs):
        table.add_row(*row)
    return table


def to_json(runs: Sequence[Run]) -> str:
    """One JSON object with all runs."""
    return json.dumps({"runs": [asdict(run) for run in runs]}, ensure_ascii=False)
