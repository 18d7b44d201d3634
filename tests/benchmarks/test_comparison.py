"""The comparison: all libraries run the same tasks on the same weights, and the tables show it.

Two libraries do in the gate, all of them in the campaign: each is a process of several. No measured
figure is asserted: it depends on the machine that runs the tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from edgeapp.bench.word_lag import plain_words
from pipelines.asr import load_audio
from pipelines.hub import assets_folder
from tests.benchmarks.comparison import quality as quality_module
from tests.benchmarks.comparison import versus_transformers
from tests.benchmarks.comparison.__main__ import app
from tests.benchmarks.comparison.backends import ours
from tests.benchmarks.comparison.backends.base import Configuration
from tests.benchmarks.comparison.backends.registry import (
    CT2,
    HF,
    HF_EXACT,
    OURS,
    OURS_EXACT,
    PEERS,
    WHISPER_CPP,
    Column,
    Peer,
)
from tests.benchmarks.comparison.figures import Figure
from tests.benchmarks.comparison.limits import step_bytes
from tests.benchmarks.comparison.process import PeerFailed, PeerMissing, PeerProcess
from tests.benchmarks.comparison.quality import quality
from tests.benchmarks.comparison.race import Results, compare
from tests.benchmarks.comparison.report import markdown, text, to_json
from tests.benchmarks.comparison.search import thread_counts
from tests.benchmarks.comparison.shapes import SHAPES, Shape
from tests.benchmarks.comparison.targets import target_of, target_rows
from tests.benchmarks.comparison.weights import write
from tests.benchmarks.comparison.work import KINDS, Task, lines, tasks_for
from tests.benchmarks.comparison.worker import Bench

pytestmark = pytest.mark.slow

_SMALL = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
}
WHISPER = replace(SHAPES[0], name="small-whisper", config={**SHAPES[0].config, **_SMALL})
MARIAN = replace(SHAPES[-1], name="small-marian", config={**SHAPES[-1].config, **_SMALL})


def entered(work: dict[Shape, list[Task]], peers: tuple[Peer, ...] = PEERS) -> Results:
    return compare(work, peers, rounds=1, device="cpu", threads=[1], said=lambda message: None)


# Libraries that are not there: one is not installed, one cannot be used.
ABSENT = replace(
    PEERS[2], columns=(Column("absent"),), place="no_such_package:Absent", package="no-such-package"
)
BROKEN = replace(
    PEERS[1],
    columns=(Column("broken"),),
    place="ctranslate:NoSuchClass",
    package="broken",
    family=None,
)


@pytest.fixture(scope="module")
def on_marian() -> Results:
    """CTranslate2 and EdgeApp beside the two that cannot run: a process for each."""
    pytest.importorskip("ctranslate2")
    tasks = [Task("lines", 12, 0), Task("step", 1, 4), Task("growth", 1, 40)]
    return entered({MARIAN: tasks}, (PEERS[2], ABSENT, BROKEN, PEERS[-1]))


def test_two_libraries_run_the_same_tasks(on_marian: Results) -> None:
    took_part = _check_figures(on_marian)
    assert took_part["growth"] == [OURS]
    assert set(took_part["lines"]) == set(took_part["step 1"]) == {CT2, OURS_EXACT, OURS}
    assert {each.unit for each in on_marian.figures if each.work == "lines"} == {"tokens/s"}


@pytest.mark.campaign
def test_all_libraries_run_the_same_tasks_on_whisper() -> None:
    """With all kinds of tasks: a process for each library, and one for each peak."""
    pytest.importorskip("ctranslate2")
    pytest.importorskip("faster_whisper")
    pytest.importorskip("_pywhispercpp")
    tasks = [
        Task("step", 1, 6),
        Task("step", 2, 4),
        Task("encode", 1, 1),
        Task("window", 1, 8),
        Task("windows", 2, 5),
        Task("growth", 1, 40),
        Task("memory", 1, 3),
    ]
    on_whisper = entered({WHISPER: tasks})
    took_part = _check_figures(on_whisper)
    assert took_part["growth"] == [OURS]
    assert {CT2, HF_EXACT, OURS} < set(took_part["step 1"])
    assert {"faster-whisper", WHISPER_CPP} < set(took_part["window"])
    assert any("encoder" in each.why for each in on_whisper.figures if each.peer == OURS)


def _check_figures(results: Results) -> dict[str, list[str]]:
    """The libraries that have taken part in each kind of work."""
    figures = [each for each in results.figures if each.peer not in ("absent", "broken")]
    missing = {(each.peer, each.work): each.missing for each in figures if each.missing}
    assert not missing
    took_part: dict[str, list[str]] = {each.work: [] for each in figures}
    for each in figures:
        took_part[each.work].append(each.peer)
        assert each.configuration is not None
        assert each.configuration.threads == 1
        assert (each.limit_ms is not None) == (each.work.startswith("step"))
        assert all(value > 0 for value in each.runs) or each.work.startswith("step")
    assert results.bytes_per_s > 1e8
    _check_reports(replace(results, figures=tuple(figures)))
    return took_part


def _check_reports(results: Results) -> None:
    shown = text(results, ())
    targets = target_rows([each for each in results.figures if each.work == "growth"])
    assert targets
    assert all(verdict in shown for verdict in targets.values())
    assert all(each.title in shown for each in results.figures)
    rows = [row for row in markdown(results, ()).splitlines() if row.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    told = json.loads(to_json(results, ()))
    assert len(told["figures"]) == len(results.figures)
    ratio = next(each for each in told["figures"] if each["peer"] == CT2)
    assert ratio["edgeapp_is"] != 0


def test_a_missing_library_is_reported_and_the_others_run(on_marian: Results) -> None:
    said = {each.peer: each.missing for each in on_marian.figures if each.work == "step 1"}
    assert said["absent"] == "no-such-package is not installed"
    assert "NoSuchClass" in str(said["broken"])
    assert said[OURS] is None
    assert "no-such-package is not installed" in text(on_marian, ())


def test_a_library_that_fails_or_whose_process_dies(tmp_path: Path) -> None:
    with pytest.raises(PeerMissing):
        PeerProcess("compare", WHISPER, tmp_path, "cpu", "no_such_package:Nobody")
    with PeerProcess("prepare", WHISPER, tmp_path, "cpu") as process:
        with pytest.raises(PeerFailed, match="AttributeError"):
            process.ask("nonsense")
        process._process.kill()
        with pytest.raises(PeerFailed, match="ended"):
            process.ask("bandwidth")


def test_lines_have_realistic_lengths() -> None:
    made = lines(SHAPES[-1], 2000)
    lengths = sorted(len(line.ids) for line in made)
    assert made == lines(SHAPES[-1], 2000)
    assert 7 <= lengths[1000] <= 11
    assert 60 <= lengths[-1] <= 90
    assert all(line.ids[-1] == 0 and 0 not in line.ids[:-1] for line in made)
    assert sum(line.tokens for line in made) == pytest.approx(sum(lengths), rel=0.2)


def test_tasks_of_a_shape() -> None:
    tiny, *_, opus = SHAPES
    assert [task.key for task in tasks_for(tiny)] == [
        "step 1", "step 8", "step 32", "encode", "window", "windows 8", "growth", "memory",
    ]  # fmt: skip
    assert {task.kind for task in tasks_for(opus)} == {"step", "lines", "growth", "memory"}
    assert [task.batch for task in tasks_for(tiny, ["step"], [2, 3])] == [2, 3]
    assert {task.kind for shape in SHAPES for task in tasks_for(shape)} == set(KINDS)
    # 4 layers of 384 and the output: 27 million weights; a source: 1,500 positions in 4 layers.
    assert step_bytes(tiny, 1, 1, 4) == pytest.approx(28.3e6 + 18.4e6, rel=0.02)


def test_targets() -> None:
    ours = Figure("whisper-tiny", "step 1", "", OURS, "ms", (2.0,), Configuration("auto", 1))
    theirs = replace(ours, peer=CT2, runs=(2.9, 3.1, 2.8))
    assert target_rows([theirs, ours]) == {CT2: "1.45 ×, aim 1.5: missed"}
    assert target_rows([replace(theirs, runs=(4.0,)), ours]) == {CT2: "2.00 ×, aim 1.5: hit"}
    assert target_rows([theirs]) == {}
    assert target_of("whisper-base", "step 1", CT2) == 2.0
    assert target_of("whisper-base", "step 8", CT2) is None
    speed = replace(ours, work="lines", unit="tokens/s", runs=(300.0,))
    assert target_rows([replace(speed, peer=CT2, runs=(100.0,)), speed]) == {
        CT2: "3.00 ×, aim 1.5: hit"
    }
    growth = replace(ours, work="growth", unit="×", runs=(1.4,))
    assert target_rows([growth]) == {OURS: "aim 1.3: missed"}


def test_targets_on_a_gpu() -> None:
    ours = Figure("whisper-tiny", "step 1", "", OURS, "ms", (2.0,), Configuration("auto", 1))
    figures = (replace(ours, peer=HF, runs=(11.0,)), replace(ours, peer=CT2, runs=(3.0,)), ours)
    assert target_rows(figures, on_gpu=True) == {HF: "5.50 ×, aim 5: hit", CT2: "1.50 ×"}
    results = Results(figures, 3e12, "Some GPU") + Results(())
    assert "Some GPU; memory read at 3000 GB/s" in text(results, ())
    assert "aim 5: hit" in text(results, ())
    assert "transformers: 5.50 ×, aim 5: hit" in markdown(results, ())
    assert json.loads(to_json(results, ()))["figures"][0]["aim"] == 5.0


def test_the_tables_against_transformers() -> None:
    """Of made-up figures, one library missing."""
    step = Figure("tiny", "step 1", "a step", HF_EXACT, "ms", (30.0,), Configuration("float32", 2))
    auto = replace(step, peer="EdgeApp, auto", runs=(6.0, 5.0, 7.0))
    absent = replace(step, peer=HF, runs=(), configuration=None, missing="is not installed")
    steps = [step, absent, auto]
    figures = [*steps, *(replace(each, work="encode") for each in steps)]
    assert versus_transformers.markdown(figures).splitlines()[2:] == [
        "| tiny | transformers float32 | float32 × 2 | 30.0 ms | 30.0 ms | 1.0 × |",
        "|  | transformers | is not installed |  |  |  |",
        "|  | EdgeApp, auto | float32 × 2 | 6.00 ms | 6.00 ms | 5.0 × |",
    ]
    assert versus_transformers.table(figures).row_count == 3


@pytest.mark.campaign
def test_against_transformers_alone() -> None:
    tasks = next(iter(versus_transformers.work(4).values()))
    found = entered({MARIAN: tasks}, versus_transformers.ENTRANTS).figures
    rows = versus_transformers.markdown(found).splitlines()
    assert len(rows) == 2 + 6
    assert len({row.count("|") for row in rows}) == 1
    assert rows[2].endswith("| 1.0 × |")
    assert versus_transformers.table(found).row_count == 6


def test_quality_by_compute_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one recording and one sentence, in two of five."""
    pytest.importorskip("sacrebleu")
    samples = assets_folder() / "samples" / "question.flac"
    said = plain_words("Can you tell me when the next train to Boston leaves?")
    pair = "Where is the station?", ("Wo ist der Bahnhof?",)
    monkeypatch.setattr(quality_module, "_PRECISIONS", ("float32", "auto"))
    monkeypatch.setattr(quality_module, "_recordings", lambda data: [(load_audio(samples), said)])
    monkeypatch.setattr(quality_module, "_pairs", lambda data: [pair])
    costs = quality(None, "cpu", 1, lambda message: None)
    assert [(cost.model, cost.compute_type) for cost in costs] == [
        ("demo", "float32"), ("demo", "auto"), ("demo-en-de", "float32"), ("demo-en-de", "auto"),
    ]  # fmt: skip
    assert costs[0].over == "11 words in 1 recordings"
    assert [cost.value for cost in costs[2:]] == [pytest.approx(100.0)] * 2
    worse = replace(costs[1], value=costs[0].value + 0.5, worse=0.5)
    rows = markdown(Results(()), [costs[0], worse]).splitlines()
    assert rows[3].endswith("| +0.50 | aim 0.3: missed | 11 words in 1 recordings |")
    assert "aim 0.3: hit" in text(Results(()), [replace(worse, worse=-0.1)])


