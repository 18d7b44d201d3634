"""The built wheel, in an environment of its own, away from the checkout, runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_an_installed_wheel_runs_the_demo(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    pip += ["--no-index", "--no-deps", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True, timeout=120)
    # Its dependencies are those of the tests, found by path: there is no network here. A folder
    # on the path does not bring its own .pth files along, so the checkout itself stays out.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    where = "import pipelines, edgeapp; print(pipelines.__file__, edgeapp.__file__)"
    found = subprocess.run(
        [python, "-c", where], cwd=tmp_path, env=clean, capture_output=True, text=True, check=True
    )
    assert all(str(site) in path for path in found.stdout.split()), found.stdout
    done = subprocess.run(
        [home / "bin" / "edgeapp", "demo", "-o", "subtitles"],
        cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "real-time factor" in done.stdout.splitlines()[-1]
    assert {p.name for p in (tmp_path / "subtitles").iterdir()} == {
        "talk.srt", "talk.de.srt", "talk.json",
    }  # fmt: skip
