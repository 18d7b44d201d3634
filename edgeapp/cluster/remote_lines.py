"""Translates lines on the machines of a cluster, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from edgeapp.cluster.remote_models import Cluster

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation

__all__ = ["RemoteLines"]

_LINES = 32  # that a machine gets at once, and loses if it dies


class RemoteLines:
    """A Translator's `translate_lines` on the machines of a cluster.

    Args:
        cluster: The machines, with the translator loaded.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions | None = None
    ) -> Iterator[Translation]:
        """As Translator.translate_lines; some lines ahead for each machine.

        Raises:
            EdgeError: As Translator.translate_lines, after all lines of the groups before.
            DeviceLost: No machine is left.
        """
        machines = self._cluster.size
        with ThreadPoolExecutor(machines, thread_name_prefix="lines") as threads:
            running: deque[Future[list[Translation]]] = deque()
            group: list[str] = []

            def submit() -> None:
                nonlocal group
                running.append(
                    threads.submit(self._cluster.call, "translate_lines", group, options)
                )
                group = []

            try:
                for line in lines:
                    if line is not None:
                        group.append(line)
                    if group and (line is None or len(group) == _LINES):
                        submit()
                    while running and (line is None or len(running) > 2 * machines):
                        yield from running.popleft().result()
                if group:
                    submit()
                while running:
                    yield from running.popleft().result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
