"""What opening the page costs in Chromium: bytes, time until it can be used, longest task.

    .venv/bin/python -m tests.benchmarks.page_load

Starts `edgeapp ui` on the bundled models, and opens the page in a browser without a cache, five
times for each tab and in each language. Prints medians, as a table in Markdown.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.browser import chromium, missing, ready, serving

RUNS = 5
VISITS = (("live", "en"), ("file", "en"), ("text", "en"), ("pictures", "en"), ("models", "en"),
          ("history", "en"), ("live", "de"), ("live", "zh"))  # fmt: skip
# Tasks of the main thread over 50 ms, as Lighthouse counts them, and when the tab could be used.
_WATCH = """
window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
"""
_WEIGHT = """
[...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")]
  .reduce((sum, each) => sum + each.transferSize, 0)
"""


@dataclass(frozen=True)
class Visit:
    """One opening of the page.

    Attributes:
        kilobytes: Transferred, headers included.
        requests: Their number.
        paint_s: Until the first text is drawn.
        interactive_s: Until the tab takes clicks and has its connection.
        task_ms: The longest task of the main thread; 0: none over 50 ms.
    """

    kilobytes: float
    requests: int
    paint_s: float
    interactive_s: float
    task_ms: float


def visit(browser: Any, url: str, tab: str, language: str) -> Visit:
    """Open a tab of the page in a new context."""
    context = browser.new_context(locale=language, viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        page.add_init_script(_WATCH)
        page.goto(f"{url}#{tab}")
        ready(page, tab)
        interactive_s = page.evaluate("performance.now()") / 1000
        page.wait_for_timeout(1000)  # what is loaded late counts too
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        return Visit(
            page.evaluate(_WEIGHT) / 1000,
            page.evaluate("performance.getEntriesByType('resource').length") + 1,
            page.evaluate(paint) / 1000,
            interactive_s,
            page.evaluate("Math.max(0, ...longTasks)"),
        )
    finally:
        context.close()


def main() -> None:
    """Measure, and print the table."""
    if lacking := missing():
        raise SystemExit(lacking)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "EDGEAPP_HISTORY": str(Path(folder) / "history.db"),
            "HF_HUB_OFFLINE": "1",
        }
        log = Path(folder) / "log.txt"
        with serving(environment, log=log) as server, chromium() as browser:
            visit(browser, server.url, "live", "en")  # the server's caches
            print("| tab | language | kB | requests | first text | can be used | longest task |")
            print("|---|---|---|---|---|---|---|")
            for tab, language in VISITS:
                print(f"{tab}, {language}", file=sys.stderr)
                seen = [visit(browser, server.url, tab, language) for _ in range(RUNS)]

                def median(name: str, of: list[Visit] = seen) -> float:
                    return statistics.median(getattr(each, name) for each in of)

                print(
                    f"| {tab} | {language} | {median('kilobytes'):.0f} | {median('requests'):.0f} "
                    f"| {median('paint_s'):.2f} s | {median('interactive_s'):.2f} s "
                    f"| {median('task_ms'):.0f} ms |"
                )


if __name__ == "__main__":
    main()
