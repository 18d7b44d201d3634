"""Export of a transcript, as the page shows it, in a file format. Nothing is stored."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from edgeapp.subtitles.formats import Cue, Transcript, formats_of, render
from pipelines import EdgeError, InputError, Segment

__all__ = ["export", "transcript_of"]

_MAX_BYTES = 64 << 20


async def export(request: Request) -> Response:
    """POST a transcript; the response is the file.

    The body is JSON: "format", "language", "cues", "translation", "target", and "translated":
    whether to export the translation.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BYTES:
            return JSONResponse({"error": "this transcript is too large to export"}, 413)
    try:
        message = json.loads(body)
        (fmt,) = formats_of(str(message["format"]))
        text = render(transcript_of(message), fmt, translated=bool(message.get("translated")))
    except EdgeError as error:
        return JSONResponse({"error": str(error)}, 400)
    except (ValueError, KeyError, TypeError) as error:
        return JSONResponse({"error": f"this is not a transcript: {error!r}"}, 400)
    return PlainTextResponse(text)


def transcript_of(message: dict[str, Any]) -> Transcript:
    """The transcript in a page's message.

    Raises:
        InputError: A cue has no text, start or end, or a segment lacks a field.
    """
    target = message.get("target")
    return Transcript(
        str(message.get("language") or ""),
        tuple(_segment_or_cue(cue) for cue in message["cues"]),
        tuple(_segment_or_cue(cue) for cue in message.get("translation") or ()),
        str(target) if target else None,
    )


def _segment_or_cue(values: Any) -> Any:
    """A Segment if the user left it unedited (with its tokens), else a Cue."""
    problem = "a segment of the transcript is invalid"
    try:
        start, end, text = float(values["start"]), float(values["end"]), str(values["text"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{problem}: it needs start and end in seconds, and text") from error
    if "tokens" not in values:
        return Cue(start, end, text)
    try:
        fields = {**values, "start": start, "end": end, "text": text}
        return Segment(**{**fields, "tokens": tuple(values["tokens"])})
    except TypeError as error:
        raise InputError(f"{problem}: its fields are not those of a segment") from error
