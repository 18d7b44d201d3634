"""Imports what commands import, so that a fork need not do it again."""

from __future__ import annotations

__all__ = ["import_all"]


def import_all() -> None:
    """Import the libraries of commands and load the compiled kernels; no model is loaded."""
    import av  # noqa: F401
    import safetensors.torch  # noqa: F401
    import sentencepiece  # noqa: F401
    import sentencex  # noqa: F401
    import silero_vad  # noqa: F401
    import tokenizers  # noqa: F401
    import torch

    import edgeapp.batch.recordings.transcription_runner
    import edgeapp.cli
    import edgeapp.live.session
    import edgeapp.model_pool  # noqa: F401
    import pipelines
    from pipelines.engine.kernels.loader import load_kernels

    torch.set_num_threads(1)
    for name in pipelines.__all__:
        getattr(pipelines, name)
    load_kernels()
