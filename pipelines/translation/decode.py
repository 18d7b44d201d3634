"""Decoding of one sentence: a request, its generation in the engine, and the text it makes.

A `SentenceRequest` says what to translate and never changes. `SentenceDecoder.submit` starts its
generation and returns a `RunningSentence`; reading that gives an `Attempt`, which `fallback.py`
accepts or repeats under other conditions. What reads a generation is a part of a task: it yields
`Pending` where the engine must compute a step first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from pipelines.decoding_choices import Alternative
from pipelines.engine import (
    Drafting,
    EncodedSource,
    FinishReason,
    ForcedEnd,
    ForcedPrefix,
    GenerationOptions,
    LoadedModel,
    LogitFilter,
    Pending,
    Request,
    Stream,
    events_of,
)
from pipelines.text import StreamingDetokenizer
from pipelines.translation.generation_config import GenerationDefaults
from pipelines.translation.repetition import RepetitionDetector, max_target_tokens
from pipelines.translation.results import SentenceTranslation
from pipelines.translation.text.invisible import Isolate
from pipelines.translation.text.passthrough import without_added_stop
from pipelines.translation.tokenizers.base import TextTokenizer

# The translation of a sentence is one line: line breaks that a model generates become spaces.
_LINE_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


@dataclass(frozen=True)
class SentenceChoices:
    """How the tokens of a sentence are chosen, apart from the model's own rules and beams.

    Attributes:
        n_best: How many results of the search the translation carries.
        prefix: Target ids that the translation begins with.
        logit_filters: Applied after those of the model.
    """

    n_best: int = 1
    prefix: tuple[int, ...] = ()
    logit_filters: tuple[LogitFilter, ...] = ()


@dataclass(frozen=True)
class TextEnd:
    """The end of a text, in the stream of its sentences.

    Attributes:
        source: All of the text.
        trailing_space: The white space after its last sentence.
        word_alignments: Whether the result gets a word alignment.
    """

    source: str
    trailing_space: str
    word_alignments: bool


@dataclass(frozen=True)
class SentenceRequest:
    """A sentence to be translated, or to be copied.

    Attributes:
        source: The text of the sentence.
        leading_space: The white space before it.
        source_ids: Token ids, eos and language tokens included; empty for a sentence to copy.
        target_language: The target code of the tokenizer; None for models with one target.
        source_language: The source code of the tokenizer; None for models that need none.
        priority: Of its generations, on a shared engine.
        warnings: Those known before decoding.
        beam_size: Beams of the search; 1 is greedy.
        choices: How the tokens are chosen, apart from beams.
        word_alignments: Whether the result gets a word alignment.
        is_part: It is a part of a sentence that was split, and is not split further.
        isolates: Parts of it that controls of direction enclosed; put back unless it streams.
        end: The end of the text, after its last sentence.
    """

    source: str
    leading_space: str = ""
    source_ids: Sequence[int] = ()
    target_language: str | None = None
    source_language: str | None = None
    priority: int = 2
    warnings: tuple[str, ...] = ()
    beam_size: int = 1
    choices: SentenceChoices = SentenceChoices()
    word_alignments: bool = False
    is_part: bool = False
    isolates: tuple[Isolate, ...] = ()
    end: TextEnd | None = None


@dataclass(frozen=True)
class RunningSentence:
    """A request with its generation.

    Attributes:
        request: What is translated.
        encoded: The encoded source; None for a sentence to copy.
        stream: The first generation, which may not be read yet; None for a sentence to copy.
    """

    request: SentenceRequest
    encoded: EncodedSource | None = None
    stream: Stream | None = None


@dataclass
class Attempt:
    """One generation, as far as it was read.

    Attributes:
        tokens: The target ids, eos included.
        logprobs: The log-probability of each.
        finished: No loop was detected, and the model generated eos, or a summary is as long as the
            model's files allow.
        usable_tokens: How many tokens precede a detected loop; all of them without a loop.
        hypotheses: (score, target ids) of the `n_best` results; empty for a single one.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finished: bool = False
    usable_tokens: int = 0
    hypotheses: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def prefix(self, count: int) -> Attempt:
        """An unfinished attempt of the first `count` tokens."""
        return Attempt(self.tokens[:count], self.logprobs[:count])


