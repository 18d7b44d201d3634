"""The models and recordings that are part of the program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import ModelNotFound
from pipelines.families import Task


@dataclass(frozen=True)
class Bundled:
    """A model that is part of the program.

    Attributes:
        task: "asr", "translation" or "reading".
        source: Language code of the input that it was trained on; of a reader, one of the two.
        target: Language code of its output; of a reader, the other one.
        good_for: Its limits, for messages.
    """

    task: Task
    source: str
    target: str
    good_for: str


BUNDLED = {
    "demo": Bundled("asr", "en", "en", "synthetic voices that speak English"),
    "demo-en-de": Bundled("translation", "en", "de", "short everyday sentences, English to German"),
    "demo-de-en": Bundled("translation", "de", "en", "short everyday sentences, German to English"),
    "reader": Bundled("reading", "en", "de", "upright lines of English and German print"),
}


def assets_folder() -> Path:
    """The folder with `models` and `samples`.

    In a wheel it is inside the package, in a checkout at the top of the repository.

    Raises:
        ModelNotFound: Neither exists.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "assets", package.parent / "assets"):
        if (folder / "models").is_dir():
            return folder
    raise ModelNotFound(
        f"this installation is incomplete: {package / 'assets'} is missing; install it again"
    )


def bundled_folder(name: str) -> Path:
    """The folder of a bundled model.

    Args:
        name: A key of BUNDLED, such as "demo" or "demo-en-de".

    Raises:
        ModelNotFound: There is no such bundled model, or the installation lacks it.
    """
    if name not in BUNDLED:
        raise ModelNotFound(
            f"there is no bundled model {name!r}; the bundled models are {', '.join(BUNDLED)}"
        )
    folder = assets_folder() / "models" / name
    if not (folder / "config.json").is_file():
        raise ModelNotFound(
            f"this installation is incomplete: {folder} is missing; install it again"
        )
    return folder
