"""Recognition with models that transformers runs: Moonshine, Speech2Text, SpeechT5.

They know no timestamps, languages or prompts: a recording is cut at pauses, and each chunk becomes
one segment.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.capabilities import Capabilities
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import Segment, SegmentDone, TextDelta
from pipelines.asr.sequential import DecodeTask
from pipelines.asr.window import compression_ratio
from pipelines.engine import (
    Drafting,
    Engine,
    GenerationOptions,
    LogitFilter,
    NoRepeatNgram,
    Pending,
    RepetitionPenalty,
    Request,
)
from pipelines.errors import CheckpointError, ModelError, UnsupportedTask
from pipelines.hub import read_json
from pipelines.processors import open_feature_extractor, open_text_tokenizer

__all__ = ["WrappedRecognizer"]

_WINDOW_S = 30.0  # longest chunk: the models were trained with less
# Tokens at most for a second of speech: random text would go on to the model's last position.
_TOKENS_PER_S = 25.0  # characters, of models that spell
_MOONSHINE_TOKENS_PER_S = 6.5  # by its authors, against loops
_MIN_TOKENS = 10
_MIN_SAMPLES = SAMPLE_RATE // 10  # shorter sound is padded: the encoders' convolutions need some
_REPLACEMENT = "\ufffd"  # stands for bytes that are not a complete character yet
# What these models cannot do: option → its value where it asks for nothing.
_WITHOUT = {
    "forced_phrases": (),
    "hotwords": None,
    "initial_prompt": None,
    "multilingual": False,
    "n_best": 1,
    "prefix": None,
    "suppress_phrases": (),
    "word_timestamps": False,
}


class WrappedRecognizer:
    """A loaded model with its tokenizer and feature extractor, as `Recognizer` for chunks.

    Attributes:
        engine: The engine that computes.
        model: The model, loaded in `engine`.
        capabilities: One language, by the name of the model; English if it names none.
        drafting: Encodes chunks, and drafts for their greedy decoding.
        window_s: The longest chunk in seconds.
    """

    window_s = _WINDOW_S

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        name: str,
        *,
        draft_folder: Path | None = None,
        ngrams: bool = False,
    ) -> None:
        """Arguments as those of Recognizer.

        Raises:
            CheckpointError: The folder is incomplete or damaged.
            ModelError: It holds a model of another kind, or takes sound at another rate.
        """
        self.engine, self.model = engine, engine.load(folder)
        if self.model.architecture.source != "other":
            raise ModelError(
                f"{name} takes text, not sound; speech recognition needs another model"
            )
        self._extractor = open_feature_extractor(folder)
        rate = getattr(self._extractor, "sampling_rate", None)
        if rate != SAMPLE_RATE:
            raise ModelError(f"{name} takes sound at {rate} Hz; only {SAMPLE_RATE} Hz is possible")
        self._tokenizer = open_text_tokenizer(folder)
        if len(self._tokenizer) > self.model.architecture.vocab_size:
            raise CheckpointError(f"{folder}: tokenizer and weights do not belong together")
        self._special = frozenset(self._tokenizer.all_special_ids)
        moonshine = read_json(folder / "config.json").get("model_type") == "moonshine"
        self._tokens_per_s = _MOONSHINE_TOKENS_PER_S if moonshine else _TOKENS_PER_S
        self.capabilities = Capabilities(name, False, False, (_language_of(name),))
        draft_model = None if draft_folder is None else engine.load(draft_folder)
        self.drafting = Drafting(self.model, draft_model, ngrams)

    def check(self, options: TranscribeOptions) -> None:
        """Check that the model can do what the options request. Raises UnsupportedTask."""
        name = self.capabilities.name
        if options.task == "translate":
            raise UnsupportedTask(f"{name} only transcribes; translate its text instead")
        wanted = [key for key, none in _WITHOUT.items() if getattr(options, key) != none]
        if wanted:
            raise UnsupportedTask(
                f"{name} is run by transformers, without {wanted[0].replace('_', ' ')}; "
                "a Whisper model has it"
            )

    def given_language(self, options: TranscribeOptions) -> str:
        """The language of the options, which the model cannot check, or the model's."""
        return options.language or self.capabilities.languages[0]

    def decode_chunk(
        self,
        chunk: Chunk,
        language: str,
        options: TranscribeOptions,
        *,
        begins_recording: bool = True,
        last_speech: float = 0.0,
    ) -> DecodeTask:
        """The decode task of a chunk, as Recognizer.decode_chunk; one segment."""
        start, end = chunk.start_frame / FRAMES_PER_SECOND, chunk.end_frame / FRAMES_PER_SECOND
        first = round(start * SAMPLE_RATE) - chunk.offset
        samples = chunk.samples[max(0, first) : round(end * SAMPLE_RATE) - chunk.offset]
        source = self.drafting.source(self._features(samples))
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
        shown = ""
        with self.model.stream(request) as stream:
            pending = Pending(stream)
            while True:
                if not stream.ready:
                    yield pending
                event = next(stream, None)
                if event is None:
                    break
                tokens += event.tokens
                logprobs += event.logprobs
                text = self._text(tokens).rstrip(_REPLACEMENT)
                if text.startswith(shown) and text != shown:
                    yield TextDelta((" " if not shown else "") + text[len(shown) :])
                    shown = text
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

    def _features(self, samples: Samples) -> Tensor:
        """What the model's encoder takes of a chunk, without the batch dimension."""
        missing = max(0, _MIN_SAMPLES - len(samples))
        sound = torch.nn.functional.pad(torch.as_tensor(samples), (0, missing)).numpy()
        made = self._extractor(sound, sampling_rate=SAMPLE_RATE, return_tensors="pt")
        name = "input_values" if "input_values" in made else "input_features"
        features: Tensor = made[name][0]
        return features

    def _options(self, options: TranscribeOptions, seconds: float) -> GenerationOptions:
        architecture = self.model.architecture
        limit = max(_MIN_TOKENS, round(seconds * self._tokens_per_s))
        filters: list[LogitFilter] = []
        if options.repetition_penalty != 1:
            filters.append(RepetitionPenalty(options.repetition_penalty))
        if options.no_repeat_ngram_size:
            filters.append(NoRepeatNgram(options.no_repeat_ngram_size))
        return GenerationOptions(
            max_new_tokens=min(limit, architecture.max_target_positions - 1),
            eos_ids=architecture.eos_ids,
            beam_size=options.beam_size or 1,
            logit_filters=(*filters, *options.logit_filters),
            logprobs=True,
        )

    def _text(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode([i for i in ids if i not in self._special])
        return text.strip()


def _language_of(name: str) -> str:
    """The language at the end of a name, as in "moonshine-tiny-ja"; else English."""
    from pipelines.languages import LANGUAGES

    code = Path(name).name.rpartition("-")[2]
    return code if code in LANGUAGES and len(code) == 2 else "en"
