"""Families that transformers runs, or reads the tokenizer of, translate as `generate` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BartForConditionalGeneration, PegasusForConditionalGeneration

from edgeapp.cli import main
from pipelines import Translator
from pipelines.errors import ModelError
from pipelines.hub import resolve
from tests.engine.other_families import other_module
from tests.fixtures.wrapped import save_module, save_words, write_bart, write_t5_relative

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
quiet = pytest.mark.filterwarnings("ignore:.*run by transformers")

TEXTS = ["The cat sees the big tree.", "the dog runs", "one two three and not here .", "the sun"]


def _module_that_ends(folder: Path, family: str) -> Any:
    """Write a model whose random weights say several things, and end. Returns the module."""
    module = other_module(family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for parameter in module.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.6)
    pegasus = family == "pegasus"
    bias = module.final_logits_bias[0] if pegasus else module.decoder.cls.predictions.bias
    bias[module.generation_config.eos_token_id] = 4.0
    module.save_pretrained(folder)
    return module


@quiet
@pytest.mark.parametrize("family", ["bert2bert", "pegasus"])
def test_rows_equal_generate(family: str, tmp_path: Path) -> None:
    compared = 0
    module, tokenizer = _module_that_ends(tmp_path, family), save_words(tmp_path)
    assert resolve(tmp_path).task == "translation"
    with Translator(tmp_path, device="cpu", compute_type="float32") as translator:
        texts = [text.lower().replace(".", " .") for text in TEXTS]
        made = translator.translate(texts, no_repeat_ngram_size=2)
        for text, (sentence,) in zip(texts, [each.sentences for each in made], strict=True):
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            out = module.generate(
                ids, max_new_tokens=40, num_beams=1, do_sample=False, no_repeat_ngram_size=2
            )
            if not sentence.warnings:  # otherwise it was decoded again
                assert [*sentence.tokens] == out[0, 1:].tolist()
                compared += len(sentence.tokens) > 1
    assert compared >= 3


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("forced", [2, None])
def test_a_summary_ends_at_the_length_of_its_file(
    forced: int | None, beams: int, tmp_path: Path
) -> None:
    """A source is not cut into parts because its summary is as long as its file allows."""
    _, tokenizer = write_bart(tmp_path)
    path = tmp_path / "generation_config.json"
    rules = {"max_length": 12, "forced_eos_token_id": forced, "no_repeat_ngram_size": 3}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | rules), "utf-8")
    weights = load_file(tmp_path / "model.safetensors")
    weights["final_logits_bias"][0, 2] = -8.0  # so that it does not end by itself
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    module = BartForConditionalGeneration.from_pretrained(tmp_path).eval()
    for text in ("The cat sees the big tree. the dog runs. one two three. the sun", "THE DOG RUNS"):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        expected = module.generate(ids, do_sample=False, num_beams=beams)[0, 1:].tolist()
        with Translator(tmp_path, device="cpu", compute_type="float32") as translator:
            (sentence,) = translator.translate(text, beam_size=beams).sentences
        assert len(expected) == 11
        assert (expected[-1] == 2) == (forced == 2)
        assert [*sentence.tokens] == expected
        assert sentence.warnings == ()


def test_a_pegasus_that_translates_is_given_sentences(tmp_path: Path) -> None:
    """Its name, or its tokenizer, says into which language: links stay, as do all sentences."""
    text = "the dog runs. the cat sees https://a.org/1914 there. the sun"
    folder = tmp_path / "translate-eus-cat"
    _module_that_ends(folder, "pegasus")
    save_words(folder)
    summaries = folder.rename(tmp_path / "summaries")
    with Translator(summaries, device="cpu") as translator:
        assert len(translator.translate(text).sentences) == 1
    summaries.rename(folder)
    with Translator(folder, device="cpu") as translator:
        assert translator.target_language == "cat"
        made = translator.translate(text)
    assert len(made.sentences) > 2
    assert "https://a.org/1914" in made.text


@pytest.mark.parametrize("start", ["missing", None])
def test_a_pegasus_without_a_start_token_begins_with_padding(
    start: str | None, tmp_path: Path
) -> None:
    _module_that_ends(tmp_path, "pegasus")
    tokenizer = save_words(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    path = tmp_path / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"pad_token_id": 0}
    del config["decoder_start_token_id"]
    path.write_text(json.dumps(config), "utf-8")
    module = PegasusForConditionalGeneration.from_pretrained(tmp_path).eval()
    if start is None:
        path.write_text(json.dumps(config | {"decoder_start_token_id": None}), "utf-8")
    module.final_logits_bias[0, 2] = 1.0
    weights = load_file(tmp_path / "model.safetensors")
    weights["final_logits_bias"] = module.final_logits_bias
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    ids = tokenizer(TEXTS[1], return_tensors="pt")["input_ids"]
    expected = module.generate(
        ids, max_new_tokens=40, num_beams=1, do_sample=False, no_repeat_ngram_size=2,
        decoder_start_token_id=module.config.decoder_start_token_id,
    )[0, 1:].tolist()  # fmt: skip
    with Translator(tmp_path, device="cpu", compute_type="float32") as translator:
        (sentence,) = translator.translate(TEXTS[1], no_repeat_ngram_size=2).sentences
    assert sentence.warnings == ()
    assert len(expected) > 1
    assert [*sentence.tokens] == expected


def test_a_pegasus_may_have_any_tokenizer_that_transformers_reads(tmp_path: Path) -> None:
    _module_that_ends(tmp_path, "pegasus")
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "the", "dog", "runs"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert resolve(tmp_path).task == "translation"
    with Translator(tmp_path, device="cpu") as translator:
        assert translator.tokenizer.encode("the dog runs") == [1, 5, 6, 7, 2]


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


def test_a_bart_is_given_whole_lines_and_keeps_the_rules_of_its_file(tmp_path: Path) -> None:
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
