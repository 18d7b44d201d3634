"""LibreTranslate's interface: /translate, /detect, /languages, /translate_file and its settings."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from edgeapp.documents.html.translation import html_text
from edgeapp.documents.subtitle_file import SUBTITLE_SUFFIXES
from edgeapp.documents.text_encoding import decode_text
from edgeapp.priorities import Priority
from edgeapp.server.access.auth import bearer_token
from edgeapp.server.api.errors import ApiError, with_error_replies
from edgeapp.server.api.service import ApiService, log_fields
from edgeapp.server.api.text_translation import TextTranslation, translatable_pairs
from edgeapp.server.api.uploads import FormUploads, UploadedForm, check_length
from edgeapp.server.api.work_thread import ClientLeft, collect, unless_client_leaves
from edgeapp.server.client_json import read_json
from edgeapp.server.page.picker_options import language_name, missing_translator
from edgeapp.temporary_folders import make_temporary_folder
from pipelines.text_language import TextLanguage, detect_text_language, rank_text_languages

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["LibreTranslate", "MAX_CHARACTERS", "checked_languages"]

MAX_CHARACTERS = 200_000  # of all texts of a request
_MAX_TEXTS = 256
_MAX_ALTERNATIVES = 4
_MAX_BODY_BYTES = 2 << 20
_MAX_FILE_MB = 8
# Files that are stored before their key is known: in all, and of one address.
_STRANGERS_FILES, _STRANGERS_FILES_PER_ADDRESS = 8, 2
_FILE_SUFFIXES = (".txt", ".html", ".htm", *SUBTITLE_SUFFIXES)
_DOWNLOAD_S = 600.0  # a translated file is kept for so long
_MAX_DOWNLOADS = 64
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")
_MAX_STEM = 150  # characters of a translated file's name; a route allows 200
_NOT_IN = 1e-4  # a text is surely not in a language of a lower probability
_AUTO = "auto"
_DETECTED = 8  # languages that are considered


@dataclass(frozen=True)
class _Download:
    path: Path
    name: str
    made_at: float  # time.monotonic


@dataclass(frozen=True)
class _Asked:
    """A request for translation.

    Attributes:
        texts: The texts.
        batch: They came as a list, and so goes the reply.
        html: They are HTML.
        source: Code of their language, or "auto".
        target: Code of the language to translate into.
        alternatives: How many other translations are wanted.
    """

    texts: tuple[str, ...]
    batch: bool
    html: bool
    source: str
    target: str
    alternatives: int


class LibreTranslate:
    """The handlers of LibreTranslate's interface.

    Args:
        service: What they share with the other interfaces.
    """

    def __init__(self, service: ApiService) -> None:
        self._service = service
        self._strangers = FormUploads(_MAX_FILE_MB, _STRANGERS_FILES, _STRANGERS_FILES_PER_ADDRESS)
        self._folder = make_temporary_folder("translated")
        self._downloads: dict[str, _Download] = {}  # by token, the oldest first
        self._lock = threading.Lock()  # held while a file is added or forgotten

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes."""
        return [
            Route("/translate", with_error_replies(self._translate), methods=["POST"]),
            Route("/detect", with_error_replies(self._detect), methods=["POST"]),
            Route("/translate_file", with_error_replies(self._translate_file), methods=["POST"]),
            Route(
                "/download_file/{token}/{name}",
                with_error_replies(self._download),
                name="download_file",
            ),
            Route("/languages", with_error_replies(self._languages)),
            Route("/frontend/settings", with_error_replies(self._settings)),
        ]

    async def _translate(self, request: Request) -> Response:
        values = await _body(request)
        person = self._person(request, values.get("api_key"))
        asked = _asked(values)
        found = await self._service.threads.run(
            person, lambda: checked_languages(asked.texts, asked.html, asked.source, asked.target)
        )
        codes = [language.code for language in found] or [asked.source] * len(asked.texts)
        results: list[Any] = [None] * len(codes)
        pivots = set()
        for code in dict.fromkeys(codes):  # one piece of work for each language
            indices = [index for index, each in enumerate(codes) if each == code]
            work = self._translation(code, asked.target)
            texts = [asked.texts[index] for index in indices]
            items = await self._service.start(
                request,
                person,
                Priority.INTERACTIVE,
                work.texts(texts, html=asked.html, alternatives=asked.alternatives),
            )
            done = await unless_client_leaves(request, collect(items))
            for index, result in zip(indices, done, strict=True):
                results[index] = result
            pivots.add(work.pivot)
        log_fields(request)["characters"] = sum(map(len, asked.texts))
        reply: dict[str, Any] = {"translatedText": [result.text for result in results]}
        if found:
            reply["detectedLanguage"] = [_as_detected(language) for language in found]
        if asked.alternatives:
            reply["alternatives"] = [list(result.alternatives) for result in results]
        if not asked.batch:
            reply = {name: value[0] for name, value in reply.items()}
        if via := next((pivot for pivot in pivots if pivot is not None), None):
            reply["via"] = via  # ours: no installed model translates directly
        return JSONResponse(reply)

    async def _detect(self, request: Request) -> Response:
        values = await _body(request)
        person = self._person(request, values.get("api_key"))
        text = values.get("q")
        if not isinstance(text, str) or not text.strip():
            raise ApiError(400, "Invalid request: missing q parameter")
        if len(text) > MAX_CHARACTERS:
            raise _too_long(len(text))
        ranked = await self._service.threads.run(person, lambda: rank_text_languages(text))
        return JSONResponse([_as_detected(each) for each in ranked if each.probability >= 0.01])

    async def _translate_file(self, request: Request) -> Response:
        service = self._service
        form, values, person = await self._receive_file(request)
        try:
            suffix = Path(form.name).suffix.lower()
            if suffix not in _FILE_SUFFIXES:
                raise ApiError(
                    400,
                    f"Invalid request: file format {suffix or form.name!r} is not supported; "
                    f"there are {', '.join(_FILE_SUFFIXES)}",
                )
            source, target = await service.threads.run(
                person, lambda: _languages_of_file(form.path, form.name, values)
            )
        except BaseException:
            form.remove()
            raise
        work = self._translation(source, target).file(form.path, form.name)
        items = await service.start(request, person, Priority.BATCH, work, form.remove)
        content = b"".join(await unless_client_leaves(request, collect(items)))
        stem = _CONTROL_CHARACTERS.sub("_", Path(form.name).stem)[:_MAX_STEM]
        name = f"{stem}_{target}{suffix}"
        token = await service.threads.run(person, lambda: self._store(content, name))
        url = request.url_for("download_file", token=token, name=quote(name, safe=""))
        return JSONResponse({"translatedFileUrl": str(url)})

    async def _receive_file(self, request: Request) -> tuple[UploadedForm, dict[str, Any], str]:
        """Return a form with a file, its fields, and whose it is.

        A key in the header or the query is checked before the form is read, and one in the form as
        soon as it has arrived. LibreTranslate's own page sends the file before the key, so that a
        file without a key is stored; it counts among the few of strangers until the key has
        arrived.

        Raises:
            ApiError: A token is required, and is missing or wrong; or it is not such a form.
            TooManyAttempts, ClientLeft: As for other requests.
        """
        logins, uploads = self._service.logins, self._service.uploads
        query = _fields(request.query_params.multi_items())
        key = query.get("api_key")
        known = bool(key or bearer_token(request)) or logins.user_of(request) is not None
        if known:
            person = self._person(request, key)
            form = await uploads.read(request, person, megabytes=_MAX_FILE_MB)
        else:

            def check(name: str, value: str) -> None:
                if name == "api_key":
                    self._person(request, value)

            form = await self._strangers.read(request, logins.person_of(request), check=check)
        try:
            values = _fields(form.fields) | query
            person = self._person(request, values.get("api_key"))
            return (form if known else uploads.adopt(form, person)), values, person
        except BaseException:
            form.remove()
            raise

    async def _download(self, request: Request) -> Response:
        download = self._downloads.get(request.path_params["token"])
        old = download is None or download.made_at < time.monotonic() - _DOWNLOAD_S
        if download is None or old or download.name != request.path_params["name"]:
            raise ApiError(404, "this file is not here any more; translate it again")
        # As an attachment: a browser must not show a translated page as one of this server.
        return FileResponse(
            download.path, filename=download.name, media_type="application/octet-stream"
        )

    async def _languages(self, request: Request) -> Response:
        pairs = await self._pairs(request)
        return JSONResponse([
            {"code": source, "name": language_name(source), "targets": sorted({*targets, source})}
            for source, targets in sorted(pairs.items())
        ])  # fmt: skip

    async def _settings(self, request: Request) -> Response:
        required = self._service.logins.required_of(request)
        pairs = await self._pairs(request)
        source = "en" if "en" in pairs else next(iter(sorted(pairs)), "en")
        target = next(iter(sorted(pairs.get(source, ()))), source)
        return JSONResponse({
            "apiKeys": required,
            "charLimit": MAX_CHARACTERS,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": required,
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": list(_FILE_SUFFIXES),
        })  # fmt: skip

    async def _pairs(self, request: Request) -> dict[str, set[str]]:
        person = self._service.logins.person_of(request)
        return await self._service.threads.run(person, translatable_pairs)

    def _translation(self, source: str, target: str) -> TextTranslation:
        return TextTranslation(self._service.pool, self._service.metrics, source, target)

    def _person(self, request: Request, key: object) -> str:
        """Whose request it is: by a token in the body, else as for other requests.

        Raises:
            ApiError: A token is required, and is missing or wrong.
            TooManyAttempts: Many wrong ones came from this address.
        """
        logins = self._service.logins
        if isinstance(key, str) and (user := logins.user_of_token(key)) is not None:
            return f"user {user}"
        if logins.use(request) is not None:
            return logins.person_of(request)
        if key:
            logins.count_wrong_token(request)
            raise ApiError(403, "Invalid API key")
        raise ApiError(403, "an API key is required: a token of this server, as api_key")

    def _store(self, content: bytes, name: str) -> str:
        """Keep a translated file for a while; the token with which it can be fetched.

        From any thread.
        """
        token = secrets.token_urlsafe(24)
        path = self._folder / token
        path.write_bytes(content)
        with self._lock:
            self._forget_old()
            self._downloads[token] = _Download(path, name, time.monotonic())
        return token

    def _forget_old(self) -> None:
        oldest = time.monotonic() - _DOWNLOAD_S
        for token, download in list(self._downloads.items()):
            if download.made_at < oldest or len(self._downloads) >= _MAX_DOWNLOADS:
                download.path.unlink(missing_ok=True)
                del self._downloads[token]


