"""Counters and histograms in Prometheus' text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Metrics"]

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
Labels = tuple[tuple[str, str], ...]


@dataclass
class _Histogram:
    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def add(self, value: float) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """What the server has done. All methods may be called from any thread.

    Args:
        gauges: Name → (help, function that returns the value now).
    """

    def __init__(self, gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        self._gauges = gauges
        self._lock = threading.Lock()
        self._requests: defaultdict[Labels, int] = defaultdict(int)
        self._durations: defaultdict[Labels, _Histogram] = defaultdict(lambda: _Histogram(_SECONDS))
        self._waits = _Histogram(_SECONDS)
        self._factors = _Histogram(_FACTORS)
        self._tokens: defaultdict[Labels, int] = defaultdict(int)
        self._audio_s = 0.0

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended.

        Args:
            route: The name of its route, without parameters.
            status: Of the response.
            seconds: From its headers to the end of the response.
        """
        with self._lock:
            self._requests[("route", route), ("status", str(status))] += 1
            self._durations[(("route", route),)].add(seconds)

    def count_wait(self, seconds: float) -> None:
        """Count the time that a request waited in the line."""
        with self._lock:
            self._waits.add(seconds)

    def count_recognition(self, audio_s: float, seconds: float, tokens: int) -> None:
        """Count a recording.

        Args:
            audio_s: Its duration.
            seconds: How long the recognition took.
            tokens: How many were generated.
        """
        with self._lock:
            self._audio_s += audio_s
            self._tokens[(("task", "recognition"),)] += tokens
            if audio_s > 0:
                self._factors.add(seconds / audio_s)

    def count_translation(self, tokens: int) -> None:
        """Count the tokens of a translation."""
        with self._lock:
            self._tokens[(("task", "translation"),)] += tokens

    def render(self) -> str:
        """All metrics, as Prometheus reads them."""
        lines: list[str] = []
        with self._lock:
            _family(lines, "requests_total", "counter", "Requests by route and status.")
            for labels, count in sorted(self._requests.items()):
                lines.append(f"edgeapp_requests_total{_braces(labels)} {count}")
            _family(lines, "request_seconds", "histogram", "Duration of requests.")
            for labels, histogram in sorted(self._durations.items()):
                _histogram(lines, "request_seconds", labels, histogram)
            _family(lines, "queue_seconds", "histogram", "Time that requests waited in the line.")
            _histogram(lines, "queue_seconds", (), self._waits)
            _family(
                lines, "real_time_factor", "histogram", "Seconds of work per second of recording."
            )
            _histogram(lines, "real_time_factor", (), self._factors)
            _family(lines, "audio_seconds_total", "counter", "Seconds of recordings.")
            lines.append(f"edgeapp_audio_seconds_total {self._audio_s:g}")
            _family(lines, "tokens_total", "counter", "Generated tokens by task.")
            for labels, count in sorted(self._tokens.items()):
                lines.append(f"edgeapp_tokens_total{_braces(labels)} {count}")
        for name, (text, value) in self._gauges.items():
            _family(lines, name, "gauge", text)
            lines.append(f"edgeapp_{name} {value():g}")
        return "\n".join(lines) + "\n"


def _family(lines: list[str], name: str, kind: str, text: str) -> None:
    lines += [f"# HELP edgeapp_{name} {text}", f"# TYPE edgeapp_{name} {kind}"]


def _histogram(lines: list[str], name: str, labels: Labels, histogram: _Histogram) -> None:
    counts = histogram.counts or [0] * (len(histogram.bounds) + 1)
    bounds = [f"{bound:g}" for bound in histogram.bounds] + ["+Inf"]
    total = 0
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        lines.append(f"edgeapp_{name}_bucket{_braces((*labels, ('le', bound)))} {total}")
    lines.append(f"edgeapp_{name}_sum{_braces(labels)} {histogram.total:g}")
    lines.append(f"edgeapp_{name}_count{_braces(labels)} {total}")


def _braces(labels: Labels) -> str:
    """Labels in braces. Their values are names of routes and numbers, which need no escapes."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
