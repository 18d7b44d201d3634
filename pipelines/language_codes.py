"""Language codes: the two letters people type, and what models call the same language."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.language_tokens import NLLB

__all__ = ["find_language", "find_target", "is_one_language", "pair_in_name", "two_letter"]

# ISO 639-1:639-3. Where OPUS names another member of a macrolanguage as well, it follows.
_CODES = """
aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara:arb as:asm av:ava ay:aym az:aze:azj ba:bak
be:bel bg:bul bh:bih bi:bis bm:bam bn:ben bo:bod br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre
cs:ces cu:chu cv:chv cy:cym da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est
eu:eus fa:fas:pes ff:ful fi:fin fj:fij fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj
gv:glv ha:hau he:heb hi:hin ho:hmo hr:hrv ht:hat hu:hun hy:hye hz:her ia:ina id:ind ie:ile ig:ibo
ii:iii ik:ipk io:ido is:isl it:ita iu:iku ja:jpn jv:jav ka:kat kg:kon ki:kik kj:kua kk:kaz kl:kal
km:khm kn:kan ko:kor kr:kau ks:kas ku:kur:kmr kv:kom kw:cor ky:kir la:lat lb:ltz lg:lug li:lim
ln:lin lo:lao lt:lit lu:lub lv:lav mg:mlg mh:mah mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa:zsm
mt:mlt my:mya na:nau nb:nob nd:nde ne:nep ng:ndo nl:nld nn:nno no:nor:nob nr:nbl nv:nav ny:nya
oc:oci oj:oji om:orm or:ori os:oss pa:pan pi:pli pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron
ru:rus rw:kin sa:san sc:srd sd:snd se:sme sg:sag sh:hbs si:sin sk:slk sl:slv sm:smo sn:sna so:som
sq:sqi sr:srp ss:ssw st:sot su:sun sv:swe sw:swa:swh ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk
tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ty:tah ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie
vo:vol wa:wln wo:wol xh:xho yi:yid yo:yor za:zha zh:zho:cmn zu:zul
"""
_LONG = {short: tuple(long) for short, *long in (entry.split(":") for entry in _CODES.split())}
# Members of macrolanguages that only NLLB names.
_MEMBERS = dict(
    entry.split(":")
    for entry in """
ay:ayr ff:fuv kr:knc lv:lvs mg:plt mn:khk ne:npi om:gaz or:ory ps:pbt qu:quy sq:als tl:fil uz:uzn
yi:ydd
""".split()
)
# What else people, and Whisper, call a language.
_OTHERWISE = {"jw": "jv", "iw": "he", "in": "id", "ji": "yi", "nb": "no"}
# What a region's Chinese is written in; where nobody says which, it is the one of most readers.
_CHINESE = {"": "hans", "cn": "hans", "sg": "hans", "tw": "hant", "hk": "hant", "mo": "hant"}
_SHORT = {code: short for short, long in reversed(_LONG.items()) for code in long}
_SHORT |= {member: short for short, member in _MEMBERS.items()}


def two_letter(code: str | None) -> str | None:
    """The two-letter code of a language ("eng", "en_GB", "EN" → "en"), else the code as it is."""
    if not code:
        return None
    language = code.strip().replace("-", "_").split("_")[0].lower()
    return _SHORT.get(language, language)


def is_one_language(code: str | None) -> bool:
    """Whether this names a language, rather than a group of them ("ROMANCE", "mul", "gmw")."""
    return two_letter(code) in _LONG


def pair_in_name(name: str) -> tuple[str, str] | None:
    """("en", "de") of a model named "…-en-de"; None for other names."""
    parts = name.lower().split("-")[-2:]
    if len(parts) == 2 and all(is_one_language(part) for part in parts):
        return parts[0], parts[1]
    return None


def find_target(wanted: str, codes: Iterable[str]) -> str | None:
    """The one of a model's `codes` ("fra", "cmn_Hans", "pt_br" …) that `wanted` means.

    Spelling ("FR", "fr-FR", ">>fra<<"), and two letters for three, do not matter. None when no
    code fits, or several do: which of them is for the user to say.
    """
    spelt = {_plain(code): code for code in codes}
    plain = _plain(wanted)
    if plain in spelt:
        return spelt[plain]
    language, _, variant = plain.partition("_")
    names = {language, two_letter(language), *_LONG.get(two_letter(language) or "", ())}
    whole = [code for name, code in spelt.items() if name in names]
    if variant:
        # "fr_FR" may be a model's plain "fra", but "zh_Hant" is not its plain "zho".
        whole = whole if len(variant) == 2 else []
        parts = [code for name, code in spelt.items() if name in {f"{n}_{variant}" for n in names}]
    else:
        parts = [code for name, code in spelt.items() if name.split("_")[0] in names]
    for fitting in (parts if variant else whole, whole if variant else parts):
        if len(fitting) == 1:
            return fitting[0]
    return None


def find_language(wanted: str, codes: Iterable[str]) -> str | None:
    """As find_target, for models with one code for each language and script ("por_Latn", "pt_XX").

    A region that the model does not know is left out ("pt-BR", "de_AT"), and so is the script of
    a language that has but one (another model's "deu_Latn"). Chinese is what its region writes.
    """
    codes = tuple(codes)
    language, _, variant = _plain(wanted).partition("_")
    short = _OTHERWISE.get(two_letter(language) or "", two_letter(language) or "")
    attempts = [wanted]
    if short == "zh":
        script = _CHINESE.get(variant, variant)
        attempts += [f"zh_{script}", *["zh"] * (script == "hans")]
    elif len(variant) != 4 or all(find_target(code, NLLB) for code in (wanted, language)):
        attempts += [language, short, _MEMBERS.get(short, "")]
    found = (find_target(attempt, codes) for attempt in attempts if attempt)
    return next((code for code in found if code is not None), None)


def _plain(code: str) -> str:
    bare = code.strip().removeprefix(">>").removesuffix("<<").strip("_")
    return bare.replace("-", "_").lower()
