"""The machine and the package versions that figures were measured with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["cpu_name", "machine"]


def machine(*packages: str) -> str:
    """Versions of packages and of Python, CPU model and number of cores, in one line."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{versions}, Python {platform.python_version()}, {cpu_name()}, {os.cpu_count()} cores"


def cpu_name() -> str:
    """The model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
