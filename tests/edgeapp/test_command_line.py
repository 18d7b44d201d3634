"""The options of openai-whisper and whisper-ctranslate2: accepted and passed on, or refused.

No model is loaded: the run itself is replaced.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.recordings.transcription_runner import TranscriptionRunner
from edgeapp.cli import app, main
from edgeapp.commands.options.refused import REFUSED
from edgeapp.model_pool import ModelPool
from pipelines import TranscribeOptions, VadOptions
from pipelines.hub import cache_folder, use_cache_folder

pytestmark = pytest.mark.usefixtures("kernels")

DOCUMENT = Path(__file__).parents[2] / "assets/docs/command-line.md"

# Long options of whisper-ctranslate2 0.5.8 (commandline.py).
CTRANSLATE2 = """
model model_directory model_dir local_files_only output_dir output_format pretty_json print_colors
verbose highlight_words max_line_width max_line_count max_words_per_line device threads device_index
compute_type task language temperature temperature_increment_on_fallback
prompt_reset_on_temperature prefix best_of beam_size patience length_penalty suppress_blank
suppress_tokens initial_prompt condition_on_previous_text compression_ratio_threshold
logprob_threshold no_speech_threshold word_timestamps prepend_punctuations append_punctuations
repetition_penalty no_repeat_ngram_size hallucination_silence_threshold hotwords batched batch_size
multilingual vad_filter vad_threshold vad_min_speech_duration_ms vad_max_speech_duration_s
vad_min_silence_duration_ms hf_token speaker_name speaker_num live_transcribe live_volume_threshold
live_input_device live_input_device_sample_rate version
""".split()

Run = Callable[..., TranscriptionRunner]


def openai_options() -> dict[str, argparse.Action]:
    """Long option → action, of openai-whisper's own parser."""
    from whisper.transcribe import cli

    class Stop(Exception):
        pass

    found: dict[str, argparse.Action] = {}

    def parse_args(parser: argparse.ArgumentParser) -> None:
        found.update(
            (name, action)
            for action in parser._actions
            for name in action.option_strings
            if name.startswith("--") and name != "--help"
        )
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        with pytest.raises(Stop):
            cli()
    return found


