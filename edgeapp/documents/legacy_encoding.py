"""The encoding of text that is not Unicode and declares nothing, told by its letters.

Text in Latin letters is told by its language, whose letters its encoding must give. For other
scripts charset-normalizer compares how often each letter stands in the text and in a language. A
guess that is not sure is none: the wrong encoding replaces words without any error.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from pipelines.languages import two_letter
from pipelines.text_language import rank_text_languages

__all__ = ["SAMPLE_BYTES", "guess_encoding"]

SAMPLE_BYTES = 1 << 16
"""Size of the sample that tells an encoding; more does not change the answer."""

_WESTERN = "cp1252"  # of languages that are not listed below
# koi8_u extends KOI8-R, cp1125 is cp866 with the letters of Ukrainian.
_CYRILLIC = ("cp1251", "koi8_u", "cp866", "cp1125", "iso8859_5", "mac_cyrillic")
_CENTRAL = ("cp1250", "iso8859_2")
_BALTIC = ("cp1257",)
_BY_LANGUAGE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("be", "bg", "kk", "mk", "ru", "sr", "tt", "uk"), _CYRILLIC),
    **dict.fromkeys(("bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl"), _CENTRAL),
    **dict.fromkeys(("et", "lt", "lv"), _BALTIC),
    **dict.fromkeys(("ar", "fa", "ur"), ("cp1256", "iso8859_6")),
    "el": ("cp1253", "iso8859_7"),
    "he": ("cp1255", "cp862"),
    "ja": ("cp932", "euc_jp"),
    "ko": ("cp949",),
    "th": ("cp874",),
    "tr": ("cp1254",),
    "vi": ("cp1258",),
    "zh": ("gb18030", "big5hkscs"),
}
_LATIN = {_WESTERN, "cp1250", "iso8859_2", "cp1254", "cp1257", "cp1258"}
_NOT_LATIN = [
    codec for codec in dict.fromkeys(sum(_BY_LANGUAGE.values(), ())) if codec not in _LATIN
]
# The letters that ASCII lacks, of languages with more than one usual encoding.
_ALPHABETS = {
    "bg": "абвгдежзийклмнопрстуфхцчшщъьюя",
    "cs": "áčďéěíňóřšťúůýž",
    "hu": "áéíóöőúüű",
    "pl": "ąćęłńóśźż",
    "ro": "ăâîşţșț",
    "ru": "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
    "sk": "áäčďéíĺľňóôŕšťúýž",
    "uk": "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",
    **dict.fromkeys(("bs", "hr", "sl"), "čćđšž"),
}
# The common characters of Chinese: (set, first lead byte, last one).
_COMMON = {"gb18030": ("gb2312", 0xB0, 0xD7), "big5hkscs": ("big5", 0xA4, 0xC6)}
_TAG = re.compile(rb"<[^<>]*>")
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
_WORD = re.compile(r"[^\W\d_]+")
# Between two letters these are usual; another sign there was a letter before it was decoded.
_IN_WORDS = set("’‘·…–—\xa0\xad")
_SIGN_IN_WORD = re.compile(r"(?<=[^\W\d_])[^\w\s\x00-\x7f](?=[^\W\d_])")
_FRACTION_IN_WORD = re.compile(r"(?<=[^\W\d_])[¼½¾](?=[^\W\d_])")  # Œ, œ and Ÿ in ISO 8859-15
_COHERENT, _AHEAD = 0.2, 0.15  # coherence of charset-normalizer, from 0 to 1
_LIKELY, _UNLIKELY = 0.9, 0.01  # of the languages of an encoding, together
_THORN, _WITH_THORN = re.compile("[ðþýÐÞÝ]"), ("is", "fo")
_MANY_THORNS = 0.25  # of the letters that ASCII lacks; a name such as Novotný is no sign
_HANGUL, _KANA = re.compile("[가-힣]"), re.compile("[ぁ-ヿ]")
_SURE_SYLLABLES = 8
_MAX_FAULTS = 0.1  # of the words with other letters than ASCII


def guess_encoding(sample: bytes, language: str | None) -> str | None:
    """Return Python's name of the encoding of a text, or None if it is not sure.

    Args:
        sample: Lines of the text, some of which are not UTF-8; HTML or plain text.
        language: The language that the text is said to be in, if it is known. It decides if the
            text is too short to tell.
    """
    language = two_letter(language)
    if len(sample) > SAMPLE_BYTES:
        sample = sample[:SAMPLE_BYTES]
        sample = sample[: max(sample.rfind(each) for each in (b"\n", b" ", b"<"))]
    lines = _TAG.sub(b" ", sample).split(b"\n")
    sample = b"\n".join(line for line in lines if not _is_utf8(line))
    high = _HIGH_BYTES.findall(sample)
    runs = [run for run in high if len(run) > 2]
    # Latin letters that ASCII lacks stand alone or in pairs.
    if 2 * sum(map(len, runs)) <= sum(map(len, high)):
        codec = _best(sample, *_of_latin_letters(sample, language))
        if codec == _WESTERN and _only_looks_western(sample, language):
            return None
        latin_9 = codec == _WESTERN and _FRACTION_IN_WORD.search(sample.decode(codec, "ignore"))
        return "iso8859_15" if latin_9 else codec
    own = [codec for codec in _encodings(language) if codec not in _LATIN]
    likely = _coherent(sample)
    return _best(sample, [codec for codec in likely if codec in own] or likely or own, language)


def _only_looks_western(sample: bytes, language: str | None) -> bool:
    """Return whether a text of no given language has many letters of Icelandic in Windows-1252,
    but is not Icelandic.

    Their bytes are other letters in Turkish (ğ, ı, ş), Lithuanian (š, ž) and Romanian (ţ).
    """
    text = sample.decode(_WESTERN, "ignore")
    letters = sum(char.isalpha() and not char.isascii() for char in text)
    thorns = len(_THORN.findall(text))
    if language is not None or not thorns or thorns < _MANY_THORNS * letters:
        return False
    own = (each.probability for each in rank_text_languages(text) if each.code in _WITH_THORN)
    return sum(own) < _LIKELY


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _encodings(language: str | None) -> tuple[str, ...]:
    return _BY_LANGUAGE.get(language or "", (_WESTERN,))


def _of_latin_letters(sample: bytes, language: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the encodings that a text of Latin letters may have, and its likely language.

    The language that it is said to be in is another one only if that is sure.
    """
    ranked = rank_text_languages(sample.decode(_WESTERN, "ignore"), None)
    families: dict[tuple[str, ...], float] = {}
    for each in ranked:
        family = _CENTRAL if each.code == "sr" else _encodings(each.code)
        families[family] = families.get(family, 0.0) + each.probability
    likely = max(families, key=lambda family: families[family])
    own = _encodings(language)
    sure = families[likely] >= _LIKELY and (not language or families.get(own, 0.0) <= _UNLIKELY)
    if not sure or likely == own:
        return own, language
    return likely, next(each.code for each in ranked if _encodings(each.code) == likely)


