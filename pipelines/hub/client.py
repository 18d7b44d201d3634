"""huggingface_hub's HTTP client, under rules that it lacks.

A hub may be a mirror, and a mirror may be broken or hostile. By itself the client follows redirects
anywhere, reads answers of any length, waits as long as it is told to, and takes names of files from
headers. `set_client_factory` gives it two hooks, which check each request and each answer that
belong to a `Call`. Other users of the client in this process keep it as it is.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from logging import ERROR
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from pipelines.errors import EdgeError, ModelError
from pipelines.hub.access import access
from pipelines.hub.addresses import (
    InsecureMirror,
    check_endpoint,
    insecure_mirror,
    may_send_token,
    redirect_target,
    same_origin,
)
from pipelines.hub.listing import Listing, RemoteFile, parse_listing
from pipelines.hub.names import plain_line, shown

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import HfApi

_OK, _PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 200, 206, 416
_LISTING_BYTES = 16 << 20  # about 60,000 files
_REDIRECTS = 5
_CHUNK_BYTES = 1 << 20
_PROGRESS_BYTES = 64 << 10
_STALL_S = 60.0  # a connection that brings less than _PROGRESS_BYTES in this time has stalled
_LONGEST_WAIT_S = 60  # before a retry, if the hub asks for it
_ERROR_HEADERS = ("X-Error-Code", "X-Error-Message")


@dataclass(frozen=True)
class RemoteRepository:
    """A repository on a hub.

    Attributes:
        repository: The hub id, "organisation/model".
        endpoint: The hub's address.
        silence_s: If set, a hub that sends nothing for so long has failed, and one that brings
            nothing is not asked again.
    """

    repository: str
    endpoint: str
    silence_s: float | None = None

    @property
    def token(self) -> str | bool | None:
        """The client's argument: the call's token, False for none, None for the user's, if any."""
        return access().token if may_send_token(self.endpoint) else False

    def refusal(self, problem: str) -> ModelError:
        """The error for a refused response. problem: "it lists …", "x.json is …"."""
        return ModelError(
            f"{self.repository} cannot be downloaded from {self.endpoint}: {problem}; "
            "try again, and do not trust this hub if the message stays"
        )


@dataclass
class Call:
    """A call of huggingface_hub, and what its requests may bring.

    Attributes:
        remote: The repository that is asked for.
        what: What is asked for, in messages.
        limit: The most bytes of all answers together.
        file: The file whose content is asked for, as it is listed; else None.
        commit: The commit of the listing.
        start: The bytes of the file that an earlier attempt brought.
        begun: Called when content of the file arrives, before its first byte.
        report: Called with the bytes of the file that have arrived, also before each request. An
            exception from it ends the connection.
        by_http: Whether content of the file arrives by HTTP.
        ended: Why a connection ended before the file was whole. What had arrived is stored; the
            client only sees a file that is too short.
    """

    remote: RemoteRepository
    what: str
    limit: int
    file: RemoteFile | None = None
    commit: str = ""
    start: int = 0
    begun: Callable[[], None] = lambda: None
    report: Callable[[int], None] = lambda _: None
    by_http: bool = False
    ended: BaseException | None = None
    requests: int = 0
    answers: int = 0
    redirects: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Check what the client asks and gets in this context."""
        _add_hooks()
        token = _CALL.set(self)
        try:
            yield
        finally:
            _CALL.reset(token)

    def wrong_size(self, size: str) -> ModelError:
        """The error for a file of another size."""
        if self.file is None:
            return self.remote.refusal(f"{self.what} is larger than {self.limit:,} bytes")
        return self.remote.refusal(
            f"{self.what} is announced with {self.file.size:,} bytes, and has {size}"
        )


_CALL: ContextVar[Call | None] = ContextVar("_CALL", default=None)
_ADDING = threading.Lock()


@contextmanager
def quiet_client() -> Iterator[None]:
    """Check the hub's address, and silence the client's log: it logs each attempt, and `pull`
    reports the outcome only."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging

    check_endpoint(constants.ENDPOINT)
    warning = insecure_mirror(constants.ENDPOINT)
    if warning is not None:
        warnings.warn(warning, InsecureMirror, stacklevel=4)  # the caller of pull or plan_pull
    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE switches downloads off."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def is_storage_error(error: BaseException) -> bool:
    """Return whether an error of a download is the disk's of this machine, not the connection's."""
    network = ConnectionError, TimeoutError
    return isinstance(error, OSError) and bool(error.errno) and not isinstance(error, network)


