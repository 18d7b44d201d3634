"""Multipart forms of programs: bounded, with the file in a private temporary folder."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from edgeapp.server.api.errors import ApiError
from edgeapp.server.api.work_thread import ClientLeft
from edgeapp.server.page.exports import declared_length
from edgeapp.temporary_folders import make_temporary_folder

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.types import Message

__all__ = ["FormUploads", "UploadedForm", "check_length"]

_MB = 1 << 20
_MAX_FIELDS = 64
_MAX_FIELD_BYTES = 1 << 16
_FORM_BYTES = 1 << 20  # for everything in a form beside the file
_BUSY_RETRY_S = 10


@dataclass(frozen=True)
class UploadedForm:
    """A form that has arrived.

    Attributes:
        fields: (name, value) of each field that is no file, in order.
        path: The file; `remove` deletes it.
        name: The file's name on the client's machine.
        size: Of the file, in bytes.
    """

    fields: tuple[tuple[str, str], ...]
    path: Path
    name: str
    size: int
    _uploads: FormUploads
    _person: str
    _reserved: int

    def remove(self) -> None:
        """Delete the file. From any thread; again is no error."""
        self._uploads._remove(self)


class FormUploads:
    """Reads forms with one file.

    Args:
        megabytes: The largest file, in MiB.
        files: How many files of that size fit on the disk at the same time.
        files_per_person: How many of them may be one client's.
    """

    def __init__(self, megabytes: int, files: int, files_per_person: int) -> None:
        self._megabytes = megabytes
        self._max_bytes = files * megabytes * _MB
        self._max_bytes_per_person = files_per_person * megabytes * _MB
        self._bytes: Counter[str] = Counter()  # declared lengths, by person
        self._lock = threading.Lock()  # files are removed in the threads of the work
        self._folder = make_temporary_folder("api")

    async def read(
        self,
        request: Request,
        person: str,
        *,
        megabytes: int = 0,
        field: str = "file",
        check: Callable[[str, str], object] | None = None,
        file_begins: Callable[[], object] | None = None,
    ) -> UploadedForm:
        """Read the form of a request.

        Args:
            request: multipart/form-data with one field that is a file.
            person: Whose request it is.
            megabytes: The largest file, if that is less than usual.
            field: The name of the file's field.
            check: Gets the name and the value of each field that is no file as soon as it has
                arrived. Reading ends with what it raises.
            file_begins: Called before the file's content is read. Reading ends with what it raises.

        Raises:
            ApiError: It is no such form, or too large, or too many wait here.
            ClientLeft: The client broke off.
        """
        limit = min(megabytes, self._megabytes) if megabytes else self._megabytes
        length = declared_length(request)
        if length is None:  # a chunked body: as much as it may be, until it has arrived
            length = limit * _MB + _FORM_BYTES
        if length < 0:
            raise ApiError(400, "the Content-Length is not a number")
        if length > limit * _MB + _FORM_BYTES:
            raise ApiError(413, f"the file is larger than the limit of {limit} MB", param=field)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            raise ApiError(
                400, f"the request must be multipart/form-data with a field named {field}"
            )
        self._reserve(person, length)
        path = self._folder / secrets.token_hex(16)
        bounded = _Bounded(request, length)
        try:
            fields, name, size = await self._store(bounded.request, path, field, check, file_begins)
            if size > limit * _MB:
                raise ApiError(413, f"the file is larger than the limit of {limit} MB", param=field)
        except BaseException:
            path.unlink(missing_ok=True)
            self._release(person, length)
            if bounded.exceeded:
                message = f"the file is larger than the limit of {limit} MB"
                raise ApiError(413, message, param=field) from None
            raise
        self._release(person, length - bounded.received)
        return UploadedForm(fields, path, name, size, self, person, bounded.received)

    def adopt(self, form: UploadedForm, person: str) -> UploadedForm:
        """Return the form of another store, counted here as a person's from now on.

        Raises:
            ApiError: Too many files wait here.
        """
        self._reserve(person, form._reserved)
        form._uploads._release(form._person, form._reserved)
        return replace(form, _uploads=self, _person=person)

    def remove_all(self) -> None:
        """Delete all files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _store(
        self,
        request: Request,
        path: Path,
        field: str,
        check: Callable[[str, str], object] | None,
        file_begins: Callable[[], object] | None,
    ) -> tuple[tuple[tuple[str, str], ...], str, int]:
        """Parse a request's form into its fields, and the name and the size of its file."""
        try:
            async with aclosing(request.stream()) as stream:
                form = await _FormParser(
                    request.headers,
                    stream,
                    check,
                    file_begins,
                    max_files=1,
                    max_fields=_MAX_FIELDS,
                    max_part_size=_MAX_FIELD_BYTES,
                ).parse()
        except ClientDisconnect:
            raise ClientLeft from None
        except MultiPartException as error:
            raise ApiError(400, f"the form cannot be read: {error.message}") from None
        try:
            file = form.get(field)
            if not isinstance(file, UploadFile):
                raise ApiError(400, f"the form has no file in its field {field!r}", param=field)
            size = await asyncio.to_thread(_copy, file, path)
            pairs = [(k, v) for k, v in form.multi_items() if isinstance(v, str)]
            return tuple(pairs), _plain_name(file.filename), size
        except OSError as error:
            raise ApiError(
                507, f"the file cannot be stored here: {error.strerror}", retry_after_s=60
            ) from error
        finally:
            await form.close()

    def _reserve(self, person: str, length: int) -> None:
        with self._lock:
            busy = sum(self._bytes.values()) + length > self._max_bytes
            if not busy and self._bytes[person] + length <= self._max_bytes_per_person:
                self._bytes[person] += length
                return
        raise ApiError(
            429, "too many files wait here; try again later", retry_after_s=_BUSY_RETRY_S
        )

    def _release(self, person: str, length: int) -> None:
        with self._lock:
            self._bytes[person] -= length
            if self._bytes[person] <= 0:
                del self._bytes[person]

    def _remove(self, form: UploadedForm) -> None:
        try:
            form.path.unlink()
        except FileNotFoundError:
            return  # removed before
        self._release(form._person, form._reserved)


