"""Whisper base hears single words, and speakers of several languages, live."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeapp.bench.word_lag import align
from pipelines import SAMPLE_RATE, CommittedText, PartialText, load_audio
from pipelines.asr import LiveOptions, LiveTranscriber, Samples, TranscribeOptions, UpdateDecoded
from tests.real.conftest import Ours, Report

# What six people say in digits.flac, one digit an utterance, and how Whisper may write it.
DIGITS = [4, 1, 8, 7, 8, 5, 3, 2, 0, 5, 4, 8, 0, 6, 3, 1, 8, 2, 8, 6]
WORDS = "zero one two three four five six seven eight nine".split()


class Heard:
    """What one session writes: (seconds fed, language, text, whether it is final) of each text."""

    def __init__(self, ours: Ours, samples: Samples, **options: Any) -> None:
        self.texts: list[tuple[float, str | None, str, bool]] = []
        self.updates = 0
        live = LiveTranscriber(ours.transcriber, LiveOptions(**options))
        block = SAMPLE_RATE // 10
        for at in range(0, len(samples), block):
            self._note(live.feed(samples[at : at + block]), (at + block) / SAMPLE_RATE)
        self._note(live.finish(), len(samples) / SAMPLE_RATE)

    def _note(self, events: Sequence[object], now: float) -> None:
        for event in events:
            self.updates += isinstance(event, UpdateDecoded)
            # A full stop alone may follow after a pause, in which the next person speaks.
            if isinstance(event, PartialText | CommittedText) and any(map(str.isalnum, event.text)):
                final = isinstance(event, CommittedText)
                self.texts.append((now, event.language, event.text.strip(), final))

    @property
    def final(self) -> list[str]:
        return [text for _, _, text, final in self.texts if final]

    def first_s(self, language: str, after_s: float) -> float:
        """When text in a language is first shown after a time."""
        return min(now for now, code, _, _ in self.texts if now >= after_s and code == language)


def right(written: Sequence[str]) -> int:
    """The number of digits that were recognized, in their order."""
    words = "".join(f" {text}" for text in written).lower().replace(".", " ").split()
    found = [str(WORDS.index(word)) if word in WORDS else word.strip(",!?") for word in words]
    truth = [str(digit) for digit in DIGITS]
    return sum(
        i is not None and j is not None and truth[i] == found[j] for i, j in align(truth, found)
    )


def is_latin(text: str) -> bool:
    return all(letter < "\u0250" or not letter.isalpha() for letter in text)


def test_single_digits(
    quick: Ours, shared_data: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")  # the system's language does not mislead it
    samples = load_audio(shared_data / "live/digits.flac")
    given = Heard(quick, samples, transcribe=TranscribeOptions(language="en"))
    detected = Heard(quick, samples)
    chosen = Heard(quick, samples, transcribe=TranscribeOptions(languages=("en", "de")))
    found = {"-l en": given, "no language": detected, "--languages en,de": chosen}
    counts = {name: right(heard.final) for name, heard in found.items()}
    report.say(f"digits right of 20, live: {counts}")
    assert all(is_latin(text) for heard in found.values() for _, _, text, _ in heard.texts)
    assert counts["no language"] >= 13
    assert counts["--languages en,de"] >= counts["-l en"] >= 13
    assert detected.updates <= given.updates


@pytest.fixture(scope="module")
def change(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """English, German, Spanish, English; and when each begins (s)."""
    file = tmp_path_factory.mktemp("speech") / "es.wav"
    text = (
        "Buenos días a todos. La reunión empieza a las diez de la mañana. Después comemos juntos "
        "en la casa de mi hermana, y hablamos de los libros."
    )
    try:
        command = ["espeak-ng", "-v", "es", "-s", "150", "-w", str(file), text]
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs espeak-ng")
    pieces = [
        load_audio(shared_data / "speech/LJ001-0002.flac"),
        # Without the author's name, which is no German yet.
        load_audio(shared_data / "speech-real/german.mp3")[round(6.6 * SAMPLE_RATE) :][
            : 14 * SAMPLE_RATE
        ],
        load_audio(file),
        load_audio(shared_data / "speech/jfk.flac"),
    ]
    joined, begins = [np.zeros(SAMPLE_RATE // 2, np.float32)], []
    for piece in pieces:
        begins.append(sum(map(len, joined)) / SAMPLE_RATE)
        joined += [piece, np.zeros(round(1.2 * SAMPLE_RATE), np.float32)]
    samples = np.concatenate(joined)
    noise = np.random.default_rng(0).normal(0, 10 ** (-65 / 20), len(samples))
    return samples + noise.astype(np.float32), begins


def test_captions_follow_the_speakers_language(quick: Ours, change: Any, report: Report) -> None:
    samples, begins = change
    heard = Heard(quick, samples)
    languages = ("en", "de", "es", "en")
    delays = [heard.first_s(each, at) - at for each, at in zip(languages, begins, strict=True)]
    report.say(f"seconds to the first text of en, de, es, en: {np.round(delays, 1).tolist()}")
    assert max(delays) < 3.5
    assert all(is_latin(text) for _, _, text, _ in heard.texts)
    ends = [*begins[1:], len(samples) / SAMPLE_RATE]
    for code, start, end in zip(languages, begins, ends, strict=True):
        spoken = {each for now, each, _, final in heard.texts if final and start < now <= end}
        assert spoken == {code}, "no text is final in the language before"
