"""Names of models → folders, in one place: bundled models, short names, hub ids, local folders.

Nothing here imports torch, and only `pull` talks to another machine: it downloads from the
Hugging Face hub into the standard Hugging Face cache, where models that other tools downloaded are
found too.
"""

from pipelines.hub.addresses import InsecureMirror
from pipelines.hub.assets import assets_folder, bundled_folder
from pipelines.hub.cache import cache_folder
from pipelines.hub.catalog import (
    ModelInfo,
    ResolvedModel,
    folder_of,
    list_models,
    remove,
    resolve,
)
from pipelines.hub.defaults import choose_default
from pipelines.hub.download import PullPlan, PullProgress, plan_pull, pull

__all__ = [
    "InsecureMirror",
    "ModelInfo",
    "PullPlan",
    "PullProgress",
    "ResolvedModel",
    "assets_folder",
    "bundled_folder",
    "cache_folder",
    "choose_default",
    "folder_of",
    "list_models",
    "plan_pull",
    "pull",
    "remove",
    "resolve",
]