def our_options() -> dict[str, Any]:
    """Option → parameter of `edgeapp transcribe`."""
    import typer.main

    group: Any = typer.main.get_command(app)
    return {opt: param for param in group.commands["transcribe"].params for opt in param.opts}


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.chdir(tmp_path)
    yield
    use_cache_folder(None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `edgeapp transcribe` without models, and returns what would have been done."""
    made: list[tuple[TranscriptionRunner, list[str]]] = []

    def record(self: TranscriptionRunner, inputs: Sequence[FoundInput]) -> int:
        made.append((self, [found.path for found in inputs]))
        return 0

    monkeypatch.setattr(TranscriptionRunner, "run", record)
    found = SimpleNamespace(name="model", folder=Path("missing"))
    for name in ("find_recognizer", "find_translator", "translator"):
        monkeypatch.setattr(ModelPool, name, lambda *_, **__: found)
    # Without times of words, which subtitles would ask for.
    model = SimpleNamespace(capabilities=SimpleNamespace(word_timestamps=False))
    monkeypatch.setattr(ModelPool, "transcriber", lambda *_, **__: model)

    def transcribe(*arguments: str, inputs: tuple[str, ...] = ("a.mp3",)) -> TranscriptionRunner:
        for name in inputs:
            Path(name).touch()
        with pytest.raises(SystemExit) as stop:
            main(["transcribe", *inputs, *arguments])
        assert stop.value.code == 0
        (runner, given) = made[-1]
        assert given == list(inputs)
        return runner

    return transcribe


def refusal(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    err = capsys.readouterr().err
    assert stop.value.code == 2, err
    assert err.count("\n") == 1, err
    return err


def test_every_option_of_openai_whisper_is_accepted_or_refused_by_name() -> None:
    theirs = openai_options()
    assert len(theirs) > 30
    known = set(our_options()) | set(REFUSED)
    missing = [name for name in theirs if name.replace("_", "-") not in known]
    assert missing == []


def test_every_option_of_whisper_ctranslate2_is_accepted_or_refused_by_name() -> None:
    known = {name.removeprefix("--") for name in (*our_options(), *REFUSED)} | {"version"}
    missing = [name for name in CTRANSLATE2 if name.replace("_", "-") not in known]
    assert missing == []


def test_the_document_has_every_option_of_both() -> None:
    rows = [line.split("|")[1] for line in DOCUMENT.read_text("utf-8").splitlines() if "|" in line]
    named = {word.strip("` ") for row in rows for word in row.split(",")}
    wanted = {*openai_options(), *(f"--{name}" for name in CTRANSLATE2)}
    assert wanted - named == set()


def test_short_options_mean_the_same(run: Run) -> None:
    theirs = {n for action in openai_options().values() for n in action.option_strings}
    assert {name for name in theirs if not name.startswith("--")} <= set(our_options())


def test_openai_whispers_own_defaults_are_accepted(run: Run) -> None:
    """A command line that spells out every default, as scripts do."""
    given: list[str] = []
    for name, action in openai_options().items():
        if name in ("--device", "--model_dir", "--output_dir") or action.default is None:
            continue
        given += [name, str(action.default)]
    runner = run(*given)
    assert runner.options.beam_size == 5
    assert runner.options.best_of == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--beam_size", "5"], "beam_size", 5),
        (["--beam-size", "None"], "beam_size", None),
        (["--beam_size", "2", "--patience", "1.5"], "patience", 1.5),
        (["--best_of", "None"], "best_of", None),
        (["--length_penalty", "0.5"], "length_penalty", 0.5),
        (["--temperature", "0.4"], "temperature", (0.4, 0.6, 0.8, 1.0)),
        (["--temperature_increment_on_fallback", "None"], "temperature", (0.0,)),
        (["--compression_ratio_threshold", "None"], "compression_ratio_threshold", None),
        (["--logprob_threshold", "-0.5"], "logprob_threshold", -0.5),
        (["--logprob_threshold", "none"], "logprob_threshold", None),
        (["--no_speech_threshold", "0.3"], "no_speech_threshold", 0.3),
        (["--suppress_tokens", ""], "suppress_tokens", ()),
        (["--suppress_tokens=-1,50364"], "suppress_tokens", (-1, 50364)),
        (["--suppress_blank", "False"], "suppress_blank", False),
        (["--initial_prompt", "--verbose"], "initial_prompt", "--verbose"),
        (["--initial_prompt", "None"], "initial_prompt", None),
        (["--condition_on_previous_text", "False"], "condition_on_previous_text", False),
        (["--condition-on-previous-text", "false"], "condition_on_previous_text", False),
        (["--word_timestamps", "True"], "word_timestamps", True),
        (["--word_timestamps"], "word_timestamps", True),
        (["--word-timestamps=False"], "word_timestamps", False),
        (["--max_line_width", "40"], "word_timestamps", True),
        (["--prepend_punctuations", "¿"], "prepend_punctuations", "¿"),
        (["--append_punctuations", ".!"], "append_punctuations", ".!"),
        (["-l", "auto"], "language", None),
        (["--language", "None"], "language", None),
        (["--language", "German"], "language", "de"),
        (["--language", "Castilian"], "language", "es"),
        (["--task", "Translate"], "task", "translate"),
        (["--batched", "False"], "batch_size", 1),
        (["--batched", "True", "--batch_size", "4"], "batch_size", 4),
        (["--batch_size", "1"], "batch_size", 1),
        ([], "parallel_chunks", 8),
        (["--vad_filter", "False"], "parallel_chunks", 1),
        (["--seed", "7"], "seed", 7),
        (["--carry_initial_prompt"], "carry_initial_prompt", True),
        (["--prefix", "Well,"], "prefix", "Well,"),
        (["--hotwords", "Anna, Boston"], "hotwords", "Anna, Boston"),
        (["--clip_timestamps", "0"], "clip_timestamps", (0.0,)),
        (["--clip_timestamps", "1.5,3,10"], "clip_timestamps", (1.5, 3.0, 10.0)),
        (["--multilingual", "True"], "multilingual", True),
        (["--languages", "en,German"], "languages", ("de", "en")),
        (["--languages", "German"], "language", "de"),
        (
            ["--word_timestamps", "--hallucination_silence_threshold", "2"],
            "hallucination_silence_threshold",
            2.0,
        ),
        (["--vad_filter", "--batched", "False"], "vad_filter", True),
        (["--vad_threshold", "0.4"], "vad_parameters", VadOptions(threshold=0.4)),
        (
            ["--vad_min_speech_duration_ms", "200"],
            "vad_parameters",
            VadOptions(min_speech_duration_ms=200),
        ),
        (
            ["--vad_max_speech_duration_s", "20"],
            "vad_parameters",
            VadOptions(max_speech_duration_s=20.0),
        ),
        (
            ["--vad_min_silence_duration_ms", "500"],
            "vad_parameters",
            VadOptions(min_silence_duration_ms=500),
        ),
    ],
)
def test_options_reach_recognition(
    run: Run, arguments: list[str], field: str, value: object
) -> None:
    assert getattr(run(*arguments).options, field) == value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--device", "cpu"], "device", "cpu"),
        (["--device", "CUDA:1"], "device", "cuda:1"),
        (["--device_index", "1"], "device", "cuda:1"),
        (["--device", "cuda", "--device_index", "0"], "device", "cuda"),
        (["--device", "cpu", "--device_index", "0"], "device", "cpu"),
        (["--device_index", "0"], "device", "auto"),
        (["--fp16", "False"], "compute_type", "float32"),
        (["--fp16"], "compute_type", "float16"),
        (["--compute_type", "default"], "compute_type", "auto"),
        (["--compute_type", "INT8"], "compute_type", "int8"),
        (["--threads", "0"], "threads", "auto"),
        (["--threads", "None"], "threads", "auto"),
        (["--threads", "2"], "threads", 2),
    ],
)
def test_options_reach_the_engine(
    run: Run, arguments: list[str], field: str, value: object
) -> None:
    assert getattr(run(*arguments).pool.settings, field) == value


@pytest.mark.parametrize(
    ("arguments", "digest"),
    [
        ("", "dbb0344a98d5"),
        ("--language en --temperature 0.4 --beam-size 5 --vad-threshold 0.5", "7478f942fe2a"),
        (
            "--vad-filter --batched False --vad-min-silence-duration-ms 500 "
            "--logprob-threshold None",
            "fc3e67ea4c1d",
        ),
        (
            "--suppress-tokens 1,2 --clip-timestamps 1,2.5 --suppress-phrase a --force-phrase b",
            "5af6d32db482",
        ),
        (
            "--task translate --n-best 2 --beam-size 2 -f json --hotwords a "
            "--prepend-punctuations (",
            "6b36752c4963",
        ),
        (
            "--max-line-width 40 --multilingual --no-repeat-ngram-size 3 --repetition-penalty 2",
            "0a6e06a1f2d7",
        ),
    ],
)
def test_journals_of_earlier_versions_know_their_jobs(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: str, digest: str
) -> None:
    monkeypatch.setattr("pipelines.__version__", "1", raising=False)
    runner: Any = run(*arguments.split())
    runner.transcriber = SimpleNamespace(model=SimpleNamespace(folder="demo", compute_type="int8"))
    assert runner._key_of("a.mp3", runner.options)[:12] == digest


def test_the_settings_file_has_defaults_of_flags(run: Run, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text(
        "[transcribe]\nbeam_size = 3\ntemperature = [0.0, 0.5]\nclip_timestamps = [1, 2]\n"
        "vad_parameters = { threshold = 0.4 }\nword_timestamps = false\n"
    )
    runner = run()
    assert (runner.options.beam_size, runner.options.temperature) == (3, (0.0, 0.5))
    assert runner.options.clip_timestamps == (1.0, 2.0)
    assert not runner.computes_words
    runner = run("--beam-size", "None", "--vad-min-speech-duration-ms", "50", "--word-timestamps")
    assert (runner.options.beam_size, runner.options.word_timestamps) == (None, True)
    assert runner.options.vad_parameters == VadOptions(threshold=0.4, min_speech_duration_ms=50)


LANGUAGES = 'languages = ["en", "de"]'
SPEECH = "vad_parameters = { threshold = 0.4 }"


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        (LANGUAGES, "", {"languages": ("de", "en")}),
        (LANGUAGES, "-l fr", {"language": "fr"}),
        (LANGUAGES, "-l auto", {}),
        (LANGUAGES, "--languages None", {}),
        ('language = "auto"', "", {}),
        ("batch_size = 4", "--batched False", {"batch_size": 1}),
        ("batch_size = 1", "--batched True", {}),
        ("vad_filter = false", "--batched True", {}),
        ("vad_filter = false", "--batch-size 4", {"batch_size": 4}),
        (SPEECH, "--batched False", {"batch_size": 1}),
        (SPEECH, "--batch-size 1", {"batch_size": 1}),
        (SPEECH, "--vad-threshold None", {}),
        ("temperature = 0.4", "", {"temperature": (0.4, 0.6, 0.8, 1.0)}),
        (
            "temperature = [0, 0.4]",
            "--temperature-increment-on-fallback None",
            {"temperature": (0.0,)},
        ),
        (
            "temperature = [0, 0.4]",
            "--temperature-increment-on-fallback 0.5",
            {"temperature": (0.0, 0.5, 1.0)},
        ),
        ("beam_size = 5\npatience = 2.0", "--beam-size None", {"beam_size": None}),
        ("beam_size = 2\nn_best = 2", "-f srt", {"beam_size": 2}),
        ("multilingual = true", "--translate-to de", {}),
    ],
)
def test_flags_take_the_place_of_settings_that_they_exclude(
    run: Run, tmp_path: Path, settings: str, arguments: str, expected: dict[str, Any]
) -> None:
    (tmp_path / "none.toml").write_text(f"[transcribe]\n{settings}\n")
    assert run(*arguments.split()).options == TranscribeOptions(**expected)


@pytest.mark.slow
def test_words_before_and_after_a_switch_are_inputs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`whisper --word_timestamps a.mp3` takes a.mp3 for the value, and fails."""
    seen: list[list[str]] = []
    monkeypatch.setattr(
        TranscriptionRunner,
        "run",
        lambda _, inputs: seen.append([each.path for each in inputs]) or 0,
    )
    for name in ("a.mp3", "b.mp3"):
        Path(name).touch()
    for line in (
        "transcribe --word_timestamps a.mp3 b.mp3",
        "transcribe a.mp3 --word_timestamps b.mp3",
        "transcribe a.mp3 --word_timestamps FALSE b.mp3",
        "transcribe a.mp3 -p b.mp3",
        "transcribe --verbose -- a.mp3 b.mp3",
    ):
        with pytest.raises(SystemExit) as stop:
            main(line.split())
        assert stop.value.code == 0
        assert seen[-1] == ["a.mp3", "b.mp3"], line


@pytest.mark.slow
def test_how_much_is_printed(run: Run) -> None:
    assert run().verbose is None
    assert run("--verbose", "False").verbose is False
    assert run("--verbose").verbose is True
    assert run("--pretty_json", "True", "-f", "json").pretty_json


@pytest.mark.parametrize("fmt", ["SRT", "Srt", "srt"])
def test_formats_in_any_case(run: Run, fmt: str) -> None:
    assert run("-f", fmt).output.formats == ("srt",)


@pytest.mark.slow
def test_the_folder_of_models(run: Run, tmp_path: Path) -> None:
    run("--model_dir", str(tmp_path))
    assert cache_folder() == tmp_path
    run()
    assert cache_folder() != tmp_path


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refusal_names_the_option_and_says_why(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal("transcribe", "a.mp3", name.replace("-", "_").replace("__", "--", 1), "77",
                   capsys=capsys)  # fmt: skip
    assert said.startswith(f"edgeapp: {name} is refused: ")
    assert len(said) > len(f"edgeapp: {name} is refused: ") + 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "refused"), REFUSED.items())
