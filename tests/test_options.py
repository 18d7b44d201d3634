"""Options are declared once: each has its help, and values out of its range are refused."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest

from pipelines import LiveOptions, ReadOptions, TranscribeOptions, TranslateOptions, VadOptions
from pipelines.errors import OptionError
from pipelines.options import Range

ALL = (TranscribeOptions, TranslateOptions, LiveOptions, VadOptions, ReadOptions)


@pytest.mark.parametrize("options", ALL)
def test_each_option_has_help_and_a_default(options: type) -> None:
    doc = inspect.getdoc(options) or ""
    for each in fields(options):
        assert each.metadata["help"].strip().endswith((".", ")"))
        assert f"    {each.name}: " in doc
        assert each.metadata["group"]
        assert each.default is not MISSING


@pytest.mark.parametrize("options", ALL)
def test_numbers_out_of_range_are_refused_by_name(options: Any) -> None:
    checked = 0
    for each in fields(options):
        limits: Range | None = each.metadata["range"]
        if limits is None:
            continue
        wrong = [float("nan"), "many"]
        wrong += [limits.low - 1] if np.isfinite(limits.low) else []
        wrong += [limits.above] if np.isfinite(limits.above) else []
        wrong += [limits.high + 1] if np.isfinite(limits.high) else []
        wrong += [1.5] if limits.whole else []
        # None is an empty tuple.
        wrong += [None] if "None" not in each.type and not each.type.startswith("tuple") else []
        for value in wrong:
            with pytest.raises(OptionError, match=each.name):
                options(**{each.name: value})
            checked += 1
    assert checked


@pytest.mark.parametrize(
    ("options", "name", "value", "wanted"),
    [
        (TranscribeOptions, "beam_size", 5.0, "a whole number, not 5.0"),
        (TranslateOptions, "beam_size", True, "a whole number, not True"),
        (TranscribeOptions, "temperature", ["x"], "a number, not 'x'"),
        (TranscribeOptions, "multilingual", "no", "true or false, not 'no'"),
        (TranscribeOptions, "language", 3, "a text, not 3"),
        (TranscribeOptions, "languages", ["en", 3], "a list of texts, not ('en', 3)"),
        (TranscribeOptions, "languages", None, "a list of texts, not None"),
        (TranscribeOptions, "suppress_phrases", "Morgen", "a list of texts, not 'Morgen'"),
        (TranslateOptions, "forced_phrases", "Morgen", "a list of texts, not 'Morgen'"),
        (TranslateOptions, "suppress_phrases", 3, "a list of texts, not 3"),
    ],
)
def test_a_wrong_type_is_refused_in_plain_words(
    options: Any, name: str, value: object, wanted: str
) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(f'{name} must be {wanted}')}$"):
        options(**{name: value})


def test_spellings_of_the_same_options_are_equal() -> None:
    assert TranscribeOptions(language="auto") == TranscribeOptions(languages="")  # type: ignore[arg-type]
    german_or_english = TranscribeOptions(languages=("German", "en"))
    assert german_or_english == TranscribeOptions(languages="en, de")  # type: ignore[arg-type]
    listed = TranslateOptions(suppress_phrases=["a"])  # type: ignore[arg-type]
    assert hash(listed) == hash(TranslateOptions(suppress_phrases=("a",)))
    with pytest.raises(OptionError, match="clip_timestamps takes seconds, .* not True"):
        TranscribeOptions(clip_timestamps=True)  # type: ignore[arg-type]


def test_live_options_have_their_own_speech() -> None:
    assert LiveOptions(vad={"threshold": 0.4}).vad == VadOptions(threshold=0.4)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="vad: no such option: treshold"):
        LiveOptions(vad={"treshold": 0.4})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"vad_parameters has no effect .*LiveOptions\(vad"):
        LiveOptions(transcribe=TranscribeOptions(vad_parameters={"threshold": 0.4}))


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Range(1, whole=True), "1 or more"),
        (Range(0, unit="s"), "0 s or more"),
        (Range(0, 1), "from 0 to 1"),
        (Range(above=0), "above 0"),
        (Range(above=0, below=1), "between 0 and 1"),
        (Range(whole=True), "a whole number"),
        (Range(), "a number"),
    ],
)
def test_a_range_says_what_it_is(limits: Range, text: str) -> None:
    assert str(limits) == text
    assert np.int64(1) in limits or np.float32(0.5) in limits
    assert True not in limits
