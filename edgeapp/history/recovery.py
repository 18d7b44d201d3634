"""Rows of a damaged history, read from the pages of the file without its b-trees.

SQLite gives up a table at the first damaged page. Here each leaf page is read on its own, so that a
damaged page costs its own rows only. Deleted rows do not come back: SQLite overwrites them with
zeros (PRAGMA secure_delete). File format: https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from edgeapp.store.schema import MAGIC

__all__ = ["RecoveredRows", "read_rows", "restore_rows"]

_Value = int | float | str | bytes | None
_Row = tuple[_Value, ...]

_PAGE_BYTES = 4096  # SQLite's default, for a file whose header is damaged
_HEADER_BYTES = 100  # at the beginning of page 1
_LEAF = 0x0D  # type of a leaf page of a table

# The columns of the tables `records` and `entries`: the second one tells them apart, and no other
# table has as many. Rows of earlier schemas lack the last ones (`sound` and `deleted`, `words` and
# `speaker`).
_RECORD_TYPES: tuple[type | tuple[type, ...], ...] = (
    type(None), str, str, str, str, int, (int, float),
    (str, type(None)), (str, type(None)), (str, type(None)),
    (str, type(None)), (int, type(None)),
)  # fmt: skip
_ENTRY_TYPES: tuple[type | tuple[type, ...], ...] = (
    type(None), int, int, (int, float, type(None)), (int, float, type(None)), str, str, int,
    (str, type(None)), (str, type(None)),
)  # fmt: skip
_FIRST_RECORD, _FIRST_ENTRY = 10, 8  # columns in the first schema
# Kind, title, plain, created, duration_s, language, target, model, sound, deleted of a lost record.
_LOST = ("live", "", "", 0, 0.0, None, None, None, None, None)


@dataclass(frozen=True)
class RecoveredRows:
    """Rows of a damaged file.

    Attributes:
        records: id → the other columns of `records`.
        entries: id → the other columns of `entries`.
    """

    records: dict[int, _Row]
    entries: dict[int, _Row]


def read_rows(path: Path) -> RecoveredRows:
    """Read the rows of all undamaged pages. The file and its write-ahead log are not changed.

    Raises:
        OSError: the file cannot be read or copied.
    """
    with tempfile.TemporaryDirectory(prefix=".edgeapp-", dir=path.parent) as folder:
        copy = Path(folder) / "copy.db"
        for ending in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        # Pages that are in the log only are copied into the file.
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = copy.read_bytes()
    records: dict[int, _Row] = {}
    entries: dict[int, _Row] = {}
    for rowid, values in _Pages(content).rows():
        if row := _complete(values, _RECORD_TYPES, _FIRST_RECORD):
            records[rowid] = row[1:]
        elif row := _complete(values, _ENTRY_TYPES, _FIRST_ENTRY):
            entries[rowid] = row[1:]
    return RecoveredRows(records, entries)


def restore_rows(connection: sqlite3.Connection, rows: RecoveredRows) -> tuple[int, int]:
    """Add rows to a file of the current schema, in the caller's transaction.

    Entries whose record is lost get a new one without a title. It belongs to the owner of the
    other records if they have only one, else to "".

    Returns:
        The number of records and of entries.
    """
    owners = {record[0] for record in rows.records.values()}
    lost = (owners.pop() if len(owners) == 1 else "", *_LOST)
    used = {int(entry[0] or 0) for entry in rows.entries.values()}
    new_ids: dict[int, int | None] = {}
    for old in sorted(rows.records.keys() | used):
        new_ids[old] = connection.execute(
            "INSERT INTO records (owner, kind, title, plain, created, duration_s, language, "
            "target, model, sound, deleted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows.records.get(old, lost),
        ).lastrowid
    for _, (record, *values, _indexed, words, speaker) in sorted(rows.entries.items()):
        connection.execute(
            "INSERT INTO entries "
            "(record, translated, start, end, text, plain, indexed, words, speaker) "
            "VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)",
            (new_ids[int(record or 0)], *values, words, speaker),
        )
    return len(new_ids), len(rows.entries)


def _complete(values: _Row, types: tuple[type | tuple[type, ...], ...], first: int) -> _Row | None:
    """A row with all columns of its table, the missing ones None; None: another table's row.

    Args:
        values: of the row.
        types: of the columns.
        first: the number of columns in the first schema.
    """
    if not first <= len(values) <= len(types):
        return None
    row = values + (None,) * (len(types) - len(values))
    return row if all(map(isinstance, row, types)) else None


class _Pages:
    """The pages of a database file."""

    def __init__(self, content: bytes) -> None:
        self._content, self._size, reserved = content, _PAGE_BYTES, 0
        if content.startswith(MAGIC):
            size = int.from_bytes(content[16:18])
            self._size, reserved = 65536 if size == 1 else max(size, 512), content[20]
        self._usable = self._size - reserved

    def rows(self) -> Iterator[tuple[int, _Row]]:
        """(rowid, values) of every cell that can be decoded, in any table."""
        for start in range(0, len(self._content), self._size):
            page = self._content[start : start + self._size]
            offset = 0 if start else _HEADER_BYTES
            if len(page) < self._size or page[offset] != _LEAF:
                continue
            (count,) = struct.unpack_from(">H", page, offset + 3)
            for cell in range(count):
                # Whatever is wrong in a damaged page, the next cell may be sound.
                with suppress(IndexError, ValueError, struct.error, OverflowError):
                    (at,) = struct.unpack_from(">H", page, offset + 8 + 2 * cell)
                    yield self._cell(page, at)

    def _cell(self, page: bytes, at: int) -> tuple[int, _Row]:
        size, at = _varint(page, at)
        rowid, at = _varint(page, at)
        if size > len(self._content):
            raise ValueError("the payload is larger than the file")
        local = self._local_bytes(size)
        payload = page[at : at + local]
        if local < size:
            payload += self._overflow(
                int.from_bytes(page[at + local : at + local + 4]), size - local
            )
        if len(payload) != size:
            raise ValueError("the payload is incomplete")
        return _signed(rowid), _decode(payload)

    def _local_bytes(self, size: int) -> int:
        """The bytes of a payload that are in its leaf page."""
        usable = self._usable
        if size <= usable - 35:
            return size
        smallest = (usable - 12) * 32 // 255 - 23
        local = smallest + (size - smallest) % (usable - 4)
        return local if local <= usable - 35 else smallest

    def _overflow(self, number: int, size: int) -> bytes:
        """The rest of a payload, from a chain of pages."""
        parts = []
        while size > 0:
            start = (number - 1) * self._size
            if number < 1 or start >= len(self._content):
                raise ValueError("a page of the payload is missing")
            part = self._content[start + 4 : start + 4 + min(size, self._usable - 4)]
            parts.append(part)
            size -= len(part)
            number = int.from_bytes(self._content[start : start + 4])
        return b"".join(parts)


def _decode(payload: bytes) -> _Row:
    """The values of a row in SQLite's record format."""
    header_bytes, at = _varint(payload, 0)
    types = []
    while at < header_bytes:
        kind, at = _varint(payload, at)
        types.append(kind)
    if at != header_bytes:
        raise ValueError("the header is damaged")
    values: list[_Value] = []
    for kind in types:
        value, at = _decode_value(kind, payload, at)
        values.append(value)
    return tuple(values)


def _decode_value(kind: int, payload: bytes, at: int) -> tuple[_Value, int]:
    """A value of a serial type, and where the next one begins."""
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind in (10, 11):
        raise ValueError("a type that SQLite does not write")
    size = (1, 2, 3, 4, 6, 8, 8)[kind - 1] if kind < 8 else (kind - 12) // 2
    content, at = payload[at : at + size], at + size
    if len(content) != size:
        raise ValueError("the value is incomplete")
    if kind == 7:
        return float(struct.unpack(">d", content)[0]), at
    if kind < 7:
        return int.from_bytes(content, signed=True), at
    return (content.decode("utf-8", "replace") if kind % 2 else content), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where the next one begins."""
    value = 0
    for position in range(at, at + 8):
        byte = content[position]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, position + 1
    return value << 8 | content[at + 8], at + 9


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
