"""The fast tests with the lowest versions that pyproject.toml allows."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from packaging.version import Version

from tests.campaign import part
from tests.campaign.part import MB, Case, Failed, Limits, Skipped
from tests.campaign.sandbox import REPOSITORY
from tests.test_requirements import lowest_versions, pins

# Those that use what has a lower bound.
TESTS = ("tests/edgeapp/server", "tests/hub/test_download.py", "tests/hub/test_download_refused.py",
         "tests/hub/test_download_interrupted.py", "tests/hub/test_resolve.py")  # fmt: skip


class Campaign(part.Part):
    """One case: a virtual environment that borrows everything else from this one."""

    name = "lowest"
    limits = Limits(3000 * MB, 16384 * MB, cpu_s=500, wall_s=560)
    once = True

    def generate(self, seed: int) -> Case:
        return Case("environment", b"")

    def sample(self) -> list[Case]:
        return []  # it takes minutes, and a package index

    def run(self, case: Case, folder: Path) -> str:
        home = folder / "environment"
        venv.create(home, with_pip=False, symlinks=True)
        python = home / "bin" / "python"
        site = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
        missing, installed = [], []
        for name, lowest in lowest_versions().items():
            if Version(lowest) == Version(pins()[name].partition("+")[0]):
                continue  # the tests always use it
            version = _install(python, name, lowest)
            (installed if version else missing).append(f"{name} {version or lowest}")
        if not installed:
            raise Skipped(f"the index has none of {', '.join(missing)}")
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        tests = [test for test in TESTS if (REPOSITORY / test).exists()]
        # The plugins of pytest that are found by themselves belong to the newer versions.
        plugins = ["-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin"]
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *plugins, *tests],
            cwd=REPOSITORY, capture_output=True, text=True,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip
        last = done.stdout.strip().rpartition("\n")[2]
        if done.returncode:
            raise Failed(f"with {', '.join(installed)}: {done.stdout[-2500:]}{done.stderr[-500:]}")
        lacks = f"; the index lacks {', '.join(missing)}" if missing else ""
        return f"{last} with {', '.join(installed)}{lacks}"


def _install(python: Path, name: str, lowest: str) -> str:
    """Install the lowest version that there is within its first two numbers; "" if none is."""
    parts = (lowest.split(".") + ["0", "0"])[:3]
    for wanted in (f"=={lowest}", f"=={'.'.join(parts)}"):
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        pip += ["--no-deps", "--disable-pip-version-check", f"{name}{wanted}"]
        if subprocess.run(pip, capture_output=True, timeout=120).returncode == 0:
            return wanted.removeprefix("==")
    return ""
