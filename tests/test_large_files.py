"""Files above 1 MB are declared in assets/SHA256SUMS, and have the content that stands there.

The weights are frozen: a new binary stays in the history for ever, so it takes a line there.
`sha256sum -c assets/SHA256SUMS` checks the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMIT_BYTES = 1_000_000


def declared() -> dict[str, str]:
    """Path → SHA-256 of each declared file."""
    lines = (ROOT / "assets/SHA256SUMS").read_text("utf-8").splitlines()
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines)}


def undeclared(folder: Path, names: list[str], known: Mapping[str, str]) -> list[str]:
    """The files above the limit that no line declares."""
    paths = ((name, folder / name) for name in names if name not in known)
    return [name for name, path in paths if path.is_file() and path.stat().st_size > LIMIT_BYTES]


def test_no_large_file_is_undeclared() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = undeclared(ROOT, listed.split("\0")[:-1], declared())
    assert not found, f"above {LIMIT_BYTES} bytes and not in assets/SHA256SUMS: {', '.join(found)}"


@pytest.mark.parametrize("path", declared())
def test_a_declared_file_is_unchanged(path: str) -> None:
    assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == declared()[path]


def test_an_undeclared_large_file_is_named(tmp_path: Path) -> None:
    for name, size in (("small.bin", LIMIT_BYTES), ("new.bin", LIMIT_BYTES + 1)):
        (tmp_path / name).write_bytes(bytes(size))
    assert undeclared(tmp_path, ["small.bin", "new.bin", "gone.bin"], {}) == ["new.bin"]
    assert undeclared(tmp_path, ["new.bin"], {"new.bin": "…"}) == []
