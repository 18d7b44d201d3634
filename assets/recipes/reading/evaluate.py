"""Character error rates of the bundled reader, read the way the program reads.

    python assets/recipes/reading/render.py --data ../shared/data --out $RUN/lines
    python assets/recipes/reading/evaluate.py --lines $RUN/lines --model assets/models/reader

Runs `edgeapp read` on the pictures of each kind that render.py drew, of faces that the training
never saw: clean print, and scanned-like noise. Each picture is one line, and read whole; of clean
print the line is also found first, as on a page. Upper and lower case, punctuation and spaces
count. The table goes to the standard output, for assets/recipes/card.py; examples to the other one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import jiwer

KINDS = (
    ("clean", "whole", "clean print, faces never seen"),
    ("clean", "find", "the same, the line found in its picture"),
    ("scanned", "whole", "scanned-like noise, faces never seen"),
)


def read(folder: Path, model: Path, lines: str) -> dict[str, str]:
    """What `edgeapp read` reads in each picture of a folder."""
    command = [
        sys.executable, "-m", "edgeapp", "read", str(folder), "-m", str(model),
        "--lines", lines, "--format", "json",
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        Path(record["file"]).name: "\n".join(line["text"] for line in record["lines"])
        for record in records
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=Path, required=True, help="what render.py wrote")
    parser.add_argument("--model", type=Path, required=True, help="what export.py wrote")
    parser.add_argument("--show", type=int, default=5, help="errors of each kind to print")
    arguments = parser.parse_args()
    print("| what | lines | characters | character error rate | lines without an error |")
    print("|---|---|---|---|---|")
    for kind, lines, what in KINDS:
        folder = arguments.lines / kind
        texts: dict[str, str] = json.loads((folder / "lines.json").read_text(encoding="utf-8"))
        ours = read(folder, arguments.model, lines)
        wrong = {name: text for name, text in texts.items() if ours[name] != text}
        rate = 100 * jiwer.cer([*texts.values()], [ours[name] for name in texts])
        characters = sum(map(len, texts.values()))
        right = len(texts) - len(wrong)
        print(f"| {what} | {len(texts)} | {characters} | {rate:.1f} % | {right} |", flush=True)
        for name, text in [*wrong.items()][: arguments.show]:
            print(f"    {kind}/{name}: {text} → {ours[name]}", file=sys.stderr)
    print()
    print("Greedy, by `edgeapp read`. Measured by `assets/recipes/reading/evaluate.py`.")


if __name__ == "__main__":
    main()
