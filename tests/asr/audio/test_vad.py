"""Voice activity: emitted audio, and where utterances begin, end and are cut."""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipelines.asr.audio import silero
from pipelines.asr.audio.arrays import LoudAudio
from pipelines.asr.audio.decode import load_audio
from pipelines.asr.audio.silero import FRAME, SileroDetector
from pipelines.asr.audio.vad import (
    LongPause,
    SpeechAudio,
    SpeechEnd,
    SpeechStart,
    VoiceActivity,
    VoiceEvent,
)
from pipelines.asr.options import VadOptions
from pipelines.errors import AudioError, CheckpointError, ModelNotFound, OptionError

RATE = 16_000
SAMPLES = Path(__file__).resolve().parents[3] / "assets" / "samples"
Audio = NDArray[np.float32]
Spans = list[tuple[int, int]]

# What a scripted detector says: silence, doubt (between the two thresholds), speech.
SILENCE, DOUBT, SPEECH = 0.1, 0.3, 0.9


def scripted(runs: Iterable[tuple[float, int]], tail: int = 0) -> Audio:
    """Noise whose every frame begins with the probability that `first_sample` reads from it.

    runs: (probability, frames). tail: samples of a last, unfinished frame.
    """
    probabilities = [p for p, frames in runs for _ in range(frames)]
    audio = np.random.default_rng(7).uniform(-1, 1, (len(probabilities) + 1) * FRAME)
    audio[::FRAME] = [*probabilities, SILENCE]
    return audio[: len(probabilities) * FRAME + tail].astype(np.float32)


def first_sample(frame: Audio) -> float:
    return float(frame[0])


def play(
    audio: Audio, options: VadOptions, blocks: Iterable[int] = (), real: bool = False
) -> list[VoiceEvent]:
    """All events; blocks: sizes of the first ones, the rest comes in one."""
    voice = VoiceActivity(options, None if real else first_sample)
    events = []
    done = 0
    for size in blocks:
        events += voice.feed(audio[done : done + size])
        done += size
    return events + voice.feed(audio[done:]) + voice.finish()


def comparable(events: Iterable[VoiceEvent]) -> list[Any]:
    return [
        (event.start, event.samples.tobytes()) if isinstance(event, SpeechAudio) else event
        for event in events
    ]


def utterances(events: Iterable[VoiceEvent], audio: Audio) -> Spans:
    """(start, end) of each, having checked that what was handed out is exactly that audio."""
    spans: Spans = []
    start = position = None
    for event in events:
        if isinstance(event, SpeechStart):
            assert start is None
            start = position = event.sample
        elif isinstance(event, SpeechAudio):
            assert event.start == position
            assert len(event.samples)
            assert event.samples.base is None  # keeping it keeps nothing else
            position += len(event.samples)
            np.testing.assert_array_equal(event.samples, audio[event.start : position])
        elif isinstance(event, LongPause):
            assert start is None
        else:
            assert start is not None
            assert event.sample == position
            spans.append((start, event.sample))
            start = position = None
    assert start is None
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
    return spans


def seconds(spans: Spans) -> list[tuple[float, float]]:
    return [(start / RATE, end / RATE) for start, end in spans]


# --- the policy, with a scripted detector ---


def test_an_utterance_with_its_pre_roll_and_its_pause() -> None:
    audio = scripted([(SILENCE, 50), (SPEECH, 30), (SILENCE, 50)])
    [(start, end)] = utterances(play(audio, VadOptions()), audio)
    assert start == 50 * FRAME - 0.5 * RATE
    assert 0.6 * RATE <= end - 80 * FRAME < 0.6 * RATE + FRAME


def test_audio_is_emitted_during_the_utterance() -> None:
    voice = VoiceActivity(detector=first_sample)
    voice.feed(scripted([(SILENCE, 30), (SPEECH, 5)]))
    for _ in range(10):
        [event] = voice.feed(scripted([(SPEECH, 1)]))
        assert isinstance(event, SpeechAudio)


