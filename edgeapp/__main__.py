"""Entry point of the command `edgeapp` and of `python -m edgeapp`."""

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    Until its modules are imported, Ctrl-C ends the process at once instead of raising somewhere in
    an import; `edgeapp.cli.main` then lets it interrupt the command.
    """
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from edgeapp.cli import main as run

    run()


if __name__ == "__main__":
    main()
