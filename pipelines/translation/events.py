"""Jobs → events: what a reader sees of translations on their way."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from pipelines.errors import NumericalError
from pipelines.translation.assembler import TextAssembler, excerpt
from pipelines.translation.decode import SentenceDecoder, SentenceRequest
from pipelines.translation.fallback import translate_sentence
from pipelines.translation.in_flight import decode_ahead
from pipelines.translation.results import (
    SentenceDone,
    TranslationDelta,
    TranslationDone,
    TranslationEvent,
)

__all__ = ["translation_events"]


def translation_events(
    jobs: Iterable[SentenceRequest | None], decoder: SentenceDecoder, live: bool
) -> Generator[TranslationEvent, None, None]:
    """Deltas, finished sentences and finished texts, in order. Closing it cancels the rest.

    live: deltas come as the model decides; otherwise in whole sentences.

    Raises NumericalError with a sentence for which the model computes NaN or infinity, after all
    before it.
    """
    ahead = decode_ahead(jobs, decoder)
    reply = TextAssembler()
    job: SentenceRequest | None = None
    try:
        for job in ahead:
            try:
                yield from _sentence(job, decoder, reply, live)
            except NumericalError as error:
                named = f'"{excerpt(job.source)}" could not be translated'
                raise NumericalError(f"{named}: {error}") from error
            if job.whole is not None:
                yield TranslationDone(reply.finish(job.whole, job.aligned))
                reply = TextAssembler()
    finally:
        if job is not None:
            job.cancel()
        ahead.close()


def _sentence(
    job: SentenceRequest, decoder: SentenceDecoder, reply: TextAssembler, live: bool
) -> Iterator[TranslationEvent]:
    reply.open(job.before, job.source)
    if not job.source:
        if job.before:
            yield TranslationDelta(reply.space())
        return
    for news in translate_sentence(decoder, job, live):
        if not isinstance(news, str):
            reply.close(news)
            yield SentenceDone(news.source, news.text)
        elif delta := reply.add(news):
            yield TranslationDelta(delta)