def test_short_pauses_are_kept_and_short_blips_ignored() -> None:
    blip = [(SPEECH, 3), (SILENCE, 40)]
    audio = scripted([*blip, (SPEECH, 20), (SILENCE, 15), (SPEECH, 1), (SILENCE, 40), *blip])
    [(start, end)] = utterances(play(audio, VadOptions()), audio)
    assert start == 43 * FRAME - 0.5 * RATE
    assert 79 * FRAME + 0.6 * RATE <= end < 80 * FRAME + 0.6 * RATE


@pytest.mark.parametrize("blocks", [(), [512] * 200, [700] * 100, [16_000] * 4])
def test_a_long_pause_is_reported_once_and_a_short_one_never(blocks: list[int]) -> None:
    options = VadOptions(long_pause_ms=1500)
    audio = scripted([(SPEECH, 20), (SILENCE, 45), (SPEECH, 20), (SILENCE, 120)])
    ends = [e for e in play(audio, options, blocks) if isinstance(e, SpeechEnd | LongPause)]
    assert [type(event) for event in ends] == [SpeechEnd, SpeechEnd, LongPause]
    assert 0 <= ends[-1].sample - 85 * FRAME - 1.5 * RATE < FRAME


def test_a_blip_ends_no_long_pause() -> None:
    audio = scripted([(SPEECH, 20), (SILENCE, 30), (SPEECH, 1), (SILENCE, 60)])
    pauses = [e for e in play(audio, VadOptions(long_pause_ms=1500)) if isinstance(e, LongPause)]
    assert [0 <= pause.sample - 20 * FRAME - 1.5 * RATE < FRAME for pause in pauses] == [True]


def test_short_dips_at_the_onset_are_ignored() -> None:
    audio = scripted([(SILENCE, 30), (SPEECH, 1), (SILENCE, 2), (SPEECH, 3), (SILENCE, 30)])
    [(start, _)] = utterances(play(audio, VadOptions(speech_pad_ms=100)), audio)
    assert start == 30 * FRAME - 0.1 * RATE


def test_hysteresis_between_the_thresholds() -> None:
    for runs, count in [
        ([(DOUBT, 100)], 0),
        ([(SPEECH, 5), (DOUBT, 100), (SPEECH, 5)], 1),
        ([(SPEECH, 5), (SILENCE, 1), (DOUBT, 100), (SPEECH, 5)], 2),
    ]:
        audio = scripted(runs)
        assert len(utterances(play(audio, VadOptions()), audio)) == count


@pytest.mark.parametrize("tail", [0, 1, 511])
def test_stop_in_the_middle_of_a_word_loses_none_of_it(tail: int) -> None:
    audio = scripted([(SILENCE, 20), (SPEECH, 20)], tail)
    for limit in (None, 2.0, 10.0):
        options = VadOptions(max_speech_duration_s=limit)
        [(_, end)] = utterances(play(audio, options), audio)
        assert end == len(audio)


def test_the_last_frame_is_padded_with_silence() -> None:
    frames: list[Audio] = []
    voice = VoiceActivity(detector=lambda frame: frames.append(frame) or 0.0)  # type: ignore[func-returns-value]
    voice.feed(np.ones(FRAME + 100, np.float32))
    voice.finish()
    assert [float(frame.sum()) for frame in frames] == [FRAME, 100]


