"""Models that need both languages: names of languages, translations, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.engine import Engine
from pipelines.errors import CheckpointError, OptionError, UnsupportedTask
from pipelines.languages import M2M100, MBART50, NLLB, find_language
from pipelines.translation import TranslateOptions, TranslationDelta, TranslationDone, Translator
from pipelines.translation.live import LiveTranslator
from pipelines.translation.tokenizers.auto import model_languages
from pipelines.translation.tokenizers.multilingual import MultilingualTokenizer
from pipelines.translation.tokenizers.t5 import T5Tokenizer
from tests.fixtures.many_layout import SHAPES, write_many_files
from tests.translation.corpus import SENTENCES

pytestmark = pytest.mark.oracle

Folders = Callable[..., Path]


@pytest.fixture(scope="module")
def nllb(many_folder: Folders, exact_engine: Engine) -> Translator:
    return Translator(many_folder("nllb-200-distilled-600M", seed=1), engine=exact_engine)


@pytest.mark.parametrize(
    ("typed", "nllb", "m2m100", "mbart50"),
    [
        ("en", "eng_Latn", "en", "en_XX"),
        ("eng_Latn", "eng_Latn", "en", "en_XX"),
        ("en_XX", "eng_Latn", "en", "en_XX"),
        ("__en__", "eng_Latn", "en", "en_XX"),
        ("deu", "deu_Latn", "de", "de_DE"),
        ("de-AT", "deu_Latn", "de", "de_DE"),
        ("pt_BR", "por_Latn", "pt", "pt_XX"),
        ("zh", "zho_Hans", "zh", "zh_CN"),
        ("zh-CN", "zho_Hans", "zh", "zh_CN"),
        ("zh-TW", "zho_Hant", "zh", None),
        ("zho_Hant", "zho_Hant", None, None),
        ("yue", "yue_Hant", None, None),
        ("no", "nob_Latn", "no", None),
        ("nb", "nob_Latn", "no", None),
        ("jw", "jav_Latn", "jv", None),
        ("fil", "tgl_Latn", "tl", "tl_XX"),
        ("uz", "uzn_Latn", "uz", None),
        ("srp_Cyrl", "srp_Cyrl", "sr", None),
        ("srp_Latn", None, None, None),
        ("ace", None, None, None),
        ("ace_Latn", "ace_Latn", None, None),
        ("Klingon", None, None, None),
    ],
)
def test_spellings_of_a_language(
    typed: str, nllb: str | None, m2m100: str | None, mbart50: str | None
) -> None:
    found = [find_language(typed, codes) for codes in (NLLB, M2M100, MBART50)]
    assert found == [nllb, m2m100, mbart50]


def test_the_ids_of_the_published_models(tmp_path: Path) -> None:
    """Under the true vocabularies: 256,206, 128,112, 250,054, 250,027 and 32,128 rows."""
    expected = {
        "nllb-200-distilled-600M": {"ace_Arab": 256_001, "eng_Latn": 256_047, "zul_Latn": 256_202},
        "m2m100_418M": {"af": 128_004, "en": 128_022, "zu": 128_103},
        "mbart-large-50-many-to-many-mmt": {"ar_AR": 250_001, "ro_RO": 250_020, "sl_SI": 250_052},
        "mbart-large-en-ro": {"en_XX": 250_004, "zh_CN": 250_025},
    }
    sizes = {"nllb-200-distilled-600M": 256_206, "m2m100_418M": 128_112}
    for shape, ids in expected.items():
        folder = tmp_path / shape
        folder.mkdir()
        config = write_many_files(folder, replace(SHAPES[shape], tokenizer_json=False))
        assert config["vocab_size"] == sizes.get(shape, config["vocab_size"])
        tokenizer = MultilingualTokenizer(folder, config["model_type"])
        for code, index in ids.items():
            source = tokenizer.encode("Hello.", None, code)
            assert index in (source[0], source[-1])
            assert 2 in source[-2:]
    folder = tmp_path / "t5"
    folder.mkdir()
    shape = replace(SHAPES["t5-small"], tokenizer_json=False)
    assert write_many_files(folder, shape)["vocab_size"] == 32_128
    assert T5Tokenizer(folder, "t5").encode("Hello.", "de")[-1] == 1


def test_translating_lines(nllb: Translator) -> None:
    """Empty lines stay, order and line breaks too; unknown letters are named."""
    lines = [SENTENCES[3], "", "  ", SENTENCES[5] + "\n\n" + SENTENCES[6], "12.30", "漢字"]
    options = TranslateOptions(target="de", source_language="en")
    done = list(nllb.translate_lines(lines, options))
    assert [translation.source for translation in done] == lines
    assert [done[i].text for i in (1, 2, 4, 5)] == ["", "  ", "12.30", "漢字"]
    assert done[3].text.count("\n") == 2
    assert "not in the model's vocabulary" in done[5].warnings[0]


def test_streaming_adds_up(nllb: Translator) -> None:
    options = TranslateOptions(target="fra_Latn", source_language="eng_Latn")
    for sentence in SENTENCES[:6]:
        *deltas, done = nllb.stream(sentence, options)
        assert isinstance(done, TranslationDone)
        said = "".join(event.text for event in deltas if isinstance(event, TranslationDelta))
        assert said == done.translation.text


def test_live_translation_keeps_the_language(nllb: Translator) -> None:
    """What is said again and again as a sentence grows begins with the language each time."""
    options = TranslateOptions(target="de", source_language="en")
    german = nllb.tokenizer.forced_prefix("deu_Latn")
    _, tokens, _ = nllb.retranslate("We want some bread", options)
    assert tokens[:1] == german
    _, again, _ = nllb.retranslate("We want some bread today", options, tokens[:2], tokens)
    assert again[:2] == tokens[:2]
    live = LiveTranslator(nllb, options)
    assert live.add("We want some bread. They ") == ["We want some bread."]
    live.partial("see the bread")
    assert live.partial("see the bread") is not None, "two in a row agree"


def test_a_text_may_choose_its_target(nllb: Translator) -> None:
    options = TranslateOptions(source_language="en")
    chosen = nllb.translate(">>fra_Latn<< We want some bread.", options)
    assert chosen.sentences[0].tokens[:1] in (nllb.tokenizer.forced_prefix("fra_Latn"), ())


def test_languages_that_a_model_lacks(nllb: Translator) -> None:
    with pytest.raises(UnsupportedTask, match=r"into 'Klingon'; it has ace_Arab, .*zul_Latn"):
        nllb.translate("x", TranslateOptions(target="Klingon", source_language="en"))
    with pytest.raises(UnsupportedTask, match=r"from 'xx'; it has ace_Arab, .*zul_Latn"):
        nllb.translate("x", TranslateOptions(target="de", source_language="xx"))
    with pytest.raises(OptionError, match="needs the option source_language; it has ace_Arab,"):
        nllb.translate("x", TranslateOptions(target="de"))
    with pytest.raises(OptionError, match="needs a target language; it has"):
        nllb.translate("Hello.", TranslateOptions(source_language="en"))


def test_the_source_language_may_be_set_in_the_constructor(nllb: Translator) -> None:
    translator = Translator(nllb.model.folder, engine=nllb.engine, source="en")
    options = TranslateOptions(target="de")
    explicit = replace(options, source_language="en")
    assert translator.translate(SENTENCES[:3], options) == nllb.translate(SENTENCES[:3], explicit)


def test_models_for_one_target(many_folder: Folders, exact_engine: Engine) -> None:
    shapes = (("mbart-large-50-many-to-one-mmt", None, "en"), ("mbart-large-en-ro", "en", "ro"))
    for shape, source, target in shapes:
        translator = Translator(many_folder(shape, seed=1), engine=exact_engine)
        assert translator.source_language == source
        assert (translator.target_language, translator.target_codes) == (target, ())
        with pytest.raises(UnsupportedTask, match=f"translates into {target} only, not into 'de'"):
            translator.translate("Hello.", TranslateOptions(target="de", source_language="en"))


def test_what_a_t5_was_trained_for(
    many_folder: Folders, exact_engine: Engine, tmp_path: Path
) -> None:
    folder = many_folder("t5-small", seed=1)
    translator = Translator(folder, engine=exact_engine)
    assert translator.source_codes == ("en",)
    assert translator.target_codes == ("de", "fr", "ro")
    with pytest.raises(UnsupportedTask, match="into 'es'; it has de, fr, ro"):
        translator.translate("Hello.", TranslateOptions(target="es"))
    with pytest.raises(UnsupportedTask, match="from 'de'; it has en"):
        translator.translate("Hallo.", TranslateOptions(target="fr", source_language="de"))
    other = shutil.copytree(folder, tmp_path / "tuned")
    config = json.loads((other / "config.json").read_text())
    del config["task_specific_params"], config["_name_or_path"]
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedTask, match="tuned is a T5 model whose .* no translation task"):
        T5Tokenizer(other, "tuned")
    assert T5Tokenizer(other, "flan-t5-xxl").target_codes == ("de", "fr", "ro")


def test_languages_added_by_fine_tuning(many_folder: Folders, tmp_path: Path) -> None:
    """As tokenizer_config.json and added_tokens.json name them, with their ids."""
    folder = shutil.copytree(many_folder("nllb-200-distilled-600M", seed=1), tmp_path / "tuned")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {"605": {"content": "tyv_Cyrl", "special": True}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = MultilingualTokenizer(folder, "m2m_100")
    assert tokenizer.forced_prefix("tyv_Cyrl") == (605,)
    assert len(tokenizer.target_codes) == 203
    config["legacy_behaviour"] = True
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (english,) = tokenizer.forced_prefix("eng_Latn")
    legacy = MultilingualTokenizer(folder, "m2m_100").encode("We want", None, "eng_Latn")
    assert legacy[-2:] == [2, english]


@pytest.mark.parametrize("damage", ["sentencepiece.bpe.model", "vocab.json"])
def test_incomplete_and_damaged_folders(many_folder: Folders, tmp_path: Path, damage: str) -> None:
    folder = shutil.copytree(many_folder("m2m100_418M", seed=1), tmp_path / "copy")
    (folder / damage).write_bytes(b"not what it should be")
    with pytest.raises(CheckpointError, match=damage):
        MultilingualTokenizer(folder, "m2m_100")
    (folder / "sentencepiece.bpe.model").unlink()
    with pytest.raises(CheckpointError, match="has no sentencepiece.bpe.model"):
        MultilingualTokenizer(folder, "m2m_100")


def test_languages_of_a_model_folder(many_folder: Folders, demo_folder: Path) -> None:
    assert model_languages(demo_folder, "demo-en-de") is None
    known = model_languages(many_folder("mbart-large-50-many-to-one-mmt", seed=1), "many-to-one")
    assert known is not None
    assert len(known[0]) == 52
    assert known[1] == ("en",)
    assert model_languages(many_folder("t5-small", seed=1), "t5") == (("en",), ("de", "fr", "ro"))
