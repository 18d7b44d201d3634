"""A deprecation in the product's own code is an error in the programs that tests start, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import warnings
exec("warnings.warn('soon gone', {kind})", {{"warnings": warnings, "__name__": "{module}"}})
"""


@pytest.mark.parametrize("kind", ["DeprecationWarning", "PendingDeprecationWarning"])
@pytest.mark.parametrize(
    ("module", "fails"),
    [("edgeapp.cli", True), ("pipelines", True), ("torch.nn", False), ("edgeapps", False)],
)
def test_programs_fail_at_deprecations_of_our_own(module: str, fails: bool, kind: str) -> None:
    code = CODE.format(kind=kind, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert done.returncode == int(fails), done.stderr
    assert (f"{kind}: soon gone" in done.stderr) == fails
