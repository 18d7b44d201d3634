"""Rotary positions: queries and keys rotated by angles that grow with the position."""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.families.architecture import RotaryPositions


class RotaryTable:
    """Cosines and sines of the angles of all positions (Su et al. 2021).

    Args:
        rotary: which dimensions are rotated, and how fast.
        max_positions: of the longest sequence.
        dtype: of the activations.
    """

    def __init__(
        self,
        rotary: RotaryPositions,
        max_positions: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        # In float32 throughout, so that the angles round as in transformers.
        exponents = torch.arange(0, rotary.dims, 2, dtype=torch.float32) / rotary.dims
        rates = 1.0 / rotary.theta**exponents
        angles = torch.arange(max_positions, dtype=torch.float32)[:, None] * rates
        self._cosines = angles.cos().to(device, dtype)
        self._sines = angles.sin().to(device, dtype)

    def at(self, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for `rotate`.

        Args:
            positions: of the tokens: a slice, or [sequences, tokens].

        Returns:
            Two tensors [tokens, 1, 1, dims / 2], or [sequences, tokens, 1, 1, dims / 2].
        """
        cosines, sines = self._cosines[positions], self._sines[positions]
        return cosines[..., None, None, :], sines[..., None, None, :]


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> None:
    """Rotate queries and keys in place: dimensions 2i and 2i + 1 as a pair.

    Args:
        x: [sequences, tokens, any, heads, head_dim]; dimensions beyond those of `rotation` stay.
        rotation: of the tokens' positions, from `RotaryTable.at`.
    """
    cosines, sines = rotation
    dims = 2 * cosines.shape[-1]
    even, odd = x[..., 0:dims:2], x[..., 1:dims:2]
    rotated = even * cosines - odd * sines, odd * cosines + even * sines
    even.copy_(rotated[0])
    odd.copy_(rotated[1])
