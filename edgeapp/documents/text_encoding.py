"""The encoding of text files: one reader for texts, subtitles, HTML and lists.

A byte order mark decides, then the encoding that a person names, then what markup declares, then
the bytes: UTF-8, or an older encoding if its letters or the language tell it. A byte that cannot be
decoded, and an encoding that cannot be told, are errors with their line.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from edgeapp.console import print_note
from edgeapp.documents.legacy_encoding import SAMPLE_BYTES, guess_encoding
from pipelines import InputError, OptionError

__all__ = [
    "NO_HINT",
    "UTF_8",
    "EncodingHint",
    "LineDecoder",
    "TextEncoding",
    "decode_text",
    "file_encoding",
    "named_encoding",
    "read_bytes",
    "stated_encoding",
    "text_of_head",
]

_MARKS = (  # that of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_JAPANESE = (b"\x1b$B", b"\x1b$@")  # begin the characters of ISO-2022-JP, which has no high bytes
_CONTROLS = bytes([*range(9), *range(14, 27)])
_MOST_PAGES = 5  # of 256 characters each, in the first bytes of a text in UTF-16 without a mark
_CHUNK_BYTES = 1 << 20
_DECLARED_WITHIN = 1024  # bytes, by the HTML standard
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_DECLARATION = re.compile(
    rb"""\A\s*<\?xml[^>]*\bencoding\s*=\s*["']([\w.:-]+)"""
    rb"""|<meta\b[^>]*\bcharset\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE,
)
# What browsers understand by a name, where Python understands less.
# Source: https://encoding.spec.whatwg.org/#names-and-labels
_AS_BROWSERS = {
    **dict.fromkeys(("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1", "l1"), "cp1252"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
    **dict.fromkeys(("iso-8859-11", "tis-620", "windows-874"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk", "x-gbk", "gb_2312-80"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "ksc5601", "windows-949"), "cp949"),
    "big5": "big5hkscs",
    "iso-8859-8-i": "iso8859-8",
    "x-mac-cyrillic": "mac_cyrillic",
    "x-mac-roman": "mac_roman",
}


# What a declaration can be read in: Python has codecs such as hex, UTF-7 and unicode_escape, too.
_ASCII = rb"\x41\u0041" + bytes(each for each in range(0x20, 0x7F) if each != 0x5C)


@dataclass(frozen=True)
class TextEncoding:
    """How the text of a file is encoded.

    Attributes:
        codec: Python's name of the encoding.
        mark: The byte order mark at the beginning, or no bytes.
    """

    codec: str
    mark: bytes = b""

    @property
    def wide(self) -> bool:
        """Whether a character has two bytes at least."""
        return self.codec.startswith(("utf-16", "utf-32"))

    def encode(self, markup: str) -> bytes:
        """Return HTML or XML in this encoding; other characters become character references."""
        return self.mark + markup.encode(self.codec, "xmlcharrefreplace")


UTF_8 = TextEncoding("utf-8")


@dataclass(frozen=True)
class EncodingHint:
    """What is known about the encoding of a text before it is read.

    Attributes:
        encoding: The encoding that a person named, or None.
        language: Code of the language of the text, or None.
        has_option: The command has the option --encoding, which messages then name.
    """

    encoding: TextEncoding | None = None
    language: str | None = None
    has_option: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """What the text depends on, for the key of a job: empty if no encoding was named."""
        return {} if self.encoding is None else {"encoding": self.encoding.codec}


NO_HINT = EncodingHint()


def named_encoding(name: str) -> TextEncoding:
    """Return the encoding of a name, such as koi8-r or windows-1251.

    Raises:
        OptionError: There is no such encoding of texts.
    """
    encoding = _known(name)
    if encoding is None:
        raise OptionError(
            f"--encoding {name}: there is no such encoding; names are such as utf-8, windows-1251, "
            "koi8-r, shift_jis, gb18030, big5"
        )
    return encoding


def _known(label: str) -> TextEncoding | None:
    """Return the encoding of a name as browsers understand it, or None."""
    label = label.strip().lower()
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(_AS_BROWSERS.get(label, label)).name
        encoding = TextEncoding(codec)
        if encoding.wide or _ASCII.decode(codec) == _ASCII.decode():
            return encoding
    return None


def stated_encoding(head: bytes) -> TextEncoding | None:
    """Return the encoding that the first bytes of a file say it has, or None.

    They say it by a byte order mark, by every second byte being a control character, as in UTF-16
    without a mark, or by the escape sequences of ISO-2022-JP.
    """
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return TextEncoding(codec, mark)
    even, odd = head[0::2], head[1::2]
    orders = [(odd, even, "utf-16-le"), (even, odd, "utf-16-be")]
    orders.sort(key=lambda order: -_controls(order[0]))
    for upper, lower, codec in orders:
        # The letters of a script share their upper byte, which is 0 in ASCII, 4 in Cyrillic, 14 in
        # Thai. From India's scripts it is a tab or an end of line, and the lower ones are controls.
        found = _controls(upper) or _controls(lower)
        alphabetic = 2 * found > len(upper) or len(set(upper)) <= _MOST_PAGES
        # Less than four characters say too little: a zero byte may be one of UTF-8.
        if found >= 4 and alphabetic and lower.count(0) * 20 < found:
            return TextEncoding(codec)
    if any(escape in head for escape in _JAPANESE):
        return TextEncoding("iso2022_jp")
    return None


def _controls(characters: bytes) -> int:
    """Return the number of control characters that are not in texts."""
    return len(characters) - len(characters.translate(None, _CONTROLS))


def _declared_encoding(head: bytes, name: str) -> TextEncoding | None:
    """Return the encoding that HTML or XML declares in its first bytes, or None.

    Raises:
        InputError: There is no such encoding.
    """
    found = _DECLARATION.search(_COMMENT.sub(b"", head[:_DECLARED_WITHIN]))
    if found is None:
        return None
    label = (found[1] or found[2]).decode("ascii").lower()
    if label.startswith("utf-16"):
        return UTF_8  # the declaration itself could not be read otherwise
    if (encoding := _known(label)) is not None:
        return encoding
    raise InputError(f"{name} declares the encoding {label[:40]}, which is not known")


def file_encoding(
    file: BinaryIO, name: str, *, markup: bool = False, hint: EncodingHint = NO_HINT
) -> TextEncoding:
    """Return the encoding of a whole file, every byte of which has been decoded once.

    Args:
        file: A file that can be read again; it is left at its beginning.
        name: Name for messages.
        markup: Look for a declaration, as HTML and XML have it.
        hint: What is known about its encoding.

    Raises:
        InputError: Some bytes cannot be decoded; the first line that has one is named.
    """
    head = file.read(_DECLARED_WITHIN)
    stated = stated_encoding(head) or hint.encoding
    stated = stated or (_declared_encoding(head, name) if markup else None)
    encoding = stated or UTF_8
    number = _undecodable_line(file, encoding)
    if number is not None and stated is None and not _mostly_utf8(file):
        encoding = _legacy_encoding(_sample(file), name, number, hint)
        number = _undecodable_line(file, encoding)
        if number is None:
            _note_legacy(name, encoding.codec, hint.has_option)
    if number is not None:
        raise _not_decoded(name, number, encoding.codec, hint.has_option)
    file.seek(0)
    return encoding


def _sample(file: BinaryIO) -> bytes:
    """Return lines with other bytes than ASCII, from which the encoding of a file is told."""
    lines: list[bytes] = []
    size = 0
    for line in _lines(file):
        if not line.isascii():
            lines.append(line)
            size += len(line)
        if size >= SAMPLE_BYTES:
            break
    return b"".join(lines)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file from its beginning."""
    file.seek(0)
    buffered = io.BufferedReader(cast(io.RawIOBase, file))  # else each byte is a call
    try:
        yield from buffered
    finally:
        buffered.detach()


def _legacy_encoding(sample: bytes, name: str, number: int, hint: EncodingHint) -> TextEncoding:
    """Return the encoding of a text that is not UTF-8.

    Args:
        sample: Lines of it.
        name: Name for messages.
        number: Number of the first line that is not UTF-8.
        hint: What is known about its encoding.

    Raises:
        InputError: It cannot be told.
    """
    codec = guess_encoding(sample, hint.language)
    if codec is None:
        raise _not_decoded(name, number, UTF_8.codec, hint.has_option)
    return TextEncoding(codec)


def _undecodable_line(file: BinaryIO, encoding: TextEncoding) -> int | None:
    """Return the number of the first line of a file that cannot be decoded, or None."""
    file.seek(len(encoding.mark))
    decoder = codecs.getincrementaldecoder(encoding.codec)()
    number = 1
    try:
        while chunk := file.read(_CHUNK_BYTES):
            number += decoder.decode(chunk).count("\n")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode(encoding.codec, "ignore")
        return number + before.count("\n")
    return None


def _mostly_utf8(file: BinaryIO) -> bool:
    """Return whether the lines with other characters than ASCII are UTF-8, but for some.

    Such a file is damaged, or two were joined. It has no one encoding.
    """
    votes = 0
    for raw in _lines(file):
        if not raw.isascii():
            try:
                raw.decode()
                votes += 1
            except UnicodeDecodeError:
                votes -= 1
    return votes >= 0


class LineDecoder:
    """Decodes the lines of a text on the command line, whose encoding may show only when other
    lines come.

    Args:
        name: Name for messages.
        encoding: The encoding, or None if it is not known: UTF-8, unless the first line with other
            characters than ASCII is not.
        language: Code of the language of the text, or None.
    """

    def __init__(
        self, name: str, encoding: TextEncoding | None = None, language: str | None = None
    ) -> None:
        self._name = name
        self._codec = None if encoding is None else encoding.codec
        self._hint = EncodingHint(language=language, has_option=True)

    def decode(self, raw: bytes, number: int, sample: bytes = b"") -> str:
        """Return a line as text.

        Args:
            raw: The line.
            number: Its number, for errors.
            sample: Lines after it, as far as they are known.

        Raises:
            InputError: It cannot be decoded.
        """
        try:
            text = raw.decode(self._codec or "utf-8")
        except UnicodeDecodeError:
            if self._codec is not None:
                raise _not_decoded(self._name, number, self._codec, True) from None
            sample = b"\n".join([raw, sample])
            self._codec = _legacy_encoding(sample, self._name, number, self._hint).codec
            text = self.decode(raw, number)
            _note_legacy(self._name, self._codec, True)
        if self._codec is None and not raw.isascii():
            self._codec = "utf-8"
        return text


def decode_text(
    content: bytes, name: str, *, markup: bool = False, hint: EncodingHint = NO_HINT
) -> tuple[str, TextEncoding]:
    """Return the text of a file without its byte order mark, and its encoding.

    Args:
        content: The file.
        name: Name for messages.
        markup: Look for a declaration, as HTML and XML have it.
        hint: What is known about its encoding.

    Raises:
        InputError: Some bytes cannot be decoded; the first line that has one is named.
    """
    encoding = file_encoding(io.BytesIO(content), name, markup=markup, hint=hint)
    return content[len(encoding.mark) :].decode(encoding.codec), encoding


def text_of_head(head: bytes, hint: EncodingHint = NO_HINT) -> str:
    """Return the text of the first bytes of a file, without a character that is cut at the end.

    Characters of an encoding that cannot be told are left out.
    """
    encoding = stated_encoding(head) or hint.encoding or UTF_8
    try:
        return codecs.getincrementaldecoder(encoding.codec)().decode(head[len(encoding.mark) :])
    except UnicodeDecodeError:
        lines = head[: head.rfind(b"\n") + 1] or head
        return head.decode(guess_encoding(lines, hint.language) or "ascii", errors="ignore")


def read_bytes(path: Path, max_bytes: int, hint: str) -> bytes:
    """Return the content of a file.

    Args:
        path: The file.
        max_bytes: Its size at most.
        hint: What to say of a larger one.

    Raises:
        InputError: It cannot be read, or is larger.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > max_bytes:
        raise InputError(f"{path} has more than {max_bytes >> 20} MB: {hint}")
    return content


def _note_legacy(name: str, codec: str, has_option: bool) -> None:
    option = " (--encoding names another)" if has_option else ""
    print_note(f"{name}: this is not UTF-8; it is read as {_shown(codec)}{option}")


def _shown(codec: str) -> str:
    """Return the usual name of an encoding."""
    if codec.startswith("cp125"):
        return codec.replace("cp", "Windows-")
    usual = {"cp932": "Shift_JIS", "cp949": "EUC-KR", "cp874": "Windows-874", "big5hkscs": "Big5"}
    return usual.get(codec, codec.upper().replace("_", "-"))


def _not_decoded(name: str, number: int, codec: str, has_option: bool) -> InputError:
    option = "name the encoding (--encoding windows-1251), or " if has_option else ""
    return InputError(
        f"{name}, line {number}: some bytes are not {_shown(codec)} text; {option}"
        "convert the file to UTF-8"
    )
