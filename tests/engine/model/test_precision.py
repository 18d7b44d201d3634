"""The choice of device, compute type and threads, and the accuracy of each compute type."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, LoadedModel, Request, SuppressTokens
from pipelines.engine import engine as engine_module
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.kernels.loader import load_kernels
from pipelines.engine.model import linear, precision
from pipelines.engine.model.linear import _Int8, _Int8Weights
from pipelines.engine.model.precision import (
    ComputePlan,
    choose_device,
    choose_threads,
    compute_plan,
)
from pipelines.engine.model.threads import ComputeThreads
from pipelines.errors import OptionError
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.rounding import int8_step

CPU = torch.device("cpu")
SPECS = ["whisper:tiny", "marian:opus-mt-en-de"]
# How far logits (of unit spread) may be from float32. int8 rounds activations to 8 bits too.
TOLERANCES = {"bfloat16": 0.1, "float16": 0.01, "int8": 0.12, "auto": 0.12}
AGREEING = 0.75  # of the choices
# For text the encoder is int8, too, and random weights have no choice by much: that translations of
# a trained model hardly change is for tests/translation/test_quality.py.
INT8_OF_TEXT, AGREEING_INT8_OF_TEXT = 0.15, 0.6


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_an_error() -> None:
    assert Engine().device == "cpu"
    for device in ("cuda", "cuda:1"):
        with pytest.raises(OptionError, match="no CUDA device.*use cpu or auto"):
            Engine(device=device)


def test_with_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("auto").type == "cuda"
    assert choose_device("cpu").type == "cpu"
    assert choose_device("cuda:0").index == 0
    with pytest.raises(OptionError, match=r"only 1 CUDA device"):
        choose_device("cuda:1")


@pytest.mark.parametrize("device", ["gpu", "tpu", "mps", "", "cuda:x"])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(OptionError, match="not one of auto, cpu, cuda"):
        Engine(device=device)


@pytest.mark.parametrize("compute_type", ["int4", "fp16", ""])
def test_unknown_precisions_fail_before_any_load(compute_type: str) -> None:
    with pytest.raises(OptionError, match="not one of auto, float32, bfloat16, float16, int8"):
        Engine(device="cpu", compute_type=compute_type)


def test_gpu_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    for can, chosen in ((True, "bfloat16"), (False, "float16")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda can=can, **_: can)
        plan = compute_plan("auto", gpu)
        assert (plan.compute_type, plan.on_gpu) == (chosen, True)
        assert plan.decoder.weight_dtype == getattr(torch, chosen)
    assert compute_plan("int8", gpu).decoder.kernel == "int8"


def test_t5_keeps_the_range_of_float32_on_a_gpu() -> None:
    gpu = torch.device("cuda")
    for compute_type in ("float16", "int8"):
        plan = compute_plan(compute_type, gpu)
        assert plan.decoder.activation_dtype == torch.float16
        assert plan.without_float16_activations().decoder.activation_dtype == torch.float32
    assert (
        compute_plan("float16", gpu).without_float16_activations().decoder.weight_dtype
        == torch.float32
    )
    exact = compute_plan("bfloat16", gpu)
    assert exact.without_float16_activations() == exact


def test_int8_weights_as_a_gpu_uses_them_stay_in_range() -> None:
    weight = torch.randn(8, 512, generator=torch.Generator().manual_seed(1)).abs()
    layer = _Int8Weights(weight, None, torch.float16, CPU)
    x = torch.full((1, 512), 5.0, dtype=torch.float16)
    torch.testing.assert_close(layer(x).float(), x.float() @ weight.T, rtol=0.02, atol=0)


def test_auto_keeps_float32_where_the_cpu_has_no_fast_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "aarch64"})
    plan = compute_plan("auto", CPU)
    assert (plan.compute_type, plan.decoder.kernel) == ("float32", "dense")
    # Asked for by name, a precision is used all the same.
    assert compute_plan("bfloat16", CPU).decoder.kernel == "dense"


def test_threads() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert cores is not None
    assert 1 <= choose_threads("auto") <= cores
    assert choose_threads(3) == 3
    for wrong in (0, -1, "many"):
        with pytest.raises(OptionError, match="at least 1"):
            choose_threads(wrong)  # type: ignore[arg-type]


def test_threads_are_set_where_the_engine_computes(checkpoints: Folders) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):
            with Engine(device="cpu", threads=threads) as engine:
                engine.load(checkpoints("marian:opus-mt-en-de"))
                assert engine.threads == torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other programs hold two of four cores."""
    before = torch.get_num_threads()
    monkeypatch.setattr(precision, "_busy_threads_elsewhere", lambda: 2)
    monkeypatch.setattr(precision.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(precision.os, "sched_getaffinity", lambda process: range(4), raising=False)
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def _threads_of(engine: Engine, model: LoadedModel) -> tuple[int, int]:
    """Threads that a model computes on: as it encodes, and in the last step."""
    encoded = model.encode([_source(model)])[0]
    encoding = torch.get_num_threads()
    options = GenerationOptions(max_new_tokens=2)
    engine.generate([Request(encoded, (model.architecture.start_id,), options)])
    return encoding, torch.get_num_threads()


@pytest.mark.usefixtures("busy_machine")
def test_kernels_take_all_cores_and_torchs_operations_those_that_are_free(
    checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "expected_isa", lambda: "avx2")
    monkeypatch.setattr(engine_module, "load_kernels", object)
    folder = checkpoints("marian:opus-mt-en-de")
    from transformers import MarianMTModel

    with Engine(device="cpu", compute_type="int8") as engine:
        compiled = engine.load(folder)
        # What the engine itself keeps busy later, and sets, counts as nobody else's.
        monkeypatch.setattr(precision, "_busy_threads_elsewhere", lambda: 3)
        torch.set_num_threads(3)
        wrapped = engine.wrap(MarianMTModel.from_pretrained(folder))
        assert engine.threads == 4
        for _ in range(2):  # by turns
            assert _threads_of(engine, compiled) == (4, 4)
            assert _threads_of(engine, wrapped) == (2, 2)
    monkeypatch.setattr(precision, "_busy_threads_elsewhere", lambda: 2)
    torch.set_num_threads(4)
    monkeypatch.setattr(engine_module, "load_kernels", lambda: None)  # the compiler failed
    with Engine(device="cpu", compute_type="int8") as engine:
        assert _threads_of(engine, engine.load(folder)) == (2, 2)
    with Engine(device="cpu", compute_type="float32") as engine:
        assert _threads_of(engine, engine.load(folder)) == (2, 2)
        assert engine.threads == 2
    with Engine(device="cpu", compute_type="int8", threads=3) as engine:
        assert _threads_of(engine, engine.load(folder)) == (3, 3)


def test_needs_compiling_is_reported_for_int8_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "needs_compiling", lambda: True)
    waits = {}
    for compute_type in ("int8", "float32"):
        with Engine(device="cpu", compute_type=compute_type) as engine:
            waits[compute_type] = engine.needs_compiling
    assert waits == {"int8": True, "float32": False}


