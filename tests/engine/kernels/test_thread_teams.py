"""Teams of threads that run kernels: that none waits for ever, and that results are right."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest
import torch
from llvmlite import ir

from pipelines.engine.kernels import loader, system_calls, thread_teams
from pipelines.engine.kernels.code_cache import ObjectCode, read_cached
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.library import KernelLibrary

# A kernel of one linear layer on some threads; what it gives is compared with one thread.
Run = Callable[[int], torch.Tensor]

PRELUDE = """
import os, sys, threading, time
from types import SimpleNamespace
import torch
from pipelines.engine.kernels.loader import load_kernels
from pipelines.engine.kernels.host.linear import CompiledLinear
library = load_kernels()
layer = CompiledLinear(torch.ones(70, 40), None, library)
def run(threads):
    torch.set_num_threads(threads)
    own = SimpleNamespace(threads=threads, run=lambda args, _: library.run("linear", args, threads))
    layer._runners["linear"] = own
    return float(layer(torch.ones(9, 40)).sum())
right = run(1)
"""


@pytest.fixture
def library() -> KernelLibrary:
    kernels = loader.load_kernels()
    if kernels is None:
        pytest.skip("this machine has no kernels")
    return kernels


@pytest.fixture
def fresh(library: KernelLibrary) -> KernelLibrary:
    """The kernels with teams of their own, which have no threads yet."""
    code = read_cached(loader._cache_path(library.level))
    assert code is not None
    return loader.link(code, library.level)


@pytest.fixture
def run(fresh: KernelLibrary, monkeypatch: pytest.MonkeyPatch) -> Run:
    generator = torch.Generator().manual_seed(1)
    layer = CompiledLinear(torch.randn(70, 40, generator=generator), None, fresh)
    x = torch.randn(9, 40, generator=generator)

    def on(threads: int) -> torch.Tensor:
        own = SimpleNamespace(
            threads=threads, run=lambda args, _: fresh.run("linear", args, threads)
        )
        monkeypatch.setattr(layer, "_runners", {"linear": own})
        return layer(x)

    return on


def _in_a_process(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + script],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def _of_teams() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("edgeapp-kernel")]


def test_more_threads_than_cores_come_to_every_barrier(run: Run) -> None:
    alone = run(1)
    for _ in range(30):
        for threads in (2, 9, 3, 5):
            assert torch.equal(run(threads), alone)


def test_threads_that_fell_asleep_are_woken(run: Run) -> None:
    alone = run(1)
    for _ in range(5):
        assert torch.equal(run(3), alone)
        time.sleep(0.01)


def test_calls_from_several_threads_run_side_by_side(run: Run) -> None:
    alone, before = run(1), len(_of_teams())
    together = threading.Barrier(4)

    def repeat(_: int) -> list[torch.Tensor]:
        together.wait(60)
        return [run(3) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(repeat, range(4)))
    assert len(_of_teams()) >= before + 4
    assert all(torch.equal(result, alone) for of_thread in results for result in of_thread)


def test_threads_are_kept_for_later_calls(run: Run) -> None:
    before = len(_of_teams())
    for _ in range(20):
        run(3)
    assert len(_of_teams()) <= before + 2


def test_fewer_threads_run_where_the_system_has_no_more(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, before, start = run(1), len(_of_teams()), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if len(_of_teams()) == before + 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    for _ in range(2):
        assert torch.equal(run(8), alone)
        assert len(_of_teams()) == before + 2


def test_no_more_threads_run_than_a_job_can_have(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_teams.abi, "MOST_THREADS", 3)  # 4,095 threads take long to start
    alone, before = run(1), len(_of_teams())
    assert torch.equal(run(9), alone)
    assert len(_of_teams()) == before + 2


def test_threads_of_an_interrupted_call_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, before = run(1), len(_of_teams())
    with monkeypatch.context() as context:
        context.setattr(thread_teams._Team, "_run", _interrupted, raising=False)
        context.setattr(thread_teams, "_Call2", lambda address: _interrupted)
        context.setattr(thread_teams.ThreadTeams, "_count_spins", lambda _: 100)
        with pytest.raises(KeyboardInterrupt):
            run(3)
    deadline = time.monotonic() + 60
    while len(_of_teams()) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(_of_teams()) == before
    assert torch.equal(run(3), alone)


def _interrupted(*_: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_teams_of_its_own(library: KernelLibrary) -> None:
    script = """
