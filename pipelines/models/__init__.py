"""Names of models → folders, in one place: bundled models, short names, hub ids, local folders.

Nothing here imports torch, and only `pull` talks to another machine: it downloads from the
Hugging Face hub into the standard Hugging Face cache, where models that other tools downloaded are
found too.
"""

from pipelines.models.addresses import InsecureMirror
from pipelines.models.assets import assets_folder, bundled_folder
from pipelines.models.cache import cache_folder
from pipelines.models.catalog import (
    ModelInfo,
    ResolvedModel,
    folder_of,
    list_models,
    remove,
    resolve,
)
from pipelines.models.defaults import choose_default
from pipelines.models.hub import PullPlan, PullProgress, plan_pull, pull

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
