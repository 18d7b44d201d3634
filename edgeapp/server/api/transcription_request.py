"""The fields of OpenAI's audio endpoints, and one of ours: each has an effect or is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from edgeapp.documents.transcript_formats import FORMATS
from edgeapp.server.api.errors import ApiError
from edgeapp.server.client_json import read_json
from pipelines import OptionError, TranscribeOptions
from pipelines.languages import language_code

__all__ = ["RESPONSE_FORMATS", "TranscriptionRequest"]

Endpoint = Literal["transcriptions", "translations"]

# OpenAI's, and all others that a transcript is written in.
RESPONSE_FORMATS = ("json", "text", "verbose_json", *sorted(FORMATS.keys() - {"json", "txt"}))
_STREAMED_FORMATS = ("json", "text")
_TIMED_FORMATS = ("json", "verbose_json")
_GRANULARITIES = ("segment", "word")
# Fields of both endpoints, and of transcriptions only. Those of _LISTS are also accepted with [].
_COMMON = ("model", "prompt", "temperature", "response_format", "openai_rules")
_TRANSCRIPTIONS = (
    "language", "timestamp_granularities", "include", "chunking_strategy", "stream", "keywords",
    "languages", "known_speaker_names", "known_speaker_references",
)  # fmt: skip
_LISTS = frozenset(
    {
        "timestamp_granularities",
        "include",
        "keywords",
        "languages",
        "known_speaker_names",
        "known_speaker_references",
    }  # fmt: skip
)
_REFUSED = {
    "languages": "several possible languages are not supported; name one in 'language'",
    "known_speaker_names": "speakers are not told apart here",
    "known_speaker_references": "speakers are not told apart here",
}
_CHUNKING = re.compile(r"chunking_strategy\[(\w+)\]")  # how the openai package sends an object
_VAD_FIELDS = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms")


@dataclass(frozen=True)
class TranscriptionRequest:
    """What a client asks for.

    Attributes:
        model: Name of the model, as the client gives it.
        language: Code of the spoken language; None: detected.
        prompt: Text before the first words.
        keywords: Words to prefer.
        temperature: Of sampling; 0: greedy, with temperature fallback.
        response_format: One of RESPONSE_FORMATS.
        granularities: Of the times in json and verbose_json: "segment", "word" or both.
        stream: Send the text as it is decoded.
        logprobs: Send the log-probability of each token of the text.
        openai_rules: As in TranscribeOptions.
        vad: Limits of voice activity detection: fields of VadOptions.
    """

    model: str
    language: str | None = None
    prompt: str | None = None
    keywords: tuple[str, ...] = ()
    temperature: float = 0.0
    response_format: str = "json"
    granularities: tuple[str, ...] = ()
    stream: bool = False
    logprobs: bool = False
    openai_rules: bool = False
    vad: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_fields(
        cls, fields: Iterable[tuple[str, str]], endpoint: Endpoint
    ) -> TranscriptionRequest:
        """Read the fields of a form, without its file.

        Raises:
            ApiError: A field is unknown, invalid or not supported.
        """
        values, lists = _sorted_fields(fields, endpoint)
        for name, reason in _REFUSED.items():
            if lists.get(name):
                raise ApiError(400, f"'{name}': {reason}", param=name)
        if not values.get("model"):
            raise ApiError(400, "the field 'model' is missing; whisper-1 is the default model",
                           code="missing_required_parameter", param="model")  # fmt: skip
        response_format = _response_format(values.get("response_format") or "json")
        usual = ("segment",) if response_format == "verbose_json" else ()
        request = cls(
            model=values["model"],
            language=_language(values.get("language")),
            prompt=values.get("prompt") or None,
            keywords=tuple(lists.get("keywords", ())),
            temperature=_temperature(values.get("temperature")),
            response_format=response_format,
            granularities=_granularities(lists.get("timestamp_granularities", [])) or usual,
            stream=_boolean(values.get("stream"), "stream"),
            logprobs=_includes_logprobs(lists.get("include", [])),
            openai_rules=_boolean(values.get("openai_rules"), "openai_rules"),
            vad=_chunking(values.get("chunking_strategy")),
        )
        request._check_combination()
        return request

    def options(
        self, task: Literal["transcribe", "translate"], priority: int, *, times_words: bool
    ) -> TranscribeOptions:
        """Return how to recognize the speech.

        Args:
            task: "transcribe", or "translate" into English.
            priority: Of the requests to the engine.
            times_words: The model gives the times of words. Subtitles and lists of words of what
                it transcribes then have them; others have estimated times.
        """
        form = FORMATS.get(self.response_format)
        of_words = form is not None and (form.is_subtitle or form.needs_words)
        computes_words = of_words and times_words and task == "transcribe"
        values: dict[str, Any] = {"vad_parameters": self.vad} if self.vad else {}
        if self.temperature:
            values["temperature"] = self.temperature
        return TranscribeOptions(
            language=self.language,
            task=task,
            initial_prompt=self.prompt,
            hotwords=", ".join(self.keywords) or None,
            word_timestamps="word" in self.granularities or computes_words,
            token_logprobs=self.logprobs,
            priority=priority,
            openai_rules=self.openai_rules,
            **values,
        )

    def _check_combination(self) -> None:
        if self.granularities and self.response_format not in _TIMED_FORMATS:
            raise ApiError(
                400,
                "'timestamp_granularities' needs 'response_format' json or verbose_json",
                param="timestamp_granularities",
            )
        if self.stream and self.response_format not in _STREAMED_FORMATS:
            raise ApiError(
                400,
                f"'stream' needs 'response_format' json or text, not {self.response_format}",
                param="stream",
            )
        if self.logprobs and self.response_format != "json":
            raise ApiError(
                400,
                f"'include' logprobs needs 'response_format' json, not {self.response_format}",
                param="include",
            )


def _sorted_fields(
    fields: Iterable[tuple[str, str]], endpoint: Endpoint
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The fields with one value, and those with a list."""
    allowed = _COMMON if endpoint == "translations" else (*_COMMON, *_TRANSCRIPTIONS)
    values: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    chunking: dict[str, str] = {}
    for name, value in fields:
        plain = name.removesuffix("[]")
        part = _CHUNKING.fullmatch(name)
        if part is not None and "chunking_strategy" in allowed:
            chunking[part[1]] = value
        elif plain not in allowed or (plain != name and plain not in _LISTS):
            raise ApiError(
                400, f"unknown field {name[:60]!r}", code="unknown_parameter", param=name[:60]
            )
        elif plain in _LISTS:
            lists.setdefault(plain, []).append(value)
        elif plain in values:
            raise ApiError(400, f"the field '{plain}' is given twice", param=plain)
        else:
            values[plain] = value
    if chunking:
        values["chunking_strategy"] = json.dumps(chunking)
    return values, lists


