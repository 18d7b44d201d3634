"""Languages: codes, names, and the codes of each model family.

Users give ISO 639-1 codes (two letters) or English names. `LANGUAGES` holds the codes of Whisper's
vocabulary. `NLLB`, `M2M100`, `WMT21`, `MBART` and `MBART50` hold the codes of these families in
the order of their token ids.
"""

from __future__ import annotations

import locale
import os
from collections.abc import Iterable, Mapping

from pipelines.errors import OptionError, UnsupportedTask

__all__ = [
    "LANGUAGES",
    "M2M100",
    "MBART",
    "MBART50",
    "NLLB",
    "PIVOT",
    "WMT21",
    "check_spoken",
    "find_language",
    "find_target",
    "is_one_language",
    "language_code",
    "language_in_name",
    "pair_in_name",
    "pairs_through_english",
    "system_language",
    "two_letter",
]

PIVOT = "en"
"""The language through which texts are translated where no model translates a pair directly."""

# Code → English name, in the order of Whisper's language tokens; large-v3 added the last.
LANGUAGES = {
    "en": "english",
    "zh": "chinese",
    "de": "german",
    "es": "spanish",
    "ru": "russian",
    "ko": "korean",
    "fr": "french",
    "ja": "japanese",
    "pt": "portuguese",
    "tr": "turkish",
    "pl": "polish",
    "ca": "catalan",
    "nl": "dutch",
    "ar": "arabic",
    "sv": "swedish",
    "it": "italian",
    "id": "indonesian",
    "hi": "hindi",
    "fi": "finnish",
    "vi": "vietnamese",
    "he": "hebrew",
    "uk": "ukrainian",
    "el": "greek",
    "ms": "malay",
    "cs": "czech",
    "ro": "romanian",
    "da": "danish",
    "hu": "hungarian",
    "ta": "tamil",
    "no": "norwegian",
    "th": "thai",
    "ur": "urdu",
    "hr": "croatian",
    "bg": "bulgarian",
    "lt": "lithuanian",
    "la": "latin",
    "mi": "maori",
    "ml": "malayalam",
    "cy": "welsh",
    "sk": "slovak",
    "te": "telugu",
    "fa": "persian",
    "lv": "latvian",
    "bn": "bengali",
    "sr": "serbian",
    "az": "azerbaijani",
    "sl": "slovenian",
    "kn": "kannada",
    "et": "estonian",
    "mk": "macedonian",
    "br": "breton",
    "eu": "basque",
    "is": "icelandic",
    "hy": "armenian",
    "ne": "nepali",
    "mn": "mongolian",
    "bs": "bosnian",
    "kk": "kazakh",
    "sq": "albanian",
    "sw": "swahili",
    "gl": "galician",
    "mr": "marathi",
    "pa": "punjabi",
    "si": "sinhala",
    "km": "khmer",
    "sn": "shona",
    "yo": "yoruba",
    "so": "somali",
    "af": "afrikaans",
    "oc": "occitan",
    "ka": "georgian",
    "be": "belarusian",
    "tg": "tajik",
    "sd": "sindhi",
    "gu": "gujarati",
    "am": "amharic",
    "yi": "yiddish",
    "lo": "lao",
    "uz": "uzbek",
    "fo": "faroese",
    "ht": "haitian creole",
    "ps": "pashto",
    "tk": "turkmen",
    "nn": "nynorsk",
    "mt": "maltese",
    "sa": "sanskrit",
    "lb": "luxembourgish",
    "my": "myanmar",
    "bo": "tibetan",
    "tl": "tagalog",
    "mg": "malagasy",
    "as": "assamese",
    "tt": "tatar",
    "haw": "hawaiian",
    "ln": "lingala",
    "ha": "hausa",
    "ba": "bashkir",
    "jw": "javanese",
    "su": "sundanese",
    "yue": "cantonese",
}

