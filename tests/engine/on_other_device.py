"""A pytest plugin: engines in float32 compute on the stand-in for a GPU, by recorded passes.

python -m pytest -p tests.engine.on_other_device tests/engine/test_exact.py \
    tests/engine/decoding/sampling/test_beam_search.py tests/engine/decoding/test_speculative.py

For tests of what is generated, in one thread: others compare tensors with the CPU's own.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

from pipelines.engine import engine as engine_module
from pipelines.engine.model import decoder as decoder_module
from pipelines.engine.model.precision import ComputePlan, compute_plan
from tests.engine.other_device import OTHER, other_device
from tests.engine.recorder import OperationRecorder

_STACK = ExitStack()


def _plan_for(compute_type: str, device: torch.device) -> ComputePlan:
    exact = compute_type == "auto" and device == OTHER
    return compute_plan("float32" if exact else compute_type, device)


def pytest_sessionstart() -> None:
    patch = _STACK.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(engine_module, "choose_device", lambda device: OTHER)
    patch.setattr(engine_module, "compute_plan", _plan_for)
    patch.setattr(decoder_module, "graph_recorders", lambda device: OperationRecorder)
    _STACK.enter_context(other_device())


def pytest_sessionfinish() -> None:
    _STACK.close()
