"""An output file that grows line by line under a .part name, and goes on where it was cut off."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import TracebackType

from pipelines import OutputError

__all__ = ["PartFile", "job_key"]


def job_key(source: Path, **settings: object) -> str:
    """What the lines of an output depend on: the bytes of its source and the settings."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    with source.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


class PartFile:
    """Lines for `path`, kept in `path`.part until `finish`.

    key: the lines of an earlier run are kept when it had the same key (stored in .part.json),
        and there are then `done` of them; None: nothing says what they are, so they stay.
    Raises OutputError when it cannot be written, or such lines are in the way.
    """

    def __init__(self, path: Path, key: str | None) -> None:
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self._note = path.with_name(path.name + ".part.json")
        self.done = 0
        if key is None and self.part.is_file() and self.part.stat().st_size:
            raise OutputError(f"{self.part} holds an earlier run's lines: move it or delete it")
        try:
            kept = self._kept() if key is not None and self._same(key) else b""
            self.done = kept.count(b"\n")
            if not kept:
                self._note.write_text(json.dumps({"key": key}), encoding="utf-8")
            self._file = self.part.open("r+b" if kept else "wb")
            self._file.truncate(len(kept))
            self._file.seek(len(kept))
        except OSError as error:
            raise self._failure(error) from error

    def write(self, line: str) -> None:
        """One more line, with its ending, safe from then on."""
        try:
            self._file.write(line.encode(errors="replace"))
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from error

    def finish(self) -> None:
        """All is there: give the file its name."""
        try:
            self._file.close()
            self.part.replace(self.path)
            self._note.unlink(missing_ok=True)
        except OSError as error:
            raise self._failure(error) from error

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if self.part.exists() and self.part.stat().st_size == 0:
            self.part.unlink()
            self._note.unlink(missing_ok=True)

    def _same(self, key: str) -> bool:
        try:
            return bool(json.loads(self._note.read_text(encoding="utf-8"))["key"] == key)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _kept(self) -> bytes:
        """The whole lines of the earlier run; a last one cut in the middle is made anew."""
        if not self.part.exists():
            return b""
        content = self.part.read_bytes()
        return content[: content.rfind(b"\n") + 1]

    def _failure(self, error: OSError) -> OutputError:
        return OutputError(f"{self.path} cannot be written: {error.strerror or error}")
