"""The compiled kernels: close to torch, and equal for any number of threads and other rows."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
from pipelines.engine.kernels import code_cache, loader
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.library import KernelLibrary
from tests.engine.conftest import Folders, mel_source, token_sources

pytestmark = pytest.mark.skipif(
    loader._isa_level() is None or loader._runtime() is None,
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


LEVELS = {"vnni512": ("avx512_vnni",), "vnni256": ("avx512_vnni", "avx512_vl"), "avx2": ("avx2",)}


@pytest.fixture(scope="module", params=LEVELS)
def kernels(request: pytest.FixtureRequest) -> KernelLibrary:
    """The kernels of each instruction set that this CPU has."""
    level, flags = request.param, torch.cpu.get_capabilities()
    if not all(flags.get(flag) for flag in LEVELS[level]):
        pytest.skip(f"this CPU has no {level}")
    place = loader._cache_path(level)
    code = code_cache.read_cached(place) or loader._compile(level, place)
    assert code is not None
    return loader._link(code, level, loader._runtime())


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


@pytest.mark.slow
def test_a_damaged_cache_is_compiled_anew(library: KernelLibrary, tmp_path: Path) -> None:
    """Compiled are the kernels of older CPUs, for the tests below too if the cache lacks them."""
    kept = loader._cache_path("vnni256" if torch.cpu.get_capabilities().get("avx_vnni") else "avx2")
    folder = kept.parent if code_cache.read_cached(kept) is None else tmp_path
    damaged = folder / kept.name
    damaged.write_bytes(loader._cache_path(library.level).read_bytes()[:-100])
    limits = {"ATEN_CPU_CAPABILITY": "avx2"}
    # The compiler is not imported by this process.
    assert _load_in_a_process(tmp_path, str(folder), **limits) == "True False False"
    assert code_cache.read_cached(damaged) is not None


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (32, 8), (45, 30), (200, 129), (64, 512)])
def test_a_linear_layer_is_within_the_error_of_quantization(
    outputs: int, inputs: int, kernels: KernelLibrary
) -> None:
    generator = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator)
    layer = CompiledLinear(weight, bias, kernels)
    for rows in (1, 2, 3, 7, 8, 19):
        x = torch.randn(rows, inputs, generator=generator) * 3 + 1
        exact = torch.nn.functional.linear(x, weight, bias)
        # Half a step of each activation, and half a step of each weight.
        step = (x.amax(1) - x.amin(1)) / kernels.quant_max / 2
        weights, numbers = weight.abs().sum(1), x.abs().sum(1)
        most = weight.abs().amax(1) / 127 / 2
        bound = step[:, None] * weights * 1.01 + numbers[:, None] * most * 1.01 + 1e-4
        assert ((layer(x) - exact).abs() <= bound).all()


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 20), threads=st.integers(1, 4), seed=st.integers(0, 2**20))
def test_linear_rows_are_independent(
    rows: int, threads: int, seed: int, library: KernelLibrary
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = CompiledLinear(torch.randn(70, 40, generator=generator), None, library)
    x = torch.randn(rows, 40, generator=generator)
    before = torch.get_num_threads()
    alone = torch.cat([layer(row[None]) for row in x])
    try:
        torch.set_num_threads(threads)
        assert torch.equal(layer(x), alone)
    finally:
        torch.set_num_threads(before)


def test_nan_and_infinity_are_kept(kernels: KernelLibrary) -> None:
    layer = CompiledLinear(torch.ones(40, 16), None, kernels)
    x = torch.ones(3, 16)
    x[1, 5], x[2, 0] = torch.nan, torch.inf
    y = layer(x)
    assert torch.isfinite(y[0]).all()
    assert not torch.isfinite(y[1:]).any()


def test_a_row_of_zeros_gives_the_bias(kernels: KernelLibrary) -> None:
    bias = torch.linspace(-1, 1, 33)
    assert torch.equal(CompiledLinear(torch.ones(33, 8), bias, kernels)(torch.zeros(1, 8))[0], bias)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 20), threads=st.integers(1, 4), seed=st.integers(0, 2**20))
def test_argmax_is_that_of_all_outputs(
    rows: int, threads: int, seed: int, library: KernelLibrary
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(150, 24, generator=generator)
    weight[100:] = weight[:50]  # of equal ones the first
    layer = CompiledLinear(weight, None, library)
    x = torch.randn(rows, 24, generator=generator)
    bias = torch.randn(50, generator=generator).repeat(3)
    bias[torch.randperm(150, generator=generator)[:60]] = -torch.inf
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
    spec: str, folders: Folders, int8_engine: Engine, monkeypatch: pytest.MonkeyPatch
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
    # Some activations round to the next uint8, and only the kernels have a bfloat16 cache.
    assert _relative_difference(logits, others) < 0.05
    assert (attention - weights).abs().sum(-1).mean() < 0.05  # of 1 for each token and head


@pytest.mark.parametrize("spec", [*FAMILIES, pytest.param("t5", marks=pytest.mark.oracle)])
def test_int8_is_near_float32(
    spec: str, folders: Folders, int8_engine: Engine, engine: Engine
) -> None:
    logits: list[torch.Tensor] = []
    for each in (int8_engine, engine):
        model = each.load(folders(spec))
        tokens = [model.architecture.start_id, *range(20, 45)]
        logits.append(model.score(_sources(model, 2)[1], tokens))
    assert _relative_difference(*logits) < 0.15


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
    assert int(printed_after_loading[0]) < 20_000  # KB; 46,000 otherwise


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

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        runs.append(content)
        Path(command[-1]).write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(loader.subprocess, "run", run)
    return runs


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
