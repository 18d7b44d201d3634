"""On a GPU, if there is one: its tokens, judged by the CPU's float32 logits."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from pipelines.engine import EncodedSource, Engine, LoadedModel, ModelDrafter, NgramDrafter, Request
from tests.engine.conftest import Folders
from tests.engine.model.test_cuda_graphs import graph_runner_of, requests_of, sources_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]

SPECS = ["marian:opus-mt-en-de", "whisper:tiny"]


@pytest.fixture(scope="module", params=["float32", "bfloat16", "float16", "int8"])
def gpu(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(device="cuda", compute_type=request.param, max_batch=4) as engine:
        yield engine


def agreement(
    exact: LoadedModel,
    encoded_sources: Sequence[EncodedSource],
    gpu: Engine,
    requests: Sequence[Request],
) -> float:
    """The share of the GPU's tokens that are the likeliest by the CPU, or nearly so: to within
    what the precision loses of random models' logits, which lie close together."""
    near = 1e-3 if gpu.models[0].compute_type == "float32" else 0.5
    same = total = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = gpu.generate(requests)
    for encoded, request, result in zip(encoded_sources, requests, results, strict=True):
        sequence = (*request.prompt, *result.tokens[:-1])
        logits = exact.score(encoded, sequence)[len(request.prompt) - 1 :]
        chosen = logits.gather(1, torch.tensor(result.tokens)[:, None])[:, 0]
        same += int((chosen >= logits.amax(1) - near * logits.std(1)).sum())
        total += len(result.tokens)
    return same / total


@pytest.mark.parametrize("spec", SPECS)
def test_tokens_are_the_likeliest_by_the_cpu(
    spec: str, gpu: Engine, engine: Engine, checkpoints: Folders
) -> None:
    """Rows join and leave, alone and with drafts; most passes are graph replays."""
    exact, model = engine.load(checkpoints(spec)), gpu.load(checkpoints(spec))
    sources = sources_of(exact)
    theirs, ours = exact.encode(sources), model.encode(sources)
    least = 1.0 if gpu.models[0].compute_type == "float32" else 0.95
    # Requests without filters: `exact.score` does not apply them.
    plain = [
        (encoded, request)
        for encoded, request in zip(theirs, requests_of(model, ours), strict=True)
        if not request.options.logit_filters
    ]
    encoded_sources, requests = zip(*plain, strict=True)
    assert agreement(exact, encoded_sources, gpu, requests) >= least
    runner = graph_runner_of(model, torch.device("cuda"))
    assert runner.enabled
    assert runner.replays > 40
    drafted = [
        Request(r.encoded, r.prompt, r.options, drafter=drafter)
        for r in requests
        for drafter in (NgramDrafter(gamma=3), ModelDrafter(model, r.encoded, gamma=2))
    ]
    doubled = [encoded for encoded in encoded_sources for _ in range(2)]
    assert agreement(exact, doubled, gpu, drafted) >= least
    assert runner.enabled


@pytest.mark.parametrize("spec", SPECS)
def test_graphs_equal_eager_passes(
    spec: str, checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, beams too."""
    found = []
    for recorded in (True, False):
        if not recorded:
            monkeypatch.setenv("EDGEAPP_KERNELS", "torch")
        with Engine(device="cuda", compute_type="float32") as engine:
            model = engine.load(checkpoints(spec))
            assert ("graphs" in model.backend.kernels) == recorded
            encoded_sources = model.encode(sources_of(model))
            requests = requests_of(model, encoded_sources)
            requests += [
                replace(request, options=replace(request.options, beam_size=3))
                for request in requests[:3]
            ]
            found.append([result.tokens for result in engine.generate(requests)])
    assert found[0] == found[1]


def test_memory_is_freed(checkpoints: Folders) -> None:
    with Engine(device="cuda", compute_type="float16") as engine:
        model = engine.load(checkpoints("whisper:tiny"))
        before = torch.cuda.memory_allocated()
        engine.generate(requests_of(model, model.encode(sources_of(model))))
        model._batch.release_caches()
        gc.collect()
        # cuBLAS keeps a workspace for the recording stream.
        assert torch.cuda.memory_allocated() - before < 40 * 2**20
