"""Families that transformers runs, or reads the tokenizer of, translate as `generate` does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import BartForConditionalGeneration

from edgeapp.cli import main
from pipelines import Translator
from pipelines.errors import ModelError
from pipelines.hub import resolve
from tests.fixtures.wrapped import save_module, save_words, write_bart, write_t5_relative

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
quiet = pytest.mark.filterwarnings("ignore:.*run by transformers")

TEXTS = ["The cat sees the big tree.", "the dog runs", "one two three and not here .", "the sun"]


@quiet
@pytest.mark.parametrize("family", ["bert2bert", "pegasus"])
def test_rows_equal_generate(family: str, tmp_path: Path) -> None:
    module, tokenizer = save_module(tmp_path, family), save_words(tmp_path)
    assert resolve(tmp_path).task == "translation"
    with Translator(tmp_path, device="cpu", compute_type="float32") as translator:
        texts = [text.lower().replace(".", " .") for text in TEXTS]
        for text, made in zip(texts, translator.translate(texts), strict=True):
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            start = translator.model.architecture.start_id
            expected = module.generate(
                ids, max_new_tokens=max(1, len(made.sentences[0].tokens)), num_beams=1,
                do_sample=False, decoder_start_token_id=start, forced_eos_token_id=None,
            )[0, 1:].tolist()  # fmt: skip
            # A loop of random weights is cut, or decoded again without repetitions.
            assert made.sentences[0].tokens or made.sentences[0].copied
            if not made.sentences[0].warnings:
                assert [*made.sentences[0].tokens] == expected


def test_a_bart_translates_as_generate_does(tmp_path: Path) -> None:
    """BART is native, with the tokenizer of transformers."""
    compared = 0
    module, tokenizer = write_bart(tmp_path)
    assert resolve(tmp_path).task == "translation"
    with Translator(tmp_path, device="cpu", compute_type="float32") as translator:
        assert translator.model.architecture.family == "bart"
        for text, made in zip(TEXTS, translator.translate(TEXTS), strict=True):
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            assert translator.tokenizer.encode(text) == ids[0].tolist()
            expected = module.generate(ids, max_new_tokens=20, num_beams=1, do_sample=False)
            if not made.sentences[0].warnings:  # otherwise it was decoded again
                assert [*made.sentences[0].tokens] == expected[0, 1:].tolist()
                compared += 1
    assert compared


def test_a_bart_is_given_whole_texts_and_keeps_the_rules_of_its_file(tmp_path: Path) -> None:
    """As a checkpoint for summaries is meant to be used: it may leave out numbers and links."""
    _, tokenizer = write_bart(tmp_path)
    path = tmp_path / "generation_config.json"
    rules = {"min_length": 12, "max_length": 30, "no_repeat_ngram_size": 3}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | rules), "utf-8")
    module = BartForConditionalGeneration.from_pretrained(tmp_path).eval()
    text = "The cat sees the big tree. the dog runs, see https://a.org/1914. one two three."
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    expected = module.generate(ids, num_beams=1, do_sample=False)[0, 1:].tolist()
    short = module.generate(tokenizer("dog", return_tensors="pt")["input_ids"], num_beams=1)
    with Translator(tmp_path, device="cpu", compute_type="float32") as translator:
        made, *others = translator.translate([text, "dog", "  ", "1914"])
    (sentence,) = made.sentences
    assert 12 <= len(expected) < 29
    assert [*sentence.tokens] == expected
    assert sentence.warnings == ()
    assert [*others[0].sentences[0].tokens] == short[0, 1:].tolist()
    assert [other.text for other in others[1:]] == ["  ", "1914"]


def test_the_command_line_takes_a_bart_without_languages(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text in, text out: the lines that Translator gives."""
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    folder = tmp_path / "summaries"
    folder.mkdir()
    write_bart(folder)
    with Translator(folder, device="cpu", compute_type="float32") as translator:
        expected = [made.text for made in translator.translate(TEXTS)]
    capfd.readouterr()
    given = [word for text in TEXTS for word in ("--text", text)]
    with pytest.raises(SystemExit) as stop:
        main(["translate", *given, "-m", str(folder), "--compute-type", "float32"])
    out, err = capfd.readouterr()
    assert stop.value.code in (0, None), err
    assert out.splitlines() == expected
    assert len(set(expected)) > 1


@quiet
@pytest.mark.parametrize("kind", ["mt5", "umt5"])
def test_a_target_is_a_token_before_the_text(kind: str, tmp_path: Path) -> None:
    module = write_t5_relative(tmp_path, kind, ("de", "fr"))
    with Translator(tmp_path, device="cpu", compute_type="float32") as translator:
        assert translator.target_codes == ("de", "fr")
        ids = translator.tokenizer.encode("The cat", "fr")
        german = translator.tokenizer.encode("The cat", "de")
        assert (ids[0], ids[1:]) == (german[0] + 1, german[1:])
        source = translator.model.encode([ids])[0]
        scores = translator.model.score(source, [0])
        expected = module(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[0]]))
        torch.testing.assert_close(scores, expected.logits[0].float(), atol=1e-4, rtol=0)


def test_a_text_without_a_task_is_given_to_mt5_as_it_is(tmp_path: Path) -> None:
    write_t5_relative(tmp_path, "mt5")
    config = tmp_path / "config.json"
    assert "task_specific_params" not in config.read_text("utf-8")
    with Translator(tmp_path, device="cpu") as translator:
        assert translator.target_codes == ()
        assert translator.tokenizer.decode(translator.tokenizer.encode("the cat")) == "the cat"


@pytest.mark.filterwarnings("always")
def test_the_command_line_runs_them_and_says_so_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    folder = tmp_path / "two-berts"
    save_module(folder, "bert2bert")
    save_words(folder)
    capfd.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["translate", "--text", "the cat", "--text", "the dog", "-m", str(folder)])
    out, err = capfd.readouterr()
    assert stop.value.code in (0, None), err
    assert len(out.splitlines()) == 2
    assert err.count("run by transformers") == 1


@quiet
def test_a_tokenizer_that_needs_a_package_names_it(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    try:
        import sacremoses  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("sacremoses is installed")
    save_module(tmp_path, "fsmt")
    for name in ("vocab-src.json", "vocab-tgt.json", "tokenizer_config.json"):
        (tmp_path / name).write_text('{"langs": ["en", "de"]}' if "config" in name else "{}")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(ModelError, match="sacremoses"):
        Translator(tmp_path, device="cpu")
