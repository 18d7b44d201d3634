"""Chunks of a recording decoded in parallel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from pipelines.asr import (
    Segment,
    SegmentDone,
    TextDelta,
    TranscribeOptions,
    Transcriber,
    TranscriptionInfo,
    load_audio,
)
from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk, split_at_pauses
from pipelines.engine import Engine, LoadedModel, Pending
from pipelines.errors import AudioError, OptionError
from tests.asr.scripted import Turn, scripted
from tests.asr.test_events import Screen, tokens_of

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples"


@pytest.fixture(scope="module")
def demo() -> Iterator[Transcriber]:
    # On one thread, which a busy neighbor cannot hold up.
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield Transcriber("demo", engine=engine)


@pytest.fixture(scope="module")
def talk() -> Samples:
    return load_audio(SAMPLES / "talk.flac")


def sentences(name: str) -> list[tuple[float, float]]:
    """When each sentence of a sample begins and ends, s."""
    lines = (SAMPLES / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    return [(float(start), float(end)) for start, end, _ in (line.split("\t") for line in lines)]


# --- Chunks ---


@pytest.mark.parametrize("max_duration_s", [8.0, 10.0, 30.0])
def test_chunks_are_cut_in_the_pauses(max_duration_s: float) -> None:
    samples = load_audio(SAMPLES / "story.flac")
    found = list(split_at_pauses([samples], max_duration_s))
    for chunk in found:
        assert 0 < chunk.end_frame - chunk.start_frame <= max_duration_s * 100
    for before, after in pairwise(found):
        assert before.end_frame <= after.start_frame
    for start, end in sentences("story"):
        middles = [
            c
            for c in found
            if c.start_frame / 100 <= start + 0.1 and end - 0.1 <= c.end_frame / 100
        ]
        assert len(middles) == 1, f"the sentence at {start} s is in one chunk"


def test_blocks_of_any_size_give_the_same_chunks(talk: Samples) -> None:
    def contents(found: Iterator[Chunk]) -> list[tuple[int, int, int, bytes]]:
        return [(c.start_frame, c.end_frame, c.offset, c.samples.tobytes()) for c in found]

    expected = contents(split_at_pauses([talk], 10.0))
    for size in (1_000, 16_001, 400_000):
        blocks = [talk[at : at + size] for at in range(0, len(talk), size)]
        assert contents(split_at_pauses(blocks, 10.0)) == expected


@pytest.mark.slow
def test_long_silence_is_left_out(talk: Samples) -> None:
    longest = 0

    def blocks() -> Iterator[Samples]:
        yield talk
        for _ in range(60):
            yield np.zeros(10 * SAMPLE_RATE, np.float32)
        yield talk

    found = list(split_at_pauses(blocks(), 10.0))
    longest = max(len(c.samples) for c in found)
    half = len(found) // 2
    assert longest <= 10.1 * SAMPLE_RATE
    assert found[half - 1].end_frame < len(talk) / 160 + 1
    assert found[half].start_frame >= 60_000
    assert list(split_at_pauses([np.zeros(5 * SAMPLE_RATE, np.float32)], 10.0)) == []
    assert list(split_at_pauses([], 10.0)) == []


def test_speech_without_a_pause_is_cut(talk: Samples) -> None:
    rows = sentences("talk")
    speech = np.concatenate([talk[int(a * SAMPLE_RATE) : int(b * SAMPLE_RATE)] for a, b in rows])
    found = list(split_at_pauses([speech], 5.0))
    assert max(c.end_frame - c.start_frame for c in found) <= 500
    assert sum(c.end_frame - c.start_frame for c in found) > 0.95 * len(speech) / 160


def test_early_speech_begins_with_the_recording(talk: Samples) -> None:
    """The detector starts cold, and would lose the first word; a full chunk stays within its
    limit."""
    start = int(sentences("talk")[0][0] * SAMPLE_RATE)
    for lead_s in (0.0, 0.3):
        lead = np.zeros(round(lead_s * SAMPLE_RATE), np.float32)
        early = np.concatenate([lead, talk[start:]])
        for max_duration_s in (2.0, 10.0):
            found = list(split_at_pauses([early], max_duration_s))
            assert max(c.end_frame - c.start_frame for c in found) <= max_duration_s * 100
            assert found[0].start_frame <= 30
        assert found[0].start_frame == 0


def test_quiet_speech_gives_the_chunks_of_loud_speech(talk: Samples) -> None:
    def spans(samples: Samples) -> list[tuple[int, int]]:
        return [(c.start_frame, c.end_frame) for c in split_at_pauses([samples], 10.0)]

    ordinary = talk * (0.5 / np.abs(talk).max())
    assert spans((ordinary / 16).astype(np.float32)) == spans(ordinary.astype(np.float32))


# --- Recognition ---


def words_of(segments: Sequence[Segment]) -> list[str]:
    return "".join(s.text for s in segments).lower().replace(".", "").split()


@pytest.mark.slow
def test_the_text_is_right_and_in_its_place(demo: Transcriber, talk: Samples) -> None:
    found = list(demo.transcribe(talk, batch_size=4))
    truth = (SAMPLES / "talk.txt").read_text().lower().replace(".", "").split()
    assert len(set(truth) - set(words_of(found))) <= 3
    assert [s.id for s in found] == list(range(len(found)))
    rows = sentences("talk")
    assert len(found) == len(rows)
    for segment, (start, end) in zip(found, rows, strict=True):
        assert abs(segment.start - start) < 0.3
        assert abs(segment.end - end) < 0.3


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_batch_size(demo: Transcriber, talk: Samples) -> None:
    """A chunk is decoded as a recording of its own."""
    parallel = list(demo.transcribe(talk, batch_size=8, word_timestamps=True))
    for size in (2, 3):
        other = list(demo.transcribe(talk, batch_size=size, word_timestamps=True))
        assert [rounded(s) for s in other] == [rounded(s) for s in parallel]
    blocks = [talk[at : at + 12_345] for at in range(0, len(talk), 12_345)]
    streamed = demo.transcribe(iter(blocks), batch_size=8, word_timestamps=True)
    assert streamed.duration is None
    assert [rounded(s) for s in streamed] == [rounded(s) for s in parallel]


def rounded(segment: Segment) -> object:
    """Without the last digits, which depend on the other rows of a matrix product."""
    close = {"avg_logprob": round(segment.avg_logprob, 3), "words": ()}
    words = [(w.word, w.start, w.end, round(w.probability, 3)) for w in segment.words]
    return dataclasses.replace(segment, no_speech_prob=0.0, **close), words  # type: ignore[arg-type]


@pytest.mark.slow
def test_words_lie_in_the_recording(demo: Transcriber, talk: Samples) -> None:
    rows = sentences("talk")
    segments = list(demo.transcribe(talk, batch_size=4, word_timestamps=True))
    assert len(segments) > len(rows) // 2
    for segment in segments:
        assert segment.words
        assert segment.start == segment.words[0].start
        assert any(a - 0.5 < segment.start and segment.end < b + 0.5 for a, b in rows)
        for before, after in pairwise(segment.words):
            assert before.end <= after.start + 1e-6


@pytest.mark.slow
def test_live_text_is_the_segments_text(demo: Transcriber, talk: Samples) -> None:
    events = list(demo.stream(talk, batch_size=4))
    assert events[0] == TranscriptionInfo("en", None, len(talk) / SAMPLE_RATE)
    screen = Screen().show(events)
    assert "".join(screen.lives) == screen.final
    assert sum(isinstance(event, TextDelta) for event in events) > 3 * len(screen.segments)


@pytest.mark.slow
def test_the_first_text_of_a_long_recording_takes_one_window(
    real: Transcriber, talk: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the language has to be detected: its window is not encoded twice."""
    windows, encode = list[int](), LoadedModel.encode

    def counted(model: LoadedModel, sources: Sequence[Any], *options: Any, **named: Any) -> Any:
        windows.append(len(sources))
        return encode(model, sources, *options, **named)

    monkeypatch.setattr(LoadedModel, "encode", counted)
    read_s = list[float]()

    def blocks() -> Iterator[Samples]:
        for at in count(0, SAMPLE_RATE):
            read_s.append(at / SAMPLE_RATE)
            yield talk[np.arange(at, at + SAMPLE_RATE) % len(talk)]

    class Long:
        duration_s = 7200.0

        def __iter__(self) -> Iterator[Samples]:
            return blocks()

    with closing(real.stream(Long(), batch_size=8, chunk_s=10.0)) as events:
        next(event for event in events if isinstance(event, TextDelta | SegmentDone))
    assert windows == [1]
    assert read_s[-1] < 40


