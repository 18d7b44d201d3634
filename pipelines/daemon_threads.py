"""Daemon threads that use the library: stop them before the interpreter ends.

While Python ends, a daemon thread that comes back from compiled code is ended by unwinding its
stack (up to Python 3.13, with glibc). C++ code such as torch's cannot be unwound there, and the
whole process aborts: "terminate called without an active exception", status 134. So the threads are
asked to leave while Python still runs: SystemExit is raised in each, which ends it without a word.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
import weakref
from types import FrameType

# Packages whose code calls C++.
_PACKAGES = ("pipelines", "torch", "transformers")
# How long to wait for a thread, which leaves after its present step or operation.
_LONGEST_S, _LOOK_S = 10.0, 0.002

# Those that have computed: between two of their calls, too, they are about to come back.
_users: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def stop_daemon_threads_at_exit() -> None:
    """Stop daemon threads at the end of the process, before what was registered with `atexit`."""
    atexit.unregister(_stop_daemon_threads)
    atexit.register(_stop_daemon_threads)


def user_of_library() -> None:
    """Count this thread among those that compute."""
    _users.add(threading.current_thread())


def _stop_daemon_threads() -> None:
    asked: set[int] = set()
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        frames, inside = sys._current_frames(), False
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if thread is threading.current_thread() or not thread.daemon or frame is None:
                continue
            if thread not in _users and not _uses_library(frame):
                continue
            inside = inside or _package(frame) in _PACKAGES
            if thread.ident not in asked:
                asked.add(thread.ident or 0)
                _raise_system_exit(thread)
        if not inside:
            return
        del frames, frame
        time.sleep(_LOOK_S)


def _uses_library(frame: FrameType) -> bool:
    """Whether a thread is within a call of the library, and not one of the library's own."""
    packages: list[str] = []
    outer: FrameType | None = frame
    while outer is not None:
        packages.append(_package(outer))
        outer = outer.f_back
    target = next((p for p in reversed(packages) if p != "threading"), "")
    return target != "pipelines" and not set(_PACKAGES).isdisjoint(packages)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _raise_system_exit(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread as soon as it runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
    )
