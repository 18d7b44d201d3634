"""Install torch: the build for CPUs on a Linux machine without an NVIDIA GPU.

    python assets/packaging/install_torch.py -c constraints.txt [--build auto|cpu|default]

On Linux, the torch of the Python Package Index brings the CUDA libraries: several GB, of no use
without a GPU. PyTorch's own index has the build for CPUs. Standard library only: this runs before
anything is installed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def main(arguments: Sequence[str] | None = None) -> int:
    """Install torch into the environment of this Python.

    Args:
        arguments: Command-line arguments; None takes those of the process.

    Returns:
        pip's exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-c", "--constraint", type=Path, required=True, help="pins torch")
    parser.add_argument("--build", choices=("auto", "cpu", "default"), default="auto")
    chosen = parser.parse_args(arguments)
    build = chosen.build
    if build == "auto":
        build = "default" if sys.platform != "linux" or has_gpu() else "cpu"
    pinned = ["-c", str(chosen.constraint)]
    return install(
        build, pinned_version(chosen.constraint), lambda args, quiet: pip([*pinned, *args], quiet)
    )


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU with its driver."""
    if Path("/dev/nvidia0").exists():
        return True
    if not (command := shutil.which("nvidia-smi")):  # in WSL there is no /dev/nvidia0
        return False
    listed = subprocess.run([command, "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout


def pinned_version(constraints: Path) -> str:
    """The version of torch in a constraints file.

    Raises:
        SystemExit: The file does not pin torch.
    """
    found = re.search(r"^torch==([^\s+;]+)", constraints.read_text("utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"{constraints} does not pin torch; add a line such as torch==2.13.0")
    return found[1]


def install(build: str, version: str, run: Callable[[Sequence[str], bool], int]) -> int:
    """Install one build of torch.

    Args:
        build: "cpu", or "default" for what the configured indexes have.
        version: Such as "2.13.0".
        run: Calls pip with arguments, and quietly where its errors are expected; returns its code.

    Returns:
        pip's exit code.
    """
    if build == "cpu":
        cpu = f"torch=={version}+cpu"
        # The configured indexes and folders first: a mirror or a wheelhouse may have it.
        if run([cpu], True) == 0:
            return 0
        once = ["--retries", "1", "--timeout", "15"]
        if run([cpu, "--extra-index-url", CPU_INDEX, *once], True) == 0:
            return 0
        print(
            f"torch {version} for CPUs is on no configured index, and {CPU_INDEX} cannot be used; "
            "installing the default build, which may bring several GB of CUDA libraries",
            file=sys.stderr,
        )
    return run([f"torch=={version}"], False)


def pip(arguments: Sequence[str], quiet: bool) -> int:
    """Run `pip install`, its errors hidden if `quiet`; return its exit code."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    errors = subprocess.DEVNULL if quiet else None
    return subprocess.run([*command, *arguments], stderr=errors, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
