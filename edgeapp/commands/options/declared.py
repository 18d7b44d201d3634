"""Flags made of the options that the library declares (`pipelines.options`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, Literal, NamedTuple

import typer

from edgeapp.commands.options.common import (
    CAPTIONS,
    COMPUTING,
    DECODING,
    INPUT_OUTPUT,
    LANGUAGES,
    MODELS,
    OPTIONAL_FLOAT,
    OPTIONAL_INT,
    OTHER,
    SILENCE,
    SWITCHED,
    WORDS,
    Switch,
    optional_prompt,
    optional_text,
)
from edgeapp.commands.options.completion import complete_languages
from pipelines import OptionError

__all__ = ["Flag", "Given", "declared", "flags_of", "values_of", "without_json"]

# The order of the groups of a command's options.
_GROUPS = (
    MODELS, LANGUAGES, INPUT_OUTPUT, CAPTIONS, DECODING, SILENCE, WORDS, COMPUTING, OTHER,
)  # fmt: skip

# Of these one can be given, so that a flag takes the place of either one in the settings.
_EXCLUDING = ("language", "languages")

Command = Callable[..., None]
Given = Mapping[str, Any]  # name of a flag's parameter → the value that was given


class Flag(NamedTuple):
    """A flag: of a field of a dataclass of options, or of one that such a field holds.

    Attributes:
        name: Of the parameter.
        field: With the declaration.
        names: On the command line.
        within: Name of the field that holds the dataclass with `field`; "" if it is not nested.
    """

    name: str
    field: Field[Any]
    names: tuple[str, ...]
    within: str = ""

    @property
    def type(self) -> str:
        """The type of its value, without further ones that programs may give."""
        return str(self.field.type).split(" |")[0]

    @property
    def has_commas(self) -> bool:
        """Whether its value is items with commas between."""
        return "," in self.field.metadata["metavar"]

    def value(self, given: Any) -> Any:
        """Return the value of the field for that of the flag."""
        if self.type == "bool":
            return given == "True"
        return () if given is None and self.has_commas else given


def flags_of(options: type, only: Collection[str] = ()) -> Iterator[Flag]:
    """Yield the flags of a dataclass of options, in the order of its fields; of `only` some."""
    for each in fields(options):
        if only and each.name not in only:
            continue
        names = each.metadata["flags"]
        if nested := each.metadata["nested"]:
            prefix, part = nested
            for flag in flags_of(part):
                own = tuple(f"--{prefix}{name[2:]}".replace("_", "-") for name in flag.names)
                yield Flag(prefix + flag.name, flag.field, own, each.name)
        elif names != ():
            words = names or (each.name.replace("_", "-"),)
            dashed = tuple(f"--{word}" if len(word) > 1 else f"-{word}" for word in words)
            yield Flag(each.name, each, dashed)


def declared(only: Collection[str] = (), **kinds: type) -> Callable[[Command], Command]:
    """Give a command the flags of dataclasses of options.

    Args:
        only: Names of the fields; none: all.
        kinds: Parameter of the command → the dataclass. It gets the values of the flags that were
            given, for `values_of`.
    """

    def decorate(command: Command) -> Command:
        flags = {name: list(flags_of(kind, only)) for name, kind in kinds.items()}

        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            for name, found in flags.items():
                given = {flag.name: values.pop(flag.name) for flag in found}
                values[name] = {
                    flag: value
                    for flag, value in given.items()
                    if getattr(context.get_parameter_source(flag), "name", "") != "DEFAULT"
                }
            command(**values)

        signature = inspect.signature(command, eval_str=True)
        parameters = [_parameter("context", typer.Context)]
        for each in signature.parameters.values():
            if each.name in kinds:
                shown = {flag.name: flag.names[-1] for flag in flags_of(kinds[each.name])}
                parameters += [_parameter_of(flag, shown) for flag in flags[each.name]]
            else:
                parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        parameters.sort(key=_group)
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def values_of(options: type, given: Given, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for the fields of a dataclass of options.

    If the flags exclude a setting, it is left out.

    Args:
        options: The dataclass.
        given: What `declared` gave: it overrides the settings.
        settings: Name of a field → value.
    """
    values = dict(settings)
    if not given.keys().isdisjoint(_EXCLUDING):
        values = {name: value for name, value in values.items() if name not in _EXCLUDING}
    for flag in flags_of(options):
        if flag.name not in given:
            continue
        value = flag.value(given[flag.name])
        if not flag.within:
            values[flag.name] = value
            continue
        nested = {**(values.get(flag.within) or {}), flag.field.name: value}
        if value is None:
            del nested[flag.field.name]
        values[flag.within] = nested or None
    names = {flag.within or flag.name for flag in flags_of(options) if flag.name in given}
    left_out = (name for name in settings if name not in names)
    without = ({k: v for k, v in values.items() if k != name} for name in left_out)
    return next((each for each in (values, *without) if _is_valid(options, each)), values)


