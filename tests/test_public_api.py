"""What `import pipelines` offers: every name is there, typed, and loaded only when it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

import pipelines
from pipelines import asr, errors, languages, notices, reading, text_language, translation
from tests.conftest import REPOSITORY

LAZY = (pipelines, asr, reading, translation)


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_every_public_name_is_there(package: ModuleType) -> None:
    assert [name for name in package.__all__ if getattr(package, name, None) is None] == []
    assert dir(package) == package.__all__ == sorted(package.__all__)


def test_one_remembers_the_names_of_the_package() -> None:
    needed = {
        "Transcriber", "WhisperModel", "LiveTranscriber", "Translator", "LiveTranslator",
        "TranscribeOptions", "LiveOptions", "TranslateOptions", "VadOptions",
        "Segment", "Word", "Translation", "load_audio", "EdgeError",
    }  # fmt: skip
    assert needed <= set(pipelines.__all__)
    assert len(pipelines.__all__) <= 35


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_type_checkers_see_the_same_names(package: ModuleType) -> None:
    """Each name is written once, in the stub that both read: also `name as name`, which exports."""
    assert package.__file__ is not None
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = [name for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert all(name.asname == name.name for name in names)
    assert sorted(name.name for name in names) == package.__all__
    assert Path(REPOSITORY / "pipelines/py.typed").exists()


def test_a_name_that_moved_warns_and_names_its_place() -> None:
    for name, home in (
        ("Retract", asr),
        ("PairTranslator", translation),
        ("PictureText", reading),
        ("UnsupportedTask", errors),
        ("two_letter", languages),
        ("collect_notices", notices),
        ("detect_text_language", text_language),
    ):
        with pytest.warns(DeprecationWarning, match=rf"pipelines\.{name} is now {home.__name__}"):
            assert getattr(pipelines, name) is getattr(home, name)
        assert name not in pipelines.__all__


def test_a_name_of_today_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in pipelines.__all__:
            getattr(pipelines, name)


def test_a_former_name_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"VoiceOptions is now pipelines\.VadOptions"):
        assert pipelines.VoiceOptions is pipelines.VadOptions
    assert "VoiceOptions" not in pipelines.__all__


def test_the_version_is_that_of_the_package() -> None:
    assert pipelines.__version__.count(".") >= 2


def test_a_name_that_is_not_there() -> None:
    code = (
        "import pipelines\ntry:\n    pipelines.Nothing\nexcept AttributeError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "module 'pipelines' has no attribute 'Nothing'"


def test_options_results_and_errors_are_there_without_torch() -> None:
    names = (
        "TranscribeOptions, TranslateOptions, ReadOptions, LiveOptions, VadOptions, Segment, "
        "Translation, TranslationDone, load_audio, EdgeError"
    )
    code = (
        f"from pipelines import {names}\nfrom pipelines.translation import TranslateOptions\n"
        "from pipelines.reading import PictureText\nimport sys\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "code",
    ["import pipelines", "from pipelines import TranslateOptions"],
    ids=["package", "options"],
)
def test_what_an_import_loads(code: str) -> None:
    """As `python -X importtime` tells it: no torch, no models' libraries, no network's."""
    command = [sys.executable, "-X", "importtime", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pipelines" in loaded
    heavy = {"torch", "numba", "transformers", "huggingface_hub", "tokenizers", "av", "scipy"}
    assert loaded & heavy == set()
