"""What a page asks about sharing: an address for viewers or for another device, with a QR code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import segno
from starlette.requests import HTTPConnection

from edgeapp.server.access.addresses import is_loopback, lan_address, url_host
from edgeapp.server.access.login_links import LOGIN_LINK_S
from edgeapp.server.tasks.live_task import LiveTask
from pipelines import OptionError

if TYPE_CHECKING:
    from edgeapp.server.options import ServerOptions
    from edgeapp.server.sessions import Message, Session
    from edgeapp.server.viewers.broadcast import Broadcasts

__all__ = ["Sharing"]


class Sharing:
    """Handlers of the page's requests about sharing.

    Args:
        broadcasts: All shared sessions.
        options: Of the server.
        make_login_link: Makes the secret of a link with which a user logs in once.
    """

    def __init__(
        self,
        broadcasts: Broadcasts,
        options: ServerOptions,
        make_login_link: Callable[[str], str],
    ) -> None:
        self._broadcasts, self._options = broadcasts, options
        self._make_login_link = make_login_link
        self._handlers = {"share": self._share, "unshare": self._unshare, "invite": self._invite}

    def handles(self, kind: object) -> bool:
        """Whether there is a handler for a type of request."""
        return isinstance(kind, str) and kind in self._handlers

    def reply(
        self, message: Message, user: str, connection: HTTPConnection, session: Session
    ) -> Message:
        """The reply to a request.

        Args:
            message: The request; `handles` is true for its type.
            user: Who asks.
            connection: With the address under which the page was opened.
            session: Of the tab.

        Raises:
            OptionError: It is not possible.
        """
        return self._handlers[message["type"]](message, user, connection, session)

    def attach(self, task: LiveTask, message: Message, user: str) -> None:
        """Share a live session that begins, if its message names a broadcast of the user."""
        broadcast = self._broadcasts.of(user, str(message.get("share") or ""))
        if broadcast is not None:
            task.share(broadcast)

    def _share(
        self, message: Message, user: str, connection: HTTPConnection, session: Session
    ) -> Message:
        """Share the tab's captions. "share": the token of its earlier broadcast."""
        broadcast = self._broadcasts.of(user, str(message.get("share") or ""))
        if broadcast is None:
            broadcast = self._broadcasts.open(user)
        task = session.task("live")
        if isinstance(task, LiveTask):
            task.share(broadcast)
        base = self._base_url(connection)
        return {
            "share": broadcast.token,
            "overlay": f"{base}overlay/{broadcast.token}",
            "viewers": broadcast.viewers,
            **self._link(f"{base}view/{broadcast.token}", broadcast.ends_at),
        }

    def _unshare(
        self, message: Message, user: str, connection: HTTPConnection, session: Session
    ) -> Message:
        broadcast = self._broadcasts.of(user, str(message.get("share") or ""))
        if broadcast is not None:
            self._broadcasts.end(broadcast)
        return {"done": broadcast is not None}

    def _invite(
        self, message: Message, user: str, connection: HTTPConnection, session: Session
    ) -> Message:
        """A link with which another device of the user logs in."""
        if not self._options.login_required:
            raise OptionError("this page needs no login: open its address on the other device")
        base = self._base_url(connection)
        ends_at = datetime.now(UTC).timestamp() + LOGIN_LINK_S
        return self._link(f"{base}enter/{self._make_login_link(user)}", ends_at)

    def _base_url(self, connection: HTTPConnection) -> str:
        """The page's address as other devices reach it, with the slash behind it."""
        url = connection.url
        host = url.hostname or ""
        if is_loopback(host) and not self._options.loopback:
            host = lan_address() or host
        scheme = "https" if url.scheme in ("https", "wss") else "http"
        port = f":{url.port}" if url.port else ""
        return f"{scheme}://{url_host(host)}{port}/"

    def _link(self, url: str, ends_at: float) -> Message:
        """url: of a page. ends_at: when it ends, by time.time()."""
        return {
            "url": url,
            "qr": segno.make(url, error="m").svg_inline(omitsize=True, border=3, light="#fff"),
            "ends": datetime.fromtimestamp(ends_at, UTC).isoformat(),
            "here_only": self._options.loopback,
        }
