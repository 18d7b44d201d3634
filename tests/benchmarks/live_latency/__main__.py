"""Latency of live captions as the field measures it: LongYAAL, StreamLAAL, normalized erasure.

    python -m tests.benchmarks.live_latency --evaluators /tmp/evaluators/bin/python

Plays recordings to the live transcriber without a clock, with both policies, and times its work.
Writes the logs that omnisteval and simulstream read, runs these where they are installed, and
prints their scores. "final" are the committed words, "shown" also those that may still change.
Recordings: people of ../shared; the bundled samples; or sentences of ../shared in synthetic voices,
for which there are true translations.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from edgeapp.bench.machine import machine
from pipelines import LiveOptions, Transcriber, Translator
from pipelines.asr.live.options import Policy
from pipelines.engine import Engine
from pipelines.errors import EdgeError
from pipelines.hub import choose_default
from tests.benchmarks.live_latency.emissions import View
from tests.benchmarks.live_latency.evaluators import (
    INSTALL,
    EvaluatorError,
    Scores,
    evaluate,
    missing,
)
from tests.benchmarks.live_latency.logs import LogFiles, write_logs, write_references
from tests.benchmarks.live_latency.playing import Played, play, transcribe, warm_up
from tests.benchmarks.live_latency.quality import quality
from tests.benchmarks.live_latency.recordings import (
    SHARED,
    Spoken,
    bundled_samples,
    in_german,
    people,
    sentences,
)
from tests.benchmarks.live_latency.report import (
    Column,
    latency_rows,
    quality_rows,
    translation_rows,
)

_POLICIES: tuple[Policy, ...] = get_args(Policy)
_VIEWS: tuple[View, ...] = get_args(View)
_CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_RECORDINGS: Mapping[str, Callable[[], list[Spoken]]] = {
    "people": people,
    "samples": bundled_samples,
    "sentences": sentences,
}


def main() -> None:
    arguments = _parse()
    recordings = _RECORDINGS[arguments.recordings]()
    lacking = missing(arguments.evaluators)
    engine = Engine(compute_type=arguments.compute_type, threads=arguments.threads)
    transcriber = Transcriber(_model(arguments.model), engine=engine)
    translator = None
    if arguments.translate_to:
        folder = choose_default("translation", "en", arguments.translate_to).folder
        translator = Translator(folder, engine=engine)
    options = {
        policy: LiveOptions(policy=policy, min_chunk_s=arguments.min_chunk) for policy in _POLICIES
    }
    _report("warming up")
    longest = max(recordings, key=lambda recording: recording.seconds)
    warm_up(transcriber, longest, options["agreement"], translator)
    runs: dict[Policy, list[Played]] = {}
    for policy in _POLICIES:
        _report(f"{policy}: {sum(recording.seconds for recording in recordings):.0f} s")
        runs[policy] = [
            play(transcriber, recording, options[policy], translator, _CLOCKS[arguments.clock])
            for recording in recordings
        ]
    offline = []
    if translator is None:
        _report("offline")
        offline = [
            quality(recording, transcribe(transcriber, recording)) for recording in recordings
        ]

    write_references(arguments.out, in_german(recordings) if translator else recordings)
    logs = _write_logs(arguments.out, runs)
    scores: dict[Column, Scores] = {}
    failure = ""
    if not lacking:
        try:
            scores = _score(arguments.evaluators, logs, arguments.translate_to or "en")
        except EvaluatorError as error:
            failure = str(error)  # the own figures are printed all the same

    print(machine("edgeapp", "torch"))
    print(f"{arguments.model}, {arguments.compute_type}", end=", ")
    print(f"threads: {arguments.threads}, clock: {arguments.clock}\n")
    print(*latency_rows(runs, scores, _VIEWS), "", sep="\n")
    print(*(translation_rows(scores) if translator else quality_rows(runs, offline)), sep="\n")
    print(f"\nlogs, references and reports: {arguments.out}")
    if lacking:
        print(f"not scored by omnisteval and simulstream: {arguments.evaluators} lacks ", end="")
        print(f"{', '.join(lacking)}; install with: {INSTALL}")
    if failure:
        sys.exit(failure)


def _write_logs(folder: Path, runs: Mapping[Policy, Sequence[Played]]) -> dict[Column, LogFiles]:
    return {
        (policy, view): write_logs(
            folder, policy, view, [(run.recording.name, run.updates) for run in played]
        )
        for policy, played in runs.items()
        for view in _VIEWS
    }


def _score(python: str, logs: Mapping[Column, LogFiles], language: str) -> dict[Column, Scores]:
    scores = {}
    for (policy, view), files in logs.items():
        _report(f"omnisteval and simulstream: {policy}, {view}")
        scores[policy, view] = evaluate(python, files, language)
    return scores


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.live_latency", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--model", default="base", help="of ../shared/models/whisper-NAME, or any other model"
    )
    parser.add_argument(
        "--recordings",
        choices=_RECORDINGS,
        help="default: samples for the model demo, else people; sentences with a translation",
    )
    parser.add_argument("--translate-to", choices=("de",), help="caption the translation")
    parser.add_argument("--min-chunk", type=float, default=LiveOptions().min_chunk_s, metavar="S")
    parser.add_argument("--compute-type", default="int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock",
        choices=_CLOCKS,
        default="wall",
        help="of the computing time; cpu: for one thread on a busy machine",
    )
    parser.add_argument("--out", type=Path, help="folder of the logs; default: a temporary one")
    parser.add_argument(
        "--evaluators",
        default=sys.executable,
        metavar="PYTHON",
        help="interpreter in which omnisteval and simulstream are installed",
    )
    arguments = parser.parse_args()
    if arguments.translate_to:
        if arguments.recordings not in (None, "sentences"):
            parser.error("only the recordings `sentences` have a true translation")
        arguments.recordings = "sentences"
    default = "samples" if arguments.model == "demo" else "people"
    arguments.recordings = arguments.recordings or default
    arguments.out = arguments.out or Path(tempfile.mkdtemp(prefix="live-latency-"))
    return arguments


def _model(name: str) -> str | Path:
    shared = SHARED / "models" / f"whisper-{name}"
    return shared if shared.is_dir() else name


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (EdgeError, EvaluatorError, OSError) as error:
        sys.exit(str(error))
