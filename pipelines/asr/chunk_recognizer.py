"""Recognition with models without timestamps: Moonshine, Speech2Text, SpeechT5.

They know no languages or prompts either: a recording is cut at pauses, and each chunk becomes one
segment. Moonshine is native; the others are run by transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.batched import Spoken
from pipelines.asr.capabilities import Capabilities
from pipelines.asr.fallback import compression_ratio
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.plain_decoder import PlainDecoder
from pipelines.asr.plain_tokenizer import PlainTokenizer, TransformersTokenizer
from pipelines.asr.results import Segment, SegmentDone, TextDelta
from pipelines.asr.sequential import DecodeTask
from pipelines.asr.sound_input import RawSound, TransformersFeatures
from pipelines.engine import (
    Drafting,
    EncodedSource,
    Engine,
    GenerationOptions,
    LogitFilter,
    NoRepeatNgram,
    Pending,
    RepetitionPenalty,
    Request,
    SourceHandle,
    SuppressTokens,
    events_of,
    load_draft_model,
)
from pipelines.errors import CheckpointError, ModelError, OptionError, UnsupportedTask
from pipelines.json_files import read_model_json
from pipelines.languages import language_in_name
from pipelines.text import StreamingDetokenizer

_WINDOW_S = 30.0  # longest chunk: the models were trained with less
# Tokens at most for a second of speech: random text would go on to the model's last position.
_TOKENS_PER_S = 25.0  # characters, of models that spell
# By its authors, against loops: of the English models, and of others.
_MOONSHINE_TOKENS_PER_S = {True: 6.5, False: 13.0}
_MIN_TOKENS = 10
# What these models cannot do: option → its value where it asks for nothing.
_UNSUPPORTED = {
    "forced_phrases": (),
    "hotwords": None,
    "initial_prompt": None,
    "multilingual": False,
    "n_best": 1,
    "prefix": None,
    "suppress_phrases": (),
    "token_logprobs": False,
    "word_timestamps": False,
}


class ChunkRecognizer:
    """A loaded model with its tokenizer and feature extractor, as a SpeechModel.

    Attributes:
        engine: The engine that computes.
        model: The model, loaded in `engine`.
        capabilities: One language, by the name of the model; English if it names none.
        drafting: Encodes chunks, and drafts for their greedy decoding.
        window_s: The longest chunk in seconds: one whose text the model can write to its end.
    """

    chunks_only = True

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        name: str,
        *,
        draft_folder: Path | None = None,
        ngrams: bool = False,
    ) -> None:
        """
        Raises:
            CheckpointError: The folder is incomplete or damaged.
            ModelError: It holds a model of another kind, or takes sound at another rate.
        """
        self.engine, self.model = engine, engine.load(folder)
        source = self.model.architecture.source
        if source not in ("waveform", "other"):
            raise ModelError(
                f"{name} takes text, not sound; speech recognition needs another model"
            )
        self._plain_tokenizer: PlainTokenizer | None = None
        self._features: RawSound | TransformersFeatures
        self._tokenizer: PlainTokenizer | TransformersTokenizer
        if source == "waveform":
            self._features = RawSound(folder, name)
            self._tokenizer = self._plain_tokenizer = PlainTokenizer(folder)
        else:
            self._features = TransformersFeatures(folder, name)
            self._tokenizer = TransformersTokenizer(folder)
        if len(self._tokenizer) > self.model.architecture.vocab_size:
            raise CheckpointError(f"{folder}: tokenizer and weights do not belong together")
        language = language_in_name(name) or "en"
        moonshine = read_model_json(folder / "config.json").get("model_type") == "moonshine"
        self._tokens_per_s = (
            _MOONSHINE_TOKENS_PER_S[language == "en"] if moonshine else _TOKENS_PER_S
        )
        positions = self.model.architecture.max_target_positions
        self.window_s = min(_WINDOW_S, (positions - 1) / self._tokens_per_s)
        self.capabilities = Capabilities(name, False, False, (language,), word_timestamps=False)
        draft_model = None if draft_folder is None else load_draft_model(engine, draft_folder)
        self.drafting = Drafting(self.model, draft_model, ngrams)

    @property
    def tokenizer(self) -> PlainTokenizer:
        """The vocabulary, for live captions.

        Raises:
            UnsupportedTask: The model is run by transformers, and transcribes recordings only.
        """
        if self._plain_tokenizer is None:
            raise UnsupportedTask(
                f"{self.capabilities.name} is run by transformers and transcribes recordings "
                "only; a Whisper model does the rest"
            )
        return self._plain_tokenizer

    def check(self, options: TranscribeOptions) -> None:
        """Check that the model can do what the options request.

        Raises:
            UnsupportedTask: It lacks the task or an option.
            OptionError: `suppress_tokens` holds an id outside the vocabulary.
        """
        name = self.capabilities.name
        if options.task == "translate":
            raise UnsupportedTask(f"{name} only transcribes; translate its text instead")
        wanted = [key for key, none in _UNSUPPORTED.items() if getattr(options, key) != none]
        if wanted:
            raise UnsupportedTask(
                f"{name} is a model without {wanted[0].replace('_', ' ')}; a Whisper model has it"
            )

        vocab_size = self.model.architecture.vocab_size
        if outside := [i for i in options.suppress_tokens if not -1 <= i < vocab_size]:
            raise OptionError(
                f"suppress_tokens: {outside[0]} is no token of {name}, whose ids end at "
                f"{vocab_size - 1}"
            )

    def language_of_chunks(
        self, chunks: Iterator[Chunk], options: TranscribeOptions
    ) -> tuple[Spoken, Iterator[Chunk]]:
        """Return the language of the options, which the model cannot check, or the model's."""
        return Spoken(options.language or self.capabilities.languages[0]), chunks

    def decode_chunk(
        self,
        chunk: Chunk,
        language: str,
        options: TranscribeOptions,
        first_window: SourceHandle | None = None,
    ) -> DecodeTask:
        """Return the task that decodes a chunk, as SpeechModel.decode_chunk; one segment."""
        start, end = chunk.start_frame / FRAMES_PER_SECOND, chunk.end_frame / FRAMES_PER_SECOND
        first = round(start * SAMPLE_RATE) - chunk.offset
        samples = chunk.samples[max(0, first) : round(end * SAMPLE_RATE) - chunk.offset]
        source = self.drafting.source(self._features(samples), options.priority)
        yield Pending(source)
        encoded = source.encoded
        generation = self._options(options, end - start)
        drafter = self.drafting.drafter_for(encoded, generation)
        architecture = self.model.architecture
        request = Request(
            encoded,
            (architecture.start_id,),
            generation,
            priority=options.priority,
            drafter=drafter,
        )
        tokens: list[int] = []
        logprobs: list[float] = []
        piecewise = self._plain_tokenizer is not None
        detokenizer, begins = StreamingDetokenizer(self._tokenizer.text, piecewise), True
        with self.model.stream(request) as stream:
            for event in events_of(stream):
                if isinstance(event, Pending):
                    yield event
                    continue
                tokens += event.tokens
                logprobs += event.logprobs
                if delta := detokenizer.push(event.tokens):
                    yield TextDelta(f" {delta.lstrip()}" if begins else delta)
                    begins = False
        text = self._text(tokens)
        yield SegmentDone(
            Segment(
                id=0,
                seek=chunk.start_frame,
                start=start,
                end=end,
                text=f" {text}" if text else "",
                tokens=tuple(tokens),
                temperature=0.0,
                avg_logprob=sum(logprobs) / max(1, len(logprobs)),
                compression_ratio=compression_ratio(text),
                no_speech_prob=0.0,
            )
        )

    def live_source(self, samples: Samples, window_s: float) -> Tensor:
        """What the encoder takes of a live buffer: all of it, without padding to `window_s`."""
        return self._features(samples)

    def language_probs(self, encoded: EncodedSource) -> dict[str, float]:
        """The model's language."""
        return {self.capabilities.languages[0]: 1.0}

    def window_decoder(self, language: str, options: TranscribeOptions) -> PlainDecoder:
        """The decoder of live buffers. Raises UnsupportedTask as `tokenizer`."""
        return PlainDecoder(
            self.model,
            self.drafting,
            self.tokenizer,
            logit_filters=self._filters(options),
            compression_ratio_threshold=options.compression_ratio_threshold,
            tokens_per_s=self._tokens_per_s,
        )

    def _options(self, options: TranscribeOptions, seconds: float) -> GenerationOptions:
        architecture = self.model.architecture
        limit = max(_MIN_TOKENS, round(seconds * self._tokens_per_s))
        limit = min(limit, options.max_new_tokens or limit)
        temperature = options.temperatures[0]  # no thresholds that the next one could follow on
        return GenerationOptions(
            max_new_tokens=min(limit, architecture.max_target_positions - 1),
            eos_ids=architecture.eos_ids,
            temperature=temperature,
            best_of=(options.best_of or 1) if temperature else 1,
            beam_size=1 if temperature else options.beam_size or 1,
            patience=options.patience or 1.0,
            length_penalty=options.length_penalty,
            seed=options.seed,
            logit_filters=self._filters(options),
            logprobs=True,
        )

    def _filters(self, options: TranscribeOptions) -> tuple[LogitFilter, ...]:
        filters: list[LogitFilter] = []
        if suppressed := tuple(i for i in options.suppress_tokens if i >= 0):
            filters.append(SuppressTokens(suppressed))
        if options.repetition_penalty != 1:
            filters.append(RepetitionPenalty(options.repetition_penalty))
        if options.no_repeat_ngram_size:
            filters.append(NoRepeatNgram(options.no_repeat_ngram_size))
        return (*filters, *options.logit_filters)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.text(ids).strip()
