"""Entry point of `python -m edgeapp`."""

from edgeapp.cli import main

main()
