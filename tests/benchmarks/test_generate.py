"""`tests.benchmarks.generate`: all decoding methods on one source, in a table or on a prompt."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.asr import Transcriber
from pipelines.engine import Engine, TopKProcessor
from pipelines.errors import OptionError
from pipelines.hub import assets_folder, bundled_folder
from pipelines.translation import Translator
from tests.benchmarks.generate.__main__ import generate
from tests.benchmarks.generate.methods import TranslationComparison, compare, summary, to_json
from tests.benchmarks.generate.prompt import run_command, run_prompt
from tests.benchmarks.generate.recording import TranscriptionComparison, windows

pytestmark = pytest.mark.usefixtures("kernels")

TEXTS = ["Where is the station?", "I would like a cup of coffee, please."]


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield Translator(bundled_folder("demo-en-de"), engine=engine)


@pytest.mark.slow
def test_all_methods_give_the_same_text_at_temperature_0(translator: Translator) -> None:
    comparison = TranslationComparison(translator, drafter=translator, length=12)
    runs = list(compare(comparison, [(text, comparison.encode(text)) for text in TEXTS]))
    assert [run.method for run in runs] == 2 * [
        "plain", "uncached", "beam", "speculative", "n-gram",
    ]  # fmt: skip
    for run in runs:
        assert run.tokens > 3
        assert run.seconds > 0
        if run.method != "beam":
            assert run.agreement == 1.0
        assert (run.kept is None) == (run.method in ("plain", "uncached", "beam"))
    assert next(run.kept for run in runs if run.method == "speculative") == 1.0
    assert [row[0] for row in summary(runs)] == [run.method for run in runs[:5]]
    assert len(json.loads(to_json(runs))["runs"]) == len(runs)


@pytest.mark.slow
def test_methods_on_a_recording() -> None:
    talk = assets_folder() / "samples" / "talk.flac"
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        transcriber = Transcriber(bundled_folder("demo"), engine=engine)
        sources = list(windows(transcriber, talk))
        runs = list(
            compare(TranscriptionComparison(transcriber, transcriber, length=12), sources[:1])
        )
    assert [name for name, _ in sources[:2]] == ["00:00.000", "00:10.000"][: len(sources)]
    assert [run.method for run in runs] == ["plain", "uncached", "beam", "speculative", "n-gram"]
    for run in runs:
        assert run.tokens > 3
        assert run.method == "beam" or run.agreement == 1.0
    assert next(run.kept for run in runs if run.method == "speculative") == 1.0


@pytest.mark.slow
def test_the_command_takes_texts_and_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("Yes.\n\nNo.\n", "utf-8")
    for file, several in ((text, 2), (assets_folder() / "samples" / "question.flac", 1)):
        generate(file, as_json=True, length=5, threads="1")
        runs = json.loads(capsys.readouterr().out)["runs"]
        assert [run["method"] for run in runs].count("plain") == several


@pytest.mark.slow
def test_sampling_leaves_beams_out(translator: Translator) -> None:
    comparison = TranslationComparison(translator, processor=TopKProcessor(0.7, 5), length=5)
    assert comparison.methods == ("plain", "uncached", "n-gram")
    assert {run.method for run in compare(comparison, [("", comparison.encode(TEXTS[0]))])} == set(
        comparison.methods
    )


@pytest.mark.slow
def test_the_prompt(translator: Translator) -> None:
    lines = iter(
        [
            "/help",
            "/length 6",
            "/gamma 2",
            "/nonsense",
            '/length "6',
            "/drafter self",
            "Yes.",
            "It's one.",
            "",
            "/quit",
        ]  # fmt: skip
    )
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True)
    comparison = TranslationComparison(translator)
    run_prompt(comparison, console, lambda name: translator, lambda prompt: next(lines))
    printed = out.getvalue()
    assert (comparison.length, comparison.gamma, comparison.drafter) == (6, 2, translator)
    assert "'/nonsense' is no command" in printed
    assert "No closing quotation" in printed, "a stray quote does not end the session"
    assert printed.count("tokens/s") == 2
    assert "\x1b[32m" in printed, "accepted draft tokens are green"
    run_prompt(comparison, console, lambda name: translator, _end_of_input)


def _end_of_input(prompt: str) -> str:
    raise EOFError


@pytest.mark.slow
def test_commands_change_the_comparison(translator: Translator) -> None:
    comparison = TranslationComparison(translator)
    run_command(comparison, "/processor topk 0.8 40", lambda name: translator)
    assert comparison.processor == TopKProcessor(0.8, 40)
    run_command(comparison, "/drafter x", lambda name: translator)
    other = Translator(bundled_folder("demo-de-en"), engine=translator.engine)
    assert run_command(comparison, "/model demo-de-en", lambda name: other) == "model: demo-de-en"
    assert comparison.pipeline is other
    assert run_command(comparison, "/cache off", lambda name: translator) == "cache: off"
    assert comparison.methods == ("plain", "speculative", "n-gram")
    run_command(comparison, "/processor greedy", lambda name: translator)
    comparison.length, texts = 4, [("Ja.", comparison.encode("Ja."))]
    runs = list(compare(comparison, texts))
    assert {run.agreement for run in runs if run.method != "speculative"} == {1.0}
    assert run_command(comparison, "/cache on", lambda name: translator) == "cache: on"
    assert "beam" in comparison.methods
    run_command(comparison, "/drafter off", lambda name: translator)
    assert comparison.drafter is None
    for wrong in ("/gamma", "/gamma x", "/gamma 0", "/processor mine", "/processor greedy 1 2",
                  "/cache", "/cache maybe", "/model"):  # fmt: skip
        with pytest.raises(OptionError):
            run_command(comparison, wrong, lambda name: translator)
