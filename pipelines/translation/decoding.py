"""From an encoded sentence to its translation: one generation, watched while it runs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from pipelines.engine import (
    FinishReason,
    GenerationOptions,
    Memory,
    Model,
    Priority,
    Request,
    Rule,
    Stream,
)
from pipelines.translation.generation import GenerationDefaults
from pipelines.translation.guard import LoopWatch, length_cap
from pipelines.translation.results import SentenceTranslation
from pipelines.translation.tokenizer import IncrementalDecoder, Tokenizer

__all__ = ["Attempt", "Job", "SentenceDecoder", "Speaker"]


@dataclass
class Job:
    """A sentence on its way.

    before: white space in front. whole: on the last job of a text, all of that text.
    ids: source ids, target code and eos included; empty when there is nothing to translate.
    code: the target language that the ids start with. warnings: known before the decoding.
    """

    source: str
    before: str = ""
    whole: str | None = None
    ids: Sequence[int] = ()
    code: str | None = None
    priority: Priority = Priority.INTERACTIVE
    warnings: tuple[str, ...] = ()
    memory: Memory | None = None
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
    """Decodes jobs of one model, greedily."""

    def __init__(self, model: Model, tokenizer: Tokenizer, defaults: GenerationDefaults) -> None:
        self.model, self.tokenizer, self.defaults = model, tokenizer, defaults

    def submit(self, job: Job, memory: Memory) -> None:
        """Start a job whose source has been encoded."""
        job.memory = memory
        job.stream = self._start(job, (), ())

    def first(self, job: Job, speaker: Speaker | None) -> Generator[str, None, Attempt]:
        """Read a submitted job's generation. With a speaker, yields text as it becomes certain."""
        assert job.stream is not None, "submit the job first"
        attempt = Attempt()
        yield from self._follow(job.stream, attempt, LoopWatch(job.ids), speaker)
        return attempt

    def again(self, job: Job, rules: tuple[Rule, ...], shown: Attempt) -> Attempt:
        """Another generation under more rules, going on from what was shown already."""
        attempt, watch = Attempt([*shown.tokens], [*shown.logprobs]), LoopWatch(job.ids)
        for token in shown.tokens:
            watch.push(token)
        for _ in self._follow(self._start(job, shown.tokens, rules), attempt, watch, None):
            pass
        return attempt

    def verdict(self, job: Job, attempt: Attempt) -> SentenceTranslation | None:
        """The translation, when there is nothing wrong with it."""
        result = self.result(job, attempt)
        return result if attempt.ended and result.text else None

    def result(self, job: Job, attempt: Attempt) -> SentenceTranslation:
        """What an attempt says."""
        text = self.tokenizer.decode(attempt.tokens)
        average = sum(attempt.logprobs) / max(1, len(attempt.logprobs))
        return SentenceTranslation(job.source, text, tuple(attempt.tokens), average)

    def _start(self, job: Job, shown: Sequence[int], rules: tuple[Rule, ...]) -> Stream:
        assert job.memory is not None
        cap = length_cap(len(job.ids), self.defaults.longest)
        options = GenerationOptions(
            max_new_tokens=max(0, cap - len(shown)),
            eos_ids=self.defaults.eos_ids,
            rules=(*self.defaults.rules, *rules),
            logprobs=True,
        )
        prompt = (self.defaults.start_id, *shown)
        return self.model.stream(Request(job.memory, prompt, options, priority=job.priority))

    def _follow(
        self, stream: Stream, attempt: Attempt, watch: LoopWatch, speaker: Speaker | None
    ) -> Iterator[str]:
        """Read a generation to its end, or until it loops."""
        with stream:
            for event in stream:
                for token, logprob in zip(event.tokens, event.logprobs, strict=True):
                    attempt.tokens.append(token)
                    attempt.logprobs.append(logprob)
                    if token not in self.defaults.eos_ids and watch.push(token):
                        attempt.sound = watch.cut
                        return
                if speaker is not None and (text := speaker.say(attempt.tokens[: watch.settled])):
                    yield text
                attempt.ended = event.reason is FinishReason.EOS
        attempt.sound = len(attempt.tokens)


class Speaker:
    """Says what of a growing sentence is certain."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decoder = IncrementalDecoder(tokenizer)
        self._tokens = 0
        self._said = False

    @property
    def shown(self) -> int:
        """How many tokens have been said, 0 while they made no visible text."""
        return self._tokens if self._said else 0

    def say(self, tokens: Sequence[int]) -> str:
        """The text that a sentence of these tokens adds to what was said before."""
        new = tokens[self._tokens :]
        self._tokens += len(new)
        text = self._decoder.push(new) if new else ""
        self._said = self._said or bool(text)
        return text

    def rest(self, tokens: Sequence[int]) -> str:
        """As `say`, for the complete sentence."""
        return self.say(tokens) + self._decoder.finish()