class SentenceDecoder:
    """Decodes sentences with one model."""

    def __init__(
        self,
        model: LoadedModel,
        tokenizer: TextTokenizer,
        defaults: GenerationDefaults,
        drafting: Drafting | None = None,
    ) -> None:
        self.model, self.tokenizer, self.defaults = model, tokenizer, defaults
        self.drafting = drafting or Drafting(model)

    def submit(self, request: SentenceRequest, encoded: EncodedSource) -> RunningSentence:
        """Start the first generation for a request whose source has been encoded."""
        return RunningSentence(request, encoded, self._generate(request, encoded, (), ()))

    def first_attempt(
        self, sentence: RunningSentence, stable_text: StableTextStream | None
    ) -> Generator[str | Pending, None, Attempt]:
        """Read the first generation.

        Yields:
            Text of the translation as soon as it is final, and Pending.

        Returns:
            The attempt.
        """
        assert sentence.stream is not None, "the sentence has not been submitted"
        attempt = Attempt()
        detector = RepetitionDetector(sentence.request.source_ids)
        yield from self._read(sentence.request, sentence.stream, attempt, detector, stable_text)
        return attempt

    def next_attempt(
        self,
        sentence: RunningSentence,
        logit_filters: tuple[LogitFilter, ...],
        prefix: Attempt,
    ) -> Generator[str | Pending, None, Attempt]:
        """Generate again from the same encoded source.

        Yields:
            Pending.

        Returns:
            The attempt.
        """
        assert sentence.encoded is not None, "the sentence has not been submitted"
        request = sentence.request
        attempt = Attempt([*prefix.tokens], [*prefix.logprobs])
        detector = RepetitionDetector(request.source_ids)
        for token in prefix.tokens:
            detector.push(token)
        stream = self._generate(request, sentence.encoded, prefix.tokens, logit_filters)
        yield from self._read(request, stream, attempt, detector, None)
        return attempt

    def retranslate(
        self, request: SentenceRequest, prefix: Sequence[int], draft: Sequence[int]
    ) -> tuple[int, ...]:
        """Translate an incomplete sentence greedily, again each time that it has grown.

        Args:
            request: The sentence as it is now; encoded here.
            prefix: Target ids that the translation begins with.
            draft: The target ids of the last translation, verified in one pass.

        Returns:
            Target ids without eos.
        """
        (encoded,) = self.drafting.encode([request.source_ids])
        start, forced = self._decoder_start(request)
        options = GenerationOptions(
            max_new_tokens=self._max_new_tokens(request),
            eos_ids=self.defaults.eos_ids,
            logit_filters=(
                *self.defaults.logit_filters,
                *request.choices.logit_filters,
                ForcedPrefix(tuple(prefix) or forced),
            ),
        )
        generation = Request(
            encoded,
            (start,),
            options,
            priority=request.priority,
            draft=tuple(draft) or forced,
            drafter=self.drafting.drafter_for(encoded, options),
        )
        detector, tokens = RepetitionDetector(request.source_ids), []
        with self.model.stream(generation) as stream:
            for token in (token for event in stream for token in event.tokens):
                if token in self.defaults.eos_ids:
                    break
                tokens.append(token)
                if detector.push(token):
                    return tuple(tokens[: max(detector.cut, len(prefix))])
        return tuple(tokens)

    def accept(self, request: SentenceRequest, attempt: Attempt) -> SentenceTranslation | None:
        """The translation of a finished attempt with visible text; None for any other."""
        result = self.to_translation(request, attempt)
        return result if attempt.finished and result.text else None

    def to_translation(self, request: SentenceRequest, attempt: Attempt) -> SentenceTranslation:
        """The text, tokens and mean log-probability of an attempt, finished or not."""
        avg_logprob = sum(attempt.logprobs) / max(1, len(attempt.logprobs))
        return SentenceTranslation(
            request.source,
            self._text(request, attempt.tokens),
            tuple(attempt.tokens),
            avg_logprob,
            alternatives=tuple(
                Alternative(self._text(request, tokens), score, tokens)
                for score, tokens in attempt.hypotheses
            ),
            logprobs=tuple(attempt.logprobs),
        )

    def _text(self, request: SentenceRequest, tokens: Sequence[int]) -> str:
        text = self.tokenizer.decode(tokens).translate(_LINE_BREAKS)
        return without_added_stop(request.source, text)

    def attention(self, sentence: RunningSentence, tokens: Sequence[int]) -> Tensor:
        """Cross-attention of a translation: one more pass over its tokens.

        Returns:
            float32 [tokens, source ids], the mean over the alignment heads; row i is the step that
            generates token i.
        """
        assert sentence.encoded is not None, "the sentence has not been submitted"
        prompt = [self._decoder_start(sentence.request)[0], *tokens[:-1]]
        heads = self.defaults.alignment_heads
        return self.model.score_with_attention(sentence.encoded, prompt, heads)[1].mean(0)

    def _generate(
        self,
        request: SentenceRequest,
        encoded: EncodedSource,
        prefix: Sequence[int],
        logit_filters: tuple[LogitFilter, ...],
    ) -> Stream:
        """Start a generation that continues after `prefix`."""
        start, forced = self._decoder_start(request)
        # Forced as in transformers' `generate`, where these tokens count for the length of a beam.
        # As a draft they are computed in one pass with the start token.
        forced = forced[len(prefix) :]
        longest = max(0, self._max_new_tokens(request) - len(prefix))
        ends = self.defaults.forced_eos_ids
        options = GenerationOptions(
            max_new_tokens=longest,
            eos_ids=self.defaults.eos_ids,
            logit_filters=(
                *self.defaults.logit_filters,
                *logit_filters,
                *request.choices.logit_filters,
                *[ForcedPrefix(forced)] * bool(forced),
                *[ForcedEnd(longest - 1, ends)] * bool(ends),
            ),
            beam_size=request.beam_size,
            n_best=request.choices.n_best,
            length_penalty=self.defaults.length_penalty,
            logprobs=True,
        )
        return self.model.stream(
            Request(
                encoded,
                (start, *prefix),
                options,
                priority=request.priority,
                draft=forced,
                drafter=self.drafting.drafter_for(encoded, options),
            )
        )

    def _max_new_tokens(self, request: SentenceRequest) -> int:
        longest = self.defaults.max_new_tokens
        if self.defaults.whole_lines:
            return longest
        return max_target_tokens(len(request.source_ids), longest)

    def _decoder_start(self, request: SentenceRequest) -> tuple[int, tuple[int, ...]]:
        """The decoder's start token, and the ids that follow it: the target language, a prefix."""
        start = self.tokenizer.decoder_start_id(request.target_language)
        forced = self.tokenizer.forced_prefix(request.target_language)
        return (
            self.defaults.decoder_start_id if start is None else start,
            (forced or self.defaults.forced_prefix) + request.choices.prefix,
        )

    def _read(
        self,
        request: SentenceRequest,
        stream: Stream,
        attempt: Attempt,
        detector: RepetitionDetector,
        stable_text: StableTextStream | None,
    ) -> Iterator[str | Pending]:
        """Read a generation into `attempt`, to its end or until a loop is detected."""
        begun = tuple(attempt.tokens)
        with stream:
            for event in events_of(stream):
                if isinstance(event, Pending):
                    yield event
                    continue
                for token, logprob in zip(event.tokens, event.logprobs, strict=True):
                    attempt.tokens.append(token)
                    attempt.logprobs.append(logprob)
                    if token not in self.defaults.eos_ids and detector.push(token):
                        attempt.usable_tokens = detector.cut
                        return
                if stable_text is not None and (
                    text := stable_text.push(attempt.tokens[: detector.settled])
                ):
                    yield text
                attempt.finished = event.reason is FinishReason.EOS or (
                    self.defaults.may_end_by_length and event.reason is FinishReason.LENGTH
                )
            if request.choices.n_best > 1:
                attempt.hypotheses = [
                    (each.score, (*begun, *each.tokens)) for each in stream.result().hypotheses
                ]
        attempt.usable_tokens = len(attempt.tokens)


class StableTextStream:
    """The final text of a growing translation.

    A full stop at the end is held back until more text follows: it may be removed, because the
    source has none.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._detokenizer = StreamingDetokenizer(tokenizer.decode)
        self._tokens = 0
        self._text = ""
        self._sent = 0

    @property
    def shown(self) -> int:
        """The number of tokens pushed; 0 while they have no visible text."""
        return self._tokens if self._text else 0

    def push(self, tokens: Sequence[int]) -> str:
        """The text that became final.

        Args:
            tokens: All tokens so far that cannot be part of a loop.
        """
        new = tokens[self._tokens :]
        self._tokens += len(new)
        if new:
            self._text += self._detokenizer.push(new).translate(_LINE_BREAKS)
        return self._unsent(self._text.removesuffix("."))

    def finish(self, text: str) -> str:
        """What the text of the complete sentence has beyond what was returned before."""
        return self._unsent(text)

    def _unsent(self, text: str) -> str:
        new = text[self._sent :]
        self._sent += len(new)
        return new
