"""OpenAI's REST interface: /v1/audio/transcriptions, /v1/audio/translations and /v1/models."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from edgeapp.priorities import Priority
from edgeapp.server.api.errors import ApiError, with_error_replies
from edgeapp.server.api.recognition import Recognition, RecognitionStarted
from edgeapp.server.api.service import ApiService, log_fields
from edgeapp.server.api.transcription_replies import complete_reply, streamed_reply
from edgeapp.server.api.transcription_request import TranscriptionRequest
from edgeapp.server.api.work_thread import collect, unless_client_leaves
from edgeapp.server.page.exports import declared_length
from pipelines import EdgeError

if TYPE_CHECKING:
    from starlette.requests import Request

    from edgeapp.server.api.uploads import UploadedForm
    from pipelines.hub import ModelInfo

__all__ = ["DEFAULT_MODEL", "OpenAIAudio", "installed_model"]

DEFAULT_MODEL = "whisper-1"  # the best model that is installed
_SHORT_FORM_BYTES = 25 << 20  # OpenAI takes files of up to 25 MB
# A name or a hub id, not a path: a client must not learn which folders are on this machine.
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[\w.-]+)?", re.ASCII)


class OpenAIAudio:
    """The handlers of OpenAI's REST interface.

    Args:
        service: What they share with the other interfaces.
    """

    def __init__(self, service: ApiService) -> None:
        self._service = service

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes."""
        transcribe = partial(self._recognize, endpoint="transcriptions")
        translate = partial(self._recognize, endpoint="translations")
        return [
            Route("/v1/audio/transcriptions", with_error_replies(transcribe), methods=["POST"]),
            Route("/v1/audio/translations", with_error_replies(translate), methods=["POST"]),
            Route("/v1/models", with_error_replies(self._models)),
            Route("/v1/models/{name:path}", with_error_replies(self._model)),
        ]

    async def _recognize(
        self, request: Request, endpoint: Literal["transcriptions", "translations"]
    ) -> Response:
        service = self._service
        task: Literal["transcribe", "translate"] = (
            "transcribe" if endpoint == "transcriptions" else "translate"
        )
        person = service.logins.person_of(request)
        form = await self._form(request, person)
        try:
            wanted = TranscriptionRequest.from_fields(form.fields, endpoint)
            model = await service.threads.run(person, lambda: installed_model(wanted.model, "asr"))
            if not form.size:
                raise ApiError(400, f"{form.name} is empty", code="invalid_audio", param="file")
        except BaseException:
            form.remove()
            raise
        recognition = Recognition(
            service.pool, service.metrics, wanted, None if model is None else model.name, task,
            form.path, form.name, 60 * service.options.minutes,
        )  # fmt: skip
        items = await service.start(request, person, Priority.BATCH, recognition.run, form.remove)
        if wanted.stream:
            return streamed_reply(request.scope["path"], wanted, items)
        started, *segments = await unless_client_leaves(request, collect(items))
        assert isinstance(started, RecognitionStarted), "it is the first item"
        fields = log_fields(request)
        fields["audio_s"], fields["model"] = round(started.duration, 2), started.model
        texts = [each for each in segments if not isinstance(each, RecognitionStarted)]
        # In a thread: subtitles of hours take a second.
        title = PurePath(form.name).stem
        return await asyncio.to_thread(complete_reply, wanted, task, started, texts, title)

    async def _form(self, request: Request, person: str) -> UploadedForm:
        """Read the form of a request, as far as a recognizer can be there for it.

        Without a default recognizer the form must name another one. If its field comes after the
        file, only a short form is read to its end to find that.

        Raises:
            ApiError: As `FormUploads.read`, or the default recognizer is needed and missing.
        """
        service = self._service
        try:
            await service.check_recognizer(person)
        except ApiError as error:
            refusal = error
        else:
            return await service.uploads.read(request, person)
        length, named = declared_length(request), False

        def check(name: str, value: str) -> None:
            nonlocal named
            if name == "model" and value == DEFAULT_MODEL:
                raise refusal
            named = named or name == "model"

        def check_file() -> None:
            if not named and (length is None or length > _SHORT_FORM_BYTES):
                raise refusal

        form = await service.uploads.read(request, person, check=check, file_begins=check_file)
        if not named:
            form.remove()
            raise refusal
        return form

    async def _models(self, request: Request) -> Response:
        service = self._service
        models = await service.threads.run(service.logins.person_of(request), _all_described)
        return JSONResponse({"object": "list", "data": models})

    async def _model(self, request: Request) -> Response:
        service, name = self._service, request.path_params["name"]
        described = await service.threads.run(
            service.logins.person_of(request), lambda: _described(name, installed_model(name, None))
        )
        return JSONResponse(described)


def installed_model(name: str, task: Literal["asr", "translation"] | None) -> ModelInfo | None:
    """The installed model that a client names. None: the default one.

    Args:
        name: A bundled or short name or a hub id, as on the command line; whisper-1 is the
            default. No path.
        task: What the model must be for; None: anything.

    Raises:
        ApiError: It is not installed, or for another task. It is not downloaded.
    """
    from pipelines.hub import list_models, resolve

    if name == DEFAULT_MODEL:
        return None
    models = list_models()
    found = next((model for model in models if name in (model.name, model.repository)), None)
    if found is None and _NAME.fullmatch(name):
        try:
            folder = resolve(name).folder.resolve()
            found = next((model for model in models if model.folder.resolve() == folder), None)
        except EdgeError:
            found = None
    if found is None:
        raise ApiError(
            404,
            f"the model {name[:100]!r} is not installed here; GET /v1/models lists what is, and "
            f"{DEFAULT_MODEL} is the best of it",
            code="model_not_found",
            param="model",
        )
    if task is not None and found.task != task:
        raise ApiError(
            400,
            f"{found.name} is a model for {found.task}, not for {task}",
            code="unsupported_model",
            param="model",
        )
    return found


def _all_described() -> list[dict[str, Any]]:
    from pipelines.hub import list_models

    models = [_described(model.name, model) for model in list_models()]
    return [_described(DEFAULT_MODEL, None), *models]


def _described(name: str, model: ModelInfo | None) -> dict[str, Any]:
    """A model as OpenAI lists it, the default one by the name that the client gave. `task` is
    ours."""
    created, owner = 0, "edgeapp"
    if model is not None:
        name = model.name
        created = int(model.folder.stat().st_mtime)
        owner = (model.repository or "edgeapp").partition("/")[0]
    task = "asr" if model is None else model.task
    return {"id": name, "object": "model", "created": created, "owned_by": owner, "task": task}
