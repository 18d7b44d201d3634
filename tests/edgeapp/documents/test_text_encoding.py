"""The encoding of files: told by marks, declarations and bytes; never a lost character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeapp.documents.text_encoding import decode_text, text_of_head
from pipelines import InputError

_TEXT = "Die Tür ist grün – „ja“.\nIch mag Brot für 5 €.\n"


@pytest.mark.parametrize(
    "codec", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_a_text_is_read_in_any_of_its_encodings(codec: str) -> None:
    text, encoding = decode_text(_TEXT.encode(codec), "t.txt")
    assert text == _TEXT
    assert encoding.encode(text) == _TEXT.encode(codec)


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        ('<meta charset="ISO-8859-1">', "cp1252"),
        ("<META http-equiv=Content-Type content='text/html; charset=windows-1251'>", "cp1251"),
        ('<?xml version="1.0" encoding="ISO-8859-2"?>', "iso8859-2"),
        ("<!-- <meta charset=utf-8> --><meta charset = Shift_JIS >", "cp932"),
        ("<meta charset=gb2312>", "gb18030"),
        ("<meta charset=windows-874>", "cp874"),
        ("<meta charset=iso-8859-8-i>", "iso8859-8"),
        ("<meta charset=utf-16>", "utf-8"),
    ],
)
def test_markup_declares_its_encoding(head: str, codec: str) -> None:
    words = {
        "cp1251": "Привет",
        "cp932": "日本",
        "gb18030": "中文",
        "cp874": "ไทย",
        "iso8859-8": "שלום",
    }.get(codec, "Köln")
    text, encoding = decode_text(f"{head}<p>{words}".encode(codec), "t.html", markup=True)
    assert (text, encoding.codec) == (f"{head}<p>{words}", codec)
    assert encoding.encode("„ж€“").decode("ascii", "replace").count("&#") >= (codec == "iso8859-2")


@pytest.mark.parametrize("label", ["klingon", "hex", "rot13", "undefined", "unicode_escape"])
def test_an_unknown_declaration_is_named(label: str) -> None:
    with pytest.raises(InputError, match=rf"t\.html declares the encoding {label}, "):
        decode_text(f"<meta charset={label}>\\x41".encode(), "t.html", markup=True)


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (_TEXT.encode() + b"ok\nK\xf6ln\n", 4),  # UTF-8, but for one line
        (b"K\xf6ln\nb\x81\n", 2),  # undefined in Windows-1252
        (b"\xff\xfe" + "ab\nc\n".encode("utf-16-le") + b"\x00\xd8a\0", 3),
        (b"\xef\xbb\xbfab\nK\xf6ln\n", 2),
        (b"x" * (1 << 20) + b"\n" + b"\xc3\xa9\n" * 9 + b"\xff\n", 11),
    ],
)
def test_what_cannot_be_decoded_is_an_error_with_its_line(content: bytes, number: int) -> None:
    with pytest.raises(InputError, match=rf"^t\.txt, line {number}: some bytes are not "):
        decode_text(content, "t.txt")


@given(st.text(), st.integers(0, 40))
def test_the_beginning_of_a_text_may_end_within_a_character(text: str, size: int) -> None:
    head = text.encode("utf-8", "ignore")[:size]
    if b"\0" not in head:
        assert text.startswith(text_of_head(head)) or head.startswith(b"\xef\xbb\xbf")
