"""/v1/openapi.json and /v1/docs: the interfaces for programs, described for tools and people."""

from __future__ import annotations

from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from edgeapp.server.api.transcription_request import RESPONSE_FORMATS

__all__ = ["openapi_routes", "specification"]

Json = dict[str, Any]

_FILE = {"type": "string", "format": "binary"}
_STRING: Json = {"type": "string"}
_STRINGS: Json = {"type": "array", "items": _STRING}
_COMMON: dict[str, Json] = {
    "file": _FILE | {"description": "A recording or a video."},
    "model": _STRING | {"description": "whisper-1, or a name of GET /v1/models."},
    "prompt": _STRING | {"description": "Names and spelling."},
    "temperature": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
    "response_format": {"type": "string", "enum": list(RESPONSE_FORMATS), "default": "json"},
    "openai_rules": {
        "type": "boolean", "default": False,
        "description": "Keep the last failed attempt, and times as they are, as openai-whisper.",
    },
}  # fmt: skip
_TRANSCRIPTION: dict[str, Json] = {
    **_COMMON,
    "language": _STRING | {"description": "A code or an English name; detected without it."},
    "keywords[]": _STRINGS | {"description": "Words to prefer."},
    "timestamp_granularities[]": {
        "type": "array", "items": {"type": "string", "enum": ["segment", "word"]},
        "description": "With response_format json or verbose_json.",
    },
    "include[]": {
        "type": "array", "items": {"type": "string", "enum": ["logprobs"]},
        "description": "Log-probabilities of tokens, with response_format json.",
    },
    "chunking_strategy": _STRING | {
        "description": 'auto, or JSON: {"type": "server_vad", "threshold": 0.5, '
        '"prefix_padding_ms": 300, "silence_duration_ms": 500}.'
    },
    "stream": {"type": "boolean", "default": False, "description": "With json and text."},
}  # fmt: skip
_LANGUAGE = {"source": _STRING | {"description": "A code, or auto."}, "target": _STRING}
_KEY = {"api_key": _STRING | {"description": "A token, where one is required."}}
_TEXT: dict[str, Json] = {
    "q": {"oneOf": [_STRING, _STRINGS], "description": "A text or up to 256."},
    **_LANGUAGE,
    "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
    "alternatives": {"type": "integer", "minimum": 0, "maximum": 4, "default": 0},
    **_KEY,
}


def _post(summary: str, kinds: tuple[str, ...], fields: dict[str, Json], required: str) -> Json:
    schema = {"type": "object", "properties": fields, "required": required.split()}
    return _operation(summary) | {
        "requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}
    }


def _operation(summary: str) -> Json:
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The result."},
            "default": {"description": "An error, with one sentence about what to do."},
        },
    }


def _path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _STRING}


def specification(version: str) -> Json:
    """The OpenAPI 3.1 description.

    Args:
        version: Of EdgeApp.
    """
    form, both = ("multipart/form-data",), ("application/json", "application/x-www-form-urlencoded")
    download = _operation("A translated file, for ten minutes")
    return {
        "openapi": "3.1.0",
        "info": {"title": "EdgeApp", "version": version},
        "security": [{}, {"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/v1/audio/transcriptions": {
                "post": _post("Speech to text", form, _TRANSCRIPTION, "file model")
            },
            "/v1/audio/translations": {
                "post": _post("Speech to English text", form, _COMMON, "file model")
            },
            "/v1/models": {"get": _operation("The installed models")},
            "/v1/models/{model}": {
                "get": _operation("An installed model") | {"parameters": [_path("model")]}
            },
            "/v1/realtime": {
                "get": _operation("A WebSocket: transcription sessions, ?intent=transcription")
            },
            "/v1/live": {"get": _operation("A WebSocket: audio in, events of live captions out")},
            "/translate": {"post": _post("Translate texts", both, _TEXT, "q source target")},
            "/detect": {
                "post": _post("The language of a text", both, {"q": _STRING, **_KEY}, "q")
            },
            "/translate_file": {
                "post": _post(
                    "Translate a text, HTML or subtitle file", form,
                    {"file": _FILE, **_LANGUAGE, **_KEY}, "file source target",
                )
            },
            "/download_file/{token}/{name}": {
                "get": download | {"parameters": [_path("token"), _path("name")]}
            },
            "/languages": {"get": _operation("Languages, each with its targets")},
            "/frontend/settings": {"get": _operation("Limits, as LibreTranslate tells them")},
            "/health": {"get": _operation("Whether the server accepts requests")},
            "/metrics": {"get": _operation("For Prometheus")},
            **_gradio_paths(),
            "/v1/openapi.json": {"get": _operation("This description")},
            "/v1/docs": {"get": _operation("This description, for people")},
        },
    }  # fmt: skip


def _gradio_paths() -> Json:
    """Gradio's routes, which are there with the page; clients of Gradio know how to use them."""
    call = [_path("endpoint")]
    posts = {
        "/gradio_api/upload": "A recording for a call; the reply is a list with its token",
        "/gradio_api/queue/join": "A call, by the number of its endpoint",
        "/gradio_api/cancel": "End a call",
    }
    gets = {
        "/config": "The page's configuration, for clients of Gradio",
        "/gradio_api/info": "The named endpoints, with types",
        "/gradio_api/queue/data": "The results of a session's calls, as server-sent events",
    }
    return {
        **{path: {"post": _operation(summary)} for path, summary in posts.items()},
        **{path: {"get": _operation(summary)} for path, summary in gets.items()},
        "/gradio_api/call/{endpoint}": {
            "post": _operation("A call of a named endpoint") | {"parameters": call}
        },
        "/gradio_api/call/{endpoint}/{event}": {
            "get": _operation("The results of a call, as server-sent events")
            | {"parameters": [*call, _path("event")]}
        },
    }


def openapi_routes() -> list[BaseRoute]:
    """The routes of the description."""
    from importlib.metadata import version

    described = specification(version("edgeapp"))

    async def as_json(request: Request) -> Response:
        return JSONResponse(described)

    async def as_page(request: Request) -> Response:
        return HTMLResponse(_page(described))

    return [Route("/v1/openapi.json", as_json), Route("/v1/docs", as_page)]


def _page(described: Json) -> str:
    """A page without scripts: each route with its fields."""
    sections = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            sections.append(
                f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
                f"<p>{escape(operation['summary'])}.</p>{_table(operation)}"
            )
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>EdgeApp for programs</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;"
        "padding:0 1rem;color:#222;background:#fff}td,th{text-align:left;"
        "padding:.2rem 1rem .2rem 0;vertical-align:top}h2{font-size:1.1rem;margin-top:2rem}</style>"
        "<main><h1>EdgeApp for programs</h1>"
        '<p>For tools: <a href="/v1/openapi.json">/v1/openapi.json</a>.</p>'
        f"{''.join(sections)}</main></html>"
    )


def _table(operation: Json) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return ""
    kinds = " or ".join(content)
    schema = next(iter(content.values()))["schema"]
    rows = []
    for name, field in schema["properties"].items():
        kind = field.get("enum") or field.get("items", {}).get("enum") or [field.get("type", "")]
        needed = " (required)" if name in schema["required"] else ""
        rows.append(
            f"<tr><td><code>{escape(name)}</code>{needed}</td><td>{escape(', '.join(kind))}</td>"
            f"<td>{escape(field.get('description', ''))}</td></tr>"
        )
    head = "<tr><th>field</th><th>type</th><th>meaning</th></tr>"
    return f"<p>{escape(kinds)}</p><table>{head}{''.join(rows)}</table>"
