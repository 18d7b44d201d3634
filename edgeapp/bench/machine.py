"""The machine and the package versions that figures were measured with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["machine"]


def machine(*packages: str) -> str:
    """Versions of packages and of Python, CPU model and number of cores, in one line."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{versions}, Python {platform.python_version()}, {_cpu()}, {os.cpu_count()} cores"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
