"""The rows of the matrix: forty utterances each, changed as recordings are in daily use."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from pipelines import SAMPLE_RATE, load_audio
from pipelines.asr import Samples
from tests.fixtures.people import Recording, joined, read_people

__all__ = ["ROWS", "Utterance", "in_a_room", "read_utterances", "row_sounds"]

_SEEDS = 5
_HOUR_S = 3600
_QUIETEST_DB = 30.0  # below the peak: where the speech of an utterance begins and ends
# (recording, first second, last second, what is said); 0, None and None: all of it. Cut at pauses.
_CUTS: tuple[tuple[str, float, float | None, str | None], ...] = (
    ("LJ001-0001", 0, None, None),
    ("LJ001-0001", 0, 2.89, "Printing, in the only sense with which we are"),
    ("LJ001-0001", 2.89, 6.1, "at present concerned, differs from most if not"),
    ("LJ001-0001", 6.1, None, "from all the arts and crafts represented in the Exhibition"),
    ("LJ001-0002", 0, None, None),
    ("LJ001-0003", 0, None, None),
    ("LJ001-0003", 0, 2.33, "For although the Chinese took impressions from"),
    ("LJ001-0003", 2.33, 4.99, "wood blocks engraved in relief"),
    ("LJ001-0003", 4.99, 8.14, "for centuries before the woodcutters of the Netherlands, by"),
    ("LJ001-0003", 8.14, None, "a similar process"),
    ("LJ001-0004", 0, None, None),
    ("LJ001-0004", 0, 1.68, "produced the block books,"),
    ("LJ001-0004", 1.68, 4.23, "which were the immediate predecessors of the true"),
    ("LJ001-0005", 0, None, None),
    ("LJ001-0005", 0, 4.04, "the invention of movable metal letters in the middle of the "
     "fifteenth century"),
    ("LJ001-0005", 4.04, 5.98, "may justly be considered"),
    ("LJ001-0005", 5.98, None, "as the invention of the art of printing."),
    ("jfk", 0, None, None),
    ("jfk", 0, 2.32, "And so, my fellow Americans,"),
    ("jfk", 2.32, 7.62, "ask not what your country can do for you,"),
    ("jfk", 0, 7.62, "And so, my fellow Americans, ask not what your country can do for you,"),
    ("jfk", 7.62, None, "ask what you can do for your country."),
    ("6930-75918-0000", 0, None, None),
    ("7902-96591-0000", 0, None, None),
    ("sonnet1", 5.74, 9.05, "That thereby beauty's rose might never die,"),
    ("sonnet1", 9.05, 14.7, "But as the riper should by time decease, His tender heir might bear "
     "his memory:"),
    ("sonnet1", 22.67, 27.49, "Making a famine where abundance lies, Thy self thy foe,"),
    ("sonnet1", 27.49, 31.06, "to thy sweet self too cruel:"),
    ("sonnet1", 31.06, 36.69, "Thou that art now the world's fresh ornament, And only herald to "
     "the gaudy spring,"),
    ("sonnet1", 36.69, 40.52, "Within thine own bud buriest thy content,"),
    ("sonnet1", 40.52, 45.99, "And tender churl mak'st waste in niggarding: Pity the world,"),
    ("sonnet1", 45.99, 48.31, "or else this glutton be,"),
    ("sonnet1", 50.37, None, "the grave and thee."),
    ("sonnet2", 0, 6.05, "II When forty winters shall besiege thy brow,"),
    ("sonnet2", 6.05, 9.54, "And dig deep trenches in thy beauty's field,"),
    ("sonnet2", 9.54, 13.15, "Thy youth's proud livery so gazed on now,"),
    ("sonnet2", 13.15, 16.88, "Will be a tatter'd weed of small worth held:"),
    ("sonnet2", 27.88, 30.26, "and thriftless praise."),
    ("sonnet2", 45.61, 49.16, "This were to be new made when thou art old,"),
    ("sonnet2", 49.16, None, "And see thy blood warm when thou feel'st it cold."),
)  # fmt: skip

Change = Callable[[Samples, int], Samples]
"""Changes an utterance, given its number in the row, which is the seed of what is random."""


@dataclass(frozen=True, eq=False)
class Utterance:
    """An utterance of a row.

    Attributes:
        number: In the row, from 0.
        recording: Its sound and what is said.
    """

    number: int
    recording: Recording


def read_utterances(data: Path) -> list[Recording]:
    """Read the forty utterances.

    Args:
        data: The folder with speech/ and speech-real/.
    """
    people = read_people(data)
    found = []
    for name, start_s, end_s, text in _CUTS:
        whole = people[name]
        end = len(whole.samples) if end_s is None else round(end_s * SAMPLE_RATE)
        samples = whole.samples[round(start_s * SAMPLE_RATE) : end]
        found.append(Recording(samples, text or whole.text))
    return found


def row_sounds(
    name: str, utterances: Sequence[Recording], numbers: Sequence[int]
) -> list[Utterance]:
    """Return utterances of a row.

    Args:
        name: Of the row, in ROWS.
        utterances: Those of `read_utterances`.
        numbers: Which of them. The hour is one of all, whatever the numbers.
    """
    if name == "hour":
        seconds = sum(len(each.samples) / SAMPLE_RATE + 0.4 for each in utterances)
        return [Utterance(0, joined([*utterances] * round(_HOUR_S / seconds)))]
    change, times = ROWS[name]
    return [
        Utterance(
            number,
            Recording(
                change(utterances[number].samples, number),
                " ".join([utterances[number].text] * times),
            ),
        )
        for number in numbers
    ]


def _random(number: int) -> np.random.Generator:
    return np.random.default_rng(number % _SEEDS)


def _clean(samples: Samples, number: int) -> Samples:
    return samples


def at_peak(peak_db: float) -> Change:
    """Return a change of the level, so that the loudest of the 16-bit samples has `peak_db`."""

    def change(samples: Samples, number: int) -> Samples:
        scaled = samples * (10 ** (peak_db / 20) / np.abs(samples).max())
        return (np.round(scaled * 32768) / 32768).astype(np.float32)

    return change


def _coded(container: str, codec: str, rate: int) -> Change:
    """Return a change by a codec, as a file that is read again."""

    def change(samples: Samples, number: int) -> Samples:
        file = io.BytesIO()
        with av.open(file, "w", format=container) as output:
            stream = output.add_stream(codec, rate=rate, layout="mono")
            resampler = av.AudioResampler(stream.format, "mono", rate)
            frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
            frame.sample_rate = SAMPLE_RATE
            fifo = av.AudioFifo()
            for part in [*resampler.resample(frame), *resampler.resample(None)]:
                part.pts = None
                fifo.write(part)
            size = stream.codec_context.frame_size or 1024
            while (part := fifo.read(size) or fifo.read()) is not None:
                output.mux(stream.encode(part))
            output.mux(stream.encode(None))
        file.seek(0)
        return load_audio(file)

    return change


def _noisy(ratio_db: float) -> Change:
    """Return a change by white noise, so many dB below the speech."""

    def change(samples: Samples, number: int) -> Samples:
        noise = _random(number).normal(size=len(samples)).astype(np.float32)
        level = np.sqrt(np.mean(np.square(samples))) * 10 ** (-ratio_db / 20)
        return np.clip(samples + level * noise, -1, 1).astype(np.float32)

    return change


def _reverberant(samples: Samples, number: int) -> Samples:
    """Return the sound of a room: 0.8 s until the echo is 60 dB down."""
    seconds = 0.8
    wet = _echoing(samples, _random(number), seconds, echo_db=0)
    wet = wet[: len(samples) + round(seconds * SAMPLE_RATE) // 2]
    return (wet * (np.abs(samples).max() / np.abs(wet).max())).astype(np.float32)


def in_a_room(
    samples: Samples, seed: int, *, seconds: float, echo_db: float, noise_db: float, peak: float
) -> Samples:
    """Return what a microphone hears at the far end of a room, as long as the samples.

    Args:
        samples: What is said.
        seed: Of the echo and the noise.
        seconds: Until the echo is 60 dB down.
        echo_db: By how much it is louder than what comes directly.
        noise_db: By how much white noise is softer than both.
        peak: The loudest sample of the result.
    """
    random = np.random.default_rng(seed)
    wet = _echoing(samples, random, seconds, echo_db)[: len(samples)]
    level = np.sqrt(np.mean(np.square(wet))) * 10 ** (-noise_db / 20)
    wet = wet + level * random.normal(size=len(wet))
    heard: Samples = (wet * (peak / np.abs(wet).max())).astype(np.float32)
    return heard


def _echoing(
    samples: Samples, random: np.random.Generator, seconds: float, echo_db: float
) -> NDArray[np.float64]:
    """Return samples with an echo, as in `in_a_room`, and what follows them."""
    count = round(seconds * SAMPLE_RATE)
    echo = random.normal(size=count) * 10 ** (-3 * np.arange(count) / count)
    echo *= 10 ** (echo_db / 20) / np.sqrt(np.sum(echo**2))
    echo[0] = 1.0
    size = 1 << (len(samples) + count - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(echo, size))


def _three_times(samples: Samples, number: int) -> Samples:
    pause = np.zeros(round((0.0, 0.4, 1.0)[number % 3] * SAMPLE_RATE), np.float32)
    return np.concatenate([samples, pause, samples, pause, samples])


def _cut(samples: Samples, number: int) -> Samples:
    """Return the utterance from the first sound of speech to the last one."""
    spoken = np.flatnonzero(np.abs(samples) > np.abs(samples).max() * 10 ** (-_QUIETEST_DB / 20))
    return samples[spoken[0] : spoken[-1] + 1]


def _then_noise(samples: Samples, number: int) -> Samples:
    noise = _random(number).normal(size=3 * SAMPLE_RATE) * (0.02, 0.003)[number % 2]
    return np.concatenate([samples, noise.astype(np.float32)])


# Name → what changes an utterance, and how often it is said then.
ROWS: dict[str, tuple[Change, int]] = {
    "clean": (_clean, 1),
    "peak -16 dB": (at_peak(-16), 1),
    "peak -26 dB": (at_peak(-26), 1),
    "peak -36 dB": (at_peak(-36), 1),
    "peak -50 dB": (at_peak(-50), 1),
    "telephone": (_coded("wav", "pcm_mulaw", 8000), 1),
    "AAC": (_coded("mp4", "aac", 16000), 1),
    "noise 10 dB": (_noisy(10), 1),
    "noise 0 dB": (_noisy(0), 1),
    "reverberation": (_reverberant, 1),
    "three times": (_three_times, 3),
    "cut at speech": (_cut, 1),
    "then noise": (_then_noise, 1),
    "hour": (_clean, 1),
}
