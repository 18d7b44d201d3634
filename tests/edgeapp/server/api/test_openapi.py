"""The description of the interfaces says what the server does."""

from __future__ import annotations

import re

import pytest

from edgeapp.server.access.security import ALLOWED_ROUTES
from edgeapp.server.api.errors import ApiError
from edgeapp.server.api.openapi import specification
from edgeapp.server.api.transcription_request import TranscriptionRequest
from tests.edgeapp.server.api.conftest import Api

PATHS = specification("1")["paths"]


def test_every_route_for_programs_is_described() -> None:
    described = {re.sub(r"^(/download_file).*", r"\1", path) for path in PATHS}
    assert described == {route.program for route in ALLOWED_ROUTES if route.program}
    for path, methods in PATHS.items():
        example = path.replace("{endpoint}", "translate").replace("{event}", "0a" * 16)
        example = re.sub(r"{\w+}", "a", example)
        (route,) = [each for each in ALLOWED_ROUTES if each.path.fullmatch(example)]
        for method in methods:
            assert method.upper() in route.methods or route.methods == {"WEBSOCKET"}


@pytest.mark.parametrize("endpoint", ["transcriptions", "translations"])
def test_every_field_that_is_described_is_known(endpoint: str) -> None:
    operation = PATHS[f"/v1/audio/{endpoint}"]["post"]
    schema = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    values = {
        "model": "whisper-1", "temperature": "0",
        "language": "en", "timestamp_granularities[]": "word", "chunking_strategy": "auto",
        "stream": "false", "include[]": "logprobs", "response_format": "json",
        "openai_rules": "true",
    }  # fmt: skip
    names = [name for name in schema["properties"] if name != "file"]
    fields = [(name, values.get(name, "x")) for name in names]
    TranscriptionRequest.from_fields(fields, endpoint)  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="unknown field 'other'"):
        TranscriptionRequest.from_fields([("other", "x")], endpoint)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_pages(api: Api) -> None:
    assert api.get("v1/openapi.json").json()["openapi"].startswith("3.")
    page = api.get("v1/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "POST /v1/audio/transcriptions" in page.text
    assert "<script" not in page.text
