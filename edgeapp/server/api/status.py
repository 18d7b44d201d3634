"""/health and /metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from edgeapp.server.api.service import ApiService

__all__ = ["status_routes"]

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def status_routes(service: ApiService) -> list[BaseRoute]:
    """The routes that tell how the server is."""

    async def health(request: Request) -> Response:
        """LibreTranslate's answer; 503 while the server ends, so that balancers turn away."""
        if service.queue.closed:
            return JSONResponse({"status": "draining"}, 503)
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(service.metrics.render(), media_type=_PROMETHEUS)

    return [Route("/health", health), Route("/metrics", metrics)]
