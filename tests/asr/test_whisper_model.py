"""`WhisperModel`: faster-whisper's signatures and results, on the bundled model."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import faster_whisper
import numpy as np
import pytest

from pipelines.asr import (
    Samples,
    SegmentDone,
    Transcriber,
    VadOptions,
    WhisperModel,
    load_audio,
)
from pipelines.asr.options import TranscribeOptions
from pipelines.errors import ModelNotFound, OptionError
from pipelines.hub import assets_folder, bundled_folder
from pipelines.loading import device_name
from tests.fixtures.hub import Hub

TALK = assets_folder() / "samples" / "talk.flac"
CPU: dict[str, Any] = {"device": "cpu", "compute_type": "float32", "cpu_threads": 1}


@pytest.fixture(scope="module")
def model() -> Iterator[WhisperModel]:
    with WhisperModel("demo", **CPU) as opened:
        yield opened


@pytest.fixture(scope="module")
def talk() -> Samples:
    return load_audio(TALK)[: 12 * 16_000]


@pytest.mark.parametrize("name", ["__init__", "transcribe", "detect_language"])
def test_the_arguments_are_those_of_faster_whisper(name: str) -> None:
    def defaults(function: Any) -> dict[str, Any]:
        return {
            each.name: tuple(value) if isinstance(value := each.default, list) else value
            for each in inspect.signature(function).parameters.values()
            if each.kind is each.POSITIONAL_OR_KEYWORD
        }

    theirs = defaults(getattr(faster_whisper.WhisperModel, name))
    ours = defaults(getattr(WhisperModel, name))
    assert ours == theirs
    assert list(ours) == list(theirs)


def test_segments_come_lazily_and_the_language_first(model: WhisperModel, talk: Samples) -> None:
    segments, info = model.transcribe(talk)
    assert iter(segments) is segments
    assert (info.language, info.duration, info.duration_after_vad) == ("en", 12.0, 12.0)
    assert info.language_probability == 1.0 or info.all_language_probs
    assert info.transcription_options.beam_size == 5
    assert info.vad_options is None
    first = next(segments)
    assert first.text.strip()
    assert first.end > first.start


def test_the_language_is_looked_for_among_all(multilingual: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 70 * 16_000).astype(np.float32)
    with WhisperModel(str(multilingual), **CPU) as tiny:
        language, probability, probs = tiny.detect_language(noise)
        assert probs[0] == (language, probability)
        assert len(probs) == len(tiny.supported_languages) > 90
        assert sum(value for _, value in probs) == pytest.approx(1)
        # No window is certain: most of the three decide.
        options = TranscribeOptions(
            batch_size=1, language_detection_segments=3, language_detection_threshold=1.0
        )
        several = tiny.transcriber.transcribe(noise, options)
        windows = [noise[start : start + 30 * 16_000] for start in range(0, 70 * 16_000, 480_000)]
        votes = [next(iter(tiny.transcriber.detect_language(each))) for each in windows]
        assert votes.count(several.language) == max(map(votes.count, votes))


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("multilingual_sound", [False, True])
def test_detection_chooses_among_the_languages_that_may_be_spoken(
    multilingual: Path, batch_size: int, multilingual_sound: bool
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 5 * 16_000).astype(np.float32)
    with WhisperModel(str(multilingual), **CPU) as tiny:
        own = tiny.transcriber
        options = TranscribeOptions(batch_size=batch_size, multilingual=multilingual_sound)
        free = own.transcribe(noise, options)
        likeliest = [code for code, _ in free.info.all_language_probs or ()]
        assert free.language == likeliest[0]
        among = replace(options, languages=(likeliest[-1], "English", likeliest[3]))
        result = own.transcribe(noise, among)
        list(result)
        probs = dict(result.info.all_language_probs or ())
        assert result.language == likeliest[3]
        assert probs.keys() == {likeliest[-1], "en", likeliest[3]}
        assert sum(probs.values()) == pytest.approx(1)
        assert own.transcribe(noise, languages=("German",)).language == "de"
        with pytest.raises(OptionError, match="language and languages exclude each other"):
            own.transcribe(noise, language="de", languages=("en", "de"))


def test_vad_parameters(model: WhisperModel, talk: Samples) -> None:
    silence = np.zeros(10 * 16_000, np.float32)
    sound = np.concatenate([silence, talk[: 5 * 16_000], silence])
    segments, info = model.transcribe(
        sound, vad_filter=True, vad_parameters={"threshold": 0.4, "speech_pad_ms": 100}
    )
    assert info.vad_options == VadOptions(
        threshold=0.4,
        neg_threshold=0.25,
        min_speech_duration_ms=0,
        max_speech_duration_s=float("inf"),
        min_silence_duration_ms=2000,
        speech_pad_ms=100,
    )
    assert info.duration == 25.0
    assert info.duration_after_vad is not None
    assert 3 < info.duration_after_vad < 6
    assert all(9 < segment.start < 16 for segment in segments)
    # Parts are decoded as they are, and without the filter its parameters are not read.
    model.transcribe(sound, vad_filter=True, clip_timestamps="9,16")
    model.transcribe(sound, vad_parameters={"threshold": 0.4})
    with pytest.raises(OptionError, match="no such option: treshold; did you mean threshold"):
        model.transcribe(sound, vad_filter=True, vad_parameters={"treshold": 0.4})


def test_the_options_of_faster_whisper_and_what_they_mean_here(
    model: WhisperModel, talk: Samples
) -> None:
    theirs = faster_whisper.vad.VadOptions(threshold=0.4)
    _, info = model.transcribe(talk, vad_filter=True, vad_parameters=theirs)  # type: ignore[arg-type]
    assert info.vad_options is not None
    assert info.vad_options.threshold == 0.4
    assert info.transcription_options.log_prob_threshold == -1.0
    _, info = model.transcribe(talk, batch_size=4)
    assert info.duration_after_vad == info.duration == 12.0
    assert info.vad_options is not None
    assert info.vad_options.max_speech_duration_s == 30
    with pytest.raises(OptionError, match="vad_parameters takes VadOptions, or a dictionary"):
        model.transcribe(talk, vad_filter=True, vad_parameters=0.4)  # type: ignore[arg-type]


def test_an_english_model_is_told_another_language(model: WhisperModel, talk: Samples) -> None:
    with pytest.warns(UserWarning, match="demo recognizes only English, not de"):
        _, info = model.transcribe(talk, language="de", multilingual=True)
    assert info.language == "en"
    assert model.detect_language(talk, None, True)[0] == "en"
    with pytest.raises(OptionError, match="not its features"):
        model.detect_language(features=np.zeros((80, 10)))  # type: ignore[arg-type]


def test_segments_without_text_are_left_out_and_the_others_numbered_from_1(
    model: WhisperModel, talk: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transcriber.stream

    def with_cleared(*args: Any, **more: Any) -> Iterator[Any]:
        for event in real(*args, **more):
            if isinstance(event, SegmentDone):
                moment = replace(event.segment, end=event.segment.start)
                yield SegmentDone(replace(event.segment, text="", tokens=()))
                yield SegmentDone(moment)
            yield event

    expected = [each.text for each in model.transcribe(talk, beam_size=1)[0]]
    monkeypatch.setattr(Transcriber, "stream", with_cleared)
    found = list(model.transcribe(talk, beam_size=1)[0])
    assert [each.text for each in found] == expected
    assert [each.id for each in found] == list(range(1, len(expected) + 1))


def test_few_tokens_a_prompt_of_ids_and_clips(model: WhisperModel, talk: Samples) -> None:
    segments, _ = model.transcribe(talk, max_new_tokens=3, beam_size=1, temperature=0.0)
    assert all(len(segment.tokens) <= 3 for segment in segments)
    ids = model.transcriber.tokenizer.encode(" Mr. Quilter")
    by_ids, _ = model.transcribe(talk, initial_prompt=ids, beam_size=1)
    by_text, _ = model.transcribe(talk, initial_prompt="Mr. Quilter", beam_size=1)
    assert list(by_ids) == list(by_text)
    for clips in ("0,5", [0.0, 5.0], np.array([0.0, 5.0])):
        clipped, _ = model.transcribe(
            talk, clip_timestamps=clips, suppress_tokens="-1", beam_size=1, chunk_length=30
        )
        assert all(segment.seek < 500 for segment in clipped)


def test_bytes_files_chunks_and_a_progress_bar(
    model: WhisperModel, capsys: pytest.CaptureFixture[str]
) -> None:
    content = TALK.read_bytes()
    with TALK.open("rb") as file:
        texts = [
            [each.text for each in model.transcribe(source, batch_size=4, beam_size=1)[0]]
            for source in (str(TALK), io.BytesIO(content), file)
        ]
    assert texts[0] == texts[1] == texts[2] != []
    segments, _ = model.transcribe(content[:], log_progress=True, batch_size=4, beam_size=1)  # type: ignore[arg-type]
    assert [each.text for each in segments] == texts[0]
    assert "100%" in capsys.readouterr().err


def test_the_text_of_a_transcript_and_the_languages_of_a_model(model: WhisperModel) -> None:
    result = model.transcriber.transcribe(TALK)
    first = next(result)
    assert result.text.startswith(first.text.strip())
    assert list(result) == []
    assert model.transcriber.languages == ("en",)


def test_a_model_in_memory() -> None:
    files = {each.name: each.read_bytes() for each in bundled_folder("demo").iterdir()}
    with WhisperModel("mine", files=files, **CPU) as model:
        assert model.transcriber.capabilities.name == "mine"
    with pytest.raises(OptionError, match="is not the name of a file"):
        WhisperModel("mine", files={"../x": b""}, **CPU)


def test_it_downloads_unless_told_otherwise(hub: Hub, multilingual: Path, tmp_path: Path) -> None:
    hub.host("openai/whisper-tiny", multilingual)
    with pytest.raises(ModelNotFound, match="tiny"):
        WhisperModel("tiny", local_files_only=True, **CPU)
    assert hub.requests == []
    folder = tmp_path / "models"
    WhisperModel("tiny", download_root=str(folder), **CPU).close()
    assert "model.safetensors" in hub.fetched()
    assert list(folder.glob("models--openai--whisper-tiny/snapshots/*/model.safetensors"))
    with pytest.raises(ModelNotFound):  # not in the cache of the machine
        WhisperModel("tiny", local_files_only=True, **CPU)
    requests = len(hub.requests)
    WhisperModel("tiny", download_root=str(folder), local_files_only=True, **CPU).close()
    assert len(hub.requests) == requests
    WhisperModel(
        "Systran/faster-whisper-tiny", download_root=str(folder), local_files_only=True, **CPU
    ).close()


def test_a_revision_and_a_token_reach_the_hub(hub: Hub, multilingual: Path) -> None:
    hosted = hub.host("openai/whisper-tiny", multilingual)
    WhisperModel("tiny", revision="v2", use_auth_token="hf_mine", **CPU).close()
    assert any("/revision/v2" in request for request in hub.requests)
    assert hub.tokens["api"] == {"Bearer hf_mine"}
    requests = len(hub.requests)
    WhisperModel("tiny", revision="v2", local_files_only=True, **CPU).close()
    WhisperModel("tiny", revision=hosted.commit, local_files_only=True, **CPU).close()
    assert len(hub.requests) == requests
    with pytest.raises(ModelNotFound, match="v3 is not in"):
        WhisperModel("tiny", revision="v3", local_files_only=True, **CPU)
    with pytest.raises(OptionError, match="revision is a branch"):
        WhisperModel("tiny", revision="../x", **CPU)


def test_devices_and_compute_types() -> None:
    with pytest.raises(OptionError, match="one model runs on one device, not on 2"):
        WhisperModel("demo", device="cuda", device_index=[0, 1])
    assert device_name("auto", 1) == device_name("cuda", [1]) == "cuda:1"
    assert device_name("cpu", 0) == "cpu"
    for device, index in (("cpu", 1), ("cuda:0", 1)):
        with pytest.raises(OptionError, match="exclude each other"):
            Transcriber("demo", device=device, device_index=index)
    with WhisperModel("demo", "cpu", compute_type="int8_float32", cpu_threads=1) as model:
        assert model.transcriber.model.compute_type == "int8"
