"""Short names, hub ids, and what else someone may type."""

from __future__ import annotations

import pytest

from pipelines.hub.names import is_repository, repository_of, short_name, similar_names


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("tiny", "openai/whisper-tiny"),
        ("tiny.en", "openai/whisper-tiny.en"),
        ("base", "openai/whisper-base"),
        ("small.en", "openai/whisper-small.en"),
        ("medium", "openai/whisper-medium"),
        ("large-v1", "openai/whisper-large"),
        ("large-v2", "openai/whisper-large-v2"),
        ("large-v3", "openai/whisper-large-v3"),
        ("large", "openai/whisper-large-v3"),
        ("turbo", "openai/whisper-large-v3-turbo"),
        ("large-v3-turbo", "openai/whisper-large-v3-turbo"),
        ("whisper-tiny", "openai/whisper-tiny"),
        ("whisper-large-v3-turbo", "openai/whisper-large-v3-turbo"),
        ("distil-large-v3", "distil-whisper/distil-large-v3"),
        ("distil-small.en", "distil-whisper/distil-small.en"),
        ("moonshine-base", "UsefulSensors/moonshine-base"),
        ("moonshine-tiny-ja", "UsefulSensors/moonshine-tiny-ja"),
        ("opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de"),
        ("opus-mt-tc-big-en-fr", "Helsinki-NLP/opus-mt-tc-big-en-fr"),
        ("opus-mt-en-ROMANCE", "Helsinki-NLP/opus-mt-en-ROMANCE"),
        ("opus-mt-zh-en", "Helsinki-NLP/opus-mt-zh-en"),
        ("nllb-200-distilled-600m", "facebook/nllb-200-distilled-600M"),
        ("nllb-200-distilled-600M", "facebook/nllb-200-distilled-600M"),
        ("nllb-200-3.3B", "facebook/nllb-200-3.3B"),
        ("m2m100-418m", "facebook/m2m100_418M"),
        ("m2m100_418M", "facebook/m2m100_418M"),
        ("mbart-50-many-to-one", "facebook/mbart-large-50-many-to-one-mmt"),
        ("mbart-large-50-many-to-one-mmt", "facebook/mbart-large-50-many-to-one-mmt"),
        ("mbart-en-ro", "facebook/mbart-large-en-ro"),
        ("t5-small", "google-t5/t5-small"),
        ("flan-t5-xl", "google/flan-t5-xl"),
        # No short names.
        ("openai/whisper-tiny", None),
        ("Helsinki-NLP/opus-mt-en-de", None),
        ("whisper-", None),
        ("opus-mt-", None),
        ("opus-mt-..", None),
        ("opus-mt-en-de/../../x", None),
        ("opus-mt-en--de", None),
        ("", None),
    ],
)
def test_short_names(name: str, repository: str | None) -> None:
    assert repository_of(name) == repository


@pytest.mark.parametrize(
    "name",
    ["tiny", "turbo", "large-v1", "large-v3", "distil-large-v3.5", "opus-mt-en-de"]
    + ["nllb-200-distilled-600m", "m2m100-418m", "mbart-50-many-to-many", "flan-t5-small"],
)
def test_a_short_name_survives_the_round_trip(name: str) -> None:
    repository = repository_of(name)
    assert repository is not None
    assert short_name(repository) == name


def test_what_has_no_short_name_keeps_its_own() -> None:
    assert short_name("someone/whisper-tiny-tuned") == "someone/whisper-tiny-tuned"
    assert short_name("Helsinki-NLP/other") == "Helsinki-NLP/other"


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("openai/whisper-tiny", True),
        ("a/b", True),
        ("distil-whisper/distil-large-v3.5", True),
        ("some_one/model_1.0", True),
        ("tiny", False),
        ("a/b/c", False),
        ("../etc", False),
        ("a/..", False),
        ("a/../b", False),
        ("a/b--c", False),
        ("a/b..c", False),
        ("-a/b", False),
        ("a/b-", False),
        ("a/b.", False),
        ("a/b.git", False),
        ("a/b\n", False),
        ("a/b c", False),
        ("a\\b", False),
        ("a/ü", False),
        ("/b", False),
        ("a/", False),
        ("a/" + "x" * 97, False),
    ],
)
def test_hub_ids(name: str, good: bool) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    assert is_repository(name) is good
    if good:
        validate_repo_id(name)
    elif "/" in name and not name.startswith("/"):
        with pytest.raises(HFValidationError):
            validate_repo_id(name)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tny", "tiny"),
        ("Tiny", "tiny"),
        ("TURBO", "turbo"),
        ("larg-v3", "large-v3"),
        ("large_v3", "large-v3"),
        ("medium.eng", "medium.en"),
        ("demo-de-en", "demo-en-de"),
        ("opus-en-de", "opus-mt-en-de"),
        ("OPUS-MT-EN-DE", "opus-mt-en-de"),
        ("opus_mt_en_de", "opus-mt-en-de"),
        ("en-de", "opus-mt-en-de"),
        ("nllb-200-600m", "nllb-200-distilled-600m"),
        ("nllb200-1.3B", "nllb-200-1.3b"),
        ("mbart50-many-to-many", "mbart-50-many-to-many"),
    ],
)
def test_near_misses(typed: str, meant: str) -> None:
    assert meant in similar_names(typed, ("demo", "demo-en-de"))


def test_nothing_is_suggested_for_what_is_near_nothing() -> None:
    assert similar_names("quarterly report", ("demo",)) == []
