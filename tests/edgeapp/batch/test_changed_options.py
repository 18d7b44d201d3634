"""A run with another option is not called done where the option changes the result.

Every option of `edgeapp transcribe` and `edgeapp translate` stands in one of the tables: a new one
fails the first test until it is known whether it changes a result.
"""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from typer.testing import CliRunner

from edgeapp.batch.texts.text_source import TextSource
from edgeapp.batch.texts.translation_job import TranslationJob, key_settings
from edgeapp.cli import app
from edgeapp.commands.options.declared import flags_of
from edgeapp.model_pool import ModelPool
from pipelines import TranscribeOptions, Transcriber, TranslateOptions, Translator
from pipelines.hub import bundled_folder

pytestmark = pytest.mark.slow
QUESTION = Path(__file__).resolve().parents[3] / "assets" / "samples" / "question.flac"
FILM = "1\n00:00:01,000 --> 00:00:03,000\nGood morning.\n\n"

# They say where inputs and results are, how earlier runs are treated, and how fast the run is;
# drafts, devices and processes do not change what is decoded.
NEUTRAL = set(
    "allow_private allow_urls cluster debug device draft draft_model dry_run events from_list "
    "model_dir no_journal output overwrite retry_failed threads verbose".split()
)
TRANSCRIBE_NEUTRAL = NEUTRAL | {"audio", "device_index", "no_download"}
# as_text is another kind of job; source and target need a model of several languages: see below.
TRANSLATE_NEUTRAL = NEUTRAL | {"files", "text", "workers", "as_text", "source", "target"}

TRANSCRIBE = {
    "append_punctuations": "--append-punctuations .",
    "batch_size": "--batch-size 1",
    "batched": "--batched False",
    "beam_size": "--beam-size 2",
    "best_of": "--best-of 2",
    "carry_initial_prompt": "--carry-initial-prompt True",
    "clip_timestamps": "--clip-timestamps 0,1",
    "compression_ratio_threshold": "--compression-ratio-threshold 2",
    "compute_type": "--compute-type bfloat16",
    "condition_on_previous_text": "--condition-on-previous-text False",
    "forced_phrases": "--force-phrase word",
    "fp16": "--fp16 True",
    "hallucination_silence_threshold": "--hallucination-silence-threshold 1 --word-timestamps True",
    "highlight_words": "--highlight-words True",
    "hotwords": "--hotwords names",
    "initial_prompt": "--initial-prompt names",
    "language": "--language en",
    "length_penalty": "--length-penalty 0.5",
    "logprob_threshold": "--logprob-threshold -2",
    "max_line_count": "--max-line-count 1 --max-line-width 30",
    "max_line_width": "--max-line-width 30",
    "max_words_per_line": "--max-words-per-line 3",
    "model": "-m COPY",
    "multilingual": "--multilingual True",
    "n_best": "--n-best 2 --beam-size 2",
    "no_repeat_ngram_size": "--no-repeat-ngram-size 3",
    "no_speech_threshold": "--no-speech-threshold 0.5",
    "openai_rules": "--openai-rules True",
    "output_format": "-f vtt",
    "patience": "--patience 2 --beam-size 2",
    "prefix": "--prefix So",
    "prepend_punctuations": "--prepend-punctuations (",
    "pretty_json": "--pretty-json True",
    "repetition_penalty": "--repetition-penalty 1.5",
    "seed": "--seed 1",
    "subtitle_style": "--subtitle-style bbc",
    "suppress_blank": "--suppress-blank False",
    "suppress_phrases": "--suppress-phrase word",
    "suppress_tokens": "--suppress-tokens 1",
    "task": "--task translate",
    "temperature": "--temperature 0.5",
    "temperature_increment_on_fallback": "--temperature-increment-on-fallback None",
    "translate_to": "--translate-to de",
    "vad_filter": "--vad-filter True",
    "vad_max_speech_duration_s": "--vad-max-speech-duration-s 10",
    "vad_min_silence_duration_ms": "--vad-min-silence-duration-ms 100",
    "vad_min_speech_duration_ms": "--vad-min-speech-duration-ms 50",
    "vad_threshold": "--vad-threshold 0.4",
    "word_timestamps": "--word-timestamps False",
}
WITH_TRANSLATION = {"bilingual": "--bilingual", "translation_model": "--translation-model COPY"}
TRANSLATE = {
    "beam_size": "--beam-size 2",
    "compute_type": "--compute-type bfloat16",
    "forced_phrases": "--force-phrase word",
    "model": "-m COPY",
    "no_repeat_ngram_size": "--no-repeat-ngram-size 3",
    "prefix": "--prefix So",
    "repetition_penalty": "--repetition-penalty 1.5",
    "suppress_phrases": "--suppress-phrase word",
}
OF_LINES = {
    "word_alignments": "--alignments",
    "document": "--document",
    "encoding": "--encoding windows-1251",
    "format": "--format tsv",
    "n_best": "--n-best 2 --beam-size 2 --format json",
}
OF_SUBTITLES = {
    "bilingual": "--bilingual",
    "encoding": "--encoding windows-1251",
    "subtitle_style": "--subtitle-style bbc",
}


