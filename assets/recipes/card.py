"""Put the figures that an evaluate.py prints into a model's card.

python assets/recipes/recognition/evaluate.py … | python assets/recipes/card.py assets/models/demo
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

PLACE = re.compile(r"(<!-- figures -->\n).*(<!-- /figures -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="the folder; its README.md is the card")
    card: Path = parser.parse_args().model / "README.md"
    lines = []
    for line in sys.stdin:
        print(line, end="", flush=True)
        lines.append(line)
    text = card.read_text(encoding="utf-8")
    if not lines or not PLACE.search(text):
        sys.exit(f"no figures, or no place for them in {card}: nothing is written")
    figures = "".join(lines)
    card.write_text(PLACE.sub(lambda place: place[1] + figures + place[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