def test_speech_behind_an_early_end_is_heard(real: Transcriber) -> None:
    """A chunk ends with speech, so a text that ends long before is not all of it."""
    turns = [
        Turn(tokens_of(real, 0.0, " One", 3.9)),
        Turn(tokens_of(real, 0.0, " two", 3.0, 3.0, " three", 5.5)),
    ]
    transcriber, script = scripted(real, turns)
    sound = np.random.default_rng(0).standard_normal(10 * SAMPLE_RATE).astype(np.float32)
    chunk = Chunk(0, 1000, 0, sound, 1)
    task = transcriber.recognizer.decode_chunk(chunk, "en", TranscribeOptions())
    segments = [event.segment for event in task if isinstance(event, SegmentDone)]
    times = [(each.start, each.end, each.text) for each in segments]
    assert times == [(0.0, 3.9, " One"), (3.9, 6.9, " two"), (6.9, 9.4, " three")]
    assert len(script.calls) == 2
    # A timestamp only before the text does not end it.
    opened = scripted(real, [Turn(tokens_of(real, 1.0, " One two"))])[0]
    task = opened.recognizer.decode_chunk(chunk, "en", TranscribeOptions())
    assert [event.segment.text for event in task if isinstance(event, SegmentDone)] == [" One two"]
    # Window by window it counts as silence, as for openai-whisper.
    by_window = scripted(real, turns)[0].transcribe(sound, language="en")
    assert [segment.text for segment in by_window] == [" One"]


