"""`edgeapp transcribe --cluster`: results equal those of one machine, also when a machine dies."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from edgeapp.cli import app
from edgeapp.cluster import remote_models
from edgeapp.cluster.node_worker import NodeWorker
from edgeapp.cluster.remote_models import Cluster
from pipelines.asr import Checkpoint

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # of ray, in its own threads
]
SAMPLES = Path(__file__).resolve().parents[3] / "assets" / "samples"
_FLAGS = ("-m", "demo", "--compute-type", "int8", "-f", "json", "--translate-to", "de",
          "--batch-size", "2")  # fmt: skip


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two machines on this one, each with one CPU; the driver is on a third without any."""
    from ray.cluster_utils import Cluster as Nodes

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("talk", "question"):
        shutil.copy(SAMPLES / f"{name}.flac", folder)
    samples, rate = soundfile.read(SAMPLES / "story.flac", dtype="int16")
    soundfile.write(folder / "story.wav", np.tile(samples, 3), rate)
    return folder


def transcribe(folder: Path, out: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["transcribe", str(folder), "-o", str(out), *_FLAGS, *more])
    return result.exit_code, result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_machine_that_dies_loses_its_task_only(
    nodes: Any, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, err = transcribe(recordings, tmp_path / "alone", "--no-journal", "--threads", "1")
    assert code == 0, err
    (recordings / "bad.mp3").write_text("no sound")
    stream, lease, lost, leased = (
        Cluster.stream,
        Cluster._lease,
        threading.Event(),
        threading.local(),
    )

    @contextmanager
    def noted_lease(cluster: Cluster, killed: Any) -> Iterator[Any]:
        with lease(cluster, killed) as machine:
            leased.worker = machine.worker
            yield machine

    def stream_and_lose(
        cluster: Cluster, audio: Any, *arguments: Any, **options: Any
    ) -> Iterator[Any]:
        for event in stream(cluster, audio, *arguments, **options):
            yield event
            if str(audio).endswith("story.wav") and not lost.is_set():
                lost.set()
                nodes.remove_node(machine_of(leased.worker), allow_graceful=False)

    def machine_of(worker: Any) -> Any:
        actor = ray._private.state.actors(worker._actor_id.hex())
        return next(n for n in nodes.workers if n.node_id == actor["Address"]["NodeID"])

    monkeypatch.setattr(Cluster, "_lease", noted_lease)
    monkeypatch.setattr(Cluster, "stream", stream_and_lose)
    code, err = transcribe(recordings, tmp_path / "out", "--cluster", nodes.address)
    assert lost.is_set()
    assert code == 1
    assert "bad.mp3" in err
    assert "this machine is lost" in err
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")
    code, err = transcribe(recordings, tmp_path / "out", "--cluster", nodes.address)
    assert (code, err.count("done already")) == (1, 3)


def test_machines_share_one_recording_and_one_dies(
    nodes: Any, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("talk", "question"):
        (recordings / f"{name}.flac").unlink()
    short = ("--vad-max-speech-duration-s", "5")
    code, err = transcribe(recordings, tmp_path / "alone", "--no-journal", "--threads", "1", *short)
    assert code == 0, err
    stream, shared, deaths = Cluster.stream, [], [nodes.workers[0]]

    def stream_and_end(cluster: Cluster, *arguments: Any, **options: Any) -> Iterator[Any]:
        checkpoints = 0
        for event in stream(cluster, *arguments, **options):
            yield event
            checkpoints += isinstance(event, Checkpoint)
            if checkpoints == 1 and deaths:
                nodes.remove_node(deaths.pop(), allow_graceful=False)
            if checkpoints == 9:  # of some twenty
                raise KeyboardInterrupt

    def recognize(cluster: Cluster, method: str, *arguments: Any, **options: Any) -> Any:
        if method == "recognize":
            shared.append([chunk.number for chunk in arguments[0]])
        return call(cluster, method, *arguments, **options)

    call = Cluster.call
    monkeypatch.setattr(Cluster, "call", recognize)
    monkeypatch.setattr(Cluster, "stream", stream_and_end)
    code, err = transcribe(recordings, tmp_path / "out", "--cluster", nodes.address, *short)
    assert code == 130, err
    assert "this machine is lost" in err
    assert not deaths
    assert [1, 2, 3, 4] in shared
    # The driver was ended: the next run goes on where its journal ends.
    monkeypatch.setattr(Cluster, "stream", stream)
    shared.clear()
    nodes.add_node(num_cpus=1)
    code, err = transcribe(recordings, tmp_path / "out", "--cluster", nodes.address, *short)
    assert code == 0, err
    assert "resuming at" in err
    assert min(map(min, shared)) == 10
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


def test_texts_on_machines_of_which_one_dies(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "in"
    folder.mkdir()
    sentences = ("Good morning.", "Where is the station?", "", "The weather is nice today.")
    (folder / "talk.txt").write_text("\n".join(sentences[i % 4] for i in range(300)) + "\n")
    (folder / "film.srt").write_text(
        "".join(
            f"{i + 1}\n00:00:{2 * i:02d},000 --> 00:00:{2 * i + 1:02d},000\nI am at home {i}.\n\n"
            for i in range(20)
        )
    )
    call, lost, calls = Cluster.call, threading.Event(), threading.Lock()

    def call_and_lose(cluster: Cluster, method: str, *arguments: Any, **how: Any) -> Any:
        with calls:
            if not lost.is_set():
                lost.set()
                nodes.remove_node(nodes.workers[0], allow_graceful=False)
        return call(cluster, method, *arguments, **how)

    def translate(out: Path, *more: str) -> tuple[int, str]:
        flags = ("-m", "demo-en-de", "--from", "en", "--compute-type", "int8", "-o", str(out))
        result = CliRunner().invoke(app, ["translate", str(folder), *flags, *more])
        return result.exit_code, result.stderr

    code, err = translate(tmp_path / "alone", "--no-journal", "--threads", "1")
    assert code == 0, err
    monkeypatch.setattr(Cluster, "call", call_and_lose)
    code, err = translate(tmp_path / "out", "--cluster", nodes.address)
    assert (code, lost.is_set()) == (0, True), err
    assert "this machine is lost" in err
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")
    code, err = translate(tmp_path / "out", "--cluster", nodes.address)
    assert (code, err.count("done already")) == (0, 2)


class Mortal(NodeWorker):
    """A worker that dies of recordings with one name, and once of those with another."""

    def stream(self, name: str, *arguments: Any) -> Iterator[Any]:
        died = Path(name).with_suffix(".died")
        if "deadly" in name or ("once" in name and not died.exists()):
            died.touch()
            os._exit(1)
        yield from super().stream(name, *arguments)


def record(folder: Path, *names: str) -> None:
    """Write recordings of different content, by which jobs are known."""
    samples, rate = soundfile.read(SAMPLES / "question.flac", dtype="int16")
    for count, name in enumerate(names, 1):
        silence = np.zeros(count * rate, np.int16)
        soundfile.write(folder / f"{name}.flac", np.concatenate([samples, silence]), rate)


def test_a_worker_that_dies_runs_again_and_a_file_that_kills_two_fails(
    nodes: Any, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(recordings, "once", "deadly-1", "deadly-2")
    monkeypatch.setattr(remote_models, "NodeWorker", Mortal)
    code, err = transcribe(recordings, tmp_path / "out", "--cluster", nodes.address)
    assert code == 1, err
    assert err.count("its worker died, and runs again") == 5, err
    for name in ("deadly-1", "deadly-2"):
        assert f"{name}.flac: the workers of the cluster die of it" in err
    made = contents(tmp_path / "out")
    assert sorted(made) == ["once.json", "question.json", "story.json", "talk.json"]
    assert json.loads(made["once.json"])["text"] == json.loads(made["question.json"])["text"]


def test_on_one_machine_files_that_kill_workers_fail_and_the_others_are_done(
    nodes: Any, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.remove_node(nodes.workers[0])
    for path in recordings.iterdir():
        path.unlink()
    record(recordings, "deadly-1", "deadly-2", "good")
    monkeypatch.setattr(remote_models, "NodeWorker", Mortal)
    code, err = transcribe(recordings, tmp_path / "out", "--cluster", nodes.address)
    assert code == 1, err
    assert err.count("the workers of the cluster die of it") >= 2, err
    assert list(contents(tmp_path / "out")) == ["good.json"]


def test_a_machine_on_which_workers_die_is_left_out(
    nodes: Any, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = nodes.workers[0].node_id

    class OnBroken(NodeWorker):
        def stream(self, *arguments: Any) -> Iterator[Any]:
            if ray.get_runtime_context().get_node_id() == broken:
                os._exit(1)
            yield from super().stream(*arguments)

    record(recordings, *(f"short-{count}" for count in range(6)))
    monkeypatch.setattr(remote_models, "NodeWorker", OnBroken)
    code, err = transcribe(recordings, tmp_path / "out", "--cluster", nodes.address)
    assert code == 0, err
    assert "this machine is lost (3 workers have died in a row); 1 left" in err
    assert len(contents(tmp_path / "out")) == 9


def test_without_ray_or_files_it_is_refused(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(
        app, ["transcribe", str(recordings / "talk.flac"), "--cluster", "local"]
    )
    assert result.exit_code == 2
    assert "-o FOLDER" in result.stderr
