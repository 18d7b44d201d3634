"""Where defaults come from: flags, then environment variables, then a TOML file, then built in.

The file is `config.toml` in the platform's configuration folder (EDGEAPP_CONFIG names another):

    model = "small.en"                  # EDGEAPP_MODEL
    translation_model = "opus-mt-en-de" # EDGEAPP_TRANSLATION_MODEL
    device = "auto"                     # EDGEAPP_DEVICE
    compute_type = "auto"               # EDGEAPP_COMPUTE_TYPE
    threads = "auto"                    # EDGEAPP_THREADS
    history = true                      # EDGEAPP_HISTORY: true or on, false or off, or a file
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from pipelines import OptionError

__all__ = ["Settings", "config_file", "history_file", "load_settings", "parse_threads"]

_ON, _OFF = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


@dataclass(frozen=True)
class Settings:
    """What holds where no flag says otherwise. None: nothing was chosen.

    history: whether past sessions and jobs are kept, or the file to keep them in.
    """

    model: str | None = None
    translation_model: str | None = None
    device: str = "auto"
    compute_type: str = "auto"
    threads: int | Literal["auto"] = "auto"
    history: bool | Path = True


def config_file() -> Path:
    """The settings file, whether it is there or not."""
    named = os.environ.get("EDGEAPP_CONFIG")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_config_path

    return user_config_path("edgeapp") / "config.toml"


def history_file(settings: Settings) -> Path | None:
    """Where past sessions and jobs are kept, whether it is there or not. None: they are not."""
    if isinstance(settings.history, Path):
        return settings.history
    if not settings.history:
        return None
    from platformdirs import user_data_path

    return user_data_path("edgeapp") / "history.db"


def load_settings() -> Settings:
    """Environment over file over built in. Raises OptionError for what cannot be understood."""
    path = config_file()
    values = _read(path)
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise OptionError(f"{path}: unknown setting {unknown[0]!r}; known are {sorted(known)}")
    # A relative name in the file is meant from there, one in the environment from here.
    history = _history(values.pop("history", True), path.parent)
    if chosen := os.environ.get("EDGEAPP_HISTORY"):
        history = _history(chosen, Path())
    for name in known - {"history"}:
        if chosen := os.environ.get(f"EDGEAPP_{name.upper()}"):
            values[name] = chosen
    threads = parse_threads(str(values.pop("threads", "auto")))
    for name, value in values.items():
        if not isinstance(value, str):
            raise OptionError(f"{path}: {name} must be a string, not {value!r}")
    return Settings(threads=threads, history=history, **values)  # type: ignore[arg-type]


def parse_threads(text: str) -> int | Literal["auto"]:
    """ "auto" or a number above 0. Raises OptionError for anything else."""
    if text == "auto":
        return "auto"
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise OptionError(f"threads must be auto or a number above 0, not {text!r}")


def _history(value: object, folder: Path) -> bool | Path:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"history must be true, false or a file, not {value!r}")
    if value.lower() in (*_ON, *_OFF):
        return value.lower() in _ON
    return (folder / Path(value).expanduser()).absolute()


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error
