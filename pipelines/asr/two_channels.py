"""Recordings with a speaker on each of two channels: both are recognized and merged by time."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import count, groupby
from typing import Any, Protocol, cast

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.channels import separate_unlike
from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import HOP
from pipelines.asr.results import (
    Checkpoint,
    LeftOut,
    Segment,
    SegmentDone,
    TranscriptEvent,
    TranscriptionInfo,
)

_MAX_PAIR = 30 * SAMPLE_RATE  # samples of a section with two channels
_SAME_TEXT = 0.8  # similarity of two texts from which on they are one sentence
_SAME_TIME_S = 1.0  # by which the times of one sentence may differ between channels

Events = Generator[TranscriptEvent, None, None]


class Transcribe(Protocol):
    """Recognizes a part of a recording."""

    def __call__(
        self, audio: Any, resume_from: Checkpoint | None, checkpoints: bool, begins: bool
    ) -> Events:
        """Return the events of samples [n], or of what a section with one channel has as `sound`;
        `begins` for the section that a recording begins with."""
        ...


@dataclass(eq=False)
class OneChannel:
    """The sound of a section with one channel, read once: blocks [n] at 16 kHz.

    Attributes:
        blocks: Its sound.
        duration_s: Seconds of the whole recording, or None.
        length: Samples that were read so far.
    """

    blocks: Iterable[Samples]
    duration_s: float | None = None
    length: int = 0

    def __iter__(self) -> Iterator[Samples]:
        for block in self.blocks:
            self.length += len(block)
            yield block


@dataclass(frozen=True, eq=False)
class RecordingSection:
    """A part of a recording that is recognized by itself.

    Attributes:
        number: From 0.
        start: Samples of the recording before it.
        sound: Two unlike channels [n, 2]; or one channel, in the form that the recognizer takes.
        whole: Its sound goes to its end. False: other chunks of it may follow elsewhere.
    """

    number: int
    start: int
    sound: Any
    whole: bool = True

    @property
    def length(self) -> int:
        """Samples of a whole section, as far as it was read."""
        return self.sound.length if isinstance(self.sound, OneChannel) else len(self.sound)


def judged_blocks(audio: AudioSource) -> tuple[AudioSource, Iterable[Samples] | None]:
    """Return a recording, and its blocks if two of its channels may be unlike.

    Those of an AudioFile are judged as it is decoded. Blocks of other origin are mixed.

    Raises:
        AudioError: There is no audio to decode.
    """
    if is_stream(audio):
        judged = hasattr(audio, "duration_s")
        return audio, cast("Iterable[Samples]", audio) if judged else None
    samples = load_audio(audio, keep_unlike=True)
    return samples, None if samples.ndim == 1 else separate_unlike([samples])


def sections_of(
    blocks: Iterable[Samples], duration_s: float | None = None
) -> Iterator[RecordingSection]:
    """Divide a recording into parts with one channel and parts with two.

    Yields:
        Sections with one channel, `OneChannel`, to be read before the next section is requested,
        or with two of at most some 30 s.
    """
    start = 0
    for number, sound in enumerate(_sounds(blocks, duration_s)):
        section = RecordingSection(number, start, sound)
        yield section
        if isinstance(sound, OneChannel):
            for _ in sound:
                pass  # what was not read
        start += section.length


def _sounds(blocks: Iterable[Samples], duration_s: float | None) -> Iterator[OneChannel | Samples]:
    for channels, group in groupby(blocks, key=lambda block: block.ndim):
        if channels == 1:
            yield OneChannel(group, duration_s)
            continue
        pending: list[Samples] = []
        for block in group:
            if pending and sum(map(len, pending)) + len(block) > _MAX_PAIR:
                yield np.concatenate(pending)
                pending = []
            pending.append(block)
        yield np.concatenate(pending)


def sections_of_parts(
    samples: Samples, parts: Iterable[tuple[int, int | None]]
) -> Iterator[RecordingSection]:
    """Return the sections of parts of a recording with two channels [n, 2], which may be
    in any order."""
    numbers = count()
    for start, end in parts:
        for section in sections_of(separate_unlike([samples[start:end]])):
            yield replace(section, number=next(numbers), start=start + section.start)


def transcribe_sections(
    transcribe: Transcribe,
    sections: Iterable[RecordingSection],
    duration_s: float | None,
    resume_from: Checkpoint | None,
    checkpoints: bool,
) -> Events:
    """Return the events of a recording, in the order of time."""
    done = Checkpoint(0) if resume_from is None else resume_from
    begun = resume_from is not None
    left_out_s = 0.0
    informed = resume_from is not None
    if resume_from is not None:
        yield TranscriptionInfo(resume_from.language, None, duration_s)
    for section in sections:
        number, sound = section.number, section.sound
        if number < done.section:
            continue
        start, begins = done if begun else None, number == 0
        if isinstance(sound, np.ndarray):
            events = _both_channels(transcribe, sound, start, begins=begins)
        else:
            events = transcribe(sound, start, checkpoints, begins)
        with closing(events):
            for event in events:
                if isinstance(event, TranscriptionInfo):
                    done, begun = replace(done, language=event.language), True
                    if informed:
                        continue
                    informed = True
                    event = replace(event, duration=duration_s, duration_after_vad=None)
                elif isinstance(event, SegmentDone):
                    event = SegmentDone(_shifted(event.segment, section.start))
                    done = replace(done, segments=event.segment.id + 1)
                elif isinstance(event, Checkpoint):
                    event = replace(event, section=number)
                elif isinstance(event, LeftOut):
                    left_out_s += event.seconds
                    continue
                yield event
        done = Checkpoint(done.segments, language=done.language, section=number + 1)
        if checkpoints and section.whole:
            yield done
    if left_out_s:
        yield LeftOut(left_out_s, (section.start + section.length) / SAMPLE_RATE)


def _both_channels(
    transcribe: Transcribe, pair: Samples, start: Checkpoint | None, *, begins: bool
) -> Events:
    """Return the events of two channels [n, 2]: the segments of both, merged by time."""
    # The louder one first: the language is detected there.
    order = np.argsort(-np.sum(np.square(pair, dtype=np.float64), axis=0))
    language = None if start is None else start.language
    tracks: list[list[Segment]] = []
    for channel in order:
        segments: list[Segment] = []
        inner = None if language is None else Checkpoint(0, language=language)
        samples = np.ascontiguousarray(pair[:, channel])
        with closing(transcribe(samples, inner, False, begins)) as events:
            for event in events:
                if isinstance(event, TranscriptionInfo):
                    if not tracks:
                        yield event
                    language = event.language
                elif isinstance(event, SegmentDone):
                    segments.append(event.segment)
        tracks.append(segments)
        begins = False
    first, second = tracks
    count = 0 if start is None else start.segments
    for number, segment in enumerate(_merged(first, second), start=count):
        yield SegmentDone(replace(segment, id=number))


def _merged(first: list[Segment], second: list[Segment]) -> list[Segment]:
    """Return the segments of two channels by time. A sentence in both is written once."""
    kept = list(first)
    for segment in second:
        twin = next((i for i, other in enumerate(kept) if _is_same(other, segment)), None)
        if twin is None:
            kept.append(segment)
        elif segment.avg_logprob > kept[twin].avg_logprob:
            kept[twin] = segment
    return sorted(kept, key=lambda segment: segment.start)


def _is_same(one: Segment, other: Segment) -> bool:
    """Return whether two segments are one sentence that both channels hold."""
    apart_s = max(one.start, other.start) - min(one.end, other.end)
    if apart_s > _SAME_TIME_S:
        return False
    ours, theirs = (_plain(segment.text) for segment in (one, other))
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio() >= _SAME_TEXT


def _plain(text: str) -> str:
    """Return a text in lower case without punctuation and spaces."""
    return "".join(filter(str.isalnum, text.lower()))


def _shifted(segment: Segment, samples: int) -> Segment:
    """Return a segment as of a recording that begins so many samples earlier."""
    if not samples:
        return segment
    seconds = samples / SAMPLE_RATE
    words = tuple(
        replace(word, start=word.start + seconds, end=word.end + seconds) for word in segment.words
    )
    return replace(
        segment,
        seek=segment.seek + samples // HOP,
        start=segment.start + seconds,
        end=segment.end + seconds,
        words=words,
    )
