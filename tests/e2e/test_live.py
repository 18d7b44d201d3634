"""`edgeapp live` as its users run it: a real PortAudio microphone, a recording, Ctrl-C, kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import soundfile

from pipelines.hub import assets_folder
from tests.e2e.conftest import FRESH, Edgeapp
from tests.fixtures.live_options import note_options
from tests.fixtures.pulse import PulseMicrophone

TALK = assets_folder() / "samples" / "talk.flac"
LIVE = ["live", "-m", "demo", "--json"]


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """The first sentences, as a WAV file."""
    samples, rate = soundfile.read(TALK, stop=9 * 16_000)
    soundfile.write(tmp_path / "talk.wav", samples, rate)
    return tmp_path / "talk.wav"


def started(
    command: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """A program that runs in a folder; what it writes can be read."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe)


def wait_for(file: IO[bytes], text: bytes, seconds: float = 400) -> bytes:
    """What a program has written when it has written a text."""
    deadline, seen = time.monotonic() + seconds, b""
    while text not in seen:
        assert time.monotonic() < deadline, seen
        piece = os.read(file.fileno(), 4096)
        assert piece, f"it ended before it said {text!r}: {seen!r}"
        seen += piece
    return seen


def events_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(e["text"] for e in events if e["type"] == "committed")


def test_a_microphone(
    talk: Path, tmp_path: Path, environment: dict[str, str], pulse_microphone: PulseMicrophone
) -> None:
    process = started(
        [*FRESH, *LIVE, "-o", "talk.srt", "--save-audio", "kept.wav", "--translate-to", "de"],
        tmp_path,
        environment | pulse_microphone.environment,
    )
    assert process.stderr is not None
    wait_for(process.stderr, b"while the models load")
    pulse_microphone.play(talk)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    events = events_of(out.decode())
    said = text_of(events).lower()
    assert len({"house", "garden", "new", "big", "want", "about"} & set(said.split())) >= 2, said
    assert events[-1]["type"] == "end"
    assert [e for e in events if e["type"] == "translation_final"]
    assert not [e for e in events if e["type"] == "warning"]
    assert (tmp_path / "talk.srt").read_text().startswith("1\n00:00:")
    assert (tmp_path / "talk.de.srt").exists()
    kept, rate = soundfile.read(tmp_path / "kept.wav")
    assert rate == 16_000
    assert np.abs(kept).max() > 0.1


def test_a_headset_and_the_loudspeakers_by_their_names(
    tmp_path: Path, environment: dict[str, str], pulse_microphone: PulseMicrophone
) -> None:
    """The example of the documents; the headset is muted for a while."""
    environment = environment | pulse_microphone.environment
    command = [*FRESH, *LIVE, "--save-audio", "both.wav"]
    command += ["--input-device", "headset", "--input-device", "monitor"]
    tones = {"mic": 500.0, "speakers": 1_500.0}
    for sink, pitch in tones.items():
        tone = 0.3 * np.sin(2 * np.pi * pitch * np.arange(400 * 8_000) / 8_000)
        soundfile.write(tmp_path / f"{sink}.wav", tone, 8_000)
    with pulse_microphone.desk():
        listed = subprocess.run(
            [*FRESH, "live", "--list-devices"], env=environment, capture_output=True, text=True
        )
        shown = [line.split("\t")[1:] for line in listed.stdout.splitlines()]
        assert ["USB-Headset", "1 channel", "48000 Hz"] in shown
        assert ["Monitor of Loudspeakers", "2 channels", "44100 Hz", "what programs play"] in shown
        players = [
            subprocess.Popen(
                ["paplay", f"--device={sink}", str(tmp_path / f"{sink}.wav")], env=environment
            )
            for sink in tones
        ]
        process = started(command, tmp_path, environment)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            said = wait_for(process.stderr, b"while the models load")
            assert b"recording USB-Headset and Monitor of Loudspeakers" in said
            wait_for(process.stdout, b'"status"')
            pulse_microphone.control("set-source-mute", "usb_headset", "1")
            wait_for(process.stdout, b"the microphone 'USB-Headset' sends only silence")
            pulse_microphone.control("set-source-mute", "usb_headset", "0")
            wait_for(process.stdout, b"the microphone 'USB-Headset' is heard again")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=400)
        finally:
            for each in (*players, process):
                each.kill()
                each.wait()
    assert process.returncode == 0, err
    kept, rate = soundfile.read(tmp_path / "both.wav")
    for channel, pitch in zip(kept.T, tones.values(), strict=True):
        loudest = np.abs(np.fft.rfft(channel[-rate:])).argmax()
        assert loudest == pytest.approx(pitch, abs=10)


