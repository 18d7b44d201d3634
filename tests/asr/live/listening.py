"""Runs live recognition on the tone language of tests.asr.tones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from pipelines.asr.audio.arrays import Samples
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.asr.live.events import CommittedText, LiveEvent
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from pipelines.asr.transcriber import Transcriber
from tests.asr.tones import WORDS, ToneTranscriber, loudness

OPTIONS = LiveOptions(min_chunk_s=0.3)


def listen(
    samples: Samples,
    blocks: Iterator[int],
    options: LiveOptions = OPTIONS,
    recognizer: ToneTranscriber | None = None,
) -> list[LiveEvent]:
    stub = cast(Transcriber, recognizer or ToneTranscriber())
    live = LiveTranscriber(stub, options, VoiceActivity(options.vad, loudness))
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
    return "".join(e.text for e in events if isinstance(e, CommittedText))


def sentence(count: int, seed: int = 1) -> list[int]:
    """Words, no two neighbours alike: a tone held on is one word."""
    r = np.random.default_rng(seed)
    found = [int(r.integers(len(WORDS)))]
    while len(found) < count:
        found.append(int((found[-1] + r.integers(1, len(WORDS))) % len(WORDS)))
    return found
