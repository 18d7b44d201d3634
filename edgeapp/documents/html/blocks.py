"""HTML → blocks of text with inline elements, and the markup between them.

A block is what a reader sees as one text: a paragraph, a heading, a cell. Markup is kept as it is
written, byte for byte. Scripts, styles and preformatted text are markup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser

__all__ = ["Block", "Inline", "parse"]

_INLINE = frozenset(
    """
a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q rp rt ruby s
samp small span strike strong sub sup time tt u var wbr
""".split()
)
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_RAW = frozenset("script style pre textarea svg math noscript template object".split())
_VERBATIM = frozenset("code kbd samp var tt".split())
_SPACE = re.compile(r"\s+")


@dataclass
class Inline:
    """An inline element of a block.

    Attributes:
        opening: Its start tag as written; "" for one that begins in an earlier block.
        closing: Its end tag as written; "" for one without, such as an image.
        start, end: The span of its text in the block's text.
        parent: Index of the element around it among the block's, or None.
        verbatim: Its text is not translated.
        name: Of the element.
    """

    opening: str
    start: int
    parent: int | None
    verbatim: bool
    name: str
    closing: str = ""
    end: int = -1


@dataclass
class Block:
    """A text with inline elements.

    Attributes:
        text: Without tags and character references; white space is collapsed.
        elements: In the order of their start tags.
        before, after: White space around it, as written.
    """

    text: str = ""
    elements: list[Inline] = field(default_factory=list)
    before: str = ""
    after: str = ""


def parse(html: str) -> list[Block | str]:
    """Divide HTML into blocks and the markup between them.

    Args:
        html: A document or a fragment; it need not be valid.

    Returns:
        Blocks that have text, and strings, which are markup. In order.
    """
    parser = _Parser(html)
    parser.feed(html)
    parser.close()
    return parser.finish()


class _Parser(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=False)
        self._parts: list[Block | str] = []
        self._pieces: list[str] = []  # of the open block, as written
        self._block = Block()
        self._open: list[int] = []  # indices of the block's open elements
        self._raw: list[str] = []  # names of open elements whose content is markup

    def finish(self) -> list[Block | str]:
        self._flush()
        return self._parts

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        written = self.get_starttag_text() or ""
        if self._raw or tag in _RAW:
            if tag in _RAW and not written.endswith("/>"):
                self._raw.append(tag)
            self._markup(written)
        elif tag not in _INLINE:
            self._markup(written)
        else:
            kept = dict(attrs)
            classes = (kept.get("class") or "").split()
            verbatim = tag in _VERBATIM or kept.get("translate") == "no" or "notranslate" in classes
            self._pieces.append(written)
            parent = self._open[-1] if self._open else None
            element = Inline(written, len(self._block.text), parent, verbatim, tag)
            self._block.elements.append(element)
            if tag in _VOID:
                element.end = element.start
            else:
                self._open.append(len(self._block.elements) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self._open and tag not in _VOID and tag in _INLINE and not self._raw:
            self._close(self._open[-1], "")

    def handle_endtag(self, tag: str) -> None:
        written = self._end_tag_text(tag)
        if self._raw:
            if self._raw[-1] == tag:
                self._raw.pop()
            self._markup(written)
            return
        elements = self._block.elements
        index = next((i for i in reversed(self._open) if elements[i].name == tag), None)
        if tag not in _INLINE or index is None:
            self._markup(written)  # of a block, or of an element that began before this block
            return
        self._pieces.append(written)
        self._close(index, written)

    def handle_data(self, data: str) -> None:
        if self._raw:
            self._markup(data)
        else:
            self._text(data, data)

    def handle_entityref(self, name: str) -> None:
        self._reference(f"&{name}")

    def handle_charref(self, name: str) -> None:
        self._reference(f"&#{name}")

    def handle_comment(self, data: str) -> None:
        self._markup(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._markup(f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self._markup(f"<![{data}]>")

    def handle_pi(self, data: str) -> None:
        self._markup(f"<?{data}>")

    def _end_tag_text(self, tag: str) -> str:
        """The end tag as written; its offset in the input is known, its end is the next >."""
        position = self._offset()
        written = self.rawdata[position : self.rawdata.find(">", position) + 1]
        return written if written.startswith("</") else f"</{tag}>"

    def _offset(self) -> int:
        line, column = self.getpos()
        if line == 1:
            return column
        if not hasattr(self, "_starts"):
            self._starts = [0, *(m.end() for m in re.finditer("\n", self.rawdata))]
        return self._starts[line - 1] + column

    def _reference(self, written: str) -> None:
        position = self._offset() + len(written)
        if self.rawdata[position : position + 1] == ";":
            written += ";"
        if self._raw:
            self._markup(written)
        else:
            self._text(written, unescape(written))

    def _text(self, written: str, text: str) -> None:
        block = self._block
        self._pieces.append(written)
        if not block.text.strip() and not text.strip():
            if block.elements:
                return
            block.before += written
            return
        if not block.text and not block.elements:
            stripped = text.lstrip()
            if written == text:
                block.before += text[: len(text) - len(stripped)]
            text = stripped
        collapsed = _SPACE.sub(" ", text)
        if block.text.endswith(" ") or not block.text:
            collapsed = collapsed.lstrip(" ")
        block.text += collapsed

    def _close(self, index: int, written: str) -> None:
        """Close an element, and those inside it that are still open."""
        while self._open and self._open[-1] >= index:
            element = self._block.elements[self._open.pop()]
            element.end = len(self._block.text)
        self._block.elements[index].closing = written

    def _markup(self, written: str) -> None:
        self._flush()
        if self._parts and isinstance(self._parts[-1], str):
            self._parts[-1] += written
        else:
            self._parts.append(written)

    def _flush(self) -> None:
        """End the block. One without words is markup."""
        block, pieces = self._block, self._pieces
        self._block, self._pieces = Block(), []
        while self._open:
            block.elements[self._open.pop()].end = len(block.text)
        if not any(map(str.isalnum, block.text)):
            written = "".join(pieces)
            if self._parts and isinstance(self._parts[-1], str):
                self._parts[-1] += written
            elif written:
                self._parts.append(written)
            return
        stripped = block.text.rstrip()
        written = "".join(pieces)
        block.after = written[len(written.rstrip()) :]
        block.text = stripped
        for element in block.elements:
            element.start = min(element.start, len(stripped))
            element.end = min(element.end, len(stripped))
        self._parts.append(block)
