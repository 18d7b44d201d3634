"""The configuration of a transcription session: each field has an effect or is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgeapp.server.api.errors import ApiError
from edgeapp.server.api.realtime.audio_formats import AudioFormat
from pipelines import OptionError
from pipelines.languages import language_code

__all__ = ["SessionConfig"]

_FORMATS: dict[str, AudioFormat] = {
    "audio/pcm": "audio/pcm", "audio/pcmu": "audio/pcmu", "audio/pcma": "audio/pcma",
}  # fmt: skip
_BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_MAX_PROMPT = 4_000  # characters
_LOGPROBS = "item.input_audio_transcription.logprobs"
_NOISE = ("near_field", "far_field")
# Eagerness of semantic_vad → the pause in ms that ends an utterance.
_EAGERNESS = {"low": 1_000, "medium": 500, "auto": 500, "high": 300}


@dataclass(frozen=True)
class SessionConfig:
    """How a session recognizes speech.

    Attributes:
        format: Of the audio.
        model: Name of the recognizer, as the client gives it.
        language: Code of the spoken language; None: detected.
        prompt: Text before each utterance: names, spelling.
        server_vad: Whether the server finds utterances; else the client commits them.
        threshold: Probability from which there is speech.
        prefix_padding_ms: Audio before speech that belongs to it.
        silence_duration_ms: Pause that ends an utterance.
        logprobs: Whether texts are sent with the log-probabilities of their tokens.
        beta: Whether the client speaks the beta form of the protocol, which has other names.
        translate_to: Ours: code of a language into which each utterance is translated.
    """

    format: AudioFormat = "audio/pcm"
    model: str = "whisper-1"
    language: str | None = None
    prompt: str | None = None
    server_vad: bool = True
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    logprobs: bool = False
    beta: bool = False
    translate_to: str | None = None

    def updated(self, session: object) -> SessionConfig:
        """The configuration after a `session.update`. What it does not name stays.

        Raises:
            ApiError: A field is unknown, invalid or not supported.
        """
        fields = _object(session, "session", ("type", "audio", "include", "edgeapp"))
        if fields.get("type") != "transcription":
            raise _refused(
                "session.type", "it must be 'transcription'; there are no other sessions"
            )
        config = replace(self, beta=False)._with_shared(fields)
        audio = _object(fields.get("audio", {}), "session.audio", ("input",))
        known = ("format", "transcription", "turn_detection", "noise_reduction")
        path = "session.audio.input"
        source = _object(audio.get("input", {}), path, known)
        names = {name: name for name in known}
        return config._with_source(source, path, names)

    def updated_by_beta(self, session: object) -> SessionConfig:
        """The configuration after a `transcription_session.update`, the beta form of the protocol.

        Raises:
            ApiError: A field is unknown, invalid or not supported.
        """
        names = {
            "format": "input_audio_format",
            "transcription": "input_audio_transcription",
            "turn_detection": "turn_detection",
            "noise_reduction": "input_audio_noise_reduction",
        }
        # `modalities` is about replies, which such a session has not.
        fields = _object(session, "session", (*names.values(), "modalities", "include", "edgeapp"))
        return replace(self, beta=True)._with_shared(fields)._with_source(fields, "session", names)

    def as_session(self, session_id: str) -> dict[str, Any]:
        """The session object that is sent to the client."""
        include = [_LOGPROBS] if self.logprobs else None
        transcription = {"model": self.model, "language": self.language, "prompt": self.prompt}
        shared = {
            "object": "realtime.transcription_session",
            "id": session_id,
            "include": include,
            "edgeapp": {"translate_to": self.translate_to},
        }
        if self.beta:
            beta_format = next(beta for beta, ga in _BETA_FORMATS.items() if ga == self.format)
            return {
                **shared,
                "input_audio_format": beta_format,
                "input_audio_transcription": transcription,
                "turn_detection": self._turns(),
                "input_audio_noise_reduction": None,
            }
        sound: dict[str, Any] = {"type": self.format}
        if self.format == "audio/pcm":
            sound["rate"] = 24_000
        return {
            **shared,
            "type": "transcription",
            "audio": {
                "input": {
                    "format": sound,
                    "transcription": transcription,
                    "turn_detection": self._turns(),
                    "noise_reduction": None,
                }
            },
        }

    def _turns(self) -> dict[str, Any] | None:
        if not self.server_vad:
            return None
        return {
            "type": "server_vad",
            "threshold": self.threshold,
            "prefix_padding_ms": self.prefix_padding_ms,
            "silence_duration_ms": self.silence_duration_ms,
        }

    def _with_shared(self, fields: dict[str, Any]) -> SessionConfig:
        """The fields that both forms of the protocol have."""
        config = self
        if "include" in fields:
            include = fields["include"] or []
            if not isinstance(include, list) or any(each != _LOGPROBS for each in include):
                raise _refused("session.include", f"it is a list of {_LOGPROBS!r}, or null")
            config = replace(config, logprobs=bool(include))
        if "edgeapp" in fields:
            config = config._with_own(fields["edgeapp"])
        return config

    def _with_source(
        self, source: dict[str, Any], path: str, names: Mapping[str, str]
    ) -> SessionConfig:
        """The fields of the audio.

        Args:
            source: The object that has them.
            path: Where it stands, for errors.
            names: What the client calls each of them.
        """
        config = self
        if (name := names["noise_reduction"]) in source:
            _check_noise_reduction(source[name], f"{path}.{name}")
        if (name := names["format"]) in source:
            config = config._with_format(source[name], f"{path}.{name}")
        if (name := names["transcription"]) in source:
            config = config._with_transcription(source[name], f"{path}.{name}")
        if (name := names["turn_detection"]) in source:
            config = config._with_turns(source[name], f"{path}.{name}")
        return config

    def _with_format(self, value: object, path: str) -> SessionConfig:
        if self.beta:
            if not isinstance(value, str) or value not in _BETA_FORMATS:
                raise _refused(path, f"it is one of {', '.join(_BETA_FORMATS)}")
            return replace(self, format=_FORMATS[_BETA_FORMATS[value]])
        fields = _object(value, path, ("type", "rate"))
        kind = _FORMATS.get(str(fields.get("type", "audio/pcm")))
        if kind is None:
            raise _refused(f"{path}.type", f"it is one of {', '.join(_FORMATS)}")
        rate = fields.get("rate")
        if rate is not None and (kind != "audio/pcm" or rate != 24_000):
            raise _refused(f"{path}.rate", "audio/pcm is at 24000 Hz; other formats have no rate")
        return replace(self, format=kind)

    def _with_transcription(self, value: object, path: str) -> SessionConfig:
        if value is None:
            raise _refused(path, "a transcription session transcribes; it cannot be null")
        fields = _object(value, path, ("model", "language", "prompt"))
        config = self
        if "model" in fields:
            config = replace(config, model=_text(fields["model"], f"{path}.model") or "whisper-1")
        if "language" in fields:
            config = replace(config, language=_language(fields["language"], f"{path}.language"))
        if "prompt" in fields:
            config = replace(config, prompt=_text(fields["prompt"], f"{path}.prompt"))
        return config

    def _with_turns(self, value: object, path: str) -> SessionConfig:
        if value is None:
            return replace(self, server_vad=False)
        known = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms", "eagerness")
        # Those two speak of responses, which such a session has not; clients send them as false.
        fields = _object(value, path, (*known, "create_response", "interrupt_response"))
        fields = {name: field for name, field in fields.items() if field is not None}
        kind = fields.get("type", "server_vad")
        if kind not in ("server_vad", "semantic_vad"):
            raise _refused(f"{path}.type", "it is server_vad, semantic_vad or null")
        if kind == "semantic_vad":
            # No model here judges whether a sentence is complete: a pause ends the utterance.
            eagerness = fields.get("eagerness", "auto")
            if not isinstance(eagerness, str) or eagerness not in _EAGERNESS:
                raise _refused(f"{path}.eagerness", f"it is one of {', '.join(_EAGERNESS)}")
            fields = {"silence_duration_ms": _EAGERNESS[eagerness], **fields}
        elif "eagerness" in fields:
            raise _refused(f"{path}.eagerness", "it belongs to semantic_vad")
        threshold = _number(fields.get("threshold", self.threshold), f"{path}.threshold")
        if not 0 < threshold < 1:
            raise _refused(f"{path}.threshold", "it must lie between 0 and 1")
        padding, silence = (
            _milliseconds(fields.get(name, getattr(self, name)), f"{path}.{name}")
            for name in ("prefix_padding_ms", "silence_duration_ms")
        )
        return replace(
            self,
            server_vad=True,
            threshold=threshold,
            prefix_padding_ms=padding,
            silence_duration_ms=max(100, silence),
        )

    def _with_own(self, value: object) -> SessionConfig:
        path = "session.edgeapp"
        fields = _object(value, path, ("translate_to",))
        target = _language(fields.get("translate_to"), f"{path}.translate_to")
        return replace(self, translate_to=target)


def _object(value: object, path: str, known: Iterable[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refused(path, "it must be an object")
    for name in value:
        if name not in known:
            raise ApiError(
                400,
                f"unknown field '{path}.{str(name)[:40]}'",
                code="unknown_parameter",
                param=f"{path}.{str(name)[:40]}",
            )
    return value


def _check_noise_reduction(value: object, path: str) -> None:
    """Accept what OpenAI accepts. Noise is not reduced here, which `session.updated` says."""
    if value is None:
        return
    kind = _object(value, path, ("type",)).get("type")
    if kind is not None and kind not in _NOISE:
        raise _refused(f"{path}.type", f"it is one of {', '.join(_NOISE)}, or the field is null")


def _text(value: object, path: str) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > _MAX_PROMPT):
        raise _refused(path, f"it must be a text of at most {_MAX_PROMPT} characters")
    return value or None


def _language(value: object, path: str) -> str | None:
    text = _text(value, path)
    try:
        return None if text is None else language_code(text)
    except OptionError as error:
        raise _refused(path, str(error)) from None


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(path, "it must be a number")
    return float(value)


def _milliseconds(value: object, path: str) -> int:
    number = _number(value, path)
    if not 0 <= number <= 10_000:
        raise _refused(path, "it must be from 0 to 10000")
    return int(number)


def _refused(path: str, reason: str) -> ApiError:
    return ApiError(400, f"'{path}': {reason}", code="invalid_value", param=path)
