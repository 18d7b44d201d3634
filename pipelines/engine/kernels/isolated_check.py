"""Check kernels in a process of its own.

    python -m pipelines.engine.kernels.isolated_check LEVEL FILE

LEVEL is a key of `ISA_LEVELS`; FILE has the format of `code_cache.pack`. Ends with another status
than 0 if the code crashes or cannot be loaded, whatever it computes. The loader runs this first on
systems where the kernels were never tested.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.engine.kernels.code_cache import unpack
from pipelines.engine.kernels.host.self_check import wrong_kernels
from pipelines.engine.kernels.loader import link

if __name__ == "__main__":
    kernels = unpack(Path(sys.argv[2]).read_bytes())
    if kernels is None:
        raise SystemExit("the file is damaged")
    wrong_kernels(link(kernels, sys.argv[1]))
