"""Which words of a source each word of its translation comes from.

By where the decoder looks in the source in the step that produces a token, all heads of a layer
taken together (Garg et al. 2019). Chen et al. (2020) look at the step that reads the token instead,
which is far worse here: of 300 names, numbers and words that are the same in English and German,
the bundled model finds 97 % the one way and 7 % the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pipelines.translation.results import Alignment, SentenceTranslation, Span

if TYPE_CHECKING:
    from pipelines.translation.decode import SentenceDecoder, SentenceRequest

__all__ = ["aligned", "joined", "words_of"]

# Scripts that put no spaces between words: Chinese and Japanese, a word for each character.
_WIDE = "\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
_WORDS = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]+")
# Beside the source word that it looks at most, a word comes from those that it looks at nearly as
# much, as a share of that. Against word pairs on which two IBM models of 120,000 sentences agree,
# 0.95 errs in 22 of 100 links, as 1 does, 0.7 in 23 and 0.5 in 27.
_ALSO = 0.95


def words_of(text: str) -> tuple[Span, ...]:
    """The words of a text, as its white space has them: (first, last + 1) characters of each.

    Of scripts without spaces each character is one.
    """
    return tuple(match.span() for match in _WORDS.finditer(text))


def aligned(
    decoder: SentenceDecoder, job: SentenceRequest, result: SentenceTranslation
) -> SentenceTranslation:
    """A translation with its alignment, where it has none yet: one more pass over its tokens."""
    if not job.aligned:
        return result
    if result.alignment is not None:
        return replace(result, alignment=_rebased(result.alignment, result.source, result.text))
    if result.copied:
        words = words_of(result.source)
        return replace(result, alignment=Alignment(words, words, _diagonal(len(words))))
    tokenizer, tokens = decoder.tokenizer, result.tokens
    gather = _membership(job.ids, tokenizer.source_text, result.source)
    spread = _membership(tokens, tokenizer.decode, result.text)
    share = spread.t() @ decoder.attention(job, tokens).cpu() @ gather
    found = Alignment(words_of(result.source), words_of(result.text), _links(share))
    return replace(result, alignment=found)


def joined(source: str, text: str, parts: Sequence[SentenceTranslation]) -> Alignment | None:
    """The alignment of a whole text from those of its parts, which stand in it in order; None
    where a part has none."""
    if any(part.alignment is None for part in parts):
        return None
    sources, targets = words_of(source), words_of(text)
    links: set[tuple[int, int]] = set()
    here = there = 0
    for part in parts:
        assert part.alignment is not None
        here = max(source.find(part.source, here), here)
        there = max(text.find(part.text, there), there)
        own = [_within(span, here, sources) for span in part.alignment.source_words]
        other = [_within(span, there, targets) for span in part.alignment.target_words]
        links |= {(i, j) for a, b in part.alignment.links for i in own[a] for j in other[b]}
        here, there = here + len(part.source), there + len(part.text)
    return Alignment(sources, targets, tuple(sorted(links)))


def _links(share: Tensor) -> tuple[tuple[int, int], ...]:
    """share [target words, source words]: how much each looks at each."""
    links = []
    for j, row in enumerate(share.tolist()):
        best = max(row, default=0.0)
        links += [(i, j) for i, weight in enumerate(row) if best and weight >= _ALSO * best]
    return tuple(sorted(links))


def _membership(ids: Sequence[int], decode: Callable[[Sequence[int]], str], text: str) -> Tensor:
    """[ids, words of the text], 1 where an id is part of a word. Punctuation is part of none that
    has letters or digits: what it looks at, and is looked at for, is the end of the sentence."""
    words = words_of(text)
    bare = [not any(map(str.isalnum, text[slice(*word)])) for word in words]
    found = torch.zeros(len(ids), len(words))
    for index, place in enumerate(_places(ids, decode, text)):
        if place is None:
            continue
        mark = not any(map(str.isalnum, text[slice(*place)]))
        for word in _within(place, 0, words):
            found[index, word] = float(bare[word] or not mark)
    return found


def _within(span: Span, offset: int, words: Sequence[Span]) -> list[int]:
    """The words that have a part of a span in them."""
    first, stop = span[0] + offset, span[1] + offset
    return [word for word, (a, b) in enumerate(words) if a < stop and first < b]


def _places(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str], text: str
) -> list[Span | None]:
    """Where in a text each id stands; None for those that are not in it, such as eos.

    What the ids say may differ from the text in a few characters: quotes, accents, capitals.
    """
    said = decode(ids)
    ends = [len(decode(ids[:count])) for count in range(len(ids) + 1)]
    matcher = SequenceMatcher(
        None, [c.lower() for c in said], [c.lower() for c in text], autojunk=False
    )
    where: dict[int, int] = {}
    for a, b, size in matcher.get_matching_blocks():
        where |= {a + i: b + i for i in range(size) if not said[a + i].isspace()}
    found: list[Span | None] = []
    for first, last in pairwise(ends):
        own = [where[i] for i in range(first, last) if i in where]
        found.append((own[0], own[-1] + 1) if own else None)
    return found


def _rebased(alignment: Alignment, source: str, text: str) -> Alignment:
    """The same words, after their letters became capitals or small."""
    return Alignment(words_of(source), words_of(text), alignment.links)


def _diagonal(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i) for i in range(count))
