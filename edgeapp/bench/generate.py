"""Ways of decoding the same text, side by side: plain, uncached, beams, drafted by a smaller model
or by n-grams; and a prompt on which to try them."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean
from typing import TYPE_CHECKING

from pipelines.engine import (
    DebugEvent,
    GreedyProcessor,
    LogitsProcessor,
    MinPProcessor,
    MultinomialProcessor,
    NgramDrafter,
    NucleusProcessor,
    Request,
    TopKNucleusProcessor,
    TopKProcessor,
    autoregressive_generate_encoder_decoder,
    speculative_generate_encoder_decoder,
)
from pipelines.errors import EdgeError, OptionError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pipelines.translation import Translator

__all__ = [
    "METHODS",
    "Run",
    "Session",
    "command",
    "compare",
    "converse",
    "summary",
    "table",
    "to_json",
]

METHODS = ("plain", "uncached", "beam", "speculative", "n-gram")
_STYLES = {"token": "", "accept": "green", "reject": "red strike", "resample": "yellow"}
_COLUMNS = ("method", "tokens", "tokens/s", "against plain", "guesses kept", "agreement")
_PROCESSORS: dict[str, tuple[type[LogitsProcessor], tuple[type, ...]]] = {
    "greedy": (GreedyProcessor, ()),
    "multinomial": (MultinomialProcessor, (float,)),
    "topk": (TopKProcessor, (float, int)),
    "nucleus": (NucleusProcessor, (float, float)),
    "topknucleus": (TopKNucleusProcessor, (float, int, float)),
    "minp": (MinPProcessor, (float, float)),
}
_HELP = """\
a text        decode it in every way
/processor    greedy, or with a temperature and what else it takes: topk 0.8 40
/gamma N      how many tokens are guessed at once
/length N     at most so many new tokens
/beams N      of the beam search
/drafter      a model of the same vocabulary; off for none
/quit         or Ctrl-D"""

Listener = Callable[[DebugEvent], None]


@dataclass(frozen=True)
class Run:
    """One text decoded in one way. tokens: new ones. kept: share of the guesses that were right,
    None without guesses. agreement: share of plain decoding's tokens before the first that
    differs."""

    method: str
    text: str
    tokens: int
    seconds: float
    kept: float | None
    agreement: float


@dataclass
class Session:
    """What is compared, and how. drafter: a translator with the same vocabulary, or None."""

    translator: Translator
    drafter: Translator | None = None
    processor: LogitsProcessor = field(default_factory=GreedyProcessor)
    gamma: int = 5
    length: int = 64
    beams: int = 4

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that this session can run."""
        sampled = self.processor.temperature > 0
        left_out = {"beam"} if sampled else set[str]()
        left_out |= set() if self.drafter is not None else {"speculative"}
        return tuple(method for method in METHODS if method not in left_out)

    def generate(
        self, method: str, ids: Sequence[int], listener: Listener | None = None
    ) -> tuple[list[int], float | None]:
        """New ids, eos included, and the share of guesses kept."""
        model, debug = self.translator.model, listener or False
        eos = model.architecture.eos_ids
        if method in ("plain", "uncached"):
            out = autoregressive_generate_encoder_decoder(
                ids, model, self.length, self.processor, eos,
                use_cache=method == "plain", debug=debug,
            )  # fmt: skip
            return out[1:], None
        if method == "beam":
            return self._with_beams(ids, listener), None
        drafter: object = NgramDrafter(source=tuple(ids), gamma=self.gamma)
        if method == "speculative":
            assert self.drafter is not None, "only with a drafter"
            drafter = self.drafter.model
        out, kept = speculative_generate_encoder_decoder(
            ids, drafter, model, self.gamma, self.processor, self.length, eos,
            use_cache=True, debug=debug,
        )  # fmt: skip
        return out[1:], kept

    def _with_beams(self, ids: Sequence[int], listener: Listener | None) -> list[int]:
        model = self.translator.model
        options = GreedyProcessor().options(self.length, model.architecture.eos_ids)
        options = replace(options, beam_size=self.beams)
        start = (model.architecture.start_id,)
        with model.stream(Request(model.encode([ids])[0], start, options)) as stream:
            for event in stream:
                if listener is not None and event.tokens:
                    listener(DebugEvent("token", event.tokens))
            return list(stream.result().tokens)


def compare(session: Session, texts: Iterable[str]) -> Iterator[Run]:
    """Every text in every way; each model is warm before it is timed."""
    for number, text in enumerate(text for text in texts if text.strip()):
        ids = session.translator.tokenizer.encode(text.strip(), None)
        if number == 0:
            for method in session.methods:
                session.generate(method, ids)
        yield from _runs(session, text.strip(), ids, None)


def _runs(
    session: Session, text: str, ids: Sequence[int], listen: Callable[[str], Listener] | None
) -> Iterator[Run]:
    plain: list[int] = []
    for method in session.methods:
        started = time.perf_counter()
        out, kept = session.generate(method, ids, None if listen is None else listen(method))
        seconds = time.perf_counter() - started
        plain = out if method == "plain" else plain
        yield Run(method, text, len(out), seconds, kept, _agreement(out, plain))


def _agreement(ours: Sequence[int], plain: Sequence[int]) -> float:
    same = 0
    for mine, other in zip(ours, plain, strict=False):
        if mine != other:
            break
        same += 1
    return same / len(plain) if plain else 1.0


def summary(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """A row for each method, over all texts: the cells of the table."""
    rows, plain = [], _speed([run for run in runs if run.method == "plain"])
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


def converse(
    session: Session,
    console: Console,
    load: Callable[[str], Translator],
    read: Callable[[str], str] = input,
) -> None:
    """Ask for texts and commands until the end of input. load: a drafter by its name."""
    console.print("A text to decode, /help, or /quit.", highlight=False)
    while True:
        try:
            line = read("> ").strip()
        except EOFError:
            return
        if line == "/quit":
            return
        try:
            if line == "/help":
                console.print(_HELP, markup=False, highlight=False)
            elif line.startswith("/"):
                console.print(command(session, line, load), markup=False, highlight=False)
            elif line:
                _show(session, console, line)
        except EdgeError as error:
            console.print(str(error), style="red", markup=False, highlight=False)


def _show(session: Session, console: Console, text: str) -> None:
    tokenizer = session.translator.tokenizer

    def listen(method: str) -> Listener:
        console.print(f"\n{method}: ", end="", style="bold")

        def told(event: DebugEvent) -> None:
            piece = tokenizer.decode(event.tokens)
            console.print(
                f"{piece} ", end="", style=_STYLES[event.kind], markup=False, highlight=False
            )

        return told

    runs = list(_runs(session, text, tokenizer.encode(text, None), listen))
    console.print("\n")
    console.print(table(runs))


def command(session: Session, line: str, load: Callable[[str], Translator]) -> str:
    """Carry out a slash command; what to answer. Raises OptionError for one that makes no sense."""
    name, *values = shlex.split(line)
    if name == "/processor" and values and values[0] in _PROCESSORS:
        kind, types = _PROCESSORS[values[0]]
        session.processor = kind(*_numbers(values[1:], types))
        return repr(session.processor)
    if name == "/drafter" and len(values) == 1:
        session.drafter = None if values[0] == "off" else load(values[0])
        return f"drafter: {values[0]}"
    fields = {"/gamma": "gamma", "/length": "length", "/beams": "beams"}
    if name in fields and len(values) == 1:
        (number,) = _numbers(values, (int,))
        if number < 1:
            raise OptionError(f"{name} takes a number from 1 on, not {number}")
        setattr(session, fields[name], number)
        return f"{fields[name]}: {number}"
    raise OptionError(f"{line!r} is no command that is known here; /help lists them")


def _numbers(values: Sequence[str], types: Sequence[type]) -> list[float]:
    if len(values) > len(types):
        raise OptionError(f"at most {len(types)} numbers, not {len(values)}")
    try:
        return [kind(value) for kind, value in zip(types, values, strict=False)]
    except ValueError as error:
        raise OptionError(f"a number is wanted: {error}") from None