def _language(text: str | None) -> str | None:
    try:
        return language_code(text) if text else None
    except OptionError as error:
        raise ApiError(400, f"'language': {error}", param="language") from None


def _temperature(text: str | None) -> float:
    value = _number(text or "0", "temperature")
    if not 0 <= value <= 1:
        raise ApiError(400, f"'temperature' must be from 0 to 1, not {value:g}",
                       param="temperature")  # fmt: skip
    return value


def _response_format(text: str) -> str:
    if text == "diarized_json":
        raise ApiError(
            400,
            "'response_format' diarized_json: speakers are not told apart here",
            param="response_format",
        )
    if text not in RESPONSE_FORMATS:
        raise ApiError(
            400,
            f"'response_format' is one of {', '.join(RESPONSE_FORMATS)}, not {text[:40]!r}",
            param="response_format",
        )
    return text


def _granularities(values: list[str]) -> tuple[str, ...]:
    for value in values:
        if value not in _GRANULARITIES:
            raise ApiError(
                400,
                f"'timestamp_granularities' takes word and segment, not {value[:40]!r}",
                param="timestamp_granularities",
            )
    return tuple(dict.fromkeys(values))


def _includes_logprobs(values: list[str]) -> bool:
    for value in values:
        if value != "logprobs":
            raise ApiError(400, f"'include' takes logprobs, not {value[:40]!r}", param="include")
    return bool(values)


def _boolean(text: str | None, name: str) -> bool:
    plain = (text or "false").lower()
    if plain not in ("true", "false", "1", "0"):
        raise ApiError(400, f"'{name}' is true or false, not {plain[:40]!r}", param=name)
    return plain in ("true", "1")


def _chunking(text: str | None) -> dict[str, float]:
    """The limits of voice activity detection that a chunking strategy names."""
    if not text or text == "auto":
        return {}
    try:
        strategy = read_json(text)
    except ValueError:
        strategy = text
    if strategy == "auto":
        return {}
    if not isinstance(strategy, dict) or strategy.get("type") != "server_vad":
        raise _chunking_error("it is auto, or an object with the type server_vad")
    for name in strategy:
        if name not in _VAD_FIELDS:
            raise _chunking_error(f"unknown field {str(name)[:40]!r}")
    limits: dict[str, float] = {}
    if "threshold" in strategy:
        threshold = _number(strategy["threshold"], "chunking_strategy")
        if not 0 < threshold < 1:
            raise _chunking_error(f"threshold must lie between 0 and 1, not be {threshold:g}")
        limits["threshold"] = threshold
    for name, option in (
        ("prefix_padding_ms", "speech_pad_ms"),
        ("silence_duration_ms", "min_silence_duration_ms"),
    ):
        if name in strategy:
            milliseconds = _number(strategy[name], "chunking_strategy")
            if not 0 <= milliseconds <= 60_000:
                raise _chunking_error(f"{name} must be from 0 to 60000, not {milliseconds:g}")
            limits[option] = int(milliseconds)
    return limits


def _chunking_error(reason: str) -> ApiError:
    return ApiError(400, f"'chunking_strategy': {reason}", param="chunking_strategy")


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ApiError(400, f"'{name}' takes a number, not {str(value)[:40]!r}", param=name)
    return number
