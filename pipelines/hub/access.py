"""How one call uses the hub: its cache, its token and the revision of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pipelines.errors import OptionError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,199}")


@dataclass(frozen=True)
class HubAccess:
    """What a call was given.

    Attributes:
        cache_dir: The cache; None: the one of this machine.
        revision: Branch, tag or commit of the model; None: the main branch.
        token: A token. True or None: the user's. False: none.
    """

    cache_dir: Path | None = None
    revision: str | None = None
    token: str | bool | None = None


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit, and no branch or tag."""
    return bool(_COMMIT.fullmatch(revision))


_access: ContextVar[HubAccess | None] = ContextVar("hub access", default=None)


def access() -> HubAccess:
    """Return what the current call was given."""
    return _access.get() or HubAccess()


@contextmanager
def hub_access(
    revision: str | None, cache_dir: str | PathLike[str] | None, token: str | bool | None
) -> Iterator[None]:
    """Use a cache, a revision and a token in this thread, for a block of code.

    Raises:
        OptionError: `revision` is no name of one.
    """
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise OptionError(f"revision is a branch, a tag or a commit, not {revision[:60]!r}")
    folder = None if cache_dir is None else Path(cache_dir).expanduser().absolute()
    before = _access.set(HubAccess(folder, revision, token))
    try:
        yield
    finally:
        _access.reset(before)
