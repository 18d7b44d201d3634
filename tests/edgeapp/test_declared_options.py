"""An option that the library declares has a flag, a setting, documentation, and a place in keys.

No model is loaded. A new option needs no line here.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main

from edgeapp.batch.recordings.transcription_runner import TranscriptionRunner
from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.texts.translation_job import key_settings
from edgeapp.cli import app
from edgeapp.commands.options.declared import Flag, flags_of
from edgeapp.settings import Settings, load_settings
from pipelines import TranscribeOptions, TranslateOptions

ASSETS = Path(__file__).parents[2] / "assets"
# Some options need others.
BASE: dict[type, dict[str, Any]] = {
    TranscribeOptions: {"beam_size": 5, "word_timestamps": True},
    TranslateOptions: {"beam_size": 5},
}
CASES = [
    pytest.param(kind, flag, id=f"{kind.__name__}.{flag.name}")
    for kind in BASE
    for flag in flags_of(kind)
]


def sample(flag: Flag) -> Any:
    """Return a value of an option, as a settings file has it, that is not its default."""
    metadata, default = flag.field.metadata, flag.field.default
    if metadata["choices"]:
        return next(each for each in metadata["choices"] if each != default)
    if flag.type == "bool":
        return flag.name != "word_timestamps" and not default
    if limits := metadata["range"]:
        number = next(each for each in (2, 0.25, 100) if each in limits and each != default)
        return [number, number + 1] if flag.type.startswith("tuple") else number
    texts = ["de", "fr"] if "LANGUAGE" in metadata["metavar"] else ["a", "b"]
    return texts if flag.type.startswith("tuple") else texts[0]


def key_of(options: Any) -> Any:
    """Return what the key of a job has of the options."""
    model = SimpleNamespace(folder="folder", compute_type="int8")
    if isinstance(options, TranslateOptions):
        translator: Any = SimpleNamespace(model=model, shortlist=False, source="en")
        return key_settings(translator, options)
    runner: Any = SimpleNamespace(
        transcriber=SimpleNamespace(model=model),
        pool=SimpleNamespace(settings=Settings()),
        target=None,
        translation_model=None,
        _writer=ResultWriter(),
    )
    return TranscriptionRunner._key_of(runner, __file__, options)


@pytest.mark.parametrize(("kind", "flag"), CASES)
def test_an_option_is_everywhere(
    kind: Any, flag: Flag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = kind.__name__.lower().removesuffix("options")
    group: Any = typer.main.get_command(app)
    (parameter,) = [each for each in group.commands[command].params if each.name == flag.name]
    assert set(parameter.opts) == set(flag.names)

    page = (ASSETS / "packaging" / "edgeapp.1").read_text("utf-8")
    section = page.partition(f".SS edgeapp {command} ")[2].partition(".SS ")[0]
    table = (ASSETS / "docs" / "command-line.md").read_text("utf-8")
    for name in flag.names:
        assert name.replace("-", "\\-") in section
        assert f"`{name}`" in table

    value: Any = sample(flag)
    setting = {flag.within: {flag.field.name: value}} if flag.within else {flag.name: value}
    base = BASE[kind]
    lines = [
        f"{name} = {{ {flag.field.name} = {json.dumps(each[flag.field.name])} }}"
        if isinstance(each, dict)
        else f"{name} = {json.dumps(each)}"
        for name, each in {**base, **setting}.items()
    ]
    config = tmp_path / "config.toml"
    config.write_text("\n".join([f"[{command}]", *lines]), encoding="utf-8")
    monkeypatch.setenv("EDGEAPP_CONFIG", str(config))
    options = kind(**getattr(load_settings(), command))
    assert options == kind(**{**base, **setting})
    # How many chunks are decoded at the same time changes no text.
    assert (key_of(options) == key_of(kind(**base))) == (flag.name == "batch_size")
