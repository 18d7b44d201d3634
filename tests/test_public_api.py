"""What `import pipelines` offers: every name is there, typed, and loaded only when it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pipelines
from pipelines import asr
from tests.conftest import REPOSITORY


def test_every_public_name_is_there() -> None:
    missing = [name for name in pipelines.__all__ if getattr(pipelines, name, None) is None]
    assert missing == []
    assert dir(pipelines) == pipelines.__all__ == sorted(pipelines.__all__)


def test_what_a_user_of_the_library_needs_is_public() -> None:
    needed = {
        "Transcriber", "LiveTranscriber", "Translator", "LiveTranslator",
        "TranscribeOptions", "LiveOptions", "TranslateOptions", "VadOptions",
        "Segment", "Word", "Translation", "load_audio", "EdgeError", "__version__",
    }  # fmt: skip
    assert needed <= set(pipelines.__all__)
    errors = ast.parse((REPOSITORY / "pipelines/errors.py").read_text(encoding="utf-8"))
    classes = {node.name for node in errors.body if isinstance(node, ast.ClassDef)}
    assert classes <= set(pipelines.__all__)


@pytest.mark.parametrize("package", [pipelines, asr])
def test_type_checkers_see_the_same_names(package: ModuleType) -> None:
    """The imports under TYPE_CHECKING are the names of the lazy table."""
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    typed = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipelines.")
        for name in node.names
    }
    assert typed - {"wait_passively"} == set(package.__all__) - {"__version__"}
    assert Path(REPOSITORY / "pipelines/py.typed").exists()


def test_the_names_of_recognition_are_public() -> None:
    assert dir(asr) == asr.__all__ == sorted(asr.__all__)
    assert set(asr.__all__) <= set(pipelines.__all__)
    assert all(getattr(asr, name) is getattr(pipelines, name) for name in asr.__all__)


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
        "TranscribeOptions, TranslateOptions, TranslateOverrides, ReadOptions, LiveOptions, "
        "VadOptions, Segment, Translation, TranslationDone, PictureText, load_audio, EdgeError"
    )
    code = f"from pipelines import {names}\nimport sys\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
