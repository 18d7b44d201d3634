"""The live core: whatever the blocks, the same text; what is committed stays; nothing is lost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.asr.arrays import Samples
from pipelines.asr.live import Committed, Decoded, LiveEvent, Partial, SpeechEnded, SpeechStarted
from pipelines.asr.streaming import LiveOptions, LiveTranscriber
from pipelines.asr.transcriber import Transcriber
from pipelines.asr.voice import VoiceActivity
from pipelines.errors import OptionError
from tests.asr.tones import WORDS, ToneTranscriber, loudness, speak

OPTIONS = LiveOptions(min_chunk_s=0.3)


def listen(
    samples: Samples,
    blocks: Iterator[int],
    options: LiveOptions = OPTIONS,
    recogniser: ToneTranscriber | None = None,
) -> list[LiveEvent]:
    stub = cast(Transcriber, recogniser or ToneTranscriber())
    live = LiveTranscriber(stub, options, VoiceActivity(options.voice, loudness))
    events: list[LiveEvent] = []
    at = 0
    while at < len(samples):
        size = next(blocks)
        events += live.feed(samples[at : at + size])
        at += size
    return events + live.finish()


def every(size: int) -> Iterator[int]:
    while True:
        yield size


def text_of(events: Sequence[LiveEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, Committed))


def sentence(count: int, seed: int = 1) -> list[int]:
    """Words, no two neighbours alike: a tone held on is one word."""
    r = np.random.default_rng(seed)
    found = [int(r.integers(len(WORDS)))]
    while len(found) < count:
        found.append(int((found[-1] + r.integers(1, len(WORDS))) % len(WORDS)))
    return found


@pytest.mark.parametrize("policy", ["agreement", "attention"])
def test_all_words_are_committed_in_order(policy: Any) -> None:
    samples, spoken = speak(sentence(80))
    events = listen(samples, every(800), replace(OPTIONS, policy=policy))
    assert text_of(events) == "".join(s.word for s in spoken)
    commits = [e for e in events if isinstance(e, Committed)]
    assert len(commits) > 20, "words come while they are spoken"
    assert all(a.end <= b.start for a, b in zip(commits, commits[1:], strict=False))
    assert all(c.start <= c.end for c in commits)


def test_words_come_soon_after_they_were_spoken() -> None:
    samples, spoken = speak(sentence(40))
    live = LiveTranscriber(
        cast(Transcriber, ToneTranscriber()), OPTIONS, VoiceActivity(OPTIONS.voice, loudness)
    )
    ends = [s.end for s in spoken]
    lags, said = [], 0
    for at in range(0, len(samples), 800):
        for event in live.feed(samples[at : at + 800]):
            if isinstance(event, Committed):
                for _ in event.text.split():
                    lags.append((at + 800) / 16_000 - ends[said])
                    said += 1
    assert np.median(lags) < 1.0
    assert max(lags) < 2.0


@given(seed=st.integers(0, 50), sizes=st.lists(st.integers(200, 40_000), min_size=1, max_size=30))
@settings(max_examples=8, deadline=None)
def test_jitter_and_bursts_give_the_same_text(seed: int, sizes: list[int]) -> None:
    samples, spoken = speak(sentence(16, seed), seed)

    def uneven() -> Iterator[int]:
        while True:
            yield from sizes

    assert text_of(listen(samples, uneven())) == "".join(s.word for s in spoken)


def test_single_samples() -> None:
    samples, spoken = speak(sentence(2))
    assert text_of(listen(samples, every(1))) == "".join(s.word for s in spoken)


def test_the_events_tell_a_consistent_story() -> None:
    samples, _ = speak(sentence(30))
    speaking, tail = False, ""
    for event in listen(samples, every(1600)):
        if isinstance(event, SpeechStarted):
            assert not speaking
            speaking = True
        elif isinstance(event, SpeechEnded):
            assert speaking
            assert tail == "", "nothing is left open at a pause"
            speaking = False
        elif isinstance(event, Partial):
            assert event.text != tail or event.text
            tail = event.text
        else:
            assert speaking
    assert not speaking


def test_speech_without_a_pause_is_cut_and_none_is_lost() -> None:
    samples, spoken = speak(sentence(120), pause_every=1000)
    words = text_of(listen(samples, every(1600))).split()
    truth = [s.word.strip() for s in spoken]
    # A word may fall victim to each of the few cuts, but nothing is said twice.
    assert words == truth


def test_an_hour_costs_the_same_a_second_as_a_minute() -> None:
    samples, spoken = speak(sentence(60))
    minute = len(samples)
    recogniser = ToneTranscriber()
    options = replace(OPTIONS, min_chunk_s=1.0)
    live = LiveTranscriber(
        cast(Transcriber, recogniser), options, VoiceActivity(options.voice, loudness)
    )
    costs, sizes, words = [], [], 0
    tracemalloc.start()
    for _ in range(8):
        before = recogniser.heard_s
        for at in range(0, minute, 8000):
            for event in live.feed(samples[at : at + 8000]):
                words += len(event.text.split()) if isinstance(event, Committed) else 0
        costs.append(recogniser.heard_s - before)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    live.finish()
    assert words >= 8 * len(spoken) - 2
    assert max(costs) < 1.2 * min(costs)
    assert sizes[-1] < sizes[1] + 500_000
    assert recogniser.longest_context <= 64


@pytest.mark.parametrize("kind", ["silence", "clicks"])
def test_no_speech_no_work(kind: str) -> None:
    samples = np.zeros(16_000 * 20, np.float32)
    if kind == "clicks":
        samples[:: 16_000 * 3] = 0.9
    recogniser = ToneTranscriber()
    events = listen(samples, every(1600), recogniser=recogniser)
    assert text_of(events) == ""
    assert recogniser.heard_s < 5
    if kind == "silence":
        assert events == []


def test_drafts_are_the_last_hypothesis() -> None:
    samples, _ = speak(sentence(40))
    costs = [e for e in listen(samples, every(1600)) if isinstance(e, Decoded)]
    assert sum(c.accepted for c in costs) > 0.7 * sum(c.drafted for c in costs)
    without = listen(samples, every(1600), replace(OPTIONS, drafts=False))
    assert all(c.drafted == 0 for c in without if isinstance(c, Decoded))


def test_stop_loses_no_word() -> None:
    samples, spoken = speak(sentence(9), pause_every=1000)
    stop = int(spoken[6].end * 16_000) + 800
    assert text_of(listen(samples[:stop], every(1600))) == "".join(s.word for s in spoken[:7])


def test_options_are_checked() -> None:
    for wrong in ({"min_chunk_s": 0}, {"policy": "hope"}, {"attention_margin_s": -1}):
        with pytest.raises(OptionError):
            replace(OPTIONS, **cast(Any, wrong))
