"""LiveTranscriber on real recordings, with the bundled model and Silero's voice activity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from pipelines.asr import Transcriber, load_audio
from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.features import FileFeatures
from pipelines.asr.live.buffer import LiveBuffer
from pipelines.asr.live.events import CommittedText, LiveEvent, PartialText, UpdateDecoded
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import Word
from pipelines.asr.window import WindowDecoder
from pipelines.engine import Engine
from pipelines.hub import assets_folder, bundled_folder

pytestmark = pytest.mark.slow

STEADY = 1600  # samples: a tenth of a second
NOTHING_S = 6


@pytest.fixture(scope="module")
def transcriber() -> Transcriber:
    """In float32, where a draft must not change a single token."""
    return Transcriber(bundled_folder("demo"), engine=Engine(compute_type="float32", threads=1))


@pytest.fixture(scope="module")
def talk() -> Samples:
    """Three sentences, with the pauses between them."""
    return load_audio(assets_folder() / "samples" / "talk.flac")[: 9 * SAMPLE_RATE]


def listen(
    transcriber: Transcriber,
    samples: Samples,
    blocks: list[int] | None = None,
    options: LiveOptions | None = None,
) -> list[LiveEvent]:
    """blocks: their sizes, over and over."""
    live = LiveTranscriber(transcriber, options)
    events: list[LiveEvent] = []
    at = turn = 0
    while at < len(samples):
        size = (blocks or [STEADY])[turn % len(blocks or [STEADY])]
        events += live.feed(samples[at : at + size])
        at, turn = at + size, turn + 1
    return events + live.finish()


def text_of(events: list[LiveEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, CommittedText))


@pytest.mark.parametrize("policy", ["agreement", "attention"])
def test_committed_text_only_grows_and_precedes_the_partial_text(
    transcriber: Transcriber, talk: Samples, policy: str
) -> None:
    options = replace(LiveOptions(), policy=policy)
    events = listen(transcriber, talk, options=options)
    pieces = [event for event in events if isinstance(event, CommittedText)]
    assert len(pieces) > 5, "words come while they are spoken"
    for before, after in zip(pieces, pieces[1:], strict=False):
        assert before.end <= after.start
    whole = list(accumulate(piece.text for piece in pieces))
    assert whole[-1] == text_of(events)
    assert all(later.startswith(sooner) for sooner, later in zip(whole, whole[1:], strict=False))
    tails = [event.text for event in events if isinstance(event, PartialText)]
    assert tails[-1] == "", "all is committed in the end"


def _words(events: list[LiveEvent]) -> list[Word]:
    return [word for e in events if isinstance(e, CommittedText) for word in e.words]


def _without_words(event: LiveEvent) -> LiveEvent:
    return replace(event, words=()) if isinstance(event, CommittedText) else event


def test_drafts_change_no_token(transcriber: Transcriber, talk: Samples) -> None:
    def told(drafts: bool) -> tuple[list[LiveEvent], int]:
        events = listen(transcriber, talk, options=replace(LiveOptions(), drafts=drafts))
        costs = [event for event in events if isinstance(event, UpdateDecoded)]
        return [event for event in events if not isinstance(event, UpdateDecoded)], sum(
            cost.accepted for cost in costs
        )

    drafted, accepted = told(True)
    plain, none = told(False)
    assert [_without_words(event) for event in drafted] == [_without_words(e) for e in plain]
    for one, other in zip(_words(drafted), _words(plain), strict=True):
        assert one == replace(other, probability=pytest.approx(other.probability, abs=1e-3))
    assert (accepted > 50, none) == (True, 0)


@pytest.mark.parametrize(
    "blocks",
    [[1], [7, 3001, 160, 5000, 1, 1, 2222], [4096], [160] * 30 + [7000]],
    ids=["single samples", "jitter", "browser", "stalls"],
)
def test_blocks_do_not_matter(transcriber: Transcriber, talk: Samples, blocks: list[int]) -> None:
    talk = talk[: (4 if blocks == [1] else 9) * SAMPLE_RATE]
    steady = [e for e in listen(transcriber, talk) if not isinstance(e, UpdateDecoded)]
    assert [
        e for e in listen(transcriber, talk, blocks) if not isinstance(e, UpdateDecoded)
    ] == steady


def test_bursts_lose_nothing(transcriber: Transcriber, talk: Samples) -> None:
    """Two seconds at a time, as after a stall of the network: fewer updates, all the words."""
    steady = text_of(listen(transcriber, talk)).split()
    burst = text_of(listen(transcriber, talk, [2 * SAMPLE_RATE])).split()
    assert len(set(steady) & set(burst)) >= 0.7 * len(set(steady))


def nothings() -> Iterator[tuple[str, Samples]]:
    """What holds no speech, loud and soft."""
    n, r = NOTHING_S * SAMPLE_RATE, np.random.default_rng(3)
    time = np.arange(n) / SAMPLE_RATE
    yield "digital silence", np.zeros(n)
    for color, power in (("white", 0.0), ("pink", 0.5), ("brown", 1.0)):
        spectrum = np.fft.rfft(r.standard_normal(n))
        spectrum /= np.maximum(np.arange(len(spectrum)), 20.0) ** power
        noise = np.fft.irfft(spectrum, n)
        for level in (0.001, 0.02, 0.2):
            yield f"{color} noise {level}", noise / noise.std() * level
    for pitch in (60, 220, 440, 1000, 3000):
        yield f"{pitch} Hz", 0.3 * np.sin(2 * np.pi * pitch * time)
    yield "sweep", 0.3 * np.sin(2 * np.pi * (100 + 200 * time) * time)
    yield "hum", sum(0.1 / k * np.sin(2 * np.pi * 50 * k * time) for k in range(1, 8))
    yield "clicks", np.where(np.arange(n) % 12_000 == 0, 0.9, 0.0)
    yield (
        "dialling",
        0.2 * sum(np.sin(2 * np.pi * f * time) for f in (697, 1336)) * (time % 0.4 < 0.2),
    )


@pytest.mark.parametrize(
    "samples", [pytest.param(samples, id=name) for name, samples in nothings()]
)
def test_sounds_without_speech_give_no_words(transcriber: Transcriber, samples: Samples) -> None:
    events = listen(transcriber, samples.astype(np.float32))
    assert text_of(events) == ""
    assert not [e for e in events if isinstance(e, PartialText) and e.text]


def test_words_after_noise_are_recognized(transcriber: Transcriber, talk: Samples) -> None:
    noise = dict(nothings())["pink noise 0.02"].astype(np.float32)
    events = listen(transcriber, np.concatenate([noise, talk]))
    assert len(text_of(events).split()) >= 10
    first = next(event for event in events if isinstance(event, CommittedText))
    assert first.start > NOTHING_S - 1


def test_committed_words_have_times_and_probabilities(
    transcriber: Transcriber, talk: Samples
) -> None:
    committed = [e for e in listen(transcriber, talk) if isinstance(e, CommittedText)]
    words = [word for event in committed for word in event.words]
    assert "".join(word.word for word in words) == "".join(event.text for event in committed)
    for event in committed:
        assert all(event.start <= word.start <= word.end <= event.end for word in event.words)
    ends = [word.end for word in words]
    assert ends == sorted(ends)
    assert all(0 < word.probability <= 1 for word in words)
    assert min(word.probability for word in words) < 1


def test_the_rest_of_a_word_is_a_word_of_its_own(transcriber: Transcriber) -> None:
    """Its beginning was final before the rest was heard."""
    live = LiveTranscriber(transcriber)
    tokens = transcriber.tokenizer.encode(" Christoffel")
    assert len(tokens) > 1
    buffer = LiveBuffer(0, np.zeros(32_000, np.float32), decoded_samples=32_000)
    events: list[LiveEvent] = []
    for count in (1, len(tokens)):
        buffer.set_hypothesis(tokens[:count], [1.0] * count, [0.9] * count)
        events += live._commit(buffer, 1)
    committed = [event for event in events if isinstance(event, CommittedText)]
    assert "".join(event.text for event in committed) == " Christoffel"
    assert ["".join(word.word for word in event.words) for event in committed] == [
        event.text for event in committed
    ]


@pytest.mark.parametrize("committed_s", [1.0, 3.9, 3.97, 3.99, 4.0])
def test_a_full_buffer_is_cut_after_its_committed_text(committed_s: float) -> None:
    noise = np.random.default_rng(0).standard_normal(5 * SAMPLE_RATE).astype(np.float32)
    buffer = LiveBuffer(0, noise, committed=[1], token_times=[committed_s])
    rest = buffer.split(4 * SAMPLE_RATE)
    assert max(2.0, committed_s) <= len(buffer.samples) / SAMPLE_RATE <= 4.0
    assert np.array_equal(np.concatenate([buffer.samples, rest.samples]), noise)


def test_token_times_lie_within_the_audio(transcriber: Transcriber, talk: Samples) -> None:
    """Not where attention falls into the silence behind it, which fills the window."""
    seconds = 2.0
    mel, _ = FileFeatures(talk[: int(seconds * SAMPLE_RATE)], 80, 1000).window(0)
    decoder = transcriber.window_decoder("en", LiveOptions().transcribe)
    encoded = transcriber.model.encode([mel])[0]
    for heard_s in (seconds, 0.5):
        times = decoder.redecode(encoded, (), (), (), 50, heard_s).times
        assert times
        assert max(times) <= heard_s


def test_hotwords_and_the_prompt_are_given_to_every_update(
    transcriber: Transcriber, talk: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = []
    make = WindowDecoder.prompt

    def note(self: WindowDecoder, *given: Any) -> tuple[int, ...]:
        prompts.append(make(self, *given))
        return prompts[-1]

    monkeypatch.setattr(WindowDecoder, "prompt", note)
    texts = TranscribeOptions(hotwords="New garden", initial_prompt="A talk.")
    listen(transcriber, talk[: 4 * SAMPLE_RATE], options=LiveOptions(transcribe=texts))
    encode = transcriber.tokenizer.encode
    expected = (*encode(" New garden"), *encode(" A talk."))
    assert len(prompts) > 2
    assert {prompt[1 : 1 + len(expected)] for prompt in prompts} == {expected}
