"""huggingface_hub's client: silenced while it is used, and its errors as ends of sentences."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR

from pipelines.hub.addresses import InsecureMirror, check_endpoint, insecure_mirror
from pipelines.hub.names import plain_line


@contextmanager
def quiet_client() -> Iterator[None]:
    """Check the hub's address, and silence the client's log: it logs each attempt, and `pull`
    reports the outcome only."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging

    check_endpoint(constants.ENDPOINT)
    warning = insecure_mirror(constants.ENDPOINT)
    if warning is not None:
        warnings.warn(warning, InsecureMirror, stacklevel=4)  # the caller of pull or plan_pull
    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE switches downloads off."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def is_storage_error(error: Exception) -> bool:
    """Whether an error of a download is one of this machine's disk, not of the connection."""
    network = ConnectionError, TimeoutError
    return isinstance(error, OSError) and bool(error.errno) and not isinstance(error, network)


def reason_of(error: BaseException) -> str:
    """An error of the client as the end of a sentence."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        # The client summarises several possible causes; __cause__ is the actual one.
        return reason_of(error.__cause__)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, which switches downloads off"
    if isinstance(error, errors.HfHubHTTPError):
        return f"it answered {error.response.status_code} {error.response.reason_phrase}".rstrip()
    reason = plain_line(str(error)) or type(error).__name__
    # Of the connection: answers of the hub are above.
    if isinstance(error, errors.HTTPError):  # type: ignore[attr-defined]
        return f"there is no connection to it, this machine may be offline ({reason})"
    return reason
