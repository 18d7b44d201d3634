"""The tables of the figures, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.asr.live.options import Policy
from tests.benchmarks.live_latency.emissions import View, taken_back
from tests.benchmarks.live_latency.evaluators import Scores
from tests.benchmarks.live_latency.playing import Played
from tests.benchmarks.live_latency.quality import Quality, quality
from tests.benchmarks.live_latency.recordings import silences

__all__ = ["Column", "latency_rows", "quality_rows", "translation_rows"]

Column = tuple[Policy, View]


def latency_rows(
    runs: Mapping[Policy, Sequence[Played]], scores: Mapping[Column, Scores], views: Sequence[View]
) -> list[str]:
    """Latency, erasure and computing time of each policy in each view.

    Args:
        runs: The played recordings of each policy.
        scores: Of the evaluators; empty: these did not run.
        views: The columns of each policy.
    """
    columns = [(policy, view) for policy in runs for view in views]
    rows = _head(["", *(f"{policy}, {view}" for policy, view in columns)])
    if scores:
        found = [scores[column] for column in columns]
        yaal = [(score.long_yaal, score.long_yaal_ca) for score in found]
        laal = [(score.stream_laal, score.stream_laal_ca) for score in found]
        rows += [
            _row("LongYAAL (with computing)", *(f"{cu:.2f} s ({ca:.2f} s)" for cu, ca in yaal)),
            _row("StreamLAAL (with computing)", *(f"{cu:.2f} s ({ca:.2f} s)" for cu, ca in laal)),
            _row("normalized erasure, simulstream", *(f"{score.erasure:.3f}" for score in found)),
            _row(
                "real-time factor, simulstream", *(f"{one.real_time_factor:.3f}" for one in found)
            ),
        ]
    taken = [sum(taken_back(run.updates, view) for run in runs[policy]) for policy, view in columns]
    last = [
        sum(len(run.updates[-1].words(view)) for run in runs[policy]) for policy, view in columns
    ]
    shares = [deleted / max(1, kept) for deleted, kept in zip(taken, last, strict=True)]
    work = [_work(runs[policy]) for policy, _ in columns]
    return [
        *rows,
        _row("normalized erasure, own", *(f"{share:.3f}" for share in shares)),
        _row("words taken back", *map(str, taken)),
        _row("words at the end", *map(str, last)),
        _row("real-time factor, own", *(f"{factor:.3f}" for factor, _ in work)),
        _row("CPU seconds a second of audio", *(f"{cpu:.3f}" for _, cpu in work)),
    ]


def quality_rows(runs: Mapping[Policy, Sequence[Played]], offline: Sequence[Quality]) -> list[str]:
    """Word errors of each policy beside those of the same recordings offline."""
    columns = {"offline": offline} | {
        policy: [quality(run.recording, run.words) for run in played]
        for policy, played in runs.items()
    }
    sums = [sum(found, Quality()) for found in columns.values()]
    spans = [span for run in next(iter(runs.values())) for span in silences(run.recording)]
    quiet_s = sum(end - start for start, end in spans)
    return [
        *_head(["", *columns]),
        _row("word error rate", *(f"{found.error_rate:.1f} %" for found in sums)),
        _row(f"edits in {sums[0].words} words", *(str(found.edits) for found in sums)),
        _row("of these, words not said", *(str(found.insertions) for found in sums)),
        _row(
            f"of these, in {quiet_s:.0f} s of silence", *(str(found.in_silence) for found in sums)
        ),
    ]


def translation_rows(scores: Mapping[Column, Scores]) -> list[str]:
    """omnisteval's quality of the final translations; empty without scores."""
    if not scores:
        return []
    final = {policy: score for (policy, view), score in scores.items() if view == "final"}
    return [
        *_head(["", *final]),
        _row("BLEU", *(f"{score.bleu:.1f}" for score in final.values())),
        _row("chrF", *(f"{score.chrf:.1f}" for score in final.values())),
    ]


def _work(played: Sequence[Played]) -> tuple[float, float]:
    """Seconds of work, and CPU seconds, of a second of audio."""
    seconds = sum(run.recording.seconds for run in played)
    computing = sum(update.computing_s for run in played for update in run.updates)
    return computing / seconds, sum(run.cpu_s for run in played) / seconds


def _head(names: Sequence[str]) -> list[str]:
    return [_row(*names), "|---|" + "--:|" * (len(names) - 1)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
