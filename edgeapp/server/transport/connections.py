"""Limits on TCP connections, counted where they are accepted: of each address and in all.

Where a limit is reached, the oldest connection on which no complete request has arrived is closed
for the new one. So connections that are only held open do not keep others out.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from edgeapp.server.access.addresses import visitor_key

__all__ = ["Connections", "LimitedListener"]

MAX_CONNECTIONS = 400
MAX_PER_ADDRESS = 128  # a browser has up to six for requests, and one for each tab
_OTHER_FILES = 100  # descriptors that connections leave to files, models and child processes

Peer = tuple[str, int]


@dataclass(eq=False)
class _Connection:
    """key: of its address. waiting: no complete request has arrived since the last response."""

    socket: socket.socket
    key: str
    waiting: bool = True


class Connections:
    """The open connections. All methods are called in the thread of the event loop.

    Args:
        in_all: The largest number of connections.
        per_address: The largest number of connections from one address.
        proxies: Addresses that many visitors share; only the limit of all applies to them.
    """

    def __init__(
        self,
        in_all: int = MAX_CONNECTIONS,
        per_address: int = MAX_PER_ADDRESS,
        proxies: Container[str] = (),
    ) -> None:
        self._in_all = min(in_all, max(1, _descriptors() - _OTHER_FILES))
        self._per_address, self._proxies = per_address, proxies
        self._open: dict[Peer, _Connection] = {}  # in the order of their arrival
        self._counts: Counter[str] = Counter()  # by key

    def admit(self, accepted: socket.socket, peer: Peer) -> bool:
        """Count a new connection, if it may stay."""
        key = visitor_key(peer[0])
        if peer[0] not in self._proxies and self._counts[key] >= self._per_address:
            if not self._close_waiting(key):
                return False
        elif len(self._open) >= self._in_all and not self._close_waiting(self._most_waiting()):
            return False
        if peer[:2] in self._open:  # its socket was closed, and the port is used again
            self._forget(peer[:2])
        self._open[peer[:2]] = _Connection(accepted, key)
        self._counts[key] += 1
        return True

    def release(self, accepted: socket.socket, peer: Peer) -> None:
        """Do not count a connection any more. It may have been released before."""
        connection = self._open.get(peer[:2])
        if connection is not None and connection.socket is accepted:
            self._forget(peer[:2])

    def set_waiting(self, peer: Peer | None, waiting: bool) -> None:
        """Note whether a connection waits for a request."""
        if peer is not None and (connection := self._open.get(peer)) is not None:
            connection.waiting = waiting

    def _close_waiting(self, key: str | None) -> bool:
        """Close the oldest connection with this key that waits; False: there is none."""
        for peer, connection in self._open.items():
            if connection.key == key and connection.waiting:
                self._forget(peer)
                # Its transport reads the end of the stream, and closes the socket.
                with suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)
                return True
        return False

    def _most_waiting(self) -> str | None:
        counts = Counter(each.key for each in self._open.values() if each.waiting)
        return counts.most_common(1)[0][0] if counts else None

    def _forget(self, peer: Peer) -> None:
        key = self._open.pop(peer).key
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


class LimitedListener(socket.socket):
    """A listening socket that accepts only what `Connections` admits; the rest is closed.

    Args:
        connections: The limits.
        family: AF_INET or AF_INET6.
    """

    def __init__(self, connections: Connections, family: socket.AddressFamily) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        release = self._connections.release
        while True:
            connection, peer = super().accept()
            accepted = _Accepted(connection.family, connection.type, fileno=connection.detach())
            accepted.on_close = lambda closed, peer=peer: release(closed, peer)
            if self._connections.admit(accepted, peer):
                return accepted, peer
            accepted.close()


class _Accepted(socket.socket):
    """A socket that says when it is closed."""

    on_close: Callable[[socket.socket], None] | None = None

    def close(self) -> None:
        super().close()
        if self.on_close is not None:
            self.on_close(self)


def _descriptors() -> int:
    """The number of files that this process may open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 1 << 20
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit
