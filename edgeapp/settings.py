"""Where defaults come from: flags, then environment variables, then a TOML file, then built in.

The file is `config.toml` in the platform's configuration folder (EDGEAPP_CONFIG names another):

    model = "small.en"                  # EDGEAPP_MODEL
    translation_model = "opus-mt-en-de" # EDGEAPP_TRANSLATION_MODEL
    device = "auto"                     # EDGEAPP_DEVICE
    compute_type = "auto"               # EDGEAPP_COMPUTE_TYPE
    threads = "auto"                    # EDGEAPP_THREADS
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from pipelines.errors import OptionError

__all__ = ["Settings", "config_file", "load_settings", "parse_threads"]


@dataclass(frozen=True)
class Settings:
    """What holds where no flag says otherwise. None: nothing was chosen."""

    model: str | None = None
    translation_model: str | None = None
    device: str = "auto"
    compute_type: str = "auto"
    threads: int | Literal["auto"] = "auto"


def config_file() -> Path:
    """The settings file, whether it is there or not."""
    named = os.environ.get("EDGEAPP_CONFIG")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_config_path

    return user_config_path("edgeapp") / "config.toml"


def load_settings() -> Settings:
    """Environment over file over built in. Raises OptionError for what cannot be understood."""
    path = config_file()
    values = _read(path)
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise OptionError(f"{path}: unknown setting {unknown[0]!r}; known are {sorted(known)}")
    for name in known:
        if chosen := os.environ.get(f"EDGEAPP_{name.upper()}"):
            values[name] = chosen
    threads = parse_threads(str(values.pop("threads", "auto")))
    for name, value in values.items():
        if not isinstance(value, str):
            raise OptionError(f"{path}: {name} must be a string, not {value!r}")
    return Settings(threads=threads, **values)  # type: ignore[arg-type]


def parse_threads(text: str) -> int | Literal["auto"]:
    """ "auto" or a number above 0. Raises OptionError for anything else."""
    if text == "auto":
        return "auto"
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise OptionError(f"threads must be auto or a number above 0, not {text!r}")


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error