class _FormParser(MultiPartParser):
    """A parser of forms that passes on each field that is no file as soon as it has arrived.

    Args:
        headers: Of the request.
        stream: Its body.
        check: Gets the name and the value.
        file_begins: Called before a file's content is read.
        limits: As for starlette's parser.
    """

    def __init__(
        self,
        headers: Headers,
        stream: AsyncGenerator[bytes, None],
        check: Callable[[str, str], object] | None,
        file_begins: Callable[[], object] | None,
        **limits: int,
    ) -> None:
        super().__init__(headers, stream, **limits)
        self._check, self._file_begins = check, file_begins

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        if self._file_begins is not None and self._current_part.file is not None:
            self._file_begins()

    def on_part_end(self) -> None:
        super().on_part_end()
        name, value = self.items[-1]
        if self._check is not None and isinstance(value, str):
            self._check(name, value)


class _Bounded:
    """A request whose body ends with an error once it is too long.

    Args:
        request: The request.
        most: The longest body, in bytes.

    Attributes:
        request: The same request, bounded.
        received: Bytes of the body that have arrived.
    """

    def __init__(self, request: Request, most: int) -> None:
        from starlette.requests import Request as BoundedRequest

        self._receive, self._most = request.receive, most
        self.received = 0
        self.request = BoundedRequest(request.scope, self._next)

    @property
    def exceeded(self) -> bool:
        """Whether the body was too long."""
        return self.received > self._most

    async def _next(self) -> Message:
        message = await self._receive()
        self.received += len(message.get("body", b""))
        if self.exceeded:
            raise ClientDisconnect
        return message


def _copy(file: UploadFile, path: Path) -> int:
    """Store a file; returns its size in bytes."""
    with path.open("xb") as target:
        shutil.copyfileobj(file.file, target, _MB)
        return target.tell()


def _plain_name(name: str | None) -> str:
    """A file's name for messages: its last part, short."""
    return (name or "").replace("\\", "/").rpartition("/")[2][:200] or "the file"


def check_length(request: Request, most: int) -> None:
    """Check that the body of a request has a length, of at most so many bytes.

    Raises:
        ApiError: It has none, or is larger.
    """
    length = declared_length(request)
    if length is None or length < 0:
        raise ApiError(411, "the request needs a Content-Length")
    if length > most:
        raise ApiError(413, f"the request is larger than {most >> 20} MB")
