"""Linear layers: one that oneDNN computes, whose kernels stay in memory for ever."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.nn import functional

from edgeapp.process_memory import memory_in_use
from pipelines.engine.model.linear import make_linear
from pipelines.engine.model.precision import StackPrecision

PACKED = StackPrecision("packed", torch.float32, torch.float32)
pytestmark = pytest.mark.skipif(not torch._C._has_mkldnn, reason="torch is without oneDNN")


@pytest.mark.parametrize("shape", [(1,), (5,), (16,), (17,), (3, 11), (2, 5, 10)])
def test_any_number_of_rows(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(48, 32, generator=generator), torch.randn(48, generator=generator)
    layer = make_linear(weight, bias, PACKED, torch.device("cpu"))
    rows = torch.randn(*shape, 32, generator=generator)
    found = layer(rows)
    torch.testing.assert_close(found, functional.linear(rows, weight, bias))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_batches_of_any_size_share_kernels() -> None:
    layer = make_linear(torch.zeros(64, 64), torch.zeros(64), PACKED, torch.device("cpu"))
    before = memory_in_use()
    for rows in range(1, 601):
        assert layer(torch.zeros(rows, 64)).shape == (rows, 64)
    assert memory_in_use() - before < 100 << 20  # one kernel for each number: 330 MB
