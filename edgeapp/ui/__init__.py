"""The browser page: live captions, files, text, models and history."""

from pathlib import Path

__all__ = ["STATIC"]

STATIC = Path(__file__).parent / "static"  # files that are served unchanged