def reason_of(error: BaseException) -> str:
    """Return an error of the client as the end of a sentence."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        # The client summarises several possible causes; __cause__ is the actual one.
        return reason_of(error.__cause__)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, which switches downloads off"
    if isinstance(error, errors.HfHubHTTPError):
        return f"it answered {error.response.status_code} {error.response.reason_phrase}".rstrip()
    reason = plain_line(str(error)) or type(error).__name__
    # Of the connection: answers of the hub are above.
    if isinstance(error, errors.HTTPError):  # type: ignore[attr-defined]
        return f"there is no connection to it, this machine may be offline ({reason})"
    return reason


def fetch_listing(remote: RemoteRepository) -> Listing:
    """Return the files of a repository, at the commit that its main branch, or the revision of
    the call, has now.

    Raises:
        ModelError: The response is malformed.
        OSError: The connection stalled.
        HTTPError: (of huggingface_hub.errors) The hub refused, or cannot be reached.
    """
    url = f"{remote.endpoint}/api/models/{remote.repository}"
    if revision := access().revision:
        url += f"/revision/{quote(revision, safe='')}"
    url += "?blobs=true"
    what = "its description of the repository"
    return parse_listing(fetch_answer(remote, url, what, _LISTING_BYTES), remote.refusal)


def fetch_answer(remote: RemoteRepository, url: str, what: str, limit: int) -> bytes:
    """Return the body of a short answer.

    Args:
        remote: What is asked for, for messages.
        url: The address.
        what: The answer in messages.
        limit: The most bytes.

    Raises:
        ModelError: The answer is longer, or malformed.
        OSError, HTTPError: As for `fetch_listing`.
    """
    from huggingface_hub import get_session
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        hf_raise_for_status,
    )

    with Call(remote, what, limit).running():
        response = get_session().get(url, headers=build_hf_headers(token=remote.token))
        hf_raise_for_status(response)
        return response.content


@contextmanager
def api_of(remote: RemoteRepository, what: str, limit: int) -> Iterator[HfApi]:
    """Yield huggingface_hub's API, with bounded answers.

    Args:
        remote, what, limit: As for `fetch_answer`.

    Raises:
        ModelError, OSError, HTTPError: As `fetch_answer`.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    with Call(remote, what, limit).running():
        try:
            yield HfApi(endpoint=remote.endpoint, token=remote.token)
        except (EdgeError, OSError, HTTPError):
            raise
        except Exception as error:  # it trusts that each value is there, and of the right type
            raise remote.refusal(f"{what} is malformed") from error


def _add_hooks() -> None:
    """Let the client call the hooks below, also after it has made itself anew."""
    import httpx2
    from huggingface_hub import constants, get_session, set_client_factory

    with _ADDING:
        # A download has three copies of a chunk in memory, and eight files may come at once.
        constants.DOWNLOAD_CHUNK_SIZE = min(constants.DOWNLOAD_CHUNK_SIZE, _CHUNK_BYTES)
        hooks = get_session().event_hooks  # those of huggingface_hub
        if _on_request in hooks["request"]:
            return
        hooks = {
            "request": [*hooks["request"], _on_request],
            "response": [*hooks["response"], _on_response],
        }
        # As huggingface_hub's own: it sets the limits of time with each request.
        set_client_factory(
            lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=None)
        )


def _on_request(request: httpx2.Request) -> None:
    """Check the address of a request, and limit what it sends and how long it waits."""
    from huggingface_hub import constants

    call = _CALL.get()
    if call is None:
        return
    if call.remote.silence_s is not None and call.requests > call.answers:
        raise OSError("it does not answer, this machine may be offline")
    call.requests += 1
    call.report(call.start)  # an exception from it ends the client's attempts
    url, endpoint = str(request.url), call.remote.endpoint
    _check_address(call, endpoint, url)
    if not (same_origin(url, endpoint) and may_send_token(endpoint)):
        # Content is served from other hosts, by signed addresses: they do not get the token.
        request.headers.pop("authorization", None)
    # A range of a compressed answer is not a range of the file, and a small answer could unpack to
    # any size.
    request.headers["Accept-Encoding"] = "identity"
    seconds = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
    if call.remote.silence_s is not None:
        seconds = min(seconds, call.remote.silence_s)
    request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), seconds)


def _on_response(response: httpx2.Response) -> None:
    """Check the status and the headers of an answer, before its body is read."""
    call = _CALL.get()
    if call is None:
        return
    remote, what, headers = call.remote, call.what, response.headers
    call.answers += 1
    if response.has_redirect_location:
        call.redirects += 1
        if call.redirects > _REDIRECTS:
            raise remote.refusal(f"{what} is redirected more than {_REDIRECTS} times")
        _check_address(call, str(response.request.url), headers["Location"])
    else:
        call.redirects = 0
        _check_status(call, response)
    if call.file is not None and response.request.method == "HEAD":
        _name_after_listing(call, call.file, response)
    if cas := headers.get("X-Xet-Cas-Url"):
        _check_address(call, remote.endpoint, cas)