assert run(3) == right
child = os.fork()
if child == 0:
    os._exit(7 if run(3) == right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run(3) == right)
"""
    assert _in_a_process(script) == "7 True"


@pytest.mark.slow
def test_code_that_crashes_or_hangs_is_found_by_a_process_of_its_own(
    library: KernelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = read_cached(loader._cache_path(library.level))
    assert code is not None
    assert loader.survives(code, library.level)
    symbols = code.symbols | {"linear": code.symbols["decoder_step"]}
    assert not loader.survives(ObjectCode(symbols, code.stubs, code.code), library.level)
    monkeypatch.setattr(loader, "_CHECK_S", 0.01)
    assert not loader.survives(code, library.level)


@pytest.mark.usefixtures("library")
def test_untested_systems_link_only_what_another_process_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = read_cached(loader._cache_path(loader.expected_isa() or ""))
    assert code is not None
    linked: list[str] = []
    monkeypatch.setenv("EDGEAPP_KERNELS", str(tmp_path))
    monkeypatch.setattr(loader, "_compile", lambda level, path: code)
    monkeypatch.setattr(loader, "link", lambda code, level: linked.append(level))
    monkeypatch.setattr(loader, "_check", lambda *_: True)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(loader, "survives", lambda *_: False)
    with pytest.warns(RuntimeWarning, match="crashed or hung in a trial on this system"):
        assert loader.load_kernels.__wrapped__() is None
    assert not linked
    monkeypatch.setattr(loader, "survives", lambda *_: True)
    assert loader.load_kernels.__wrapped__() is True
    assert linked == [loader.expected_isa()]


@pytest.mark.parametrize(
    ("platform", "triple", "calls"),
    [
        ("linux", "x86_64-unknown-linux-gnu", {"edgeapp_syscall"}),
        ("linux", "aarch64-unknown-linux-gnu", {"edgeapp_syscall"}),
        ("darwin", "arm64-apple-darwin23.0.0", {"edgeapp_wait", "edgeapp_wake"}),
        ("darwin", "x86_64-apple-darwin23.0.0", {"edgeapp_wait", "edgeapp_wake"}),
        ("win32", "x86_64-pc-windows-msvc", {"edgeapp_wait", "edgeapp_wake"}),
    ],
)
def test_each_system_sleeps_by_functions_of_its_own(
    platform: str, triple: str, calls: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.engine.kernels.device import sync

    monkeypatch.setattr(llvm, "get_process_triple", lambda: triple)
    monkeypatch.setattr(sys, "platform", platform)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module, word = ir.Module(), ir.IntType(64)
    module.triple = triple
    kind = ir.FunctionType(ir.VoidType(), [word, ir.IntType(32)])
    function = ir.Function(module, kind, "sleep_and_wake")
    builder = ir.IRBuilder(function.append_basic_block())
    sync._emit_sleep(builder, *function.args)
    sync._emit_wake(builder, function.args[0])
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine()
    assembly = machine.emit_assembly(llvm.parse_assembly(str(module)))
    assert all(call in assembly for call in calls)
    found = system_calls.system_calls()
    assert found is not None
    assert set(found.functions) == calls


def test_a_word_that_does_not_change_is_waited_for_asleep(run: Run) -> None:
    """Threads without work must not use a core."""
    run(3)

    def cpu_s() -> float:
        before = time.process_time()
        time.sleep(0.2)
        return time.process_time() - before

    # Once of some: threads that other tests have left may work meanwhile.
    assert any(cpu_s() < 0.1 for _ in range(20))
