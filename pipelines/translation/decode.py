"""From an encoded sentence to its translation: one generation, watched while it runs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from pipelines.engine import (
    EncodedSource,
    FinishReason,
    ForcedPrefix,
    GenerationOptions,
    LoadedModel,
    LogitFilter,
    Request,
    Stream,
)
from pipelines.translation.generation_config import GenerationDefaults
from pipelines.translation.repetition import RepetitionDetector, max_target_tokens
from pipelines.translation.results import SentenceTranslation
from pipelines.translation.text.passthrough import without_added_stop
from pipelines.translation.tokenizers.base import TextTokenizer
from pipelines.translation.tokenizers.marian import StreamingDetokenizer

__all__ = ["Attempt", "SentenceRequest", "SentenceDecoder", "StableTextStream"]

# A sentence stays on its line, whatever the model says.
_LINE_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


@dataclass
class SentenceRequest:
    """A sentence on its way.

    before: white space in front. whole: on the last job of a text, all of that text.
    ids: source ids, target code and eos included; empty when there is nothing to translate.
    code: the target language that was asked for; origin: that of the source, for models that
    want it. warnings: known before the decoding.
    beams: how many to search with; 1 is greedy. aligned: whether to tell which words come from
    which.
    part: of a sentence that has been taken apart, and is not to be taken apart further.
    """

    source: str
    before: str = ""
    whole: str | None = None
    ids: Sequence[int] = ()
    code: str | None = None
    origin: str | None = None
    priority: int = 2
    warnings: tuple[str, ...] = ()
    beams: int = 1
    aligned: bool = False
    part: bool = False
    encoded: EncodedSource | None = None
    stream: Stream | None = None

    def cancel(self) -> None:
        """Stop decoding it."""
        if self.stream is not None:
            self.stream.cancel()


@dataclass
class Attempt:
    """One generation so far.

    tokens, logprobs: all of them, eos included. ended: eos has come, without a loop.
    sound: how many of the tokens stand before the trouble, if there was any.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False
    sound: int = 0

    def upto(self, tokens: int) -> Attempt:
        """Its beginning."""
        return Attempt(self.tokens[:tokens], self.logprobs[:tokens])


