"""How certain the model is of each word of a translation, from the probabilities of its tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pipelines.translation.alignment import token_spans, words_of
from pipelines.translation.results import SentenceTranslation, Span, Translation


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
            for (start, end), probability in _of_sentence(sentence, decode)
        ]
    return tuple(words)


def _of_sentence(
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
