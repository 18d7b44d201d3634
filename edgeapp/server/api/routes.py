"""The routes of all programming interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

from edgeapp.model_pool import ModelPool
from edgeapp.process_memory import memory_in_use
from edgeapp.server.access.auth import Logins
from edgeapp.server.api.libretranslate import LibreTranslate
from edgeapp.server.api.live_socket import LiveSocket
from edgeapp.server.api.metrics import Metrics
from edgeapp.server.api.openai_audio import OpenAIAudio
from edgeapp.server.api.openapi import openapi_routes
from edgeapp.server.api.realtime.socket import RealtimeSocket
from edgeapp.server.api.service import ApiService
from edgeapp.server.api.status import status_routes
from edgeapp.server.api.uploads import FormUploads
from edgeapp.server.api.work_queue import MAX_WAITING, WorkQueue
from edgeapp.server.api.work_thread import RunningWork
from edgeapp.server.fairness import FairThreads
from edgeapp.server.sessions import Sessions

if TYPE_CHECKING:
    from edgeapp.server.options import ServerOptions

__all__ = ["api_routes", "make_service"]


def make_service(
    pool: ModelPool, options: ServerOptions, logins: Logins, sessions: Sessions
) -> ApiService:
    """Make what the interfaces share.

    Args:
        pool: The shared models.
        options: Of the server.
        logins: Who sends a request.
        sessions: All live sessions, those of the page too; requests share their places.
    """
    waiting_per_person = MAX_WAITING // 2 if options.shared else MAX_WAITING
    queue = WorkQueue(sessions.places, MAX_WAITING, waiting_per_person)
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        "working": ("Requests of programs at work.", lambda: queue.working),
        "waiting": ("Requests of programs in the line.", lambda: queue.waiting),
        "sessions": ("Sessions that run.", lambda: sessions.running),
        "memory_bytes": ("Memory of the process, GPU memory included.", memory_in_use),
        "cache_bytes": ("Caches of all models.", lambda: pool.cache_bytes),
        "models": ("Models in memory.", lambda: len(pool.loaded)),
    }
    files = max(4, options.sessions)
    uploads = FormUploads(options.upload_mb, files, files // 2 if options.shared else files)
    metrics, threads = Metrics(gauges), FairThreads()
    return ApiService(pool, options, logins, queue, RunningWork(), uploads, metrics, threads)


def api_routes(service: ApiService, sessions: Sessions) -> list[BaseRoute]:
    """All routes for programs.

    Args:
        service: What they share.
        sessions: All live sessions, those of the page too.
    """
    return [
        *OpenAIAudio(service).routes,
        *LibreTranslate(service).routes,
        *RealtimeSocket(service, sessions).routes,
        *LiveSocket(service, sessions).routes,
        *status_routes(service),
        *openapi_routes(),
    ]
