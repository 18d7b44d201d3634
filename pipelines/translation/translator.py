"""Translation of texts: the public interface.

A text passes through `preprocess.py` (sentences and source ids), `fallback.py` and `decode.py` (the
task of one sentence, interleaved with others by the engine), and `assembler.py` (the text again).
Each layer is a lazy generator over the one before; closing the outermost cancels all.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

from pipelines.engine import (
    BadWords,
    Drafting,
    DraftReport,
    Engine,
    ForcedPhrases,
    LogitFilter,
    NoRepeatNgram,
    RepetitionPenalty,
    Task,
    TaskLimits,
    interleave,
    load_draft_model,
)
from pipelines.errors import (
    EngineError,
    ModelError,
    ModelNotFound,
    NumericalError,
    OptionError,
    UnsupportedTask,
)
from pipelines.families import FAMILIES
from pipelines.hub import (
    ResolvedModel,
    choose_default,
    folder_or_pull,
    pull,
    translator_to_download,
)
from pipelines.languages import PIVOT, language_code, pair_in_name, two_letter
from pipelines.loading import device_name
from pipelines.options import with_fields
from pipelines.translation.alignment import word_probabilities
from pipelines.translation.assembler import TextAssembler, excerpt
from pipelines.translation.decode import (
    SentenceChoices,
    SentenceDecoder,
    SentenceRequest,
    TextEnd,
)
from pipelines.translation.fallback import translate_sentence
from pipelines.translation.generation_config import read_generation_defaults
from pipelines.translation.options import TranslateOptions
from pipelines.translation.pair import PairTranslator
from pipelines.translation.preprocess import Preprocessor, SourceLanguages, TargetLanguages
from pipelines.translation.results import (
    SentenceDone,
    SentenceTranslation,
    Span,
    Translation,
    TranslationDelta,
    TranslationDone,
    TranslationEvent,
)
from pipelines.translation.tokenizers.auto import have_same_vocabulary, open_tokenizer
from pipelines.translation.tokenizers.marian import target_vocabulary_ids

# Of models that transformers runs: some state no limit, and were trained with this length.
_TRAINED_POSITIONS = 512
# Some hundred sentences ahead, but few at first: the first sentence must not wait for hundreds.
_LIMITS = TaskLimits(parallel=256, ahead=256, first_parallel=8, first_ahead=32, tokens=6144)


class Translator:
    """A translation model, usable from any thread.

        with Translator("demo-en-de") as translator:
            print(translator.translate("Where is the station?").text)

    Args:
        model: A folder, or a name that pipelines.hub resolves.
        engine: An engine to share. Without one, a new one is made of `device`, `compute_type` and
            `threads`, and closed with the translator.
        device: "auto", "cpu", "cuda", "cuda:N".
        compute_type: "float32", "bfloat16", "float16", "int8" or "auto".
        threads: CPU threads, or "auto".
        name: What messages call the model. It may name the languages, as in opus-mt-en-de.
        source: The default of the option source_language, for models that require it.
        shortlist: Generate only tokens of the target language's own vocabulary, for models that
            have one: less to compute for each token.
        download: Fetch a model that is not on this machine from the Hugging Face hub.
        draft_model: A smaller model of the same vocabulary that proposes tokens for greedy
            decoding. The text is the same; drafting pauses while it loses time.
        draft: "ngram" proposes what followed the same words before, in all that this object has
            translated.
        device_index: The number of the GPU, for the device "cuda".
        revision: Branch, tag or commit of the model's repository.
        cache_dir: Folder in which models are looked for and stored. None: the Hugging Face cache.
        token: Token of the hub. True or None: the machine's. False: none.

    Attributes:
        engine: The engine.
        model: The loaded model.
        tokenizer: Its tokenizer.
        name, source, shortlist: See above.
        source_language, target_language: By the model's files or its name, or None.
        source_codes: The values of the option source_language, for models that require it;
            else empty.
        target_codes: The values of the option target, for models with several; else empty.

    Raises:
        ModelNotFound: The model is not on this machine, and was not fetched.
        CheckpointError: The folder is incomplete or damaged.
        UnsupportedTask: The model is not one for translation.
        ModelError: `draft_model` has another vocabulary.
        OptionError: An option is out of its range, or the model has no shortlist.
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
        download: bool = False,
        draft_model: str | PathLike[str] | None = None,
        draft: Literal["ngram"] | None = None,
        device_index: int | Sequence[int] = 0,
        revision: str | None = None,
        cache_dir: str | PathLike[str] | None = None,
        token: str | bool | None = None,
    ) -> None:
        if draft not in (None, "ngram"):
            raise OptionError(f"draft must be 'ngram' or None, not {draft!r}")
        if draft is not None and draft_model is not None:
            raise OptionError("draft with a model or with n-grams, not with both")
        folder = folder_or_pull(
            model, download, revision=revision, cache_dir=cache_dir, token=token
        )
        draft_folder = None
        if draft_model is not None:
            draft_folder = folder_or_pull(draft_model, download, cache_dir=cache_dir, token=token)
        self._closed = False
        self._owns_engine = engine is None
        if engine is None:
            engine = Engine(device_name(device, device_index), compute_type, threads)
        self.engine = engine
        self.name, self.source, self.shortlist = Path(name or model).name, source, shortlist
        try:
            self._load(folder, draft_folder, ngrams=draft == "ngram")
        except BaseException:
            self.close()
            raise

    @classmethod
    def for_pair(
        cls,
        source: str,
        target: str,
        *,
        engine: Engine | None = None,
        device: str = "auto",
        device_index: int | Sequence[int] = 0,
        compute_type: str = "auto",
        threads: int | Literal["auto"] = "auto",
        download: bool = False,
    ) -> PairTranslator:
        """Open the best translator on this machine for two languages: one model, or two of which
        the first translates into English.

            with Translator.for_pair("de", "fr") as translator:
                print(translator.translate("Wo ist der Bahnhof?").text)

        Args:
            source: Code or English name of the source language.
            target: Code or English name of the target language.
            download: Download what is not on this machine. The other arguments are as above.

        Raises:
            ModelNotFound: No model translates the pair; `download` of the error is one that does.
            UnsupportedTask: The languages are equal, or one is not a language code.
        """
        source, target = _code_of(source), _code_of(target)
        try:
            models = [_best_model(source, target, download)]
        except ModelNotFound:
            if PIVOT in (source, target):
                raise
            try:
                pairs = [(source, PIVOT), (PIVOT, target)]
                models = [_best_model(*pair, download) for pair in pairs]
            except (ModelNotFound, UnsupportedTask):
                models = []
            if not models:
                raise  # the model that translates directly is the better one to download
        own = None
        if engine is None:
            engine = own = Engine(device_name(device, device_index), compute_type, threads)
        with ExitStack() as opened:
            if own is not None:
                opened.callback(own.close)
            translators = [
                opened.enter_context(cls(each.folder, name=each.name, engine=engine))
                for each in models
            ]
            return PairTranslator(translators, source, target, opened.pop_all().close)

    def _load(self, folder: Path, draft_folder: Path | None, ngrams: bool) -> None:
        shortlist = target_vocabulary_ids(folder) if self.shortlist else None
        self.model = self.engine.load(folder, shortlist)
        architecture = self.model.architecture
        defaults = read_generation_defaults(folder, architecture)
        self.tokenizer = open_tokenizer(folder, defaults, self.name)
        named = pair_in_name(self.name) or pair_in_name(folder.name) or (None, None)
        self.source_language = self.tokenizer.source_language or named[0]
        target = self.tokenizer.target_language or named[1]
        family = FAMILIES.get(architecture.family)
        if family is not None and family.whole_lines and target is None:
            defaults = read_generation_defaults(folder, architecture, whole_lines=True)
        self.source_codes = self.tokenizer.source_codes
        self.target_codes = self.tokenizer.target_codes
        multilingual = bool(self.source_codes)
        self.target_language = two_letter(target) if multilingual else target
        self._sources = SourceLanguages(
            self.name, self.source_codes, self.source or self.source_language
        )
        self._targets = TargetLanguages(
            self.name,
            self.target_codes,
            target if self.target_codes else self.target_language,
            match_variants=multilingual,
        )
        draft_model = None
        if draft_folder is not None:
            if not have_same_vocabulary(folder, draft_folder):
                raise ModelError(
                    f"{draft_folder.name} cannot draft for {self.name}: it has another vocabulary; "
                    "choose a smaller model with the same vocabulary files"
                )
            draft_model = load_draft_model(self.engine, draft_folder, shortlist)
        drafting = Drafting(self.model, draft_model, ngrams)
        self._decoder = SentenceDecoder(self.model, self.tokenizer, defaults, drafting)
        positions = architecture.max_source_positions
        if architecture.family == "other":
            positions = min(positions, _TRAINED_POSITIONS)
        limit = self.tokenizer.model_max_length or positions
        # Half of the positions, so that a translation of twice the length still fits.
        room = positions if defaults.whole_lines else positions // 2
        self._max_source_tokens = max(2, min(room, limit))

    def close(self) -> None:
        """End the translator. The engine is closed if the translator made it."""
        self._closed = True
        if self._owns_engine:
            self.engine.close()

    @property
    def draft_report(self) -> DraftReport | None:
        """How many tokens were drafted and accepted, and the time saved; None without drafts."""
        drafting = self._decoder.drafting
        return drafting.report if drafting.active else None

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # A str is a Sequence[str], too: the first overload that fits is the one meant.
    @overload
    def translate(
        self,
        texts: str,
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> list[Translation]: ...

    def translate(
        self,
        texts: str | Sequence[str],
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Translation | list[Translation]:
        """Translate one text, or several.

        Args:
            texts: A string, or a sequence of strings.
            options: How to translate.
            **overrides: Fields of `options` that differ.

        Returns:
            One translation for a string; for a sequence a list in the same order.

        Raises:
            OptionError: An option is out of its range, or a language has to be named.
            UnsupportedTask: The model lacks a language.
            NumericalError: The model computed NaN or infinity for a sentence.
            EngineError: The generation failed, or the translator is closed.
        """
        if isinstance(texts, str):
            (translation,) = self.translate_lines([texts], options, **overrides)
            return translation
        return list(self.translate_lines(texts, options, **overrides))

    def translate_lines(
        self,
        lines: Iterable[str | None],
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Generator[Translation, None, None]:
        """Translate any number of texts, each as soon as it is complete.

        Args:
            lines: May be endless: it is read some hundred sentences ahead at most. An iterator
                that may block (a terminal, a pipe) yields None before it does: all texts before
                are then translated and yielded before the next item is requested.
            options: How to translate.
            **overrides: Fields of `options` that differ.

        Yields:
            The translations in order. Closing the generator cancels the rest.

        Raises:
            OptionError, UnsupportedTask, EngineError: As `translate`; for the options and a closed
                translator at once, for the rest while iterating, after all texts before.
        """
        requests = self._requests(lines, self._preprocessor(options, overrides))
        return _translations(_translation_events(requests, self._decoder, live=False))

    def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Generator[TranslationEvent, None, None]:
        """Translate a text and yield its translation while it is generated.

        Args:
            text: The text.
            options: How to translate.
            **overrides: Fields of `options` that differ.

        Yields:
            For each sentence TranslationDelta events and a SentenceDone; at last TranslationDone.
            The deltas add up to the text of the translation. Closing the generator cancels.

        Raises:
            OptionError, UnsupportedTask, EngineError: As `translate_lines`.
        """
        requests = self._requests([text], self._preprocessor(options, overrides))
        return _translation_events(requests, self._decoder, live=True)

    def retranslate(
        self,
        sentence: str,
        options: TranslateOptions,
        prefix: Sequence[int] = (),
        draft: Sequence[int] = (),
    ) -> tuple[str, tuple[int, ...], str]:
        """Translate an incomplete sentence, again each time that it has grown.

        For display until the sentence is complete: one that exceeds the model is cut.

        Args:
            sentence: The sentence as it is now.
            options: How to translate; greedy, and as one sentence, whatever they say.
            prefix: Target ids that the translation begins with.
            draft: The target ids of the last translation, verified in one pass.

        Returns:
            The text, the target ids of what is translated, without eos, and what is copied before
            it: the text begins with both.
        """
        preprocessor = self._preprocessor(options, {"split_sentences": False})
        assembler, tokens, copied = TextAssembler(), None, ""
        for request in preprocessor.requests(sentence):
            if isinstance(request, TextEnd) or (request.source_ids and tokens is not None):
                break
            text = request.source
            if request.source_ids:
                tokens = self._decoder.retranslate(request, prefix, draft)
                text = self.tokenizer.decode(tokens)
            assembler.open(request.leading_space, request.source)
            assembler.add(text)
            assembler.close(SentenceTranslation(request.source, text))
            if request.source_ids:
                copied = assembler.text.removesuffix(text)
        return assembler.text, tokens or (), copied

    def word_probabilities(self, translation: Translation) -> tuple[tuple[Span, float], ...]:
        """How certain the model is of each word of a translation that it has made.

        Returns:
            The span of each word in `translation.text`, and the mean probability of its tokens;
            not of words that were copied.
        """
        return word_probabilities(translation, self.tokenizer.decode)

    def _preprocessor(
        self, options: TranslateOptions | None, overrides: dict[str, Any]
    ) -> Preprocessor:
        if self._closed:
            raise EngineError(f"this translator of {self.name} is closed; make a new one")
        self.engine.check_process()
        options = with_fields(options or TranslateOptions(), overrides)
        target = None if options.target is None else self._targets.choose(options.target)
        source = self._sources.choose(options.source_language)
        return Preprocessor(
            self.tokenizer,
            self._targets,
            target_language=target,
            source_language=source,
            max_source_tokens=self._max_source_tokens,
            sentence_language=options.source_language or source or self.source_language,
            split_sentences=options.split_sentences,
            whole_lines=self._decoder.defaults.whole_lines,
            priority=options.priority,
            beam_size=options.beam_size,
            word_alignments=options.word_alignments,
            first_choices=self._choices(options, first=True),
            choices=self._choices(options, first=False),
        )

    def _choices(self, options: TranslateOptions, first: bool) -> SentenceChoices:
        """The choices of a text's first sentence, or of the others."""
        encode, filters = self.tokenizer.encode_target, list[LogitFilter]()
        if options.repetition_penalty != 1:
            filters.append(RepetitionPenalty(options.repetition_penalty))
        if options.no_repeat_ngram_size:
            filters.append(NoRepeatNgram(options.no_repeat_ngram_size))
        if options.suppress_phrases:
            filters.append(BadWords(tuple(tuple(encode(p)) for p in options.suppress_phrases)))
        filters += options.logit_filters
        if first and options.forced_phrases:
            phrases = tuple(tuple(encode(phrase)) for phrase in options.forced_phrases)
            filters.append(ForcedPhrases(phrases, self._decoder.defaults.eos_ids))
        prefix = tuple(encode(options.prefix)) if first and options.prefix else ()
        return SentenceChoices(options.n_best, prefix, tuple(filters))

    @staticmethod
    def _requests(
        lines: Iterable[str | None], preprocessor: Preprocessor
    ) -> Iterator[SentenceRequest | TextEnd | None]:
        for line in lines:
            if line is None:
                yield None
            else:
                yield from preprocessor.requests(line)


def _code_of(language: str) -> str:
    """Return the code of a language that may be given by its name. A region or a script stays."""
    try:
        return language_code(language)
    except OptionError:
        code = two_letter(language) or language
        return language if "-" in language or "_" in language else code


def _best_model(source: str, target: str, download: bool) -> ResolvedModel:
    """Return the best model on this machine, or one that is downloaded.

    Raises:
        ModelNotFound: There is none, and none was downloaded.
    """
    try:
        return choose_default("translation", source, target)
    except ModelNotFound:
        name = translator_to_download(source, target)
        if not download or name is None:
            raise
        return pull(name)


def _translations(
    events: Generator[TranslationEvent, None, None],
) -> Generator[Translation, None, None]:
    """The complete texts among events."""
    try:
        for event in events:
            if isinstance(event, TranslationDone):
                yield event.translation
    finally:
        events.close()


def _translation_events(
    requests: Iterable[SentenceRequest | TextEnd | None], decoder: SentenceDecoder, live: bool
) -> Generator[TranslationEvent, None, None]:
    """Yield deltas, complete sentences and complete texts, in order.

    Closing it cancels the rest. With `live`, deltas come as soon as text is final, otherwise in
    whole sentences.

    Raises:
        NumericalError: With the sentence, after all sentences before it.
    """
    tasks = (None if each is None else _sentence_task(decoder, each, live) for each in requests)
    items: Generator[SentenceRequest | str | SentenceTranslation | TextEnd, None, None]
    items = interleave(tasks, _LIMITS)
    assembler = TextAssembler()
    with closing(items):
        for item in items:
            if isinstance(item, SentenceRequest):
                assembler.open(item.leading_space, item.source)
            elif isinstance(item, SentenceTranslation):
                assembler.close(item)
                yield SentenceDone(item.source, item.text)
            elif isinstance(item, TextEnd):
                if item.trailing_space:
                    assembler.add_space(item.trailing_space)
                    yield TranslationDelta(item.trailing_space)
                yield TranslationDone(assembler.finish(item.source, item.word_alignments))
                assembler = TextAssembler()
            elif delta := assembler.add(item):
                yield TranslationDelta(delta)


def _sentence_task(
    decoder: SentenceDecoder, request: SentenceRequest | TextEnd, live: bool
) -> Task[SentenceRequest | str | SentenceTranslation | TextEnd]:
    """Yield the request, its text, its translation, and the end of the text after the last one."""
    if isinstance(request, TextEnd):
        yield request
        return
    yield request
    try:
        yield from translate_sentence(decoder, request, live)
    except NumericalError as error:
        message = f'"{excerpt(request.source)}" could not be translated: {error}'
        raise NumericalError(message) from error
    if request.end is not None:
        yield request.end
