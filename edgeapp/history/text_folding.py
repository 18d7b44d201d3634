"""Text as it is stored, and as it is compared when somebody searches."""

from __future__ import annotations

import unicodedata

__all__ = ["fold_text", "strip_surrogates"]

# Marks of a lower combining class are letters' own: kana's voicing marks, Indic nukta and virama.
_FIRST_DIACRITIC = 10


def fold_text(text: str) -> str:
    """Without case and diacritics: "Café", "CAFE" and "ｃａｆé" are one."""
    parts = unicodedata.normalize("NFKD", text.replace("\0", " "))
    kept = "".join(c for c in parts if unicodedata.combining(c) < _FIRST_DIACRITIC)
    # Folding "ŉ" and the like takes characters apart once more.
    return unicodedata.normalize("NFKD", kept.casefold())


def strip_surrogates(text: str) -> str:
    """What UTF-8 can hold: half a surrogate pair, as in odd file names, becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
