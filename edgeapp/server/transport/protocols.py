"""uvicorn's HTTP and WebSocket protocols, with time limits, and fair to other connections.

A request that arrives too slowly, and a response that is read too slowly, end their connection.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from edgeapp.server.access.security import SECURITY_HEADERS
from edgeapp.server.transport.connections import Connections

if TYPE_CHECKING:
    from asyncio import BaseTransport, TimerHandle, Transport

    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

__all__ = ["WebSocketProtocol", "http_protocol"]

HEADERS_S = 10.0  # for the request line and the headers
BODY_S = 20.0  # for the body, and one second more for each BODY_BYTES_PER_S that arrived
BODY_BYTES_PER_S = 8_192
STALLED_S = 30.0  # while a response or a message is not read
# Chunks of a body hold that many bytes on average; but for the first ones, as parts of forms are.
_CHUNK_BYTES, _FREE_CHUNKS = 1_024, 128
_SLICE = 4_096  # bytes of WebSocket frames that are parsed before other connections have their turn


class _RequestParser(h11.Connection):
    """An HTTP/1.1 parser that refuses ambiguous and expensive bodies.

    A body of many small chunks takes seconds to parse. A proxy may find another end than h11 of one
    with a Transfer-Encoding beside a Content-Length or in HTTP/1.0, so that the visitor smuggles a
    request past it.
    """

    _chunks = _chunked_bytes = 0  # of the request

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._chunked_bytes = 0
            names = {name for name, _ in event.headers}
            chunked = b"transfer-encoding" in names
            if chunked and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
        elif isinstance(event, h11.Data) and (event.chunk_start or self._chunks):
            # A body with a Content-Length has no chunk that starts.
            self._chunks += event.chunk_start
            self._chunked_bytes += len(event.data)
            if self._chunked_bytes < _CHUNK_BYTES * (self._chunks - _FREE_CHUNKS):
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event


class _Stall:
    """Aborts a connection whose peer does not read."""

    def __init__(self) -> None:
        self._timer: TimerHandle | None = None

    def begin(self, transport: Transport) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(STALLED_S, transport.abort)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpProtocol(H11Protocol):
    """HTTP/1.1 with limits on the time that a request takes to arrive.

    Attributes:
        open_connections: They are told which connections wait for a request.
    """

    open_connections: Connections

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _RequestParser(h11.SERVER)
        self._stall = _Stall()
        self._upgraded = False
        self._part: Any = None  # the part of the request that is awaited: a state of h11
        self._since = 0.0  # when it began, in the loop's time
        self._received = 0  # bytes of it
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._watch(0)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._stall.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.begin(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall.end()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        self._stop_watching()
        self._stall.end()
        self.open_connections.set_waiting(self.client, False)
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self.open_connections.set_waiting(self.client, True)
        self._part = None  # the next request begins with the next data
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, with the headers of every other response; none if a response has begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = msg.encode()
        fields = {
            **SECURITY_HEADERS,
            "content-type": "text/plain; charset=utf-8",
            "content-length": str(len(body)),
            "connection": "close",
        }
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self, size: int) -> None:
        """Follow the request's progress, after `size` bytes have arrived."""
        state = self.conn.their_state
        if self._upgraded or self.transport.is_closing():
            self._stop_watching()
            return
        if state is not self._part:
            self._stop_watching()
            self._part, self._since, self._received = state, self.loop.time(), 0
            self.open_connections.set_waiting(self.client, state is h11.IDLE)
            if state in (h11.IDLE, h11.SEND_BODY):
                self._set_deadline()
        self._received += size

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _set_deadline(self) -> None:
        seconds = HEADERS_S
        if self._part is h11.SEND_BODY:
            seconds = BODY_S + self._received / BODY_BYTES_PER_S
        self._deadline = self.loop.call_at(self._since + seconds, self._check)

    def _check(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused:
            self._since = now  # the server is slow, not the client
        elif self._part is h11.IDLE or (
            now >= self._since + BODY_S + self._received / BODY_BYTES_PER_S
        ):
            self.transport.abort()
            return
        self._set_deadline()


def http_protocol(connections: Connections) -> type[HttpProtocol]:
    """The HTTP protocol of a server with these connections."""
    return type("BoundHttpProtocol", (HttpProtocol,), {"open_connections": connections})


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """WebSockets whose frames are parsed a few at a time.

    uvicorn parses all that a read returns: of a flood of tiny frames these are tens of thousands.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stall = _Stall()
        self._unparsed = bytearray()
        self._parsing = False  # a slice is scheduled

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if not (self._parsing or self.read_paused):
            self._parse()

    def _parse(self) -> None:
        self._parsing = False
        piece = bytes(self._unparsed[:_SLICE])
        del self._unparsed[:_SLICE]
        super().data_received(piece)
        if self.transport.is_closing():
            self._unparsed.clear()
        elif self.read_paused:
            pass  # until the application has taken the messages
        elif self._unparsed:
            self.transport.pause_reading()
            self._schedule()
        else:
            self.transport.resume_reading()

    def _schedule(self) -> None:
        if not self._parsing:
            self._parsing = True
            self.loop.call_soon(self._parse)

    async def receive(self) -> ASGIReceiveEvent:
        """As uvicorn's, which reads on once the application has taken all messages."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if self._unparsed:
                self._schedule()
            else:
                self.transport.resume_reading()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # The handshake was refused. uvicorn would log an error about it.
            self.handshake_complete = True

    def handle_ping(self) -> None:
        """Answer a ping, unless the peer reads no answers: they would be stored without limit."""
        output = self.conn.data_to_send()
        if self.writable.is_set():
            self.transport.write(b"".join(output))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.begin(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stall.end()
        self._unparsed.clear()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """As uvicorn's, which raises InvalidState for a connection whose close frame has arrived
        but whose TLS is still open; that would end the server with a traceback."""
        with suppress(InvalidState):
            super().shutdown()
        self.transport.close()
