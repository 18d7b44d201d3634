"""One sentence: a first attempt, and what is done when it comes out empty or goes in circles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pipelines.engine import MinNewTokens, NoRepeatNgram
from pipelines.translation.alignment import aligned, joined
from pipelines.translation.assembler import TextAssembler
from pipelines.translation.decode import Attempt, SentenceDecoder, SentenceRequest, StableTextStream
from pipelines.translation.results import SentenceTranslation
from pipelines.translation.text.sentences import split_to_fit

__all__ = ["translate_sentence"]

_LONG_NUMBER = re.compile(r"[0-9]{4,}")
# Sentences with fewer tokens than this are not taken apart.
_WORTH_SPLITTING = 12


def translate_sentence(
    decoder: SentenceDecoder, job: SentenceRequest, live: bool
) -> Iterator[str | SentenceTranslation]:
    """The text of a submitted job as it comes, then its translation as a whole.

    live: text is given as soon as it is certain and never taken back, so that a second try
    changes only what follows. Otherwise the text comes in one piece.
    """
    if not job.ids:
        yield job.source
        yield aligned(decoder, job, _copied_source(job, job.warnings))
        return
    speaker = StableTextStream(decoder.tokenizer)
    first = yield from decoder.first(job, speaker if live else None)
    result = decoder.verdict(job, first) or _retry(decoder, job, first, speaker.shown)
    yield speaker.rest(result.text)
    result = aligned(decoder, job, result)
    yield replace(result, warnings=(*job.warnings, *result.warnings, *_missing_numbers(result)))


def _retry(
    decoder: SentenceDecoder, job: SentenceRequest, first: Attempt, shown: int
) -> SentenceTranslation:
    """The best to be had after a first attempt that failed; its first `shown` tokens stand."""
    if first.ended:
        return _retry_empty(decoder, job, first)
    if not shown:
        better = _retry_lower_case(decoder, job) or _retry_in_parts(decoder, job)
        if better is not None:
            return better
    second = decoder.again(job, (NoRepeatNgram(3),), first.upto(shown))
    result = decoder.verdict(job, second)
    if result is not None:
        return replace(result, warnings=("it looped; translated again without repetitions",))
    sound = first.upto(max(shown, first.sound))
    if not shown and 2 * len(sound.tokens) < len(job.ids):
        return _copied_source(job, ("no translation came to an end; kept as it is",))
    return replace(
        decoder.result(job, sound),
        truncated=True,
        warnings=("the translation came to no end and was cut",),
    )


def _retry_empty(
    decoder: SentenceDecoder, job: SentenceRequest, first: Attempt
) -> SentenceTranslation:
    """Insist on more tokens than those that showed nothing; else the source stands for itself."""
    logit_filter = MinNewTokens(len(first.tokens), decoder.defaults.eos_ids)
    result = decoder.verdict(job, decoder.again(job, (logit_filter,), Attempt()))
    if result is None:
        return _copied_source(job, ("the translation was empty; kept as it is",))
    return replace(result, warnings=("the translation was empty; translated again",))


def _retry_lower_case(decoder: SentenceDecoder, job: SentenceRequest) -> SentenceTranslation | None:
    """Capitals fall into pieces that a model hardly knows; try the words in small letters."""
    if not job.source.isupper() or job.source.capitalize() == job.source:
        return None
    result = _translate_now(decoder, job, job.source.capitalize())
    if result.truncated or result.copied:
        return None
    return replace(result, source=job.source, text=result.text.upper())


def _retry_in_parts(decoder: SentenceDecoder, job: SentenceRequest) -> SentenceTranslation | None:
    """Take a long sentence apart: short ones are what a model knows best."""
    if job.part or len(job.ids) < _WORTH_SPLITTING:
        return None
    limit = min(len(job.ids) - 1, max(_WORTH_SPLITTING, len(job.ids) // 4))
    encode = decoder.tokenizer.encode
    spans = split_to_fit(job.source, limit, lambda text: len(encode(text, job.code, job.origin)))
    if len(spans) < 2 or not all(span.before for span in spans[1:]):
        return None  # a cut inside a word helps nobody
    reply = TextAssembler()
    for span in spans:
        part = _translate_now(decoder, job, span.text, part=True)
        reply.open(span.before, span.text)
        reply.add(part.text)
        reply.close(part)
    parts = reply.sentences
    tokens = tuple(token for part in parts for token in part.tokens)
    total = sum(part.avg_logprob * len(part.tokens) for part in parts)
    warnings = [warning for part in parts for warning in part.warnings]
    return SentenceTranslation(
        job.source,
        reply.text,
        tokens,
        total / max(1, len(tokens)),
        truncated=any(part.truncated for part in parts),
        warnings=tuple(dict.fromkeys(["it looped; translated in parts", *warnings])),
        alignment=joined(job.source, reply.text, parts),
    )


def _translate_now(
    decoder: SentenceDecoder, job: SentenceRequest, text: str, part: bool = False
) -> SentenceTranslation:
    """Translate something else in a job's place, at once."""
    ids = decoder.tokenizer.encode(text, job.code, job.origin)
    other = replace(job, source=text, ids=ids, part=part or job.part, encoded=None, stream=None)
    decoder.submit(other, decoder.model.encode([ids])[0])
    *_, result = translate_sentence(decoder, other, live=False)
    assert isinstance(result, SentenceTranslation)
    return result


def _missing_numbers(result: SentenceTranslation) -> tuple[str, ...]:
    """Years and telephone numbers are the same in all languages."""
    said = "".join(filter(str.isalnum, result.text))
    lost = [number for number in _LONG_NUMBER.findall(result.source) if number not in said]
    return (f"the translation lacks {', '.join(lost)}",) if lost else ()


def _copied_source(job: SentenceRequest, warnings: tuple[str, ...]) -> SentenceTranslation:
    return SentenceTranslation(job.source, job.source, copied=True, warnings=warnings)