def test_instructions_are_those_of_kernels_that_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "expected_isa", lambda: "vnni512")
    found = {}
    for compute_type in ("int8", "bfloat16", "float16", "float32"):
        with Engine(device="cpu", compute_type=compute_type, threads=1) as engine:
            found[compute_type] = engine.instructions
    assert found == {"int8": "AVX512-VNNI", "bfloat16": None, "float16": None, "float32": None}


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_int8_by_torch_is_close_to_float32(
    spec: str, checkpoints: Folders, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on machines where no kernels can be compiled."""
    monkeypatch.setattr(linear, "load_kernels", lambda: None)
    with Engine(device="cpu", compute_type="int8", threads=1) as other:
        assert other.load(checkpoints(spec)).backend.kernels == "torch's kernels"
    test_lower_precisions_are_close_to_float32(spec, "int8", checkpoints, engine)


@pytest.fixture
def no_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    able = precision._cpu_capabilities()
    monkeypatch.setattr(precision, "_cpu_capabilities", lambda: replace(able, bfloat16=False))


@pytest.mark.slow
@pytest.mark.usefixtures("no_bfloat16")
@pytest.mark.skipif(load_kernels() is None, reason="needs the compiled kernels")
def test_without_bfloat16_audio_is_encoded_in_int8(checkpoints: Folders, engine: Engine) -> None:
    spec = "whisper:tiny"
    with Engine(device="cpu", compute_type="int8", threads=1) as other:
        model = other.load(checkpoints(spec))
        assert model.backend.plan.encoder.kernel == "int8"
        windows = [
            torch.randn(80, 3_000, generator=torch.Generator().manual_seed(i)) for i in (1, 2)
        ]
        together = model.encode(windows)
        tokens = _scores(model)[1]
        for window, encoded in zip(windows, together, strict=True):
            alone = model.encode([window])[0]
            torch.testing.assert_close(model.score(alone, tokens), model.score(encoded, tokens))
    test_lower_precisions_are_close_to_float32(spec, "int8", checkpoints, engine)


@pytest.mark.usefixtures("no_bfloat16")
def test_without_kernels_and_bfloat16_audio_is_encoded_in_float32(
    checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fbgemm has one scale for all windows of a batch."""
    for module in (precision, linear):
        monkeypatch.setattr(module, "load_kernels", lambda: None)
    with Engine(device="cpu", compute_type="int8", threads=1) as other:
        plan = other.load(checkpoints("whisper:tiny")).backend.plan
        assert (plan.encoder.weight_dtype, plan.decoder.kernel) == (torch.float32, "int8")


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("compute_type", TOLERANCES)
def test_lower_precisions_are_close_to_float32(
    spec: str, compute_type: str, checkpoints: Folders, engine: Engine
) -> None:
    exact = engine.load(checkpoints(spec))
    expected, tokens = _scores(exact)
    with Engine(device="cpu", compute_type=compute_type, threads=1) as other:
        model = other.load(checkpoints(spec))
        if compute_type != "auto":
            assert model.compute_type == compute_type
        found, _ = _scores(model, tokens)
        assert torch.isfinite(found).all()
        error = float((found - expected).square().mean().sqrt())
        tolerance, agreeing = TOLERANCES[compute_type], AGREEING
        if model.backend.plan.encoder.kernel == "int8":
            tolerance, agreeing = INT8_OF_TEXT, AGREEING_INT8_OF_TEXT
        if model.backend.plan.decoder.kernel == "int8":
            tolerance, agreeing = tolerance * int8_step(), agreeing - (int8_step() - 1) / 10
        assert error < tolerance * float(expected.std())
        # Teacher-forced, so that one other choice does not make all that follow another text.
        same = (found.argmax(-1) == expected.argmax(-1)).float().mean()
        assert same > agreeing
        _check_batches(other, model)


def _scores(model: LoadedModel, tokens: list[int] | None = None) -> tuple[torch.Tensor, list[int]]:
    """Logits over a fixed sequence of tokens."""
    encoded = model.encode([_source(model)])[0]
    generator = torch.Generator().manual_seed(5)
    start = model.architecture.start_id
    tokens = tokens or [start, *torch.randint(3, 30_000, (30,), generator=generator).tolist()]
    return model.score(encoded, tokens), tokens


def _source(model: LoadedModel) -> object:
    if model.architecture.source == "audio":
        return mel_source(model)
    return token_sources(model, [14])[0]


def _check_batches(engine: Engine, model: LoadedModel) -> None:
    """Generation runs, alone and among others, and ids stay inside the vocabulary."""
    encoded = model.encode([_source(model)])[0]
    start = model.architecture.start_id
    options = GenerationOptions(
        max_new_tokens=8, logit_filters=(SuppressTokens((start,)),), logprobs=True
    )
    results = engine.generate(
        [Request(encoded, (start, *range(9, 9 + i)), options) for i in range(3)]
    )
    for result in results:
        assert len(result.tokens) == len(result.logprobs) == 8
        assert all(0 <= token < model.architecture.vocab_size for token in result.tokens)


@pytest.mark.slow
def test_int8_mostly_agrees_with_float32_on_the_bundled_translator(engine: Engine) -> None:
    from pipelines.hub import bundled_folder

    folder = bundled_folder("demo-en-de")
    exact = engine.load(folder)
    eos, pad = exact.architecture.eos_ids, exact.architecture.pad_id
    sources = [[*range(first, first + length), *eos] for first, length in _SPANS]
    options = GenerationOptions(
        max_new_tokens=16, eos_ids=eos, logit_filters=(SuppressTokens((pad,)),)
    )
    same = total = 0
    with Engine(device="cpu", compute_type="int8", threads=1) as other:
        quick = other.load(folder)
        for mine, theirs in zip(exact.encode(sources), quick.encode(sources), strict=True):
            tokens = engine.generate([Request(mine, (pad,), options)])[0].tokens
            sequence = (pad, *tokens[:-1])
            best = quick.score(theirs, sequence).clone()
            best[:, pad] = -torch.inf
            same += sum(a == b for a, b in zip(best.argmax(-1).tolist(), tokens, strict=True))
            total += len(tokens)
    assert same > 0.9 * total


_SPANS = [(10, 3), (100, 6), (300, 9), (1000, 5), (2000, 7)]


def test_out_of_gpu_memory_at_load_is_one_warning_and_the_cpu(
    checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: the device claims to be a GPU, and building there raises out of memory."""
    gpu, asked = torch.device("cuda"), []
    monkeypatch.setattr(engine_module, "choose_device", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def build(
        folder: Path, plan: ComputePlan, workers: ComputeThreads, shortlist: Sequence[int] | None
    ) -> NativeBackend:
        asked.append(plan.device.type)
        if plan.on_gpu:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return NativeBackend(folder, plan, workers, shortlist)

    monkeypatch.setattr(engine_module, "NativeBackend", build)
    with Engine(threads=1) as engine:
        assert engine.device == "cuda"
        with pytest.warns(RuntimeWarning, match="GPU out of memory.*going on with the CPU") as seen:
            model = engine.load(checkpoints("marian:opus-mt-en-de"))
        assert len(seen) == 1
        assert engine.device == model.device == "cpu"
        _check_batches(engine, model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine.load(checkpoints("marian:separate-vocabs"))
    assert asked == ["cuda", "cpu", "cpu"]


@pytest.mark.parametrize("shape", [(1100, 1024), (64, 64)], ids=["large", "small"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_torchs_int8_products_keep_nan(shape: tuple[int, int], value: float) -> None:
    """fbgemm alone turns NaN into numbers, and raises an error if all is NaN."""
    generator = torch.Generator().manual_seed(0)
    layer = _Int8(torch.randn(shape, generator=generator), torch.ones(shape[0]))
    x = torch.rand(4, shape[1], generator=generator)
    for damaged in (slice(5, 6), slice(None)):
        bad = x.clone()
        bad[1, damaged] = value
        assert torch.isfinite(layer(bad)).all(-1).tolist() == [True, False, True, True]
        assert not torch.isfinite(layer(bad[1:2])).all()
        assert layer(bad[1:2]).shape == (1, shape[0])
        # A row depends on its neighbors by their magnitude only, and zeros have none.
        without = bad.clone()
        without[1] = 0
        assert torch.equal(layer(bad)[[0, 2, 3]], layer(without)[[0, 2, 3]])


@pytest.mark.parametrize(
    ("level", "kernels", "head_dim", "kernel"),
    [
        ("vnni512", ["attend_head"], 64, "int8"),
        ("vnni512", ["attend_head"], 52, "packed"),  # attention would be torch's, in float32
        ("vnni512", [], 64, "packed"),
        ("amx", ["attend_head"], 64, "packed"),
    ],
)
def test_sound_is_encoded_in_int8_in_place_of_bfloat16_with_compiled_attention_only(
    level: str, kernels: list[str], head_dim: int, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = precision._Capabilities(packed=True, bfloat16=True, int8_by_torch=True)
    monkeypatch.setattr(precision, "_cpu_capabilities", lambda: able)
    library = KernelLibrary(level, dict.fromkeys(kernels, 0), None)
    monkeypatch.setattr(precision, "load_kernels", lambda: library)
    plan = precision.compute_plan("int8", torch.device("cpu")).for_audio_source(head_dim)
    assert plan.encoder.kernel == kernel