def without_json(given: Given, settings: Mapping[str, Any], flags: str) -> Mapping[str, Any]:
    """Return settings without what only JSON shows; `flags` would give JSON.

    Raises:
        OptionError: A flag asks for it.
    """
    if given.get("n_best", 1) > 1:
        raise OptionError(f"--n-best is reported in JSON: {flags}")
    return {name: each for name, each in settings.items() if name != "n_best"}


def _is_valid(options: type, values: Mapping[str, Any]) -> bool:
    try:
        options(**values)
    except OptionError:
        return False
    return True


def _parameter_of(flag: Flag, shown: Mapping[str, str]) -> inspect.Parameter:
    """Return the parameter of a flag, as Typer reads it.

    Args:
        flag: The flag.
        shown: Name of an option → how its help is to name it.
    """
    metadata, limits = flag.field.metadata, flag.field.metadata["range"]
    default: Any = flag.field.default
    text = re.sub(r"`(\w+)`", lambda name: shown.get(name[1], name[0]), metadata["help"])
    if default is None:
        text = text.replace("None:", "Default:")
    optional = bool(flag.within) or "None" in str(flag.field.type)  # None leaves a nested one out
    metavar = metadata["metavar"]
    settings: dict[str, Any] = {"metavar": metavar or None}
    kind: Any = str
    if metadata["choices"]:
        kind, settings = Literal[metadata["choices"]], {"case_sensitive": False}
    elif flag.type == "bool":
        kind, settings = Switch, SWITCHED
        default = str(default) if default else None
    elif flag.has_commas or metavar.startswith("LANGUAGE"):
        default = ",".join(map(str, default or ())) or None
        if metavar.startswith("LANGUAGE"):
            settings |= {"parser": optional_text, "autocompletion": complete_languages}
    elif flag.type.startswith("tuple"):
        kind, default, settings = list[str], None, {"metavar": metavar or "TEXT"}
        text += " Repeatable."
    elif flag.type in ("int", "float"):
        default = default[0] if isinstance(default, tuple) else default
        whole = flag.type == "int" or limits.unit == "ms"
        kind = int if whole else float
        if optional:
            settings = OPTIONAL_INT if whole else OPTIONAL_FLOAT
        elif limits.low > float("-inf"):
            settings = {"min": limits.low}
    elif optional:
        settings = {"parser": optional_prompt, "metavar": metavar or "TEXT"}
    option = typer.Option(*flag.names, help=text, rich_help_panel=metadata["group"], **settings)
    return _parameter(flag.name, Annotated[kind | None, option], default)


def _parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _group(parameter: inspect.Parameter) -> int:
    """Return the position of a parameter's group; arguments and the context are first."""
    for each in getattr(parameter.annotation, "__metadata__", ()):
        if panel := getattr(each, "rich_help_panel", None):
            return _GROUPS.index(panel)
    return -1
