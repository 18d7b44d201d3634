"""`edgeapp bench`: its commands, what they import, and the figures of live captions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from edgeapp.bench.captions import TimingEngine, caption
from edgeapp.bench.captions_report import conditions, markdown
from edgeapp.bench.word_lag import Recording, align, plain_words, read_recording, word_errors
from edgeapp.cli import main
from pipelines.asr import Transcriber
from pipelines.asr.live.transcriber import LiveOptions
from pipelines.errors import AudioError
from pipelines.hub import assets_folder, bundled_folder

pytestmark = pytest.mark.usefixtures("kernels")

STORY = assets_folder() / "samples" / "story.flac"
WORDS = st.lists(st.sampled_from("abc"), max_size=7)


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out + err


@pytest.mark.slow
@pytest.mark.parametrize("command", [("bench",), ("bench", "live")])
def test_help_imports_nothing_heavy(command: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom edgeapp.cli import main\n"
        f"try:\n    main([*{command!r}, '--help'])\nfinally:\n"
        "    assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "Usage: edgeapp bench" in done.stdout


def test_the_help_names_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run("bench", "--help", capsys=capsys)
    assert code == 0
    assert "live" in said
    assert "speed" in said
    assert run("bench", "nonsense", capsys=capsys)[0] == 2


@pytest.mark.slow
def test_invalid_input_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run("bench", "live", "--policy", "hope", capsys=capsys)
    assert (code, "--policy" in said) == (2, True)
    talk = STORY.with_name("talk.flac")  # has no table of word times
    code, said = run("bench", "live", str(talk), "-m", "demo", capsys=capsys)
    assert (code, "talk.words.tsv" in said) == (1, True)


def test_plain_words() -> None:
    assert plain_words("Well-known, isn't it?  Yes_– “No.”") == "well known isn't it yes no".split()


@given(WORDS, WORDS)
def test_an_alignment_is_in_order_and_complete(reference: list[str], hypothesis: list[str]) -> None:
    pairs = align(reference, hypothesis)
    assert [i for i, _ in pairs if i is not None] == list(range(len(reference)))
    assert [j for _, j in pairs if j is not None] == list(range(len(hypothesis)))
    assert (None, None) not in pairs
    assert (
        abs(len(reference) - len(hypothesis))
        <= word_errors(reference, hypothesis)
        <= max(len(reference), len(hypothesis))
    )
    assert word_errors(reference, reference) == 0
    assert word_errors(reference, hypothesis) == word_errors(hypothesis, reference)


def test_word_errors_are_deletions_insertions_and_substitutions() -> None:
    reference = "the cat sat on the mat".split()
    assert word_errors(reference, "the cat sat on mat".split()) == 1
    assert word_errors(reference, "the a cat sit on the mat".split()) == 2
    assert word_errors(reference, []) == 6


def test_word_times_of_the_bundled_recording() -> None:
    story = read_recording(STORY)
    written = plain_words(STORY.with_suffix(".txt").read_text())
    assert [word.text for word in story.words] == written
    assert story.seconds == pytest.approx(53, abs=1)
    ends = [word.end for word in story.words]
    assert ends == sorted(ends)
    loudness = np.abs(story.samples)
    for word in story.words:
        assert word.start < word.end
        assert loudness[int(word.start * 16_000) : int(word.end * 16_000)].max() > 0.02, word


def test_an_invalid_table_of_word_times(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(160), 16_000)
    (tmp_path / "a.words.tsv").write_text("0.0\thello\n")
    with pytest.raises(AudioError, match=r"a\.words\.tsv"):
        read_recording(tmp_path / "a.wav")


@pytest.mark.slow
def test_live_captions_are_measured() -> None:
    """Two sentences in real time. The bounds must hold on any machine, however slow or busy."""
    story = read_recording(STORY)
    short = Recording(
        "story", story.samples[: 6 * 16_000], tuple(w for w in story.words if w.end < 6)
    )
    timing = TimingEngine(threads=2)
    transcriber = Transcriber(bundled_folder("demo"), engine=timing)
    notes: list[str] = []
    found = caption(timing, transcriber, short, LiveOptions(), notes.append)
    assert found.words == len(short.words) == 15
    assert 5 <= found.recognized <= 15
    assert found.recognized + found.wrong >= found.words
    assert found.display.median <= found.committed.median
    assert found.display.median <= found.display.late
    assert 0 < found.updates < 2.5, "an update per half second of speech"
    assert found.real_time_factor > 0
    assert 0.3 < found.accepted <= 1
    assert min(found.drafted_ms, found.plain_ms, found.update_ms) > 0
    assert found.same >= 0.5
    assert notes
    rows = markdown([found, found]).splitlines()
    assert rows[1] == "|---|--:|--:|"
    assert len({row.count("|") for row in rows}) == 1
    assert "2 CPU threads" in conditions(short, transcriber, 0.5)