_OTHER_NAMES = {
    "burmese": "my",
    "valencian": "ca",
    "flemish": "nl",
    "haitian": "ht",
    "letzeburgesch": "lb",
    "pushto": "ps",
    "panjabi": "pa",
    "moldavian": "ro",
    "moldovan": "ro",
    "sinhalese": "si",
    "castilian": "es",
    "mandarin": "zh",
}


def check_spoken(model: str, language: str | None, known: Iterable[str]) -> None:
    """Check that a recognizer knows a language.

    Args:
        model: Its name.
        language: A code or an English name; None: it is to be detected.
        known: The codes that it knows.

    Raises:
        OptionError: It is no language.
        UnsupportedTask: The recognizer does not know it.
    """
    known = tuple(known)
    if language is None or (code := language_code(language)) in known:
        return
    recognized = "only English" if known == ("en",) else "other languages"
    raise UnsupportedTask(
        f"{model} recognizes {recognized}, not {LANGUAGES[code].title()}; "
        "choose a multilingual model such as 'small' or 'large-v3'"
    )


def language_code(language: str) -> str:
    """The code of one of Whisper's languages.

    Args:
        language: Code ("de") or English name ("German"), in upper or lower case.

    Raises:
        OptionError: It is none of `LANGUAGES`.
    """
    key = language.strip().lower()
    if key in LANGUAGES:
        return key
    names = {name: code for code, name in LANGUAGES.items()} | _OTHER_NAMES
    if key in names:
        return names[key]
    raise OptionError(f"unknown language {language!r}: give a code (de) or a name (German)")


def system_language() -> str | None:
    """Return the code of the language of the user's system; None if it names none."""
    variables = ("LC_ALL", "LC_MESSAGES", "LANG")
    named = next(filter(None, map(os.environ.get, variables)), None) or locale.getlocale()[0]
    try:
        return language_code((named or "").split("_")[0].split(".")[0])
    except OptionError:  # "C"
        return None


# FLORES-200 codes. Source: fairseq, nllb branch, examples/nllb/modeling/scripts/flores200.
NLLB = tuple(
    """
ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab
ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn
ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl
cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn
dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn
fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn
heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn
jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn
kaz_Cyrl kbp_Latn kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn
lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn
luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn mni_Beng
khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn
nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab
quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn
slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn
sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi
taq_Latn taq_Tfng tpi_Latn tsn_Latn tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab
ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn
yue_Hant zho_Hans zho_Hant zul_Latn
""".split()
)

M2M100 = tuple(
    """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he
hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl
no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi
yo zh zu
""".split()
)

# The M2M100 codes of the WMT 2021 models.
WMT21 = tuple("en ha is ja cs ru zh de".split())

MBART = tuple(
    """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
""".split()
)

MBART50 = MBART + tuple(
    """
af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX
sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
""".split()
)

# ISO 639-1:639-3, then the member of a macrolanguage that OPUS names as well, if any.
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
# Members of macrolanguages that only NLLB names: ISO 639-1 → 639-3.
_MEMBERS = dict(
    entry.split(":")
    for entry in """
ay:ayr ff:fuv kr:knc lv:lvs mg:plt mn:khk ne:npi om:gaz or:ory ps:pbt qu:quy sq:als tl:fil uz:uzn
yi:ydd
""".split()
)
# Other two-letter codes in use, such as Whisper's jw → ISO 639-1.
_ALIASES = {"jw": "jv", "iw": "he", "in": "id", "ji": "yi", "nb": "no"}
# Script of Chinese by region; without a region the script of most readers.
_CHINESE = {"": "hans", "cn": "hans", "sg": "hans", "tw": "hant", "hk": "hant", "mo": "hant"}
_SHORT = {code: short for short, long in reversed(_LONG.items()) for code in long}
_SHORT |= {member: short for short, member in _MEMBERS.items()}


