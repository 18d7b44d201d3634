"""Recognition with models without timestamps, native or run by transformers: each chunk equals
`generate`, on the command line too."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeapp.cli import main
from pipelines import (
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    ModelError,
    OptionError,
    PartialText,
    SegmentDone,
    TextDelta,
    TranscribeOptions,
    Transcriber,
)
from pipelines.asr import CorrectionDue, LiveEvent
from pipelines.asr.audio.chunks import split_at_pauses
from pipelines.asr.plain_tokenizer import PlainTokenizer
from pipelines.asr.sound_input import RawSound
from pipelines.errors import CheckpointError, UnsupportedTask
from pipelines.hub import assets_folder, resolve
from pipelines.processors import open_feature_extractor, open_text_tokenizer
from tests.fixtures.moonshine import save_moonshine, write_pieces
from tests.fixtures.wrapped import save_module, save_words

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
quiet = pytest.mark.filterwarnings("ignore:.*run by transformers")

RATE = 16_000
EXTRACTORS: dict[str, dict[str, Any]] = {
    "speech2text": {
        "feature_extractor_type": "Speech2TextFeatureExtractor", "sampling_rate": RATE,
        "feature_size": 20, "num_mel_bins": 20,
    },
    "speecht5": {
        "feature_extractor_type": "SpeechT5FeatureExtractor", "sampling_rate": RATE,
        "feature_size": 1, "do_normalize": False,
    },
}  # fmt: skip


def save_recognizer(folder: Path, family: str) -> Any:
    if family == "moonshine":
        return save_moonshine(folder)
    module = save_module(folder, family)
    save_words(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(EXTRACTORS[family]), "utf-8")
    return module


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    from pipelines import load_audio

    return load_audio(assets_folder() / "samples" / "question.flac")


@quiet
@pytest.mark.parametrize("family", ["moonshine", *EXTRACTORS])
def test_each_chunk_equals_generate(family: str, tmp_path: Path, speech: np.ndarray) -> None:
    module = save_recognizer(tmp_path, family)
    assert resolve(tmp_path).task == "asr"
    part = speech[: RATE * 5 // 4]
    twice = np.concatenate([part, np.zeros(RATE * 2, np.float32), part])
    with Transcriber(tmp_path, device="cpu", compute_type="float32") as transcriber:
        segments = list(transcriber.transcribe(twice, batch_size=4, chunk_s=2))
        chunks = list(split_at_pauses([twice], 2))
        assert len(segments) == len(chunks) > 1
        extractor = open_feature_extractor(tmp_path)
        for segment, chunk in zip(segments, chunks, strict=True):
            first = chunk.start_frame * 160 - chunk.offset
            samples = chunk.samples[max(0, first) : chunk.end_frame * 160 - chunk.offset]
            made = extractor(samples, sampling_rate=RATE, return_tensors="pt")
            features = made["input_values" if "input_values" in made else "input_features"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ids = module.generate(
                    features, max_new_tokens=max(1, len(segment.tokens)), do_sample=False,
                    decoder_start_token_id=transcriber.model.architecture.start_id,
                )[0, 1:].tolist()  # fmt: skip
            assert [*segment.tokens] == ids[: len(segment.tokens)]
            assert segment.start == chunk.start_frame / 100


@quiet
def test_live_text_and_order(tmp_path: Path, speech: np.ndarray) -> None:
    save_recognizer(tmp_path, "moonshine")
    with Transcriber(tmp_path, device="cpu", name="moonshine-tiny-ja") as transcriber:
        info, *events = transcriber.stream(speech)
        assert info.language == "ja"
        done = [event.segment for event in events if isinstance(event, SegmentDone)]
        live = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert live == "".join(segment.text for segment in done)
        assert [segment.id for segment in done] == [*range(len(done))]


@pytest.mark.parametrize("policy", ["agreement", "attention"])
def test_live_captions_of_moonshine(tmp_path: Path, speech: np.ndarray, policy: Any) -> None:
    save_recognizer(tmp_path, "moonshine")

    def heard(drafts: bool) -> tuple[str, list[LiveEvent]]:
        options = LiveOptions(policy=policy, drafts=drafts)
        with Transcriber(tmp_path, device="cpu", compute_type="float32") as transcriber:
            live = LiveTranscriber(transcriber, options)
            events: list[LiveEvent] = []
            for at in range(0, len(speech), 1600):
                events += live.feed(speech[at : at + 1600])
            events += live.finish()
            assert live.language == "en"
        committed = [event for event in events if isinstance(event, CommittedText)]
        assert all(a.end <= b.start for a, b in pairwise(committed))
        return "".join(event.text for event in committed), events

    text, events = heard(drafts=True)
    assert text.split()
    assert heard(drafts=False)[0] == text
    partial = [event.text for event in events if isinstance(event, PartialText)]
    assert partial[-1] == "", "all text is committed at the end"


def test_corrections_of_moonshine(
    tmp_path: Path, speech: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Random weights write improbable and repetitive text.
    monkeypatch.setattr("pipelines.asr.live.correction._LEAST_LOGPROB", -100)
    repetitive = TranscribeOptions(compression_ratio_threshold=None)
    save_recognizer(tmp_path, "moonshine")
    with Transcriber(tmp_path, device="cpu", compute_type="float32") as transcriber:
        live = LiveTranscriber(transcriber, LiveOptions(repetitive, correct=True))
        events = live.feed(speech) + live.finish()
        dues = [event for event in events if isinstance(event, CorrectionDue)]
        assert dues
        for due in dues:
            # Other text than was heard, so that the model's own is a correction.
            corrected = live.correct(replace(due, text="x" * 1000, context="no prompts"))
            assert corrected is not None
            assert corrected.text.split()
            assert (corrected.start, corrected.end, corrected.words) == (due.start, due.end, ())


def test_it_needs_no_transformers(tmp_path: Path, speech: np.ndarray) -> None:
    save_recognizer(tmp_path, "moonshine")
    (tmp_path / "preprocessor_config.json").unlink()
    code = (
        "import sys; from pipelines import Transcriber, load_audio\n"
        f"with Transcriber({str(tmp_path)!r}, device='cpu') as model:\n"
        "    list(model.transcribe(sys.argv[1]))\n"
        "assert 'transformers' not in sys.modules\n"
    )
    sample = assets_folder() / "samples" / "question.flac"
    subprocess.run([sys.executable, "-c", code, str(sample)], check=True, timeout=180)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 8000}, "takes sound at 8000 Hz"),
        ({"do_normalize": True}, ""),
    ],
)
def test_the_preprocessor_of_moonshine(
    tmp_path: Path, speech: np.ndarray, change: dict[str, Any], message: str
) -> None:
    save_recognizer(tmp_path, "moonshine")
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    if message:
        with pytest.raises(ModelError, match=message):
            Transcriber(tmp_path, device="cpu")
        return
    made = open_feature_extractor(tmp_path)(speech, sampling_rate=RATE, return_tensors="pt")
    np.testing.assert_allclose(RawSound(tmp_path, "it")(speech), made["input_values"][0], atol=1e-5)


def test_text_is_that_of_the_tokenizer_of_transformers(tmp_path: Path) -> None:
    write_pieces(tmp_path)
    plain, theirs = PlainTokenizer(tmp_path), open_text_tokenizer(tmp_path)
    assert len(plain) == len(theirs)
    for text in ("the cat sees a house", "née 😀 sun", "  a  b"):
        ids = plain.encode(text)
        assert ids == theirs(text.strip(), add_special_tokens=False)["input_ids"]
        assert plain.text([1, *ids, 2]).strip() == theirs.decode(ids).strip()
    save_words(tmp_path)
    with pytest.raises(CheckpointError, match="not of SentencePiece's kind"):
        PlainTokenizer(tmp_path)


@quiet
def test_what_they_cannot_do_is_refused(tmp_path: Path, speech: np.ndarray) -> None:
    save_recognizer(tmp_path, "speech2text")
    with Transcriber(tmp_path, device="cpu") as transcriber:
        with pytest.raises(UnsupportedTask, match="without word timestamps"):
            transcriber.transcribe(speech, word_timestamps=True)
        with pytest.raises(UnsupportedTask, match="only transcribes"):
            transcriber.transcribe(speech, task="translate")
        with pytest.raises(UnsupportedTask, match="recordings only"):
            LiveTranscriber(transcriber)


@pytest.mark.filterwarnings("always")
def test_the_command_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    folder = tmp_path / "speech2text"
    save_recognizer(folder, "speech2text")
    recording = assets_folder() / "samples" / "question.flac"
    capfd.readouterr()
    for format in ("txt", "json"):
        with pytest.raises(SystemExit) as stop:
            main(
                ["transcribe", str(recording), "-m", str(folder), "-f", format, "-o", str(tmp_path)]
                + ["--no-journal"]
            )
        _, err = capfd.readouterr()
        assert stop.value.code in (0, None), err
        assert err.count("run by transformers") == 1
        assert (tmp_path / f"{recording.stem}.{format}").is_file()


def test_options_of_the_search_have_an_effect(tmp_path: Path, speech: np.ndarray) -> None:
    save_moonshine(tmp_path)
    with Transcriber(tmp_path, device="cpu", compute_type="float32") as transcriber:

        def tokens(**options: Any) -> tuple[int, ...]:
            (segment,) = transcriber.transcribe(speech, batch_size=2, **options)
            return segment.tokens

        plain = tokens()
        assert tokens(temperature=(0.0, 1.0)) == plain, "there are no thresholds of a fallback"
        sampled = tokens(temperature=1.0, seed=1)
        assert sampled != plain
        assert tokens(temperature=1.0, seed=1) == sampled != tokens(temperature=1.0, seed=2)
        rest = tokens(suppress_tokens=plain[:2])
        assert not {*plain[:2]} & {*rest}
        assert tokens(suppress_tokens=(-1,)) == plain, "the models have no list of their own"
        with pytest.raises(OptionError, match="120 is no token of"):
            transcriber.transcribe(speech, suppress_tokens=(120,))


def test_patience_and_length_penalty_choose_among_beams(tmp_path: Path, speech: np.ndarray) -> None:
    """The model ends its text with token 22, which is the most probable one at the beginning."""
    save_moonshine(tmp_path, eos_token_id=22)
    with Transcriber(tmp_path, device="cpu", compute_type="float32") as transcriber:

        def length(**options: Any) -> int:
            (segment,) = transcriber.transcribe(speech, batch_size=2, beam_size=3, **options)
            return len(segment.tokens)

        assert length(patience=1.0) > 1
        assert length(patience=0.34) == 1, "the first text that ends is taken"
        assert length(length_penalty=1.0) > 1
        assert length(length_penalty=0.0) == 1, "without a penalty short texts win"
