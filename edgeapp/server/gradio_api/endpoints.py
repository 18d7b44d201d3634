"""The named endpoints: transcribe, translate, live and models, as generators that stream.

Annotations are not postponed in this file: Gradio reads the types of the endpoints from them.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import wraps
from typing import Any, Literal, TypedDict, TypeVar, get_args

import gradio as gr
from gradio.events import api

from edgeapp.priorities import Priority
from edgeapp.server.api.calls import Calls
from edgeapp.server.api.errors import ApiError, api_error_of
from edgeapp.server.api.libretranslate import MAX_CHARACTERS, checked_languages
from edgeapp.server.api.openai_audio import installed_model
from edgeapp.server.api.recognition import Recognition, RecognitionStarted
from edgeapp.server.api.service import ApiService
from edgeapp.server.api.text_translation import TextTranslation
from edgeapp.server.api.transcription_replies import segment_content
from edgeapp.server.api.transcription_request import TranscriptionRequest
from edgeapp.server.api.uploads import UploadedForm
from edgeapp.server.api.work_thread import ClientLeft, Work, gathered
from edgeapp.server.gradio_api.live_work import LiveWork
from edgeapp.server.gradio_api.uploads import GradioUploads
from edgeapp.server.page.model_list import model_list
from edgeapp.server.page.picker_options import ModelChoice

__all__ = ["GradioEndpoints"]

Json = dict[str, Any]
_FASTEST = 100.0
_PACE_S = 1.0  # between two results of a call: each repeats the whole text
_KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "text"), bool: (bool, "true or false"), float: ((int, float), "a number"),
}  # fmt: skip
# A recording in the code that "Use via API" shows.
_EXAMPLE = {"path": "talk.mp3", "url": "talk.mp3", "meta": {"_type": "gradio.FileData"}}
Result = tuple[str, Json]
T = TypeVar("T")


class _FileMark(TypedDict):
    _type: Literal["gradio.FileData"]


class Recording(TypedDict):
    """A file, as Gradio's clients describe it; the gate turns it into a token."""

    path: str
    meta: _FileMark