class SentenceDecoder:
    """Decodes jobs of one model."""

    def __init__(
        self, model: LoadedModel, tokenizer: TextTokenizer, defaults: GenerationDefaults
    ) -> None:
        self.model, self.tokenizer, self.defaults = model, tokenizer, defaults

    def submit(self, job: SentenceRequest, encoded: EncodedSource) -> None:
        """Start a job whose source has been encoded."""
        job.encoded = encoded
        job.stream = self._start(job, (), ())

    def first(
        self, job: SentenceRequest, speaker: StableTextStream | None
    ) -> Generator[str, None, Attempt]:
        """Read a submitted job's generation. With a speaker, yields text as it becomes certain."""
        assert job.stream is not None, "submit the job first"
        attempt = Attempt()
        yield from self._follow(job.stream, attempt, RepetitionDetector(job.ids), speaker)
        return attempt

    def again(
        self, job: SentenceRequest, logit_filters: tuple[LogitFilter, ...], shown: Attempt
    ) -> Attempt:
        """Another generation under more rules, going on from what was shown already."""
        attempt, detector = Attempt([*shown.tokens], [*shown.logprobs]), RepetitionDetector(job.ids)
        for token in shown.tokens:
            detector.push(token)
        for _ in self._follow(
            self._start(job, shown.tokens, logit_filters), attempt, detector, None
        ):
            pass
        return attempt

    def redecode(
        self, job: SentenceRequest, fixed: Sequence[int], draft: Sequence[int]
    ) -> tuple[int, ...]:
        """The ids of a sentence that is translated again and again while it grows, eos left out.

        They begin with `fixed`; `draft` is verified in one pass.
        """
        (encoded,) = self.model.encode([job.ids])
        start, opening = self._begin(job)
        options = GenerationOptions(
            max_new_tokens=max_target_tokens(len(job.ids), self.defaults.longest),
            eos_ids=self.defaults.eos_ids,
            logit_filters=(*self.defaults.logit_filters, ForcedPrefix(tuple(fixed) or opening)),
        )
        request = Request(
            encoded, (start,), options, priority=job.priority, draft=tuple(draft) or opening
        )
        detector, tokens = RepetitionDetector(job.ids), []
        with self.model.stream(request) as stream:
            for token in (token for event in stream for token in event.tokens):
                if token in self.defaults.eos_ids:
                    break
                tokens.append(token)
                if detector.push(token):
                    return tuple(tokens[: max(detector.cut, len(fixed))])
        return tuple(tokens)

    def verdict(self, job: SentenceRequest, attempt: Attempt) -> SentenceTranslation | None:
        """The translation, when there is nothing wrong with it."""
        result = self.result(job, attempt)
        return result if attempt.ended and result.text else None

    def result(self, job: SentenceRequest, attempt: Attempt) -> SentenceTranslation:
        """What an attempt says."""
        text = self.tokenizer.decode(attempt.tokens).translate(_LINE_BREAKS)
        average = sum(attempt.logprobs) / max(1, len(attempt.logprobs))
        return SentenceTranslation(
            job.source, without_added_stop(job.source, text), tuple(attempt.tokens), average
        )

    def attention(self, job: SentenceRequest, tokens: Sequence[int]) -> Tensor:
        """Where in the source each token of a translation was looked for: float32 [tokens, source
        ids]. One more pass."""
        assert job.encoded is not None, "it has been translated"
        prompt = [self._begin(job)[0], *tokens[:-1]]
        return self.model.attend(job.encoded, prompt, self.defaults.alignment_heads)[1].mean(0)

    def _start(
        self, job: SentenceRequest, shown: Sequence[int], logit_filters: tuple[LogitFilter, ...]
    ) -> Stream:
        assert job.encoded is not None
        cap = max_target_tokens(len(job.ids), self.defaults.longest)
        start, opening = self._begin(job)
        # Said as `generate` does, where it counts for the length of a beam; read with the start.
        opening = () if shown else opening
        options = GenerationOptions(
            max_new_tokens=max(0, cap - len(shown)),
            eos_ids=self.defaults.eos_ids,
            logit_filters=(
                *self.defaults.logit_filters,
                *logit_filters,
                *[ForcedPrefix(opening)] * bool(opening),
            ),
            beam_size=job.beams,
            length_penalty=self.defaults.length_penalty,
            logprobs=True,
        )
        return self.model.stream(
            Request(job.encoded, (start, *shown), options, priority=job.priority, draft=opening)
        )

    def _begin(self, job: SentenceRequest) -> tuple[int, tuple[int, ...]]:
        """What the decoder starts from, and what it is made to say first: often a language."""
        start = self.tokenizer.start(job.code)
        opening = self.tokenizer.opening(job.code)
        return self.defaults.start_id if start is None else start, opening or self.defaults.forced

    def _follow(
        self,
        stream: Stream,
        attempt: Attempt,
        detector: RepetitionDetector,
        speaker: StableTextStream | None,
    ) -> Iterator[str]:
        """Read a generation to its end, or until it loops."""
        with stream:
            for event in stream:
                for token, logprob in zip(event.tokens, event.logprobs, strict=True):
                    attempt.tokens.append(token)
                    attempt.logprobs.append(logprob)
                    if token not in self.defaults.eos_ids and detector.push(token):
                        attempt.sound = detector.cut
                        return
                if speaker is not None and (
                    text := speaker.say(attempt.tokens[: detector.settled])
                ):
                    yield text
                attempt.ended = event.reason is FinishReason.EOS
        attempt.sound = len(attempt.tokens)


class StableTextStream:
    """Says what of a growing sentence is certain. A full stop is not, until more comes."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._decoder = StreamingDetokenizer(tokenizer)
        self._tokens = 0
        self._known = ""
        self._said = 0

    @property
    def shown(self) -> int:
        """How many tokens have been said, 0 while they made no visible text."""
        return self._tokens if self._known else 0

    def say(self, tokens: Sequence[int]) -> str:
        """The text that a sentence of these tokens adds to what was said before."""
        new = tokens[self._tokens :]
        self._tokens += len(new)
        if new:
            self._known += self._decoder.push(new).translate(_LINE_BREAKS)
        return self._until(self._known.removesuffix("."))

    def rest(self, text: str) -> str:
        """What the complete sentence has beyond what was said."""
        return self._until(text)

    def _until(self, text: str) -> str:
        news = text[self._said :]
        self._said += len(news)
        return news
