"""Runs the cases of one part and prints a line of JSON for each: `python -m tests.campaign.worker`.

The process holds what the cases share (imports, a server) and forks for each case.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from tests.campaign.child import Result, run_limited
from tests.campaign.corpus import keep, kept_cases
from tests.campaign.part import Case, Failed, Part, Skipped
from tests.campaign.shrink import shrink

__all__ = ["PARTS", "main"]

# In the order of the table; each is a module of tests.campaign.parts with a class `Campaign`.
PARTS = ("advisories", "lowest", "media", "batch", "references", "models", "faults", "server",
         "crash", "kills", "hub", "line", "soak")  # fmt: skip

_SHRINK_S = 30.0
_MAX_SHRUNK = 5  # failures that are made smaller; later ones are stored as they are


def main() -> None:
    """One part, to the end of its time, its cases or its seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.worker")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seed", type=int, default=0, help="the first fresh seed")
    parser.add_argument("--sample", action="store_true", help="the corpus and the sample only")
    parser.add_argument("--seconds", type=float, default=1e9, help="of wall time")
    parser.add_argument("--cases", type=int, default=1 << 60, help="fresh ones")
    parser.add_argument("--fixed", type=int, help="number of fixed seeds; default: the part's")
    parser.add_argument("--corpus", action="store_true", help="run the corpus first")
    parser.add_argument("--keep", action="store_true", help="store failing cases in the corpus")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=f"{given.part}-") as folder:
        part: Part = importlib.import_module(f"tests.campaign.parts.{given.part}").Campaign(
            Path(folder)
        )
        part.sampling = given.sample
        try:
            part.prepare()
            _run_all(part, given)
        except Skipped as error:
            _print(skipped=str(error))
        finally:
            part.close()


def _run_all(part: Part, given: argparse.Namespace) -> None:
    deadline, shrunk = time.monotonic() + given.seconds, 0
    part.ends_at = deadline
    for seed, case in _cases(part, given):
        if time.monotonic() > deadline:
            return
        result = _run(part, case)
        kept = ""
        if result.failure and given.keep:
            if part.shrinks and shrunk < _MAX_SHRUNK:
                shrunk += 1
                case = _smaller(part, case, result)
            kept = str(keep(part.name, case))
        _print(seed=seed, label=case.label, kept=kept, **asdict(result))


def _cases(part: Part, given: argparse.Namespace) -> Iterator[tuple[int | None, Case]]:
    """(seed, case) in order; the seed of a case of the corpus is None."""
    if given.corpus:
        yield from ((None, case) for case in kept_cases(part.name))
    if given.sample:
        yield from ((None, case) for case in [*kept_cases(part.name), *part.sample()])
        return
    fixed = part.fixed if given.fixed is None else given.fixed
    fresh = itertools.islice(itertools.count(given.seed), given.cases)
    for seed in [given.seed] if part.once else itertools.chain(range(fixed), fresh):
        yield seed, part.generate(seed)


def _run(part: Part, case: Case) -> Result:
    result = run_limited(lambda folder: part.run(case, folder), part.limits, part.folder)
    try:
        part.check()
    except Failed as error:
        result = replace(result, failure=result.failure or str(error))
    return result


def _smaller(part: Part, case: Case, result: Result) -> Case:
    deadline = time.monotonic() + _SHRINK_S

    def fails(data: bytes) -> bool:
        return _run(part, replace(case, data=data)).kind == result.kind

    return replace(case, data=shrink(case.data, fails, lambda: time.monotonic() < deadline))


def _print(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
