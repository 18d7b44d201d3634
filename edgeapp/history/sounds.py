"""The sound of records: recordings in a private folder beside the history, up to a quota."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["DEFAULT_QUOTA_MB", "SoundFolder"]

DEFAULT_QUOTA_MB = 2000
_ORPHAN_S = 3600.0  # a younger file may belong to a record that is being written


class SoundFolder:
    """Recordings of records, under random names, in a folder that is created on first use.

    All together take at most `quota_bytes`; 0 keeps none.
    """

    def __init__(self, path: Path, quota_bytes: int) -> None:
        self.path, self.quota_bytes = path, quota_bytes

    def store(self, recording: Path, suffix: str) -> str | None:
        """Move a recording into the folder; return its name there, with the suffix (".flac").

        The result is None if it is larger than the quota.

        Raises:
            OSError: It cannot be read or moved.
        """
        if recording.stat().st_size > self.quota_bytes:
            return None
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = secrets.token_hex(16) + suffix
        shutil.move(recording, self.path / name)
        (self.path / name).chmod(0o600)
        return name

    def find(self, name: str) -> Path | None:
        """The path of a recording; None if it does not exist (any more)."""
        path = self.path / name
        # A damaged history may have any text as a name.
        return path if Path(name).name == name and path.is_file() else None

    def remove(self, names: Iterable[str]) -> None:
        """Delete recordings."""
        for name in names:
            if (path := self.find(name)) is not None:
                with suppress(OSError):
                    path.unlink()

    def over_quota(self, names: Sequence[str]) -> Sequence[str]:
        """Return which of all recordings, oldest first, exceed the quota."""
        sizes = [path.stat().st_size if (path := self.find(name)) else 0 for name in names]
        used, count = sum(sizes), 0
        while used > self.quota_bytes:
            used -= sizes[count]
            count += 1
        return names[:count]

    def remove_others(self, names: Iterable[str]) -> None:
        """Delete what is none of the recordings of records, as after a kill."""
        known = set(names)
        for path in self.path.iterdir() if self.path.is_dir() else ():
            with suppress(OSError):
                if path.name not in known and time.time() - path.stat().st_mtime > _ORPHAN_S:
                    path.unlink()
