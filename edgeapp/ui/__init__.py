"""The browser page: live captions, files, text and models, served by this machine to itself."""

from pathlib import Path

__all__ = ["STATIC"]

STATIC = Path(__file__).parent / "static"  # what is served as it is
