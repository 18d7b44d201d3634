"""Load a model that is not native with transformers, which is imported for that only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pipelines.errors import CheckpointError
from pipelines.families import read_config
from pipelines.notices import notice


class SlowModel(UserWarning):
    """A model is not native, and run by transformers."""


def load_module(folder: Path, device: torch.device) -> Any | None:
    """The module in a folder, in float32, on a device; None where transformers has no such class
    for its model_type, or one that does not generate.

    No code of the folder is run: only the class of transformers itself that config.json names is
    used, and a .bin is read with weights_only.

    Raises:
        CheckpointError: transformers cannot load the folder.
    """
    config = read_config(folder)
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or not name.isidentifier():
        return None
    import transformers

    kind = getattr(transformers, name, None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        return None
    loaded_by: Any = kind
    own_type = getattr(loaded_by.config_class, "model_type", None)
    if own_type != config.get("model_type") or not loaded_by.can_generate():
        return None
    notice(
        f"{_shown(folder)} is a {name}, which is not native here: it is run by transformers, "
        "slower",
        SlowModel,
    )
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        module = loaded_by.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(f"{folder}: transformers cannot load it: {lines[0]}") from error
    return module.eval().requires_grad_(False).to(device)


def _shown(folder: Path) -> str:
    """The name of a folder for messages; of one in the Hugging Face cache that of its model."""
    if folder.parent.name != "snapshots":
        return folder.name
    return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
