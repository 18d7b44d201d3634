"""The command line: `edgeapp transcribe`, `translate`, `live`, `ui`, `models`, `doctor` …"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgeapp.commands import bench, history, models, subtitles, tokens
from edgeapp.commands.demo import demo
from edgeapp.commands.doctor import doctor
from edgeapp.commands.jobs import jobs
from edgeapp.commands.live import live
from edgeapp.commands.options.command import CommandGroup, GroupedCommand
from edgeapp.commands.read import read
from edgeapp.commands.serve import serve
from edgeapp.commands.transcribe import TranscribeCommand, transcribe
from edgeapp.commands.translate import translate
from edgeapp.commands.ui import ui
from edgeapp.commands.watch import watch
from edgeapp.console import show_warnings_as_notes
from edgeapp.exit_codes import EXIT_CODES, INTERRUPTED, end_of_output, end_signals_interrupt
from edgeapp.standard_streams import check_standard_streams

__all__ = ["app", "main"]

app = typer.Typer(
    name="edgeapp",
    cls=CommandGroup,
    help="Speech in, text and translation out: live, private, on your own machine.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=EXIT_CODES, cls=TranscribeCommand)(transcribe)
app.command(epilog=EXIT_CODES, cls=GroupedCommand)(translate)
app.command(epilog=EXIT_CODES, cls=GroupedCommand)(read)
app.command(epilog=EXIT_CODES, cls=GroupedCommand)(watch)
app.command(epilog=EXIT_CODES, cls=GroupedCommand)(live)
app.command(epilog=EXIT_CODES, cls=GroupedCommand)(ui)
app.command(epilog=EXIT_CODES, cls=GroupedCommand)(serve)
app.command(cls=GroupedCommand)(demo)
app.command(cls=GroupedCommand)(doctor)
app.command(cls=GroupedCommand)(jobs)
app.add_typer(bench.app, name="bench", help="How fast models are here, and how late captions.")
app.add_typer(subtitles.app, name="subtitles", help="Subtitle files: check them against a style.")
app.add_typer(history.app, name="history", help="Past sessions: list, export, delete, repair.")
app.add_typer(tokens.app, name="tokens", help="Tokens of programs: new, list, revoke.")
app.add_typer(models.app, name="models", help="Models on this machine: list, pull, rm, path.")


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"edgeapp {version('edgeapp')}")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Args:
        arguments: Command-line arguments; None takes those of the process.
    """
    check_standard_streams()
    show_warnings_as_notes()
    end_signals_interrupt()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            app(args=_with_dashes(arguments), prog_name="edgeapp")
        finally:
            sys.stdout.flush()  # here: at the exit of Python an error could not be handled
    except BrokenPipeError as error:
        sys.exit(end_of_output(error))
    except KeyboardInterrupt:  # before a command has begun or after it has ended
        sys.exit(INTERRUPTED)


def _with_dashes(arguments: list[str]) -> list[str]:
    """Arguments with dashes in option names: openai-whisper's --output_dir is --output-dir."""
    normalised: list[str] = []
    for position, argument in enumerate(arguments):
        if argument == "--":
            return normalised + arguments[position:]
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            argument = name.replace("_", "-") + equals + value
        normalised.append(argument)
    return normalised
