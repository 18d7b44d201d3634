"""The tokenizers, feature extractors and image processors of transformers, for families that it
runs. It is imported when one is opened. No code of a model's folder is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError, ModelError


def open_text_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder.

    Raises:
        CheckpointError: transformers cannot read it.
        ModelError: It needs a package that is not installed.
    """
    return _open("AutoTokenizer", folder, "its tokenizer")


def open_feature_extractor(folder: Path) -> Any:
    """What makes features of sound. Raises as `open_text_tokenizer`."""
    return _open("AutoFeatureExtractor", folder, "its feature extractor")


def open_image_processor(folder: Path) -> Any:
    """What makes tensors of pictures. Raises as `open_text_tokenizer`."""
    return _open("AutoImageProcessor", folder, "its image processor")


def _open(kind: str, folder: Path, what: str) -> Any:
    import transformers

    # It reports on stderr which of its implementations it has taken.
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        return getattr(transformers, kind).from_pretrained(folder, local_files_only=True)
    except ImportError as error:
        lines = str(error).strip().splitlines()
        raise ModelError(f"{what} of {folder.name} needs another package: {lines[0]}") from error
    except Exception as error:  # transformers and tokenizers raise nothing narrower
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(f"{folder}: {what} cannot be read: {lines[0]}") from error
