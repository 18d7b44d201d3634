"""Error replies, in the shape that the clients of each interface expect."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

__all__ = ["error_content", "error_reply"]

_OPENAI_PATHS = "/v1/"
# HTTP status → the type and the code of OpenAI's error object.
_OPENAI_KINDS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
}


def error_content(
    path: str, status: int, message: str, *, code: str | None = None, param: str | None = None
) -> dict[str, object]:
    """The JSON of an error.

    Args:
        path: Of the request: below /v1/ it is OpenAI's error object, elsewhere {"error": message}.
        status: The HTTP status.
        message: One sentence for the user.
        code: OpenAI's code. None: the usual one of the status.
        param: The field at fault.
    """
    if not path.startswith(_OPENAI_PATHS):
        return {"error": message}
    usual = ("server_error", None) if status >= 500 else ("invalid_request_error", None)
    kind, usual_code = _OPENAI_KINDS.get(status, usual)
    fields = {"message": message, "type": kind, "param": param, "code": code or usual_code}
    return {"error": fields}


def error_reply(
    path: str,
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """`error_content` as a response.

    Args:
        path: Of the request.
        status: The HTTP status.
        message: One sentence for the user.
        code: OpenAI's code.
        param: The field at fault.
        headers: Further headers.
    """
    content = error_content(path, status, message, code=code, param=param)
    return JSONResponse(content, status, dict(headers or {}))
