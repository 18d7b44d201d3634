"""`edgeapp transcribe` and `edgeapp demo` as their users run them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from edgeapp.live.devices import has_portaudio
from pipelines.hub import assets_folder
from tests.e2e.conftest import Edgeapp

SAMPLES = assets_folder() / "samples"
FORMATS = ("txt", "srt", "vtt", "tsv", "json", "lrc", "csv")


def test_good_files_are_done_and_the_broken_one_is_named(
    edgeapp_here: Edgeapp, tmp_path: Path
) -> None:
    shutil.copy(SAMPLES / "question.flac", tmp_path / "a.flac")
    (tmp_path / "broken.mp3").write_text("This is no music.")
    samples, rate = soundfile.read(SAMPLES / "digits.flac")
    soundfile.write(tmp_path / "b.wav", np.stack([samples, samples], 1), rate)
    done = edgeapp_here("transcribe", "a.flac", "broken.mp3", "b.wav", "-f", "all", "-o", "out")
    assert done.returncode == 1
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        f"{name}.{fmt}" for name in "ab" for fmt in FORMATS
    }
    assert [line for line in done.stderr.splitlines() if "broken.mp3" in line]
    assert "2 done, 1 failed; " in done.stderr
    assert done.stdout == ""
    whole = json.loads((tmp_path / "out/a.json").read_text())
    assert whole["language"] == "en"
    assert set(whole["segments"][0]) == {
        "id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob",
        "compression_ratio", "no_speech_prob", "words",
    }  # fmt: skip


def test_plain_lines_in_a_pipe(edgeapp: Edgeapp) -> None:
    done = edgeapp("transcribe", SAMPLES / "question.flac", "-m", "demo")
    assert done.returncode == 0
    assert done.stdout.strip()
    assert "\x1b" not in done.stdout
    assert "-->" not in done.stdout
    assert done.stderr == ""


def test_stdin_and_a_format_on_stdout(edgeapp: Edgeapp) -> None:
    recording = (SAMPLES / "question.flac").read_bytes()
    done = edgeapp("transcribe", "-", "-m", "demo", "--output_format", "srt", stdin=recording)
    assert done.returncode == 0
    assert done.stdout.startswith("1\n00:00:0")


def test_a_translation_goes_beside_the_text(edgeapp_here: Edgeapp, tmp_path: Path) -> None:
    question = SAMPLES / "question.flac"
    done = edgeapp_here(
        "transcribe", question, "-m", "demo", "--translate-to", "de", "-f", "srt,json", "-o", "out"
    )
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "question.srt", "question.de.srt", "question.json",
    }  # fmt: skip
    whole = json.loads((tmp_path / "out/question.json").read_text())
    assert whole["translation"]["language"] == "de"
    assert whole["translation"]["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--language", "fr"], "not French"),
        (["--task", "translate"], "translate"),
        (["-m", "demo-en-de"], "demo-en-de"),
    ],
)
def test_what_the_model_cannot_do_is_said(
    edgeapp_here: Edgeapp, arguments: list[str], said: str
) -> None:
    named = [] if "-m" in arguments else ["-m", "demo"]
    done = edgeapp_here("transcribe", SAMPLES / "question.flac", *named, *arguments)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_silence_and_next_to_nothing(edgeapp_here: Edgeapp, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(16_000 * 12), 16_000)
    soundfile.write(tmp_path / "one.wav", np.zeros(1), 16_000)
    done = edgeapp_here(
        "transcribe", "silent.wav", "one.wav", "-m", "demo", "-f", "txt", "-o", "out"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/silent.txt").read_text() == ""
    assert (tmp_path / "out/one.txt").read_text() == ""


def test_missing_files_and_folders_named_like_recordings(
    edgeapp_here: Edgeapp, tmp_path: Path
) -> None:
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "empty.wav").write_bytes(b"")
    done = edgeapp_here("transcribe", "missing.wav", "folder.wav", "empty.wav", "-m", "demo")
    assert done.returncode == 1
    for name in ("missing.wav", "folder.wav", "empty.wav"):
        assert f"{name}: " in done.stderr or f"{name} " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_as_ctrl_c_does(
    number: signal.Signals, tmp_path: Path, environment: dict[str, str], program: list[str]
) -> None:
    samples, rate = soundfile.read(SAMPLES / "talk.flac")
    soundfile.write(tmp_path / "long.wav", np.tile(samples, 60), rate)
    command = [*program, "transcribe", "long.wav", "-m", "demo"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # The tests themselves may run under nohup, and what is ignored stays ignored.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=400)
    assert process.returncode == 130
    assert b"interrupted; " in err
    assert b"Traceback" not in err


def test_ctrl_c_keeps_what_was_heard(
    tmp_path: Path, environment: dict[str, str], program: list[str]
) -> None:
    samples, rate = soundfile.read(SAMPLES / "talk.flac")
    soundfile.write(tmp_path / "long.wav", np.tile(samples, 60), rate)
    command = [*program, "transcribe", "long.wav", "-m", "demo"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=400)
    assert process.returncode == 130
    assert b"Traceback" not in err

    # Nothing tells from outside that a segment is done: on a busy machine, later signals find one.
    out, seconds = b"", 4.0
    while not out:
        process = subprocess.Popen(
            [*command, "-f", "srt"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
        )
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=400)
        assert process.returncode == 130
        seconds *= 2
    assert out.startswith(b"1\n00:00:0")

    command += ["-f", "srt", "-o", "out", "--verbose", "True"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=400)
    assert process.returncode == 130
    assert (tmp_path / "out/long.srt.part").read_text().startswith("1\n00:00:0")


def test_the_demo(edgeapp: Edgeapp, tmp_path: Path) -> None:
    done = edgeapp("demo")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "demo-output"
    assert str(folder) in done.stderr
    whole = json.loads((folder / "talk.json").read_text())
    assert len(whole["segments"]) >= 3
    assert (folder / "talk.srt").read_text().startswith("1\n")
    assert (folder / "talk.de.srt").read_text().startswith("1\n")
    figures = done.stdout.splitlines()[-1]
    for word in ("s of audio", "real-time factor", "tokens/s", "cpu"):
        assert word in figures
    microphone = "`edgeapp live`"
    if not has_portaudio():
        microphone = "`edgeapp ui`, as PortAudio is not installed"
    assert "transcribing talk.flac with the bundled demo\n" in done.stderr
    assert [line.partition(": ")[2] for line in done.stderr.splitlines()[-4:]] == [
        "the bundled demo knows synthetic voices only: for yours, first "
        "`edgeapp models pull tiny.en`",
        f"your microphone: {microphone}",
        "your file: `edgeapp transcribe FILE`",
        "the page: `edgeapp ui`",
    ]


def test_the_demo_takes_tiny_en(
    edgeapp: Edgeapp, environment: dict[str, str], whisper_folder: Callable[..., Path]
) -> None:
    """One with random weights, which does not write much sense."""
    cache = Path(environment["HF_HUB_CACHE"]) / "models--openai--whisper-tiny.en"
    shutil.copytree(whisper_folder("tiny.en"), cache / "snapshots" / ("a" * 40))
    done = edgeapp("demo")
    assert done.returncode == 0, done.stderr
    assert "transcribing talk.flac with tiny.en\n" in done.stderr
    assert "bundled" not in done.stderr
    assert done.stderr.splitlines()[-1] == "edgeapp: the page: `edgeapp ui`"
