"""One server with the bundled models, which the tests of the programming interfaces share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.hub import assets_folder
from tests.edgeapp.server.conftest import serving_routes

QUESTION = "question.flac"


@dataclass
class Api:
    """url: of the server, with the slash behind it. log: the lines of its log."""

    url: str
    log: list[str]

    def post(self, path: str, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, timeout=120, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=120, **options)

    def transcribe(
        self, content: bytes | None = None, *, path: str = "v1/audio/transcriptions", **fields: Any
    ) -> httpx.Response:
        """A request to transcribe a recording, by default a spoken question."""
        content = recording() if content is None else content
        form = {"model": "whisper-1", **fields}
        return self.post(path, files={"file": (QUESTION, content)}, data=form)


def recording(name: str = QUESTION) -> bytes:
    """A bundled recording."""
    return (assets_folder() / "samples" / name).read_bytes()


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server for this machine, without tokens."""
    folder: Path = tmp_path_factory.mktemp("api")
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(folder / "no-models"))
        with serving_routes(folder, log=lines.append, upload_mb=8, minutes=2.0) as url:
            yield Api(url, lines)
