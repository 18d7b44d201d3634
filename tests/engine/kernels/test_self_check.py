"""The check after loading: a kernel that computes something else than torch is not used."""

from __future__ import annotations

import ctypes
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, Request
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.kernels import abi, loader
from pipelines.engine.kernels.code_cache import ObjectCode
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.host.self_check import wrong_kernels
from pipelines.engine.kernels.isa import ISA_LEVELS
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.model import linear
from tests.engine.conftest import Folders, token_sources

pytestmark = pytest.mark.skipif(
    loader.expected_isa() is None,
    reason="no kernels are compiled on machines like this one",
)


@dataclass(frozen=True, eq=False)
class DamagedLibrary(KernelLibrary):
    """Kernels of which one computes something else."""

    damaged: str = ""

    def run(self, kernel: str, args: abi.LinearArgs | abi.StackArgs, threads: int) -> None:
        if kernel == self.damaged and threads > 1:
            DAMAGE[kernel](args)
        super().run(kernel, args, threads)

    def run_alone(self, kernel: str, args: ctypes.Structure) -> None:
        if kernel == self.damaged:
            DAMAGE[kernel](args)
        super().run_alone(kernel, args)


def _wrong_scale(args: Any) -> None:
    args.attention_scale = 2 * abs(args.attention_scale)


def _wrong_head_scale(args: Any) -> None:
    args.scale = 2 * abs(args.scale)


def _wrong_bias(args: Any) -> None:
    args.layer.biases += 4  # of the next output


def _missing_layer(args: Any) -> None:
    args.blocks -= 1


DAMAGE: dict[str, Callable[[Any], None]] = {
    "linear": _wrong_bias,
    "argmax": _wrong_bias,
    "encoder_pass": _wrong_scale,
    "project_cross_kv": _missing_layer,
    "decoder_step": _wrong_scale,
    "attend_head": _wrong_head_scale,
}


def damage(library: KernelLibrary, kernel: str) -> DamagedLibrary:
    values = {field.name: getattr(library, field.name) for field in fields(library)}
    return DamagedLibrary(**values, damaged=kernel)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_kernels_of_this_machine_pass(library: KernelLibrary, threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert wrong_kernels(library) == []
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kernel", DAMAGE)
def test_a_damaged_kernel_is_found(library: KernelLibrary, kernel: str) -> None:
    assert wrong_kernels(damage(library, kernel)) == [kernel]


def test_every_kernel_is_checked(library: KernelLibrary) -> None:
    assert set(DAMAGE) == set(library.addresses)


@pytest.fixture
def load(
    library: KernelLibrary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], KernelLibrary | None]:
    """Loads the kernels as a new process with a new cache folder, one of them damaged."""
    path = tmp_path / "kernels" / loader._cache_path(library.level).name
    path.parent.mkdir()
    path.write_bytes(loader._cache_path(library.level).read_bytes())
    monkeypatch.setenv("EDGEAPP_KERNELS", str(path.parent))
    level = replace(ISA_LEVELS[library.level], fallback=None)  # of which others are tested
    monkeypatch.setitem(ISA_LEVELS, library.level, level)
    link = loader.link

    def load(damaged: str) -> KernelLibrary | None:
        def damaged_link(kernels: ObjectCode, level: str) -> KernelLibrary:
            return damage(link(kernels, level), damaged)

        monkeypatch.setattr(loader, "link", damaged_link)
        return loader.load_kernels.__wrapped__()

    return load


def test_a_passed_check_is_not_repeated(
    load: Callable[[str], KernelLibrary | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[KernelLibrary] = []

    def check(library: KernelLibrary) -> list[str]:
        checks.append(library)
        return []

    monkeypatch.setattr(loader, "wrong_kernels", check)
    assert load("") is not None
    assert load("") is not None
    assert len(checks) == 1


def test_a_damaged_kernel_is_left_out_with_one_warning(
    load: Callable[[str], KernelLibrary | None],
) -> None:
    for _ in range(2):  # the failure is not kept: a later process checks again
        with pytest.warns(
            RuntimeWarning, match="the kernels decoder_step do not compute"
        ) as caught:
            library = load("decoder_step")
        assert len(caught) == 1
        assert library is not None
        assert set(library.addresses) == set(DAMAGE) - {"decoder_step"}


def test_without_the_linear_kernel_none_is_used(
    load: Callable[[str], KernelLibrary | None],
) -> None:
    with pytest.warns(RuntimeWarning, match="the kernels linear do not compute"):
        assert load("linear") is None


@pytest.mark.parametrize("kernel", [*DAMAGE][1:])
def test_models_run_without_a_kernel(
    kernel: str, library: KernelLibrary, checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "load_kernels", lambda: library.without({kernel}))
    with warnings.catch_warnings(), Engine(device="cpu", compute_type="int8", threads=1) as engine:
        warnings.simplefilter("error")
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        encoded = model.encode(token_sources(model, [3, 9]))
        start = (model.architecture.start_id,)
        results = engine.generate([Request(each, start, GenerationOptions(8)) for each in encoded])
        assert all(result.tokens for result in results)
        backend = model.backend
        assert isinstance(backend, NativeBackend)
        decoder = backend._decoder
        assert isinstance(decoder.lm_head._linear, CompiledLinear)
        compiled = (decoder._compiled, decoder._cross_kv_projection, backend._encoder._compiled)
        used = {stack.kernel for stack in compiled if stack is not None}
        assert kernel not in used


def test_the_check_is_fast(library: KernelLibrary) -> None:
    times = []
    for _ in range(5):
        start = time.process_time()
        wrong_kernels(library)
        times.append(time.process_time() - start)
    assert min(times) < 0.2  # some 40 ms
