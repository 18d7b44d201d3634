"""The compiled kernels: close to torch, and equal for any number of threads and other rows."""

from __future__ import annotations

import ast
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.engine import (
    EncodedSource,
    Engine,
    GenerationOptions,
    LoadedModel,
    NoRepeatNgram,
    Request,
    SuppressTokens,
)
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.kernels import code_cache, compiler, loader
from pipelines.engine.kernels.host import attention as attention_module
from pipelines.engine.kernels.host.attention import CompiledAttention, _of_thread
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.host.self_check import wrong_kernels
from pipelines.engine.kernels.isa import ISA_LEVELS
from pipelines.engine.kernels.library import KernelLibrary
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.rounding import int8_step

pytestmark = pytest.mark.skipif(
    loader.expected_isa() is None,
    reason="no kernels are compiled on machines like this one",
)
# Logits are the same bit for bit; torch's sum over the vocabulary is not. One byte more or less of
# an activation would be 1e-3.
_SUMS = 2e-6
_WRITTEN_BY_TRANSFORMERS = ("bart", "mbart", "m2m100")
FAMILIES = [
    "whisper:tiny",
    "marian:opus-mt-en-de",
    *(pytest.param(kind, marks=pytest.mark.oracle) for kind in _WRITTEN_BY_TRANSFORMERS),
]


LEVELS = (
    {
        "amx": ("amx_int8", "avx512_vnni"),
        "vnni512": ("avx512_vnni",),
        "vnni256": ("avx512_vnni", "avx512_vl"),
        "avx2": ("avx2",),
    }
    if torch.cpu.get_capabilities().get("architecture") == "x86_64"
    else {"i8mm": ("i8mm",), "dotprod": ("dot",), "neon": ("neon",)}
)


@pytest.fixture(scope="module", params=LEVELS)
def kernels(request: pytest.FixtureRequest) -> KernelLibrary:
    """The kernels of each instruction set that this CPU has."""
    level, flags = request.param, torch.cpu.get_capabilities()
    if not all(flags.get(flag) for flag in LEVELS[level]):
        pytest.skip(f"this CPU has no {level}")
    if ISA_LEVELS[level].matrix_unit and not loader.request_matrix_unit():
        pytest.skip("the system does not let this process use the matrix unit")
    place = loader._cache_path(level)
    code = code_cache.read_cached(place) or loader._compile(level, place)
    assert code is not None
    return loader.link(code, level)


