"""What all programming interfaces share: the models, the line, files, metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import HTTPConnection, Request

from edgeapp.exit_codes import pull_command
from edgeapp.model_pool import ModelPool
from edgeapp.server.access.auth import Logins
from edgeapp.server.api.calls import Call
from edgeapp.server.api.errors import ApiError, api_error_of
from edgeapp.server.api.metrics import Metrics
from edgeapp.server.api.uploads import FormUploads
from edgeapp.server.api.work_queue import Place, WorkQueue
from edgeapp.server.api.work_thread import RunningWork, Work, in_thread, unless_client_leaves
from edgeapp.server.fairness import FairThreads
from pipelines import EdgeError, ModelNotFound

if TYPE_CHECKING:
    from edgeapp.server.options import ServerOptions

__all__ = ["LOG_FIELDS", "ApiService", "log_fields"]

T = TypeVar("T")
LOG_FIELDS = (
    "edgeapp.log"  # in the scope of a request: what its line in the log says beside the usual
)


@dataclass(frozen=True)
class ApiService:
    """The parts of the server that requests of programs use.

    Attributes:
        pool: The shared models.
        options: Of the server.
        logins: Who sends a request.
        queue: The line in which requests wait.
        running: Their work.
        uploads: Their files.
        metrics: What was done.
        threads: For what reads the disk or takes long beside that work.
    """

    pool: ModelPool
    options: ServerOptions
    logins: Logins
    queue: WorkQueue
    running: RunningWork
    uploads: FormUploads
    metrics: Metrics
    threads: FairThreads

    async def check_recognizer(self, person: str) -> None:
        """Check that speech can be recognized if no model is named, before anything is received.

        Raises:
            ApiError: No recognizer is on this machine.
        """
        try:
            await self.threads.run(person, self.pool.check_recognizer)
        except ModelNotFound as error:
            message = api_error_of(error).message
            if error.download is not None:
                message += f": {pull_command(error.download)}"
            raise ApiError(503, message, code="model_not_found", permanent=True) from None
        except EdgeError:
            pass  # Another model may be named; else the work reports it.

    async def start(
        self,
        request: Request,
        person: str,
        priority: int,
        work: Work[T],
        ended: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[T, None]:
        """Wait for a place in the line, then run work for a request in a thread.

        Args:
            request: Its body must have been read.
            person: Whose request it is.
            priority: A lower number goes first.
            work: Makes the generator that computes.
            ended: Called once, from any thread, when the work has ended or does not begin.

        Returns:
            The items of the generator.

        Raises:
            QueueFull, ShuttingDown, ClientLeft: The work does not begin.
        """
        entering = self.queue.enter(person, priority)
        items, waited_s = await self._begin(unless_client_leaves(request, entering), work, ended)
        log_fields(request)["queue_s"] = round(waited_s, 3)
        return items

    async def start_call(
        self,
        call: Call,
        person: str,
        priority: int,
        work: Work[T],
        ended: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[T, None]:
        """As `start`, for work whose client does not wait on the connection of the request.

        Args:
            call: Knows when the client leaves.
            person: Whose call it is.
            priority: A lower number goes first.
            work: Makes the generator that computes.
            ended: Called once, from any thread, when the work has ended or does not begin.
        """
        entering = call.wait_for(self.queue.enter(person, priority))
        items, _ = await self._begin(entering, work, ended)
        return call.each_of(items)

    async def _begin(
        self, entering: Awaitable[Place], work: Work[T], ended: Callable[[], None]
    ) -> tuple[AsyncGenerator[T, None], float]:
        """The items of the work, and the seconds in the line."""
        try:
            place = await entering
        except BaseException:
            ended()
            raise
        self.metrics.count_wait(place.waited_s)
        return in_thread(work, place, self.running, ended), place.waited_s

    def close(self) -> None:
        """Cancel all work and delete all files."""
        self.queue.close()
        self.running.cancel_all()
        self.threads.close()
        self.uploads.remove_all()


def log_fields(connection: HTTPConnection) -> dict[str, Any]:
    """What the log says of a request; a handler adds to it, but no content."""
    fields: dict[str, Any] = connection.scope.setdefault(LOG_FIELDS, {})
    return fields
