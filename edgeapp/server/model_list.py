"""The models of this machine as the page lists them, and what a download would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeapp.server.picker_options import language_name, picker_options

if TYPE_CHECKING:
    from edgeapp.server.shared_models import SharedModelPool
    from pipelines.engine import LoadedModel

__all__ = ["download_plan", "model_list"]


def model_list(pool: SharedModelPool, *, folders: bool = False) -> list[dict[str, Any]]:
    """Each model with where it comes from, and where it runs if it does. folders: their paths
    too, which are not for the page."""
    from pipelines.hub import list_models

    running = {model.folder: model for model in pool.loaded}
    speaks = _languages()
    shown = []
    for model in list_models():
        folder = model.folder.resolve()
        one: dict[str, Any] = {
            "name": model.name,
            "task": model.task,
            "bytes": model.size_bytes,
            "source": model.source,
            "languages": speaks.get(model.name, ""),
            "loaded": _state(running[folder], pool) if folder in running else None,
        }
        shown.append(one | {"folder": str(model.folder)} if folders else one)
    return shown


def download_plan(name: str) -> dict[str, Any]:
    """What a download would bring. Raises EdgeError as the download would."""
    from pipelines.hub import plan_pull

    plan = plan_pull(name)
    return {
        "name": name,
        "repository": plan.repository,
        "bytes": plan.total_bytes,
        "missing": plan.missing_bytes,
        "files": [{"name": file, "bytes": size} for file, size in plan.files],
    }


def _state(model: LoadedModel, pool: SharedModelPool) -> dict[str, Any]:
    return {
        "precision": model.compute_type,
        "device": model.device,
        "bytes": pool.held(model.folder),
        "users": pool.users(model.folder),
    }


def _languages() -> dict[str, str]:
    """Model name → the languages that it knows, in words."""
    known = picker_options()
    words: dict[str, str] = {}
    for one in known.recognisers:
        names = [language_name(code) for code in one.languages]
        words[one.name] = names[0] if len(names) == 1 else f"{len(names)} languages"
    for model in {pair.model for pair in known.pairs}:
        pairs = [pair for pair in known.pairs if pair.model == model]
        source = language_name(pairs[0].source) if pairs[0].source else "Several"
        targets = [language_name(pair.target) for pair in pairs]
        into = targets[0] if len(targets) == 1 else f"{len(targets)} languages"
        words[model] = f"{source} → {into}"
    return words
