"""The built wheel has all that ships, and runs in an environment of its own, in another folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=400)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_all_that_ships(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = {
        path.relative_to(ROOT).as_posix()
        for package in ("edgeapp", "pipelines")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"pipelines/py.typed", "edgeapp/ui/static/live.js"} <= files
    for folder in ("models", "samples"):
        for path in (ROOT / "assets" / folder).rglob("*"):
            if path.is_file():
                files.add("pipelines/" + path.relative_to(ROOT).as_posix())
    assert files <= names, sorted(files - names)
    rest = {name for name in names - files if ".dist-info/" not in name}
    assert {name.split("/data/")[-1] for name in rest} == {
        "share/applications/edgeapp.desktop",
        "share/icons/hicolor/192x192/apps/edgeapp.png",
        "share/icons/hicolor/scalable/apps/edgeapp.svg",
        "share/man/man1/edgeapp.1",
    }


def test_its_metadata_names_all_licenses(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
        licenses = set(metadata.get_all("License-File"))
        present = {n.partition("/licenses/")[2] for n in archive.namelist()}
    models = sorted(path.name for path in (ROOT / "assets/models").iterdir())
    expected = {"LICENSE", *(f"assets/models/{model}/LICENSE" for model in models)}
    font = "edgeapp/ui/static/fonts/LICENSE"  # there after assets/packaging/font.py
    assert licenses == expected | ({font} if (ROOT / font).is_file() else set())
    assert licenses <= present
    for model in models:
        card = (ROOT / "assets/models" / model / "README.md").read_text("utf-8")
        (stated,) = (line for line in card.splitlines() if line.startswith("license: "))
        assert stated.removeprefix("license: ") in metadata["License-Expression"].lower()


def test_an_installed_wheel_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    pip += ["--no-index", "--no-deps", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True, timeout=400)
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
        cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "real-time factor" in done.stdout.splitlines()[-1]
    assert {p.name for p in (tmp_path / "subtitles").iterdir()} == {
        "talk.srt", "talk.de.srt", "talk.json",
    }  # fmt: skip
    assert (home / "share/man/man1/edgeapp.1").is_file()
