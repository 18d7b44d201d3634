"""Training examples: windows of audio put together from single utterances, and what to write.

A window holds one or several sentences with pauses, or no speech at all. The target is what
Whisper's long-form algorithm needs: timestamps around each sentence, only a start time for a
sentence that the window's end cuts off, <|nospeech|> and an immediate end for no speech.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
import soxr
from augment import change_speed, noise, reverberate
from speak import DIGITS, RATE
from tokenizers import Tokenizer

WINDOW = 10 * RATE
HELD_OUT_SPEAKERS = ("theo", "lucas")
IGNORED = -100
POSITIONS = 192  # of the decoder; at most half of them hold the prompt


@dataclass
class Example:
    """samples: float32. inputs, labels: decoder tokens. text: for CTC and scoring."""

    samples: np.ndarray
    inputs: list[int]
    labels: list[int]
    text: str
    pad_mel_from: int | None = None  # samples after this become zeros of the mel, as in Whisper


class Utterances:
    """All spoken sentences of the shards that speak.py wrote: (samples, text, voice).

    What was packed as Opus is unpacked beside it once.
    """

    def __init__(self, paths: list[Path]) -> None:
        self.items: list[tuple[np.ndarray, str, str]] = []
        for path in paths:
            if not path.with_suffix(".npy").exists():
                packed, _ = soundfile.read(path.with_suffix(".opus"), dtype="int16")
                np.save(path.with_suffix(".npy"), packed)
            samples = np.load(path.with_suffix(".npy"), mmap_mode="r")
            start = 0
            for text, voice, length in json.loads(path.with_suffix(".json").read_text()):
                self.items.append((samples[start : start + length], text, voice))
                start += length


def is_plain(item: tuple[np.ndarray, str, str]) -> bool:
    """A short sentence by flite or by one of espeak-ng's ordinary variants."""
    samples, _, voice = item
    variant = voice.partition("+")[2]
    return len(samples) < 3 * RATE and (not variant or variant[1:].isdigit())


Spoken = dict[str, dict[int, list[np.ndarray]]]  # speaker → digit → recordings


class Digits:
    """Recordings of single digits, joined into strings."""

    def __init__(self, spoken: Spoken) -> None:
        self._spoken = spoken

    @classmethod
    def of_people(cls, tar: Path, speakers: tuple[str, ...], held_out: bool) -> Digits:
        """Those of the Free Spoken Digit Dataset: `speakers`, or all the others."""
        spoken: Spoken = {}
        with tarfile.open(tar) as archive:
            for member in archive:
                if not member.name.endswith((".flac", ".wav")):
                    continue
                digit, speaker, _ = Path(member.name).stem.split("_")
                if (speaker in speakers) != held_out:
                    continue
                file = archive.extractfile(member)
                assert file is not None
                samples, rate = soundfile.read(io.BytesIO(file.read()), dtype="float32")
                samples = soxr.resample(samples, rate, RATE)
                samples = samples * (0.7 / max(1e-3, float(np.abs(samples).max())))
                spoken.setdefault(speaker, {}).setdefault(int(digit), []).append(samples)
        return cls(spoken)

    @classmethod
    def of_voices(cls, utterances: Utterances) -> Digits:
        """Those that speak.py --counting wrote, by the voices that said all ten."""
        spoken: Spoken = {}
        for samples, text, voice in utterances.items:
            digit = DIGITS.index(text.rstrip(".").lower())
            said = spoken.setdefault(voice, {}).setdefault(digit, [])
            said.append(samples.astype(np.float32) / 32768)
        return cls({voice: said for voice, said in spoken.items() if len(said) == len(DIGITS)})

    def string(
        self,
        r: random.Random,
        low: int,
        high: int,
        disguise: Callable[[np.ndarray], np.ndarray] = lambda samples: samples,
    ) -> tuple[np.ndarray, str]:
        """Samples of low to high digits by one speaker, each in `disguise`; and their words."""
        speaker = self._spoken[r.choice(sorted(self._spoken))]
        digits = [r.randrange(10) for _ in range(r.randint(low, high))]
        parts: list[np.ndarray] = []
        for digit in digits:
            parts += [disguise(r.choice(speaker[digit])), silence(r.uniform(0.03, 0.3))]
        text = " ".join(DIGITS[d] for d in digits).capitalize() + "."
        return np.concatenate(parts[:-1]), text


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE), np.float32)


