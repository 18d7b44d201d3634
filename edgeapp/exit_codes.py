"""How a command ends: exit codes, one clear line, a traceback only with --debug."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from edgeapp.console import print_note
from pipelines import EdgeError, ModelError, OptionError

__all__ = [
    "DONE",
    "EXIT_CODES",
    "INTERRUPTED",
    "MODEL",
    "SOME_FAILED",
    "USAGE",
    "exit_code_of",
    "exit_with_code",
    "print_error",
    "discard_stdout",
    "unexpected",
]

DONE, SOME_FAILED, USAGE, MODEL, INTERRUPTED = 0, 1, 2, 3, 130

EXIT_CODES = (
    "Exit codes: 0 all done, 1 some inputs failed (each named, the rest done), 2 usage, "
    "3 model problem, 130 interrupted."
)


def print_error(error: BaseException, what: str | None, debug: bool) -> None:
    """One line for an error: which input, what was wrong, what to do.

    Args:
        error: An EdgeError says this itself. Of any other error, its kind is said.
        what: The input that it is about, or None.
        debug: Whether to print the traceback, too.
    """
    if isinstance(error, EdgeError):
        message = str(error) or type(error).__name__
        print_note(f"{what}: {message}" if what and what not in message else message)
    else:
        said = unexpected(error) + ("" if debug else "; --debug shows the traceback")
        print_note(f"{what}: {said}" if what else said)
    if debug:
        traceback.print_exception(error, file=sys.stderr)


def unexpected(error: BaseException) -> str:
    """An error that no code foresaw, in one line: its kind and what it says. Of an error of the
    system only the reason: the file it names may be on another's machine."""
    kind = type(error).__name__
    if isinstance(error, MemoryError):
        return f"not enough memory ({kind})"
    said = (isinstance(error, OSError) and error.strerror) or str(error)
    lines = said.strip().splitlines()
    return f"this went wrong inside EdgeApp ({': '.join([kind, *lines[:1]])})"


@contextmanager
def exit_with_code(debug: bool) -> Iterator[None]:
    """Turns whatever ends a command into its exit code. Raises typer.Exit."""
    try:
        yield
    except EdgeError as error:
        print_error(error, None, debug)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt:
        print_note("interrupted; what was done is kept")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our results has had enough (`| head`): no reason to complain.
        discard_stdout()
        raise typer.Exit(SOME_FAILED) from None


def discard_stdout() -> None:
    """Nobody reads stdout any more: point it elsewhere, or Python would stumble over it again on
    its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(error: Exception) -> int:
    """The exit code of a command that this ends, or that did not do an input because of it."""
    if isinstance(error, OptionError):
        return USAGE
    return MODEL if isinstance(error, ModelError) else SOME_FAILED
