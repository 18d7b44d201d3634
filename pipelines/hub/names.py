"""Short names of published models, as users of openai-whisper, Moonshine, OPUS-MT and NLLB type
them.

Also the languages of the multilingual translation models, and the form of repository ids.
"""

from __future__ import annotations

import difflib
import re
import reprlib

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
_MOONSHINE = ("tiny", "base", *(f"tiny-{code}" for code in "ar ja ko uk vi zh".split()))

_NLLB = "distilled-600M distilled-1.3B 1.3B 3.3B".split()
_MBART = "many-to-many one-to-many many-to-one".split()
_T5 = "small base large".split()

# Models that translate between many languages. Short names are lower case, as in the look-up.
_MULTILINGUAL = {
    **{f"nllb-200-{size.lower()}": f"facebook/nllb-200-{size}" for size in _NLLB},
    **{f"m2m100-{size.lower()}": f"facebook/m2m100_{size}" for size in ("418M", "1.2B")},
    **{f"mbart-50-{kind}": f"facebook/mbart-large-50-{kind}-mmt" for kind in _MBART},
    "mbart-en-ro": "facebook/mbart-large-en-ro",
    **{f"t5-{size}": f"google-t5/t5-{size}" for size in _T5},
    **{f"flan-t5-{size}": f"google/flan-t5-{size}" for size in (*_T5, "xl", "xxl")},
}

# The languages of each that have a two-letter code.
_NLLB_LANGUAGES = frozenset(
    """
af ak am ar as ay az ba be bg bm bn bo bs ca cs cy da de dz ee el en eo es et eu fa ff fi fj fo fr
ga gd gl gn gu ha he hi hr ht hu hy id ig is it ja jv ka kg ki kk km kn ko ku ky lb lg li ln
lo lt lv mg mi mk ml mn mr ms mt my nb ne nl nn no ny oc om or pa pl ps pt qu rn ro ru rw sa sc sd
sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn tr ts tt tw ug uk ur uz vi wo xh
yi yo zh zu
""".split()
)
_M2M100_LANGUAGES = frozenset(
    """
af am ar az ba be bg bn br bs ca cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht
hu hy id ig is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my nb ne nl no oc or pa
pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
""".split()
)
_MBART_LANGUAGES = frozenset(
    """
af ar az bn cs de en es et fa fi fr gl gu he hi hr id it ja ka kk km ko lt lv mk ml mn mr my ne nl
pl ps pt ro ru si sl sv sw ta te th tl tr uk ur vi xh zh
""".split()
)

# Many-to-many models and the languages between which they translate, best first.
MODEL_LANGUAGES = {
    "nllb-200-3.3b": _NLLB_LANGUAGES,
    "nllb-200-distilled-1.3b": _NLLB_LANGUAGES,
    "nllb-200-1.3b": _NLLB_LANGUAGES,
    "nllb-200-distilled-600m": _NLLB_LANGUAGES,
    "m2m100-1.2b": _M2M100_LANGUAGES,
    "mbart-50-many-to-many": _MBART_LANGUAGES,
    "m2m100-418m": _M2M100_LANGUAGES,
}

# Short name → repository. Where a repository has several names, `short_name` returns the first.
_REPOSITORIES = {
    "turbo": "openai/whisper-large-v3-turbo",
    "large-v1": "openai/whisper-large",
    **{size: f"openai/whisper-{size}" for size in _WHISPER_SIZES},
    "large": "openai/whisper-large-v3",
    **{f"distil-{size}": f"distil-whisper/distil-{size}" for size in _DISTIL_SIZES},
    **{f"moonshine-{size}": f"UsefulSensors/moonshine-{size}" for size in _MOONSHINE},
    **_MULTILINGUAL,
}
# Repository name without its organisation, in lower case → repository.
_OWN_NAMES = {known.partition("/")[2].lower(): known for known in _MULTILINGUAL.values()}
_OPUS = re.compile(r"opus-mt-[A-Za-z0-9_.-]+")
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_HUB_ID = re.compile(f"{_PART}/{_PART}")
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80
# A pair as users type it: "opus-en-de", "opusmt_en_de", "OPUS-MT-en-de", "en-de"
_PAIR = re.compile(r"(?:(?:opus[-_]?(?:mt)?|mt)[-_])?([a-z]{2})[-_]([a-z]{2})")


def repository_of(name: str) -> str | None:
    """The hub repository of a short name: "tiny" → "openai/whisper-tiny".

    "whisper-tiny" means "tiny". Multilingual translation models are found in upper and lower case,
    also by the names of their repositories ("nllb-200-distilled-600M",
    "mbart-large-50-many-to-many-mmt").

    Returns:
        None if `name` is not a short name.
    """
    if _OPUS.fullmatch(name) and is_repository(f"Helsinki-NLP/{name}"):
        return f"Helsinki-NLP/{name}"
    repository = _REPOSITORIES.get(name.removeprefix("whisper-"))
    lower = name.lower()
    return repository or _MULTILINGUAL.get(lower) or _OWN_NAMES.get(lower)


def multilingual_models(source: str, target: str) -> tuple[str, ...]:
    """Short names of the many-to-many translation models for a language pair, best first.

    Args:
        source: Two-letter code.
        target: Two-letter code.
    """
    return tuple(name for name, known in MODEL_LANGUAGES.items() if {source, target} <= known)


def is_repository(name: str) -> bool:
    """Whether `name` has the form of a hub id, "organisation/model", by the hub's own rules."""
    forbidden = "--" in name or ".." in name or name.endswith(".git")
    return _HUB_ID.fullmatch(name) is not None and not forbidden


def short_name(repository: str) -> str:
    """The short name of a repository, or the repository itself if it has none."""
    for name, known in _REPOSITORIES.items():
        if known == repository:
            return name
    name = repository.removeprefix("Helsinki-NLP/")
    return name if _OPUS.fullmatch(name) else repository


def shown(value: object) -> str:
    """A value from a file or the network for an error message: quoted, escaped and short."""
    return _SHOWN.repr(value)


def plain_line(text: str) -> str:
    """The first line of a message that may come from the network: printable and short."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return "".join(c if c.isprintable() else "?" for c in line[:300])


def similar_names(name: str, bundled: tuple[str, ...]) -> list[str]:
    """Up to three known names that resemble `name`, best first.

    Args:
        name: The unknown name.
        bundled: Names of the bundled models.
    """
    plain = name.strip().lower()
    pair = _PAIR.fullmatch(plain)
    close = difflib.get_close_matches(plain, [*_REPOSITORIES, *bundled], n=3)
    return [f"opus-mt-{pair[1]}-{pair[2]}", *close][:3] if pair else close
