"""The files that the evaluators read. YAML is written as JSON, which is YAML, too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.live_latency.emissions import Update, View, changes, emissions
from tests.benchmarks.live_latency.recordings import Spoken

__all__ = ["LogFiles", "write_logs", "write_references"]

_EVAL_CONFIG = {"detokenizer_type": "simuleval", "latency_unit": "word"}  # tokens are words


@dataclass(frozen=True)
class LogFiles:
    """Paths of the files of one run.

    Attributes:
        hypothesis: omnisteval's log: a line a recording, times of its words in milliseconds.
        metrics: simulstream's log: a line a block, with the words deleted and generated.
        config: simulstream's configuration: how tokens are joined.
        segments: Start and length of each segment, for both.
        references: The true text of each segment, for both.
    """

    hypothesis: Path
    metrics: Path
    config: Path
    segments: Path
    references: Path


def write_references(folder: Path, recordings: Sequence[Spoken]) -> None:
    """Write the texts and the times of the segments."""
    segments = [(recording, segment) for recording in recordings for segment in recording.segments]
    lines = ",\n".join(
        json.dumps(
            {
                "wav": f"{recording.name}.wav",
                "offset": round(segment.start, 3),
                "duration": round(segment.end - segment.start, 3),
            }
        )
        for recording, segment in segments
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "segments.yaml").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    texts = "".join(f"{segment.text}\n" for _, segment in segments)
    (folder / "references.txt").write_text(texts, encoding="utf-8")
    config = json.dumps(_EVAL_CONFIG)
    (folder / "simulstream.yaml").write_text(config + "\n", encoding="utf-8")


def write_logs(
    folder: Path, policy: str, view: View, runs: Sequence[tuple[str, Sequence[Update]]]
) -> LogFiles:
    """Write the logs of one policy in one view, beside the references in the same folder.

    Args:
        folder: Where `write_references` wrote.
        policy: Of the session; for the names of the files.
        view: The captions to log.
        runs: Name and updates of each recording.

    Returns:
        All files that the evaluators need.
    """
    name = f"{policy}-{view}"
    _write_lines(folder / f"{name}.omnisteval.jsonl", (_hypothesis(*run, view) for run in runs))
    lines = (line for number, run in enumerate(runs) for line in _metrics(number, *run, view))
    _write_lines(folder / f"{name}.simulstream.jsonl", lines)
    return LogFiles(
        hypothesis=folder / f"{name}.omnisteval.jsonl",
        metrics=folder / f"{name}.simulstream.jsonl",
        config=folder / "simulstream.yaml",
        segments=folder / "segments.yaml",
        references=folder / "references.txt",
    )


def _hypothesis(name: str, updates: Sequence[Update], view: View) -> dict[str, Any]:
    words = emissions(updates, view)
    return {
        "source": f"{name}.wav",
        "prediction": " ".join(word.word for word in words),
        "delays": [round(1000 * word.audio_s, 1) for word in words],
        "elapsed": [round(1000 * word.clock_s, 1) for word in words],
        "source_length": round(1000 * updates[-1].audio_s, 1),
    }


def _metrics(
    number: int, name: str, updates: Sequence[Update], view: View
) -> Iterable[dict[str, Any]]:
    yield {"id": number, "metadata": {"wav_name": f"{name}.wav"}}
    for update, change in zip(updates, changes(updates, view), strict=True):
        yield {
            "id": number,
            "total_audio_processed": update.audio_s,
            "computation_time": update.computing_s,
            "generated_tokens": change.generated,
            "deleted_tokens": change.deleted,
        }


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
