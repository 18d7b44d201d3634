"""The configuration of a transcription session: each field has an effect or is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from edgeapp.server.api.errors import ApiError
from edgeapp.server.api.realtime.audio_formats import AudioFormat
from pipelines import OptionError, language_code

__all__ = ["SessionConfig"]

_FORMATS: dict[str, AudioFormat] = {
    "audio/pcm": "audio/pcm", "audio/pcmu": "audio/pcmu", "audio/pcma": "audio/pcma",
}  # fmt: skip
_MAX_PROMPT = 4_000  # characters


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
        if fields.get("include"):
            raise _refused("session.include", "log-probabilities are not returned")
        config = self
        if "edgeapp" in fields:
            config = config._with_own(fields["edgeapp"])
        audio = _object(fields.get("audio", {}), "session.audio", ("input",))
        known = ("format", "transcription", "turn_detection", "noise_reduction")
        path = "session.audio.input"
        source = _object(audio.get("input", {}), path, known)
        if source.get("noise_reduction") is not None:
            raise _refused(f"{path}.noise_reduction", "noise is not reduced here; use null")
        if "format" in source:
            config = config._with_format(source["format"], f"{path}.format")
        if "transcription" in source:
            config = config._with_transcription(source["transcription"], f"{path}.transcription")
        if "turn_detection" in source:
            config = config._with_turns(source["turn_detection"], f"{path}.turn_detection")
        return config

    def as_session(self, session_id: str) -> dict[str, Any]:
        """The session object that is sent to the client."""
        sound: dict[str, Any] = {"type": self.format}
        if self.format == "audio/pcm":
            sound["rate"] = 24_000
        turns = None
        if self.server_vad:
            turns = {
                "type": "server_vad",
                "threshold": self.threshold,
                "prefix_padding_ms": self.prefix_padding_ms,
                "silence_duration_ms": self.silence_duration_ms,
            }
        transcription = {"model": self.model, "language": self.language, "prompt": self.prompt}
        return {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "id": session_id,
            "audio": {
                "input": {
                    "format": sound,
                    "transcription": transcription,
                    "turn_detection": turns,
                    "noise_reduction": None,
                }
            },
            "include": None,
            "edgeapp": {"translate_to": self.translate_to},
        }

    def _with_format(self, value: object, path: str) -> SessionConfig:
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
        known = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms")
        # Those two speak of responses, which such a session has not; clients send them as false.
        fields = _object(value, path, (*known, "create_response", "interrupt_response"))
        if fields.get("type", "server_vad") != "server_vad":
            raise _refused(f"{path}.type", "it is server_vad or null")
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