def test_values_that_ask_for_what_happens_anyway_are_accepted(
    run: Run, name: str, refused: Any
) -> None:
    for value in refused.accepted:
        assert run(f"{name}={value}", name, value or "None").options == TranscribeOptions()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "USB Mic"], "--device is the CPU or GPU that computes"),
        (["--fp16", "True", "--compute-type", "int8"], "exclude each other"),
        (["--batched", "False", "--batch-size", "4"], "exclude each other"),
        (["--device", "cpu", "--device-index", "1"], "exclude each other"),
        (["-l", "xx"], "unknown language 'xx'"),
        (["--languages", "en,xx"], "unknown language 'xx'"),
        (["--languages", "en,de", "-l", "en"], "language and languages exclude each other"),
        (["--clip-timestamps", "one"], "clip_timestamps takes seconds"),
        (["--clip-timestamps", "3,1"], "is empty"),
        (["--hallucination-silence-threshold", "2"], "needs word_timestamps"),
        (["--vad-filter", "False", "--batch-size", "8"], "vad_filter cannot be off"),
        (["--translate-to", "xx"], "--translate-to xx: unknown language"),
        (["-f", "srt", "--translate-to", "de"], "stdout takes one"),
        (["-f", "odt"], "'odt' is not one of"),
        (["--model-dir", "missing"], "--model-dir missing is no folder"),
    ],
)
def test_one_line_says_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal("transcribe", "a.mp3", *arguments, capsys=capsys)


def test_a_model_without_one_of_the_languages_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.mp3").touch()
    with pytest.raises(SystemExit) as stop:
        main("transcribe a.mp3 --languages en,de -m demo".split())
    assert stop.value.code == 3
    assert "demo recognizes only English, not German" in capsys.readouterr().err
