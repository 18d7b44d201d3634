"""Compile the kernels, with progress: `python -m pipelines.engine.kernels.compiler LEVEL FILE`.

Runs `build` with the same arguments. After each compiled function a line on stdout says how many of
all are done: "31 75". The loader reads these lines.
"""

from __future__ import annotations

import runpy
import sys
from contextlib import AbstractContextManager
from typing import Any

from numba.core import event
from numba.core.dispatcher import Dispatcher

_PACKAGE = "pipelines.engine.kernels"  # not __package__, which goes away in Python 3.15
_DEVICE = f"{_PACKAGE}.device."


class _Progress(event.Listener):  # type: ignore[misc]
    """Writes a line whenever one more function of the kernels is compiled."""

    def __init__(self) -> None:
        self._done = 0

    def on_start(self, event: Any) -> None:
        pass

    def on_end(self, event: Any) -> None:
        functions = _functions()
        done = sum(bool(function.signatures) for function in functions)
        if done > self._done:
            self._done = done
            sys.stdout.write(f"{done} {len(functions)}\n")
            sys.stdout.flush()


def _functions() -> set[Dispatcher]:
    """The functions of the kernels that are imported, compiled or not.

    All of them are imported before the first is compiled.
    """
    modules = [module for name, module in sys.modules.items() if name.startswith(_DEVICE)]
    values = [value for module in modules for value in vars(module).values()]
    return {value for value in values if isinstance(value, Dispatcher)}


def progress_on_stdout() -> AbstractContextManager[Any]:
    """Write a line for each function of the kernels that is compiled in a block of code."""
    listening: AbstractContextManager[Any] = event.install_listener("numba:compile", _Progress())
    return listening


def main() -> None:
    """Run `build` as a program, with this program's arguments."""
    with progress_on_stdout():
        runpy.run_module(f"{_PACKAGE}.build", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
