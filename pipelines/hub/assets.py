"""Where the models and recordings that ship with the program are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.errors import ModelNotFound

__all__ = ["BUNDLED", "Bundled", "Task", "assets_folder", "bundled_folder"]

Task = Literal["asr", "translation"]


@dataclass(frozen=True)
class Bundled:
    """A model that ships with the program. source, target: the languages that it was trained on.

    good_for: what to expect of it, to be said to whoever gets it without having asked for it.
    """

    task: Task
    source: str
    target: str
    good_for: str


BUNDLED = {
    "demo": Bundled("asr", "en", "en", "English, clearly spoken everyday sentences"),
    "demo-en-de": Bundled("translation", "en", "de", "short everyday sentences, English to German"),
    "demo-de-en": Bundled("translation", "de", "en", "short everyday sentences, German to English"),
}


def assets_folder() -> Path:
    """The folder with `models` and `samples`: inside the package where it was installed from a
    wheel, at the top of the repository in a checkout.

    Raises ModelNotFound when neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "assets", package.parent / "assets"):
        if (folder / "models").is_dir():
            return folder
    raise ModelNotFound(
        f"this installation is incomplete: {package / 'assets'} is missing; install it again"
    )


def bundled_folder(name: str) -> Path:
    """The folder of a bundled model, such as "demo" or "demo-en-de".

    Raises ModelNotFound for another name, or when the installation lacks it.
    """
    if name not in BUNDLED:
        raise ModelNotFound(f"no bundled model {name!r}: there are {', '.join(BUNDLED)}")
    folder = assets_folder() / "models" / name
    if not (folder / "config.json").is_file():
        raise ModelNotFound(
            f"this installation is incomplete: {folder} is missing; install it again"
        )
    return folder