@dataclass
class Tokens:
    """The ids that targets are written with."""

    tokenizer: Tokenizer
    eot: int = field(init=False)

    def __post_init__(self) -> None:
        self.eot = self("<|endoftext|>")
        self.sot = self("<|startoftranscript|>")
        self.previous = self("<|startofprev|>")
        self.no_speech = self("<|nospeech|>")
        self.no_timestamps = self("<|notimestamps|>")
        self.zero = self("<|0.00|>")
        self.size = self.tokenizer.get_vocab_size()

    def __call__(self, token: str) -> int:
        return self.tokenizer.token_to_id(token)

    def text(self, text: str) -> list[int]:
        return self.tokenizer.encode(" " + text, add_special_tokens=False).ids

    def time(self, sample: int) -> int:
        return self.zero + min(round(sample / RATE / 0.02), WINDOW // 320)


class Composer:
    """Makes examples out of utterances. Every call draws anew."""

    def __init__(
        self, utterances: Utterances, digits: Sequence[Digits], tokens: Tokens, seed: int
    ) -> None:
        self.items, self.digits, self.tokens = utterances.items, digits, tokens
        # How often and how much speech is disguised, 0 to 1: little until the attention aligns.
        self.strength = 1.0
        # Only what is_plain, and nothing around it: the attention learns to align on that.
        self.plain = False
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)

    def speech(self, index: int | None) -> tuple[np.ndarray, str]:
        """One utterance (a random one without index), in a disguise of its own."""
        r = self.random
        if index is None and r.random() < 0.35:
            samples, text = r.choice(self.digits).string(r, 1, 7, self._recorded())
        else:
            raw, text, _ = self.items[r.randrange(len(self.items)) if index is None else index]
            samples = raw.astype(np.float32) / 32768
        if r.random() < 0.6 * self.strength:
            samples = change_speed(samples, r.uniform(0.85, 1.18))
        return samples * r.uniform(0.3, 1.4), text

    def _recorded(self) -> Callable[[np.ndarray], np.ndarray]:
        """What makes one speaker's digits sound cut from recordings: each at a speed of its own,
        most with a hiss that begins and ends with it, else the end of a clip is taken for a word.
        """
        r, speed = self.random, self.random.uniform(0.85, 1.15)
        hiss = 10 ** (-r.uniform(8, 40) / 20) if r.random() < 0.6 else 0.0
        color = r.choice(["white", "pink", "brown"])

        def recorded(samples: np.ndarray) -> np.ndarray:
            samples = change_speed(samples, speed * r.uniform(0.93, 1.07))
            if not hiss:
                return samples
            samples = np.pad(samples, [int(RATE * r.uniform(0, 0.1)) for _ in range(2)])
            level = hiss * float(np.sqrt(np.mean(samples**2)))
            return samples + noise(len(samples), color, self.numpy) * level

        return recorded

    def single(self, index: int | None, room: int | None = None) -> Example:
        """One sentence in a window that is little longer, or of `room` samples."""
        samples, text = self.speech(index)
        before = int(RATE * self.random.choice([0, 0.1, 0.3, 0.5, 1.0]) * self.random.random())
        samples = samples[: WINDOW - before - RATE // 10]
        after = int(RATE * self.random.uniform(0.1, 0.6))
        total = min(max(before + len(samples) + after, room or 0), WINDOW)
        return self._write(total, [(before, samples, text)], None)

    def several(self) -> Example:
        """Sentences one after the other until the window is full; the last one may be cut."""
        r, placed, cut = self.random, [], None
        at = int(RATE * r.choice([0.1, 0.5, 1.5, 4.0]) * r.random())
        while True:
            samples, text = self.speech(None)
            if placed and r.random() < 0.12:
                break
            if at + len(samples) > WINDOW - RATE // 20:
                if placed and at < WINDOW - RATE // 2 and r.random() < 0.7:
                    cut = (at, samples[: WINDOW - at], text)
                break
            placed.append((at, samples, text))
            # Longer than the pauses inside a string of digits, which sound alike to its end.
            least = 0.6 if text.rstrip(".").rpartition(" ")[2].lower() in DIGITS else 0.15
            at += len(samples) + int(RATE * r.uniform(least, 1.3))
        if not placed:
            return self.single(None, WINDOW)
        return self._write(WINDOW, placed, cut)

    def nothing(self) -> Example:
        """No speech: silence, noise, tones, clicks."""
        r, n = self.random, WINDOW if self.random.random() < 0.5 else RATE * 3
        time = np.arange(n, dtype=np.float32) / RATE
        kind = r.randrange(5)
        samples = np.zeros(n, np.float32)
        if kind == 1:
            samples = noise(n, r.choice(["white", "pink", "brown"]), self.numpy) * r.uniform(
                0.001, 0.3
            )
        elif kind == 2:
            for _ in range(r.randint(1, 4)):
                samples += np.sin(2 * np.pi * r.uniform(60, 5000) * time, dtype=np.float32) * 0.2
        elif kind == 3:
            samples = samples + noise(n, "white", self.numpy) * 0.2
            samples *= np.sin(2 * np.pi * r.uniform(0.3, 6) * time) > r.uniform(-0.5, 0.9)
        elif kind == 4:
            samples[self.numpy.integers(0, n, r.randint(1, 30))] = r.uniform(-1, 1)
        t = self.tokens
        # At the start token: no speech. After the first timestamp, which the grammar forces: end.
        return Example(samples.astype(np.float32), [t.sot, t.zero], [t.no_speech, t.eot], "")

    def _write(
        self,
        total: int,
        placed: list[tuple[int, np.ndarray, str]],
        cut: tuple[int, np.ndarray, str] | None,
    ) -> Example:
        r, t = self.random, self.tokens
        samples = np.zeros(total, np.float32)
        for at, part, _ in [*placed, *([cut] if cut else [])]:
            samples[at : at + len(part)] += part[: total - at]
        target: list[int] = []
        if r.random() < 0.85:
            for at, part, text in placed:
                target += [t.time(at), *t.text(text), t.time(at + len(part))]
            if cut:
                target.append(t.time(cut[0]))
        else:
            target.append(t.no_timestamps)
            for _, _, text in placed:
                target += t.text(text)
        end = placed[-1][0] + len(placed[-1][1])
        if cut is None and not self.plain and r.random() < 0.5:
            pad_from = min(total, end + int(RATE * 0.3 * r.random()))
        else:
            pad_from = None
        prompt = [] if self.plain or r.random() < 0.6 else self._previous(len(target))
        inputs = [*prompt, t.sot, *target]
        labels = [*[IGNORED] * len(prompt), *target, t.eot]
        written = " ".join(text for _, _, text in placed)
        return Example(self._disturb(samples), inputs, labels, written, pad_from)

    def _previous(self, following: int) -> list[int]:
        """The prompt of a later window: earlier text, mostly with its timestamps, as long-form
        decoding puts it there, and as much of it as fits before `following` tokens."""
        r, t = self.random, self.tokens
        timed, at, prompt = r.random() < 0.75, 0, list[int]()
        for _ in range(r.randint(1, 8)):
            text = t.text(r.choice(self.items)[1])
            if timed:
                start = r.randint(10, 50) + (at if at < 400 else 0)
                at = min(start + 9 * len(text), WINDOW // 320)
                text = [t.zero + start, *text, t.zero + at]
            prompt += text
        room = min(POSITIONS // 2 - 1, POSITIONS - 2 - following)
        return [t.previous, *prompt[-room:]]

    def _disturb(self, samples: np.ndarray) -> np.ndarray:
        """A room, a background, a level."""
        r = self.random
        if r.random() < 0.25 * self.strength:
            samples = reverberate(samples, r.uniform(0.1, 0.6), r.uniform(0.1, 0.6), self.numpy)
        level = float(np.sqrt(np.mean(samples**2))) + 1e-6
        if r.random() < 0.7 * self.strength:
            color = r.choice(["white", "pink", "brown"])
            snr = r.uniform(30 - 27 * self.strength, 40)
            samples = samples + noise(len(samples), color, self.numpy) * level * 10 ** (-snr / 20)
        return (samples * 10 ** r.uniform(-1.0, 0.3)).clip(-1, 1).astype(np.float32)
