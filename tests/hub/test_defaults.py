"""Which model serves when none was named: the setting, the best one here, a bundled translator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.errors import ModelNotFound, UnsupportedTask
from pipelines.hub import (
    RECOMMENDED_RECOGNIZER,
    RECOMMENDED_RECOGNIZER_IN_WORDS,
    choose_default,
    defaults,
    list_models,
)
from pipelines.hub.names import MODEL_LANGUAGES, repository_of
from pipelines.hub.sources import published_model
from tests.hub.conftest import (
    Cached,
    many_files,
    opus_files,
    reader_files,
    whisper_files,
    write_files,
)

pytestmark = pytest.mark.usefixtures("bundled", "hub_cache")

# Best first, as the documentation of pipelines.hub.defaults says.
MULTILINGUAL = "large-v3 turbo large-v2 large-v1 medium small base tiny".split()
ENGLISH = (
    "large-v3 turbo distil-large-v3.5 distil-large-v3 large-v2 distil-large-v2 large-v1 medium.en "
    "medium distil-medium.en small.en small distil-small.en base.en base tiny.en tiny"
).split()
ENGLISH_ONLY = [name for name in ENGLISH if name not in MULTILINGUAL]
PAIR = (
    "opus-mt-tc-big-{s}-{t} opus-mt-{s}-{t} opus-mt-{s}-ROMANCE opus-mt-ROMANCE-{t} "
    "nllb-200-3.3b nllb-200-distilled-1.3b nllb-200-1.3b nllb-200-distilled-600m m2m100-1.2b "
    "mbart-50-many-to-many m2m100-418m opus-mt-{s}-mul opus-mt-mul-{t}"
)

NLLB = [name for name in MODEL_LANGUAGES if name.startswith("nllb")]
NOT_NLLB = [name for name in MODEL_LANGUAGES if name not in NLLB]


def test_the_languages_are_those_of_the_tokenizers() -> None:
    from pipelines.languages import _LONG, M2M100, MBART50, NLLB, find_language

    codes = {"nllb": NLLB, "m2m1": M2M100, "mbar": MBART50}
    for name, known in MODEL_LANGUAGES.items():
        assert known == {code for code in _LONG if find_language(code, codes[name[:4]])}


def put(cached: Cached, *names: str) -> None:
    for name in names:
        repository = repository_of(name)
        assert repository is not None
        files = opus_files() if name.startswith("opus") else whisper_files()
        if name in MODEL_LANGUAGES:
            files = many_files("mbart" if name.startswith("mbart") else "m2m_100")
        # No more than makes a model, as there are many here.
        needed = "config.json tokenizer.json vocab.json source.spm target.spm pytorch_model.bin"
        cached(repository, {name: files[name] for name in needed.split() if name in files})


def order(cached: Cached, names: list[str], *languages: str | None) -> list[str]:
    """Puts everything into the cache and takes out what is chosen, until none is."""
    from pipelines.hub import remove

    put(cached, *names)
    task = "translation" if names[0].startswith("opus") else "asr"
    chosen = []
    for _ in names:
        try:
            found = choose_default(task, *languages)
        except ModelNotFound:
            break
        if found.source == "bundled":
            break
        chosen.append(found.name)
        remove(found.name)
    return chosen


def test_the_documented_order_is_the_one(cached: Cached) -> None:
    assert order(cached, ENGLISH[::-1], "en") == ENGLISH
    assert defaults.__doc__ is not None
    plain = [name for name in ENGLISH if not name.endswith(".en") or name.startswith("distil")]
    assert ", ".join(plain) in " ".join(defaults.__doc__.split())


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        (("de", None), MULTILINGUAL),
        ((None, None), MULTILINGUAL + ENGLISH_ONLY),
        (("en", "en"), ENGLISH),
        (("de", "en"), [name for name in MULTILINGUAL if name != "turbo"]),
        ((None, "en"), [name for name in MULTILINGUAL if name != "turbo"]),
    ],
)
def test_recognizers_for_a_language(
    cached: Cached, languages: tuple[str | None, ...], expected: list[str]
) -> None:
    assert order(cached, sorted(ENGLISH), *languages) == expected


@pytest.mark.parametrize(
    ("source", "target", "without"),
    [
        ("en", "de", {"opus-mt-en-ROMANCE", "opus-mt-ROMANCE-de"}),
        ("en", "fr", {"opus-mt-ROMANCE-fr"}),
        ("en", "br", {"opus-mt-en-ROMANCE", "opus-mt-ROMANCE-br", *NLLB, "mbart-50-many-to-many"}),
        ("en", "eo", {"opus-mt-en-ROMANCE", "opus-mt-ROMANCE-eo", *NOT_NLLB}),
        ("it", "de", {"opus-mt-it-ROMANCE"}),
        ("fr", "es", set()),
    ],
)
def test_translators_for_a_pair(
    cached: Cached, source: str, target: str, without: set[str]
) -> None:
    every = PAIR.format(s=source, t=target).split()
    expected = [name for name in every if name not in without]
    assert order(cached, every[::-1], source, target) == expected


def test_translation_without_languages_means_those_of_the_bundled_model(cached: Cached) -> None:
    put(cached, "opus-mt-en-de", "opus-mt-en-fr", "opus-mt-fr-de")
    assert choose_default("translation").name == "opus-mt-en-de"
    assert choose_default("translation", target="fr").name == "opus-mt-en-fr"
    assert choose_default("translation", source="fr").name == "opus-mt-fr-de"


@pytest.mark.parametrize(("source", "target"), [("EN", "De"), ("en-GB", "de_AT"), ("en", "DE")])
def test_regions_and_capitals_do_not_matter(cached: Cached, source: str, target: str) -> None:
    assert choose_default("translation", source, target).name == "demo-en-de"
    put(cached, "opus-mt-en-de")
    assert choose_default("translation", source, target).name == "opus-mt-en-de"


def test_readers_of_print_are_chosen_and_others_named(cached: Cached, hub_cache: Path) -> None:
    cached("microsoft/trocr-large-handwritten", reader_files())
    cached("microsoft/trocr-small-printed", reader_files())
    cached("naver-clova-ix/donut-base", reader_files("mbart"))
    small = choose_default("reading")
    assert small.name == "microsoft/trocr-small-printed"
    cached("microsoft/trocr-base-printed", reader_files())
    chosen = choose_default("reading")
    assert chosen.name == "microsoft/trocr-base-printed"
    assert chosen.note == (
        f"using {chosen.name}, the best reader of print in {hub_cache}; name a model to use another"
    )


def test_captions_are_not_read_as_print(cached: Cached, bundled: Path) -> None:
    write_files(bundled / "reader", reader_files())
    blip = {"model_type": "blip", "architectures": ["BlipForConditionalGeneration"]}
    files = reader_files() | {"config.json": json.dumps(blip).encode()}
    cached("Salesforce/blip-image-captioning-base", files)
    assert [model.task for model in list_models()].count("reading") == 2
    assert choose_default("reading").name == "reader"


def test_the_choice_is_said_in_one_line(cached: Cached, hub_cache: Path) -> None:
    put(cached, "small", "opus-mt-en-de")
    note = f"using small, the best model for de in {hub_cache}; name a model to use another"
    assert choose_default("asr", "de").note == note
    assert choose_default("asr").note == note.replace(" for de", "")
    note = choose_default("translation", "en", "de").note or ""
    assert note.startswith("using opus-mt-en-de, the best model from en to de in ")


def test_half_downloads_are_passed_over(cached: Cached) -> None:
    put(cached, "tiny")
    cached("openai/whisper-large-v3", {"config.json": b'{"model_type": "whisper"}'})
    assert choose_default("asr", "en").name == "tiny"


def test_the_users_setting_goes_first(cached: Cached) -> None:
    put(cached, "large-v3", "tiny")
    found = choose_default("asr", "en", preferred="tiny")
    assert (found.name, found.note) == ("tiny", None)
    assert choose_default("asr", "en", preferred="").name == "large-v3"
    with pytest.raises(ModelNotFound, match="the model base is not on this machine"):
        choose_default("asr", "en", preferred="base")


@pytest.mark.parametrize(
    ("task", "languages", "name", "better"),
    [
        ("translation", (), "demo-en-de", "opus-mt-en-de"),
        ("translation", ("en", "de"), "demo-en-de", "opus-mt-en-de"),
        ("translation", ("de", "en"), "demo-de-en", "opus-mt-de-en"),
        ("translation", (None, "en"), "demo-de-en", "opus-mt-de-en"),
        ("translation", ("de", None), "demo-de-en", "opus-mt-de-en"),
    ],
)
def test_else_the_bundled_one_says_what_it_is_for_and_how_to_get_more(
    task: str, languages: tuple[str | None, ...], name: str, better: str
) -> None:
    found = choose_default(task, *languages)
    assert (found.name, found.source) == (name, "bundled")
    assert found.note is not None
    assert "\n" not in found.note
    assert f"using the bundled {name}, good for " in found.note
    assert found.note.endswith(f"; {better} is better")
    assert found.better == better


@pytest.mark.parametrize(
    ("task", "languages", "said", "better"),
    [
        ("translation", ("en", "fr"), "no translator from en to fr is", "opus-mt-en-fr"),
        ("translation", ("de", "fr"), "no translator from de to fr is", "opus-mt-de-fr"),
        ("translation", (None, "xx"), "no translator from en to xx is", "opus-mt-en-xx"),
    ],
)
def test_a_pair_that_nothing_here_can_do(
    task: str, languages: tuple[str | None, ...], said: str, better: str, hub_cache: Path
) -> None:
    with pytest.raises(ModelNotFound) as error:
        choose_default(task, *languages)
    message = str(error.value)
    assert message.startswith(said)
    assert "\n" not in message
    assert f"looked in {hub_cache}, and the bundled demo" in message
    assert message.endswith(f"; download {better}")
    assert error.value.download == better


@pytest.mark.parametrize(
    ("languages", "said"),
    [
        ((), "no recognizer is"),
        (("en",), "no recognizer for en is"),
        (("fr",), "no recognizer for fr is"),
        (("fr", "en"), "no recognizer for fr that also translates into en is"),
        ((None, "en"), "no recognizer that also translates into en is"),
    ],
)
def test_the_bundled_recognizer_is_never_chosen(
    languages: tuple[str | None, ...], said: str, hub_cache: Path
) -> None:
    with pytest.raises(ModelNotFound) as error:
        choose_default("asr", *languages)
    assert str(error.value) == (
        f"{said} on this machine: looked in {hub_cache}, and the bundled demo is only for "
        "synthetic voices that speak English; download base (Whisper base, 99 languages, "
        "145 MB)"
    )
    assert error.value.download == "base"
    assert choose_default("asr", *languages, preferred="demo").name == "demo"


def test_what_the_recommended_recognizer_is() -> None:
    model = published_model(RECOMMENDED_RECOGNIZER)
    assert model is not None
    megabytes = max(file.size for file in model.files) / 1e6
    assert RECOMMENDED_RECOGNIZER_IN_WORDS.endswith(f" {megabytes:.0f} MB")


def test_a_recognizer_without_a_short_name_comes_last(cached: Cached) -> None:
    tuned = {"generation_config.json": b'{"lang_to_id": {"<|de|>": 1, "<|it|>": 2}}'}
    cached("someone/whisper-tuned", whisper_files() | tuned)
    cached("someone/other-tuned.en", whisper_files())
    for languages in (("de",), ("it", "en"), (None, "en")):
        assert choose_default("asr", *languages).name == "someone/whisper-tuned"
    found = choose_default("asr", "en")
    assert (found.name, found.source) == ("someone/other-tuned.en", "cache")
    assert found.note == (
        "using someone/other-tuned.en, the best recognizer for en on this machine; name a model to "
        "use another"
    )
    with pytest.raises(ModelNotFound, match="no recognizer for fr is"):
        choose_default("asr", "fr")
    put(cached, "tiny")
    assert choose_default("asr", "de").name == "tiny"


def test_a_recognizer_that_cannot_do_it_is_not_chosen_as_another_one(cached: Cached) -> None:
    codes = {"generation_config.json": b'{"lang_to_id": {"<|de|>": 1, "<|en|>": 2}}'}
    for name in ("turbo", "distil-large-v3"):
        repository = repository_of(name)
        assert repository is not None
        cached(repository, whisper_files() | codes)
    assert choose_default("asr", "de").name == "turbo"
    with pytest.raises(ModelNotFound, match="that also translates into en is"):
        choose_default("asr", "de", "en")


def test_a_recognizer_of_many_languages_is_more_likely_right(cached: Cached) -> None:
    codes = {"generation_config.json": b'{"lang_to_id": {"<|de|>": 1, "<|en|>": 2}}'}
    cached("someone/tuned-de", whisper_files() | {"model.safetensors": b"x" * 5000})
    cached("someone/tuned-many", whisper_files() | codes)
    assert choose_default("asr").name == "someone/tuned-many"


@pytest.mark.parametrize("languages", [("de", "de"), ("en", "en")])
def test_a_language_into_itself_is_no_translation(languages: tuple[str | None, ...]) -> None:
    with pytest.raises(UnsupportedTask, match="source and target are both (de|en)"):
        choose_default("translation", *languages)


@pytest.mark.parametrize("code", ["../../x", "de fr", "deu--fra", "Deutsch!", "\n"])
def test_what_is_no_language_code(code: str) -> None:
    for languages in (("en", code), (code, "de")):
        with pytest.raises(UnsupportedTask, match="not a language code"):
            choose_default("translation", *languages)