@pytest.mark.campaign
def test_quality_of_the_bundled_recognizer() -> None:
    costs = quality(None, "cpu", 1, lambda message: None)
    assert {cost.model for cost in costs} == {"demo"}
    assert costs[0].compute_type == "float32"
    assert 0 < costs[0].value < 15
    assert all(cost.worse == pytest.approx(cost.value - costs[0].value) for cost in costs)
    assert "aim 0.3" in text(Results(()), costs)


def test_options_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--only", "speed"), ("--shape", "large"), ("--batch", "0")):
        with pytest.raises(SystemExit) as stop:
            app(["peers", option, value])
        assert stop.value.code == 2
        assert option in capsys.readouterr().err
    assert thread_counts()[0] == 1


def test_lines_by_several_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `test_lines_by_several_processes`, with workers in this process."""

    class Pool:
        def __init__(self, size: int, make: Callable[[], Callable[[Any], Any]]) -> None:
            self.size, self._run = size, make()

        def map(self, tasks: Iterable[Any]) -> list[Any]:
            return [self._run(task) for task in tasks]

    monkeypatch.setattr(ours, "ProcessPool", Pool)
    monkeypatch.setattr(ours, "_WORKER_START_S", 0.0)
    write(MARIAN, tmp_path)
    bench = Bench(PEERS[-1].place, MARIAN, tmp_path, "cpu")
    one = asdict(Configuration("float32", 1))
    assert bench.batch_configurations(one, 1) == [one | {"batch": 32}, one | {"batch": 128}]
    *_, several = bench.batch_configurations(one, 2)
    assert several == one | {"workers": 2}
    bench.keep([several])
    assert bench.run(several, asdict(Task("lines", 6, 0))) > 0


@pytest.mark.campaign
def test_lines_by_several_processes(tmp_path: Path) -> None:
    """The way that `edgeapp translate --workers` goes is one of ours, and does all of the work."""
    with PeerProcess("prepare", MARIAN, tmp_path / "m", "cpu") as process:
        process.ask("write")
    place = PEERS[-1].place
    with PeerProcess("compare", MARIAN, tmp_path / "m", "cpu", place) as process:
        one, task = asdict(Configuration("auto", 1)), asdict(Task("lines", 30, 0))
        found = process.ask("batch_configurations", one, 2)
        (several,) = [each for each in found if each["workers"] == 2]
        process.ask("keep", [several])
        assert process.ask("run", several, task) > 0


def test_ctrl_c_keeps_the_shapes_that_are_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(work: dict[Shape, list[Task]], *_: object, **__: object) -> Results:
        (shape,) = work
        if shape.name == "whisper-base":
            raise KeyboardInterrupt
        return Results((Figure(shape.name, "step 1", "a step, batch 1", OURS, "ms", (2.0,)),), 1e9)

    monkeypatch.setattr("tests.benchmarks.comparison.race.compare", interrupted)
    with pytest.raises(SystemExit) as stop:
        app(["peers", "--only", "step"])
    assert stop.value.code == 130
    assert "whisper-tiny, a step, batch 1" in capsys.readouterr().out
