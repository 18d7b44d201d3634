"""What went wrong between the hub and this machine, in a line that says what to do."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.errors import ModelError, ModelNotFound
from pipelines.hub.cache import cache_folder, cached_snapshot, unusable
from pipelines.hub.catalog import ResolvedModel, resolved

__all__ = ["readable_network_errors"]


def readable_network_errors(name: str, repository: str, error: Exception) -> ResolvedModel:
    """The copy in the cache where the hub only could not be reached; else raises what is wrong."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    if isinstance(error, errors.GatedRepoError):
        raise ModelNotFound(
            f"{repository} is given to people who accepted its terms only: accept them at "
            f"{hub}/{repository}, then run `hf auth login`"
        ) from error
    if isinstance(error, errors.RepositoryNotFoundError):
        raise ModelNotFound(
            f"{hub} has no model {repository}, or not for you; check the name, "
            "or run `hf auth login` if it is private"
        ) from error
    if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
        raise ModelError(
            f"{repository} cannot be stored in {cache_folder()}: {error.strerror}"
        ) from error
    problem = f"{repository} cannot be downloaded from {hub}: {_first_line(error)}"
    folder = cached_snapshot(repository)
    if folder is None:
        raise ModelNotFound(
            f"{problem}; it is not in {cache_folder()} either; "
            f"once the hub can be reached, `edgeapp models pull {name}` downloads it"
        ) from error
    if unusable(folder) is not None:
        raise ModelNotFound(
            f"{problem}; `edgeapp models pull {name}` goes on from what is in {cache_folder()}"
        ) from error
    return resolved(repository, folder, "cache", f"{problem}; the copy in the cache is used")


def _first_line(error: BaseException) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        # The client's summary of several possible causes; this is the one.
        return _first_line(error.__cause__)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    if isinstance(error, errors.HfHubHTTPError):
        return f"it answered {error.response.status_code} {error.response.reason_phrase}".rstrip()
    lines: Iterable[str] = str(error).splitlines()
    line = next((line for line in lines if line.strip()), type(error).__name__)
    # Parts of it may come from the server.
    return "".join(c if c.isprintable() else "?" for c in line[:300])
