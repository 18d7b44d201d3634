"""Closed, full and broken standard streams: every command treats them as `cat` does."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.hub import assets_folder
from tests.e2e.conftest import FRESH

SAMPLES = assets_folder() / "samples"
FULL = "stdout cannot be written: No space left on device"
CLOSED = "stdout cannot be written: Bad file descriptor"

# Commands that print results, by the name of their test.
COMMANDS = {
    "help": "--help",
    "version": "--version",
    "list": "models list",
    "path": "models path demo",
    "transcribe": f"transcribe {SAMPLES}/talk.flac {SAMPLES}/talk.flac -m demo",
    "srt": f"transcribe {SAMPLES}/question.flac -m demo -f srt",
    "translate": "translate many.txt -m demo-en-de",
    "live": f"live --from-file {SAMPLES}/question.flac --speed 0 -m demo",
    "demo": "demo",
}

Shell = Callable[[str], subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def unbuffered(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shell(tmp_path: Path, environment: dict[str, str], program: list[str]) -> Shell:
    """Runs a command line of bash, in which `edgeapp` is the program, `fresh` as it is installed:
    for the closed streams that Python itself finds at its start."""
    (tmp_path / "many.txt").write_text("Good morning.\n" * 300)

    def run(line: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [
                "bash",
                "-c",
                f'edgeapp() {{ {shlex.join(program)} "$@"; }}\n'
                f'fresh() {{ {shlex.join(FRESH)} "$@"; }}\n{line}',
            ],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
        )
        for sign in ("Traceback", "Exception", "unexpected error"):
            assert sign not in done.stderr, done.stderr
        return done

    return run


def _without_reader(command: str) -> str:
    """A command line that prints the exit code of a command whose reader has gone before it began,
    however busy the machine is."""
    waiting = "touch reader; { while [ -e reader ]; do sleep 0.01; done"
    return f"{waiting}; {command}; }} | {{ exec <&-; rm reader; }}; echo ${{PIPESTATUS[0]}}"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_full_disk(command: str, shell: Shell) -> None:
    done = shell(f"edgeapp {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"edgeapp: {FULL}"
    assert done.stderr.count("cannot be written") == 1


@pytest.mark.parametrize("name", ["help", "path", "translate"])
def test_a_closed_stdout(name: str, shell: Shell) -> None:
    done = shell(f"{'edgeapp' if name == 'translate' else 'fresh'} {COMMANDS[name]} >&-")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"edgeapp: {CLOSED}"


@pytest.mark.parametrize("name", ["help", "list", "transcribe", "translate", "live"])
def test_a_reader_that_is_gone(name: str, shell: Shell) -> None:
    """The exit code is that of a program that SIGPIPE ended; nothing is printed."""
    done = shell(_without_reader(f"edgeapp {COMMANDS[name]}"))
    assert done.stdout == "141\n"
    assert "edgeapp: stdout" not in done.stderr


@pytest.mark.parametrize("name", ["version", "list"])
def test_buffered_or_not_it_is_the_same(
    name: str, unbuffered: str, shell: Shell, environment: dict[str, str]
) -> None:
    environment["PYTHONUNBUFFERED"] = unbuffered
    done = shell(f"fresh {COMMANDS[name]} > /dev/full")
    assert (done.returncode, done.stderr) == (1, f"edgeapp: {FULL}\n")
    done = shell(_without_reader(f"edgeapp {COMMANDS[name]}"))
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_failing_stderr_does_not_stop_a_command(shell: Shell) -> None:
    inputs = f"missing.flac {SAMPLES}/question.flac"
    done = shell(f"edgeapp transcribe {inputs} -m demo 2>/dev/full")
    assert done.returncode == 1
    assert "train to Boston" in done.stdout
    for redirection in ("2>&-", "2>/dev/full"):
        assert shell(f"fresh --no-such-option {redirection}").returncode == 2


@pytest.mark.parametrize(
    "command", ["edgeapp transcribe - -m demo", "fresh translate -m demo-en-de"]
)
def test_a_closed_stdin(command: str, shell: Shell) -> None:
    done = shell(f"{command} <&-")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "edgeapp: stdin is closed: pipe the input into it, or name a file\n"


def test_streams_that_are_not_needed_may_be_closed(shell: Shell, tmp_path: Path) -> None:
    """No file gets the number of a closed stream, and with it what belongs there."""
    flags = "-f txt,srt -o out <&- >&- 2>&-"
    done = shell(f"fresh transcribe {SAMPLES}/question.flac missing.flac -m demo {flags}")
    assert done.returncode == 1
    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert written.keys() == {"question.txt", "question.srt"}
    assert written["question.txt"].count("\n") == 1
    assert "edgeapp" not in "".join(written.values())


def test_a_live_session_goes_on_to_its_files(shell: Shell, tmp_path: Path) -> None:
    source = f"--from-file {SAMPLES}/question.flac --speed 0"
    done = shell(f"edgeapp live {source} -m demo -o a.srt > /dev/full")
    assert done.stderr.splitlines() == [f"edgeapp: {FULL}"]
    assert "Boston" in (tmp_path / "a.srt").read_text()
