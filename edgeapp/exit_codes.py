"""Exit codes and error messages of commands: one line, a traceback only with --debug."""

from __future__ import annotations

import _thread
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

import typer

from edgeapp.console import print_note
from edgeapp.standard_streams import StdoutError, discard_stdout
from pipelines import EdgeError, ModelError, ModelNotFound, OptionError

__all__ = [
    "DONE",
    "EXIT_CODES",
    "INTERRUPTED",
    "MODEL",
    "PIPE_CLOSED",
    "SOME_FAILED",
    "USAGE",
    "InputFailures",
    "end_of_output",
    "end_signals",
    "end_signals_interrupt",
    "exit_code_of",
    "exit_with_code",
    "interrupt",
    "named",
    "print_error",
    "pull_command",
    "unexpected",
]

_AGAIN_S = 0.02  # until a signal comes again that arrived where nothing can be raised
_command_over = threading.Event()

DONE, SOME_FAILED, USAGE, MODEL, INTERRUPTED = 0, 1, 2, 3, 130
PIPE_CLOSED = 141  # 128 + SIGPIPE, as shells report a program that SIGPIPE ended

EXIT_CODES = (
    "Exit codes: 0 all inputs done, 1 some inputs failed (each is named, the others are done) or "
    "stdout cannot be written, 2 usage, 3 model problem, 130 interrupted, 141 the reader of "
    "stdout is gone."
)


def print_error(error: BaseException, name: str | None, debug: bool) -> None:
    """Print an error as one line on stderr.

    Args:
        error: Of an EdgeError its message is printed, of any other error also its type.
        name: The input that failed, or None. It is not repeated where the message names it.
        debug: Print the traceback too.
    """
    if isinstance(error, EdgeError):
        message = str(error) or type(error).__name__
        if isinstance(error, ModelNotFound) and error.download is not None:
            message += f": {pull_command(error.download)}"
        print_note(named(message, name) if name else message)
    else:
        message = unexpected(error) + ("" if debug else "; --debug shows the traceback")
        print_note(f"{name}: {message}" if name else message)
    if debug:
        traceback.print_exception(error, file=sys.stderr)


def pull_command(model: str) -> str:
    """The command that downloads a model, for messages on the command line."""
    return f"`edgeapp models pull {model}`"


def named(message: str, name: str) -> str:
    """A message with the name of its input before it, unless it is in the message as a word."""
    if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message):
        return message
    return f"{name}: {message}"


def unexpected(error: BaseException) -> str:
    """An error that is no EdgeError as one line: its type and the first line of its message.

    Of an OSError only the reason: a remote user must not see paths of this machine.
    """
    kind = type(error).__name__
    if isinstance(error, MemoryError):
        return f"not enough memory ({kind})"
    message = (isinstance(error, OSError) and error.strerror) or str(error)
    lines = message.strip().splitlines()
    return f"unexpected error ({': '.join([kind, *lines[:1]])})"


@contextmanager
def exit_with_code(debug: bool) -> Iterator[None]:
    """Turn the errors that end a command into its exit code.

    EdgeError, KeyboardInterrupt and BrokenPipeError are handled; any other error passes through.
    A signal that comes again because a finalizer has dropped it (`end_signals_interrupt`) does not
    come any more afterwards: the process ends with the code.

    Args:
        debug: Print the traceback of an EdgeError.

    Raises:
        typer.Exit: With the exit code.
    """
    excepthook, sys.excepthook = sys.excepthook, _show_exception
    try:
        yield
    except EdgeError as error:
        print_error(error, None, debug)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt:
        print_note("interrupted; finished results are kept")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError as error:
        raise typer.Exit(end_of_output(error)) from None
    finally:
        _command_over.set()
        sys.excepthook = excepthook


def end_of_output(error: BrokenPipeError) -> int:
    """The exit code after stdout failed; stdout is discarded from now on.

    Args:
        error: If it has a reason, that is printed. A closed pipe (`| head`) needs no message.
    """
    discard_stdout()
    if isinstance(error, StdoutError) and error.reason is not None:
        print_note(f"stdout cannot be written: {error.reason}")
        return SOME_FAILED
    return PIPE_CLOSED


def end_signals() -> list[int]:
    """The signals that end a command and keep what is done: Ctrl-C, `kill`, a closed terminal."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def end_signals_interrupt() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does.

    A signal that is ignored stays ignored: `nohup` ignores SIGHUP. One that arrives in a finalizer,
    where Python drops what is raised, comes again a moment later.
    """
    _command_over.clear()
    for number in end_signals():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)
    sys.unraisablehook = _interrupt_again


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal by raising KeyboardInterrupt, where that arrives.

    Before 3.12 Python turns what `__set_name__` raises into a RuntimeError: dataclasses and enums
    of any import have it. There the signal comes again a moment later.
    """
    while frame is not None:
        if frame.f_code.co_name == "__set_name__":
            _come_again(number)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _interrupt_again(dropped: sys.UnraisableHookArgs) -> None:
    """Called in place of the exception that a finalizer or a callback of a weak reference has
    raised."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    handlers = {number: signal.getsignal(number) for number in end_signals()}
    again = [number for number, handler in handlers.items() if callable(handler)]
    if again:
        _come_again(again[0])


def _come_again(number: int) -> None:
    timer = threading.Timer(_AGAIN_S, _signal_main_thread, (number,))
    timer.daemon = True
    with suppress(RuntimeError):  # the interpreter is ending, which starts no more threads
        timer.start()


def _show_exception(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Show what Cython prints of a callback of C code before `_interrupt_again` gets it; but an
    interruption there is none of the callback's business."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)


def _signal_main_thread(number: int) -> None:
    if _command_over.is_set():
        return
    if sys.platform == "win32":
        _thread.interrupt_main(number)
    elif (main := threading.main_thread().ident) is not None:
        signal.pthread_kill(main, number)  # also ends a system call that waits


def exit_code_of(error: Exception) -> int:
    """The exit code for an error that ended a command or the work on one of its inputs."""
    if isinstance(error, OptionError):
        return USAGE
    return MODEL if isinstance(error, ModelError) else SOME_FAILED


class InputFailures:
    """Prints the errors of inputs that fail, so that the other inputs are still done.

    Args:
        inputs: Number of inputs.
        debug: Print tracebacks.
    """

    def __init__(self, inputs: int, debug: bool) -> None:
        self._inputs, self._debug = inputs, debug
        self._code, self._failed = DONE, 0

    @contextmanager
    def catch(self, name: str) -> Iterator[None]:
        """Do the work on one input; "-" is stdin. A closed stdout ends the work on all inputs."""
        try:
            yield
        except BrokenPipeError:
            raise
        except Exception as error:
            print_error(error, "stdin" if name == "-" else name, self._debug)
            self._failed += 1
            code = MODEL if isinstance(error, ModelError) else SOME_FAILED
            self._code = max(self._code, code)

    def exit_code(self, *, counted: bool = False) -> int:
        """The exit code after the last input; of several inputs the failed ones are counted.

        Args:
            counted: A summary has said how many failed.
        """
        if self._failed and self._inputs > 1 and not counted:
            print_note(f"{self._failed} of {self._inputs} inputs failed")
        return self._code
