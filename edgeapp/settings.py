"""Settings: flags override environment variables, which override a TOML file and the defaults.

The file is `config.toml` in the platform's configuration folder, or the file that EDGEAPP_CONFIG
names:

    model = "small.en"                  # EDGEAPP_MODEL
    translation_model = "opus-mt-en-de" # EDGEAPP_TRANSLATION_MODEL
    device = "auto"                     # EDGEAPP_DEVICE
    compute_type = "auto"               # EDGEAPP_COMPUTE_TYPE
    threads = "auto"                    # EDGEAPP_THREADS
    trusted_proxy = "10.0.0.1"          # EDGEAPP_TRUSTED_PROXY: addresses, with commas
    ask_to_download = true              # EDGEAPP_ASK_TO_DOWNLOAD: true or on, false or off
    history = true                      # EDGEAPP_HISTORY: true or on, false or off, or a file
    history_sound_mb = 2000             # EDGEAPP_HISTORY_SOUND_MB: of recordings; 0 keeps none

    [transcribe]                        # defaults of flags: fields of TranscribeOptions
    beam_size = 5

    [translate]                         # of TranslateOptions
    beam_size = 4
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from pipelines import OptionError

__all__ = [
    "TABLES",
    "Settings",
    "config_file",
    "history_file",
    "journal_file",
    "load_settings",
    "parse_threads",
    "tls_folder",
    "tokens_file",
]

# Commands with a table in the file → the dataclass of their options.
TABLES = {"transcribe": "TranscribeOptions", "translate": "TranslateOptions"}
_ON, _OFF = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


@dataclass(frozen=True)
class Settings:
    """Values that apply where no flag is given.

    Attributes:
        model: Speech recognition model; None chooses one by language and task.
        translation_model: Translation model; None chooses one by its languages.
        device: "auto", "cpu", "cuda" or "cuda:N".
        compute_type: "auto", "float32", "bfloat16", "float16" or "int8".
        threads: Number of CPU threads, or "auto".
        ask_to_download: Whether a command on a terminal asks to download a recognizer if none is
            on this machine.
        trusted_proxy: Reverse proxies that the server believes: addresses and networks, separated
            by commas.
        history: Whether past sessions and jobs are stored, or the file to store them in.
        history_sound_mb: The most that recordings in the history may take, in MiB.
        transcribe, translate: Options of these commands where no flag is given: names of fields of
            TranscribeOptions and TranslateOptions → values.
    """

    model: str | None = None
    translation_model: str | None = None
    device: str = "auto"
    compute_type: str = "auto"
    threads: int | Literal["auto"] = "auto"
    ask_to_download: bool = True
    trusted_proxy: str = ""
    history: bool | Path = True
    history_sound_mb: int = 2000
    transcribe: Mapping[str, Any] = field(default_factory=dict)
    translate: Mapping[str, Any] = field(default_factory=dict)


def config_file() -> Path:
    """Path of the settings file; it need not exist."""
    if path := os.environ.get("EDGEAPP_CONFIG"):
        return Path(path).expanduser()
    from platformdirs import user_config_path

    return user_config_path("edgeapp") / "config.toml"


def history_file(settings: Settings) -> Path | None:
    """Path of the history; it need not exist. None where the history is switched off."""
    if isinstance(settings.history, Path):
        return settings.history
    if not settings.history:
        return None
    from platformdirs import user_data_path

    return user_data_path("edgeapp") / "history.db"


def journal_file(settings: Settings) -> Path | None:
    """Path of the journal of jobs, beside the history and switched off with it."""
    if settings.history is False:
        return None
    from platformdirs import user_data_path

    return user_data_path("edgeapp") / "jobs.db"


def tokens_file() -> Path:
    """Path of the access tokens: EDGEAPP_TOKENS, else in the platform's folder for data."""
    if path := os.environ.get("EDGEAPP_TOKENS"):
        return Path(path).expanduser()
    from platformdirs import user_data_path

    return user_data_path("edgeapp") / "tokens.json"


def tls_folder() -> Path:
    """Folder of the certificate that `edgeapp ui --lan` makes: in the platform's data folder."""
    from platformdirs import user_data_path

    return user_data_path("edgeapp") / "tls"


def load_settings() -> Settings:
    """Read the settings file and the environment.

    Raises:
        OptionError: A setting is unknown or invalid, or the file cannot be read.
    """
    path = config_file()
    values = _read(path)
    known = {each.name for each in fields(Settings)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise OptionError(f"{path}: unknown setting {unknown[0]!r}; known are {sorted(known)}")
    # A relative path is relative to the file, or to the working directory in the environment.
    history = _history(values.pop("history", True), path.parent)
    if value := os.environ.get("EDGEAPP_HISTORY"):
        history = _history(value, Path())
    sound_mb = _megabytes(values.pop("history_sound_mb", Settings.history_sound_mb))
    if value := os.environ.get("EDGEAPP_HISTORY_SOUND_MB"):
        sound_mb = _megabytes(value)
    ask = _switch("ask_to_download", values.pop("ask_to_download", True))
    if value := os.environ.get("EDGEAPP_ASK_TO_DOWNLOAD"):
        ask = _switch("ask_to_download", value)
    tables = {name: _options(path, name, values.pop(name, {})) for name in TABLES}
    for name in known - {"ask_to_download", "history", "history_sound_mb", *TABLES}:
        if value := os.environ.get(f"EDGEAPP_{name.upper()}"):
            values[name] = value
    threads = parse_threads(str(values.pop("threads", "auto")))
    for name, setting in values.items():
        if not isinstance(setting, str):
            raise OptionError(f"{path}: {name} must be a string, not {setting!r}")
    return Settings(
        threads=threads,
        ask_to_download=ask,
        history=history,
        history_sound_mb=sound_mb,
        **tables,  # type: ignore[arg-type]
        **values,  # type: ignore[arg-type]
    )


def _options(path: Path, command: str, table: object) -> Mapping[str, Any]:
    """Return the options of a command, checked as the library checks them.

    Raises:
        OptionError: An option is unknown, or has a wrong value.
    """
    if table == {}:
        return {}
    import pipelines
    from pipelines.options import check_names

    where = f"{path}: [{command}]"
    if not isinstance(table, dict):
        raise OptionError(f"{where} must be a table, not {table!r}")
    options = getattr(pipelines, TABLES[command])
    try:
        check_names(table, [each for each in fields(options) if each.metadata["flags"] != ()])
        options(**table)
    except OptionError as error:
        raise OptionError(f"{where} {error}") from None
    return table


def parse_threads(text: str) -> int | Literal["auto"]:
    """The number of threads, or "auto".

    Raises:
        OptionError: The text is neither "auto" nor a number above 0.
    """
    if text == "auto":
        return "auto"
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise OptionError(f"threads must be auto or a number above 0, not {text!r}")


def _megabytes(value: object) -> int:
    if isinstance(value, bool) or not str(value).isascii() or not str(value).isdigit():
        raise OptionError(f"history_sound_mb must be a number of MiB, 0 or more, not {value!r}")
    return int(str(value))


def _switch(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in (*_ON, *_OFF):
        raise OptionError(f"{name} must be true or false, not {value!r}")
    return text in _ON


def _history(value: object, folder: Path) -> bool | Path:
    """The history setting; a relative path is relative to `folder`. Raises OptionError."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"history must be true, false or a file, not {value!r}")
    if value.lower() in (*_ON, *_OFF):
        return value.lower() in _ON
    return (folder / Path(value).expanduser()).absolute()


def _read(path: Path) -> dict[str, object]:
    """The content of a TOML file; empty where it does not exist. Raises OptionError."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error
