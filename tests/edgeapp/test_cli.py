"""The command line as a whole: help, option spellings, exit codes; no model is loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgeapp.cli import main
from edgeapp.commands.options.refused import REFUSED

HEAVY = ("torch", "transformers", "gradio", "librosa", "numpy", "av")


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [(), ("transcribe",), ("translate",), ("live",), ("models",), ("doctor",)]
)
def test_help_imports_nothing_heavy(command: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom edgeapp.cli import main\n"
        f"try:\n    main([*{command!r}, '--help'])\nfinally:\n"
        f"    loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "Usage: edgeapp" in done.stdout
    assert done.stderr == ""


def test_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["transcribe"], ["translate"]):
        _, out, _ = run(*command, "--help", capsys=capsys)
        assert "130 interrupted" in " ".join(out.split())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("--version", capsys=capsys)
    assert (code, out.split()[0]) == (0, "edgeapp")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX'")
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback() -> None:
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from edgeapp.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux'")
@pytest.mark.parametrize("arguments", ["--version", "--help", "models path demo"])
def test_a_stdout_that_cannot_be_written_is_one_line(arguments: str) -> None:
    command = [sys.executable, "-m", "edgeapp", *arguments.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=180)
    assert done.returncode == 1
    assert done.stderr == "edgeapp: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["transcribe", "a.wav", "--output_format", "odt"], "odt"),
        (["transcribe", "a.wav", "--condition_on_previous_text=maybe"], "'true', 'false'"),
        (["transcribe", "a.wav", "--suppress_tokens", "x"], "suppress_tokens takes token ids"),
        (["transcribe", "a.wav", "--threads", "-1"], "threads"),
        (["transcribe"], "edgeapp transcribe talk.mp3; `edgeapp transcribe --help` lists"),
        (["translate", "a.txt", "b.txt"], "-o FOLDER"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_exits_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in err


def test_a_command_without_its_input_says_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run("transcribe", capsys=capsys)
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("group", [(), ("models",), ("history",), ("bench",), ("subtitles",)])
def test_help_describes_each_command_uncut(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run(*group, "--help", capsys=capsys)
    commands = out[out.index("Commands:") :]
    assert "..." not in commands
    assert "…" not in commands


@pytest.mark.parametrize(
    "command", ["translate", "subtitles check", "history delete", "bench speed"]
)
def test_help_names_arguments_without_python_types(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(*command.split(), "--help", capsys=capsys)
    assert "Arguments:" in out
    assert "<list" not in out


def test_an_output_must_not_be_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = tmp_path / "talk.txt"
    talk.write_text("Hello.\n")
    code, _, err = run("translate", str(talk), "-o", str(talk), capsys=capsys)
    assert (code, talk.read_text()) == (2, "Hello.\n")
    assert "is the input itself" in err


def test_a_missing_model_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for command in (["models", "path", "small"], ["models", "rm", "small"]):
        code, _, err = run(*command, capsys=capsys)
        assert code == 3
        assert err.count("\n") == 1
        assert "small" in err
        assert ("download it first: `edgeapp models pull small`" in err) == (command[1] == "path")


def test_bundled_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("models", "list", capsys=capsys)
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert "demo-en-de" in [row[0] for row in rows]
    assert all(len(row) == 5 and Path(row[4]).is_dir() for row in rows)


def complete(*words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the shell offers for the last word, as bash asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_EDGEAPP_COMPLETE", "complete_bash")
        patch.setenv("COMP_WORDS", " ".join(("edgeapp", *words)))
        patch.setenv("COMP_CWORD", str(len(words)))
        _, out, _ = run(capsys=capsys)
    return out.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["trans"], {"transcribe", "translate"}),
        (["transcribe", "--word-t"], {"--word-timestamps"}),
        (["transcribe", "--task", ""], {"transcribe", "translate"}),
        (["transcribe", "-f", "s"], {"srt"}),
        (["transcribe", "-l", "ger"], {"german"}),
        (["live", "--languages", "en,ger"], {"en,german"}),
        (["translate", "-t", "de"], {"de"}),
        (["transcribe", "-m", "demo"], {"demo", "demo-en-de", "demo-de-en"}),
        (["live", "--policy", "a"], {"agreement", "attention"}),
        (["transcribe", "--compute-type", "int"], {"int8"}),
        (["transcribe", "talk"], set()),  # bash then completes names of files
    ],
)
def test_the_shell_completes(
    words: list[str], offered: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(complete(*words, capsys=capsys)) == offered


def test_completion_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    code, _, _ = run("--install-completion", "bash", capsys=capsys)
    assert code == 0
    script = tmp_path / ".bash_completions" / "edgeapp.sh"
    assert str(script) in (tmp_path / ".bashrc").read_text()
    # -o default: where the program offers no word, bash completes names of files.
    assert "complete -o default -F _edgeapp_completion edgeapp" in script.read_text()


def test_help_is_grouped_and_shows_choices(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("transcribe", "--help", capsys=capsys)
    titles = [line for line in out.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == [
        "Arguments:", "Models:", "Languages:", "Input and output:", "Decoding:", "Silence:",
        "Words and subtitles:", "Computing:", "Other:",
    ]  # fmt: skip
    assert "transcribe|translate" in out
    assert "[auto|float32|bfloat16|float16|int8]" in out
    assert "[True|False]" in out
    assert [name for name in REFUSED if f" {name} " in out] == []
