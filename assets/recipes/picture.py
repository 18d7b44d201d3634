"""The README's picture: what a terminal shows after a command, as an SVG.

    python assets/recipes/picture.py --out assets/pictures/demo.svg -- edgeapp demo

Runs the command in a pseudo-terminal (through tmux, which knows what ends up on the screen).
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

NAME, FAILED = "edgeapp-picture", "the-command-failed"


def tmux(*arguments: str) -> str:
    command = ["tmux", "-L", NAME, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20, help="until the screen is taken")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    shown = shlex.join(arguments.command)
    width = str(arguments.width)
    shell = f"printf '$ %s\\n' {shlex.quote(shown)}; {shown} || echo {FAILED}; sleep 60"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", "60", shell)
    time.sleep(arguments.seconds)
    screen = tmux("capture-pane", "-e", "-p").rstrip()
    tmux("kill-server")
    if FAILED in screen:
        sys.exit(f"no picture of a command that fails:\n{screen}")
    console = Console(record=True, width=arguments.width, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(Text.from_ansi(screen))
    console.save_svg(str(arguments.out), title="EdgeApp")


if __name__ == "__main__":
    main()
