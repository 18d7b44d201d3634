"""Words of Thai, Lao and Khmer, which are written without spaces between words.

The libraries of the extra `scripts` find them by dictionaries and a statistical model that they
bring along. Each is imported when a text in its script is first laid out.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module

__all__ = ["word_starts"]

# Letters and signs of a script; module and function that divide a text of them.
_SCRIPTS = {
    "\u0e01-\u0e3a\u0e40-\u0e4e": ("pythainlp.tokenize", "word_tokenize"),
    "\u0e81-\u0ece\u0edc-\u0edf": ("laonlp.tokenize", "word_tokenize"),
    "\u1780-\u17d3\u17dd": ("khmercut", "tokenize"),
}
_RUNS = re.compile("|".join(f"([{letters}]{{2,}})" for letters in _SCRIPTS))
_lock = threading.Lock()  # the tagger of khmercut holds the text that it works on


def word_starts(text: str) -> Iterator[tuple[range, Sequence[int]]]:
    """Find the words of scripts without spaces.

    Yields:
        For each run of letters whose words are known: the positions that it takes in the text, and
        those at which its words begin. Runs of a script whose library is missing are left out.
    """
    for run in _RUNS.finditer(text):
        starts = _starts(run[0], (run.lastindex or 1) - 1)
        if starts:
            begin = run.start()
            yield range(begin, run.end()), [begin + start for start in starts]


@lru_cache(maxsize=4096)
def _starts(run: str, script: int) -> tuple[int, ...]:
    """Return where the words of a run begin; nothing if the library is missing or fails."""
    divide = _divider(script)
    if divide is None:
        return ()
    try:
        with _lock:
            words = divide(run)
    except Exception:  # A library that fails costs better places for breaks, not the subtitles.
        return ()
    if "".join(words) != run:
        return ()
    starts = [0]
    for word in words[:-1]:
        starts.append(starts[-1] + len(word))
    return tuple(starts)


@cache
def _divider(script: int) -> Callable[[str], list[str]] | None:
    """Return the function that divides texts of a script into words; None without its library."""
    module, function = list(_SCRIPTS.values())[script]
    if "PYTHAINLP_READ_MODE" not in os.environ:  # the older name: both together are an error
        # Otherwise the library makes a folder in the home folder when it is imported.
        os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")
    try:
        divide: Callable[[str], list[str]] = getattr(import_module(module), function)
    except Exception:  # A broken library may raise anything.
        return None
    return divide
