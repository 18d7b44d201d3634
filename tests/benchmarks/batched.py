"""Segments decoded in parallel: word error rate and speed of several batch sizes.

    .venv/bin/python -m tests.benchmarks.batched [--words 700] [--sizes 1,4,8,16] [--model demo]

Synthesises sentences of ../shared/data with espeak-ng and flite, five voices. Words are compared in
lower case without punctuation. Times are the best of several rounds over all sizes.
"""

from __future__ import annotations

import argparse
import time

from edgeapp.bench.word_lag import plain_words, word_errors
from pipelines.asr import TranscribeOptions, Transcriber
from pipelines.asr.audio.arrays import SAMPLE_RATE
from tests.benchmarks.speeches import Speech, speeches


def transcribe(
    transcriber: Transcriber, spoken: list[Speech], options: TranscribeOptions
) -> tuple[list[str], float]:
    """The text of each speech, and the seconds that all take together."""
    began = time.perf_counter()
    texts = [
        "".join(segment.text for segment in transcriber.transcribe(speech.samples, options))
        for speech in spoken
    ]
    return texts, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--words", type=int, default=700)
    parser.add_argument(
        "--sizes", default="1,4,8,16", help="batch sizes; the first is the baseline"
    )
    parser.add_argument("--chunk", type=float, help="maximum seconds of a segment")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--compute-type", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    transcriber = Transcriber(
        arguments.model, compute_type=arguments.compute_type, threads=arguments.threads
    )
    spoken = speeches(arguments.words)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    ways = {
        str(size): TranscribeOptions(batch_size=size, chunk_s=arguments.chunk) for size in sizes
    }
    ways["1, no earlier text as context"] = TranscribeOptions(
        batch_size=1, condition_on_previous_text=False
    )
    references = [plain_words(speech.text) for speech in spoken]
    total = sum(map(len, references))
    seconds = sum(len(speech.samples) for speech in spoken) / SAMPLE_RATE
    print(
        f"{total} words in {seconds:.0f} s, {len(spoken)} voices; "
        f"{transcriber.model.compute_type}, "
        f"{transcriber.engine.threads} threads"
    )
    transcribe(transcriber, spoken[:1], TranscribeOptions(batch_size=4))  # warm-up
    best: dict[str, float] = {}
    texts_of: dict[str, list[str]] = {}
    for _ in range(arguments.rounds):
        for name, options in ways.items():
            texts_of[name], took = transcribe(transcriber, spoken, options)
            best[name] = min(took, best.get(name, took))
    print("| batch size | wrong words | word error rate | × real time | against the first |")
    print("|---|--:|--:|--:|--:|")
    for name, texts in texts_of.items():
        wrong = sum(
            word_errors(reference, plain_words(text))
            for reference, text in zip(references, texts, strict=True)
        )
        print(
            f"| {name} | {wrong} | {100 * wrong / total:.1f} % | {seconds / best[name]:.0f} "
            f"| {best[str(sizes[0])] / best[name]:.2f} × |"
        )


if __name__ == "__main__":
    main()