@pytest.fixture(scope="module")
def folders(checkpoints: Folders, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """As `checkpoints`, with the families that transformers has to write."""
    others: dict[str, Path] = {}

    def folder(spec: str) -> Path:
        if ":" in spec:
            return checkpoints(spec)
        if spec not in others:
            from tests.engine.test_families import made

            others[spec] = tmp_path_factory.mktemp(spec)
            made(spec).save_pretrained(others[spec])
        return others[spec]

    return folder


@pytest.fixture(scope="module")
def int8_engine() -> Iterator[Engine]:
    with Engine(device="cpu", compute_type="int8", threads=2, max_batch=16) as engine:
        yield engine


def _printed(script: str, **environment: str) -> str:
    """The output of a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _load_in_a_process(folder: Path, kernels: str, **environment: str) -> str:
    script = (
        "import sys\n"
        "from pipelines.engine.kernels.loader import load_kernels, needs_compiling\n"
        "print(load_kernels() is not None, needs_compiling(), 'numba' in sys.modules)"
    )
    return _printed(script, EDGEAPP_KERNELS=kernels, XDG_CACHE_HOME=str(folder), **environment)


@pytest.mark.campaign
@pytest.mark.skipif("avx2" not in LEVELS, reason="the variable limits the instructions of x86")
def test_the_compiler_replaces_a_damaged_cache(library: KernelLibrary, tmp_path: Path) -> None:
    """The kernels are those of older CPUs. The gate compiles where the cache lacks them."""
    damaged = (
        tmp_path
        / loader._cache_path(
            "vnni256" if torch.cpu.get_capabilities().get("avx_vnni") else "avx2"
        ).name
    )
    damaged.write_bytes(loader._cache_path(library.level).read_bytes()[:-100])
    limits = {"ATEN_CPU_CAPABILITY": "avx2"}
    # The compiler is not imported by this process.
    assert _load_in_a_process(tmp_path, str(tmp_path), **limits) == "True False False"
    assert code_cache.read_cached(damaged) is not None


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (32, 8), (45, 30), (200, 129), (64, 512)])
def test_a_linear_layer_is_within_the_error_of_quantization(
    outputs: int, inputs: int, kernels: KernelLibrary
) -> None:
    generator = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator)
    layer = CompiledLinear(weight, bias, kernels)
    for rows in (1, 2, 3, 7, 8, 19, 32, 77, 110):
        x = torch.randn(rows, inputs, generator=generator) * 3 + 1
        exact = torch.nn.functional.linear(x, weight, bias)
        # Half a step of each activation, and half a step of each weight.
        step = (x.amax(1) - x.amin(1)) / kernels.quant_max / 2
        weights, numbers = weight.abs().sum(1), x.abs().sum(1)
        most = weight.abs().amax(1) / 127 / 2
        bound = step[:, None] * weights * 1.01 + numbers[:, None] * most * 1.01 + 1e-4
        assert ((layer(x) - exact).abs() <= bound).all()


@settings(max_examples=30)
@given(
    rows=st.integers(1, 20) | st.integers(20, 110),
    inputs=st.sampled_from((40, 64, 128)),
    threads=st.integers(1, 4),
    seed=st.integers(0, 2**20),
)
def test_linear_rows_are_independent(
    rows: int, inputs: int, threads: int, seed: int, library: KernelLibrary
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = CompiledLinear(torch.randn(70, inputs, generator=generator), None, library)
    x = torch.randn(rows, inputs, generator=generator)
    before = torch.get_num_threads()
    alone = torch.cat([layer(row[None]) for row in x])
    try:
        torch.set_num_threads(threads)
        assert torch.equal(layer(x), alone)
    finally:
        torch.set_num_threads(before)


def test_products_in_blocks_of_rows_are_those_of_single_rows(kernels: KernelLibrary) -> None:
    generator = torch.Generator().manual_seed(3)
    layer = CompiledLinear(torch.randn(40, 4096, generator=generator), None, kernels)
    x = torch.randn(300, 4096, generator=generator)  # more bytes than are multiplied at a time
    assert torch.equal(layer(x), torch.cat([layer(row[None]) for row in x]))


def test_torchs_own_products_are_the_same_beside_the_kernels(kernels: KernelLibrary) -> None:
    # Both may use the CPU's matrix unit, which is set up for each thread.
    generator = torch.Generator().manual_seed(4)
    weight, x = (torch.randn(70, 192, generator=generator).bfloat16() for _ in range(2))
    layer = CompiledLinear(weight, None, kernels)
    expected, ours = torch.nn.functional.linear(x, weight), layer(x)
    for _ in range(3):
        assert torch.equal(torch.nn.functional.linear(x, weight), expected)
        assert torch.equal(layer(x), ours)


def test_a_matrix_unit_that_the_system_withholds_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = {"architecture": "x86_64", "avx512_vnni": True, "amx_int8": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    request = loader.request_matrix_unit.__wrapped__
    monkeypatch.setattr(loader, "request_matrix_unit", request)  # asks anew each time
    for answer, level in ((0, "amx"), (-1, "vnni512")):
        system = SimpleNamespace(syscall=lambda *_, answer=answer: answer)
        monkeypatch.setattr(loader.ctypes, "CDLL", lambda _, system=system: system)
        assert loader.cpu_isa() == level


def test_a_level_that_computes_something_else_gives_way_to_another(
    library: KernelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = code_cache.read_cached(loader._cache_path(library.level))
    monkeypatch.setenv("EDGEAPP_KERNELS", str(tmp_path))
    monkeypatch.setattr(loader, "cpu_isa", lambda: "amx")
    monkeypatch.setattr(loader, "_compile", lambda level, path: code)
    monkeypatch.setattr(loader, "link", lambda code, level: replace(library, level=level))
    monkeypatch.setattr(
        loader, "wrong_kernels", lambda library: ["argmax"] if library.level == "amx" else []
    )
    with pytest.warns(RuntimeWarning, match="argmax .* those for AVX512-VNNI are used instead"):
        found = loader.load_kernels.__wrapped__()
    assert found is not None
    assert found.level == "vnni512"
    assert found.has("argmax")


def test_every_level_passes_the_check(kernels: KernelLibrary) -> None:
    assert wrong_kernels(kernels) == []


def _head(positions: int, kernels: KernelLibrary) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries, keys and values [positions, 3, 2 heads, 64], and attention of the second head."""
    attention = CompiledAttention.of(kernels, 64, 0.125)
    assert attention is not None
    generator = torch.Generator().manual_seed(positions)
    qkv = torch.randn(positions, 3, 2, 64, generator=generator)
    qkv[:, 0] *= 4  # some scores far below the largest
    result = torch.zeros(positions, 2, 64)
    attention(*qkv[:, :, 1].unbind(1), result[:, 1])
    assert not result[:, 0].any()
    return qkv, result[:, 1]


@pytest.mark.parametrize("positions", [1, 2, 5, 6, 7, 15, 16, 17, 63, 64, 65, 128, 501])
def test_attention_over_a_source_is_torchs(positions: int, kernels: KernelLibrary) -> None:
    qkv, result = _head(positions, kernels)
    tolerance = 5e-3 if ISA_LEVELS[kernels.level].pairs else 1e-4
    query, keys, values = qkv[None, :, :, 1].unbind(2)
    expected = torch.nn.functional.scaled_dot_product_attention(query, keys, values)[0]
    assert result.numpy() == pytest.approx(expected.numpy(), abs=tolerance)
    assert torch.equal(_head(positions, kernels)[1], result)


def test_layers_share_the_buffers_of_a_thread(kernels: KernelLibrary) -> None:
    parts = [torch.ones(40, 64) for _ in range(4)]
    for scale in (0.125, 0.25):
        attention = CompiledAttention.of(kernels, 64, scale)
        assert attention is not None
        attention(*parts)
        assert _of_thread.args.scale == scale
        assert _of_thread.args.packed_keys == attention_module._argument(40).packed_keys


def test_attention_with_scores_of_any_size(kernels: KernelLibrary) -> None:
    """Weights too small for float32 are none, and one weight may be all."""
    attention = CompiledAttention.of(kernels, 64, 1.0)
    assert attention is not None
    keys, result = torch.zeros(70, 64), torch.zeros(70, 64)
    keys[33] = 16.0  # scores of 16,384 and of 0
    values = torch.arange(70.0)[:, None].expand(70, 64).contiguous()
    attention(torch.full((70, 64), 16.0), keys, values, result)
    assert result.eq(33).all()


@pytest.mark.parametrize("bits", [14.98, 15.02, 17.0])
def test_many_small_weights_beside_a_large_one_keep_their_part(
    bits: float, kernels: KernelLibrary
) -> None:
    attention = CompiledAttention.of(kernels, 64, 1.0)
    assert attention is not None
    keys, values = torch.zeros(1500, 64), torch.ones(1500, 64)
    keys[700, 0], values[700] = bits * math.log(2), -1.0
    query = torch.zeros(1500, 64)
    query[:, 0] = 1.0
    expected = torch.nn.functional.scaled_dot_product_attention(
        query[None], keys[None], values[None], scale=1.0
    )[0]
    result = torch.empty(1500, 64)
    attention(query, keys, values, result)
    # In int16 the 255 small weights that share a scale with the large one are lost.
    assert result.numpy() == pytest.approx(expected.numpy(), abs=0.02)


def test_nan_in_a_query_or_a_key_is_kept(kernels: KernelLibrary) -> None:
    attention = CompiledAttention.of(kernels, 64, 0.125)
    assert attention is not None
    for broken in range(3):
        parts, result = [torch.ones(20, 64) for _ in range(3)], torch.zeros(20, 64)
        parts[broken][4, 9] = torch.nan
        attention(*parts, result)
        wrong = result.isnan().any(1)
        assert wrong[4] if broken == 0 else wrong.all()
        assert not (broken == 0 and wrong[5:].any())


@pytest.mark.parametrize(("rows", "inputs"), [(3, 16), (8, 64)])
def test_nan_and_infinity_are_kept(rows: int, inputs: int, kernels: KernelLibrary) -> None:
    layer = CompiledLinear(torch.ones(40, inputs), None, kernels)
    x = torch.ones(rows, inputs)
    x[1, 5], x[2, 0] = torch.nan, torch.inf
    y = layer(x)
    assert torch.isfinite(y[[0, *range(3, rows)]]).all()
    assert not torch.isfinite(y[1:3]).any()


@pytest.mark.parametrize("threads", [1, 2])
def test_no_rows_give_no_rows(kernels: KernelLibrary, threads: int) -> None:
    layer = CompiledLinear(torch.ones(40, 24), None, kernels)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert layer(torch.empty(0, 24)).shape == (0, 40)
    finally:
        torch.set_num_threads(before)


def test_a_row_of_zeros_gives_the_bias(kernels: KernelLibrary) -> None:
    bias = torch.linspace(-1, 1, 33)
    assert torch.equal(CompiledLinear(torch.ones(33, 8), bias, kernels)(torch.zeros(1, 8))[0], bias)


@settings(max_examples=30)
@given(
    rows=st.integers(1, 20) | st.integers(20, 110),
    inputs=st.sampled_from((24, 64)),
    threads=st.integers(1, 4),
    seed=st.integers(0, 2**20),
)
def test_argmax_is_that_of_all_outputs(
    rows: int, inputs: int, threads: int, seed: int, library: KernelLibrary
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(1050, inputs, generator=generator)
    weight[700:] = weight[:350]  # of equal ones the first
    layer = CompiledLinear(weight, None, library)
    x = torch.randn(rows, inputs, generator=generator)
    bias = torch.randn(350, generator=generator).repeat(3)
    bias[torch.randperm(1050, generator=generator)[:420]] = -torch.inf
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        places, values, totals = layer.argmax(x, bias, True)
    finally:
        torch.set_num_threads(before)
    # The kernels' own sum with the bias is rounded once, torch's twice.
    outputs = layer(x) + bias
    assert torch.isfinite(values).all()
    assert torch.isfinite(outputs.gather(1, places[:, None])).all()
    torch.testing.assert_close(values, outputs.amax(1), atol=1e-5, rtol=1e-6)
    own = CompiledLinear(weight, bias, library)(x)
    assert places.tolist() == own.numpy().argmax(axis=1).tolist()
    assert torch.equal(values, own.amax(1))
    torch.testing.assert_close(totals.log() + values, own.double().logsumexp(1), atol=_SUMS, rtol=0)


def test_argmax_keeps_nan_and_infinity(kernels: KernelLibrary) -> None:
    weight = torch.ones(40, 16)
    weight[7] = -2.0
    layer = CompiledLinear(weight, None, kernels)
    x = torch.linspace(-1, 1, 16).repeat(4, 1)
    x[1, 5], x[2, 0] = torch.nan, torch.inf
    places, values, _ = layer.argmax(x, layer.bias, True)
    assert torch.isfinite(values).tolist() == [True, False, False, True]
    assert values[0] == layer(x[:1]).max()
    nowhere = torch.full((40,), -torch.inf)
    assert layer.argmax(x[:1], nowhere)[1].tolist() == [-torch.inf]
    nowhere[33] = torch.nan
    places, values, _ = layer.argmax(x[:1], nowhere, True)
    assert places.tolist() == [33]
    assert values.isnan().all()


def _sources(model: LoadedModel, count: int) -> list[EncodedSource]:
    if model.architecture.source == "audio":
        return model.encode([mel_source(model, seed) for seed in range(count)])
    lengths = [3, 40, 8, 21, 60, 5][:count]
    if model.architecture.family == "marian":
        return model.encode(token_sources(model, lengths))
    return model.encode([[*(5 + 7 * i % 40 for i in range(length)), 2] for length in lengths])


def _requests(
    model: LoadedModel, encoded_sources: list[EncodedSource], **options: int
) -> list[Request]:
    start, logit_filters = (
        model.architecture.start_id,
        (SuppressTokens((model.architecture.pad_id,)),),
    )
    return [
        Request(
            encoded,
            (start, *range(10, 10 + index)),
            GenerationOptions(6 + 3 * index, logit_filters=logit_filters, logprobs=True, **options),  # type: ignore[arg-type]
        )
        for index, encoded in enumerate(encoded_sources)
    ]


def _relative_difference(some: torch.Tensor, others: torch.Tensor) -> float:
    """How far logits lie apart, as a share of how much they vary."""
    return float((some - others).abs().mean() / others.std())


@pytest.mark.parametrize("spec", FAMILIES)
def test_all_layers_in_one_call_are_those_one_by_one(
    spec: str,
    folders: Folders,
    int8_engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = int8_engine.load(folders(spec))
    backend = model.backend
    assert isinstance(backend, NativeBackend)
    assert backend._decoder._compiled is not None
    encoded = _sources(model, 2)[1]
    tokens = [model.architecture.start_id, *range(20, 45)]
    heads = [(0, 0), (model.architecture.decoder_layers - 1, 1)]
    logits, attention = model.score_with_attention(encoded, tokens, heads)
    monkeypatch.setattr(backend._decoder, "_compiled", None)
    others, weights = model.score_with_attention(encoded, tokens, heads)
    # Some activations round to the next step, and only the kernels have a bfloat16 cache.
    limit = 0.05 * int8_step()
    assert _relative_difference(logits, others) < limit
    assert (attention - weights).abs().sum(-1).mean() < limit  # of 1 for each token and head


@pytest.mark.parametrize("spec", [*FAMILIES, pytest.param("t5", marks=pytest.mark.oracle)])
def test_int8_is_near_float32(
    spec: str, folders: Folders, int8_engine: Engine, engine: Engine
) -> None:
    logits: list[torch.Tensor] = []
    for each in (int8_engine, engine):
        model = each.load(folders(spec))
        tokens = [model.architecture.start_id, *range(20, 45)]
        logits.append(model.score(_sources(model, 2)[1], tokens))
    assert _relative_difference(*logits) < 0.15 * int8_step()


@pytest.mark.slow
@pytest.mark.parametrize("spec", FAMILIES)
def test_results_do_not_depend_on_the_batch(
    spec: str, folders: Folders, int8_engine: Engine
) -> None:
    model = int8_engine.load(folders(spec))
    requests = _requests(model, _sources(model, 6))
    alone = [int8_engine.generate([request])[0] for request in requests]
    together = int8_engine.generate(requests)
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    for one, another in zip(alone, together, strict=True):
        assert another.logprobs == pytest.approx(one.logprobs, abs=_SUMS)


@pytest.mark.parametrize("shortlist", [None, (0, *range(2, 48, 3), 30)])
def test_greedy_decoding_without_logits(
    shortlist: tuple[int, ...] | None, checkpoints: Folders, int8_engine: Engine
) -> None:
    """It chooses the same tokens as with logits."""
    model = int8_engine.load(checkpoints("marian:opus-mt-en-de"), shortlist)
    encoded_sources = _sources(model, 5)
    logit_filters = (SuppressTokens((model.architecture.pad_id,)), SuppressTokens((0, 3)))
    start = (model.architecture.start_id,)
    results = []
    idle = NoRepeatNgram(50)  # needs the logits, changes none of them
    for logprobs, rule in ((False, ()), (True, ()), (True, (idle,))):
        options = GenerationOptions(20, logit_filters=(*logit_filters, *rule), logprobs=logprobs)
        asked = [Request(encoded, start, options) for encoded in encoded_sources]
        results.append(int8_engine.generate(asked))
    for plain, scored, filtered in zip(*results, strict=True):
        assert plain.tokens == scored.tokens == filtered.tokens
        assert scored.logprobs == pytest.approx(filtered.logprobs, abs=_SUMS)
    kept = set(shortlist or range(model.architecture.vocab_size))
    assert {token for result in results[0] for token in result.tokens} <= kept - {0, 3}


def _random_like(*parts: tuple[torch.Tensor, ...]) -> Iterator[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(1)
    for part in parts:
        yield tuple(torch.randn(one.shape, generator=generator).to(one.dtype) for one in part)


def test_results_do_not_depend_on_the_number_of_threads(checkpoints: Folders) -> None:
    results = []
    for threads in (1, 3):
        with Engine(device="cpu", compute_type="int8", threads=threads) as engine:
            model = engine.load(checkpoints("whisper:tiny"))
            # The same source for both: the encoder may add up in another order.
            encoded = _sources(model, 1)[0]
            encoded = EncodedSource(*_random_like(encoded.keys, encoded.values), encoded.owner)
            request = _requests(model, [encoded])[0]
            results.append(engine.generate([request])[0])
    assert results[0].tokens == results[1].tokens
    assert results[0].logprobs == pytest.approx(results[1].logprobs, abs=_SUMS)


@pytest.mark.slow
@pytest.mark.parametrize("spec", FAMILIES[:2])
def test_beams_are_those_of_single_requests(
    spec: str, checkpoints: Folders, int8_engine: Engine
) -> None:
    model = int8_engine.load(checkpoints(spec))
    encoded_sources = _sources(model, 3)
    alone = [
        int8_engine.generate([each])[0] for each in _requests(model, encoded_sources, beam_size=3)
    ]
    together = int8_engine.generate(_requests(model, encoded_sources, beam_size=3))
    assert [each.tokens for each in together] == [each.tokens for each in alone]


def test_drafts_do_not_change_tokens(checkpoints: Folders, int8_engine: Engine) -> None:
    """Several tokens in one step give the same results as one by one, in int8 too."""
    model = int8_engine.load(checkpoints("whisper:tiny"))
    encoded, start = _sources(model, 1)[0], model.architecture.start_id
    options = GenerationOptions(
        24, logit_filters=(SuppressTokens((model.architecture.pad_id,)),), logprobs=True
    )
    plain = int8_engine.generate([Request(encoded, (start,), options)])[0]
    for wrong in (0, 5, 11):
        draft = list(plain.tokens)
        draft[wrong] = (draft[wrong] + 1) % 100
        drafted = int8_engine.generate([Request(encoded, (start,), options, draft=tuple(draft))])[0]
        assert drafted.tokens == plain.tokens
        assert drafted.logprobs == pytest.approx(plain.logprobs, abs=_SUMS)


@pytest.mark.slow
def test_the_cache_can_grow_while_a_request_runs(checkpoints: Folders, int8_engine: Engine) -> None:
    model = int8_engine.load(checkpoints("marian:opus-mt-en-de"))
    encoded_sources = _sources(model, 3)
    options = GenerationOptions(
        100, eos_ids=(), logit_filters=(SuppressTokens((model.architecture.pad_id,)),)
    )
    start = (model.architecture.start_id,)
    long = int8_engine.generate([Request(encoded_sources[0], start, options)])[0]
    streams = [int8_engine.stream(Request(encoded, start, options)) for encoded in encoded_sources]
    assert streams[0].result().tokens == long.tokens
    assert all(len(stream.result().tokens) == 100 for stream in streams)


@pytest.fixture(scope="module")
def printed_after_loading() -> list[str]:
    """What a new process prints that loads the kernels: KB of libllvmlite that it has read, and a
    number that Numba computes there."""
    script = (
        "from pipelines.engine.kernels.loader import load_kernels\n"
        "assert load_kernels() is not None\n"
        "code = 0\n"
        "for line in open('/proc/self/smaps'):\n"
        "    if ' r-xp ' in line or ' r--p ' in line or ' rw-p ' in line:\n"
        "        ours = 'libllvmlite' in line\n"
        "    elif line.startswith('Rss:') and ours:\n"
        "        code += int(line.split()[1])\n"
        "import llvmlite.binding as llvm\n"
        "llvm.parse_assembly('')\n"  # it can still be used
        "print(code)\n"
        "import numba, numpy\n"
        "@numba.njit\n"
        "def total(count):\n"
        "    return numpy.ones(count).sum()\n"
        "print(total(1000))"
    )
    return _printed(script).splitlines()


@pytest.mark.slow
def test_numba_still_works_in_the_same_process(printed_after_loading: list[str]) -> None:
    """Both add symbols to LLVM, where they belong to the whole process."""
    assert printed_after_loading[1] == "1000.0"


@pytest.mark.slow
def test_the_pages_of_llvm_are_dropped_after_linking(printed_after_loading: list[str]) -> None:
    # KB; 46,000 if all pages are kept, 10,000 to 20,000 if the constants are. How many pages the
    # kernel maps around one that is read depends on how the file lies in its cache.
    assert int(printed_after_loading[0]) < 8_000


def test_kernels_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEAPP_KERNELS", "torch")
    # Neither the compiler nor the linker is imported.
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    assert loader.load_kernels.__wrapped__() is None
    assert not loader.needs_compiling()


def test_the_cache_key_covers_all_that_the_compiler_imports() -> None:
    """A source that is missing from the key would leave stale machine code in the cache."""
    sources = loader._sources()
    kernels = Path(loader.__file__).parent
    assert {kernels / "build.py", *(kernels / "device").glob("[!_]*.py")} <= set(sources)
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None
                assert not node.level, "relative imports are not followed"
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                file = kernels.parents[2].joinpath(*name.split(".")).with_suffix(".py")
                assert not file.is_file() or file in sources, f"{source} imports {name}"


def test_a_changed_source_changes_the_cache_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "device.py"
    source.write_text("a = 1")
    monkeypatch.setattr(loader, "_sources", lambda: [source])
    before = loader._cache_key.__wrapped__()
    assert loader._cache_key.__wrapped__() == before
    source.write_text("a = 2")
    assert loader._cache_key.__wrapped__() != before


@pytest.fixture
def compiled(library: KernelLibrary, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each run of the compiler, which is replaced by a copy of what it made earlier."""
    content, runs = loader._cache_path(library.level).read_bytes(), list[bytes]()

    def run(level: str, output: Path, errors: Path, environment: Mapping[str, str]) -> int:
        runs.append(content)
        assert level == library.level
        output.write_bytes(content)
        errors.write_bytes(b"")
        return 0

    monkeypatch.setattr(loader, "_run_compiler", run)
    return runs


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a script that takes the place of the compiler; its arguments are the same."""
    script, real = tmp_path / "stand_in.py", subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        assert command[1:3] == ["-m", "pipelines.engine.kernels.compiler"]
        return real([command[0], str(script), *command[3:]], **options)

    monkeypatch.setattr(loader.subprocess, "Popen", popen)
    return script


def test_the_progress_of_the_compiler_is_reported(
    library: KernelLibrary, stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = loader._cache_path(library.level)
    stand_in.write_text(
        "import shutil, sys\n"
        "for done in range(1, 4):\n"
        "    print(done, 3, flush=True)\n"
        f"shutil.copyfile({str(whole)!r}, sys.argv[2])"
    )
    heard: list[loader.CompileProgress] = []
    with Engine(device="cpu", compute_type="int8", threads=1) as engine:
        engine.report_compiling_to(heard.append)
        try:
            assert _load(tmp_path / "kernels", monkeypatch) is not None
        finally:
            engine.report_compiling_to(None)
    assert [(each.done, each.total) for each in heard] == [(1, 3), (2, 3), (3, 3)]
    times = [each.elapsed_s for each in heard]
    assert times == sorted(times)


def test_a_compiler_that_fails_is_named_with_its_reason(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.write_text("import sys; print(1, 3); sys.exit('no room for code')")
    with pytest.warns(RuntimeWarning, match="could not be compiled.*: no room for code"):
        _load(tmp_path / "kernels", monkeypatch)


def test_the_compiler_lets_others_go_first() -> None:
    """It takes a lower priority before it looks at what to compile: here, at an unknown level."""
    script = (
        "import os, sys\n"
        "os.nice = print\n"
        "sys.argv = ['compiler', 'no level', 'no file']\n"
        "from pipelines.engine.kernels.compiler import main\n"
        "try:\n"
        "    main()\n"
        "except KeyError as error:\n"
        "    print(error)"
    )
    assert _printed(script).splitlines() == ["10", "'no level'"]


def test_the_compiler_counts_functions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numba

    @numba.njit
    def inner(a: int) -> int:
        return a + 1

    @numba.njit
    def outer(a: int) -> int:
        return int(inner(a))

    module = ModuleType("device_of_this_test.functions")
    module.inner, module.outer = inner, outer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(compiler, "_DEVICE", "device_of_this_test.")
    with compiler.progress_on_stdout():
        outer(1)
    assert capsys.readouterr().out.splitlines() == ["1 2", "2 2"]


def _load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> KernelLibrary | None:
    """As a new process with this cache folder."""
    monkeypatch.setenv("EDGEAPP_KERNELS", str(folder))
    return loader.load_kernels.__wrapped__()


def test_compiled_kernels_are_kept(
    compiled: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels"
    monkeypatch.setenv("EDGEAPP_KERNELS", str(folder))
    assert (loader.needs_compiling(), loader.cache_is_writable()) == (True, True)
    assert not folder.exists()
    assert _load(folder, monkeypatch) is not None
    assert not loader.needs_compiling()
    assert _load(folder, monkeypatch) is not None
    assert len(compiled) == 1


def test_a_damaged_cache_is_compiled_anew(
    compiled: list[bytes],
    library: KernelLibrary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)  # the compiler is imported by another process
    whole = loader._cache_path(library.level)
    damaged = tmp_path / whole.name
    damaged.write_bytes(whole.read_bytes()[:-100])
    assert _load(tmp_path, monkeypatch) is not None
    assert len(compiled) == 1
    assert code_cache.read_cached(damaged) is not None
    assert not loader.needs_compiling()


def test_kernels_work_where_they_cannot_be_kept(
    compiled: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    for count in (1, 2):
        assert _load(tmp_path / "file" / "kernels", monkeypatch) is not None
        assert (loader.needs_compiling(), loader.cache_is_writable()) == (True, False)
        assert len(compiled) == count


def test_kernels_in_a_folder_that_others_can_write_are_not_run(
    compiled: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _load(tmp_path, monkeypatch) is not None
    tmp_path.chmod(0o777)
    assert (loader.needs_compiling(), loader.cache_is_writable()) == (True, False)
    with pytest.warns(RuntimeWarning, match="not kept in .*: other users can write to it"):
        assert _load(tmp_path, monkeypatch) is not None
    assert len(compiled) == 2