def two_letter(code: str | None) -> str | None:
    """The ISO 639-1 code of a language.

    Args:
        code: A code with or without region, such as "eng", "en_GB" or "EN" (→ "en").

    Returns:
        Two letters; the language part of `code` in lower case if it has no such code; None for an
        empty code.
    """
    if not code:
        return None
    language = code.strip().replace("-", "_").split("_")[0].lower()
    return _SHORT.get(language, language)


def is_one_language(code: str | None) -> bool:
    """Whether a code names one language, not a group of them ("ROMANCE", "mul", "gmw")."""
    return two_letter(code) in _LONG


def pair_in_name(name: str) -> tuple[str, str] | None:
    """The languages in a model's name.

    Returns:
        (source, target), such as ("en", "de") for "opus-mt-en-de"; None for names without them.
    """
    parts = name.lower().split("-")[-2:]
    if len(parts) == 2 and all(is_one_language(part) for part in parts):
        return parts[0], parts[1]
    return None


def pairs_through_english(direct: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return source language → target languages that are reached directly or through English.

    Args:
        direct: Source language → target languages of models.
    """
    from_english = direct.get(PIVOT, set())
    return {
        source: reached | (from_english - {source} if PIVOT in reached else set())
        for source, reached in direct.items()
    }


def language_in_name(name: str) -> str | None:
    """The language at the end of a model's name, "ja" of "moonshine-tiny-ja"; None without one."""
    code = name.rpartition("-")[2]
    return code if len(code) == 2 and code in LANGUAGES else None


def find_target(wanted: str, codes: Iterable[str]) -> str | None:
    """Find the code of a model that a requested language means.

    Args:
        wanted: The requested language: two or three letters, in any spelling ("FR", "fr-FR",
            ">>fra<<").
        codes: The model's codes ("fra", "cmn_Hans", "pt_br" …).

    Returns:
        One of `codes`; None if none fits, or if several do and the request is ambiguous.
    """
    spelt = {_plain(code): code for code in codes}
    plain = _plain(wanted)
    if plain in spelt:
        return spelt[plain]
    language, _, variant = plain.partition("_")
    names = {language, two_letter(language), *_LONG.get(two_letter(language) or "", ())}
    plain_codes = [code for name, code in spelt.items() if name in names]
    if variant:
        # "fr_FR" may be a model's plain "fra", but "zh_Hant" is not its plain "zho".
        plain_codes = plain_codes if len(variant) == 2 else []
        variants = {f"{name}_{variant}" for name in names}
        variant_codes = [code for name, code in spelt.items() if name in variants]
    else:
        variant_codes = [code for name, code in spelt.items() if name.split("_")[0] in names]
    preferred = (variant_codes, plain_codes) if variant else (plain_codes, variant_codes)
    for fitting in preferred:
        if len(fitting) == 1:
            return fitting[0]
    return None


def find_language(wanted: str, codes: Iterable[str]) -> str | None:
    """As find_target, for models with one code per language and script ("por_Latn", "pt_XX").

    A region that the model lacks is dropped ("pt-BR", "de_AT"), and so is the script of a
    language with only one (another model's "deu_Latn"). For Chinese the region selects the script.
    """
    codes = tuple(codes)
    language, _, variant = _plain(wanted).partition("_")
    short = _ALIASES.get(two_letter(language) or "", two_letter(language) or "")
    attempts = [wanted]
    if short == "zh":
        script = _CHINESE.get(variant, variant)
        attempts += [f"zh_{script}", *["zh"] * (script == "hans")]
    elif len(variant) != 4 or all(find_target(code, NLLB) for code in (wanted, language)):
        attempts += [language, short, _MEMBERS.get(short, "")]
    matches = (find_target(attempt, codes) for attempt in attempts if attempt)
    return next((code for code in matches if code is not None), None)


def _plain(code: str) -> str:
    """A code in lower case, with "_" before the region and without the marks ">>" and "<<"."""
    bare = code.strip().removeprefix(">>").removesuffix("<<").strip("_")
    return bare.replace("-", "_").lower()
