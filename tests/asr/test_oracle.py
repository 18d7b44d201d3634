"""Whole recordings against `whisper.transcribe` on the same weights, greedily, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from whisper.audio import log_mel_spectrogram, pad_or_trim

from pipelines.engine import Engine
from pipelines.languages import language_code
from tests.asr.by_window import ByWindow
from tests.asr.conftest import Pair
from tests.asr.oracle import assert_same, in_openai, of_openai
from tests.asr.recordings import PHRASES, RECORDINGS, samples_of
from tests.fixtures.checkpoints import write_whisper

pytestmark = pytest.mark.oracle

GREEDY = {"temperature": 0.0}
EOT, QUESTION_MARK = 50257, 30


def compare(pair: Pair, samples: NDArray[np.float32], **options: Any) -> dict[str, Any]:
    """Assert that both results are equal. Returns openai-whisper's."""
    theirs = of_openai(pair.theirs, samples, **GREEDY, **options)
    ours = pair.ours.transcribe(samples, openai_rules=True, **GREEDY, **options)
    assert ours.language == language_code(theirs["language"])
    segments = list(ours)
    assert_same(segments, theirs["segments"])
    return theirs


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_fitted_model_writes_text_and_times(fitted: Pair, name: str) -> None:
    """Without this, the other tests would compare noise."""
    recording = RECORDINGS[name]
    found = compare(fitted, samples_of(recording))
    assert found["language"] == recording.language
    spoken = [segment for segment in found["segments"] if segment["text"]]
    assert len(spoken) >= len(recording.phrases) // 2
    assert all(segment["text"] in PHRASES for segment in spoken)
    windows = [segment["seek"] for segment in spoken]
    assert len(set(windows)) >= recording.seconds // 30
    assert max(map(windows.count, windows)) >= 2


def test_silence_in_the_middle_is_skipped_and_times_go_on(fitted: Pair) -> None:
    found = compare(fitted, samples_of(RECORDINGS["silence"]))
    starts = [segment["start"] for segment in found["segments"]]
    assert not [start for start in starts if 31 < start < 60]
    assert max(starts) > 60


VARIATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "no previous text": ("long", {"condition_on_previous_text": False}),
    "no previous text, silence": ("silence", {"condition_on_previous_text": False}),
    "language given": ("german", {"language": "de"}),
    "another language than spoken": ("german", {"language": "en"}),
    "language by its name": ("short", {"language": "English"}),
    "translated": ("german", {"task": "translate"}),
    "a prompt": ("long", {"initial_prompt": "Glossary: Köln, 春の雨 🌧"}),
    "a prompt that is then forgotten": (
        "long",
        {"initial_prompt": " Good morning.", "condition_on_previous_text": False},
    ),
    "an empty prompt": ("short", {"initial_prompt": ""}),
    "a prompt too long to fit": ("long", {"initial_prompt": "word after word, " * 100}),
    "a prompt carried along": (
        "long",
        {"initial_prompt": "Glossary: Köln, 春の雨 🌧", "carry_initial_prompt": True},
    ),
    "a prompt carried along alone": (
        "long",
        {
            "initial_prompt": " Good morning.",
            "carry_initial_prompt": True,
            "condition_on_previous_text": False,
        },
    ),
    "a carried prompt that leaves little room": (
        "long",
        {"initial_prompt": "word after word, " * 50, "carry_initial_prompt": True},
    ),
    "parts": ("long", {"clip_timestamps": (5.0, 12.0, 31.5, 70.0)}),
    "parts, the last one open": ("long", {"clip_timestamps": (3.25, 8.0, 40.0)}),
    "parts in any order": ("long", {"clip_timestamps": (40.0, 50.0, 2.0, 9.0)}),
    "parts in silence": ("silence", {"clip_timestamps": (10.0, 35.0, 45.0)}),
    "no timestamps": ("german", {"without_timestamps": True}),
    "no timestamps, unknown text": ("long", {"without_timestamps": True}),
    "a late start forbidden": ("long", {"max_initial_timestamp": 0.3}),
    "a start at once": ("german", {"max_initial_timestamp": 0.005}),
    "a start anywhere": ("silence", {"max_initial_timestamp": None}),
    "a start anywhere, as 0 s": ("silence", {"max_initial_timestamp": 0.0}),
    "symbols allowed": ("long", {"suppress_tokens": (QUESTION_MARK,)}),
    "tokens forbidden": ("long", {"suppress_tokens": (-1, QUESTION_MARK, 1044, 13)}),
    "blanks allowed": ("short", {"suppress_blank": False}),
    "never an end": ("short", {"suppress_tokens": (-1, EOT)}),
    "never an end after a full prompt": (
        "short",
        {"suppress_tokens": (-1, EOT), "initial_prompt": "word after word, " * 100},
    ),
    "silence never skipped": ("silence", {"no_speech_threshold": None}),
    "silence skipped regardless of the text": ("silence", {"logprob_threshold": None}),
    "nearly everything is silence": ("silence", {"no_speech_threshold": 1e-4}),
}


@pytest.mark.parametrize("variation", VARIATIONS)
def test_options_do_what_they_do_in_openai_whisper(fitted: Pair, variation: str) -> None:
    name, options = VARIATIONS[variation]
    compare(fitted, samples_of(RECORDINGS[name]), **options)


@pytest.mark.parametrize("cut", [30.0, 30.01, 29.99, 59.98, 7.777, 0.05])
def test_recordings_that_end_anywhere(fitted: Pair, cut: float) -> None:
    compare(fitted, samples_of(RECORDINGS["long"])[: int(cut * 16_000)])


@pytest.mark.parametrize("name", ["german", "short"])
def test_language_probabilities(fitted: Pair, name: str) -> None:
    samples = samples_of(RECORDINGS[name])
    mel = pad_or_trim(log_mel_spectrogram(samples, padding=480_000), 3000)
    _, expected = fitted.theirs.detect_language(mel)
    found = fitted.ours.detect_language(samples)
    assert found == pytest.approx(expected, abs=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert next(iter(found)) == RECORDINGS[name].language
    info = fitted.ours.transcribe(samples).info
    assert info.language_probability == pytest.approx(found[info.language])
    assert fitted.ours.transcribe(samples, language="de").info.language_probability is None


@pytest.mark.parametrize("name", ["long", "german"])
@pytest.mark.parametrize("length", [4000, 480_000])
def test_blocks_give_what_the_whole_recording_gives(fitted: Pair, name: str, length: int) -> None:
    """Documented for recordings that grow no louder after their first window."""
    samples = samples_of(RECORDINGS[name])
    blocks = (samples[at : at + length] for at in range(0, len(samples), length))
    ours = fitted.ours.transcribe(blocks, openai_rules=True, **GREEDY)
    assert ours.duration is None
    theirs = of_openai(fitted.theirs, samples, **GREEDY)
    assert ours.language == theirs["language"]
    assert_same(list(ours), theirs["segments"])


@pytest.mark.parametrize("shape", ["tiny.en", "large-v3", "turbo"])
def test_other_layouts_with_random_weights(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, shape: str
) -> None:
    """Their vocabularies, mel bands and missing language tokens; the text is random."""
    folder = write_whisper(tmp_path_factory.mktemp("other") / shape, shape)
    pair = Pair(ByWindow(folder, engine=engine), in_openai(folder))
    found = compare(pair, samples_of(RECORDINGS["short"]))
    assert sum(len(segment["tokens"]) for segment in found["segments"]) > 5
