"""Sentence splitting that keeps every character: spans add up to the text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import sentencex

from pipelines.languages import two_letter


@dataclass(frozen=True)
class SentenceSpan:
    """A sentence with the white space before it.

    All `leading_space + text` of a text's spans add up to that text.

    Attributes:
        leading_space: The white space between this sentence and the one before.
        text: The sentence, without white space at its ends; empty only in a last span, which has
            the text's trailing space.
    """

    leading_space: str
    text: str


# A sentence never crosses one of these: lines and table columns are kept.
_HARD_BREAK = re.compile("([\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+)")
_ODD_SPACE = re.compile(r"[^\S ]")
_NUMBERING = re.compile(r"\W*\d{1,3}[.)]\s*")
_ABBREVIATION = re.compile(r"\b\w{1,3}\.(?:\w{1,3}\.)+\s+")
_MAX_CHARACTER = 64  # code points of one character; a longer row of marks is cut anywhere
_SURROGATE = re.compile("[\ud800-\udfff]")

# Abbreviations before a name, where sentencex takes their full stop for the end of a sentence. By
# language: "on." is Onorevole in Italian, and a word in English. Small letters stand for both. Some
# are words as well ("им."): two sentences in one are translated better than two halves of one.
_BEFORE_NAMES = {
    language: frozenset(words.split())
    for language, words in {
        "af": "mnr mev mej dr prof ds adv",
        "ar": "د أ أد",
        "az": "prof dr akad",
        "be": "св праф акад ген вул гр",
        "bg": "св проф акад ген ул гр",
        "bn": "ডা ড মো প্রফেসর",
        "bs": "sv g gđa gosp dr prof mr ing",
        "ca": "sr sra sta dr dra mn fra",
        "cs": "p ing mgr bc mudr judr phdr dr doc prof sv gen plk",
        "cy": "parch dr mr mrs st",
        "da": "hr frk dr prof sct",
        "de": "hr fr frl dr prof st hl Mag dipl",
        "el": "κ κα κκ δρ αγ καθ",
        "eo": "s-ro s-ino f-ino d-ro prof ing",
        "es": "sr sra sres sras srta srtas dña dn dr dra dres ing lic arq gral cnel sto sta mons "
        "excmo excma ilmo ilma pbro",
        "et": "hr pr prl dr prof",
        "eu": "Jn And dr",
        "fa": "دکتر",
        "fi": "hra rva prof tri",
        "fr": "mme mmes mlle mlles mgr MM Me dr drs pr prof st ste sts stes vve",
        "fy": "mefr hr dr drs ds prof",
        "ga": "Uas tUas Oll tOll dr",
        "gl": "sr sra dr dra mn",
        "gu": "ડૉ ડો શ્રી પ્રો",
        "he": 'ד"ר פרופ גב מר עו"ד',
        "hi": "डॉ डा श्री प्रो पं",
        "hr": "sv g gđa gosp dr prof mr ing",
        "hu": "dr id ifj özv szt prof",
        "id": "bpk sdr sdri ir dr prof drs hj",
        "is": "hr frk dr sr próf",
        "it": "sig sigg sigra signa dott dottssa prof profssa ing avv arch geom rag On Sen mons "
        "card ss cav comm gen col cap magg",
        "ka": "პროფ დოქ აკად",
        "kk": "проф акад",
        "kn": "ಡಾ ಶ್ರೀ ಪ್ರೊ",
        "lb": "mme hr dr prof",
        "lt": "p kun prof doc akad dr",
        "lv": "kgz kdze prof dr doc akad",
        "mk": "св проф акад д-р г ул",
        "ml": "ഡോ ശ്രീ പ്രൊഫ",
        "mr": "डॉ श्री प्रा सौ",
        "ms": "En Pn Hj dr prof",
        "mt": "sur is-Sur sinj dr prof mons",
        "ne": "डा श्री प्रा",
        "nl": "mevr mw dhr dr drs ir ing prof ds jhr gebr",
        "no": "hr frk dr prof st",
        "oc": "mme dr",
        "pa": "ਡਾ ਸ ਪ੍ਰੋ",
        "pl": "p ks dr inż mgr prof św ul al gen płk kpt por im bp abp hab",
        "pt": "sr sra srs sras srta dr dra drs eng arq prof profa exmo exma exa sto sta pe gen cel",
        "ro": "dl dna d-na sf dr prof ing str",
        "ru": "св проф акад ген ул им гр тов",
        "si": "ආචාර්ය",
        "sk": "p ing mgr bc mudr judr phdr dr doc prof sv gen plk",
        "sl": "sv ga dr prof mag ing",
        "sq": "z Znj dr prof",
        "sr": "sv св g г-ђа dr др prof проф",
        "sv": "hr frk dr prof st",
        "sw": "dkt Bw Bi prof",
        "ta": "டாக்டர் திரு பேரா",
        "te": "డా శ్రీ ప్రొ",
        "tl": "G gng Bb dr dra",
        "tr": "dr sn prof Av doç hz",
        "uk": "св проф акад ген вул ім",
        "uz": "prof akad",
        "vi": "TS GS BS PGS TP ThS Ths",
    }.items()
}
_BEFORE_NAMES |= {"nb": _BEFORE_NAMES["no"], "nn": _BEFORE_NAMES["no"]}
# "M.", "J.-C.": initials and titles of one letter, if it is a capital. A small letter, or one of a
# script without capitals, is a word: "quem é.", "안 돼."
_INITIAL = re.compile(r"(?:[^\W\d_]\.-)?([^\W\d_])\.\s*")
_TITLE_AND_BEFORE = 60  # characters that are looked at
_LETTERED = re.compile(  # what a letter is the name of: "Plan B." may end a sentence
    r"(?i)\b(?:plan|vitamine?|vitamina|hepatitis|typ|type|tipo|klasse|class|classe|clase|grupp?e?"
    r"|groupe?|grupo|gruppo|opti?on|opción|punkt|point|teil|part|partie|variante|block|note)\s+\Z"
)

# Where to cut a long sentence, best first. The cut is at the end of the match.
_CUTS = (
    re.compile(r"[;:][\"'”’»)\]]*(?=\s)|\s(?=[–—]\s)|[；：]"),
    re.compile(r",[\"'”’»)\]]*(?=\s)|[)\]](?=\s)|\s(?=[(\[])|[،，、。！？](?=\S)"),
    re.compile(r"\s+"),
)


def split_sentences(
    text: str, language: str | None, lines_only: bool = False
) -> list[SentenceSpan]:
    """Split a text into sentences.

    The rules and abbreviations of some two hundred languages are those of sentencex.

    Args:
        text: The text.
        language: Its code; None for English rules.
        lines_only: A span is a whole line, or a whole cell of a table.
    """
    spans: list[SentenceSpan] = []
    leading_space = ""
    for part in _HARD_BREAK.split(text):
        for piece in [part] if lines_only else _segment(part, two_letter(language) or "en"):
            body = piece.strip()
            if not body:
                leading_space += piece
                continue
            start = piece.index(body)
            spans.append(SentenceSpan(leading_space + piece[:start], body))
            leading_space = piece[start + len(body) :]
    if leading_space:
        spans.append(SentenceSpan(leading_space, ""))
    return spans


def split_to_fit(sentence: str, limit: int, measure: Callable[[str], int]) -> list[SentenceSpan]:
    """Split a sentence into parts of at most `limit`.

    It is cut at ; : and dashes, else at commas and brackets, else between words, and without any
    white space between characters, never within one of several code points. A part of one
    character may exceed the limit.

    Args:
        sentence: The sentence.
        limit: The largest measure of a part.
        measure: The measure of a text, such as its number of source ids.
    """
    if measure(sentence) <= limit or len(sentence) < 2:
        return [SentenceSpan("", sentence)]
    cut = _best_cut(sentence)
    left, right = sentence[:cut].rstrip(), sentence[cut:].lstrip()
    if not left or not right:
        return [SentenceSpan("", sentence)]
    space = sentence[len(left) : len(sentence) - len(right)]
    first, *rest = split_to_fit(right, limit, measure)
    return [*split_to_fit(left, limit, measure), SentenceSpan(space, first.text), *rest]


def _segment(line: str, language: str) -> list[str]:
    """The sentences of one line, each with the space after it."""
    if not line.strip():
        return [line] if line else []
    # sentencex aborts on some exotic spaces and on surrogates. Only the lengths are used.
    plain = _SURROGATE.sub("\ufffd", _ODD_SPACE.sub(" ", line))
    return list(_merge_wrong_splits(sentencex.segment(language, plain), line, language))


def _merge_wrong_splits(pieces: list[str], line: str, language: str) -> Iterator[str]:
    """Undo boundaries that end no sentence: within "ASP.NET" and "J.-C.", after the "2." of a list,
    after "p.m." before a lower-case letter, and between a title or an initial and the name."""
    start = end = 0
    for index, piece in enumerate(pieces):
        end += len(piece)
        following = pieces[index + 1] if index + 1 < len(pieces) else ""
        within_name = piece[-1:] == "." and (following[:1].isalnum() or following[:1] == "-")
        continues = following[:1].islower() and _ABBREVIATION.fullmatch(_last_word(piece))
        if following and (
            within_name
            or continues
            or _NUMBERING.fullmatch(piece)
            or _before_name(line[max(start, end - _TITLE_AND_BEFORE) : end], language)
        ):
            continue
        yield line[start:end]
        start = end


def _before_name(sentence: str, language: str) -> bool:
    """Whether a text ends with an abbreviation that a name follows."""
    word = _last_word(sentence)
    before = sentence[: len(sentence) - len(word)]
    bare = word.strip().removesuffix(".").lstrip("(\"'«„“‘[").replace(".", "")
    bare = bare.rpartition("'")[2].rpartition("’")[2]
    titles = _BEFORE_NAMES.get(language, frozenset())
    if bare in titles or (bare[:1].isupper() and bare[:1].lower() + bare[1:] in titles):
        return True
    if language == "en":  # sentencex tells "T. Jones" and "He got an A. She …" apart
        return False
    initial = _INITIAL.fullmatch(word.lstrip("(\"'«„“‘["))
    return initial is not None and initial[1].isupper() and not _LETTERED.search(before)


def _last_word(piece: str) -> str:
    """The last word, with the space after it."""
    return piece[len(piece.rstrip().rpartition(" ")[0]) :].lstrip()


def _best_cut(sentence: str) -> int:
    """Where to cut a sentence: the best kind of place in its middle half, closest to the middle."""
    middle = len(sentence) // 2
    inner = range(len(sentence) // 4, len(sentence) - len(sentence) // 4 + 1)
    for kind in _CUTS:
        places = [match.end() for match in kind.finditer(sentence, inner.start, inner.stop)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    spaces = [match.end() for match in re.finditer(r"\s+", sentence)]
    if spaces:
        return min(spaces, key=lambda place: abs(place - middle))
    for place in range(middle, min(middle + _MAX_CHARACTER, len(sentence) - 1)):
        if not _continues(sentence, place):
            return place
    return middle


def _continues(text: str, index: int) -> bool:
    """Whether the code point at `index` belongs to the character before it."""
    char, previous = text[index], text[index - 1]
    joiner = "\u200d"
    return (
        unicodedata.combining(char) > 0
        or unicodedata.category(char) in ("Mn", "Mc", "Me")
        or joiner in (char, previous)
        or "\ufe00" <= char <= "\ufe0f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )
