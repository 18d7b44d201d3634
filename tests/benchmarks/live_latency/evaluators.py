"""Runs the public evaluators on the files of logs.py, in the Python that has them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass

from tests.benchmarks.live_latency.logs import LogFiles

__all__ = ["INSTALL", "EvaluatorError", "Scores", "evaluate", "missing"]

# simulstream without what it depends on: its scores need neither torch nor librosa.
INSTALL = "pip install omnisteval mweralign; pip install --no-deps simulstream"

_MODULES = ("omnisteval", "simulstream", "mweralign")
_TIMEOUT_S = 600
_STREAM_LAAL = re.compile(r"ideal_latency=([-\d.e]+), computational_aware_latency=([-\d.e]+)")


class EvaluatorError(Exception):
    """An evaluator failed, or wrote something else than its scores."""


@dataclass(frozen=True)
class Scores:
    """What the evaluators compute of one log. Latencies in seconds.

    Attributes:
        long_yaal: omnisteval's LongYAAL, computation-unaware.
        long_yaal_ca: Computation-aware: with the queueing of real time.
        stream_laal: simulstream's StreamLAAL, computation-unaware.
        stream_laal_ca: Computation-aware as simulstream defines it: with the time of the word's
            own block alone.
        erasure: simulstream's normalized erasure: deleted words a final word.
        real_time_factor: simulstream's: seconds of computing a second of audio.
        bleu: omnisteval's, of the words of each segment.
        chrf: omnisteval's.
    """

    long_yaal: float
    long_yaal_ca: float
    stream_laal: float
    stream_laal_ca: float
    erasure: float
    real_time_factor: float
    bleu: float
    chrf: float


def missing(python: str) -> list[str]:
    """The packages that an interpreter lacks.

    Args:
        python: Path of the interpreter.

    Raises:
        EvaluatorError: There is no such interpreter.
    """
    code = (
        "from importlib.util import find_spec; "
        f"print(*[name for name in {_MODULES!r} if find_spec(name) is None])"
    )
    return _output([python, "-c", code]).split()


def evaluate(python: str, files: LogFiles, language: str) -> Scores:
    """Score one log.

    Args:
        python: An interpreter with all packages.
        files: omnisteval's report is written beside them.
        language: Code, for omnisteval's division of words from punctuation.

    Raises:
        EvaluatorError: An evaluator failed.
    """
    scores = _omnisteval(python, files, language)
    log = ["--eval-config", str(files.config), "--log-file", str(files.metrics)]
    reference = ["--audio-definition", str(files.segments), "--reference", str(files.references)]
    scorer = [python, "-m", "simulstream.metrics.score_latency", "--scorer", "stream_laal"]
    found = _STREAM_LAAL.search(_output([*scorer, *log, *reference]))
    if found is None:
        raise EvaluatorError(f"simulstream's StreamLAAL of {files.metrics} has an unknown form")
    output = _output([python, "-m", "simulstream.metrics.stats", *log])
    stats = json.loads(output.partition("Stats: ")[2])
    return Scores(
        long_yaal=scores["LongYAAL (CU)"] / 1000,
        long_yaal_ca=scores["LongYAAL (CA)"] / 1000,
        stream_laal=float(found[1]),
        stream_laal_ca=float(found[2]),
        erasure=stats["normalized_erasure"]["value"],
        real_time_factor=stats["real_time_factor"]["value"],
        bleu=scores["BLEU"],
        chrf=scores["chrF"],
    )


def _omnisteval(python: str, files: LogFiles, language: str) -> dict[str, float]:
    report = files.hypothesis.with_suffix("")
    command = [python, "-m", "omnisteval.cli", "longform", "--word_level", "--lang", language]
    paths = {
        "speech_segmentation": files.segments,
        "ref_sentences_file": files.references,
        "hypothesis_file": files.hypothesis,
        "output_folder": report,
    }
    _output(
        [*command, *(part for name, path in paths.items() for part in (f"--{name}", str(path)))]
    )
    rows = (report / "scores.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {name: float(value) for name, value in (row.split("\t") for row in rows)}


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise EvaluatorError(f"{' '.join(command[:3])} failed: {last}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EvaluatorError(f"{command[0]} does not run: {error}") from error
    return done.stdout
