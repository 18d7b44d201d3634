"""What people call a language, against what models call it."""

from __future__ import annotations

import pytest

from pipelines.languages import (
    find_target,
    is_one_language,
    pair_in_name,
    two_letter,
)


@pytest.mark.parametrize(
    ("wanted", "codes", "found"),
    [
        ("fr", ("deu", "fra"), "fra"),
        ("fra", ("de", "fr"), "fr"),
        (">>fra<<", ("deu", "fra"), "fra"),
        ("FR", ("fra",), "fra"),
        ("fr-FR", ("fra", "deu"), "fra"),
        ("fr", ("fr", "fr_FR", "fr_CA"), "fr"),
        ("fr_ca", ("fr", "fr_FR", "fr_CA"), "fr_CA"),
        ("pt-BR", ("pt", "pt_br"), "pt_br"),
        ("pt", ("por_Latn", "deu"), "por_Latn"),
        ("zh-Hans", ("cmn_Hans", "cmn_Hant"), "cmn_Hans"),
        ("zh", ("cmn_Hans", "cmn_Hant"), None),
        ("zh-Hant", ("zho",), None),
        ("no", ("nob", "dan"), "nob"),
        ("ar", ("arb",), "arb"),
        ("xx", ("deu",), None),
        ("de", (), None),
        ("", ("deu",), None),
    ],
)
def test_finding_a_target(wanted: str, codes: tuple[str, ...], found: str | None) -> None:
    assert find_target(wanted, codes) == found


def test_two_letters() -> None:
    assert [two_letter(code) for code in ("eng", "EN", "en_GB", "cmn-Hans", "nob", None)] == [
        "en",
        "en",
        "en",
        "zh",
        "nb",
        None,
    ]


def test_groups_are_no_languages() -> None:
    assert is_one_language("de")
    assert is_one_language("cmn_Hans")
    assert not any(is_one_language(code) for code in ("mul", "ROMANCE", "gmw", None))


def test_languages_in_a_name() -> None:
    assert pair_in_name("opus-mt-tc-big-en-fr") == ("en", "fr")
    assert pair_in_name("opus-mt-en-ROMANCE") is None
    assert pair_in_name("snapshot") is None
