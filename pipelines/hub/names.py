"""Short names of published models, as users of openai-whisper, OPUS-MT and NLLB type them."""

from __future__ import annotations

import difflib
import re
import reprlib

from pipelines.hub.multilingual_models import REPOSITORIES as _TRANSLATORS

__all__ = ["is_repository", "repository_of", "short_name", "shown", "similar_names"]

_WHISPER_SIZES = (
    "tiny",
    "tiny.en",
    "base",
    "base.en",
    "small",
    "small.en",
    "medium",
    "medium.en",
    "large-v2",
    "large-v3",
    "large-v3-turbo",
)
_DISTIL_SIZES = ("small.en", "medium.en", "large-v2", "large-v3", "large-v3.5")

# The first name of a repository is the one that is shown.
_REPOSITORIES = {
    "turbo": "openai/whisper-large-v3-turbo",
    "large-v1": "openai/whisper-large",
    **{size: f"openai/whisper-{size}" for size in _WHISPER_SIZES},
    "large": "openai/whisper-large-v3",
    **{f"distil-{size}": f"distil-whisper/distil-{size}" for size in _DISTIL_SIZES},
    **_TRANSLATORS,
}
_OWN_NAMES = {known.partition("/")[2].lower(): known for known in _TRANSLATORS.values()}
_OPUS = re.compile(r"opus-mt-[A-Za-z0-9_.-]+")
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_HUB_ID = re.compile(f"{_PART}/{_PART}")
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80
# "opus-en-de", "opusmt_en_de", "OPUS-MT-en-de", "en-de"
_PAIR = re.compile(r"(?:(?:opus[-_]?(?:mt)?|mt)[-_])?([a-z]{2})[-_]([a-z]{2})")


def repository_of(name: str) -> str | None:
    """The hub repository that a short name stands for: "tiny" → "openai/whisper-tiny".

    "whisper-tiny" is understood as "tiny", and so are the translators' names in any case, with
    their repositories' own ("nllb-200-distilled-600M", "mbart-large-50-many-to-many-mmt"). None for
    what is no short name.
    """
    if _OPUS.fullmatch(name) and is_repository(f"Helsinki-NLP/{name}"):
        return f"Helsinki-NLP/{name}"
    found = _REPOSITORIES.get(name.removeprefix("whisper-")) or _TRANSLATORS.get(name.lower())
    return found or _OWN_NAMES.get(name.lower())


def is_repository(name: str) -> bool:
    """Whether `name` has the form of a hub id, "organisation/model", by the hub's own rules."""
    forbidden = "--" in name or ".." in name or name.endswith(".git")
    return _HUB_ID.fullmatch(name) is not None and not forbidden


def short_name(repository: str) -> str:
    """The short name of a repository where it has one, else the repository itself."""
    for name, known in _REPOSITORIES.items():
        if known == repository:
            return name
    name = repository.removeprefix("Helsinki-NLP/")
    return name if _OPUS.fullmatch(name) else repository


def shown(value: object) -> str:
    """A value from a file or the network for an error message: quoted, escaped and short."""
    return _SHOWN.repr(value)


def similar_names(name: str, bundled: tuple[str, ...]) -> list[str]:
    """Up to three names that someone who typed `name` may have meant."""
    plain = name.strip().lower()
    pair = _PAIR.fullmatch(plain)
    close = difflib.get_close_matches(plain, [*_REPOSITORIES, *bundled], n=3)
    return [f"opus-mt-{pair[1]}-{pair[2]}", *close][:3] if pair else close
