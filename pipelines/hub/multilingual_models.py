"""Published translators for many languages, and which languages those are."""

from __future__ import annotations

__all__ = ["LANGUAGES", "REPOSITORIES", "translating"]

_NLLB = "distilled-600M distilled-1.3B 1.3B 3.3B".split()
_MBART = "many-to-many one-to-many many-to-one".split()
_T5 = "small base large".split()

# Short names are in small letters, in which they are looked up.
REPOSITORIES = {
    **{f"nllb-200-{size.lower()}": f"facebook/nllb-200-{size}" for size in _NLLB},
    **{f"m2m100-{size.lower()}": f"facebook/m2m100_{size}" for size in ("418M", "1.2B")},
    **{f"mbart-50-{kind}": f"facebook/mbart-large-50-{kind}-mmt" for kind in _MBART},
    "mbart-en-ro": "facebook/mbart-large-en-ro",
    **{f"t5-{size}": f"google-t5/t5-{size}" for size in _T5},
    **{f"flan-t5-{size}": f"google/flan-t5-{size}" for size in (*_T5, "xl", "xxl")},
}

# Those with a code of two letters.
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

# Those between all of whose languages they translate, best first.
LANGUAGES = {
    "nllb-200-3.3b": _NLLB_LANGUAGES,
    "nllb-200-distilled-1.3b": _NLLB_LANGUAGES,
    "nllb-200-1.3b": _NLLB_LANGUAGES,
    "nllb-200-distilled-600m": _NLLB_LANGUAGES,
    "m2m100-1.2b": _M2M100_LANGUAGES,
    "mbart-50-many-to-many": _MBART_LANGUAGES,
    "m2m100-418m": _M2M100_LANGUAGES,
}


def translating(source: str, target: str) -> tuple[str, ...]:
    """Short names of the models for this pair of two-letter codes, best first."""
    return tuple(name for name, known in LANGUAGES.items() if {source, target} <= known)
