"""Text → text: sentences cut, tokenised, decoded side by side, and put together again."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Literal

from pipelines.engine import Engine
from pipelines.errors import OptionError
from pipelines.hub import folder_of
from pipelines.languages import pair_in_name, two_letter
from pipelines.translation.assembler import TextAssembler
from pipelines.translation.decode import SentenceDecoder, SentenceRequest
from pipelines.translation.events import translation_events
from pipelines.translation.generation_config import read_generation_defaults
from pipelines.translation.preprocess import Preprocessor, SourceLanguages, TargetLanguages
from pipelines.translation.results import (
    SentenceTranslation,
    Translation,
    TranslationDone,
    TranslationEvent,
)
from pipelines.translation.shortlist import target_pieces
from pipelines.translation.tokenizers.auto import open_tokenizer

__all__ = ["TranslateOptions", "Translator"]


@dataclass(frozen=True)
class TranslateOptions:
    """How to translate.

    target: the language to translate into ("fr", "fra", ">>fra<<", "fra_Latn", "fr_XX"), for models
        with several.
        A text may choose its own with a leading ">>fra<<".
    source_language: what the text is in, for models that have to be told; and whose rules find the
        sentences. By default that of the model's source.
    split_sentences: False takes each line as one sentence.
    beam_size: above 1, search with so many beams (slower, and mostly a little better).
    word_alignments: also tell which words of the source each word comes from (one more pass).
    priority: whose work goes first on a shared engine.

    Raises OptionError for values that make no sense.
    """

    target: str | None = None
    source_language: str | None = None
    split_sentences: bool = True
    beam_size: int = 1
    word_alignments: bool = False
    priority: int = 2

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise OptionError(f"beam_size must be 1 or more, not {self.beam_size}")


class Translator:
    """A translation model, ready to use, from any thread.

    model: a folder, or a name that pipelines.hub resolves.
    engine: an engine to share. Without one, a new one is made from device, compute_type
        ("float32", "bfloat16", "float16", "int8", "auto") and threads.
    name: what messages call the model; it may tell the languages, as in opus-mt-en-de.
    source: the language of texts for which the options name none, for models that have to be told.
    shortlist: write only with the pieces of the target language's own vocabulary, for models that
        have one (shortlist.py): less to compute for each token.
    source_language, target_language: what the model's files or its name say, or None.
    source_codes, target_codes: what `source_language` and `target` of the options may be, in
        models that have to be told; else empty.

    Raises ModelNotFound, CheckpointError, UnsupportedTask for a model of another kind, or
    OptionError where there is no shortlist.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        engine: Engine | None = None,
        device: str = "auto",
        compute_type: str = "auto",
        threads: int | Literal["auto"] = "auto",
        name: str | None = None,
        source: str | None = None,
        shortlist: bool = False,
    ) -> None:
        folder = folder_of(model)
        if engine is None:
            engine = Engine(device=device, compute_type=compute_type, threads=threads)
        self.engine = engine
        self.model = engine.load(folder, target_pieces(folder) if shortlist else None)
        self.shortlist = shortlist
        self.name, self.source = Path(name or model).name, source
        architecture = self.model.architecture
        defaults = read_generation_defaults(folder, architecture)
        self.tokenizer = open_tokenizer(folder, architecture.family, defaults, self.name)
        named = pair_in_name(self.name) or pair_in_name(folder.name) or (None, None)
        self.source_language = self.tokenizer.source_language or named[0]
        target = self.tokenizer.target_language or named[1]
        self.source_codes = self.tokenizer.source_codes
        self.target_codes = self.tokenizer.target_codes
        several = bool(self.source_codes)
        self.target_language = two_letter(target) if several else target
        self._sources = SourceLanguages(
            self.name, self.source_codes, source or self.source_language
        )
        stated = target if self.target_codes else self.target_language
        self._targets = TargetLanguages(self.name, self.target_codes, stated, one_each=several)
        self._decoder = SentenceDecoder(self.model, self.tokenizer, defaults)
        # Half of the positions, so that a translation of twice the length still fits.
        positions = architecture.max_source_positions
        self._longest = max(2, min(positions // 2, self.tokenizer.model_max_length or positions))

    def translate(
        self, texts: str | Sequence[str], options: TranslateOptions | None = None
    ) -> list[Translation]:
        """The translations of texts, in order; one text alone gives a list of one."""
        return list(self.translate_lines([texts] if isinstance(texts, str) else texts, options))

    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions | None = None
    ) -> Generator[Translation, None, None]:
        """The translations of any number of texts, in order, each as soon as it is complete.

        `lines` may be endless: it is read at most some hundred sentences ahead. Where reading
        may take long (a terminal, a pipe), let it yield None when nothing is there to be read:
        everything before is then translated and handed out before it is asked again.

        Closing the iterator cancels what is on its way. Raises UnsupportedTask at once for a
        target that the model lacks.
        """
        jobs = self._jobs(lines, self._preparation(options or TranslateOptions()))
        return _finished(translation_events(jobs, self._decoder, live=False))

    def stream(
        self, text: str, options: TranslateOptions | None = None
    ) -> Generator[TranslationEvent, None, None]:
        """The translation of a text while it is made: TextDelta …, SentenceDone, …, Done.

        The deltas add up to the final text. Closing the iterator cancels.
        """
        jobs = self._jobs([text], self._preparation(options or TranslateOptions()))
        return translation_events(jobs, self._decoder, live=True)

    def redecode(
        self,
        sentence: str,
        options: TranslateOptions,
        fixed: Sequence[int] = (),
        draft: Sequence[int] = (),
    ) -> tuple[str, tuple[int, ...]]:
        """The translation of a sentence that is still growing, and its target ids without eos.

        fixed: ids that it begins with. draft: the last translation, verified in one pass.
        Beyond what the model can take in at once it is cut: it is for show, until it is complete.
        """
        options = replace(options, split_sentences=False)
        reply, tokens = TextAssembler(), None
        for job in self._preparation(options).jobs(sentence):
            text = job.source
            if job.ids and tokens is not None:
                break
            if job.ids:
                tokens = self._decoder.redecode(job, fixed, draft)
                text = self.tokenizer.decode(tokens)
            reply.open(job.before, job.source)
            reply.add(text)
            reply.close(SentenceTranslation(job.source, text))
        return reply.text, tokens or ()

    def _preparation(self, options: TranslateOptions) -> Preprocessor:
        target = None if options.target is None else self._targets.choose(options.target)
        origin = self._sources.choose(options.source_language)
        return Preprocessor(
            self.tokenizer,
            self._targets,
            target,
            origin,
            self._longest,
            options.source_language or origin or self.source_language,
            options.split_sentences,
            options.priority,
            options.beam_size,
            options.word_alignments,
        )

    @staticmethod
    def _jobs(
        lines: Iterable[str | None], preparation: Preprocessor
    ) -> Iterator[SentenceRequest | None]:
        for line in lines:
            if line is None:
                yield None
            else:
                yield from preparation.jobs(line)


def _finished(
    stream: Generator[TranslationEvent, None, None],
) -> Generator[Translation, None, None]:
    try:
        for event in stream:
            if isinstance(event, TranslationDone):
                yield event.translation
    finally:
        stream.close()
