"""Kernels of other versions are removed from the cache once they are no longer used."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pipelines.engine.kernels.code_cache import remove_outdated, write_cached

DAY_S = 24 * 3600


def test_files_of_other_versions(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    path = folder / f"avx2-{'0' * 16}.kernels"
    assert write_cached(path, b"new")
    ages = {
        f"avx2-{'1' * 16}.kernels": (40, False),
        f"vnni512-{'2' * 16}.kernels": (40, False),
        f"avx2-{'3' * 16}.kernels": (3, True),
        f".avx2-{'0' * 16}.kernels.12.0123abcd": (1, False),
        f".avx2-{'0' * 16}.kernels.13.0123abcd": (0, True),
        "notes.kernels": (400, True),
        "other.txt": (400, True),
    }
    for name, (days, _) in ages.items():
        (folder / name).write_text("old")
        then = time.time() - days * DAY_S - 60
        os.utime(folder / name, (then, then))
    (folder / f"avx2-{'4' * 16}.kernels").mkdir()
    os.utime(path, (0, 0))
    remove_outdated(path)
    kept = {name for name, (_, kept) in ages.items() if kept}
    assert {p.name for p in folder.iterdir()} == kept | {path.name, f"avx2-{'4' * 16}.kernels"}


def test_a_folder_that_others_can_write_is_left(tmp_path: Path) -> None:
    old = tmp_path / f"avx2-{'1' * 16}.kernels"
    old.touch()
    os.utime(old, (0, 0))
    tmp_path.chmod(0o777)
    remove_outdated(tmp_path / f"avx2-{'0' * 16}.kernels")
    assert old.exists()
