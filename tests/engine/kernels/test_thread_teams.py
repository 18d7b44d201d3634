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

from pipelines.engine.kernels import loader, system_calls
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
    own = SimpleNamespace(run=lambda args, _: library.run("linear", args, threads))
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
        before = torch.get_num_threads()
        torch.set_num_threads(threads)  # buffers are for so many
        own = SimpleNamespace(run=lambda args, _: fresh.run("linear", args, threads))
        monkeypatch.setattr(layer, "_runners", {"linear": own})
        try:
            return layer(x)
        finally:
            torch.set_num_threads(before)

    return on


def _in_a_process(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + script],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
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
    alone = run(1)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: [run(3) for _ in range(50)], range(4)))
    assert len(_of_teams()) > 2
    assert all(torch.equal(result, alone) for of_thread in results for result in of_thread)


def test_threads_are_kept_for_later_calls(run: Run) -> None:
    before = len(_of_teams())
    for _ in range(20):
        run(3)
    assert len(_of_teams()) <= before + 2


def test_fewer_threads_run_where_the_system_has_no_more(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, start, started = run(1), threading.Thread.start, list[threading.Thread]()

    def limited(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    assert torch.equal(run(8), alone)
    assert len(started) == 2
    started.extend([threading.current_thread()] * 2)
    assert torch.equal(run(8), alone)


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
def test_a_process_ends_with_threads_that_are_idle_or_at_work(library: KernelLibrary) -> None:
    script = """
assert run(4) == right
def work():
    while True:
        run(3)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
print("done")
"""
    assert _in_a_process(script) == "done"


@pytest.mark.slow
def test_code_that_crashes_is_found_by_a_process_of_its_own(library: KernelLibrary) -> None:
    code = read_cached(loader._cache_path(library.level))
    assert code is not None
    assert loader.survives(code, library.level)
    symbols = code.symbols | {"linear": code.symbols["decoder_step"]}
    assert not loader.survives(ObjectCode(symbols, code.stubs, code.code), library.level)


def test_untested_systems_try_the_kernels_in_a_process_of_their_own(
    library: KernelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = read_cached(loader._cache_path(library.level))
    assert code is not None
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(loader, "survives", lambda *_: False)
    with pytest.warns(RuntimeWarning, match="the kernels linear do not compute"):
        assert loader._check(library, code, tmp_path / "kernels") is None


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
    from pipelines.engine.kernels.device import words

    monkeypatch.setattr(llvm, "get_process_triple", lambda: triple)
    monkeypatch.setattr(sys, "platform", platform)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module, word = ir.Module(), ir.IntType(64)
    module.triple = triple
    kind = ir.FunctionType(ir.VoidType(), [word, ir.IntType(32)])
    function = ir.Function(module, kind, "sleep_and_wake")
    builder = ir.IRBuilder(function.append_basic_block())
    words._emit_sleep(builder, *function.args)
    words._emit_wake(builder, function.args[0])
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine()
    assembly = machine.emit_assembly(llvm.parse_assembly(str(module)))
    assert all(call in assembly for call in calls)
    found = system_calls.system_calls()
    assert found is not None
    assert set(found.functions) == calls


def test_a_word_that_does_not_change_is_waited_for_asleep(run: Run, fresh: KernelLibrary) -> None:
    """Threads without work must not use a core."""
    run(3)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1
