"""Options of a translation and their keyword form."""

from __future__ import annotations

import pytest

from pipelines.errors import OptionError
from pipelines.options import with_fields
from pipelines.translation import ParallelTranslator, TranslateOptions, Translator


def test_overrides_replace_fields() -> None:
    options = TranslateOptions(target="fr", beam_size=2)
    assert with_fields(options, {"beam_size": 4}) == TranslateOptions(target="fr", beam_size=4)
    with pytest.raises(OptionError, match="beam_size must be 1 or more"):
        with_fields(options, {"beam_size": 0})
    with pytest.raises(OptionError, match="no such option: .*beams"):
        with_fields(options, {"beams": 4})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("target_language", "target"), ("source", "source_language"), ("beam_sise", "beam_size")],
)
def test_the_error_about_an_unknown_option_names_the_one_that_was_meant(
    name: str, meant: str
) -> None:
    with pytest.raises(OptionError, match=rf"^no such option: {name}; did you mean {meant}\?$"):
        with_fields(TranslateOptions(), {name: "de"})


@pytest.mark.slow
def test_every_method_takes_overrides(demo: Translator) -> None:
    text = "He is tired. He is ill."
    assert len(demo.translate(text).sentences) == 2
    assert len(demo.translate(text, split_sentences=False).sentences) == 1
    (done,) = demo.translate_lines([text], TranslateOptions(), split_sentences=False)
    assert len(done.sentences) == 1
    *_, last = demo.stream(text, split_sentences=False)
    assert last.translation == done  # type: ignore[union-attr]
    with pytest.raises(OptionError, match="no such option"):
        demo.translate_lines([text], language="de")
    with ParallelTranslator(demo, 1) as workers:
        (parallel,) = workers.translate_lines([text], split_sentences=False)
    assert parallel.text == done.text
