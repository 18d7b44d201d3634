"""Words of a translation: which source words each comes from, and how certain the model is of it.

The alignment is read from the cross-attention in the step that generates a token, the mean of all
heads of a layer (Garg et al. 2019). Chen et al. (2020) take the step that reads the token instead,
which is far worse here: of 300 names, numbers and words that are the same in English and German,
the bundled model aligns 97 % with the former and 7 % with the latter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pipelines.text import WIDE
from pipelines.translation.results import Alignment, SentenceTranslation, Span, Translation
from pipelines.translation.text.invisible import visible

if TYPE_CHECKING:
    from pipelines.translation.decode import RunningSentence, SentenceDecoder

_WORDS = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")
# A word is linked to the source word with the largest weight, and to those with at least this
# share of it. Measured against word pairs on which two IBM models of 120,000 sentences agree: 22
# of 100 links are wrong at 0.95 (and at 1), 23 at 0.7, 27 at 0.5.
_LINK_SHARE = 0.95


def words_of(text: str) -> tuple[Span, ...]:
    """The spans of the words of a text.

    Words are separated by white space; in Chinese and Japanese each character is one.
    """
    return tuple(match.span() for match in _WORDS.finditer(text))


def with_alignment(
    decoder: SentenceDecoder, sentence: RunningSentence, result: SentenceTranslation
) -> SentenceTranslation:
    """Add the alignment to a translation, where the request has `word_alignments`.

    This takes one more pass over the tokens, unless the result was copied or has an alignment.
    """
    request = sentence.request
    if not request.word_alignments:
        return result
    if result.alignment is not None:
        # The text may have changed between upper and lower case since: the spans are new.
        spans = words_of(result.source), words_of(result.text)
        return replace(result, alignment=Alignment(*spans, result.alignment.links))
    if result.copied:
        words = words_of(result.source)
        return replace(result, alignment=Alignment(words, words, _diagonal(len(words))))
    tokenizer, tokens = decoder.tokenizer, result.tokens
    source_words = _token_to_word(request.source_ids, tokenizer.source_text, result.source)
    target_words = _token_to_word(tokens, tokenizer.decode, result.text)
    weights = target_words.t() @ decoder.attention(sentence, tokens).cpu() @ source_words
    alignment = Alignment(words_of(result.source), words_of(result.text), _links(weights))
    return replace(result, alignment=alignment)


def join_alignments(
    source: str, text: str, parts: Sequence[SentenceTranslation]
) -> Alignment | None:
    """The alignment of a text from those of its parts.

    Returns:
        None where a part has no alignment.
    """
    if any(part.alignment is None for part in parts):
        return None
    seen = visible(source)  # without what the sentences lack
    sources, targets = words_of(seen.text), words_of(text)
    links: set[tuple[int, int]] = set()
    source_start = text_start = 0
    for part in parts:
        assert part.alignment is not None
        source_start = max(seen.text.find(part.source, source_start), source_start)
        text_start = max(text.find(part.text, text_start), text_start)
        in_source = [_overlaps(s, source_start, sources) for s in part.alignment.source_words]
        in_text = [_overlaps(s, text_start, targets) for s in part.alignment.target_words]
        links |= {(i, j) for a, b in part.alignment.links for i in in_source[a] for j in in_text[b]}
        source_start += len(part.source)
        text_start += len(part.text)
    original = tuple(seen.original_span(*word) for word in sources)
    return Alignment(original, targets, tuple(sorted(links)))


def _links(weights: Tensor) -> tuple[tuple[int, int], ...]:
    """(source word, target word) pairs. weights: [target words, source words]."""
    links = []
    for j, row in enumerate(weights.tolist()):
        best = max(row, default=0.0)
        links += [(i, j) for i, weight in enumerate(row) if best and weight >= _LINK_SHARE * best]
    return tuple(sorted(links))


def _token_to_word(ids: Sequence[int], decode: Callable[[Sequence[int]], str], text: str) -> Tensor:
    """float [ids, words of the text], 1 where a token is part of a word.

    Punctuation is part of no word that has letters or digits: its attention is on the end of the
    sentence, and so is the attention on it.
    """
    words = words_of(text)
    is_mark = [not any(map(str.isalnum, text[slice(*word)])) for word in words]
    matrix = torch.zeros(len(ids), len(words))
    for index, span in enumerate(token_spans(ids, decode, text)):
        if span is None:
            continue
        token_is_mark = not any(map(str.isalnum, text[slice(*span)]))
        for word in _overlaps(span, 0, words):
            matrix[index, word] = float(is_mark[word] or not token_is_mark)
    return matrix


def _overlaps(span: Span, offset: int, words: Sequence[Span]) -> list[int]:
    """The indices of the words that overlap a span, shifted by `offset` characters."""
    first, stop = span[0] + offset, span[1] + offset
    return [word for word, (a, b) in enumerate(words) if a < stop and first < b]


def token_spans(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str], text: str
) -> list[Span | None]:
    """The span of each token in a text; None for those without characters in it, such as eos.

    The decoded ids may differ from the text in a few characters: quotes, accents, upper case.
    """
    decoded = decode(ids)
    ends = [len(decode(ids[:count])) for count in range(len(ids) + 1)]
    matcher = SequenceMatcher(
        None, [c.lower() for c in decoded], [c.lower() for c in text], autojunk=False
    )
    in_text: dict[int, int] = {}  # index in decoded → index in text
    for a, b, size in matcher.get_matching_blocks():
        in_text |= {a + i: b + i for i in range(size) if not decoded[a + i].isspace()}
    spans: list[Span | None] = []
    for first, last in pairwise(ends):
        characters = [in_text[i] for i in range(first, last) if i in in_text]
        spans.append((characters[0], characters[-1] + 1) if characters else None)
    return spans


def _diagonal(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i) for i in range(count))


def word_probabilities(
    translation: Translation, decode: Callable[[Sequence[int]], str]
) -> tuple[tuple[Span, float], ...]:
    """The span of each word in the text of a translation, and its probability.

    Returns:
        The mean probability of the tokens of each word, as for recognized words; not of words that
        were copied.
    """
    words, at = list[tuple[Span, float]](), 0
    for sentence in translation.sentences:
        begin = translation.text.find(sentence.text, at)
        if begin < 0 or not sentence.text:
            continue
        at = begin + len(sentence.text)
        words += [
            ((begin + start, begin + end), probability)
            for (start, end), probability in _probabilities_of(sentence, decode)
        ]
    return tuple(words)


def _probabilities_of(
    sentence: SentenceTranslation, decode: Callable[[Sequence[int]], str]
) -> list[tuple[Span, float]]:
    if sentence.copied or len(sentence.logprobs) != len(sentence.tokens):
        return []
    spans = token_spans(sentence.tokens, decode, sentence.text)
    certain = [math.exp(logprob) for logprob in sentence.logprobs]
    words = []
    for start, end in words_of(sentence.text):
        own = [
            probability
            for span, probability in zip(spans, certain, strict=True)
            if span is not None and span[0] < end and start < span[1]
        ]
        if own:
            words.append(((start, end), sum(own) / len(own)))
    return words
