"""Temporary folders of killed runs are removed by the next one; those of living runs are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edgeapp.temporary_folders import make_temporary_folder, remove_abandoned_folders

_RUN = """
import sys
from edgeapp.temporary_folders import make_temporary_folder
print(make_temporary_folder("test"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def start() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_killed_run(folder: Path) -> None:
    killed, abandoned = start()
    living, used = start()
    try:
        (abandoned / "upload").write_text("secret")
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        own = make_temporary_folder("test")
        assert set(folder.iterdir()) == {used, own}
        assert own.stat().st_mode & 0o777 == 0o700
        remove_abandoned_folders()
        assert set(folder.iterdir()) == {used, own}
    finally:
        living.communicate("")


def test_foreign_names_and_links_are_left(folder: Path) -> None:
    (folder / "edgeapp-notes").mkdir()
    (folder / "target").mkdir()
    (folder / "target" / ".lock").touch()
    (folder / "edgeapp-run-link").symlink_to(folder / "target")
    (folder / "edgeapp-run-file").touch()
    (folder / "edgeapp-run-new").mkdir()  # its run has not made the lock yet
    (folder / "edgeapp-run-old").mkdir()
    os.utime(folder / "edgeapp-run-old", (0, 0))
    before = set(folder.iterdir())
    remove_abandoned_folders()
    assert set(folder.iterdir()) == before - {folder / "edgeapp-run-old"}
    assert (folder / "target" / ".lock").exists()
