"""The prompt of `python -m tests.benchmarks.generate`: texts are decoded with all methods."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pipelines import EdgeError, OptionError
from pipelines.engine import (
    DebugEvent,
    GreedyProcessor,
    LogitsProcessor,
    MinPProcessor,
    MultinomialProcessor,
    NucleusProcessor,
    TopAProcessor,
    TopKNucleusProcessor,
    TopKProcessor,
)
from tests.benchmarks.generate.methods import Listener, TranslationComparison, runs_of, table

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines import Translator

__all__ = ["run_command", "run_prompt"]

_STYLES = {"token": "", "accept": "green", "reject": "red strike", "resample": "yellow"}
_PROCESSORS: dict[str, tuple[type[LogitsProcessor], tuple[type, ...]]] = {
    "greedy": (GreedyProcessor, ()),
    "multinomial": (MultinomialProcessor, (float,)),
    "topk": (TopKProcessor, (float, int)),
    "nucleus": (NucleusProcessor, (float, float)),
    "topknucleus": (TopKNucleusProcessor, (float, int, float)),
    "minp": (MinPProcessor, (float, float)),
    "topa": (TopAProcessor, (float, float, float)),
}
_HELP = """\
TEXT              decode it with all methods
/processor NAME   greedy, or a sampler with its temperature and parameters: topk 0.8 40
/gamma N          number of draft tokens per step
/length N         maximum number of new tokens
/beams N          number of beams
/drafter MODEL    draft model with the same vocabulary; off for none
/model MODEL      another model; the drafter stays
/cache on|off     off: plain, speculative and n-gram read all again at each step
/quit             quit, as Ctrl-D"""


def run_prompt(
    comparison: TranslationComparison,
    console: Console,
    load: Callable[[str], Translator],
    read: Callable[[str], str] = input,
) -> None:
    """Read and run texts and commands until /quit or the end of input.

    Args:
        comparison: What decodes, and its settings, which commands change.
        console: Where results are printed.
        load: Loads a draft model by its name.
        read: Reads a line after a prompt.
    """
    console.print("Type a text to decode, /help or /quit.", highlight=False)
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
                console.print(run_command(comparison, line, load), markup=False, highlight=False)
            elif line:
                _decode(comparison, console, line)
        except EdgeError as error:
            console.print(str(error), style="red", markup=False, highlight=False)


def _decode(comparison: TranslationComparison, console: Console, text: str) -> None:
    """Decode a text with all methods; tokens are printed as they come, then a table."""
    tokenizer = comparison.pipeline.tokenizer

    def listen(method: str) -> Listener:
        console.print(f"\n{method}: ", end="", style="bold")

        def print_event(event: DebugEvent) -> None:
            text = tokenizer.decode(event.tokens)
            console.print(
                f"{text} ", end="", style=_STYLES[event.kind], markup=False, highlight=False
            )

        return print_event

    runs = list(runs_of(comparison, text, comparison.encode(text), listen))
    console.print("\n")
    console.print(table(runs))


def run_command(
    comparison: TranslationComparison, line: str, load: Callable[[str], Translator]
) -> str:
    """Run a slash command.

    Returns:
        The answer to print.

    Raises:
        OptionError: The command or its arguments are invalid.
    """
    try:
        name, *values = shlex.split(line)
    except ValueError as error:  # such as a quote that is not closed
        raise OptionError(f"{line!r} cannot be read: {error}") from None
    if name == "/processor" and values and values[0] in _PROCESSORS:
        kind, types = _PROCESSORS[values[0]]
        comparison.processor = kind(*_numbers(values[1:], types))
        return repr(comparison.processor)
    if name == "/drafter" and len(values) == 1:
        comparison.drafter = None if values[0] == "off" else load(values[0])
        return f"drafter: {values[0]}"
    if name == "/model" and len(values) == 1:
        comparison.pipeline = load(values[0])
        return f"model: {values[0]}"
    if name == "/cache" and values in (["on"], ["off"]):
        comparison.use_cache = values == ["on"]
        return f"cache: {values[0]}"
    fields = {"/gamma": "gamma", "/length": "length", "/beams": "beams"}
    if name in fields and len(values) == 1:
        (number,) = _numbers(values, (int,))
        if number < 1:
            raise OptionError(f"{name} takes a number above 0, not {number}")
        setattr(comparison, fields[name], number)
        return f"{fields[name]}: {number}"
    raise OptionError(f"{line!r} is no command; /help lists them")


def _numbers(values: Sequence[str], types: Sequence[type]) -> list[float]:
    if len(values) > len(types):
        raise OptionError(f"at most {len(types)} numbers, not {len(values)}")
    try:
        return [kind(value) for kind, value in zip(types, values, strict=False)]
    except ValueError as error:
        raise OptionError(f"a parameter is no number: {error}") from None
