"""Inputs at http and https addresses: which may be opened, and their download.

An address may come from elsewhere, in a list for example, and lead to this machine or its network.
Private addresses are refused by what a host's name resolves to, again after each redirect, and the
connection goes to the very address that was checked: a name server that answers otherwise the next
time (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from edgeapp.output_errors import output_errors
from edgeapp.temporary_folders import make_temporary_folder
from pipelines import InputError, OutputError

__all__ = ["DownloadLimits", "Network", "RemoteFile", "RemoteFiles", "is_address"]

_CHUNK_BYTES = 1 << 16
_MAX_REDIRECTS = 5
_MAX_ADDRESS = 8192  # characters; signed addresses have about 1,500
_MAX_NAME = 100  # characters of a file's name
_SPARE_BYTES = 64 << 20  # that a download leaves on the disk
_NAT64 = IPv6Network("64:ff9b::/96")  # the last 32 bits are an IPv4 address


@dataclass(frozen=True)
class DownloadLimits:
    """Bounds of a download.

    Attributes:
        max_bytes: Largest file.
        max_s: Seconds in all.
        idle_s: Seconds without an answer.
    """

    max_bytes: int = 8 << 30
    max_s: float = 3600.0
    idle_s: float = 30.0


@dataclass(frozen=True)
class Network:
    """How names are resolved and connections made.

    Attributes:
        resolve: As socket.getaddrinfo.
        connect: As socket.create_connection.
    """

    resolve: Callable[..., list[Any]] = socket.getaddrinfo
    connect: Callable[..., socket.socket] = socket.create_connection


@dataclass(frozen=True)
class RemoteFile:
    """A file at an address.

    Attributes:
        url: The address.
        path: Where it lies once it is downloaded.
        allow_private: Whether hosts of this machine and its network may be asked.
        limits: Bounds of the download.
        network: Resolves and connects.
    """

    url: str
    path: Path
    allow_private: bool = False
    limits: DownloadLimits = field(default_factory=DownloadLimits)
    network: Network = field(default_factory=Network)

    @property
    def shown(self) -> str:
        """The address for messages and the journal: without a query, which may hold a key."""
        return re.split(r"[?#]", self.url, maxsplit=1)[0]

    @contextmanager
    def downloaded(self) -> Iterator[None]:
        """A context in which the file is there; it is deleted afterwards.

        Raises:
            InputError: It cannot be downloaded, or must not be.
            OutputError: There is no room for it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._download()
            try:
                yield
            except InputError as error:  # names the address instead of the temporary file
                error.args = tuple(
                    str(each).replace(str(self.path), self.shown) for each in error.args
                )
                raise
        finally:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def _download(self) -> None:
        url = self.url
        until = time.monotonic() + self.limits.max_s
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                location = self._request(_checked(url), until)
                if location is None:
                    return
                before, url = urlsplit(url), urljoin(url, location)
                if before.scheme == "https" and urlsplit(url).scheme == "http":
                    raise InputError("it leads from https to plain http")
            raise InputError(f"it leads on more than {_MAX_REDIRECTS} times")
        except InputError as error:
            raise InputError(f"{self.shown} is not downloaded: {error}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() >= until:
                reason = f"it takes longer than {self.limits.max_s:g} s"
            elif isinstance(error, TimeoutError):
                reason = f"no answer for {self.limits.idle_s:g} s"
            else:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise InputError(f"{self.shown} cannot be downloaded: {reason}") from error

    def _request(self, url: SplitResult, until: float) -> str | None:
        """Ask for one address. Returns where it leads on, or None when the file is there."""
        connection = _Connection(url, self._address(url), self.network, self.limits)
        # Also ends an answer that comes byte by byte.
        watchdog = threading.Timer(max(0.0, until - time.monotonic()), connection.abort)
        watchdog.daemon = True
        watchdog.start()
        from pipelines import __version__

        try:
            target = quote(url.path or "/", safe="/%:@!$&'()*+,;=~-._")
            if url.query:
                target += "?" + quote(url.query, safe="/%:@!$&'()*+,;=~-._?")
            headers = {"User-Agent": f"edgeapp/{__version__}", "Accept-Encoding": "identity"}
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as response:
                status = response.status
                if status in (301, 302, 303, 307, 308):
                    return response.headers.get("Location", "")
                if status != 200:
                    raise InputError(f"the server answers {status} {response.reason}".strip())
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise InputError("the server compresses it, which was not asked for")
                self._save(response)
            if time.monotonic() >= until:
                raise InputError(f"it takes longer than {self.limits.max_s:g} s")
            return None
        finally:
            watchdog.cancel()
            connection.close()

    def _save(self, response: http.client.HTTPResponse) -> None:
        most = self.limits.max_bytes
        announced = response.length  # None where the server does not say
        if announced is not None and announced > most:
            raise InputError(f"it has {announced:,} bytes, and {most:,} are the most")
        free = shutil.disk_usage(self.path.parent).free - _SPARE_BYTES
        if announced is not None and announced > free:
            raise OutputError(
                f"{self.path.parent} has no room for the {announced:,} bytes of {self.shown}: set "
                "TMPDIR to another folder"
            )
        size = 0
        with output_errors(self.path):
            file = self.path.open("wb")
        with file:
            while chunk := response.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > most:
                    raise InputError(f"it has more than {most:,} bytes")
                with output_errors(self.path):
                    file.write(chunk)
        if announced is not None and size < announced:
            raise InputError(f"the connection broke off after {size:,} of {announced:,} bytes")

    def _address(self, url: SplitResult) -> tuple[str, int]:
        """The address and port of a host to connect to.

        Raises:
            InputError: One of its addresses is private.
        """
        host = url.hostname or ""
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = self.network.resolve(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise InputError(f"the host {host} is not known ({error.strerror})") from None
        addresses = [str(each[4][0]) for each in found]
        if not addresses:
            raise InputError(f"the host {host} has no address")
        if not self.allow_private:
            for address in addresses:
                if not _is_public(address):
                    raise InputError(
                        f"{host} is a private address ({address}); --allow-private opens it"
                    )
        return addresses[0], port


class RemoteFiles:
    """The files of a run at addresses.

    Args:
        allow_private: Whether hosts of this machine and its network may be asked.
    """

    def __init__(self, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self._folder: Path | None = None

    def at(self, url: str) -> RemoteFile:
        """The file at an address. Nothing is downloaded yet."""
        if self._folder is None:
            self._folder = make_temporary_folder("downloads")
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        name = re.sub(r"[^\w.,()+ -]", "_", name).strip(". ")
        key = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return RemoteFile(
            url, self._folder / key / (name[-_MAX_NAME:] or "download"), self._allow_private
        )


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was checked, whatever the host's name resolves to later."""

    def __init__(
        self, url: SplitResult, address: tuple[str, int], network: Network, limits: DownloadLimits
    ) -> None:
        super().__init__(url.hostname or "", address[1], timeout=limits.idle_s)
        self._address, self._network, self._secure = address, network, url.scheme == "https"
        self._opened: socket.socket | None = None  # also while a response alone holds it
        if self._secure:
            self.default_port = 443  # which the Host header leaves out

    def connect(self) -> None:
        self.sock = self._network.connect(self._address, timeout=self.timeout)
        if self._secure:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)
        self._opened = self.sock

    def abort(self) -> None:
        """End all that waits for the other side; from another thread."""
        if self._opened is not None:
            with suppress(OSError):  # it has ended by itself
                # Not SSLSocket's own, which changes the object under the reading thread.
                socket.socket.shutdown(self._opened, socket.SHUT_RDWR)


def is_address(name: str) -> bool:
    """Whether the name of an input is an http or https address."""
    return name[:8].lower().startswith(("http://", "https://"))


def _checked(url: str) -> SplitResult:
    """The parts of an address. Raises InputError if it is none that may be opened."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError("it is not an address") from None
    if parts.scheme not in ("http", "https"):
        raise InputError("it leads to what is neither http nor https")
    if not parts.hostname or port == 0 or len(url) > _MAX_ADDRESS or not url.isprintable():
        raise InputError("it is not an address")
    if parts.username is not None or parts.password is not None:
        raise InputError("passwords in addresses are not sent")
    return parts


def _is_public(text: str) -> bool:
    """Whether an address is one of the internet, also where it stands for an IPv4 address."""
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address.teredo is not None:
            return False
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            address = inner
    return address.is_global and not address.is_multicast
