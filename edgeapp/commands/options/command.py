"""A command with help in groups, switches with an optional value, and options refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from edgeapp.console import print_note
from edgeapp.exit_codes import USAGE

__all__ = ["SWITCH", "CommandGroup", "GroupedCommand", "Refused"]

# The metavar of a switch: an option of openai-whisper whose value is True or False.
SWITCH = "[True|False]"


@dataclass(frozen=True)
class Refused:
    """An option of another program that this one lacks.

    Attributes:
        reason: Why, and what to do instead: the end of a sentence.
        accepted: Values that ask for what happens anyway, in lower case.
        means: Own options that stand for an accepted value; without them it is ignored.
    """

    reason: str
    accepted: tuple[str, ...] = ()
    means: tuple[str, ...] = ()


class CommandGroup(TyperGroup):
    """A group whose help has the first sentence of each command, uncut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _first_sentence(each)) for name, each in commands if each is not None]
            )


class GroupedCommand(TyperCommand):
    """A command whose help lists its options under the titles of their `rich_help_panel`.

    A switch without a value means True; it takes the next word only if that is True or False.

    Attributes:
        refused: Long option → why it is refused.
    """

    refused: ClassVar[Mapping[str, Refused]] = {}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                if argument:  # "FILE", without the type of Python
                    record = ((param.metavar or param.name).upper(), record[1])
                title = "Arguments" if argument else getattr(param, "rich_help_panel", None)
                groups.setdefault(title or "Other", []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._rewritten(ctx, args))

    def _rewritten(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """The arguments without refused options, and with a value for every switch.

        Raises:
            typer.Exit: A refused option asks for what this program cannot do.
        """
        options = {opt: param for param in self.get_params(ctx) for opt in param.opts}
        words = _Words(args)
        result: list[str] = []
        for word in words:
            name, equals, value = word.partition("=")
            if word == "--":
                return [*result, word, *words.rest()]
            if name in self.refused and not ctx.resilient_parsing:  # that is for completion
                result += self._meaning(name, value if equals else words.value())
                continue
            result.append(word)
            param = options.get(name)
            if param is None or equals:
                continue
            if param.metavar == SWITCH:
                given = words.next_if(lambda text: text.lower() in ("true", "false"))
                result.append(given or "True")
            elif not getattr(param, "is_flag", False):
                result += words.take(1)
        return result

    def _meaning(self, name: str, value: str | None) -> tuple[str, ...]:
        """The own options that stand for a refused option, if its value is accepted.

        Raises:
            typer.Exit: It is not.
        """
        refused = self.refused[name]
        if (value or "").strip().lower() in refused.accepted:
            return refused.means
        print_note(f"{name} is refused: {refused.reason}")
        raise typer.Exit(USAGE)


def _first_sentence(command: Any) -> str:
    paragraph = " ".join((command.help or "").strip().split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."


class _Words:
    """The words of a command line, read one by one with a look at the next one."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words, self._position = list(words), 0

    def __iter__(self) -> Iterator[str]:
        while self._position < len(self._words):
            self._position += 1
            yield self._words[self._position - 1]

    def take(self, count: int) -> list[str]:
        taken = self._words[self._position : self._position + count]
        self._position += len(taken)
        return taken

    def rest(self) -> list[str]:
        return self.take(len(self._words))

    def next_if(self, fits: Any) -> str | None:
        """The next word, if there is one and it fits; it is then taken."""
        following = self._words[self._position : self._position + 1]
        if following and fits(following[0]):
            self._position += 1
            return following[0]
        return None

    def value(self) -> str | None:
        """The value of an option: the next word, unless that is an option."""
        return self.next_if(lambda text: not text.startswith("-") or _is_number(text))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
