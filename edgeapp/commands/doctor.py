"""`edgeapp doctor`: examine this machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from edgeapp.commands.options.common import Debug
from edgeapp.exit_codes import DONE, SOME_FAILED, exit_with_code

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    microphone: Annotated[
        bool,
        typer.Option(
            "--microphone/--no-microphone", help="Listen to the default microphone for a second."
        ),
    ] = True,
    debug: Debug = False,
) -> None:
    """Examine this machine: versions, models, disk, CPU, GPU, microphones.

    ok: works; --: optional, missing; !!: broken. What to do follows after ->. Exit code 1 if
    something is broken.
    """
    with exit_with_code(debug):
        from edgeapp.doctor.examination import examine
        from edgeapp.doctor.findings import as_object, as_text, healthy

        findings = examine(microphone=microphone)
        if as_json:
            typer.echo(json.dumps(as_object(findings), ensure_ascii=False, indent=2))
        else:
            typer.echo(as_text(findings))
        raise typer.Exit(DONE if healthy(findings) else SOME_FAILED)
