"""Options of the commands that work on many files, and the journal that they share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.journal.job_journal import JobJournal
from edgeapp.batch.remote_file import RemoteFiles
from edgeapp.batch.run_progress import ProgressOutput, RunProgress
from edgeapp.commands.options.common import INPUT_OUTPUT
from edgeapp.console import print_note
from edgeapp.exit_codes import InputFailures
from edgeapp.settings import Settings, journal_file
from pipelines import InputError, OptionError, OutputError

__all__ = [
    "AllowPrivate",
    "AllowUrls",
    "DryRun",
    "Events",
    "FromList",
    "NoJournal",
    "Overwrite",
    "RetryFailed",
    "end_without_files",
    "open_journal",
    "remote_files",
]

FromList = Annotated[
    Path | None,
    typer.Option(
        "--from-list",
        help="File that names inputs, one a line.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
AllowUrls = Annotated[
    bool,
    typer.Option(
        "--allow-urls",
        help="Download inputs that are http or https addresses.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
AllowPrivate = Annotated[
    bool,
    typer.Option(
        "--allow-private",
        help="With --allow-urls: from this machine and its network too.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Do again what is done, and replace files of other origin.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Do only what has failed.", rich_help_panel=INPUT_OUTPUT),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Say what would be done, and end.", rich_help_panel=INPUT_OUTPUT
    ),
]
NoJournal = Annotated[
    bool,
    typer.Option(
        "--no-journal",
        help="Keep nothing but the results: an ended run then begins anew.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Events = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Progress as JSON lines on stdout, for programs; results in files.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]


def remote_files(allow_urls: bool, allow_private: bool) -> RemoteFiles | None:
    """What makes the inputs at addresses; None if they are not asked for.

    Raises:
        OptionError: --allow-private without --allow-urls.
    """
    if allow_private and not allow_urls:
        raise OptionError("--allow-private does nothing without --allow-urls")
    return RemoteFiles(allow_private) if allow_urls else None


def end_without_files(
    inputs: Sequence[FoundInput],
    unit: Literal["audio", "lines"],
    *,
    events: bool = False,
    debug: bool = False,
) -> None:
    """End the command if no input is a file, with a line for each, before a model is loaded.

    Args:
        inputs: The inputs.
        unit: As for `RunProgress`.
        events: Print the events of the failures on stdout.
        debug: Print tracebacks.

    Raises:
        typer.Exit: No input is a file.
    """
    if any(each.problem is None for each in inputs):
        return
    failures = InputFailures(len(inputs), debug)
    output = ProgressOutput.EVENTS if events else ProgressOutput.NONE
    with RunProgress([each.shown for each in inputs], unit, output) as progress:
        for each in inputs:
            with failures.catch(each.shown), progress.file(each.shown):
                raise InputError(each.problem or "")
    raise typer.Exit(failures.exit_code())


def open_journal(stack: ExitStack, settings: Settings, *, wanted: bool) -> JobJournal | None:
    """Open the journal of jobs; return None if it is not wanted, switched off, or unusable.

    Args:
        stack: Closes the journal.
        settings: The settings of the program.
        wanted: Whether there are results in files, and the user has not declined it.
    """
    path = journal_file(settings) if wanted else None
    try:
        return None if path is None else stack.enter_context(JobJournal(path))
    except OutputError as error:
        print_note(f"going on without the journal: {error}")
        return None
