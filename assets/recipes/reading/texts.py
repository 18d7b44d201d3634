"""Lines of text to draw: running English and German text, figures, and words of random letters.

The last two are there so that the reader does not guess words that it cannot see.
"""

from __future__ import annotations

import gzip
import random
import string
from pathlib import Path

from alphabet import known

_FIGURES, _RANDOM, _MIXED = 0.17, 0.08, 0.12  # shares of all lines; the rest is running text
_MONTHS = (
    "January February March April May June July August September October November December "
    "Januar Februar März Mai Juni Juli Oktober Dezember Jan. Feb. Mrz. Apr. Aug. Sept. Okt. Dez."
).split()
_UNITS = "kg g km m cm mm l ml % °C € $ £ MB GB kWh St. Uhr h min pcs EUR USD".split()
_LABELS = (
    "Total Summe Betrag Nr. No. Tel. Fax Art.-Nr. Page Seite S. p. IBAN Date Datum Ref.".split()
)


class Texts:
    """Draws lines of text.

    Args:
        data: Holds tatoeba-eng-deu/.
        part: "train", "dev" or "test".
    """

    def __init__(self, data: Path, part: str) -> None:
        self.sentences: list[list[str]] = [[], []]  # English, German
        with gzip.open(data / f"tatoeba-eng-deu/{part}.tsv.gz", "rt", encoding="utf-8") as file:
            for line in file:
                for side, text in zip(self.sentences, line.rstrip("\n").split("\t"), strict=False):
                    text = " ".join(text.split())
                    if known(text):
                        side.append(text)

    def draw(self, rng: random.Random, longest: int) -> str:
        """A line of at most `longest` characters, and of one at least."""
        limit = (
            rng.randint(1, longest) if rng.random() < 0.2 else rng.randint(longest // 2, longest)
        )
        kind = rng.random()
        if kind < _FIGURES:
            words = self._figures(rng, limit)
        elif kind < _FIGURES + _RANDOM:
            words = [_letters(rng) for _ in range(limit // 3 + 1)]
        else:
            words = self._running(rng, limit)
            if kind < _FIGURES + _RANDOM + _MIXED:
                rng.shuffle(words)
        text = _fit(words, limit)
        case = rng.random()
        if case < 0.05 and "ß" not in text:
            text = text.upper()
        elif case < 0.08:
            text = text.title()
        return text if known(text) else _fit(words, limit)

    def _running(self, rng: random.Random, limit: int) -> list[str]:
        """Words of sentences in a row, from the beginning or from within."""
        side = rng.choice(self.sentences)
        words: list[str] = []
        if rng.random() < 0.5:
            words = rng.choice(side).split()
            words = words[rng.randrange(len(words)) :]
        while sum(map(len, words)) + len(words) < limit + 8:
            words += rng.choice(side).split()
        return words

    def _figures(self, rng: random.Random, limit: int) -> list[str]:
        words: list[str] = []
        while sum(map(len, words)) + len(words) < limit + 4:
            draw = rng.random()
            if draw < 0.25:
                words.append(rng.choice(rng.choice(self.sentences)).split()[0])
            elif draw < 0.35:
                words.append(rng.choice(_LABELS) + rng.choice(["", ":"]))
            else:
                words += _figure(rng)
        return words


def _fit(words: list[str], limit: int) -> str:
    """As many words as fit into a line; of a first one that is too long the beginning."""
    text = words[0][:limit]
    for word in words[1:]:
        if len(text) + 1 + len(word) > limit:
            break
        text += " " + word
    return text


def _digits(rng: random.Random, low: int, high: int) -> str:
    return "".join(rng.choices(string.digits, k=rng.randint(low, high)))


def _letters(rng: random.Random) -> str:
    """A word of random letters, with signs around some."""
    letters = string.ascii_lowercase + "äöüß"
    word = "".join(rng.choices(letters, k=rng.randint(1, 9)))
    shape = rng.random()
    if shape < 0.25:
        word = word.capitalize()
    elif shape < 0.4:
        word = "".join(rng.choices(string.ascii_uppercase + "ÄÖÜ", k=len(word)))
    elif shape < 0.55:
        word = "".join(rng.choices(string.ascii_letters + string.digits, k=len(word)))
    elif shape < 0.65:
        word = (
            "".join(rng.choices(string.punctuation + "€§°£©•·«»–—…’", k=rng.randint(1, 3))) + word
        )
    elif shape < 0.75:
        word += "".join(rng.choices("éèêàáâçñóôúí", k=1))
    around = rng.random()
    if around < 0.15:
        opening, closing = rng.choice(["()", "[]", '""', "„“", "“”", "‚‘", "‘’", "«»", "{}", "<>"])
        return opening + word + closing
    return word + (rng.choice(".,;:!?-…") if around < 0.3 else "")


def _figure(rng: random.Random) -> list[str]:
    """A number, price, date, time, code, address: one word or more."""
    kind = rng.randrange(12)
    day, month, year = rng.randint(1, 31), rng.randint(1, 12), rng.randint(1900, 2035)
    if kind == 0:
        return [
            f"{day:02}.{month:02}.{year}"
            if rng.random() < 0.6
            else f"{day}.{month}.{year % 100:02}"
        ]
    if kind == 1:
        return [f"{year}-{month:02}-{day:02}" if rng.random() < 0.5 else f"{month}/{day}/{year}"]
    if kind == 2:
        name = rng.choice(_MONTHS)
        return [f"{day}.", name, str(year)] if rng.random() < 0.5 else [name, f"{day},", str(year)]
    if kind == 3:
        return [f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"]
    if kind == 4:
        whole, cents = f"{rng.randint(0, 99999):,}", f"{rng.randint(0, 99):02}"
        if rng.random() < 0.5:
            return [f"{rng.choice('$€£')}{whole}.{cents}"]
        return [f"{whole.replace(',', '.')},{cents}", "€"]
    if kind == 5:
        return [_digits(rng, 1, 4), rng.choice(_UNITS)]
    if kind == 6:
        return [
            f"+{_digits(rng, 2, 2)}",
            _digits(rng, 2, 4),
            _digits(rng, 3, 4),
            _digits(rng, 2, 4),
        ]
    if kind == 7:
        return [
            f"{_digits(rng, 1, 3)}{rng.choice(',.')}{_digits(rng, 1, 3)}" + rng.choice(["", "%"])
        ]
    if kind == 8:
        name = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 8)))
        return [f"{name}{rng.choice('@.-_')}{name[::-1]}.{rng.choice(['de', 'com', 'org'])}"]
    if kind == 9:
        code = "".join(rng.choices(string.ascii_uppercase + string.digits, k=rng.randint(4, 10)))
        return [f"{code[:3]}{rng.choice('-/')}{code[3:]}"]
    if kind == 10:
        return [
            f"({_digits(rng, 1, 3)})",
            f"§{rng.choice(['', ' '])}{_digits(rng, 1, 3)}".split()[0],
        ]
    return [_digits(rng, 1, 12)]
