"""Signals that end a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from edgeapp.exit_codes import INTERRUPTED, end_signals, end_signals_interrupt, exit_with_code


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Signals end the process, as when it starts."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = {number: signal.getsignal(number) for number in end_signals()}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("ignored", [(), (signal.SIGINT,)], ids=["", "in the background"])
def test_a_signal_during_a_finalizer_is_not_lost(
    ignored: tuple[signal.Signals, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """Python drops what a finalizer raises, and prints a traceback: the command would go on."""
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    end_signals_interrupt()

    class Thing:
        pass

    thing, ended = Thing(), list[int]()

    def finalizer(_: object) -> None:
        ended.append(1)
        signal.raise_signal(signal.SIGTERM)
        ended.append(2)

    reference = weakref.ref(thing, finalizer)
    del thing
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)
    assert ended == [1]
    assert reference() is None
    assert not capfd.readouterr().err


@pytest.mark.usefixtures("handlers")
def test_a_signal_while_a_class_is_made_interrupts_after_it() -> None:
    """Python before 3.12 would make it a RuntimeError, which no command expects."""
    end_signals_interrupt()
    made: list[str] = []

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(signal.SIGTERM)
            made.append(name)

    def make() -> None:
        type("Lazy", (), {"field": Field()})
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        make()
    assert made == ["field"]


@pytest.mark.usefixtures("handlers")
def test_a_signal_at_the_end_of_the_interpreter_is_dropped_silently(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    end_signals_interrupt()

    def refuse(timer: threading.Timer) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    class Thing:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(threading.Timer, "start", refuse)
    Thing()
    assert not capfd.readouterr().err


@pytest.mark.usefixtures("handlers")
def test_no_signal_comes_again_after_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the interpreter's own end, and the process without its exit code."""
    end_signals_interrupt()
    timers: list[threading.Timer] = []
    monkeypatch.setattr(threading.Timer, "start", timers.append)

    class Thing:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def command() -> None:
        with exit_with_code(debug=False):
            Thing()
            raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == INTERRUPTED
    Thing()
    for timer in timers:
        timer.function(*timer.args)


@pytest.mark.usefixtures("handlers")
def test_a_signal_in_a_callback_of_c_code_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Cython prints what a callback raises, and then drops it."""
    end_signals_interrupt()

    def command() -> None:
        with exit_with_code(debug=False):
            sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
            sys.excepthook(ValueError, ValueError("of a callback"), None)

    before = sys.excepthook
    command()
    assert sys.excepthook is before
    err = capfd.readouterr().err
    assert "KeyboardInterrupt" not in err
    assert "of a callback" in err


_EVALUATES = """
import sys, edgeapp.__main__, edgeapp.cli
def main():
    def interrupt():
        raise KeyboardInterrupt
    try:
        eval("interrupt()", {"interrupt": interrupt})
    except KeyboardInterrupt:
        sys.exit(130)
edgeapp.cli.main = main
edgeapp.__main__.main()
"""


def test_ctrl_c_in_an_import_has_the_documented_exit_code(tmp_path: Path) -> None:
    """`python -m` would end by the signal: named tuples, for one, are made by `eval` of a text."""
    (tmp_path / "evaluates.py").write_text(_EVALUATES)
    search = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "evaluates"], env=os.environ | {"PYTHONPATH": search}, check=False
    )
    assert done.returncode == INTERRUPTED


@pytest.mark.usefixtures("handlers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_other_errors_of_finalizers_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    end_signals_interrupt()

    class Thing:
        def __del__(self) -> None:
            raise ValueError("of a finalizer")

    thing = Thing()
    del thing
    assert "of a finalizer" in capfd.readouterr().err
