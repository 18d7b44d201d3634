"""An unloaded model leaves no weights in memory, whatever it did before and who still holds it."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, LoadedModel, Request, Stream
from pipelines.engine.kernels.loader import load_kernels
from tests.engine.conftest import Folders, token_sources


def _tensor_bytes() -> int:
    """Bytes of all tensors of this process."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other tests' objects, which are only looked at
        tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
        plain = [each.untyped_storage() for each in tensors if each.layout is torch.strided]
        packed = [each for each in tensors if each.layout is not torch.strided]  # by oneDNN
        return sum(dict(map(_place, plain)).values()) + sum(
            each.numel() * each.element_size() for each in packed
        )


def _place(storage: torch.UntypedStorage) -> tuple[int, int]:
    """Address and bytes of a storage: none where an export only traced it."""
    try:
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:  # torch refuses the address of a storage without memory
        return 0, 0


def _decode(engine: Engine, model: LoadedModel) -> Stream:
    """Generate one output to its end, and begin another."""
    requests = [
        Request(encoded, (model.architecture.start_id,), GenerationOptions(max_new_tokens=4))
        for encoded in model.encode(token_sources(model, [4, 5]))
    ]
    engine.generate(requests[:1])
    stream = engine.stream(requests[1])
    next(stream)
    return stream


@pytest.mark.parametrize("end", ["unload", "close"])
@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_a_model_that_has_decoded_frees_its_weights(
    checkpoints: Folders, compute_type: str, end: str
) -> None:
    load_kernels()
    with Engine(device="cpu", compute_type=compute_type, threads=1) as engine:
        before = _tensor_bytes()
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        weights = _tensor_bytes() - before
        stream = _decode(engine, model)
        engine.unload(model) if end == "unload" else engine.close()
        del stream
        assert _tensor_bytes() - before < weights / 50  # tables that are kept for later models


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_the_process_shrinks(checkpoints: Folders) -> None:
    """A model of a true shape, of which the process keeps at most a quarter."""
    script = f"""
import torch
from pipelines.engine import Engine
from tests.engine.test_unload import _decode
from edgeapp.process_memory import memory_in_use
engine = Engine(device="cpu", compute_type="float32", threads=1)
small = engine.load({str(checkpoints("marian:opus-mt-en-de"))!r})
_decode(engine, small).cancel()
before = memory_in_use()
model = engine.load({str(checkpoints("marian:opus-mt-en-de!"))!r})
_decode(engine, model).cancel()
loaded = memory_in_use()
engine.unload(model)
print(before, loaded, memory_in_use())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    before, loaded, unloaded = map(int, done.stdout.split())
    assert loaded - before > 200 << 20
    assert unloaded - before < (loaded - before) / 4
