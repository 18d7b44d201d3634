"""Live captions of English read by people: errors, delays, and how much of the text changes.

    .venv/bin/python -m tests.benchmarks.live_english [--clips 7] [--fast]

Joins recordings of ../shared/data with pauses of 0.7 to 2 s in two orders, 359 s, with faint
noise under all of it. Blocks of 0.1 s are fed as fast as possible; times are those of the stream,
without computing, so that they repeat exactly. A word ends where the same model, offline, says that
it does.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from os.path import commonprefix  # of any sequences
from pathlib import Path

import numpy as np

from edgeapp.bench.word_lag import align, plain_words, word_errors
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    PartialText,
    TranscribeOptions,
    Transcriber,
    VadOptions,
    load_audio,
)
from pipelines.asr import Samples, SpeechEnded

DATA = Path(__file__).parents[3] / "shared" / "data"
MODEL = DATA.parent / "models" / "whisper-base"
BLOCK = SAMPLE_RATE // 10
NOISE_DB = -65.0
SENTENCE_END = re.compile(r"[.?!]+[\"'”’)]*(?=\s|$)")

_LICENCE = (
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this software "
    "and associated documentation files, to deal in the software without restriction, including "
    "without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, "
    "and or sell copies of the software, and to permit persons to whom the software is furnished "
    "to do so, subject to the following conditions: the above copyright notice and this permission "
    "notice shall be included in all copies or substantial portions of the software."
)
_LICENCE_S = 29.6  # the recording goes on in other languages
_OTHERS = {
    "6930-75918-0000.flac": "Concord returned to its place amidst the tents.",
    "7902-96591-0000.flac": "I am from the cutter lying off the coast.",
    "hotwords.mp3": "Then you go into your ComfyUI folder, again in the ComfyUI.",
}


@dataclass(frozen=True, eq=False)
class Clip:
    """A recording and its true text."""

    samples: Samples
    text: str


@dataclass(frozen=True, eq=False)
class Material:
    """Recordings one after the other.

    Attributes:
        samples: [n] at 16 kHz.
        text: the true text of all of it.
        ends: word and end (s) of each word that the model recognizes offline.
    """

    samples: Samples
    text: str
    ends: list[tuple[str, float]]


@dataclass
class Log:
    """What was shown of one session.

    Attributes:
        final: the final text.
        shown: time of the stream (s), final text and running text after each change.
        cpu_s: CPU seconds of this process for all of it.
    """

    final: str = ""
    shown: list[tuple[float, str, str]] = field(default_factory=list)
    cpu_s: float = 0.0


def clips() -> list[Clip]:
    """The recordings, in their first order."""
    speech, real = DATA / "speech", DATA / "speech-real"
    lines = (speech / "transcripts.txt").read_text(encoding="utf-8").splitlines()
    texts = dict(line.split("|", 1) for line in lines)
    found = [Clip(load_audio(speech / f"{name}.flac"), text) for name, text in texts.items()]
    licence = load_audio(real / "multilingual.mp3")[: int(_LICENCE_S * SAMPLE_RATE)]
    found.append(Clip(licence, _LICENCE))
    for number in (1, 2):
        poem = (real / f"sonnet{number}.txt").read_text(encoding="utf-8")
        body = " ".join(poem.splitlines()[1:])
        found.append(Clip(load_audio(real / f"sonnet{number}.mp3"), f"{number} {body}"))
    return [*found, *(Clip(load_audio(real / name), text) for name, text in _OTHERS.items())]


def material(transcriber: Transcriber, seed: int, count: int | None = None) -> Material:
    """All recordings, then all but the last poem in another order.

    Args:
        transcriber: Tells where words end.
        seed: Of the order, the pauses and the noise.
        count: Only so many recordings, the first ones. None: all.
    """
    random = np.random.default_rng(seed)
    own = clips()
    offline = [word_ends(transcriber, clip.samples) for clip in own]
    second = [i for i in random.permutation(len(own)) if not own[i].text.startswith("2 ")]
    order = [*range(len(own)), *second]
    parts: list[Samples] = [np.zeros(SAMPLE_RATE, np.float32)]
    at, words = SAMPLE_RATE, list[tuple[str, float]]()
    stops = list[int]()  # where each recording and the pause behind it end
    for index in order:
        words += [(word, at / SAMPLE_RATE + end) for word, end in offline[index]]
        pause = np.zeros(int(random.uniform(0.7, 2.0) * SAMPLE_RATE), np.float32)
        parts += [own[index].samples, pause]
        at += len(own[index].samples) + len(pause)
        stops.append(at)
    samples = np.concatenate([*parts, np.zeros(2 * SAMPLE_RATE, np.float32)])
    noise = random.standard_normal(len(samples)).astype(np.float32) * 10 ** (NOISE_DB / 20)
    chosen, stop = order[:count], len(samples) if count is None else stops[count - 1]
    text = " ".join(own[index].text for index in chosen)
    ends = [(word, end) for word, end in words if end < stop / SAMPLE_RATE]
    return Material((samples + noise)[:stop], text, ends)


def word_ends(transcriber: Transcriber, samples: Samples) -> list[tuple[str, float]]:
    """Each word that is recognized offline, and where it ends (s)."""
    options = TranscribeOptions(language="en", word_timestamps=True)
    return [
        (plain, word.end)
        for segment in transcriber.transcribe(samples, options)
        for word in segment.words or ()
        for plain in plain_words(word.word)
    ]


def listen(transcriber: Transcriber, samples: Samples, options: LiveOptions) -> Log:
    """Live captions of a recording."""
    session, log, tail = LiveTranscriber(transcriber, options), Log(), ""
    began = time.process_time()
    for at in range(0, len(samples) + BLOCK, BLOCK):
        block = samples[at : at + BLOCK]
        events = session.feed(block) if len(block) else session.finish()
        before = log.final, tail
        for event in events:
            if isinstance(event, CommittedText):
                log.final, tail = log.final + event.text, ""
            elif isinstance(event, PartialText):
                tail = event.text
            elif isinstance(event, SpeechEnded):
                tail = ""
        if (log.final, tail) != before:
            log.shown.append(((at + len(block)) / SAMPLE_RATE, log.final, tail))
    log.cpu_s = time.process_time() - began
    return log


def figures(own: Material, log: Log) -> dict[str, str]:
    """The row of a table: heading → value."""
    truth, final = plain_words(own.text), plain_words(log.final)
    errors = word_errors(truth, final)
    texts = [plain_words(said + tail) for _, said, tail in log.shown]
    finals = [len(plain_words(said)) for _, said, _ in log.shown]
    times = [at for at, _, _ in log.shown]
    shown, said = list[float](), list[float]()
    for i, j in align([word for word, _ in own.ends], final):
        if i is None or j is None or own.ends[i][0] != final[j]:
            continue
        end = own.ends[i][1]
        shown.append(
            next(at for at, text in zip(times, texts, strict=True) if text[j : j + 1] == [final[j]])
            - end
        )
        said.append(next(at for at, count in zip(times, finals, strict=True) if j < count) - end)
    taken = [len(old) - len(commonprefix([old, new])) for old, new in pairwise([[], *texts])]
    marked = [(said + tail).split() for _, said, tail in log.shown]
    marked_taken = [
        len(old) - len(commonprefix([old, new])) for old, new in pairwise([[], *marked])
    ]
    stops = [(len(text), text[-1]) for text in marked if text and SENTENCE_END.search(text[-1])]
    words = log.final.split()
    false = sum(words[count - 1 : count] != [last] for count, last in stops)
    seconds = len(own.samples) / SAMPLE_RATE
    return {
        "word errors": f"{100 * errors / len(truth):.1f} %",
        "shown, median / 90 % / max": quantiles(shown),
        "final, median / 90 % / max": quantiles(said),
        "taken back per final word (with marks)": f"{sum(taken) / len(final):.2f} "
        f"({sum(marked_taken) / len(final):.2f})",
        "changes that take back": f"{sum(map(bool, taken))} of {len(taken)}",
        "false stops": f"{false} of {len(stops)}",
        "sentence ends (truth)": f"{len(SENTENCE_END.findall(log.final))} "
        f"({len(SENTENCE_END.findall(own.text))})",
        "CPU s per s": f"{log.cpu_s / seconds:.3f}",
    }


def quantiles(values: Sequence[float]) -> str:
    """Median, 90 % and maximum, in seconds."""
    return f"{np.median(values):.2f} / {np.percentile(values, 90):.2f} / {max(values):.2f} s"


def table(rows: Iterable[tuple[str, dict[str, str]]]) -> str:
    """The rows as Markdown."""
    lines = list[str]()
    for name, row in rows:
        if not lines:
            lines += [f"| | {' | '.join(row)} |", f"|---{'|--:' * len(row)}|"]
        lines.append(f"| {name} | {' | '.join(row.values())} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=37)
    parser.add_argument("--clips", type=int, help="so many recordings only, the first ones")
    parser.add_argument("--fast", action="store_true", help="each running word at once")
    parser.add_argument("--threshold", type=float, default=VadOptions().threshold)
    parser.add_argument(
        "--long-pause",
        type=float,
        metavar="S",
        help="the shortest pause that ends a sentence (1.5); 0: each does",
    )
    arguments = parser.parse_args()
    transcriber = Transcriber(arguments.model, threads=arguments.threads)
    own = material(transcriber, arguments.seed, arguments.clips)
    options = LiveOptions(transcribe=TranscribeOptions(language="en"))
    pause_ms = None if arguments.long_pause is None else 1000 * arguments.long_pause
    vad = replace(options.vad, threshold=arguments.threshold, long_pause_ms=pause_ms)
    options = replace(options, calm=not arguments.fast, vad=vad)
    print(f"{len(plain_words(own.text))} words in {len(own.samples) / SAMPLE_RATE:.0f} s")
    print(table([("live", figures(own, listen(transcriber, own.samples, options)))]))


if __name__ == "__main__":
    main()
