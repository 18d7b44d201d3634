"""Search the hub for models, when asked. The answer is bounded, and checked before it is used."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pipelines.errors import ModelNotFound, OptionError
from pipelines.families import Task, is_native, task_of
from pipelines.hub.addresses import check_endpoint
from pipelines.hub.names import is_repository, plain_line, shown
from pipelines.hub.transfer import RemoteRepository, fetch_answer

_ANSWER_BYTES = 4 << 20
_MOST_RESULTS = 100
_LONGEST_QUERY = 200  # characters
# Asked of the hub so that what does not run here leaves room for what may.
_TAGS = {
    "asr": "automatic-speech-recognition",
    "translation": "translation",
    "reading": "image-to-text",
}


@dataclass(frozen=True)
class FoundModel:
    """A model that the hub lists.

    Attributes:
        repository: Its hub id, which `pull` takes.
        task: "asr", "translation" or "reading".
        native: Whether it runs in the program's own code; else in that of transformers.
        downloads: Of the last month, as the hub counts; 0 if it does not say.
    """

    repository: str
    task: Task
    native: bool
    downloads: int


def search_hub(query: str, task: Task | None = None, limit: int = 20) -> list[FoundModel]:
    """Ask the hub for models that run here, the most used first.

    Args:
        query: Words of their names.
        task: Only models for this task; None for all.
        limit: The most models to return.

    Raises:
        OptionError: The query is empty or too long, the limit is out of range, or HF_ENDPOINT is
            not an address.
        ModelNotFound: The hub cannot be reached, or refuses.
        ModelError: Its answer is malformed.
    """
    if not query.strip() or len(query) > _LONGEST_QUERY:
        raise OptionError(f"search for 1 to {_LONGEST_QUERY} characters of a model's name")
    if not 1 <= limit <= _MOST_RESULTS:
        raise OptionError(f"a search gives 1 to {_MOST_RESULTS} models, not {limit}")
    from huggingface_hub import constants
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    endpoint = constants.ENDPOINT
    check_endpoint(endpoint)
    if constants.HF_HUB_OFFLINE:
        raise ModelNotFound("the hub cannot be searched: HF_HUB_OFFLINE is set")
    url = f"{endpoint}/api/models?search={quote(query.strip())}&sort=downloads&direction=-1"
    url += f"&limit={_MOST_RESULTS}&config=true" + (f"&pipeline_tag={_TAGS[task]}" if task else "")
    hub = RemoteRepository(f"the list of models for {shown(query.strip())}", endpoint)
    try:
        content = fetch_answer(hub, url, "its answer", _ANSWER_BYTES)
    except (OSError, HTTPError) as error:
        reason = plain_line(str(error)) or type(error).__name__
        raise ModelNotFound(f"{endpoint} cannot be searched: {reason}; try again later") from error
    found = _models(content, hub)
    return [model for model in found if task in (None, model.task)][:limit]


def _models(content: bytes, hub: RemoteRepository) -> list[FoundModel]:
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise hub.refusal("its answer is not readable JSON") from error
    if not isinstance(entries, list):
        raise hub.refusal("its answer is not a list")
    return [model for entry in entries if (model := _model(entry)) is not None]


def _model(entry: Any) -> FoundModel | None:
    """An entry of the list; None for a model that does not run here, or says too little."""
    if not isinstance(entry, dict):
        return None
    repository, config = entry.get("id"), entry.get("config")
    if not (isinstance(repository, str) and is_repository(repository)):
        return None
    task = task_of(config) if isinstance(config, dict) else None
    if task is None:
        return None
    downloads = entry.get("downloads")
    count = downloads if isinstance(downloads, int) and 0 <= downloads < 1 << 50 else 0
    assert isinstance(config, dict)
    return FoundModel(repository, task, is_native(config), count)
