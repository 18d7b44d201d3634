"""Find and download models: bundled models, short names, hub ids and local folders → folders.

No module here imports torch. Only `pull`, `plan_pull`, `search_hub` and, on request,
`folder_or_pull` use the network: models are downloaded from the Hugging Face hub into the standard
Hugging Face cache, which is shared with other tools.
"""

from pipelines.hub.addresses import InsecureMirror
from pipelines.hub.assets import assets_folder, bundled_folder
from pipelines.hub.cache import (
    cache_folder,
    free_bytes,
    read_json,
    reads_lines,
    size_of,
    use_cache_folder,
)
from pipelines.hub.catalog import (
    ModelInfo,
    ResolvedModel,
    Stamp,
    folder_of,
    incomplete_models,
    list_models,
    models_stamp,
    remove,
    resolve,
)
from pipelines.hub.client import is_offline
from pipelines.hub.defaults import (
    RECOMMENDED_READER,
    RECOMMENDED_RECOGNIZER,
    RECOMMENDED_RECOGNIZER_IN_WORDS,
    check_recognizer_language,
    choose_default,
    recognizer_languages,
    translator_to_download,
)
from pipelines.hub.details import (
    CheckedFile,
    Leftover,
    ModelDetails,
    find_leftovers,
    model_details,
    verify_files,
)
from pipelines.hub.download import PullPlan, PullProgress, folder_or_pull, plan_pull, pull
from pipelines.hub.search import FoundModel, search_hub

__all__ = [
    "RECOMMENDED_READER",
    "RECOMMENDED_RECOGNIZER",
    "RECOMMENDED_RECOGNIZER_IN_WORDS",
    "CheckedFile",
    "FoundModel",
    "InsecureMirror",
    "Leftover",
    "ModelDetails",
    "ModelInfo",
    "PullPlan",
    "PullProgress",
    "ResolvedModel",
    "Stamp",
    "assets_folder",
    "bundled_folder",
    "cache_folder",
    "check_recognizer_language",
    "choose_default",
    "find_leftovers",
    "folder_of",
    "folder_or_pull",
    "free_bytes",
    "incomplete_models",
    "is_offline",
    "list_models",
    "model_details",
    "models_stamp",
    "plan_pull",
    "pull",
    "read_json",
    "reads_lines",
    "recognizer_languages",
    "remove",
    "resolve",
    "search_hub",
    "size_of",
    "translator_to_download",
    "use_cache_folder",
    "verify_files",
]