async def _body(request: Request) -> dict[str, Any]:
    """Return the fields of a request: of its query string, and of JSON or a form.

    As in LibreTranslate, the query goes before a form. JSON goes before the query.

    Raises:
        ApiError: It is neither, or too large.
    """
    query = _fields(request.query_params.multi_items())
    if "content-length" not in request.headers and "transfer-encoding" not in request.headers:
        return query  # there is no body
    check_length(request, _MAX_BODY_BYTES)
    try:
        if not request.headers.get("content-type", "").startswith("application/json"):
            form = await request.form(max_files=0, max_fields=64, max_part_size=_MAX_BODY_BYTES)
            return _fields(form.multi_items()) | query
        values = read_json(await request.body())
    except ClientDisconnect:
        raise ClientLeft from None
    except ValueError:
        raise ApiError(400, "Invalid JSON format") from None
    if not isinstance(values, dict):
        raise ApiError(400, "Invalid JSON format")
    return query | values


def _fields(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return fields by name. Several `q` are a list of texts."""
    pairs = list(pairs)
    texts = [value for name, value in pairs if name == "q"]
    return dict(pairs) | ({"q": texts} if len(texts) > 1 else {})


def _asked(values: dict[str, Any]) -> _Asked:
    q = values.get("q")
    batch = isinstance(q, list)
    texts = tuple(q) if isinstance(q, list) else (q,)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "Invalid request: missing q parameter")
    if len(texts) > _MAX_TEXTS:
        raise ApiError(
            400, f"Invalid request: request ({len(texts)}) exceeds batch limit ({_MAX_TEXTS})"
        )
    if (length := sum(map(len, texts))) > MAX_CHARACTERS:
        raise _too_long(length)
    kind = values.get("format") or "text"
    if kind not in ("text", "html"):
        raise ApiError(400, f"{str(kind)[:40]} format is not supported: there are text and html")
    try:
        alternatives = int(values.get("alternatives") or 0)
    except (TypeError, ValueError):
        raise ApiError(400, "Invalid request: 'alternatives' must be a number") from None
    if not 0 <= alternatives <= _MAX_ALTERNATIVES:
        raise ApiError(
            400, f"Invalid request: 'alternatives' must be from 0 to {_MAX_ALTERNATIVES}"
        )
    source, target = _languages_of(values)
    return _Asked(texts, batch, kind == "html", source, target, alternatives)


def _languages_of(values: dict[str, Any]) -> tuple[str, str]:
    codes = []
    for name in ("source", "target"):
        value = values.get(name)
        if not isinstance(value, str) or not value:
            raise ApiError(400, f"Invalid request: missing {name} parameter")
        codes.append(value.strip().lower())
    return codes[0], codes[1]


def _languages_of_file(path: Path, name: str, values: dict[str, Any]) -> tuple[str, str]:
    """The languages that a file is to be translated from and into. It is read to detect one.

    Raises:
        ApiError: They are missing, or the installed models do not translate between them.
    """
    source, target = _languages_of(values)
    html = name.lower().endswith((".html", ".htm"))
    text = ""
    if source == _AUTO:
        text = decode_text(path.read_bytes(), name, markup=html)[0][:20_000]
    found = checked_languages((text,), html, source, target)
    return (found[0].code if found else source), target


def checked_languages(
    texts: Sequence[str], html: bool, source: str, target: str, *, among_all: bool = False
) -> list[TextLanguage]:
    """Detect the languages of texts, and check that they can be translated.

    It reads the installed models, and may take seconds: not for the event loop.

    Args:
        texts: At least one.
        html: They are HTML.
        source: The code of their language, or "auto".
        target: The code of the language to translate into.
        among_all: Detect languages that are not installed, too, to name what is missing. Otherwise
            the installed ones only are thought of, as LibreTranslate does.

    Returns:
        The language of each text if they were to be detected, else no languages.

    Raises:
        ApiError: The installed models do not translate between two of the languages.
    """
    pairs, found = translatable_pairs(), list[TextLanguage]()
    if source == _AUTO:
        found = [detected_language(text, html, pairs, target, among_all) for text in texts]
    if among_all and found:
        if language_name(target) == target:  # no language that could be installed
            check_pair(pairs, target, target)
        for language in found:
            if language.code != target and target not in pairs.get(language.code, ()):
                raise ApiError(400, missing_translator(language, target))
    for code in dict.fromkeys(language.code for language in found) or (source,):
        check_pair(pairs, code, target)
    return found


def detected_language(
    text: str, html: bool, pairs: dict[str, set[str]], target: str, among_all: bool = False
) -> TextLanguage:
    """Return the language of a text, of those that are translated into `target`.

    A text in which nothing tells the language has a default, with probability 0: English, or the
    first language that is translated.

    Args:
        text: The text; it may be empty.
        html: It is HTML.
        pairs: For each source language those that it is translated into.
        target: The code of the language to translate into.
        among_all: Look at all languages first. A text that is surely in one of them has that one,
            whether it can be translated or not.
    """
    plain = html_text(text) if html else text
    sources = [code for code in sorted(pairs) if target in pairs[code]]
    default = TextLanguage("en" if "en" in (*sources, target) else next(iter(sources), "en"), 0.0)
    if not any(map(str.isalpha, plain)):
        return default
    if among_all and (sure := detect_text_language(plain)) is not None:
        return sure
    known = {*sources, target}
    all_ranked = rank_text_languages(plain, None)
    ranked = [each for each in all_ranked if each.code in known]
    if among_all and all_ranked and all(each.probability < _NOT_IN for each in ranked):
        return all_ranked[0]  # such as another script, even if several languages have it
    if not ranked or (len(ranked) > 1 and ranked[0].probability < 2 * ranked[1].probability):
        return default
    return ranked[0]


def _as_detected(language: TextLanguage) -> dict[str, Any]:
    return {"confidence": round(100 * language.probability, 1), "language": language.code}


def check_pair(pairs: dict[str, set[str]], source: str, target: str) -> None:
    """Check that the installed models translate from a language into another.

    Raises:
        ApiError: They do not.
    """
    known = {*pairs, *(code for targets in pairs.values() for code in targets)}
    for code in (target, source):  # a detected source is less certain
        if code not in known:
            raise ApiError(400, f"{code[:40]} is not supported")
    if source != target and target not in pairs.get(source, ()):
        raise ApiError(
            400,
            f"{language_name(target)} ({target}) is not available as a target language from "
            f"{language_name(source)} ({source}); GET /languages lists what is installed",
        )


def _too_long(length: int) -> ApiError:
    return ApiError(
        400, f"Invalid request: request ({length}) exceeds text limit ({MAX_CHARACTERS})"
    )
