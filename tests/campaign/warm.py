"""Imports what commands import, so that a fork need not do it again."""

from __future__ import annotations

import os

__all__ = ["import_all", "use_threads"]


def import_all() -> None:
    """Import the libraries of commands and load the compiled kernels; no model is loaded.

    This process computes on one thread: OpenMP threads would be missing in its forks.
    """
    import torch

    torch.set_num_threads(1)
    import av  # noqa: F401
    import safetensors.torch  # noqa: F401
    import sentencepiece  # noqa: F401
    import sentencex  # noqa: F401
    import silero_vad  # noqa: F401
    import tokenizers  # noqa: F401

    import edgeapp.batch.recordings.transcription_runner
    import edgeapp.cli
    import edgeapp.live.session
    import edgeapp.model_pool  # noqa: F401
    import pipelines
    from pipelines.engine.kernels.loader import load_kernels

    torch.set_num_threads(1)  # importing silero_vad may have changed it
    for name in pipelines.__all__:
        getattr(pipelines, name)
    load_kernels()


def use_threads() -> None:
    """In a fork: compute on OMP_NUM_THREADS threads; without that variable on one, as tests run
    beside each other."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
