"""Past live sessions, files and texts, in one SQLite file on this machine."""

from edgeapp.history.archive import History
from edgeapp.history.corrections import Splice
from edgeapp.history.journal import Journal, Kind
from edgeapp.history.records import Record, Summary
from edgeapp.history.word_times import SpokenCue, TranslatedCue

__all__ = [
    "History",
    "Journal",
    "Kind",
    "Record",
    "Splice",
    "SpokenCue",
    "Summary",
    "TranslatedCue",
]
