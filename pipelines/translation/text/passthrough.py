"""What of a sentence goes around the model instead of through it, because it only spoils it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pipelines.languages import two_letter
from pipelines.translation.text.sentences import SentenceSpan

__all__ = ["plain_quotes", "split_passthrough", "without_added_stop"]

_BULLET = r"[-–—*•‣◦▪·>#+]+|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,4})\)"
_MARKER = re.compile(rf"(?:(?:{_BULLET})\s+)+(?=\S)")
_NUMBERED = re.compile(rf"(?:(?:{_BULLET}|\d{{1,3}}\.)\s+)+(?=\S)")
# Where "5. Mai" is the fifth, a number with a dot starts no list.
_ORDINAL_DOT = frozenset("bs cs da de et eu fi hr hu is lb lt lv nb nn no pl sk sl sr tr".split())

_LINK = re.compile(
    r">>[\w-]{2,20}<<"
    r"|(?:https?://|www\.)[^\s<>\"]*[\w/]"
    r"|\b[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}\w{2,}"
    # Keys, checksums, pictures in letters: no language has such words.
    r"|[a-z0-9+/=_]{50,}",
    re.IGNORECASE,
)
_WORD = re.compile(r"\S+")
_EDGES = re.compile(r"[\W_]*(?=[^\W_])|[\W_]*$")

_DOUBLE = '"“”„‟«»'
_PAIRS = {"(": ")", "[": "]", "'": "'", "‘": "’"}
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_PLAIN = str.maketrans("“”„‟‘’‚‛", "\"\"\"\"''''")


def plain_quotes(text: str) -> str:
    """Text with typewriter quotes, which are what Marian models have read in training.

    Source: normalize-punctuation.perl of the Moses toolkit.
    """
    return text.translate(_PLAIN)


def without_added_stop(source: str, translation: str) -> str:
    """A translation without the full stop that its source, a heading perhaps, does not have."""
    *_, word = translation.split() or [""]
    if word.find(".") < len(word) - 1 or len(word) < 2 or not source[-1:].isalnum():
        return translation
    return translation[:-1]


def split_passthrough(
    span: SentenceSpan, language: str | None, unreadable: Callable[[str], bool]
) -> Iterator[tuple[SentenceSpan, bool]]:
    """A sentence in parts, each with whether it is to be kept as it is.

    Kept are: the marks that a line of a list begins with, quotes and brackets around a whole
    sentence, links, addresses and ">>xxx<<" codes, and words of which the model has no idea.
    Marks that it does not know are taken from the edges of words that it does.
    """
    text = span.text
    if not text:
        yield span, True
        return
    numbered = two_letter(language) not in _ORDINAL_DOT
    match = (_NUMBERED if numbered else _MARKER).match(text)
    start, stop = _inside(text, match.end() if match else 0)
    kept = [(0, start), *_foreign(text, start, stop, unreadable), (stop, len(text))]
    position, before = 0, span.before
    for first, last, keep in _alternating(text, kept):
        body = text[first:last]
        if body.strip():
            start = first + len(body) - len(body.lstrip())
            yield SentenceSpan(before + text[position:start], body.strip()), keep
            position, before = start + len(body.strip()), ""


def _inside(text: str, start: int) -> tuple[int, int]:
    """Where quotes and brackets around the whole of text[start:] leave the sentence."""
    stop = len(text)
    while stop - start > 2:
        first, last, inner = text[start], text[stop - 1], text[start + 1 : stop - 1]
        left, right = first in _DOUBLE, last in _DOUBLE
        if left or right:
            # One alone is half of a quotation that goes on in another sentence.
            rest = text[start + left : stop - right]
            if any(mark in rest for mark in _DOUBLE):
                break
            start, stop = start + left, stop - right
        elif _PAIRS.get(first) == last:
            inner = _APOSTROPHE.sub("", inner)
            if first in inner or last in inner:
                break
            start, stop = start + 1, stop - 1
        else:
            break
    return start, stop


def _foreign(
    text: str, start: int, stop: int, unreadable: Callable[[str], bool]
) -> Iterator[tuple[int, int]]:
    """Links, and what the model cannot read."""
    for match in _LINK.finditer(text, start, stop):
        yield match.span()
    rest = text[:start] + _LINK.sub(lambda match: " " * len(match[0]), text[start:stop])
    if not unreadable(rest[start:]):
        return
    for match in _WORD.finditer(rest, start):
        word, (first, last) = match[0], match.span()
        if not unreadable(word):
            continue
        left, right = _edge(word), len(word) - _edge(word[::-1])
        if left >= right or unreadable(word[left:right]):
            yield first, last
            continue
        if unreadable(word[:left]):
            yield first, first + left
        if unreadable(word[right:]):
            yield first + right, last


def _edge(word: str) -> int:
    """How many marks a word begins with."""
    match = _EDGES.match(word)
    return match.end() if match else 0


def _alternating(text: str, kept: list[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """All of a text in stretches; those to keep are joined where only space is between them."""
    joined: list[list[int]] = []
    for first, last in sorted(kept):
        if first == last:
            continue
        if joined and not text[joined[-1][1] : first].strip():
            joined[-1][1] = last
        else:
            joined.append([first, last])
    position = 0
    for first, last in joined:
        yield position, first, False
        yield first, last, True
        position = last
    yield position, len(text), False
