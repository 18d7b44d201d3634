"""Recordings that Gradio's clients upload before they call an endpoint."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from edgeapp.server.api.errors import ApiError, with_error_replies
from edgeapp.server.api.service import ApiService
from edgeapp.server.api.uploads import UploadedForm

__all__ = ["GradioUploads"]

_FIELD = "files"  # as Gradio's clients name it
_WAITS_S = 60.0  # a client calls the endpoint as soon as the upload has ended


@dataclass(frozen=True)
class _Waiting:
    form: UploadedForm
    person: str
    expiry: asyncio.TimerHandle


class GradioUploads:
    """Answers Gradio's upload route in its place: a token instead of a path of this machine.

    Args:
        service: What it shares with the other interfaces.
    """

    def __init__(self, service: ApiService) -> None:
        self._service = service
        self._waiting: dict[str, _Waiting] = {}  # by token

    @property
    def routes(self) -> list[BaseRoute]:
        """The route."""
        return [
            Route("/gradio_api/upload", with_error_replies(self._receive), methods=["POST"]),
        ]

    def take(self, token: object, person: str) -> UploadedForm:
        """Hand over a recording; the caller removes it.

        Args:
            token: As the client got it.
            person: Whose recording it is.

        Raises:
            ApiError: There is none, or it is someone else's.
        """
        waiting = self._waiting.get(token) if isinstance(token, str) else None
        if waiting is None or waiting.person != person:
            raise ApiError(400, "the recording is not here: upload it again, with handle_file(…)")
        assert isinstance(token, str)
        del self._waiting[token]
        waiting.expiry.cancel()
        return waiting.form

    async def _receive(self, request: Request) -> Response:
        person = self._service.logins.person_of(request)
        await self._service.check_recognizer(person)
        form = await self._service.uploads.read(request, person, field=_FIELD)
        token = secrets.token_urlsafe(24)
        expiry = asyncio.get_running_loop().call_later(_WAITS_S, self._expire, token)
        self._waiting[token] = _Waiting(form, person, expiry)
        return JSONResponse([token])

    def _expire(self, token: str) -> None:
        self._waiting.pop(token).form.remove()
