"""Computing threads sleep while they wait, wherever the library is used from."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW = "\nprint(os.environ.get('OMP_WAIT_POLICY'))"


def policy(code: str, **environment: str) -> str:
    """What OMP_WAIT_POLICY is after `code` ran in a fresh process."""
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    clean = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", f"import os\n{code}{SHOW}"],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module", ["pipelines", "pipelines.engine", "pipelines.hub", "edgeapp.cli"]
)
def test_threads_sleep_by_default(module: str) -> None:
    # torch itself is kept out: what counts is that the setting is there when it would be loaded.
    stop = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch':\n"
        "            raise ImportError('stopped')\n"
        "sys.meta_path.insert(0, Stop())\n"
    )
    assert policy(f"{stop}try:\n    import {module}\nexcept ImportError:\n    pass") == "PASSIVE"


def test_the_user_may_choose_otherwise() -> None:
    assert policy("import pipelines", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"
    assert policy("import pipelines", GOMP_SPINCOUNT="1000") == "None"


@pytest.mark.slow
def test_nothing_is_set_when_torch_has_read_it_already() -> None:
    assert policy("import torch, pipelines") == "None"
