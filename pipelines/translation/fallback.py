"""Translation of one sentence, with retries where the first attempt is empty or loops."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from typing import TypeAlias, TypeVar

from pipelines.engine import MinNewTokens, NoRepeatNgram, Pending, Task
from pipelines.errors import RequestError
from pipelines.translation.alignment import join_alignments, with_alignment
from pipelines.translation.assembler import TextAssembler
from pipelines.translation.decode import (
    Attempt,
    RunningSentence,
    SentenceDecoder,
    SentenceRequest,
    StableTextStream,
)
from pipelines.translation.isolates import with_isolates
from pipelines.translation.results import Alignment, SentenceTranslation
from pipelines.translation.text.sentences import split_to_fit
from pipelines.translation.tokenizers.base import encode_normalized

T = TypeVar("T")
_Retry: TypeAlias = Generator[str | Pending, None, T]
"""A part of a task that yields no text of its own."""

# Groups of digits with one separator between each; after a space there are three.
_NUMBER = re.compile(r"\d+(?:[.,'’:/٫٬-]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:([.,'’ \u00a0\u202f٬])\d{3})(?:\1\d{3})*(?!\d)")
# Sentences with fewer source tokens are not split.
_MIN_TOKENS_TO_SPLIT = 12


def translate_sentence(
    decoder: SentenceDecoder, request: SentenceRequest, live: bool
) -> Task[str | SentenceTranslation]:
    """The task of a sentence.

    Args:
        decoder: What decodes it.
        request: The sentence.
        live: Yield text as soon as it is final. A retry then continues after the text that was
            yielded. Otherwise the text comes in one piece.

    Yields:
        The text, then the complete translation.
    """
    if not request.source_ids:
        copied = _copied_source(request, request.warnings)
        if request.isolates and not live:
            copied = _with_isolates(decoder, RunningSentence(request), copied)
        yield copied.text
        yield with_alignment(decoder, RunningSentence(request), copied)
        return
    source = decoder.drafting.source(request.source_ids)
    yield Pending(source)
    sentence = decoder.submit(request, source.encoded)
    stable_text = StableTextStream(decoder.tokenizer)
    first = yield from decoder.first_attempt(sentence, stable_text if live else None)
    result = decoder.accept(request, first)
    if result is None:
        result = yield from _retry(decoder, sentence, first, stable_text.shown)
    if request.isolates and not live:
        result = _with_isolates(decoder, sentence, result)
    yield stable_text.finish(result.text)
    result = with_alignment(decoder, sentence, result)
    lost = () if decoder.defaults.whole_lines else _lost_numbers(result)
    warnings = (*request.warnings, *result.warnings, *lost)
    yield replace(result, warnings=warnings)


def _with_isolates(
    decoder: SentenceDecoder, sentence: RunningSentence, result: SentenceTranslation
) -> SentenceTranslation:
    """Add the controls of direction around parts of the sentence to its translation."""

    def align() -> Alignment | None:
        request = replace(sentence.request, word_alignments=True)
        try:
            return with_alignment(decoder, replace(sentence, request=request), result).alignment
        except RequestError:  # The model does not report its attention.
            return None

    text = with_isolates(result.source, result.text, sentence.request.isolates, align)
    return replace(result, text=text)


def _retry(
    decoder: SentenceDecoder, sentence: RunningSentence, first: Attempt, shown: int
) -> _Retry[SentenceTranslation]:
    """The best translation after a failed first attempt, whose first `shown` tokens are final."""
    request = sentence.request
    if first.finished:
        return (yield from _retry_empty(decoder, sentence, first))
    if not shown and not decoder.defaults.whole_lines:
        better = yield from _retry_lower_case(decoder, request)
        if better is None:
            better = yield from _retry_in_parts(decoder, request)
        if better is not None:
            return better
    second = yield from decoder.next_attempt(sentence, (NoRepeatNgram(3),), first.prefix(shown))
    result = decoder.accept(request, second)
    if result is not None:
        return replace(result, warnings=("it looped; translated again without repetitions",))
    usable = first.prefix(max(shown, first.usable_tokens))
    if not shown and 2 * len(usable.tokens) < len(request.source_ids):
        return _copied_source(request, ("no attempt ended; kept as it is",))
    return replace(
        decoder.to_translation(request, usable),
        truncated=True,
        warnings=("the translation did not end and was cut",),
    )


def _retry_empty(
    decoder: SentenceDecoder, sentence: RunningSentence, first: Attempt
) -> _Retry[SentenceTranslation]:
    """Require more tokens than those that had no visible text; copy the source if that fails."""
    request = sentence.request
    logit_filter = MinNewTokens(len(first.tokens), decoder.defaults.eos_ids)
    second = yield from decoder.next_attempt(sentence, (logit_filter,), Attempt())
    result = decoder.accept(request, second)
    if result is None:
        return _copied_source(request, ("the translation was empty; kept as it is",))
    return replace(result, warnings=("the translation was empty; translated again",))


def _retry_lower_case(
    decoder: SentenceDecoder, request: SentenceRequest
) -> _Retry[SentenceTranslation | None]:
    """Translate a sentence in capitals in lower case, and its translation back to capitals.

    Words in capitals are split into subwords that are rare in training data. None for a sentence
    that is not all capitals, or whose translation fails again.
    """
    if (
        request.choices.prefix
        or not request.source.isupper()
        or request.source.capitalize() == request.source
    ):
        return None
    result = yield from _translate_other(decoder, request, request.source.capitalize())
    if result.truncated or result.copied:
        return None
    return replace(result, source=request.source, text=result.text.upper())


def _retry_in_parts(
    decoder: SentenceDecoder, request: SentenceRequest
) -> _Retry[SentenceTranslation | None]:
    """Split a long sentence and translate its parts: models do best on short sentences.

    None for a short sentence, for a part of one, and where the split would cut a word.
    """
    length = len(request.source_ids)
    if request.is_part or request.choices.prefix or length < _MIN_TOKENS_TO_SPLIT:
        return None

    limit = min(length - 1, max(_MIN_TOKENS_TO_SPLIT, length // 4))
    spans = split_to_fit(request.source, limit, lambda text: len(_encode(decoder, request, text)))
    if len(spans) < 2 or not all(span.leading_space for span in spans[1:]):
        return None
    assembler = TextAssembler()
    for span in spans:
        part = yield from _translate_other(decoder, request, span.text, is_part=True)
        assembler.open(span.leading_space, span.text)
        assembler.add(part.text)
        assembler.close(part)
    parts = assembler.sentences
    tokens = tuple(token for part in parts for token in part.tokens)
    total = sum(part.avg_logprob * len(part.tokens) for part in parts)
    warnings = [warning for part in parts for warning in part.warnings]
    return SentenceTranslation(
        request.source,
        assembler.text,
        tokens,
        total / max(1, len(tokens)),
        truncated=any(part.truncated for part in parts),
        warnings=tuple(dict.fromkeys(["it looped; translated in parts", *warnings])),
        alignment=join_alignments(request.source, assembler.text, parts),
        logprobs=tuple(logprob for part in parts for logprob in part.logprobs),
    )


def _translate_other(
    decoder: SentenceDecoder, request: SentenceRequest, text: str, is_part: bool = False
) -> _Retry[SentenceTranslation]:
    """Translate another text under the conditions of a request."""
    ids = _encode(decoder, request, text)
    other = replace(
        request, source=text, source_ids=ids, is_part=is_part or request.is_part, isolates=()
    )
    item: str | SentenceTranslation | Pending = ""
    for item in translate_sentence(decoder, other, live=False):
        if isinstance(item, Pending):
            yield item
    assert isinstance(item, SentenceTranslation), "a sentence ends with its translation"
    return item


def _encode(decoder: SentenceDecoder, request: SentenceRequest, text: str) -> list[int]:
    """The source ids of another text in the languages of a request."""
    return encode_normalized(
        decoder.tokenizer, text, request.target_language, request.source_language
    )


def _lost_numbers(result: SentenceTranslation) -> tuple[str, ...]:
    """A warning for numbers that the translation lacks: years, amounts, times, telephone numbers.

    A single number of up to three digits may become a word. What stands between the parts of a
    range or a date may differ: 1914-1918 and 1914–1918, 10-12 and "10 bis 12". The parts of an
    amount (30.48) stay together; those of a time (20.15) and of a date need not.
    """
    lost = Counter(_parts(result.source))
    lost.subtract(_parts(result.text))
    names = [
        match[0]
        for match in _NUMBER.finditer(result.source)
        if len(match[0]) > 3 or not match[0].isdigit()
        if any(lost[part] > 0 for part in _value(match[0])) or _is_torn(match[0], result.text)
    ]
    return (f"the translation lacks {', '.join(dict.fromkeys(names))}",) if names else ()


def _parts(text: str) -> list[str]:
    return [part for match in _NUMBER.finditer(text) for part in _value(match[0])]


def _value(number: str) -> list[str]:
    """Return the groups of digits of a number, without separators of thousands, which differ by
    language."""
    return re.findall(r"\d+", _merged(number))


def _is_torn(amount: str, text: str) -> bool:
    """Return whether a text lacks an amount whose groups of digits it may have apart."""
    parts = _value(amount)
    is_time = len(parts) == 2 and int(parts[0]) <= 24 and len(parts[1]) == 2 and parts[1] < "60"
    if len(parts) != 2 or is_time or re.search(r"[^\d.,'’٫٬]", amount):
        return False
    together = r"\W{1,2}".join(parts)
    return not re.search(rf"(?<!\d){together}(?!\d)", _merged(text))


def _merged(text: str) -> str:
    """Return a text with digits from 0 to 9 and without separators of thousands."""
    digits = "".join(str(unicodedata.digit(c)) if c.isdecimal() else c for c in text)
    return _THOUSANDS.sub(lambda match: re.sub(r"\D", "", match[0]), digits)


def _copied_source(request: SentenceRequest, warnings: tuple[str, ...]) -> SentenceTranslation:
    return SentenceTranslation(request.source, request.source, copied=True, warnings=warnings)
