"""Units of text: exactly one per line."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgeapp.batch.texts.inputs import TextUnit, read_units
from edgeapp.documents.text_encoding import stated_encoding
from pipelines import InputError


def units_of(raw: bytes, *, document: bool = False) -> list[TextUnit]:
    return [u for u in read_units(io.BytesIO(raw), document=document) if u is not None]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_units_are_the_text(text: str) -> None:
    raw = text.encode()
    encoding = stated_encoding(raw)
    assume(encoding is None or encoding.mark)  # zeros as every second byte are those of UTF-16
    units = units_of(raw)
    assert "".join(u.text + u.ending for u in units) == text.removeprefix("\ufeff")
    assert len(units) == len(text.removeprefix("\ufeff").split("\n")) - (
        text.removeprefix("\ufeff").endswith("\n") or not text.removeprefix("\ufeff")
    )
    assert [u.number for u in units] == list(range(1, len(units) + 1))


@given(st.binary())
def test_any_bytes_give_as_many_lines_as_line_feeds_or_an_error(raw: bytes) -> None:
    with suppress(InputError):
        units = units_of(raw)
        if stated_encoding(raw) is None:
            assert sum(u.ending != "" for u in units) == raw.count(b"\n")
            assert not any("\ufffd" in u.text for u in units) or "\ufffd".encode() in raw


def test_endings_are_kept_and_a_byte_order_mark_is_removed() -> None:
    units = units_of(b"\xef\xbb\xbfone\r\ntwo\n\nlast")
    assert [(u.text, u.ending) for u in units] == [
        ("one", "\r\n"), ("two", "\n"), ("", "\n"), ("last", ""),
    ]  # fmt: skip


def test_lines_of_a_pipe_that_are_not_utf8_are_windows_1252() -> None:
    units = units_of("fine\nGrüße – „ja“\nKöln\n".encode("cp1252"))
    assert [u.text for u in units] == ["fine", "Grüße – „ja“", "Köln"]


def test_lines_of_a_pipe_in_another_encoding_are_told_by_those_after_them() -> None:
    text = "Да.\n\nДети приходят каждую неделю в школу и читают книги.\n"
    units = units_of(text.encode("koi8-r"))
    assert "".join(u.text + u.ending for u in units) == text


def test_a_line_that_is_not_like_the_others_is_an_error_with_its_number() -> None:
    with pytest.raises(InputError, match=r"the text, line 3: some bytes are not UTF-8 text"):
        units_of("Grüße\n\n".encode() + b"K\xf6ln\n")


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_wide_characters_and_marks(codec: str) -> None:
    text = "one\r\nGrüße \u0a0a\ntwo \U0001f600\n\nlast"
    raw = text.encode(codec)
    units = units_of(raw)
    assert [u.text for u in units] == ["one", "Grüße \u0a0a", "two \U0001f600", "", "last"]
    assert "".join(u.text + u.ending for u in units) == text
    stated = stated_encoding(raw)
    assert sum(u.size for u in units) == len(raw) - len(stated.mark if stated else b"")


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
