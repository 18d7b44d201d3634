"""Errors of requests, and the replies that they become."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

from edgeapp.console import print_traceback
from edgeapp.exit_codes import unexpected
from edgeapp.memory_limit import MemoryLimitReached
from edgeapp.server.access.auth import TooManyAttempts
from edgeapp.server.api.work_queue import QueueFull, ShuttingDown
from edgeapp.server.api.work_thread import ClientLeft, WorkCancelled
from edgeapp.server.replies import error_reply
from edgeapp.server.sessions import TooManySessions
from pipelines import AudioError, EdgeError, InputError, ModelError, ModelNotFound, OptionError
from pipelines.errors import LongAudio

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["ApiError", "Handler", "api_error_of", "with_error_replies"]

Handler = Callable[["Request"], Awaitable[Response]]
_BUSY_RETRY_S = 10
_CLIENT_LEFT = 499  # as nginx writes it into logs; no client reads the response


class ApiError(Exception):
    """A request that is refused.

    Attributes:
        status: The HTTP status.
        message: One sentence: what, which field, what to do.
        code: OpenAI's code, if it is not the usual one of the status.
        param: The field at fault.
        retry_after_s: When to try again, in whole seconds.
        permanent: Whether trying again is useless; OpenAI's clients retry some statuses otherwise.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
        permanent: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after_s, self.permanent = retry_after_s, permanent

    def reply(self, path: str) -> Response:
        """The response, in the shape of the interface that a path belongs to."""
        headers = {}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        if self.permanent:
            headers["x-should-retry"] = "false"
        return error_reply(
            path, self.status, self.message, code=self.code, param=self.param, headers=headers
        )


def api_error_of(error: BaseException) -> ApiError:
    """The refusal that an error means for the client. Unexpected errors are printed."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFull):
        return ApiError(429, str(error), retry_after_s=error.retry_after_s)
    if isinstance(error, (ShuttingDown, WorkCancelled)):
        return ApiError(503, "the server is shutting down; try again", retry_after_s=10)
    if isinstance(error, TooManyAttempts):
        return ApiError(429, "too many wrong tokens; wait for a minute", retry_after_s=60)
    if isinstance(error, MemoryLimitReached | TooManySessions):
        return ApiError(429, str(error), retry_after_s=_BUSY_RETRY_S)
    if isinstance(error, LongAudio):
        return ApiError(400, str(error), code="audio_too_long", param="file")
    if isinstance(error, AudioError):
        return ApiError(400, str(error), code="invalid_audio", param="file")
    if isinstance(error, ModelNotFound):
        return ApiError(404, _without_folder(str(error)), code="model_not_found", param="model")
    if isinstance(error, ModelError):
        return ApiError(400, _without_folder(str(error)), code="unsupported_model", param="model")
    if isinstance(error, (OptionError, InputError)):
        return ApiError(400, str(error))
    if isinstance(error, EdgeError):
        return ApiError(500, str(error))
    print_traceback(error)
    return ApiError(500, unexpected(error))


def with_error_replies(handler: Handler) -> Handler:
    """A handler whose errors become replies."""

    async def replying(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientLeft:
            return Response(status_code=_CLIENT_LEFT)
        except Exception as error:
            return api_error_of(error).reply(request.scope["path"])

    return replying


def _without_folder(message: str) -> str:
    """A message without the folder of this machine's models, which clients need not know."""
    from pipelines.hub import cache_folder

    return message.replace(str(cache_folder()), "the models of this machine")
