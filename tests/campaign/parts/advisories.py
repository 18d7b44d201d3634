"""Known vulnerabilities of the tested versions and of the lowest ones that are declared.

No database is asked where none can be reached; then the list below is all that is known, and the
outcome says so. A version in it is the first without the hole.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from packaging.version import Version

from tests.campaign import part
from tests.campaign.part import Case, Failed, Limits
from tests.test_requirements import lowest_versions, pins

_OSV, _TIMEOUT_S = "https://api.osv.dev/v1/query", 10.0
_AS_OF = "2025-11"  # newer advisories are not in the list
# package: (first version without the hole, advisory)
_KNOWN: dict[str, tuple[tuple[str, str], ...]] = {
    "brotli": (("1.2.0", "CVE-2025-6176"),),
    "certifi": (("2024.7.4", "CVE-2024-39689"),),
    "fastapi": (("0.109.1", "CVE-2024-24762"),),
    "gradio": (("5.5.0", "CVE-2024-51751"), ("5.31.0", "CVE-2025-48889")),
    "h11": (("0.16.0", "CVE-2025-43859"),),
    "idna": (("3.7", "CVE-2024-3651"),),
    "jinja2": (("3.1.6", "CVE-2025-27516"),),
    "orjson": (("3.9.15", "CVE-2024-27454"),),
    "pillow": (("11.3.0", "CVE-2025-48379"),),
    "protobuf": (("6.31.1", "CVE-2025-4565"),),
    "python-multipart": (("0.0.18", "CVE-2024-53981"),),
    "requests": (("2.32.4", "CVE-2024-47081"),),
    "scikit-learn": (("1.5.0", "CVE-2024-5206"),),
    "starlette": (("0.47.2", "CVE-2025-54121"), ("0.49.1", "CVE-2025-62727")),
    "torch": (("2.6.0", "CVE-2025-32434"),),
    "tqdm": (("4.66.3", "CVE-2024-34062"),),
    "transformers": (("4.53.0", "CVE-2025-5197"),),
    "urllib3": (("2.5.0", "CVE-2025-50181"),),
    "uvicorn": (("0.11.7", "CVE-2020-7694"),),
}


class Campaign(part.Part):
    """One case: all versions. Label "offline": without asking a database."""

    name = "advisories"
    limits = Limits(wall_s=300.0)
    once = True

    def generate(self, seed: int) -> Case:
        return Case("versions", b"")

    def sample(self) -> list[Case]:
        return [Case("offline", b"")]

    def run(self, case: Case, folder: Path) -> str:
        tested = pins()
        online = None if case.label == "offline" else _osv(tested)
        found = [
            f"{name} {version} has {advisory}; {fixed} has not"
            for versions in (tested, lowest_versions())
            for name, version in versions.items()
            for fixed, advisory in _KNOWN.get(name, ())
            if Version(version) < Version(fixed)
        ]
        if found or online:
            raise Failed("; ".join([*found, *(online or ())]))
        count = sum(map(len, _KNOWN.values()))
        if online is None:
            return f"offline: {count} advisories as of {_AS_OF}; no database could be reached"
        return f"{len(tested)} versions without an advisory at osv.dev"


def _osv(versions: dict[str, str]) -> list[str] | None:
    """The advisories that osv.dev has; None where it cannot be reached."""
    found = []
    for name, version in versions.items():
        query = {"version": version, "package": {"name": name, "ecosystem": "PyPI"}}
        request = urllib.request.Request(_OSV, json.dumps(query).encode())
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                answer = json.load(response)
        except OSError:
            return None
        found += [f"{name} {version}: {entry['id']}" for entry in answer.get("vulns", ())]
    return found
