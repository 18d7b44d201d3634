"""LiveTranscriber: independent of block sizes, committed text is final, no word is lost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.asr.audio.vad import VoiceActivity
from pipelines.asr.live.events import (
    CommittedText,
    PartialText,
    SpeechEnded,
    SpeechStarted,
    UpdateDecoded,
)
from pipelines.asr.live.transcriber import LiveTranscriber
from pipelines.asr.transcriber import Transcriber
from pipelines.errors import OptionError
from tests.asr.live.listening import OPTIONS, every, listen, sentence, text_of
from tests.asr.tones import ToneTranscriber, loudness, speak


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["agreement", "attention"])
def test_all_words_are_committed_in_order(policy: Any) -> None:
    samples, spoken = speak(sentence(80))
    events = listen(samples, every(800), replace(OPTIONS, policy=policy))
    assert text_of(events) == "".join(s.word for s in spoken)
    commits = [e for e in events if isinstance(e, CommittedText)]
    assert len(commits) > 20, "words come while they are spoken"
    assert all(a.end <= b.start for a, b in zip(commits, commits[1:], strict=False))
    assert all(c.start <= c.end for c in commits)


@pytest.mark.slow
def test_words_come_soon_after_they_were_spoken() -> None:
    samples, spoken = speak(sentence(40))
    live = LiveTranscriber(
        cast(Transcriber, ToneTranscriber()), OPTIONS, VoiceActivity(OPTIONS.vad, loudness)
    )
    ends = [s.end for s in spoken]
    lags, said = [], 0
    for at in range(0, len(samples), 800):
        for event in live.feed(samples[at : at + 800]):
            if isinstance(event, CommittedText):
                for _ in event.text.split():
                    lags.append((at + 800) / 16_000 - ends[said])
                    said += 1
    assert np.median(lags) < 1.0
    assert max(lags) < 2.0


@pytest.mark.slow
@given(seed=st.integers(0, 50), sizes=st.lists(st.integers(200, 40_000), min_size=1, max_size=30))
@settings(max_examples=8)
def test_jitter_and_bursts_give_the_same_text(seed: int, sizes: list[int]) -> None:
    samples, spoken = speak(sentence(16, seed), seed)

    def uneven() -> Iterator[int]:
        while True:
            yield from sizes

    assert text_of(listen(samples, uneven())) == "".join(s.word for s in spoken)


@pytest.mark.slow
def test_single_samples() -> None:
    samples, spoken = speak(sentence(2))
    assert text_of(listen(samples, every(1))) == "".join(s.word for s in spoken)


def test_events_are_consistent() -> None:
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
        elif isinstance(event, PartialText):
            assert event.text != tail, "said once only"
            tail = event.text
        else:
            assert speaking
    assert not speaking


@pytest.mark.slow
def test_speech_without_a_pause_is_cut_without_loss() -> None:
    samples, spoken = speak(sentence(120), pause_every=1000)
    words = text_of(listen(samples, every(1600))).split()
    truth = [s.word.strip() for s in spoken]
    # A word may fall victim to each of the few cuts, but nothing is said twice.
    assert words == truth


@pytest.mark.slow
def test_an_hour_costs_the_same_a_second_as_a_minute() -> None:
    samples, spoken = speak(sentence(60))
    minute = len(samples)
    recognizer = ToneTranscriber()
    options = replace(OPTIONS, min_chunk_s=1.0, context_tokens=64)
    live = LiveTranscriber(
        cast(Transcriber, recognizer), options, VoiceActivity(options.vad, loudness)
    )
    costs, sizes, words = [], [], 0
    tracemalloc.start()
    for _ in range(8):
        before = recognizer.heard_s
        for at in range(0, minute, 8000):
            for event in live.feed(samples[at : at + 8000]):
                words += len(event.text.split()) if isinstance(event, CommittedText) else 0
        costs.append(recognizer.heard_s - before)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    live.finish()
    assert words >= 8 * len(spoken) - 2
    assert max(costs) < 1.2 * min(costs)
    assert sizes[-1] < sizes[1] + 500_000
    assert recognizer.longest_context == 64


@pytest.mark.slow
def test_drafts_are_the_last_hypothesis() -> None:
    samples, _ = speak(sentence(40))
    costs = [e for e in listen(samples, every(1600)) if isinstance(e, UpdateDecoded)]
    assert sum(c.accepted for c in costs) > 0.7 * sum(c.drafted for c in costs)
    without = listen(samples, every(1600), replace(OPTIONS, drafts=False))
    assert all(c.drafted == 0 for c in without if isinstance(c, UpdateDecoded))


@pytest.mark.parametrize("priority", [0, 1])
def test_the_priority_of_the_options_reaches_the_decoder(priority: int) -> None:
    priorities: set[int] = set()

    class Noting(ToneTranscriber):
        def redecode(self, *args: Any, priority: int = 2) -> Any:
            priorities.add(priority)
            return super().redecode(*args)

    samples, _ = speak(sentence(6))
    assert OPTIONS.priority == 0
    listen(samples, every(1600), replace(OPTIONS, priority=priority), Noting())
    assert priorities == {priority}


@pytest.mark.slow
def test_the_initial_prompt_is_always_given() -> None:
    class Noting(ToneTranscriber):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[tuple[int, ...]] = set()

        def redecode(self, encoded: Any, previous: Any, *rest: Any, priority: int = 0) -> Any:
            self.seen.add(tuple(previous))
            return super().redecode(encoded, previous, *rest)

    samples, _ = speak(sentence(30))
    prompt = replace(OPTIONS.transcribe, initial_prompt="be do")
    recognizer = Noting()
    listen(samples, every(1600), replace(OPTIONS, transcribe=prompt), recognizer)
    assert recognizer.seen == {(1, 7)}
    reminded = Noting()
    options = replace(OPTIONS, transcribe=prompt, context_tokens=4)
    listen(samples, every(1600), options, reminded)
    assert {seen[:2] for seen in reminded.seen} == {(1, 7)}
    assert max(map(len, reminded.seen)) == 6


def test_stop_loses_no_word() -> None:
    samples, spoken = speak(sentence(9), pause_every=1000)
    stop = int(spoken[6].end * 16_000) + 800
    assert text_of(listen(samples[:stop], every(1600))) == "".join(s.word for s in spoken[:7])


def test_options_are_checked() -> None:
    for wrong in (
        {"min_chunk_s": 0},
        {"policy": "hope"},
        {"attention_margin_s": -1},
        {"context_tokens": -1},
    ):
        with pytest.raises(OptionError):
            replace(OPTIONS, **cast(Any, wrong))
