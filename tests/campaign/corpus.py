"""The corpus: small inputs that once failed, in tests/corpus/PART/LABEL-DIGEST."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.campaign.part import Case
from tests.campaign.sandbox import REPOSITORY

__all__ = ["CORPUS", "kept_cases", "keep"]

CORPUS = REPOSITORY / "tests" / "corpus"


def kept_cases(part: str) -> list[Case]:
    """The cases of a part, by name."""
    files = sorted((CORPUS / part).glob("*-*"))
    return [Case(file.name.rpartition("-")[0], file.read_bytes()) for file in files]


def keep(part: str, case: Case) -> Path:
    """Store a case; the same one is stored once."""
    digest = hashlib.sha256(case.data).hexdigest()[:8]
    path = CORPUS / part / f"{case.label}-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case.data)
    return path
