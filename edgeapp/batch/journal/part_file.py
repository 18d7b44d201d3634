"""An output file that is written line by line under a .part name, and resumed after a break."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType

from edgeapp.file_names import beside
from edgeapp.output_errors import output_errors
from pipelines import OutputError

__all__ = ["PartFile"]


class PartFile:
    """Lines for `path`, written to `path`.part and renamed by `finish`. A context manager.

    The key of the job and the name of its input are stored in `path`.part.json. Complete lines of
    an earlier run are kept if its key is the same. They are overwritten if its input is, and
    otherwise refused. On exit an empty .part is deleted.

    Args:
        path: The output file.
        key: Key of the job. None for an input that can be read once only: lines of an earlier run
            then cannot be resumed, and are not overwritten.
        source: Absolute path of the input.
        overwrite: Overwrite the lines of another input.

    Attributes:
        path: The output file.
        part: The file with the lines so far.
        done: Number of lines kept from an earlier run.

    Raises:
        OutputError: The file cannot be written, or holds lines that cannot be resumed.
    """

    def __init__(
        self, path: Path, key: str | None, source: str = "", overwrite: bool = False
    ) -> None:
        self.path = path
        self.part = beside(path, ".part")
        self._key_file = beside(path, ".part.json")
        self.done = 0
        known = self._known()
        same = key is not None and known.get("key") == key
        has_lines = self.part.is_file() and self.part.stat().st_size > 0
        if has_lines and not same and not overwrite:
            if key is None:
                raise OutputError(f"{self.part} holds an earlier run's lines: move it or delete it")
            if known.get("source") != source:
                raise OutputError(
                    f"{self.part} holds lines of {known.get('source') or 'another input'}: "
                    "--overwrite replaces it, -o names another place"
                )
        with output_errors(path):
            kept = self._complete_lines() if same else b""
            self.done = kept.count(b"\n")
            if not kept:
                content = json.dumps({"key": key, "source": source})
                self._key_file.write_text(content, encoding="utf-8")
            self._file = self.part.open("r+b" if kept else "wb")
            self._file.truncate(len(kept))
            self._file.seek(len(kept))

    def write(self, line: str) -> None:
        """Append a line, with its ending, and flush it."""
        with output_errors(self.path):
            self._file.write(line.encode(errors="replace"))
            self._file.flush()

    def finish(self) -> None:
        """Close the file and rename it to `path`."""
        with output_errors(self.path):
            self._file.close()
            self.part.replace(self.path)
            self._key_file.unlink(missing_ok=True)

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
            self._key_file.unlink(missing_ok=True)

    def _known(self) -> dict[str, object]:
        """What an earlier run has stored; nothing if that cannot be read."""
        try:
            known = json.loads(self._key_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _complete_lines(self) -> bytes:
        """The lines of the earlier run that end with a line feed; an incomplete one is dropped."""
        if not self.part.exists():
            return b""
        content = self.part.read_bytes()
        return content[: content.rfind(b"\n") + 1]
