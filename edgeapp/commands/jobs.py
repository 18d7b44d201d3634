"""`edgeapp jobs`: what was done, when, how fast, with which model, and why not."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from edgeapp.commands.options.common import Debug
from edgeapp.console import counted, format_clock, print_note
from edgeapp.exit_codes import exit_with_code
from edgeapp.settings import journal_file, load_settings

if TYPE_CHECKING:
    from edgeapp.batch.journal.job_journal import JobRecord

__all__ = ["jobs"]


def jobs(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per job.")] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only those that failed; also of --clear.")
    ] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete the journal's texts and records.")
    ] = False,
    debug: Debug = False,
) -> None:
    """List what `transcribe` and `translate` have done, and can go on with, the latest last.

    The journal keeps the texts of finished work for 30 days, on this machine only.
    """
    with exit_with_code(debug):
        path = journal_file(load_settings())
        if path is None or not path.exists():
            print_note("there are no jobs")
            raise typer.Exit
        from edgeapp.batch.journal.job_journal import JobJournal, State

        with JobJournal(path) as journal:
            if clear:
                count = journal.clear(State.FAILED if failed else None)
                print_note(f"{counted(count, 'job')} deleted")
                raise typer.Exit
            records = [r for r in journal.records() if not failed or r.state is State.FAILED]
            if not records:
                print_note("there are no jobs" if not failed else "no job has failed")
            for record in records:
                state = record.state.value
                if record.state is State.RUNNING and not journal.is_at_work(record.key):
                    state = "ended"  # by a signal or a power cut; the same command goes on
                as_record = asdict(record) | {"state": state}
                typer.echo(json.dumps(as_record) if as_json else _line(record, state))


def _line(record: JobRecord, state: str) -> str:
    """When, what, with which model, how fast, or why not."""
    from edgeapp.batch.journal.job_journal import State

    when = datetime.fromtimestamp(record.started).strftime("%Y-%m-%d %H:%M")
    parts = [when, state.ljust(7), record.input]
    if record.model:  # none for a download
        parts.append(f"({record.model})")
    if record.audio_s is not None:
        parts.append(format_clock(record.audio_s))
    if record.lines is not None:
        parts.append(f"{record.lines} {'line' if record.lines == 1 else 'lines'}")
        if record.state is State.DONE and record.worked_s:
            parts.append(f"{record.lines / record.worked_s:.1f} a second")
    if record.state is State.DONE and record.audio_s and record.worked_s:
        parts.append(f"{record.audio_s / record.worked_s:.1f} x real time")
    if record.message:
        parts.append(f"– {record.message}")
    return " ".join(parts)
