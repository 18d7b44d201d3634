"""Access tokens of programs: a file of names and hashes, read again when it changes."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from edgeapp.file_lock import is_locked
from pipelines import InputError, OptionError, OutputError

__all__ = ["AccessToken", "TokenFile"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX = "edge-"  # so that a search for leaked secrets finds them
_MAX_SECRET = 512  # characters
_LOCKED_S, _LOCK_CHECKED_S = 10.0, 0.01  # how long a change waits for those of other processes


@dataclass(frozen=True)
class AccessToken:
    """A token as it is stored. The secret itself is not.

    Attributes:
        name: Who uses it.
        digest: SHA-256 of the secret, in hexadecimal digits. The secret has 256 random bits, so
            that a slow hash would add nothing.
        created: When it was made: ISO 8601, UTC.
    """

    name: str
    digest: str
    created: str


class TokenFile:
    """The tokens of a server. All methods may be called from any thread and any process.

    Args:
        path: A JSON file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None  # of the file that was read last
        self._tokens: tuple[AccessToken, ...] = ()

    @property
    def tokens(self) -> tuple[AccessToken, ...]:
        """All tokens, the oldest first.

        Raises:
            InputError: The file cannot be read.
        """
        with self._lock:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                self._stamp, self._tokens = None, ()
                return ()
            except OSError as error:
                raise InputError(f"{self._path} cannot be read: {error.strerror}") from error
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._stamp:
                self._tokens, self._stamp = self._read(), stamp
            return self._tokens

    def add(self, name: str) -> str:
        """Make a token.

        Returns:
            The secret. It cannot be shown again.

        Raises:
            OptionError: The name is invalid, or taken.
            OutputError: The file cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise OptionError(
                f"{name!r} is no name for a token: use 1 to 64 letters, digits, points, _ and -"
            )
        with self._changing():
            tokens = self.tokens
            if any(token.name == name for token in tokens):
                raise OptionError(f"there is a token named {name} already; revoke it first")
            secret = _PREFIX + secrets.token_urlsafe(32)
            created = datetime.now(UTC).isoformat(timespec="seconds")
            self._write((*tokens, AccessToken(name, _digest(secret), created)))
        return secret

    def revoke(self, name: str) -> None:
        """Delete a token. Servers that run refuse it from now on.

        Raises:
            InputError: There is none of this name.
            OutputError: The file cannot be written.
        """
        with self._changing():
            tokens = self.tokens
            kept = tuple(token for token in tokens if token.name != name)
            if len(kept) == len(tokens):
                raise InputError(f"there is no token named {name}")
            self._write(kept)

    def name_of(self, secret: str) -> str | None:
        """The name of the token with this secret; None: there is none.

        The time that it takes does not depend on which digits agree.
        """
        if not secret or len(secret) > _MAX_SECRET:
            return None
        digest, found = _digest(secret), None
        for token in self.tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token.name
        return found

    def has(self, name: str) -> bool:
        """Whether a token of this name exists."""
        return any(token.name == name for token in self.tokens)

    def _read(self) -> tuple[AccessToken, ...]:
        try:
            entries = json.loads(self._path.read_text("utf-8"))
            tokens = tuple(AccessToken(**entry) for entry in entries)
            if not all(len(token.digest) == 64 and token.digest.isascii() for token in tokens):
                raise ValueError("a digest is damaged")
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{self._path} is no file of tokens: {error}") from error
        return tokens

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep other threads and processes from changing the file.

        The lock is a file of its own, which stays: the file of tokens is replaced.

        Raises:
            OutputError: Another process changes it all the time, or it cannot be locked.
        """
        path = self._path.with_name(f"{self._path.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error
        try:
            deadline = time.monotonic() + _LOCKED_S
            while is_locked(lock):  # False where the file system has no locks
                if time.monotonic() > deadline:
                    raise OutputError(f"{path} is locked by another process; try again")
                time.sleep(_LOCK_CHECKED_S)
            with self._lock:
                self._stamp = None  # several changes within a tick of the clock may look alike
            yield
        finally:
            os.close(lock)

    def _write(self, tokens: tuple[AccessToken, ...]) -> None:
        """Replace the file at once; only this user can read it."""
        content = json.dumps([asdict(token) for token in tokens], indent=2) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file, name = tempfile.mkstemp(dir=self._path.parent, prefix=".tokens-")  # mode 0600
            try:
                with os.fdopen(file, "w", encoding="utf-8") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())  # a revoked token stays so after a power cut
                Path(name).replace(self._path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written: {error.strerror}") from error


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
