"""A loaded Whisper model with its tokenizer and capabilities."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np
from torch import Tensor

from pipelines.asr.audio.arrays import Samples
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.features import FRAMES_PER_SECOND, ChunkFeatures, FileFeatures
from pipelines.asr.batched import Spoken
from pipelines.asr.capabilities import Capabilities, heads_for_words, read_generation_config
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.sequential import DecodeTask, decode_windows
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import WindowDecoder
from pipelines.asr.word_timestamps import WordAligner
from pipelines.engine import (
    Drafting,
    EncodedSource,
    Engine,
    LoadedModel,
    SourceHandle,
    load_draft_model,
)
from pipelines.errors import CheckpointError, ModelError, NumericalError, OptionError


class Recognizer:
    """A loaded Whisper model: detects languages, and builds what decodes windows and recordings.

    It keeps no state between calls, so several threads can share it.

    Attributes:
        engine: The engine that computes.
        model: The model, loaded in `engine`.
        tokenizer: The vocabulary of the model's folder.
        capabilities: Languages and tasks that the model was trained for.
        drafting: Encodes windows, and drafts for their greedy decoding.
        alignment_heads: (decoder layer, head) pairs whose attention follows the speech.
        window_frames: Length of the model's input window in frames of 10 ms.
    """

    chunks_only = False

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
            CheckpointError: A folder is incomplete or damaged.
            ModelError: It holds a model of another kind, or the draft model another vocabulary.
        """
        self.engine = engine
        self.model = engine.load(folder)
        architecture = self.model.architecture
        if architecture.source != "audio":
            raise ModelError(
                f"{name} is a {architecture.family} model, which translates text; "
                "speech recognition needs a Whisper model"
            )
        self.tokenizer = WhisperTokenizer(folder)
        special = self.tokenizer.special
        if special.timestamp_begin >= architecture.vocab_size:
            raise CheckpointError(
                f"{folder}: tokenizer and weights do not belong together: the first timestamp is "
                f"token {special.timestamp_begin} of {architecture.vocab_size}"
            )
        config = read_generation_config(folder)
        self.capabilities = Capabilities.of(name, architecture, special, config)
        self.window_frames = 2 * architecture.max_source_positions
        self._default_suppressed = tuple(config.get("suppress_tokens") or ())
        try:
            self.alignment_heads = heads_for_words(architecture, config)
        except TypeError as error:
            path = folder / "generation_config.json"
            raise CheckpointError(f"{path} is invalid: {error}") from error
        self.drafting = Drafting(
            self.model, None if draft_folder is None else self._draft_model(draft_folder), ngrams
        )

    def _draft_model(self, folder: Path) -> LoadedModel:
        """The draft model, which has to mean the same by each id."""
        tokenizer = WhisperTokenizer(folder)
        if not tokenizer.has_same_vocabulary(self.tokenizer):
            raise ModelError(
                f"{folder.name} cannot draft for {self.capabilities.name}: it has another "
                "vocabulary; choose a smaller Whisper model of the same version"
            )
        return load_draft_model(self.engine, folder)

    @property
    def window_s(self) -> float:
        """Length of the model's input window in seconds."""
        return self.window_frames / FRAMES_PER_SECOND

    def check(self, options: TranscribeOptions) -> None:
        """Check that the model can do what the options request.

        Raises:
            UnsupportedTask: The model lacks the language or the task.
            OptionError: `suppress_tokens` or `initial_prompt` holds an id outside the vocabulary,
                or `suppress_tokens` one that a forced phrase needs.
        """
        self.capabilities.check(options)
        vocab_size = self.model.architecture.vocab_size
        prompt = options.initial_prompt
        for name, ids, lowest in (
            ("suppress_tokens", options.suppress_tokens, -1),
            ("initial_prompt", prompt if isinstance(prompt, tuple) else (), 0),
        ):
            if outside := [i for i in ids if not lowest <= i < vocab_size]:
                raise OptionError(
                    f"{name}: {outside[0]} is no token of {self.capabilities.name}, "
                    f"whose ids end at {vocab_size - 1}"
                )
        suppressed = set(self.suppressed_tokens(options)) if options.forced_phrases else set()
        for phrase in options.forced_phrases:
            if suppressed.intersection(self.text_ids(phrase)):
                raise OptionError(
                    f"forced_phrases: {phrase!r} has symbols that suppress_tokens forbids"
                )

    def given_language(self, options: TranscribeOptions) -> str | None:
        """The language code of the options or of an English-only model. None: to be detected."""
        return options.language if self.capabilities.multilingual else "en"

    def language_probs(
        self, window: Tensor | EncodedSource, among: Collection[str] = ()
    ) -> dict[str, float]:
        """Detect the language of a window.

        Args:
            window: Log-mel spectrogram [mels, frames], or the encoded window.
            among: Codes of the languages that may be spoken; empty: all of the model.

        Returns:
            Language code → probability, most probable first.

        Raises:
            NumericalError: The model computed NaN or infinity.
        """
        if not self.capabilities.multilingual:
            return {"en": 1.0}
        encoded = window if isinstance(window, EncodedSource) else self.model.encode([window])[0]
        special = self.tokenizer.special
        codes = [code for code in special.languages if not among or code in among]
        ids = [special.languages[code] for code in codes]
        probs = self.model.score(encoded, [special.sot])[0, ids].softmax(-1).tolist()
        if not math.isfinite(sum(probs)):
            raise NumericalError(
                f"the language could not be detected: {self.capabilities.name} computed NaN: its "
                "numbers overflow in this compute type, or its weights are damaged; try compute "
                "type float32; if that fails too, download the model again"
            )
        pairs = zip(codes, probs, strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    def detect_language(
        self, windows: Iterable[Tensor | EncodedSource], options: TranscribeOptions
    ) -> tuple[str, float, dict[str, float]]:
        """Detect the language of several windows, as faster-whisper does: the first that is certain
        enough decides, else most of them.

        Returns:
            Language code, its highest probability, and all probabilities of the last window.
        """
        votes: dict[str, list[float]] = {}
        for window in windows:
            probs = self.language_probs(window, options.languages)
            language, probability = next(iter(probs.items()))
            votes.setdefault(language, []).append(probability)
            if probability > options.language_detection_threshold:
                return language, probability, probs
        language = max(votes, key=lambda code: len(votes[code]))
        return language, max(votes[language]), probs

    def language_of_chunks(
        self, chunks: Iterator[Chunk], options: TranscribeOptions
    ) -> tuple[Spoken, Iterator[Chunk]]:
        """Return the language, given or detected in the first chunks, and all chunks."""
        language = self.given_language(options)
        if language is not None:
            return Spoken(language), chunks
        first = list(islice(chunks, options.language_detection_segments))
        sources = {}
        for chunk in first or [Chunk(0, 0, 0, np.zeros(0, np.float32), 1)]:
            window, _ = self.chunk_features(chunk).window(chunk.start_frame)
            sources[chunk.number] = self.drafting.source(window)
        windows = (source.encoded for source in sources.values())
        return Spoken(*self.detect_language(windows, options), sources), chain(first, chunks)

    def top_language(self, encoded: EncodedSource, among: Collection[str]) -> str:
        """Return the code of the most probable language of an encoded window."""
        return next(iter(self.language_probs(encoded, among)))

    def window_decoder(self, language: str, options: TranscribeOptions) -> WindowDecoder:
        """The decoder of single windows for one language, task and set of options."""
        special, architecture = self.tokenizer.special, self.model.architecture
        sot_sequence = self._sot_sequence(language, options)
        if options.without_timestamps:
            sot_sequence.append(special.no_timestamps)
        return WindowDecoder(
            self.engine,
            self.drafting,
            self.tokenizer,
            options,
            sot_sequence=sot_sequence,
            suppressed=self.suppressed_tokens(options),
            max_positions=architecture.max_target_positions,
            last_timestamp=self._last_timestamp,
            alignment_heads=self.alignment_heads,
        )

    def decode_chunk(
        self,
        chunk: Chunk,
        language: str,
        options: TranscribeOptions,
        first_window: SourceHandle | None = None,
    ) -> DecodeTask:
        """Return the task that decodes a chunk, as SpeechModel.decode_chunk."""
        features = self.chunk_features(chunk)
        return decode_windows(
            self, features, language, options, chunk=chunk, first_window=first_window
        )

    def window_source(self, window: Tensor, options: TranscribeOptions) -> SourceHandle:
        """Return a log-mel window [mels, frames] as a source of the model."""
        return self.drafting.source(window, options.priority)

    def live_source(self, samples: Samples, window_s: float) -> Tensor:
        """The log-mel window of a live buffer, with silence after it up to `window_s`."""
        frames = round(window_s * FRAMES_PER_SECOND)
        mel, _ = FileFeatures(samples, self.model.architecture.num_mel_bins, frames).window(0)
        return mel

    def chunk_features(self, chunk: Chunk) -> ChunkFeatures:
        """The log-mel windows of a chunk."""
        return ChunkFeatures(
            chunk.samples,
            chunk.offset,
            chunk.start_frame,
            chunk.end_frame,
            self.model.architecture.num_mel_bins,
            self.window_frames,
            # Shorter windows than of 30 s are not worth it, and a GPU encodes equal ones together.
            follow=self.model.device == "cpu" and self.window_s >= 30,
        )

    def text_ids(self, text: str | tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the tokens of a text that the user gave, as openai-whisper encodes it."""
        if isinstance(text, tuple):
            return text
        return () if text is None else tuple(self.tokenizer.encode(" " + text.strip()))

    def suppressed_tokens(self, options: TranscribeOptions) -> list[int]:
        """Ids that are never generated, sorted: those of the options, control tokens, timestamps
        beyond the window and ids without a token.

        In `options.suppress_tokens`, -1 stands for the list in the model's generation_config.json,
        or for openai-whisper's non-speech tokens where it has none.
        """
        ids = set(options.suppress_tokens)
        if -1 in ids:
            ids = ids - {-1} | set(self._default_suppressed or self.tokenizer.non_speech)
        ids.update(self.tokenizer.special.control)
        ids.update(range(self._last_timestamp + 1, self.model.architecture.vocab_size))
        return sorted(ids)

    @property
    def _last_timestamp(self) -> int:
        """Id of the timestamp at the end of the window."""
        return self.tokenizer.special.timestamp_begin + self.model.architecture.max_source_positions

    def word_aligner(self, language: str, options: TranscribeOptions) -> WordAligner | None:
        """Return what computes the times of words; None without word timestamps."""
        if not options.word_timestamps:
            return None

        def attend(encoded: EncodedSource, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
            return self.model.score_with_attention(encoded, tokens, self.alignment_heads)

        return WordAligner(
            attend,
            self.tokenizer,
            sot_sequence=self._sot_sequence(language, options),
            language=language,
            prepended=options.prepend_punctuations,
            appended=options.append_punctuations,
        )

    def _sot_sequence(self, language: str, options: TranscribeOptions) -> list[int]:
        """Start of transcript, with language and task for multilingual models."""
        special = self.tokenizer.special
        if not self.capabilities.multilingual:
            return [special.sot]
        task = special.translate if options.task == "translate" else special.transcribe
        assert task is not None, "Capabilities.check has verified the task"
        return [special.sot, special.languages[language], task]
