"""In float32 Whisper base writes what transformers, faster-whisper and openai-whisper write."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from whisper.tokenizer import get_encoding

from pipelines import SAMPLE_RATE, Transcriber
from pipelines.asr.audio.features import FileFeatures
from pipelines.engine import GenerationOptions, Request
from tests.asr.oracle import in_openai, of_openai
from tests.engine.oracle import assert_same_choice, encoded, greedy, reference
from tests.real.conftest import Ours, Recordings, Report, alignment_heads

NAMES = ("book", "voices", "sonnet", "german")
TOKENS = 60  # of a window


def recorded(*gate: str) -> list[Any]:
    """Parameters for all recordings: some for the gate, the others, as long again, not."""
    others = [name for name in NAMES if name not in gate]
    return [*gate, *(pytest.param(name, marks=pytest.mark.campaign) for name in others)]


@pytest.fixture(scope="module")
def transformers(folder: Path) -> Any:
    return reference(folder)


@pytest.mark.parametrize("name", recorded("voices", "german"))
def test_ids_of_a_window_equal_transformers(
    name: str, transformers: Any, exact: Ours, recordings: Recordings, report: Report
) -> None:
    recording, model = recordings[name], exact.transcriber.model
    special = exact.transcriber.tokenizer.special
    language = special.languages[recording.language]
    prompt = (special.sot, language, special.transcribe)
    window, _ = FileFeatures(recording.samples, 80, 3000).window(0)
    options = GenerationOptions(max_new_tokens=TOKENS, eos_ids=(special.eot,))
    (ours,) = exact.engine.generate([Request(model.encode([window])[0], prompt, options)])
    source = encoded(transformers, window)
    theirs = greedy(transformers, source, prompt, TOKENS)
    agreed = assert_same_choice(transformers, source, prompt, ours.tokens, theirs)
    ties = int(agreed < len(theirs))
    report.say(f"window of {name}: {agreed} ids as transformers', {ties} near ties")
    assert agreed > 20, "a tie this early compares nothing"


@pytest.fixture(scope="module")
def faster_whisper(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from ctranslate2.converters import TransformersConverter
    from faster_whisper import WhisperModel

    target = tmp_path_factory.mktemp("ct2") / "base"
    copied = ["tokenizer.json", "preprocessor_config.json"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TransformersConverter(str(folder), copy_files=copied).convert(str(target))
    return WhisperModel(str(target), device="cpu", compute_type="float32", cpu_threads=1)


@pytest.mark.parametrize("name", recorded("voices", "book"))
def test_text_and_language_equal_faster_whisper(
    name: str, faster_whisper: Any, exact: Ours, recordings: Recordings, report: Report
) -> None:
    recording = recordings[name]
    segments, info = faster_whisper.transcribe(
        recording.samples,
        beam_size=1,
        temperature=0.0,
        compression_ratio_threshold=2.4,
        log_prob_threshold=-1.0,
        no_speech_threshold=0.6,
    )
    found = exact.find(recording)  # words would move the windows
    assert found.text == "".join(segment.text for segment in segments)
    assert found.language == info.language == recording.language
    report.say(f"text of {name}: {len(found.text.split())} words as faster-whisper's")


@pytest.mark.parametrize("name", ["book", "german"])
def test_languages_equal_faster_whisper(
    name: str, faster_whisper: Any, exact: Ours, recordings: Recordings
) -> None:
    samples = recordings[name].samples
    # A shorter window is padded with zeros there, and here as in openai-whisper with silence.
    assert len(samples) >= 30 * SAMPLE_RATE
    found, _, theirs = faster_whisper.detect_language(samples)
    assert found == recordings[name].language
    probs = exact.transcriber.detect_language(samples)
    for language, prob in theirs[:5]:
        assert probs[language] == pytest.approx(prob, abs=2e-3)


@pytest.mark.parametrize("choices", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}])
def test_penalties_equal_faster_whisper(
    choices: dict[str, Any], faster_whisper: Any, exact: Ours, recordings: Recordings
) -> None:
    recording = recordings["voices"]
    given = {"language": recording.language, "temperature": 0.0, **choices}
    theirs, _ = faster_whisper.transcribe(recording.samples, beam_size=1, **given)
    ours = exact.transcriber.transcribe(recording.samples, **given)
    assert [segment.text for segment in ours] == [segment.text for segment in theirs]
    assert "".join(segment.text for segment in ours) != exact.find(recording).text


@pytest.mark.usefixtures("unpaused_drafts")
def test_drafts_change_no_token(folder: Path, exact: Ours, recordings: Recordings) -> None:
    """N-grams of what was recognized before: the second time nearly all is drafted."""
    recording = recordings["voices"]
    drafted = Transcriber(folder, engine=exact.engine, draft="ngram")
    plain = [segment.tokens for segment in exact.find(recording).segments]
    for _ in range(2):
        again = drafted.transcribe(recording.samples, temperature=0.0)
        assert [segment.tokens for segment in again] == plain
    report = drafted.draft_report
    assert report is not None
    assert report.accepted > 10


@pytest.fixture(scope="module")
def openai_whisper(folder: Path) -> Any:
    with warnings.catch_warnings():  # it leaves the vocabulary's file open
        warnings.simplefilter("ignore", ResourceWarning)
        get_encoding(name="multilingual", num_languages=99)
    model = in_openai(folder)
    heads = torch.zeros(model.dims.n_text_layer, model.dims.n_text_head)
    for layer, head in alignment_heads(folder):
        heads[layer, head] = 1
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    return model


@pytest.mark.parametrize("name", ["voices", pytest.param("german", marks=pytest.mark.campaign)])
def test_segments_and_word_times_equal_openai_whisper(
    name: str, openai_whisper: Any, exact: Ours, recordings: Recordings, report: Report
) -> None:
    recording = recordings[name]
    theirs = of_openai(openai_whisper, recording.samples, temperature=0.0, word_timestamps=True)
    found = exact.find(recording, words=True)
    assert found.text == theirs["text"]
    ours = [word for segment in found.segments for word in segment.words]
    words = [word for segment in theirs["segments"] for word in segment["words"]]
    assert [word.word for word in ours] == [word["word"] for word in words]
    far = [
        (word.word, word.start, word.end, other["start"], other["end"])
        for word, other in zip(ours, words, strict=True)
        if max(abs(word.start - other["start"]), abs(word.end - other["end"])) > 1e-6
    ]
    report.say(
        f"times of {name}: {len(words) - len(far)} of {len(words)} words as openai-whisper's"
    )
    # An alignment may tie, too.
    assert len(far) <= len(words) // 100, far
    for word, other in zip(ours, words, strict=True):
        assert word.probability == pytest.approx(other["probability"], abs=1e-3)
