"""`edgeapp subtitles`: check subtitle files, and shape them anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.commands.options.command import CommandGroup, GroupedCommand
from edgeapp.commands.options.common import Debug
from edgeapp.console import counted, print_note
from edgeapp.documents.text_encoding import EncodingHint, named_encoding
from edgeapp.exit_codes import DONE, SOME_FAILED, exit_code_of, exit_with_code, print_error
from edgeapp.subtitles.style import DEFAULT_STYLE, STYLES, style_of

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Style = Annotated[
    str, typer.Option("--style", help=f"The rules: {', '.join(STYLES)}.", metavar="NAME")
]


@app.callback()
def _app() -> None:
    """Subtitle files: check them against the rules of a style."""


@app.command(cls=GroupedCommand)
def check(
    files: Annotated[list[Path], typer.Argument(help="Subtitle files: srt, vtt, ass, ttml …")],
    style: Style = DEFAULT_STYLE.name,
    encoding: Annotated[
        str | None,
        typer.Option("--encoding", help="Encoding of the files. Default: told.", metavar="NAME"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per violation.")] = False,
    debug: Debug = False,
) -> None:
    """Report each line, cue and time that breaks a rule; exit with 1 if there is one.

    The rules are lines and characters per line, reading speed, shortest and longest time, gaps,
    overlaps, order, and lines that break between an article and its noun or in a name.
    """
    with exit_with_code(debug):
        limits = style_of(style)
        named = None if encoding is None else named_encoding(encoding)
        hint = EncodingHint(named, has_option=True)
        code = DONE
        from edgeapp.documents.subtitle_file import read
        from edgeapp.documents.subtitle_markup import plain_text
        from edgeapp.subtitles.check import violations
        from pipelines.subtitles import Cue, stamp

        for path in files:
            try:
                file = read(path, hint)
            except Exception as error:  # the other files are checked all the same
                print_error(error, str(path), debug)
                code = max(code, exit_code_of(error))
                continue
            cues = [Cue(c.start, c.end, plain_text(c.text, file.format)) for c in file.cues]
            found = list(violations(cues, limits, file.format))
            for violation in found:
                if as_json:
                    record = {"file": str(path), **violation.__dict__}
                    typer.echo(json.dumps(record, ensure_ascii=False))
                else:
                    time = stamp(abs(violation.start), hours=True, mark=".")
                    time = f"-{time}" if violation.start < 0 else time
                    typer.echo(
                        f"{path}: cue {violation.cue} ({time}): {violation.rule}: "
                        f"{violation.message}"
                    )
            print_note(
                f"{path}: {counted(len(cues), 'cue')}, "
                f"{counted(len(found), 'violation')} of {limits.name}"
            )
            if found:
                code = max(code, SOME_FAILED)
        raise typer.Exit(code)
