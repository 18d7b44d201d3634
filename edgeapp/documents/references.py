"""Character references of HTML and WebVTT, such as `&amp;`."""

from __future__ import annotations

import re
from html import unescape

__all__ = ["unescaped"]

# No character has so many digits, and int() refuses some thousand of them.
_TOO_LONG = re.compile(r"&#[xX]?[0-9a-fA-F]{12,};?")


def unescaped(text: str) -> str:
    """Return a text with characters in place of its references."""
    return unescape(_TOO_LONG.sub("\ufffd", text))
