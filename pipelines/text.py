"""Text: how tokens become it, and scripts that are written without spaces between words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

REPLACEMENT = "\ufffd"
"""Stands for bytes that are not a character, or not a complete one yet."""

# Ranges of characters for regular expressions.
WIDE = (
    "\u3001-\u3011\u3014-\u301f\u3021-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe61\ufe63\ufe68\ufe6a\ufe6b"
    "\uff01-\uff03\uff05-\uff0a\uff0c-\uff1b\uff1f-\uff3d\uff3f\uff41-\uff5b\uff5d\uff5f\uff60"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
"""Characters of Chinese and Japanese, with punctuation and full-width letters. Signs (￥ ＋ 〒 ㈱)
and half-width kana are not among them, nor the space U+3000."""
SOUTHEAST_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai and Lao, Myanmar, Khmer."""
UNSPACED = f"{WIDE}{SOUTHEAST_ASIAN}\u0f00-\u0fff\uff61-\uff9f"
"""All scripts without spaces between words: these, Tibetan, and half-width kana."""


def _byte_letters() -> tuple[str, ...]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(spare)) for byte in range(256))


BYTE_LETTERS = _byte_letters()
"""GPT-2's letter for each byte (bytes_to_unicode in its encoder.py): itself where it is printable,
else the next one from 256 on."""


class StreamingDetokenizer:
    """Token ids one by one → text as soon as it is final.

    The strings that `push` and `finish` return add up to `decode` of all ids. An incomplete
    character is held back, and so is a space that may turn out to be the last.

    Args:
        decode: Text of ids.
        piecewise: `decode` joins the bytes of single tokens, so that each is decoded only until
            its last character is complete.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], piecewise: bool = False) -> None:
        self._decode, self._piecewise = decode, piecewise
        self._ids: list[int] = []
        self._sent = ""

    def push(self, ids: Iterable[int]) -> str:
        """Return the text that became final; often a word, sometimes empty."""
        self._ids.extend(ids)
        decoded = self._decode(self._ids)
        new = self._unsent(decoded.rstrip(REPLACEMENT).rstrip())
        if self._piecewise and self._sent == decoded:
            self._ids, self._sent = [], ""
        return new

    def finish(self) -> str:
        """Return the text that was held back. Further ids begin another text."""
        rest = self._unsent(self._decode(self._ids))
        self._ids, self._sent = [], ""
        return rest

    def _unsent(self, text: str) -> str:
        if not text.startswith(self._sent):
            return ""
        new, self._sent = text[len(self._sent) :], text
        return new
