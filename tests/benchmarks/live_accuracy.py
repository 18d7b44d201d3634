"""Word error rate of live captions (committed text) against offline transcription.

    .venv/bin/python -m tests.benchmarks.live_accuracy [--words 700] [--model demo]

Synthesises sentences of ../shared/data with espeak-ng and flite, five voices. Live: blocks of
0.1 s, an update whenever one is due, as on a machine that is fast enough. Words are compared in
lower case without punctuation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from edgeapp.bench.word_lag import plain_words, word_errors
from pipelines.asr import Transcriber
from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.live.events import CommittedText
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from tests.benchmarks.speeches import speeches

BLOCK = SAMPLE_RATE // 10


def offline(transcriber: Transcriber, samples: Samples, condition: bool = True) -> str:
    segments = transcriber.transcribe(samples, batch_size=1, condition_on_previous_text=condition)
    return "".join(segment.text for segment in segments)


def live(transcriber: Transcriber, samples: Samples, options: LiveOptions) -> str:
    session = LiveTranscriber(transcriber, options)
    events = []
    for at in range(0, len(samples), BLOCK):
        events += session.feed(samples[at : at + BLOCK])
    events += session.finish()
    return "".join(event.text for event in events if isinstance(event, CommittedText))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--words", type=int, default=700)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--compute-type", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--min-chunk", type=float, default=LiveOptions().min_chunk_s)
    parser.add_argument("--show", action="store_true", help="print the texts")
    arguments = parser.parse_args()
    transcriber = Transcriber(
        arguments.model, compute_type=arguments.compute_type, threads=arguments.threads
    )
    spoken = speeches(arguments.words)
    options = LiveOptions(min_chunk_s=arguments.min_chunk)
    ways: dict[str, Callable[[Samples], str]] = {
        "offline": partial(offline, transcriber),
        "offline, no earlier text as context": partial(offline, transcriber, condition=False),
    }
    for name, changed in {
        "agreement": options,
        "agreement, whole window": replace(options, follow_window=False),
        "agreement, 64 tokens of context": replace(options, context_tokens=64),
        "attention": replace(options, policy="attention"),
        "attention, whole window": replace(options, policy="attention", follow_window=False),
    }.items():
        ways[name] = partial(live, transcriber, options=changed)
    references = [plain_words(speech.text) for speech in spoken]
    total = sum(map(len, references))
    seconds = sum(len(speech.samples) for speech in spoken) / SAMPLE_RATE
    print(f"{total} words in {seconds:.0f} s, {len(spoken)} voices")
    print("| way | wrong words | word error rate | against offline | took |\n|---|--:|--:|--:|--:|")
    base = None
    for name, hear in ways.items():
        began = time.perf_counter()
        texts = [hear(speech.samples) for speech in spoken]
        took = time.perf_counter() - began
        wrong = sum(
            word_errors(reference, plain_words(text))
            for reference, text in zip(references, texts, strict=True)
        )
        rate = 100 * wrong / total
        base = rate if base is None else base
        print(
            f"| {name} | {wrong} | {rate:.1f} % | {rate - base:+.1f} | {took:.0f} s |", flush=True
        )
        if arguments.show:
            for speech, text in zip(spoken, texts, strict=True):
                print(f"    {speech.voice}: {text.strip()}")


if __name__ == "__main__":
    main()
