"""Entry point of the command `edgeapp` and of `python -m edgeapp`."""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    An older Python is refused before a module is imported that it cannot compile. Until the
    modules are imported, Ctrl-C ends the process at once instead of raising somewhere in an import;
    `edgeapp.cli.main` then lets it interrupt the command.
    """
    if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be run by any Python
        version = sys.version.split()[0]
        sys.exit(f"edgeapp: needs Python 3.11 or later; {sys.executable} is {version}")
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from edgeapp.cli import main as run

    try:
        run()
    except SystemExit as end:
        _end_at_once(end.code)
        raise


def _end_at_once(code: object) -> None:
    """End the process without taking the interpreter down, where that would not end well.

    Native code in a daemon thread (a model being loaded) aborts the process with a core dump when
    the interpreter is taken down under it. And after a Ctrl-C that came in an `eval` of a text, as
    imports of named tuples do, `python -m` kills itself by SIGINT in place of the exit code.
    """
    import atexit
    import os
    import threading

    from edgeapp.exit_codes import INTERRUPTED

    if not (code is None or isinstance(code, int)):
        return
    atexit._run_exitfuncs()  # which ends threads that wait for work
    if threading.active_count() == 1 and code != INTERRUPTED:
        return
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 1
    os._exit(code or 0)


if __name__ == "__main__":
    main()