def test_a_long_utterance_is_cut_where_it_is_quietest() -> None:
    audio = scripted([(SPEECH, 400)])
    dip = int(4.5 * RATE)
    audio[dip : dip + RATE // 5][np.arange(RATE // 5) % FRAME > 0] *= 0.01
    audio[::FRAME] = SPEECH
    options = VadOptions(max_speech_duration_s=5.0)
    spans = utterances(play(audio, options), audio)
    assert dip < spans[0][1] < dip + RATE // 5
    assert [end for _, end in spans] == [*(start for start, _ in spans[1:]), len(audio)]
    assert all(4 * RATE <= end - start <= 5 * RATE for start, end in spans[:-1])


def test_no_utterance_is_only_the_pause_after_a_cut() -> None:
    audio = scripted([(SPEECH, 90), (SILENCE, 100)])
    audio[90 * FRAME :][np.arange(100 * FRAME) % FRAME > 0] *= 0.01
    [(start, end)] = utterances(play(audio, VadOptions(max_speech_duration_s=3.0)), audio)
    assert (start, end // FRAME) == (0, pytest.approx(91, abs=2))


def test_after_a_cut_in_a_pause_the_next_word_may_be_short() -> None:
    audio = scripted([(SPEECH, 90), (SILENCE, 12), (SPEECH, 1), (SILENCE, 100)])
    audio[90 * FRAME : 102 * FRAME][np.arange(12 * FRAME) % FRAME > 0] *= 0.01
    first, second = utterances(play(audio, VadOptions(max_speech_duration_s=3.0)), audio)
    assert first[1] == second[0]
    assert second[0] < 102 * FRAME < 103 * FRAME <= second[1]


options_strategy = st.builds(
    lambda pre, speech, silence, limit: VadOptions(
        speech_pad_ms=1000 * pre,
        min_speech_duration_ms=1000 * speech,
        min_silence_duration_ms=1000 * silence,
        max_speech_duration_s=None if limit is None else max(pre + speech, silence) + 1 + limit,
    ),
    st.sampled_from([0.0, 0.03, 0.3]),
    st.sampled_from([0.0, 0.032, 0.1]),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([None, 0.0, 0.001, 1.0]),
)
runs_strategy = st.lists(
    st.tuples(
        st.sampled_from([SILENCE, DOUBT, SPEECH]), st.sampled_from([1, 2, 3, 4, 5, 12, 20, 40])
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=100, derandomize=True)
@given(
    runs_strategy,
    st.integers(0, FRAME - 1),
    options_strategy,
    st.lists(st.sampled_from([0, 1, 7, 160, 511, 512, 513, 4800, 50_000]), max_size=40),
)
def test_the_sizes_of_blocks_do_not_matter(
    runs: list[tuple[float, int]], tail: int, options: VadOptions, blocks: list[int]
) -> None:
    audio = scripted(runs, tail)
    assert comparable(play(audio, options, blocks)) == comparable(play(audio, options))


def offline(audio: Audio, options: VadOptions) -> tuple[Spans, Spans]:
    """The same rules said again, of a whole recording: (utterances, speech inside them)."""
    runs: list[list[int]] = []  # of frames that are speech
    voiced = False
    for start in range(0, len(audio), FRAME):
        voiced = audio[start] >= (options.release if voiced else options.threshold)
        if voiced and runs and runs[-1][1] == start:
            runs[-1][1] = min(start + FRAME, len(audio))
        elif voiced:
            runs.append([start, min(start + FRAME, len(audio))])
    spans: Spans = []
    speech: Spans = []
    silence = math.ceil(options.samples("min_silence_duration_ms") / FRAME) * FRAME
    candidate: Spans = []  # runs that may together be long enough
    for start, end in runs:
        if spans and start < spans[-1][1]:
            speech[-1] = (speech[-1][0], end)
            spans[-1] = (spans[-1][0], end + max(silence, FRAME))
            continue
        if candidate and start - candidate[-1][1] >= options.samples("min_speech_duration_ms"):
            candidate.clear()
        candidate.append((start, end))
        if sum(b - a for a, b in candidate) >= options.samples("min_speech_duration_ms"):
            before = spans[-1][1] if spans else 0
            first = max(candidate[0][0] - options.samples("speech_pad_ms"), before)
            spans.append((first, end + max(silence, FRAME)))
            speech.append((first, end))
            candidate.clear()
    return [(start, min(end, len(audio))) for start, end in spans], speech


@pytest.mark.slow
@settings(max_examples=150, derandomize=True)
@given(runs_strategy, st.integers(0, FRAME - 1), options_strategy)
@example(  # the pause that ends it, and its greatest length, in the same frame
    [(SPEECH, 31), (SILENCE, 9)],
    0,
    VadOptions(
        threshold=0.5,
        min_speech_duration_ms=0,
        max_speech_duration_s=1,
        min_silence_duration_ms=0,
        speech_pad_ms=0,
    ),
)
def test_every_utterance_is_found_and_no_speech_is_lost(
    runs: list[tuple[float, int]], tail: int, options: VadOptions
) -> None:
    audio = scripted(runs, tail)
    spans = utterances(play(audio, options), audio)
    expected, speech = offline(audio, options)
    if options.max_speech_duration_s is None:
        assert spans == expected
        return
    assert all(end - start <= options.max_speech_duration_s * RATE + 1 for start, end in spans)
    handed_out = np.zeros(len(audio), bool)
    for start, end in spans:
        handed_out[start:end] = True
    for start, end in speech:
        assert handed_out[start:end].all()
    inside = np.zeros(len(audio), bool)
    for start, end in expected:
        inside[start:end] = True
    assert not (handed_out & ~inside).any()


def test_the_caller_may_reuse_its_block() -> None:
    audio = scripted([(SPEECH, 40)], 100)
    voice = VoiceActivity(VadOptions(), first_sample)
    block = np.empty(700, np.float32)
    events = []
    for start in range(0, len(audio), len(block)):
        piece = block[: len(audio) - start]
        piece[:] = audio[start : start + len(block)]
        events += voice.feed(piece)
        block[:] = 0.5
    assert len(utterances(events + voice.finish(), audio)) == 1


@pytest.mark.slow
def test_hours_of_silence_and_of_speech_keep_memory_flat() -> None:
    for probability, limit in [(SILENCE, None), (SPEECH, None), (SPEECH, 30.0)]:
        voice = VoiceActivity(VadOptions(max_speech_duration_s=limit), lambda _, p=probability: p)
        block = np.zeros(RATE, np.float32)
        for _ in range(40):
            voice.feed(block)
        tracemalloc.start()
        for _ in range(150):
            voice.feed(block)
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert now < 200_000
        assert peak < 1_000_000


def test_nan_samples_count_as_silence() -> None:
    audio = scripted([(SILENCE, 5), (SPEECH, 10), (SILENCE, 5), (SPEECH, 10)])
    broken, repaired = audio.copy(), audio.copy()
    for value, at in [(np.nan, 700), (np.inf, 5130), (-np.inf, 9000)]:
        broken[at : at + 300], repaired[at : at + 300] = value, 0.0
    assert comparable(play(broken, VadOptions())) == comparable(play(repaired, VadOptions()))
    voice = VoiceActivity(detector=first_sample)
    voice.feed(np.full(600, np.nan, np.float32))
    assert (voice.probability, voice.level) == (0.0, -120.0)


def test_level_and_probability_for_a_meter() -> None:
    voice = VoiceActivity(detector=lambda frame: 0.25)
    assert (voice.probability, voice.level) == (0.0, -120.0)
    voice.feed(np.sin(np.arange(RATE)).astype(np.float32))
    assert voice.level == pytest.approx(-3.01, abs=0.01)
    assert voice.probability == 0.25
    voice.feed(np.zeros(0, np.float32))
    assert voice.level == pytest.approx(-3.01, abs=0.01)
    voice.feed(np.zeros(1, np.float32))
    assert voice.level == -120.0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": 1.0}, "threshold"),
        ({"threshold": math.nan}, "threshold"),
        ({"neg_threshold": 0.6}, "neg_threshold"),
        ({"neg_threshold": 0.0}, "neg_threshold"),
        ({"speech_pad_ms": -0.1}, "speech_pad_ms"),
        ({"min_speech_duration_ms": math.inf}, "min_speech_duration_ms"),
        ({"min_silence_duration_ms": math.nan}, "min_silence_duration_ms"),
        ({"max_speech_duration_s": 1.5}, "max_speech_duration_s must be 1.6 or more"),
        ({"max_speech_duration_s": 0.0}, "max_speech_duration_s"),
    ],
)
def test_invalid_options_are_errors(options: dict[str, float], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        VoiceActivity(VadOptions(**options))


def test_invalid_blocks_are_errors() -> None:
    with pytest.raises(AudioError, match="audio stream"):
        VoiceActivity(detector=first_sample).feed(b"abc")  # type: ignore[arg-type]


# --- Silero ---


@pytest.mark.slow
def test_probabilities_equal_silero_vad() -> None:
    import torch

    path = silero._package() / "data" / "silero_vad.jit"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = torch.jit.load(path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on several, layers this small do little but wait for each other
    audio = load_audio(SAMPLES / "talk.flac")[: 8 * RATE]
    frames = audio[: len(audio) // FRAME * FRAME].reshape(-1, FRAME)
    detector = SileroDetector()
    ours = [detector(frame) for frame in frames]
    try:
        with torch.inference_mode():
            theirs = [network(torch.from_numpy(frame)[None], RATE).item() for frame in frames]
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert min(ours) < 0.05
    assert max(ours) > 0.95


def truth(name: str) -> list[tuple[float, float]]:
    """Start and end of each sentence, seconds."""
    lines = (SAMPLES / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    return [(float(start), float(end)) for start, end, _ in (line.split("\t") for line in lines)]


@pytest.mark.parametrize("name", ["talk", "question", "digits"])
@pytest.mark.parametrize("limit", [None, 3.0])
@pytest.mark.parametrize("loudness", [1.0, 0.1])
def test_every_sentence_is_inside_an_utterance(
    name: str, limit: float | None, loudness: float
) -> None:
    audio = load_audio(SAMPLES / f"{name}.flac") * np.float32(loudness)
    spans = utterances(play(audio, VadOptions(max_speech_duration_s=limit), real=True), audio)
    handed_out = np.zeros(len(audio), bool)
    for start, end in spans:
        handed_out[start:end] = True
    for start_s, end_s in truth(name):
        # Of quiet speech Silero may need more than the pre-roll to be sure.
        first = start_s if loudness == 1 else start_s + 0.05
        assert handed_out[int(first * RATE) : int(end_s * RATE)].all()
    if limit is None:
        # Pauses of 0.8 s or more are between the sentences; Silero may hear one as shorter.
        assert len(spans) in {"talk": (8, 9), "question": (1,), "digits": (1,)}[name]
    else:
        assert all(end - start <= limit * RATE for start, end in spans)


@pytest.mark.slow
def test_recordings_of_people(shared_data: Path) -> None:
    paths = sorted((shared_data / "speech").glob("*.flac"))
    assert len(paths) == 6
    for path in paths:
        audio = load_audio(path)
        spans = utterances(play(audio, VadOptions(), real=True), audio)
        assert sum(end - start for start, end in spans) > 0.9 * len(audio)


def sound(name: str) -> Audio:
    """Ten seconds of sound without speech."""
    rng = np.random.default_rng(3)
    count = 10 * RATE
    t = np.arange(count) / RATE
    if name == "digital silence":
        return np.zeros(count, np.float32)
    if name == "offset":
        return np.full(count, 0.3, np.float32)
    if name == "noise":
        return rng.uniform(-0.5, 0.5, count).astype(np.float32)
    if name == "faint noise":
        return (rng.standard_normal(count) * 1e-3).astype(np.float32)
    if name == "brown noise":
        spectrum = np.fft.rfft(rng.standard_normal(count))
        wave = np.fft.irfft(spectrum / np.maximum(np.arange(len(spectrum)), 1), count)
    elif name == "hum":
        wave = sum(np.sin(2 * np.pi * 50 * k * t) / k for k in range(1, 20))
    elif name == "sweep":
        wave = np.sin(2 * np.pi * (100 * t + 200 * t * t))
    elif name == "dialling":
        wave = (np.sin(2 * np.pi * 770 * t) + np.sin(2 * np.pi * 1336 * t)) * (t % 0.5 < 0.2)
    elif name == "clicks":
        wave = rng.random(count) < 3e-4
    else:
        wave = np.sin(2 * np.pi * float(name) * t)
    return (0.5 * wave / np.abs(wave).max()).astype(np.float32)


@pytest.mark.parametrize(
    "name",
    ["digital silence", "offset", "noise", "faint noise", "brown noise"]
    + ["hum", "sweep", "dialling", "clicks", "100", "440", "1000", "3000"],
)
def test_noises_and_tones_are_no_speech(name: str) -> None:
    assert play(sound(name), VadOptions(), real=True) == []


def test_samples_out_of_range_do_not_corrupt_the_state() -> None:
    audio = load_audio(SAMPLES / "question.flac")
    bad = np.concatenate([np.array([1e30, -3e38, 9.0], np.float32), np.zeros(RATE, np.float32)])
    audio = np.concatenate([bad, audio])
    with pytest.warns(LoudAudio, match="clipped"):
        events = play(audio, VadOptions(), real=True)
    spans = utterances(events, audio)
    assert sum(end - start for start, end in spans) > 2.5 * RATE


@pytest.mark.slow
def test_real_events_for_any_blocks_and_streams_side_by_side() -> None:
    talk = load_audio(SAMPLES / "talk.flac")[: 6 * RATE]
    digits = load_audio(SAMPLES / "digits.flac")
    options = VadOptions(max_speech_duration_s=2.0)
    expected = [comparable(play(audio, options, real=True)) for audio in (talk, digits)]
    for size in (160, 1000, 7777):
        voices = [VoiceActivity(options), VoiceActivity(options)]
        found: list[list[VoiceEvent]] = [[], []]
        for start in range(0, len(talk), size):
            for voice, events, audio in zip(voices, found, (talk, digits), strict=True):
                events += voice.feed(audio[start : start + size])
        for voice, events in zip(voices, found, strict=True):
            events += voice.finish()
        assert [comparable(events) for events in found] == expected


@pytest.mark.slow
def test_single_samples() -> None:
    audio = load_audio(SAMPLES / "digits.flac")
    blocks = [1] * (len(audio) - 1)
    assert comparable(play(audio, VadOptions(), blocks, real=True)) == comparable(
        play(audio, VadOptions(), real=True)
    )


def test_finish_resets_the_stream() -> None:
    audio = load_audio(SAMPLES / "question.flac")
    voice = VoiceActivity()
    first = comparable(voice.feed(audio) + voice.finish())
    assert voice.finish() == []
    voice.feed(sound("noise"))
    voice.finish()
    assert comparable(voice.feed(audio) + voice.finish()) == first
    assert isinstance(first[-1], SpeechEnd)


def test_importing_it_is_cheap() -> None:
    program = "import sys, pipelines.asr.audio.vad; assert not {'torch', 'av'} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


@pytest.fixture
def unloaded() -> Iterator[None]:
    silero._load.cache_clear()
    yield
    silero._load.cache_clear()


@pytest.mark.usefixtures("unloaded")
def test_loading_it_leaves_torch_s_settings_alone() -> None:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)  # importing silero_vad would make it 1
    try:
        VoiceActivity()
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.usefixtures("unloaded")
def test_without_silero_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silero, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match="pip install silero-vad"):
        VoiceActivity()
    monkeypatch.setattr(silero, "_package", lambda: tmp_path)
    with pytest.raises(CheckpointError, match="reinstall"):
        VoiceActivity()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "silero_vad.jit").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="reinstall"):
        VoiceActivity()
