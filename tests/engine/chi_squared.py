"""Whether counts follow a distribution, without the 2 s that importing scipy.stats takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc

__all__ = ["chi_squared_p"]


def chi_squared_p(seen: ArrayLike, expected: ArrayLike) -> float:
    """The p-value of Pearson's test, that of `scipy.stats.chisquare`.

    Args:
        seen: Number of each outcome, [n].
        expected: What a distribution makes of as many draws, [n].
    """
    counts, wanted = np.asarray(seen, np.float64), np.asarray(expected, np.float64)
    statistic = float(((counts - wanted) ** 2 / wanted).sum())
    return float(chdtrc(len(counts) - 1, statistic))
