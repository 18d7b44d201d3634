"""Live captions ask computing threads to wait politely, in time for it to have an effect."""

from __future__ import annotations

import os
import subprocess
import sys

from pipelines.hub import assets_folder

CODE = """
import os, sys
{first}
from edgeapp.sharing import share_cores
share_cores()
print(os.environ.get("OMP_WAIT_POLICY"))
"""


def policy(first: str = "", **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-c", CODE.format(first=first)]
    done = subprocess.run(
        command, env=clean | environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_threads_that_wait_sleep() -> None:
    assert policy() == "PASSIVE"


def test_whoever_has_chosen_otherwise_is_obeyed() -> None:
    assert policy(OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


def test_what_would_come_too_late_is_not_pretended() -> None:
    assert policy("import torch") == "None"


def test_live_captions_ask_before_torch_is_loaded() -> None:
    code = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch':\n"
        "            print(os.environ.get('OMP_WAIT_POLICY'))\n"
        "            raise SystemExit(0)\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from edgeapp.cli import main\n"
        "main(['live', '-m', 'demo', '--from-file', sys.argv[1]])\n"
    )
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    recording = str(assets_folder() / "samples" / "digits.flac")
    done = subprocess.run(
        [sys.executable, "-c", code, recording],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "PASSIVE", done.stderr
