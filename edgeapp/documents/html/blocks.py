"""HTML → blocks of text with inline elements, and the markup between them.

A block is what a reader sees as one text: a paragraph, a heading, a cell. Markup is kept as it is
written, byte for byte. Scripts, styles and preformatted text are markup.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeapp.documents.html.tokens import Token, attributes, tokens
from edgeapp.documents.references import unescaped

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
# Elements whose end tag may be missing: they end where one of these begins, or what is around them.
_CELLS, _TERMS = ("td", "th", "tr", "tbody", "tfoot"), ("dt", "dd")
_ENDED_BY = {
    "p": tuple(
        "address article aside blockquote details div dl fieldset figcaption figure footer form "
        "h1 h2 h3 h4 h5 h6 header hgroup hr main menu nav ol p pre search section table ul".split()
    ),
    "li": ("li",),
    **dict.fromkeys(_TERMS, _TERMS),
    **dict.fromkeys(("td", "th"), _CELLS),
    "tr": _CELLS[2:],
    "option": ("option", "optgroup"),
}
_SPACE = re.compile(r"\s+")
_REFERENCE = re.compile(r"(&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);?)")
# Inline elements of a block. Where there are more, another block begins: the time to place
# them in the translation grows with their square.
_MAX_ELEMENTS = 100


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
    builder = _Builder()
    for token in tokens(html):
        builder.add(token)
    return builder.finish()


def _is_kept(values: Mapping[str, str]) -> bool:
    """Whether the attributes of an element say that its text is not to be translated."""
    says_no = values.get("translate", "").strip().lower() == "no"
    return says_no or "notranslate" in values.get("class", "").split()


@dataclass
class _Translated:
    """An element with `translate="yes"` inside others that are not to be translated.

    Attributes:
        around: Names of the open elements around it whose content is markup.
        around_counts: How often each name is in `around`.
        open: Names of the elements that are open in it, itself first.
        counts: How often each name is in `open`.
    """

    around: list[str]
    around_counts: Counter[str]
    open: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def ends(self, name: str) -> bool:
        """Take note of an end tag; return whether the element around ends, whose tag it is."""
        if not self.counts[name]:
            outer = name != "p" and name not in _INLINE
            outer = outer and all(each in _ENDED_BY for each in self.around)
            return outer or self.around_counts[name] > 0
        while (ended := self.open.pop()) != name:
            self.counts[ended] -= 1
        self.counts[name] -= 1
        return False


class _Builder:
    """Collects tokens into blocks. Strings are joined at their end, so that each is copied once."""

    def __init__(self) -> None:
        self._parts: list[Block | list[str]] = []
        self._pieces: list[str] = []  # of the open block, as written
        self._before: list[str] = []  # white space before the open block
        self._texts: list[str] = []  # of the open block
        self._length = 0  # of _texts
        self._elements: list[Inline] = []  # of the open block
        self._open: list[int] = []  # indices of the block's open elements
        self._open_by_name: dict[str, list[int]] = {}
        # Names of the open elements from the first whose content is markup: blocks other than "p".
        self._raw: list[str] = []
        self._raw_names = Counter[str]()
        self._translated: list[_Translated] = []

    def add(self, token: Token) -> None:
        """Append a token."""
        if token.kind == "start":
            self._start_tag(token)
        elif token.kind == "end":
            self._end_tag(token)
        elif token.kind == "markup" or self._raw:
            self._markup(token.written)
        else:
            for index, piece in enumerate(_REFERENCE.split(token.written)):
                if piece:
                    self._text(piece, unescaped(piece) if index % 2 else piece)

    def finish(self) -> list[Block | str]:
        """Return the blocks, and the markup between them."""
        self._flush()
        return [part if isinstance(part, Block) else "".join(part) for part in self._parts]

    def _start_tag(self, token: Token) -> None:
        name, written = token.name, token.written
        closed = written.endswith("/>")
        self._begin_translated(token, name in _VOID or closed)
        while self._raw and name in _ENDED_BY.get(self._raw[-1], ()):
            self._end_raw()
        kept = not self._raw and _is_kept(attributes(written))
        if self._raw or name in _RAW or name not in _INLINE:
            inside = bool(self._raw) and name != "p" and name not in _INLINE
            if (name in _RAW or inside or kept) and name not in _VOID and not closed:
                self._raw.append(name)
                self._raw_names[name] += 1
            self._markup(written)
            return
        if len(self._elements) >= _MAX_ELEMENTS:
            self._flush()
        verbatim = name in _VERBATIM or kept
        self._pieces.append(written)
        parent = self._open[-1] if self._open else None
        element = Inline(written, self._length, parent, verbatim, name)
        self._elements.append(element)
        if closed or name in _VOID:
            element.end = element.start
        else:
            index = len(self._elements) - 1
            self._open.append(index)
            self._open_by_name.setdefault(name, []).append(index)

    def _begin_translated(self, token: Token, is_empty: bool) -> None:
        """Enter an element with `translate="yes"`, or leave one whose end tag is missing."""
        name = token.name
        if self._translated:
            inner = self._translated[-1]
            if name in _ENDED_BY.get(inner.open[-1], ()):
                inner.ends(inner.open[-1])
                self._leave_translated()
        if is_empty:
            return
        if self._raw and not any(self._raw_names[each] for each in _RAW):
            says = attributes(token.written).get("translate")
            if says is not None and says.strip().lower() in ("", "yes"):
                self._translated.append(_Translated(self._raw, self._raw_names))
                self._raw, self._raw_names = [], Counter()
        if self._translated:
            self._translated[-1].open.append(name)
            self._translated[-1].counts[name] += 1

    def _leave_translated(self) -> None:
        """Leave the element with `translate="yes"` if nothing is open in it."""
        if self._translated and not self._translated[-1].open:
            self._flush()
            left = self._translated.pop()
            self._raw, self._raw_names = left.around, left.around_counts

    def _end_tag(self, token: Token) -> None:
        while self._translated and self._translated[-1].ends(token.name):
            self._translated[-1].open.clear()
            self._leave_translated()
        self._write_end_tag(token)
        self._leave_translated()

    def _write_end_tag(self, token: Token) -> None:
        name, written = token.name, token.written
        if self._raw:
            outer = not self._raw_names[name] and name != "p" and name not in _INLINE
            if outer and all(each in _ENDED_BY for each in self._raw):
                self._raw_names.clear()  # the end of the element around them is their end, too
                self._raw.clear()
            ended = None if self._raw_names[name] else name
            while ended != name:
                ended = self._end_raw()
            self._markup(written)
        elif name in _INLINE and (indices := self._open_by_name.get(name)):
            self._pieces.append(written)
            self._close(indices[-1], written)
        else:
            self._markup(written)  # of a block, or of an element that began before this block

    def _end_raw(self) -> str:
        """End the last open element whose content is markup, and return its name."""
        name = self._raw.pop()
        self._raw_names[name] -= 1
        return name

    def _text(self, written: str, text: str) -> None:
        self._pieces.append(written)
        if not self._length:
            stripped = text.lstrip()
            if not self._elements:
                # A reference counts as a whole: it is one character.
                before = written if not stripped else text[: len(text) - len(stripped)]
                if not stripped or written == text:
                    self._before.append(before)
            text = stripped
            if not text:
                return
        collapsed = _SPACE.sub(" ", text)
        if self._texts and self._texts[-1].endswith(" "):
            collapsed = collapsed.lstrip(" ")
        if collapsed:
            self._texts.append(collapsed)
            self._length += len(collapsed)

    def _close(self, index: int, written: str) -> None:
        """Close an element, and those inside it that are still open."""
        while self._open and self._open[-1] >= index:
            element = self._elements[self._open.pop()]
            element.end = self._length
            self._open_by_name[element.name].pop()
        self._elements[index].closing = written

    def _markup(self, written: str) -> None:
        self._flush()
        self._append_markup([written])

    def _append_markup(self, pieces: list[str]) -> None:
        if self._parts and isinstance(last := self._parts[-1], list):
            last += pieces
        elif pieces:
            self._parts.append(pieces)

    def _flush(self) -> None:
        """End the block. One without words is markup."""
        text, pieces = "".join(self._texts), self._pieces
        block = Block(text.rstrip(), self._elements, "".join(self._before))
        for index in self._open:
            self._elements[index].end = len(text)
        self._pieces, self._before, self._texts, self._length = [], [], [], 0
        self._elements, self._open, self._open_by_name = [], [], {}
        if not any(map(str.isalnum, text)):
            self._append_markup(pieces)
            return
        written = "".join(pieces)
        block.after = written[len(written.rstrip()) :]
        for element in block.elements:
            element.start = min(element.start, len(block.text))
            element.end = min(element.end, len(block.text))
        self._parts.append(block)
