"""Downloads on the command line: with a progress bar, also of a recognizer that is missing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from edgeapp.console import print_note, progress
from edgeapp.english_only import choosing_language
from edgeapp.model_pool import NO_DRAFTS
from pipelines import ModelNotFound

if TYPE_CHECKING:
    from edgeapp.model_pool import Drafts, ModelPool
    from pipelines import TranscribeOptions
    from pipelines.hub import PullProgress, ResolvedModel

__all__ = ["find_or_pull_recognizer", "pull_with_progress"]


def pull_with_progress(
    name: str, source: Literal["auto", "hub", "index"] = "auto"
) -> ResolvedModel:
    """Download a model, with a progress bar on a terminal. As `pipelines.hub.pull`."""
    from pipelines.hub import pull

    with progress(bytes_unit=True) as bar:
        task = bar.add_task(name, total=None)

        def show(state: PullProgress) -> None:
            bar.update(task, completed=state.done_bytes, total=state.total_bytes)

        found = pull(name, show, source)
    if found.note:
        print_note(found.note)
    return found


def find_or_pull_recognizer(
    pool: ModelPool,
    model: str | None,
    options: TranscribeOptions,
    drafts: Drafts = NO_DRAFTS,
) -> ResolvedModel:
    """Find a recognizer of the options' languages as `ModelPool.find_recognizer` does. If the
    recommended one would help and a person is at the terminal, ask whether to download it.

    Raises:
        ModelError: As `ModelPool.find_recognizer`, or the download failed.
    """
    from pipelines.hub import RECOMMENDED_RECOGNIZER, check_recognizer_language, is_offline

    language = choosing_language(options)
    try:
        found = pool.find_recognizer(model, language, options.task, drafts)
    except ModelNotFound as error:
        if (
            error.download != RECOMMENDED_RECOGNIZER
            or not pool.settings.ask_to_download
            or is_offline()
            or not _wants_recommended()
        ):
            raise
        pull_with_progress(RECOMMENDED_RECOGNIZER)
        found = pool.find_recognizer(model, language, options.task, drafts)
    for code in options.languages:
        check_recognizer_language(found, code)
    return found


def _wants_recommended() -> bool:
    """Ask the person at the terminal; False if there is none."""
    from pipelines.hub import RECOMMENDED_RECOGNIZER_IN_WORDS, free_bytes

    streams = (sys.stdin, sys.stdout, sys.stderr)  # None if it is closed
    if os.environ.get("CI") or not all(each and each.isatty() for each in streams):
        return False
    free = f"{free_bytes() / 1e9:,.1f} GB"
    print_note(f"this needs a recognizer that is not on this machine, which has {free} free")
    sys.stderr.write(f"{RECOMMENDED_RECOGNIZER_IN_WORDS}: download it now? [Y/n] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):  # the end of the input
        sys.stderr.write("\n")
        return False
    return answer.strip().lower() in ("", "y", "yes")