def _check_address(call: Call, source: str, location: str) -> None:
    """Raise ModelError if an address must not be asked on behalf of another one."""
    try:
        redirect_target(source, location)
    except ValueError as error:
        raise call.remote.refusal(
            f"{call.what} is redirected to {shown(location)}, {error}"
        ) from error


def _check_status(call: Call, response: httpx2.Response) -> None:
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    status, headers = response.status_code, response.headers
    if 400 <= status < 600:
        start = _range_start(response)
        if status == _RANGE_NOT_SATISFIABLE and call.file is not None:
            raise call.wrong_size(f"at most {start:,}")
        # The body may be of any length, and so may the time to wait.
        for name in set(headers) - {name.lower() for name in (*_ERROR_HEADERS, "retry-after")}:
            del headers[name]
        for name in headers:
            headers[name] = headers[name][:200]
        wait = headers.get("Retry-After", "")
        if not (wait.isdecimal() and int(wait) <= _LONGEST_WAIT_S):
            headers.pop("Retry-After", None)
        response.stream = _checked_stream(call, response, whole=False)
        if call.remote.silence_s is not None:
            hf_raise_for_status(response)  # the client would ask again
        return
    if status not in (_OK, _PARTIAL_CONTENT):
        raise call.remote.refusal(f"{call.what} was answered with status {status}")
    encoding = headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise call.remote.refusal(
            f"{call.what} is compressed ({shown(encoding)}), which was not asked for"
        )
    start = _range_start(response) if status == _PARTIAL_CONTENT else 0
    if status == _PARTIAL_CONTENT and not headers.get("Content-Range", "").startswith(
        f"bytes {start}-"
    ):
        raise call.remote.refusal(f"{call.what} came from another byte than the one asked for")
    length = headers.get("Content-Length", "")
    if call.file is not None and length.isdecimal() and start + int(length) != call.file.size:
        raise call.wrong_size(f"{start + int(length):,}")
    response.stream = _checked_stream(call, response, start)


def _range_start(response: httpx2.Response) -> int:
    """Return the first byte that a request asked for."""
    wanted = re.fullmatch(r"bytes=(\d+)-", response.request.headers.get("Range", ""))
    return int(wanted[1]) if wanted else 0


def _name_after_listing(call: Call, file: RemoteFile, response: httpx2.Response) -> None:
    """Put what the listing says of a file in place of what the answer says.

    The client names files in the cache after the ETag, in which mirrors have marks of their own.
    """
    headers = response.headers
    headers["ETag"] = headers["X-Linked-ETag"] = f'"{file.digest}"'
    headers["X-Linked-Size"] = str(file.size)
    headers["X-Repo-Commit"] = call.commit
    # Xet's own client, which these hooks do not see, sends the token to this address.
    routes = [link.get("url", "") for link in response.links.values()]
    endpoint = call.remote.endpoint
    for route in (*routes, headers.get("X-Xet-Refresh-Route", "")):
        if "X-Xet-Hash" in headers and not same_origin(urljoin(endpoint, route), endpoint):
            del headers["X-Xet-Hash"]


def _checked_stream(
    call: Call, response: httpx2.Response, start: int = 0, *, whole: bool = True
) -> httpx2.SyncByteStream:
    """Return the body of an answer as the client may read it.

    Args:
        call: What it belongs to.
        response: The answer.
        start: The place of the body's first byte in the file.
        whole: False for a body that is not read at all.
    """
    import httpx2

    class Checked(httpx2.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            if not whole:
                return
            if call.file is None:
                yield from _bounded(call, self._stream, 0, call.limit)
                return
            call.by_http, call.ended = True, None
            call.begun()
            try:
                yield from _bounded(call, self._stream, start, call.file.size)
                call.ended = OSError("the connection was closed too early")
            except GeneratorExit:
                raise
            except BaseException as error:
                # The client drops what it has in memory if a connection breaks; here it ends.
                call.ended = error

        def close(self) -> None:
            self._stream.close()

    return Checked(response.stream)


def _bounded(call: Call, stream: Iterator[bytes], received: int, limit: int) -> Iterator[bytes]:
    """Yield a body in chunks.

    Raises:
        ModelError: It is longer than the limit.
        OSError: Less than _PROGRESS_BYTES arrive in _STALL_S.
    """
    since, before = time.monotonic(), received
    for chunk in stream:
        received += len(chunk)
        if received > limit:
            raise call.wrong_size("more")
        yield chunk
        call.report(received)
        now = time.monotonic()
        if now - since >= _STALL_S:
            if received - before < _PROGRESS_BYTES:
                raise OSError(
                    f"{call.what} arrives too slowly: {received - before:,} bytes in "
                    f"{now - since:.0f} s"
                )
            since, before = now, received