def _coherent(sample: bytes) -> list[str]:
    """Return the encodings that make a text of other than Latin letters, if this is sure.

    Only such with close results are returned together.
    """
    from charset_normalizer import from_bytes

    if (codec := _east_asian(sample)) is not None:
        return [codec]
    matches = [
        (match.coherence, match.encoding) for match in from_bytes(sample, cp_isolation=_NOT_LATIN)
    ]
    best = max(matches, default=(0.0, ""))[0]
    return [codec for value, codec in matches if best >= _COHERENT and value > best - _AHEAD]


def _east_asian(sample: bytes) -> str | None:
    """Return the encoding of a Korean or Japanese text, which its syllables tell."""
    for codec, syllables, share in (
        ("euc_kr", _HANGUL, 0.95),
        ("cp932", _KANA, 0.3),
        ("euc_jp", _KANA, 0.3),
    ):
        text = sample.decode(codec, "replace")
        others = [char for char in text if char > "\x7f" and unicodedata.category(char) != "Po"]
        found = len(syllables.findall(text))
        if found < _SURE_SYLLABLES or found < share * len(others):
            continue
        if sum(map(_is_wide, others)) >= 0.95 * len(others):
            return "cp949" if codec == "euc_kr" else codec
    return None


def _best(sample: bytes, likely: Sequence[str], language: str | None) -> str | None:
    """Return the encoding that gives the most letters and the fewest faults, if it is sure.

    A single one may be wrong for some bytes: the whole text is decoded later, which names the line.
    """
    rated: dict[str, tuple[tuple[int, int], str]] = {}
    for codec in likely:
        try:
            text = sample.decode(codec)
        except UnicodeDecodeError:
            if len(likely) == 1:
                return codec
            continue
        faults, words = _faults(text)
        if faults <= _MAX_FAULTS * words:
            rated.setdefault(text, ((-faults, _letters(text, codec, language)), codec))
    ranked = sorted(rated.values(), key=lambda each: each[0], reverse=True)
    if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
        return None
    return ranked[0][1]


def _faults(text: str) -> tuple[int, int]:
    """Return how many words look wrong, and how many have other letters than ASCII.

    A capital follows a small letter in a wrong word, or another sign stands inside it.
    """
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    wrong = sum(word != word.upper() and word[1:] != word[1:].lower() for word in words)
    signs = sum(
        sign not in _IN_WORDS and unicodedata.category(sign)[0] in "PS" and not _is_wide(sign)
        for sign in _SIGN_IN_WORD.findall(text)
    )
    controls = sum("\x80" <= char < "\xa0" for char in text)
    return wrong + signs + controls, max(1, len(words))


def _letters(text: str, codec: str, language: str | None) -> int:
    """Return the number of letters other than ASCII that the language or the encoding expects."""
    others = [char for char in text if char > "\x7f"]
    language = language or rank_text_languages(text, 1)[0].code
    if language in _ALPHABETS:
        return sum(char.lower() in _ALPHABETS[language] for char in others)
    if codec in _COMMON:
        name, first, last = _COMMON[codec]
        return sum(first <= char.encode(name, "replace")[0] <= last for char in others)
    # Half-width katakana are what other bytes become in Shift-JIS.
    return sum(char.isalpha() and unicodedata.east_asian_width(char) != "H" for char in others)


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"