def test_noise_behind_an_early_end_says_nothing(real: Transcriber) -> None:
    """The text before it is not its prompt, or it would be said again."""
    turns = [
        Turn(tokens_of(real, 0.0, " One", 3.9)),
        Turn(tokens_of(real, 0.0, " One", 3.0), no_speech_prob=0.5),
    ]
    transcriber, script = scripted(real, turns)
    sound = np.random.default_rng(0).standard_normal(10 * SAMPLE_RATE).astype(np.float32)
    task = transcriber.recognizer.decode_chunk(
        Chunk(0, 1000, 0, sound, 1), "en", TranscribeOptions()
    )
    assert [event.segment.text for event in task if isinstance(event, SegmentDone)] == [" One"]
    first, second = script.calls
    assert second.prompt == first.prompt


def test_text_that_ends_early_again_and_again_is_left(real: Transcriber) -> None:
    transcriber, script = scripted(real, [Turn(tokens_of(real, 0.0, " One", 2.0))])
    sound = np.random.default_rng(0).standard_normal(20 * SAMPLE_RATE).astype(np.float32)
    task = transcriber.recognizer.decode_chunk(
        Chunk(0, 2000, 0, sound, 1), "en", TranscribeOptions()
    )
    assert len([event for event in task if isinstance(event, SegmentDone)]) == 4
    assert len(script.calls) == 4


@pytest.mark.parametrize(
    ("second", "third", "kept"),
    [(-0.2, -0.1, 2), (-0.45, -0.1, 2), (-0.6, -0.2, 3), (-0.6, -0.6, 1)],
    ids=["more probable", "longer", "more probable with silence", "less probable"],
)
@pytest.mark.parametrize(
    "sparse",
    [(0.0, " One", 9.9), (0.0, " One", 7.0, 7.0, " One", 9.9)],
    ids=["all of it", "its beginning"],
)
def test_a_chunk_with_too_little_text_is_encoded_with_the_whole_window(
    real: Transcriber, sparse: tuple[float | str, ...], second: float, third: float, kept: int
) -> None:
    """What is said three times is written less often, if the window behind the chunk is missing."""
    texts = ["".join(part for part in sparse if isinstance(part, str)), *[" One One One"] * 2]
    whole = tokens_of(real, 0.0, " One", 3.0, 3.0, " One", 6.0, 6.0, " One", 9.9)
    turns = [Turn(tokens_of(real, *sparse), -0.4), Turn(whole, second), Turn(whole, third)]
    transcriber, script = scripted(real, turns)
    sound = np.random.default_rng(0).standard_normal(10 * SAMPLE_RATE).astype(np.float32)
    task = transcriber.recognizer.decode_chunk(
        Chunk(0, 1000, 0, sound, 1), "en", TranscribeOptions()
    )
    screen = Screen().show(each for each in task if not isinstance(each, Pending))
    mels = [call.mel for call in script.calls]
    assert [mel.shape[1] for mel in mels] == [1300, *[3000] * (len(mels) - 1)]
    assert len(mels) == (2 if kept == 2 else 3)
    assert all(torch.equal(mel[:, :1000], mels[0][:, :1000]) for mel in mels)
    silence = mels[0][0, -1]
    for mel, padding in zip(mels, (silence, 0.0, silence), strict=False):
        assert bool((mel[:, 1000:] == padding).all())
    assert screen.final == texts[kept - 1]
    one, two, three = texts
    assert screen.rejected == {1: [one, two, one, three], 2: [one], 3: [one, two, one]}[kept]


def test_text_that_is_as_long_as_its_sound_is_decoded_once(real: Transcriber) -> None:
    spoken = tokens_of(real, 0.0, " one two three four five six seven eight nine ten", 5.0)
    transcriber, script = scripted(real, [Turn(spoken)])
    sound = np.random.default_rng(0).standard_normal(5 * SAMPLE_RATE).astype(np.float32)
    task = transcriber.recognizer.decode_chunk(
        Chunk(0, 500, 0, sound, 1), "en", TranscribeOptions()
    )
    assert len([event for event in task if isinstance(event, SegmentDone)]) == 1
    assert len(script.calls) == 1


