"""One sentence: a first attempt, and what is done when it comes out empty or goes in circles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pipelines.engine import MinNewTokens, NoRepeatNgram
from pipelines.translation.alignment import aligned, joined
from pipelines.translation.assembler import Reply
from pipelines.translation.decode import Attempt, Job, SentenceDecoder, Speaker
from pipelines.translation.results import SentenceTranslation
from pipelines.translation.text.sentences import shorten

__all__ = ["translate_job"]

_LONG_NUMBER = re.compile(r"[0-9]{4,}")
# Sentences with fewer tokens than this are not taken apart.
_WORTH_SPLITTING = 12


def translate_job(
    decoder: SentenceDecoder, job: Job, live: bool
) -> Iterator[str | SentenceTranslation]:
    """The text of a submitted job as it comes, then its translation as a whole.

    live: text is given as soon as it is certain and never taken back, so that a second try
    changes only what follows. Otherwise the text comes in one piece.
    """
    if not job.ids:
        yield job.source
        yield aligned(decoder, job, _copy(job, job.warnings))
        return
    speaker = Speaker(decoder.tokenizer)
    first = yield from decoder.first(job, speaker if live else None)
    result = decoder.verdict(job, first) or _second_try(decoder, job, first, speaker.shown)
    yield speaker.rest(result.text)
    result = aligned(decoder, job, result)
    yield replace(result, warnings=(*job.warnings, *result.warnings, *_lost_numbers(result)))


def _second_try(
    decoder: SentenceDecoder, job: Job, first: Attempt, shown: int
) -> SentenceTranslation:
    """The best to be had after a first attempt that failed; its first `shown` tokens stand."""
    if first.ended:
        return _not_empty(decoder, job, first)
    if not shown:
        better = _from_lower_case(decoder, job) or _in_parts(decoder, job)
        if better is not None:
            return better
    second = decoder.again(job, (NoRepeatNgram(3),), first.upto(shown))
    result = decoder.verdict(job, second)
    if result is not None:
        return replace(result, warnings=("it looped; translated again without repetitions",))
    sound = first.upto(max(shown, first.sound))
    if not shown and 2 * len(sound.tokens) < len(job.ids):
        return _copy(job, ("no translation came to an end; kept as it is",))
    return replace(
        decoder.result(job, sound),
        truncated=True,
        warnings=("the translation came to no end and was cut",),
    )


def _not_empty(decoder: SentenceDecoder, job: Job, first: Attempt) -> SentenceTranslation:
    """Insist on more tokens than those that showed nothing; else the source stands for itself."""
    rule = MinNewTokens(len(first.tokens), decoder.defaults.eos_ids)
    result = decoder.verdict(job, decoder.again(job, (rule,), Attempt()))
    if result is None:
        return _copy(job, ("the translation was empty; kept as it is",))
    return replace(result, warnings=("the translation was empty; translated again",))


def _from_lower_case(decoder: SentenceDecoder, job: Job) -> SentenceTranslation | None:
    """Capitals fall into pieces that a model hardly knows; try the words in small letters."""
    if not job.source.isupper() or job.source.capitalize() == job.source:
        return None
    result = _now(decoder, job, job.source.capitalize())
    if result.truncated or result.copied:
        return None
    return replace(result, source=job.source, text=result.text.upper())


def _in_parts(decoder: SentenceDecoder, job: Job) -> SentenceTranslation | None:
    """Take a long sentence apart: short ones are what a model knows best."""
    if job.part or len(job.ids) < _WORTH_SPLITTING:
        return None
    limit = min(len(job.ids) - 1, max(_WORTH_SPLITTING, len(job.ids) // 4))
    encode = decoder.tokenizer.encode
    spans = shorten(job.source, limit, lambda text: len(encode(text, job.code, job.origin)))
    if len(spans) < 2 or not all(span.before for span in spans[1:]):
        return None  # a cut inside a word helps nobody
    reply = Reply()
    for span in spans:
        part = _now(decoder, job, span.text, part=True)
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


def _now(decoder: SentenceDecoder, job: Job, text: str, part: bool = False) -> SentenceTranslation:
    """Translate something else in a job's place, at once."""
    ids = decoder.tokenizer.encode(text, job.code, job.origin)
    other = replace(job, source=text, ids=ids, part=part or job.part, memory=None, stream=None)
    decoder.submit(other, decoder.model.encode([ids])[0])
    *_, result = translate_job(decoder, other, live=False)
    assert isinstance(result, SentenceTranslation)
    return result


def _lost_numbers(result: SentenceTranslation) -> tuple[str, ...]:
    """Years and telephone numbers are the same in all languages."""
    said = "".join(filter(str.isalnum, result.text))
    lost = [number for number in _LONG_NUMBER.findall(result.source) if number not in said]
    return (f"the translation lacks {', '.join(lost)}",) if lost else ()


def _copy(job: Job, warnings: tuple[str, ...]) -> SentenceTranslation:
    return SentenceTranslation(job.source, job.source, copied=True, warnings=warnings)
