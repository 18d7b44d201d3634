"""Units of text: exactly one per line."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeapp.batch.texts.inputs import TextUnit, read_units


def units_of(raw: bytes, *, document: bool = False) -> list[TextUnit]:
    return [u for u in read_units(io.BytesIO(raw), document=document) if u is not None]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_units_are_the_text(text: str) -> None:
    raw = text.encode()
    units = units_of(raw)
    assert "".join(u.text + u.ending for u in units) == text.removeprefix("\ufeff")
    assert len(units) == len(text.removeprefix("\ufeff").split("\n")) - (
        text.removeprefix("\ufeff").endswith("\n") or not text.removeprefix("\ufeff")
    )
    assert [u.number for u in units] == list(range(1, len(units) + 1))


@given(st.binary())
def test_any_bytes_give_as_many_lines_as_line_feeds(raw: bytes) -> None:
    units = units_of(raw)
    assert sum(u.ending != "" for u in units) == raw.count(b"\n")
    assert all(u.damaged == ("\ufffd" in u.text) or "\ufffd".encode() in raw for u in units)


def test_endings_are_kept_and_a_byte_order_mark_is_removed() -> None:
    units = units_of(b"\xef\xbb\xbfone\r\ntwo\n\nlast")
    assert [(u.text, u.ending) for u in units] == [
        ("one", "\r\n"), ("two", "\n"), ("", "\n"), ("last", ""),
    ]  # fmt: skip


def test_damaged_bytes_are_replaced_and_named() -> None:
    good, bad = units_of(b"fine\nb\xffd\n")
    assert not good.damaged
    assert bad.damaged
    assert (bad.number, bad.text) == (2, "b\ufffdd")


def test_paragraphs_join_wrapped_lines() -> None:
    units = units_of(b"a line\r\nthat goes on\r\n\r\n\r\nanother\n", document=True)
    assert [(u.text, u.number) for u in units] == [
        ("a line that goes on", 1), ("", 3), ("", 4), ("another", 5),
    ]  # fmt: skip
    assert sum(u.size for u in units) == len(b"a line\r\nthat goes on\r\n\r\n\r\nanother\n")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_a_pipe_yields_none_before_it_blocks(pipe: tuple[int, int]) -> None:
    read, write = pipe
    with open(read, "rb", buffering=0, closefd=False) as file:
        units = read_units(file)
        os.write(write, b"one\ntwo\nhal")
        texts = [next(units), next(units)]
        assert [u.text for u in texts if u] == ["one", "two"]
        assert next(units) is None, "the reader must not block on the half line"
        os.write(write, b"f\n")
        half = next(units)
        assert half is not None
        assert half.text == "half"