def options_of(command: str) -> set[str]:
    group: Any = typer.main.get_command(app)
    return {parameter.name for parameter in group.commands[command].params} - {"help"}


def plan(command: list[str], options: str, copy: Path) -> str:
    """Return what --dry-run says with more options."""
    more = [str(copy) if word == "COPY" else word for word in options.split()]
    result = CliRunner().invoke(app, [*command, *more, "--dry-run"])
    assert result.exit_code == 0, result.output
    return result.stdout


def not_done_again(command: list[str], tables: dict[str, str], model: str, tmp_path: Path) -> None:
    """Assert that a second run is done already, and not so with each of the options."""
    copy = Path(shutil.copytree(bundled_folder(model), tmp_path / f"copy-of-{model}"))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert plan(command, "", copy).endswith(": done already\n")
    forgotten = [
        name for name, more in tables.items() if "done already" in plan(command, more, copy)
    ]
    assert forgotten == []


@pytest.fixture(autouse=True)
def _own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_it_is_known_of_every_option_whether_it_changes_a_result() -> None:
    # What the library declares is in keys by itself: tests/edgeapp/test_declared_options.py.
    declared = {flag.name for flag in flags_of(TranscribeOptions)}
    tables = {*TRANSCRIBE, *WITH_TRANSLATION} | TRANSCRIBE_NEUTRAL
    assert options_of("transcribe") == tables | declared
    tables = {*TRANSLATE, *OF_LINES, *OF_SUBTITLES, "shortlist"} | TRANSLATE_NEUTRAL
    assert options_of("translate") == tables | {flag.name for flag in flags_of(TranslateOptions)}


def test_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[tuple[str | None, str], Transcriber] = {}
    load = ModelPool.transcriber

    def load_once(pool: ModelPool, name: str | None, *more: Any) -> Transcriber:
        key = (name, pool.settings.compute_type)
        if key not in loaded:
            loaded[key] = load(pool, name, *more)
        return loaded[key]

    monkeypatch.setattr(ModelPool, "transcriber", load_once)
    command = ["transcribe", str(QUESTION), "-m", "demo", "-o", "out", "-f", "srt,json"]
    not_done_again(command, TRANSCRIBE, "demo", tmp_path)


def test_translated_recordings(tmp_path: Path) -> None:
    command = ["transcribe", str(QUESTION), "-m", "demo", "-o", "out", "-f", "srt"]
    not_done_again([*command, "--translate-to", "de"], WITH_TRANSLATION, "demo-en-de", tmp_path)


@pytest.mark.parametrize("name", ["lines.txt", "film.srt", "page.html"])
def test_texts(name: str, tmp_path: Path) -> None:
    Path(name).write_text(FILM if name == "film.srt" else "Good morning.\n", encoding="utf-8")
    options = {
        "lines.txt": TRANSLATE | OF_LINES,
        "film.srt": OF_SUBTITLES | {"prefix": TRANSLATE["prefix"]},
        "page.html": {"beam_size": TRANSLATE["beam_size"]},
    }
    command = ["translate", name, "-m", "demo-en-de", "--compute-type", "float32", "-o", "out/"]
    not_done_again(command, options[name], "demo-en-de", tmp_path)


def test_every_field_of_the_options_of_a_translation_changes_its_key() -> None:
    model = SimpleNamespace(folder="folder", compute_type="int8")
    translator = cast(Translator, SimpleNamespace(model=model, shortlist=False, source="en"))
    options = TranslateOptions(beam_size=2)
    others: dict[str, Any] = {"priority": 1, "target": "fr", "source_language": "nl", "n_best": 2}
    others |= {"beam_size": 3, "repetition_penalty": 2.0, "split_sentences": False}
    others |= {"word_alignments": True, "no_repeat_ngram_size": 2, "logit_filters": (object(),)}
    others |= {"prefix": "So", "suppress_phrases": ("a",), "forced_phrases": ("a",)}
    assert others.keys() == {each.name for each in fields(TranslateOptions)}
    keys = {
        name: key_settings(translator, replace(options, **{name: value}))
        for name, value in others.items()
    }
    assert keys.pop("priority") == key_settings(translator, options)
    assert key_settings(translator, options) not in keys.values()
    assert len({str(key) for key in keys.values()}) == len(keys)
    faster = cast(Translator, SimpleNamespace(model=model, shortlist=True, source="en"))
    assert key_settings(faster, options) != key_settings(translator, options)


def test_journals_of_earlier_versions_know_their_texts(tmp_path: Path) -> None:
    Path("a.txt").write_text("Good morning.\n", encoding="utf-8")
    model = SimpleNamespace(folder="folder", compute_type="int8")
    translator: Any = SimpleNamespace(model=model, shortlist=False, source="en")
    several = TranslateOptions(
        beam_size=2, n_best=2, prefix="So", suppress_phrases=("a",), word_alignments=True
    )
    keys = [
        TranslationJob(translator, translator, each, TextSource("a.txt"), False, "text").key()[:12]
        for each in (TranslateOptions(), several)
    ]
    assert keys == ["a251c1ce67d0", "dc06103f4c4c"]
