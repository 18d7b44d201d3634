"""Watches canaries: files that must not be opened, and ports that must not be connected to."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.campaign.part import Failed

__all__ = ["Ports", "unopened"]

_IN_ACCESS, _IN_OPEN, _IN_NONBLOCK = 0x1, 0x20, 0o4000


@contextmanager
def unopened(*folders: Path) -> Iterator[None]:
    """Fail if a file of these folders is opened or read within the block (Linux' inotify)."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(_IN_NONBLOCK)
    if watch < 0:
        raise OSError(ctypes.get_errno(), "inotify cannot be used")
    try:
        for folder in folders:
            if libc.inotify_add_watch(watch, os.fsencode(folder), _IN_ACCESS | _IN_OPEN) < 0:
                raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
        yield
        try:
            events = os.read(watch, 65536)
        except BlockingIOError:
            return
        raise Failed(f"a canary was opened: {events[16:80]!r}")
    finally:
        os.close(watch)


class Ports:
    """A TCP and a UDP port on 127.0.0.1; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._tcp = self._stack.enter_context(socket.socket())
        self._udp = self._stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        for listener in (self._tcp, self._udp):
            listener.bind(("127.0.0.1", 0))
            listener.setblocking(False)
        self._tcp.listen(64)
        self.tcp, self.udp = (s.getsockname()[1] for s in (self._tcp, self._udp))

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raise Failed if a connection or a packet has come."""
        for name, receive in (("TCP", self._tcp.accept), ("UDP", lambda: self._udp.recv(1))):
            try:
                receive()
            except BlockingIOError:
                continue
            raise Failed(f"a {name} port was connected to")
