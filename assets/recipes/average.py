"""Average the weights of several exports of one training run: fewer errors than each alone has.

    python assets/recipes/average.py EXPORT EXPORT … --out assets/models/demo

Everything but the weights is that of the first. Source: Izmailov et al. 2018, Averaging Weights
Leads to Wider Optima and Better Generalization.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("exports", type=Path, nargs="+", help="folders that export.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    weights = [load_file(folder / "model.safetensors") for folder in arguments.exports]
    mean = {
        name: (sum(each[name].float() for each in weights) / len(weights)).half().contiguous()
        for name in weights[0]
    }
    shutil.copytree(arguments.exports[0], arguments.out)
    save_file(mean, arguments.out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
