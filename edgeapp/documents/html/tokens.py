"""HTML → tokens, as browsers divide it, in one pass: no part of the text is looked at twice.

`html.parser` starts anew at each tag that is never closed, which takes seconds for 30 kB of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Token", "attributes", "tokens"]

# Elements whose content has no tags.
_PLAIN = frozenset(("script", "style", "textarea"))
_NAME = re.compile(r"[a-zA-Z][^\s/>\0]*")
_TAG_STOP = re.compile(r"[>=]")  # the end of a tag, or the beginning of an attribute's value
_UNQUOTED = re.compile(r"[^\s>]*")
_SPACE = re.compile(r"\s*")
_COMMENT_END = re.compile(r"--!?>")
_ATTRIBUTE = re.compile(
    r"""([^\s"'>/=]+)(?:\s*=\s*(?:"(?P<d>[^"]*)"|'(?P<s>[^']*)'|(?P<u>[^\s>]*)))?"""
)


@dataclass(frozen=True)
class Token:
    """A part of a document.

    Attributes:
        kind: Text with character references, a start tag, an end tag, or other markup: comments,
            declarations, the content of scripts, and tags that are never closed.
        written: As it stands in the document. All tokens add up to it.
        name: Of a tag, in lower case.
    """

    kind: Literal["text", "start", "end", "markup"]
    written: str
    name: str = ""


def tokens(html: str) -> Iterator[Token]:
    """Divide a document or a fragment; it need not be valid."""
    position, last_end, last_data_end = 0, html.rfind(">"), html.rfind("]]>")
    while position < len(html):
        start = html.find("<", position)
        if start < 0 or start > last_end:  # no tag can end any more
            comment = html.find("<!--", position)
            text = html[position:comment] if comment >= 0 else html[position:]
            if text:
                yield Token("text", text)
            if comment >= 0:
                yield Token("markup", html[comment:])
            return
        if start > position:
            yield Token("text", html[position:start])
        following = html[start + 1 : start + 2]
        kind: Literal["text", "start", "end", "markup"] = "markup"
        name = ""
        if _begins_name(following):
            kind, end = "start", _tag_end(html, start + 1)
            name = _name(html, start + 1)
        elif following == "/":
            end = html.find(">", start) + 1
            if _begins_name(html[start + 2 : start + 3]):
                kind, name = "end", _name(html, start + 2)
        elif html.startswith("<!--", start):
            closed = _COMMENT_END.search(html, start + 2)
            end = closed.end() if closed else -1
        elif following in ("!", "?"):
            data = html.startswith("<![CDATA[", start) and start < last_data_end
            end = html.find("]]>", start) + 3 if data else html.find(">", start) + 1
        else:
            kind, end = "text", start + 1
        if end < 0:  # a comment or a quote that is never closed: browsers show nothing of the rest
            yield Token("markup", html[start:])
            return
        written = html[start:end]
        yield Token(kind, written, name)
        position = end
        if kind == "start" and name in _PLAIN and not written.endswith("/>"):
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(html, end)
            position = closing.start() if closing else len(html)
            if position > end:
                yield Token("markup", html[end:position])


def attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a start tag, their names in lower case."""
    name = _NAME.match(tag, 1)
    found = _ATTRIBUTE.finditer(tag, name.end() if name else 1)
    return {each[1].lower(): each["d"] or each["s"] or each["u"] or "" for each in found}


def _begins_name(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _name(html: str, position: int) -> str:
    name = _NAME.match(html, position)
    return name[0].lower() if name else ""


def _tag_end(html: str, position: int) -> int:
    """Return where a start tag ends; -1 if a quote or the tag itself is never closed."""
    while (stop := _TAG_STOP.search(html, position)) is not None:
        if stop[0] == ">":
            return stop.end()
        space = _SPACE.match(html, stop.end())
        position = space.end() if space else stop.end()
        quote = html[position : position + 1]
        if quote in ('"', "'"):
            position = html.find(quote, position + 1) + 1
            if position == 0:
                return -1
        elif (value := _UNQUOTED.match(html, position)) is not None:
            position = value.end()
    return -1
