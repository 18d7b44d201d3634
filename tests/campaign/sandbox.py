"""The environment of the campaign's processes: a home of its own, no network, one thread."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["REPOSITORY", "sandbox"]

REPOSITORY = Path(__file__).resolve().parents[2]
# What a developer may have set and what would lead a case out of its sandbox.
_UNWANTED = ("hf_", "huggingface", "transformers_", "edgeapp_", "http", "all_proxy", "xdg_")


def sandbox(folder: Path) -> dict[str, str]:
    """An environment.

    Args:
        folder: For the home, the caches and the settings of all processes.
    """
    kept = {k: v for k, v in os.environ.items() if not k.lower().startswith(_UNWANTED)}
    # Compiled kernels are shared: their names tell what they were made from.
    kernels = os.environ.get("EDGEAPP_KERNELS") or str(user_cache_path("edgeapp") / "kernels")
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return kept | {
        "HOME": str(folder),
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "EDGEAPP_KERNELS": kernels,
        "EDGEAPP_MODEL": "demo",  # none for people's voices is here
        "EDGEAPP_CONFIG": str(folder / "no-config.toml"),
        "EDGEAPP_HISTORY": str(folder / "history.db"),
        "HF_HUB_CACHE": str(folder / "no-models"),
        "HF_ENDPOINT": "http://127.0.0.1:9",  # a port where nothing listens
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