class GradioEndpoints:
    """The endpoints of a page.

    Args:
        service: What they share with the other interfaces.
        uploads: Recordings of their clients.

    Attributes:
        calls: The calls that run.
    """

    def __init__(self, service: ApiService, uploads: GradioUploads) -> None:
        self._service, self._uploads = service, uploads
        self.calls = Calls()

    def add_to(self, page: gr.Blocks) -> list[tuple[str, list[inspect.Parameter]]]:
        """Add the endpoints to a page; the name and the parameters of each."""
        streamed = [_streamed(each) for each in (self.transcribe, self.translate, self.live)]
        endpoints = [*streamed, self.models]
        with page:
            for function in endpoints:
                # The line of the service limits what is at work, fairly to each client.
                api(
                    function,
                    api_name=function.__name__,
                    api_description=inspect.getdoc(function),
                    concurrency_limit=None,
                )
        described = [(function.__name__, _parameters(function)) for function in endpoints]
        for (_, parameters), added in zip(described, page.fns.values(), strict=True):
            for parameter, component in zip(parameters, added.inputs, strict=True):
                if parameter.annotation is Recording:
                    # As a method, which Gradio calls; a value would be the default.
                    setattr(component, "example_payload", lambda: _EXAMPLE)  # noqa: B010
        return described

    async def transcribe(
        self,
        request: gr.Request,
        recording: Recording,
        model: str = "whisper-1",
        language: str = "",
        task: Literal["transcribe", "translate"] = "transcribe",
        prompt: str = "",
        words: bool = False,
    ) -> AsyncGenerator[Result, None]:
        """Speech to text. Sends the text so far, at most once a second, with language, duration
        (seconds) and the segments that are new; the last result has all segments. words adds the
        times of words. task translate gives English text. The model whisper-1 is the best one
        here, others are those of /models; an empty language is detected."""
        form, service = self._take(recording, request), self._service
        try:
            wanted = TranscriptionRequest.from_fields(
                [
                    ("model", model or "whisper-1"),
                    *([("language", language)] if language else []),
                    *([("prompt", prompt)] if prompt else []),
                    ("response_format", "verbose_json"),
                    ("timestamp_granularities[]", "word" if words else "segment"),
                ],
                "transcriptions",
            )
            found = await service.threads.run(
                self._person(request), lambda: installed_model(wanted.model, "asr")
            )
        except ApiError as error:
            form.remove()
            raise _gradio_error(error) from None
        recognition = Recognition(
            service.pool, service.metrics, wanted, None if found is None else found.name, task,
            form.path, form.name, 60 * service.options.minutes,
        )  # fmt: skip
        text, details = "", Json()
        segments: list[Json] = []
        async for items in self._results(request, Priority.BATCH, recognition.run, form.remove):
            new = []
            for item in items:
                if isinstance(item, RecognitionStarted):
                    details = {"language": item.language, "duration": item.duration,
                               "model": item.model, "warnings": item.warnings}  # fmt: skip
                    continue
                text += item.text
                new.append(segment_content(item))
                if words:
                    new[-1]["words"] = [
                        {"word": word.word.strip(), "start": word.start, "end": word.end,
                         "probability": word.probability}
                        for word in item.words
                    ]  # fmt: skip
            segments += new
            # Gradio visits each value of a result in the event loop: all segments come once.
            yield text.strip(), details | {"segments": new}
        yield text.strip(), details | {"segments": segments}

    async def translate(
        self,
        request: gr.Request,
        text: str,
        target: str,
        source: str = "auto",
        format: Literal["text", "html"] = "text",
    ) -> AsyncGenerator[Result, None]:
        """Text to text. Sends the translated lines so far, at most once a second, with source,
        target and via, the language between them where no installed model translates directly.
        Languages are codes such as en; auto detects the source. HTML keeps its tags."""
        try:
            if len(text) > MAX_CHARACTERS:
                raise ApiError(
                    400, f"a text of {len(text)} characters; {MAX_CHARACTERS} are the limit"
                )
            html = format == "html"
            found = await self._service.threads.run(
                self._person(request),
                lambda: checked_languages((text,), html, source, target, among_all=True),
            )
        except ApiError as error:
            raise _gradio_error(error) from None
        source = found[0].code if found else source
        translation = TextTranslation(self._service.pool, self._service.metrics, source, target)
        lines = [text] if html else text.splitlines(keepends=True)
        work = translation.texts(
            [line for line in lines if line.strip()], html=html, alternatives=0
        )
        details: Json = {"source": source, "target": target, "via": None}
        done, rest = "", iter(lines)
        async for results in self._results(request, Priority.INTERACTIVE, work):
            for result in results:
                for line in rest:
                    if line.strip():
                        ending = line[len(line.rstrip("\r\n")) :]
                        done += result.text.rstrip("\r\n") + ending
                        break
                    done += line
            details["via"] = translation.pivot
            yield done, details
        yield done + "".join(rest), details

    async def live(
        self,
        request: gr.Request,
        recording: Recording,
        language: str = "",
        translate_to: str = "",
        speed: float = 0.0,
    ) -> AsyncGenerator[Result, None]:
        """Live captions of a recording, as a microphone would give them. Sends the final text so
        far and the newest event of live captions, at most once a second; earlier has the events
        before it that were not sent yet. The last event is of type end. speed 1 is real time, 0 as
        fast as possible. A microphone needs the WebSocket /v1/live."""
        choice = ModelChoice(language=language or None, target=translate_to or None)
        form = self._take(recording, request)
        work = LiveWork(
            self._service.pool, form.path, form.name, 60 * self._service.options.minutes,
            choice, min(max(speed, 0.0), _FASTEST),
        )  # fmt: skip
        text = ""
        async for events in self._results(request, Priority.INTERACTIVE, work.run, form.remove):
            text += "".join(event["text"] for event in events if event["type"] == "committed")
            *earlier, newest = events
            yield text.strip(), newest | {"earlier": earlier}

    async def models(self) -> list[Json]:
        """The installed models: name, task, languages, size in bytes, and whether it is loaded."""
        return await asyncio.to_thread(model_list, self._service.pool)

    def _take(self, recording: Recording, request: gr.Request) -> UploadedForm:
        """The recording of a call. The gate has replaced what the client sent."""
        content: Json = dict(recording) if isinstance(recording, dict) else {}
        try:
            form = self._uploads.take(content.get("upload"), self._person(request))
            if not form.size:
                form.remove()
                raise ApiError(400, f"{form.name} is empty")
        except ApiError as error:
            raise _gradio_error(error) from None
        return form

    async def _results(
        self,
        request: gr.Request,
        priority: int,
        work: Work[T],
        ended: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[list[T], None]:
        """The items of work, until the client leaves: those of a second together."""
        service = self._service
        with self.calls.running(request.session_hash or "") as call:
            try:
                items = await service.start_call(call, self._person(request), priority, work, ended)
                async with aclosing(gathered(items, _PACE_S)) as groups:
                    async for group in groups:
                        yield group
            except ClientLeft:
                return
            except Exception as error:
                raise _gradio_error(error) from None

    def _person(self, request: gr.Request) -> str:
        assert request.request is not None, "calls arrive in requests"
        return self._service.logins.person_of(request.request)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that a client gives."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter for parameter in parameters if parameter.annotation is not gr.Request]


def _streamed(function: Callable[..., AsyncGenerator[Result, None]]) -> Callable[..., Any]:
    """An endpoint whose signature returns the values of one item, which Gradio documents."""

    signature = inspect.signature(function).replace(return_annotation=Result)

    @wraps(function)
    async def endpoint(*arguments: Any) -> AsyncGenerator[Result, None]:
        pairs = zip(signature.parameters.values(), arguments, strict=True)
        checked = [_checked(parameter, value) for parameter, value in pairs]
        async with aclosing(function(*checked)) as items:
            async for item in items:
                yield item

    endpoint.__signature__ = signature  # type: ignore[attr-defined]
    return endpoint


def _checked(parameter: inspect.Parameter, value: Any) -> Any:
    """An argument of the annotated type, which Gradio does not check; null is the default."""
    wanted, name = parameter.annotation, parameter.name
    if value is None and parameter.default is not inspect.Parameter.empty:
        return parameter.default
    if choices := get_args(wanted):
        fits, kind = value in choices, f"one of {', '.join(choices)}"
    elif wanted in _KINDS:
        types, kind = _KINDS[wanted]
        fits = isinstance(value, types) and (wanted is bool or not isinstance(value, bool))
    else:
        return value  # the request, a recording
    if not fits:
        raise gr.Error(f"{name!r} must be {kind}", print_exception=False)
    return value


def _gradio_error(error: Exception) -> gr.Error:
    """An error as Gradio's clients get it. Unexpected ones were printed."""
    refusal = api_error_of(error)
    wait = f" (again after {refusal.retry_after_s} s)" if refusal.retry_after_s else ""
    return gr.Error(f"{refusal.message}{wait}", print_exception=False)
