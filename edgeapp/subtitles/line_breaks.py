"""Where the lines of a subtitle break: after punctuation, before conjunctions, never in a name.

Reference: Netflix Timed Text Style Guide, "Line Treatment"; BBC Subtitle Guidelines, "Line breaks".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from edgeapp.subtitles.unspaced_words import word_starts

__all__ = [
    "NEVER",
    "break_cost",
    "display_width",
    "fits",
    "has_good_break",
    "lay_out",
    "words_to_break",
]

NEVER = 8.0
"""Cost of a break that a reader stumbles over, such as one between an article and its noun."""

_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "។", "။", "།")
_CLAUSE_ENDS = (",", ";", ":", "–", "—", "、", "，", "；", "：", "၊")
_CLOSING_MARKS = "\"'”’»)]"  # may follow the mark that ends a sentence or a clause
_LONGEST_WORD = 20  # columns of a word whose clusters stay together
_MAX_BALANCED_LINES = 8  # more lines are filled one by one: they are no subtitle
_ABBREVIATION = re.compile(r"(?i)^\W*(?:[a-z]|mr|mrs|ms|dr|prof|st|hr|fr|sr|jr|vs|no|nr|ca)\.$")

# Articles, possessives and other words that belong to the word after them.
_DETERMINERS = frozenset(
    """
    a an the this that these those my your his her its our their no every each some any
    der die das den dem des ein eine einen einem einer eines kein keine keinen keinem mein meine
    dein deine sein seine ihr ihre unser unsere euer eure diese dieser dieses diesen jeder jede
    le la les un une des du au aux ce cet cette ces mon ma mes ton ta tes son sa ses notre nos
    votre vos leur leurs chaque quelque
    el los las unos unas del al este esta estos estas ese esa mi mis tu tus su sus nuestro nuestra
    il lo gli i uno della dello degli delle questo questa quel quella mio mia suo sua
    o os as um uma uns umas do dos da das no na nos nas meu minha seu sua
    de het een deze dit dat mijn jouw zijn haar ons onze
    """.split()
)
# Prepositions: a break before them reads well, one after them does not.
_PREPOSITIONS = frozenset(
    """
    of in on at to for from with by about into over under after before between through during
    without within against among towards upon
    von in an auf zu zum zur für mit bei beim nach aus über unter vor hinter zwischen durch gegen
    ohne um seit während wegen im am vom ins ans
    de à dans sur sous pour par avec sans chez vers entre depuis pendant contre en
    con por para sin sobre hasta desde hacia entre
    di da su per tra fra nel nella nei nelle sul sulla dal dalla
    em com sem até
    van op voor met door naar uit tussen zonder
    """.split()
)
_CONJUNCTIONS = frozenset(
    """
    and or but because so that which who when where while if although though unless until since
    whether than as nor yet
    und oder aber denn weil dass ob wenn während obwohl damit sondern doch als bevor nachdem
    et ou mais donc car que qui quand lorsque puisque quoique si comme parce
    y e pero porque aunque cuando mientras sino
    ed ma perché quando mentre che se anche
    mas porque embora enquanto
    en maar want omdat terwijl hoewel dus
    """.split()
)
# Auxiliaries and negations stay with the verb that follows.
_AUXILIARIES = frozenset(
    """
    am is are was were be been being have has had do does did will would shall should can could may
    might must not don't doesn't didn't won't can't couldn't wouldn't shouldn't isn't aren't wasn't
    nicht ne pas non
    """.split()
)


@lru_cache(maxsize=1 << 14)
def display_width(text: str) -> int:
    """Columns that a text takes: two for each wide character, none for combining marks."""
    return sum(map(_columns, text))


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def words_to_break(text: str) -> list[str]:
    """The parts between which a line may break; a part begins with the space before it.

    They are words, and in scripts without spaces single characters with the marks that belong to
    them. In Thai, Lao and Khmer they are words if the library that knows them is installed, and
    otherwise what is written around a consonant; in Burmese and Tibetan they are syllables. Marks
    that begin no line stay with the character before them, and those that end none with the one
    after them.
    """
    # The pattern would look at each space behind the last part.
    parts: list[str] = _PART.findall(text.rstrip())
    return _joined_to_words(text, parts) if _HAS_UNSPACED.search(text) else parts


def _joined_to_words(text: str, parts: list[str]) -> list[str]:
    """Join the clusters of a word. A word that would fill half a line is left divided."""
    inside: set[int] = set()  # positions within words
    for run, starts in word_starts(text):
        inside.update(run)
        inside.difference_update(starts)
    joined: list[str] = []
    at = 0
    for part in parts:
        if at in inside and display_width(joined[-1]) + display_width(part) <= _LONGEST_WORD:
            joined[-1] += part
        else:
            joined.append(part)
        at += len(part)
    return joined


_WIDE = "\u3000-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f"
# Marks that begin no line, and those that end none: JIS X 4051, "kinsoku shori".
_CLOSING = (
    "、。，．！？：；）］｝」』】〉》〕〗〙〟”’｡､｣)}\\],.:;»%％‰℃!?…‥・ゝゞヽヾー々〻"
    "ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶ\u3099\u309aㇰ-ㇿ～〜･ｧ-ｰﾞﾟ၊။།༎។៕"
)
_OPENING = "（［｛「『【〈《〔〖〘〝“‘｢＄￥￡#＃"
_BRACKETS = r"(\[{«"  # end no line either, but may stand inside a word of another script
_MARKS = (  # that belong to the character before them
    "\u0300-\u036f\u102b-\u103e\u200d\ufe00-\ufe0f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc"
    "\u0ec8-\u0ece\u17b4-\u17d3\u17dd\u20d0-\u20f0\U000e0100-\U000e01ef"
)
_MYANMAR_LETTER = (  # of Burmese, Mon, Karen and Shan
    "[\u1000-\u102a\u103f\u104e\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070"
    "\u1075-\u1081\u108e\uaa60-\uaa7a\uaa7e\uaa7f\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe]"
)
# Vowels, tones and medials; a consonant below another one, which a virama joins.
_MYANMAR_MARKS = (
    f"(?:\u1039{_MYANMAR_LETTER}|[\u102b-\u1038\u103a-\u103e\u1056-\u1059\u105e-\u1060"
    "\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\uaa7b-\uaa7d\ua9e5])*"
)
# These scripts have no spaces between words. In Thai, Lao and Khmer lines break between clusters:
# vowels that are written before a consonant, the consonant, and what is written around it; in Khmer
# with subscripts. In Burmese they break between syllables, which a consonant without a vowel may
# end: it has the mark U+103A, or another consonant below it. In Tibetan a dot ends a syllable.
_CLUSTER = (
    "[\u0e40-\u0e44\u0ec0-\u0ec4]?[\u0e01-\u0e2e\u0e81-\u0eae\u0edc-\u0edf]"
    "[\u0e30-\u0e3a\u0e45-\u0e4e\u0eb0-\u0ebc\u0ec6-\u0ece]*[\u0e2f\u0eaf]?"
    "|[\u1780-\u17b3](?:\u17d2[\u1780-\u17b3]|[\u17b4-\u17d1\u17dd])*[\u17d4-\u17da]*"
    f"|{_MYANMAR_LETTER}{_MYANMAR_MARKS}"
    f"(?:{_MYANMAR_LETTER}(?:\u1037?\u103a|\u1039{_MYANMAR_LETTER}){_MYANMAR_MARKS})*[\u104a-\u104d\u104f]*"
    "|[\u1040-\u1049]+(?:[.,][\u1040-\u1049]+)*[\u104a-\u104d\u104f]*"
    "|[\u0f00-\u0f0a\u0f0c\u0f15-\u0fff]+[\u0f0b\u0f0d-\u0f14]*"
)
_UNSPACED = (
    "\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u0f00-\u0fff\u1000-\u109f\u1780-\u17dd"
    "\ua9e0-\ua9fe\uaa60-\uaa7f"
)
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_OTHER = (  # a character of a word of another script
    rf"(?![{_OPENING}]|[{_BRACKETS}]{{1,3}}[{_WIDE}{_UNSPACED}])[^\s{_WIDE}{_UNSPACED}]"
)
_PART = re.compile(
    rf"\s*[\u200b]?(?:[{_OPENING}{_BRACKETS}]*(?:(?![{_OPENING}])[{_WIDE}]|{_CLUSTER})"
    rf"[{_MARKS}{_CLOSING}]*"
    rf"|(?:{_OTHER})+[{_MARKS}{_CLOSING}]*"
    rf"|[{_OPENING}]+[{_MARKS}{_CLOSING}]*(?:[^\s{_WIDE}{_UNSPACED}]+[{_MARKS}{_CLOSING}]*)?"
    rf"|[^\s][{_MARKS}{_CLOSING}]*)"
)


@lru_cache(maxsize=1 << 14)
def break_cost(before: str, after: str) -> float:
    """How badly a break between two words reads: 0 after a sentence, NEVER inside a unit.

    Args:
        before: The last word before the break.
        after: The first word after it.
    """
    left, right = before.strip(), after.strip()
    mark = left.rstrip(_CLOSING_MARKS)
    if mark.endswith(_SENTENCE_ENDS) and not _ABBREVIATION.match(left):
        return 0.0
    if mark.endswith(_CLAUSE_ENDS):
        return 0.5
    bare_left, bare_right = _bare(left), _bare(right)
    if bare_left in _DETERMINERS or _ABBREVIATION.match(left):
        return NEVER
    if bare_left in _PREPOSITIONS:
        return 6.0
    if bare_right in _CONJUNCTIONS:
        return 1.0
    if bare_left in _CONJUNCTIONS or bare_left in _AUXILIARIES:
        return 5.0
    if _is_name(left) and _is_name(right):
        return NEVER
    if bare_left.replace(",", "").replace(".", "").isdigit():
        return 6.0  # a number and what is counted
    return 1.5 if bare_right in _PREPOSITIONS else 3.0


def _bare(word: str) -> str:
    return word.strip("\"'“”‘’„«»()[]¿¡.,;:!?…-–—").lower()


def _is_name(word: str) -> bool:
    """Whether a word looks like a part of a name. All nouns of German do, too: a small loss."""
    return len(word) > 1 and word[0].isupper() and word[1:2].islower() and word[-1].isalpha()


def fits(words: Sequence[str], width: int, lines: int) -> bool:
    """Whether words can be laid out in some lines of a width. A longer word has its own line."""
    return len(_filled_lines(words, width)) <= lines


def _filled_lines(words: Sequence[str], width: int) -> list[int]:
    """Indices of the words that begin each line, if each takes as many words as it holds."""
    begins: list[int] = []
    length = 0
    for index, word in enumerate(words):
        columns = display_width(word)
        if begins and length + columns <= width:
            length += columns
        else:
            begins.append(index)
            length = display_width(word.lstrip())
    return begins


def has_good_break(words: Sequence[str], width: int) -> bool:
    """Whether words fit into one line, or into two that do not break inside a unit."""
    columns = [display_width(word) for word in words]
    left, right = 0, sum(columns)
    if right - _space(words[0]) <= width:
        return True
    for index in range(1, len(words)):
        left += columns[index - 1]
        right -= columns[index - 1]
        if left - _space(words[0]) > width:
            return False
        fits_below = right - _space(words[index]) <= width
        if fits_below and break_cost(words[index - 1], words[index]) < NEVER:
            return True
    return False


def _space(word: str) -> int:
    """The columns before a word, which a line that it begins does not show."""
    return len(word) - len(word.lstrip())


def lay_out(words: Sequence[str], width: int, lines: int) -> str:
    """Words in as few lines as possible, broken where it reads best and evenly.

    Args:
        words: As words_to_break returns them.
        width: Characters per line.
        lines: Lines at most; more are used only where the words do not fit.

    Returns:
        The lines, separated by line feeds.
    """
    text = "".join(words).strip()
    if display_width(text) <= width or len(words) < 2:
        return text
    begins = _filled_lines(words, width)
    if len(begins) > _MAX_BALANCED_LINES:
        breaks = begins[1:]
    else:
        breaks = _best_breaks(words, width, max(2, len(begins)))
    edges = [0, *breaks, len(words)]
    return "\n".join("".join(words[a:b]).strip() for a, b in zip(edges, edges[1:], strict=False))


def _best_breaks(words: Sequence[str], width: int, lines: int) -> list[int]:
    """Indices of the words that begin the second and later lines, by dynamic programming."""
    columns = [display_width(word) for word in words]
    total = sum(columns)
    ideal = total / lines
    # best[k][i]: (cost, start of the k-th line) of words[:i] in k lines.
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
    for line in range(1, lines + 1):
        row: dict[int, tuple[float, int]] = {}
        for start, (cost, _) in best[-1].items():
            length = -(len(words[start]) - len(words[start].lstrip())) if start < len(words) else 0
            for end in range(start + 1, len(words) + 1):
                length += columns[end - 1]
                if length > width and end > start + 1:
                    break
                # A first line that is longer than the second looks top-heavy.
                uneven = abs(length - ideal) / ideal + (0.1 if line == 1 and length > ideal else 0)
                at_break = break_cost(words[end - 1], words[end]) if end < len(words) else 0.0
                candidate = cost + 2.5 * uneven + at_break
                if end not in row or candidate < row[end][0]:
                    row[end] = (candidate, start)
        best.append(row)
    breaks: list[int] = []
    end = len(words)
    for line in range(lines, 0, -1):
        end = best[line][end][1]
        breaks.append(end)
    return breaks[-2::-1]
