"""`edgeapp bench generate` on a terminal: texts decoded in every way, live, and commands that
change how."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgeapp.bench.generate import Listener, Session, runs_of, table
from pipelines import EdgeError, OptionError
from pipelines.engine import (
    DebugEvent,
    GreedyProcessor,
    LogitsProcessor,
    MinPProcessor,
    MultinomialProcessor,
    NucleusProcessor,
    TopKNucleusProcessor,
    TopKProcessor,
)

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines import Translator

__all__ = ["command", "converse"]

_STYLES = {"token": "", "accept": "green", "reject": "red strike", "resample": "yellow"}
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
    tokenizer = session.tool.tokenizer

    def listen(method: str) -> Listener:
        console.print(f"\n{method}: ", end="", style="bold")

        def told(event: DebugEvent) -> None:
            piece = tokenizer.decode(event.tokens)
            console.print(
                f"{piece} ", end="", style=_STYLES[event.kind], markup=False, highlight=False
            )

        return told

    runs = list(runs_of(session, text, session.read(text), listen))
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
