"""Recognized segments → the replies of OpenAI's audio endpoints."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from math import ceil, log
from typing import TYPE_CHECKING, Any, Literal

from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from edgeapp.documents.transcript_formats import FORMATS, render
from edgeapp.server.api.errors import api_error_of
from edgeapp.server.api.recognition import RecognitionStarted
from edgeapp.server.api.transcription_request import TranscriptionRequest
from edgeapp.server.replies import error_content
from edgeapp.subtitles.shaping import shaped
from pipelines import LANGUAGES
from pipelines.subtitles import Transcript

if TYPE_CHECKING:
    from pipelines import Segment, Word

__all__ = [
    "complete_reply", "segment_content", "segment_logprobs", "streamed_reply", "word_logprobs",
]  # fmt: skip

_LEAST_PROBABILITY = 1e-10  # its logarithm is finite


def complete_reply(
    request: TranscriptionRequest,
    task: Literal["transcribe", "translate"],
    started: RecognitionStarted,
    segments: Sequence[Segment],
    title: str,
) -> Response:
    """The reply in the format that was asked for.

    Args:
        request: The format, and the granularities of times.
        task: "transcribe", or "translate" into English.
        started: Language and duration.
        segments: All that have text.
        title: The name of the recording, for documents and lists of words.
    """
    text = _text(segments)
    if request.response_format == "text":
        return PlainTextResponse(f"{text}\n")
    form = FORMATS.get(request.response_format)
    if form is not None and form.name != "json":
        transcript = Transcript(started.language, tuple(segments))
        if form.is_subtitle:
            transcript = shaped(transcript)
        return Response(render(transcript, form.name, title=title), media_type=form.media_type)
    content: dict[str, Any] = {"text": text, "usage": _usage(started)}
    if request.logprobs:
        content["logprobs"] = segment_logprobs(segments)
    if request.response_format == "verbose_json":
        language = "en" if task == "translate" else started.language
        content = {
            "task": task,
            "language": LANGUAGES.get(language, language),
            "duration": started.duration,
            "text": text,
            "usage": _usage(started),
        }
    return JSONResponse(content | _warnings(started) | _times(request, segments))


def streamed_reply(
    path: str,
    request: TranscriptionRequest,
    items: AsyncGenerator[RecognitionStarted | Segment, None],
) -> Response:
    """Server-sent events: a delta for each segment, then one `transcript.text.done`.

    A delta is final: the model may withdraw text within a segment, which is not sent before.

    Args:
        path: Of the request, which decides the shape of an error.
        request: The granularities of times, which the last event has, and whether the events
            have log-probabilities.
        items: The recognition; it is closed when the client leaves.
    """

    async def events() -> AsyncGenerator[str, None]:
        started: RecognitionStarted | None = None
        text = ""
        segments: list[Segment] = []
        try:
            async with aclosing(items):
                async for item in items:
                    if isinstance(item, RecognitionStarted):
                        started = item
                        continue
                    if request.granularities or request.logprobs:
                        segments.append(item)
                    # The deltas add up to the text, which does not begin with a space.
                    delta = item.text if text else item.text.lstrip()
                    event: dict[str, Any] = {"type": "transcript.text.delta", "delta": delta}
                    if request.logprobs:
                        event["logprobs"] = segment_logprobs([item], begins_text=not text)
                    text += delta
                    yield _event(event)
        except Exception as error:
            refusal = api_error_of(error)
            yield _event(
                error_content(
                    path, refusal.status, refusal.message, code=refusal.code, param=refusal.param
                )
            )
            return
        done: dict[str, Any] = {
            "type": "transcript.text.done", "text": text, **_times(request, segments)
        }  # fmt: skip
        if request.logprobs:
            done["logprobs"] = segment_logprobs(segments)
        if started is not None:
            done |= {"usage": _usage(started), **_warnings(started)}
        yield _event(done)
        yield "data: [DONE]\n\n"

    # A proxy must not hold the events back.
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _event(content: dict[str, Any]) -> str:
    # Some clients read the type from the event's name only.
    name = f"event: {content['type']}\n" if "type" in content else ""
    return f"{name}data: {json.dumps(content)}\n\n"


def _times(request: TranscriptionRequest, segments: Sequence[Segment]) -> dict[str, Any]:
    """Segments and words with their times, as far as they were asked for."""
    content: dict[str, Any] = {}
    if "segment" in request.granularities:
        content["segments"] = [segment_content(segment) for segment in segments]
    if "word" in request.granularities:
        content["words"] = [
            {"word": word.word.strip(), "start": word.start, "end": word.end}
            for segment in segments
            for word in segment.words
        ]
    return content


def segment_logprobs(
    segments: Sequence[Segment], *, begins_text: bool = True
) -> list[dict[str, Any]]:
    """The tokens of a text with their log-probabilities. Their bytes add up to the text.

    Args:
        segments: Of the text.
        begins_text: Leave out the white space that the text does not begin with.
    """
    content: list[dict[str, Any]] = []
    for segment in segments:
        for token in segment.token_logprobs:
            utf8 = bytes(token.utf8)
            if begins_text and not content:
                utf8 = utf8.lstrip()
                if not utf8:
                    continue
            shown = utf8.decode("utf-8", errors="replace")
            content.append({"token": shown, "bytes": list(utf8), "logprob": token.logprob})
    return content


def word_logprobs(words: Sequence[Word], *, begins_text: bool = True) -> list[dict[str, Any]]:
    """Return words in place of tokens, in the shape of `segment_logprobs`: for live recognition.

    Args:
        words: Of the text.
        begins_text: Leave out the white space that the text does not begin with.
    """
    content: list[dict[str, Any]] = []
    for word in words:
        shown = word.word.lstrip() if begins_text and not content else word.word
        logprob = log(max(word.probability, _LEAST_PROBABILITY))
        content.append({"token": shown, "bytes": list(shown.encode()), "logprob": logprob})
    return content


def _text(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments).strip()


def _usage(started: RecognitionStarted) -> dict[str, Any]:
    return {"type": "duration", "seconds": ceil(started.duration)}


def _warnings(started: RecognitionStarted) -> dict[str, Any]:
    """Return the field `warnings`, which OpenAI's replies do not have, if there are any."""
    return {"warnings": started.warnings} if started.warnings else {}


def segment_content(segment: Segment) -> dict[str, Any]:
    """A segment of verbose_json."""
    return {
        "id": segment.id,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }
