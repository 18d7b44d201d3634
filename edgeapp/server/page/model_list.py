"""The installed models as the page lists them, and the size of a download."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgeapp.server.page.picker_options import language_name, picker_options
from pipelines import EngineError

if TYPE_CHECKING:
    from edgeapp.model_pool import ModelPool
    from pipelines.engine import LoadedModel

__all__ = ["download_plan", "model_list"]


def model_list(pool: ModelPool, *, folders: bool = False) -> list[dict[str, Any]]:
    """The installed models.

    Args:
        pool: The shared models.
        folders: Add each model's folder, which is not sent to the page.

    Returns:
        For each model its name, task, size on disk, source, languages, and "loaded": compute
        type, device, memory and use count, None if it is not loaded. "languages": "source" and
        "target", each a list of {"code", "name"}; a recognizer has no target.
    """
    from pipelines.hub import list_models

    loaded = {model.folder: model for model in pool.loaded}
    languages = _languages_by_model()
    rows = []
    for model in list_models():
        folder = model.folder.resolve()
        row: dict[str, Any] = {
            "name": model.name,
            "task": model.task,
            "bytes": model.size_bytes,
            "source": model.source,
            "languages": languages.get(model.name, {"source": [], "target": []}),
            "loaded": _load_state(loaded.get(folder), pool),
        }
        rows.append(row | {"folder": str(model.folder)} if folders else row)
    return rows


def download_plan(name: str) -> dict[str, Any]:
    """The files and sizes of a model's download; a note if the hub cannot be reached.

    Raises:
        EdgeError: As the download would.
    """
    from pipelines.hub import plan_pull

    plan = plan_pull(name)
    return {
        "name": name,
        "repository": plan.repository,
        "bytes": plan.total_bytes,
        "missing": plan.missing_bytes,
        "note": plan.note,
        "files": [{"name": file, "bytes": size} for file, size in plan.files],
    }


def _load_state(model: LoadedModel | None, pool: ModelPool) -> dict[str, Any] | None:
    if model is None:
        return None
    try:
        compute_type, device = model.compute_type, model.device
    except EngineError:  # it was unloaded meanwhile
        return None
    return {
        "compute_type": compute_type,
        "device": device,
        "bytes": pool.memory_of(model.folder),
        "users": pool.use_count(model.folder),
    }


def _languages_by_model() -> dict[str, dict[str, list[dict[str, str]]]]:
    """Model name → the languages that it reads or hears, and those that it translates into."""
    options = picker_options()
    languages = {
        recognizer.name: {"source": _named(recognizer.languages), "target": []}
        for recognizer in options.recognizers
    }
    for model in {pair.model for pair in options.pairs}:
        pairs = [pair for pair in options.pairs if pair.model == model]
        sources = dict.fromkeys(pair.source for pair in pairs if pair.source)
        targets = dict.fromkeys(pair.target for pair in pairs)
        languages[model] = {"source": _named(sources), "target": _named(targets)}
    return languages


def _named(codes: Iterable[str]) -> list[dict[str, str]]:
    return [{"code": code, "name": language_name(code)} for code in codes]
