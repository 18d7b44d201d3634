"""`edgeapp tokens`: access tokens of programs that use the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgeapp.commands.options.command import CommandGroup
from edgeapp.commands.options.common import Debug
from edgeapp.console import print_note
from edgeapp.exit_codes import exit_with_code
from edgeapp.settings import tokens_file

if TYPE_CHECKING:
    from edgeapp.server.access.tokens import TokenFile

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Who uses the token, such as laptop.")]


@app.command()
def new(name: Name, debug: Debug = False) -> None:
    """Make a token and print it, once. A server that runs accepts it from now on."""
    with exit_with_code(debug):
        secret = _tokens().add(name)
        print_note(f"the token of {name}; it cannot be shown again")
        typer.echo(secret)


@app.command("list")
def list_(debug: Debug = False) -> None:
    """List the names of the tokens, with the time at which each was made."""
    with exit_with_code(debug):
        for token in _tokens().tokens:
            typer.echo(f"{token.name}\t{token.created}")


@app.command()
def revoke(name: Name, debug: Debug = False) -> None:
    """Delete a token. A server that runs refuses it from now on."""
    with exit_with_code(debug):
        _tokens().revoke(name)
        print_note(f"{name} is revoked")


def _tokens() -> TokenFile:
    from edgeapp.server.access.tokens import TokenFile

    return TokenFile(tokens_file())
