"""Text for storage (valid UTF-8) and for search (without case and diacritics)."""

from __future__ import annotations

import unicodedata

__all__ = ["fold_text", "strip_surrogates"]

# Marks of lower combining classes belong to letters: kana voicing marks, Indic nukta and virama.
_FIRST_DIACRITIC = 10


def fold_text(text: str) -> str:
    """Text without case and diacritics: "Café", "CAFE" and "ｃａｆé" become equal."""
    parts = unicodedata.normalize("NFKD", text.replace("\0", " "))
    letters = "".join(c for c in parts if unicodedata.combining(c) < _FIRST_DIACRITIC)
    # Case folding decomposes characters such as "ŉ", so that it is normalised again.
    return unicodedata.normalize("NFKD", letters.casefold())


def strip_surrogates(text: str) -> str:
    """Replace unpaired surrogates, as in undecodable file names, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