def test_silence_has_no_segments(demo: Transcriber) -> None:
    for samples in (np.zeros(1, np.float32), np.zeros(20 * SAMPLE_RATE, np.float32)):
        assert list(demo.transcribe(samples, batch_size=4)) == []
    assert list(demo.transcribe(iter([]), batch_size=4)) == []


@pytest.mark.slow
def test_every_chunk_begins_with_the_initial_prompt(
    demo: Transcriber, talk: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[tuple[int, ...]] = []
    stream = Engine.stream

    def recording_stream(engine: Engine, request: Any) -> Any:
        prompts.append(request.prompt)
        return stream(engine, request)

    monkeypatch.setattr(Engine, "stream", recording_stream)
    list(demo.transcribe(talk, batch_size=4, temperature=0.0, initial_prompt="A garden."))
    previous = demo.tokenizer.special.previous
    expected = (previous, *demo.tokenizer.encode(" A garden."))
    assert len(prompts) >= 3
    assert all(prompt[: len(expected)] == expected for prompt in prompts)


@pytest.mark.slow
def test_a_window_that_fails_falls_back(demo: Transcriber, talk: Samples) -> None:
    options: dict[str, Any] = {
        "temperature": (0.0, 0.4),
        "logprob_threshold": 0.0,
        "openai_rules": True,  # else the best attempt is kept, which may be the first
    }
    screen = Screen().show(demo.stream(talk, batch_size=4, no_speech_threshold=None, **options))
    assert {segment.temperature for segment in screen.segments} == {0.4}
    assert len(screen.rejected) >= 3
    again = demo.transcribe(talk, batch_size=4, no_speech_threshold=None, **options)
    assert [s.text for s in again] == [s.text for s in screen.segments], "seeds make it repeatable"


@pytest.mark.slow
def test_the_language_is_detected_in_the_first_speech(real: Transcriber, talk: Samples) -> None:
    late = np.concatenate([np.zeros(40 * SAMPLE_RATE, np.float32), talk])
    found = real.transcribe(late, batch_size=2, temperature=0.0)
    assert found.language in real.capabilities.languages
    assert found.info.language_probability is not None
    assert all(s.start >= 40 for s in found)
    assert real.transcribe(late, batch_size=2, language="fr").language == "fr"


@pytest.mark.slow
def test_sound_without_speech_has_no_segments_by_default(demo: Transcriber) -> None:
    at = np.arange(10 * SAMPLE_RATE) / SAMPLE_RATE
    hum = sum(0.1 / k * np.sin(2 * np.pi * 50 * k * at) for k in range(1, 8))
    for sound in (np.zeros(10 * SAMPLE_RATE), hum):
        result = demo.transcribe(sound)
        assert list(result) == []
        assert result.language in demo.capabilities.languages
        blocks = (sound[first : first + SAMPLE_RATE] for first in range(0, len(sound), SAMPLE_RATE))
        assert [type(event) for event in demo.stream(blocks)] == [TranscriptionInfo]
    # One window after the other, as openai-whisper, on request.
    assert list(demo.transcribe(hum, batch_size=1))
    assert list(demo.transcribe(hum, vad_filter=False))


@pytest.mark.slow
def test_closing_cancels_all(demo: Transcriber, talk: Samples) -> None:
    events = demo.stream(talk, batch_size=4)
    assert isinstance(next(events), TranscriptionInfo)
    assert isinstance(next(events), TextDelta)
    events.close()
    list(demo.transcribe(talk[: 3 * SAMPLE_RATE], batch_size=1))
    assert demo.model.statistics.running == 0


def test_invalid_input_is_refused_at_once(demo: Transcriber) -> None:
    with pytest.raises(OptionError, match="batch_size must be 1 or more"):
        demo.transcribe(np.zeros(1), batch_size=0)
    with pytest.raises(OptionError, match="chunk_s must be 2 s or more"):
        demo.transcribe(np.zeros(1), batch_size=2, chunk_s=1.0)
    for source in (np.zeros(0), "missing.wav", 5):
        with pytest.raises(AudioError):
            demo.transcribe(cast(Any, source), batch_size=2)


@pytest.mark.slow
def test_a_stream_that_breaks_keeps_the_segments_before(demo: Transcriber, talk: Samples) -> None:
    whole = [segment.text for segment in demo.transcribe(talk, batch_size=4)]

    def broken() -> Iterator[Samples]:
        yield from np.split(talk, range(SAMPLE_RATE, len(talk), SAMPLE_RATE))
        raise ConnectionResetError("the radio is off")

    texts = []
    with pytest.raises(ConnectionResetError):  # noqa: PT012
        for segment in demo.transcribe(broken(), batch_size=4):
            texts.append(segment.text)  # noqa: PERF401
    assert texts == whole
