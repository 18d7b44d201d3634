"""Instructions of the inner loops of the ARM kernels, counted in LLVM's assembly.

`python -m tests.benchmarks.arm_instructions` runs on any machine and prints a table in Markdown:
instructions for 1,000 products of an activation and a weight. Nothing is timed. For comparison: a
multiplication of float32 vectors takes 250 `fmla`, and with one row 250 loaded vectors of weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.engine.kernels.abi import PANEL_OUTPUTS
from pipelines.engine.kernels.isa import ISA_LEVELS
from tests.engine.kernels.cross_compile import tile_assembly

__all__ = ["main"]

_MULTIPLY = ("sdot", "usdot", "usmmla", "smull", "addp", "sadalp")


def _loops(lines: Sequence[str]) -> list[list[str]]:
    """The instructions of each block that ends with a branch to its own label."""
    loops: list[list[str]] = []
    label, block = "", list[str]()
    for line in lines:
        words = line.split()
        if line.startswith(".L"):
            label, block = line.partition(":")[0], []
        elif line.startswith("\t") and not words[0].startswith("."):
            block.append(words[0])
            if words[0].startswith(("b.", "cbnz")) and words[-1] == label:
                loops.append(block)
                block = []
    return loops


def _per_thousand(level: str, rows: int) -> tuple[float, float]:
    """All instructions, and those that multiply or add, for 1,000 products."""
    isa = ISA_LEVELS[level]
    # All loops of a tile multiply as many inputs at a time, and the whole panel together.
    loops = _loops(tile_assembly(level, rows))
    inputs = isa.group_inputs * (1 if isa.group_inputs == 8 else 2)
    products = rows * PANEL_OUTPUTS * inputs
    every = [name for loop in loops for name in loop]
    return (
        1000 * len(every) / products,
        1000 * sum(name.rstrip("2") in _MULTIPLY for name in every) / products,
    )


def main() -> None:
    """Print the table."""
    rows = (1, 2, 4, 8)
    print("| instructions |", " | ".join(f"{count} row{'s' * (count > 1)}" for count in rows), "|")
    print("|---|" + "--:|" * len(rows))
    for level, isa in ISA_LEVELS.items():
        if isa.cpu == "generic":
            counts = [_per_thousand(level, count) for count in rows]
            cells = [f"{every:.0f} ({multiply:.0f})" for every, multiply in counts]
            print(f"| {isa.name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