def test_a_microphone_that_is_unplugged_and_plugged_in_again(
    tmp_path: Path, environment: dict[str, str], pulse_microphone: PulseMicrophone
) -> None:
    process = started(
        [*FRESH, *LIVE, "--save-audio", "kept.wav"],
        tmp_path,
        environment | pulse_microphone.environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        out = wait_for(process.stdout, b'"status"')
        pulse_microphone.unplug()
        try:
            err = wait_for(process.stderr, b"waiting for a microphone")
            time.sleep(3)
        finally:
            pulse_microphone.plug()
        out += wait_for(process.stdout, b'"gap"')
        out += wait_for(process.stdout, b'"status"')
        process.send_signal(signal.SIGINT)
        rest, more = process.communicate(timeout=400)
    finally:
        process.kill()
        process.wait()
    notes = (err + more).decode().splitlines()
    assert not [note for note in notes if not note.startswith("edgeapp: ")], "as PortAudio prints"
    assert process.returncode == 0, notes
    events = events_of((out + rest).decode())
    # A busy machine may lose other audio.
    assert [e for e in events if e["type"] == "warning" and "was disconnected" in e["message"]]
    away = "no microphone was there"
    (gap,) = (e for e in events if e["type"] == "gap" and e["message"].endswith(away))
    assert gap["end"] - gap["start"] > 3
    kept, rate = soundfile.read(tmp_path / "kept.wav")
    assert len(kept) / rate == pytest.approx(events[-1]["time"], abs=0.1)


def test_a_recording_as_if_spoken(edgeapp_here: Edgeapp, talk: Path, tmp_path: Path) -> None:
    command = ("live", "-m", "demo", "--from-file", talk, "--speed", "0")
    done = edgeapp_here(*command, "-o", "a.txt", "--json")
    assert done.returncode == 0, done.stderr
    events = events_of(done.stdout)
    types = {event["type"] for event in events}
    assert {"speech_start", "partial", "committed", "speech_end", "end"} <= types
    words = (tmp_path / "a.txt").read_text().split()
    assert words == text_of(events).split()
    text = edgeapp_here(*command)
    assert text.stdout == (tmp_path / "a.txt").read_text()


def test_ctrl_c_flushes_the_tail(
    talk: Path, tmp_path: Path, environment: dict[str, str], program: list[str]
) -> None:
    command = [*program, *LIVE, "--from-file", str(talk), "-o", "a.srt"]
    process = started(command, tmp_path, environment)
    assert process.stdout is not None
    wait_for(process.stdout, b'"partial"')
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert events_of(out.decode())[-1]["type"] == "end"
    assert (tmp_path / "a.srt").read_text().startswith("1\n")


def test_ctrl_c_while_the_models_load_keeps_what_was_said(
    talk: Path, tmp_path: Path, environment: dict[str, str], pulse_microphone: PulseMicrophone
) -> None:
    process = started(
        [*FRESH, *LIVE, "-o", "a.srt"], tmp_path, environment | pulse_microphone.environment
    )
    assert process.stderr is not None
    wait_for(process.stderr, b"while the models load")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert b"interrupted" not in err
    assert events_of(out.decode())[-1]["type"] == "end"


def test_files_are_whole_when_the_reader_has_gone(
    talk: Path, tmp_path: Path, read_one_line: Callable[[str], None], program: list[str]
) -> None:
    """Ctrl-C ends every program of a pipeline at once, and the last words are still to come."""
    read_one_line(f"{' '.join([*program, *LIVE])} --from-file {talk} --speed 0 -o a.jsonl -o a.txt")
    events = events_of((tmp_path / "a.jsonl").read_text())
    assert events[-1]["type"] == "end"
    assert (tmp_path / "a.txt").read_text().split() == text_of(events).split()


def test_what_was_said_last_time_is_not_written_over(
    edgeapp_here: Edgeapp, talk: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.srt").write_text("1\n")
    done = edgeapp_here(
        "live", "-m", "demo", "--from-file", talk, "-o", "a.srt", "--save-audio", "a.wav"
    )
    assert done.returncode == 1
    assert "a.srt exists already" in done.stderr
    assert (tmp_path / "a.srt").read_text() == "1\n"
    assert not (tmp_path / "a.wav").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_captions_go_on_where_a_file_cannot_be_written(
    edgeapp_here: Edgeapp, talk: Path, tmp_path: Path
) -> None:
    (tmp_path / "full.txt").symlink_to("/dev/full")
    done = edgeapp_here(*LIVE, "--from-file", talk, "--speed", "0", "-o", "full.txt", "-o", "a.txt")
    assert done.returncode == 1
    events = events_of(done.stdout)
    (warning,) = (e["message"] for e in events if e["type"] == "warning")
    assert warning == (
        "full.txt cannot be written: No space left on device; captions go on without it"
    )
    assert events[-1]["type"] == "end"
    assert (tmp_path / "a.txt").read_text().split() == text_of(events).split()
    assert done.stderr.count("full.txt cannot be written") == 1


def test_captions_go_on_where_the_audio_cannot_be_saved(
    edgeapp_here: Edgeapp, talk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk becomes full: a file may have no more than 64 KB from now on."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
    try:
        command = (*LIVE, "--from-file", talk, "--speed", "0")
        done = edgeapp_here(*command, "--save-audio", "kept.wav", "-o", "a.txt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert done.returncode == 1
    events = events_of(done.stdout)
    (warning,) = (e["message"] for e in events if e["type"] == "warning")
    assert warning == "kept.wav cannot be written: File too large; captions go on without it"
    assert done.stderr.count("kept.wav cannot be written") == 1
    assert events[-1]["type"] == "end"
    assert events[-1]["time"] > 8
    assert (tmp_path / "a.txt").read_text().split() == text_of(events).split()
    kept, rate = soundfile.read(tmp_path / "kept.wav")
    assert len(kept) / rate > 1, "what could be written plays"


def test_a_second_session_goes_on_in_the_files_of_the_first(
    edgeapp_here: Edgeapp, talk: Path, tmp_path: Path
) -> None:
    command = (*LIVE, "--from-file", talk, "--speed", "0", "-o", "a.srt", "-o", "a.txt")
    first = edgeapp_here(*command)
    refused = edgeapp_here(*command)
    assert refused.returncode == 1
    assert "a.srt exists already: --append goes on in it, or choose another name" in refused.stderr
    assert edgeapp_here(*command, "--append").returncode == 0
    words = text_of(events_of(first.stdout)).split()
    assert (tmp_path / "a.txt").read_text().split() == words * 2
    cues = (tmp_path / "a.srt").read_text().strip().split("\n\n")
    assert [cue.split("\n")[0] for cue in cues] == [str(i + 1) for i in range(len(cues))]
    starts = [cue.split("\n")[1] for cue in cues]
    assert starts == sorted(starts)
    assert len(cues) % 2 == 0


def test_words_that_are_preferred_reach_the_recognizer(
    edgeapp_here: Edgeapp, talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = note_options(monkeypatch)
    command = (*LIVE, "--from-file", talk, "--speed", "0", "--hotwords", "ComfyUI, Düsseldorf")
    assert edgeapp_here(*command, "--initial-prompt", "Names.").returncode == 0
    assert [(each.hotwords, each.initial_prompt) for each in options] == [
        ("ComfyUI, Düsseldorf", "Names.")
    ]


def test_kill_9_leaves_readable_files(
    talk: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    command = [*FRESH, *LIVE, "--from-file", str(talk), "-o", "a.srt", "-o", "a.jsonl"]
    command += ["-o", "a.vtt", "--save-audio", "a.wav"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        seen = wait_for(process.stdout, b'"speech_end"')
        deadline = time.monotonic() + 400
        while " --> " not in (tmp_path / "a.vtt").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1.5)
        process.kill()
        written = (seen + process.stdout.read()).decode()
    events = events_of((tmp_path / "a.jsonl").read_text())
    assert text_of(events)
    assert (tmp_path / "a.srt").read_text().endswith("\n\n")
    cues = (tmp_path / "a.vtt").read_text()
    assert cues.startswith("WEBVTT\n\n")
    lacking = (tmp_path / "a.srt").read_text().count(" --> ") - cues.count(" --> ")
    assert lacking in (0, 1), "a.vtt is written after a.srt: the kill may fall between the two"
    kept, rate = soundfile.read(tmp_path / "a.wav")
    said = events_of("\n".join(written.split("\n")[:-1]))  # the last line may be cut
    heard = max(event["time"] for event in said if event["type"] == "status")
    assert heard > 2
    assert len(kept) / rate > heard - 1, "it lacks a second at most"
    truth, _ = soundfile.read(talk, frames=len(kept))
    assert np.abs(kept - truth).max() < 1e-3


def test_what_cannot_be_is_said_before_anything_is_loaded(
    edgeapp_here: Edgeapp, talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.model_pool.ModelPool.transcriber", None)
    monkeypatch.setattr("edgeapp.live.capture.LiveCapture.__init__", None)
    for wrong, said in (
        (["--policy", "hope"], "--policy"),
        (["--speed", "-1"], "--speed"),
        (["-o", "a.docx"], "docx"),
        (["--save-audio", "a.mp3"], ".wav or .flac"),
        (["-o", "m.srt", "-o", "m.de.srt", "--translate-to", "de"], "m.de.srt is where"),
        (["--device", "USB Mic"], "--input-device names the microphone"),
        (["--translate-to", "xx"], "unknown language"),
        (["--min-chunk", "0"], "min_chunk"),
        (["--language", "fr", "--translate-to", "de"], "demo recognizes only English, not French"),
        (["--language", "fr"], "demo recognizes only English, not French"),
        (["--languages", "en,fr"], "demo recognizes only English, not French"),
        (["--languages", "en,xx"], "unknown language 'xx'"),
        (["--languages", "en,de", "-l", "en"], "language and languages exclude each other"),
        (["-o", "."], "a live output ends with"),
    ):
        done = edgeapp_here("live", "-m", "demo", "--from-file", talk, *wrong)
        assert done.returncode in (2, 3), done.stderr
        assert said in done.stderr


def test_a_recording_that_is_missing(edgeapp_here: Edgeapp) -> None:
    done = edgeapp_here("live", "-m", "demo", "--from-file", "missing.wav")
    assert done.returncode == 1
    assert "missing.wav" in done.stderr
