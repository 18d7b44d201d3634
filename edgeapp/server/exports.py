"""Downloads: what the page shows, edited or not, as a file. Nothing is kept here."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from edgeapp.subtitles.formats import Cue, Transcript, formats_of, render
from pipelines import EdgeError, InputError, Segment

__all__ = ["export", "transcript_of"]

_MOST_BYTES = 64 << 20


async def export(request: Request) -> Response:
    """POST {"format", "language", "cues", "translation", "target", "translated"} → the file."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            return JSONResponse({"error": "this is too long to be made a file of"}, 413)
    try:
        import json

        message = json.loads(body)
        (fmt,) = formats_of(str(message["format"]))
        text = render(transcript_of(message), fmt, translated=bool(message.get("translated")))
    except EdgeError as error:
        return JSONResponse({"error": str(error)}, 400)
    except (ValueError, KeyError, TypeError) as error:
        return JSONResponse({"error": f"this is no transcript: {error!r}"}, 400)
    return PlainTextResponse(text)


def transcript_of(message: dict[str, Any]) -> Transcript:
    """The transcript that a page shows. Raises InputError for cues without text or times."""
    target = message.get("target")
    return Transcript(
        str(message.get("language") or ""),
        tuple(_timed(cue) for cue in message["cues"]),
        tuple(_timed(cue) for cue in message.get("translation") or ()),
        str(target) if target else None,
    )


def _timed(values: Any) -> Any:
    try:
        start, end, text = float(values["start"]), float(values["end"]), str(values["text"])
        if "tokens" not in values:
            return Cue(start, end, text)
        whole = {**values, "start": start, "end": end, "text": text}
        return Segment(**{**whole, "tokens": tuple(values["tokens"])})
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{values!r} has no start, end and text") from error
