"""Declarations of the options of the library: default, help, range and group of each.

    @described
    @dataclass(frozen=True)
    class Options:
        '''How to decode.'''

        beam_size: int = option(1, "Beams of the search.", range=Range(1, whole=True))

        def __post_init__(self) -> None:
            check_fields(self)

`help()` shows what an option means; command lines make their flags of the same declarations.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from textwrap import fill
from typing import Any, TypeVar
from warnings import warn

from pipelines.errors import OptionError

__all__ = [
    "Range",
    "check_fields",
    "check_names",
    "described",
    "option",
    "renamed",
    "with_fields",
]

Options = TypeVar("Options")  # a frozen dataclass
Class = TypeVar("Class", bound=type)
T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """The numbers that an option may have.

    Attributes:
        low, high: The limits, which belong to the range.
        above: The number is above this one, instead of `low`.
        below: The number is below this one, instead of `high`.
        whole: It is an integer.
        infinite: It may be infinite.
        unit: Of the number, such as "s".
    """

    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    whole: bool = False
    infinite: bool = False
    unit: str = ""

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, Integral if self.whole else Real) or isinstance(value, bool):
            return False
        number = float(value)
        if math.isinf(number):
            return self.infinite and self.low <= number <= self.high
        return self.low <= number <= self.high and self.above < number < self.below

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if math.isfinite(self.above) and math.isfinite(self.below):
            return f"between {self.above:g} and {self.below:g}{unit}"
        if math.isfinite(self.above):
            return f"above {self.above:g}{unit}"
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"from {self.low:.12g} to {self.high:.12g}{unit}"
        if math.isfinite(self.low):
            return f"{self.low:g}{unit} or more"
        return "a whole number" if self.whole else f"a number{unit and f' of{unit}'}"


def option(
    default: T,
    help: str,
    more: str = "",
    *,
    range: Range | None = None,
    choices: tuple[str, ...] = (),
    group: str = "Decoding",
    flags: tuple[str, ...] | None = None,
    metavar: str = "",
    nested: tuple[str, type] | None = None,
) -> T:
    """Declare a field of a dataclass of options.

    Args:
        default: Its default.
        help: What it means, in whole sentences. Names of other options are in backticks.
        more: What only a program needs to know, in whole sentences.
        range: The numbers that it, or each of its items, may have. None is allowed if the field's
            type names it.
        choices: The texts that it may have.
        group: The heading under which it belongs.
        flags: Its names on a command line, without leading hyphens. None: its name with hyphens;
            empty: it is not there.
        metavar: What stands for its value on a command line; with a comma: items, with commas
            between.
        nested: If its value is a dataclass of options: the prefix of their names on a command line,
            where they stand instead of it, and the dataclass.
    """
    metadata = {
        "help": help,
        "more": more,
        "range": range,
        "choices": choices,
        "group": group,
        "flags": flags,
        "metavar": metavar,
        "nested": nested,
    }
    return field(default=default, metadata=metadata)


def described(cls: Class) -> Class:
    """Add the help of the fields to the docstring of a dataclass of options."""
    lines = [(cls.__doc__ or "").rstrip(), "", "Attributes:"]
    for each in fields(cls):
        text = f"{each.name}: {each.metadata['help']} {each.metadata['more']}".rstrip()
        lines.append(fill(text, 100, initial_indent="    ", subsequent_indent=8 * " "))
    cls.__doc__ = "\n".join(
        [
            *lines,
            "",
            "Raises:",
            "    OptionError: A value has a wrong type, or is out of its range.",
        ]
    )
    return cls


def check_fields(options: Any) -> None:
    """Check each field of a dataclass of options against its type, its range and its choices.

    A list becomes a tuple.

    Raises:
        OptionError: A value has a wrong type, or is out of its range.
    """
    for each in fields(options):
        value, declared = getattr(options, each.name), str(each.type)
        if isinstance(value, list) and "tuple[" in declared:
            value = tuple(value)
            object.__setattr__(options, each.name, value)
        if value is not None or "None" not in declared:
            _check(each.name, value, declared, each.metadata)


def _check(name: str, value: Any, declared: str, metadata: Mapping[str, Any]) -> None:
    limits, wanted, wrong = metadata["range"], "", value
    if choices := metadata["choices"]:
        wanted = "" if value in choices else " or ".join(map(repr, choices))
    elif limits is not None:
        numbers = value if isinstance(value, tuple) else (value,)
        for wrong in [each for each in numbers if each not in limits][:1]:
            is_number = isinstance(wrong, Integral if limits.whole else Real)
            kind = "a whole number" if limits.whole else "a number"
            wanted = str(limits) if is_number and not isinstance(wrong, bool) else kind
    elif declared.startswith("bool"):
        wanted = "" if isinstance(value, bool) else "true or false"
    elif declared.startswith("str"):
        wanted = "" if isinstance(value, str | tuple) else "a text"
    elif declared.startswith("tuple[str"):
        is_texts = isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        wanted = "" if is_texts else "a list of texts"
    if wanted:
        raise OptionError(f"{name} must be {wanted}, not {wrong!r}")


def renamed(**former: tuple[str, Callable[[Any, Any], Any]]) -> Callable[[Class], Class]:
    """Let a dataclass of options accept the former names of its fields, which warn.

    Args:
        former: Former name → (name, function that makes the former value, and what is given for
            the name, the new value).
    """

    def decorate(cls: Class) -> Class:
        init = cls.__init__  # type: ignore[misc]

        @wraps(init)
        def accept(self: Any, *args: Any, **given: Any) -> None:
            for old in [name for name in given if name in former]:
                new, convert = former[old]
                warn(
                    f"{cls.__name__}({old}=…) is now {cls.__name__}({new}=…)",
                    DeprecationWarning,
                    stacklevel=_callers_level(),
                )
                given[new] = convert(given.pop(old), given.get(new))
            init(self, *args, **given)

        cls.__init__ = accept  # type: ignore[misc]
        cls.former_names = tuple(former)  # type: ignore[attr-defined]
        return cls

    return decorate


def _callers_level() -> int:
    """Return the `stacklevel` with which a warning of the calling function names the code that uses
    this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").split(".")[0] in ("pipelines", "dataclasses"):
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    return level


def with_fields(options: Options, overrides: Mapping[str, Any]) -> Options:
    """Return options with some fields changed.

    Raises:
        OptionError: There is no such field, or a value is out of its range.
    """
    check_names(set(overrides).difference(getattr(options, "former_names", ())), fields(options))  # type: ignore[arg-type]
    return replace(options, **overrides)  # type: ignore[type-var]


def check_names(names: Iterable[str], known: Iterable[Field[Any]]) -> None:
    """Check that each name is that of a field.

    Raises:
        OptionError: One is not. The message names the field that was probably meant.
    """
    known = list(known)
    spelled: dict[str, str] = {}  # how a field may be called → its name
    for each in known:
        spelled |= dict.fromkeys((each.name, *(each.metadata["flags"] or ())), each.name)
        if nested := each.metadata["nested"]:
            prefix, part = nested
            spelled |= {f"{prefix}{own.name}": f"{each.name}.{own.name}" for own in fields(part)}
    for name in sorted(set(names).difference(each.name for each in known)):
        parts = [each for each in spelled if each.startswith(name) or name.startswith(f"{each}_")]
        similar = parts or get_close_matches(name, spelled, n=1)
        hint = f"; did you mean {spelled[similar[0]]}?" if similar else ""
        raise OptionError(f"no such option: {name}{hint}")
