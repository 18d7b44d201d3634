"""Engine.load reads every file format of repositories, with tied embeddings or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.stored import SOURCE, TARGET, Stored, frames, logits, refused

FORMS = ["sharded", "bin", "legacy bin", "sharded bin"]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_model(
    form: str, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    expected = logits(load, stored_marian.write(tmp_path / "plain"))
    found = logits(load, stored_marian.write(tmp_path / form, form))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_whisper_model(
    form: str, stored_whisper: Stored, tmp_path: Path, load: Any
) -> None:
    expected = logits(load, stored_whisper.write(tmp_path / "plain"), frames())
    assert torch.equal(
        logits(load, stored_whisper.write(tmp_path / form, form), frames()), expected
    )


def test_safetensors_are_preferred_to_a_bin(
    stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    folder = stored_marian.write(tmp_path)
    expected = logits(load, folder)
    for name, tensor in stored_marian.state.items():
        stored_marian.state[name] = -tensor
    stored_marian.write(tmp_path, "bin")
    assert (folder / "pytorch_model.bin").exists()
    assert torch.equal(logits(load, folder), expected)


@pytest.mark.parametrize("form", ["safetensors", "bin", "legacy bin"])
def test_fp16_weights_are_widened_exactly(
    form: str, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    half = {name: tensor.half() for name, tensor in stored_marian.state.items()}
    stored_marian.state = {name: tensor.float() for name, tensor in half.items()}
    expected = logits(load, stored_marian.write(tmp_path / "wide"))
    stored_marian.state = half
    assert torch.equal(logits(load, stored_marian.write(tmp_path / "half", form)), expected)


def test_bf16_weights_are_widened_exactly(
    stored_whisper: Stored, tmp_path: Path, load: Any
) -> None:
    half = {name: tensor.bfloat16() for name, tensor in stored_whisper.state.items()}
    stored_whisper.state = {name: tensor.float() for name, tensor in half.items()}
    expected = logits(load, stored_whisper.write(tmp_path / "wide"), frames())
    stored_whisper.state = half
    assert torch.equal(logits(load, stored_whisper.write(tmp_path / "half"), frames()), expected)


def test_names_without_the_prefix(stored_whisper: Stored, tmp_path: Path, load: Any) -> None:
    expected = logits(load, stored_whisper.write(tmp_path / "with"), frames())
    stored_whisper.state = {
        name.removeprefix("model."): t for name, t in stored_whisper.state.items()
    }
    assert torch.equal(logits(load, stored_whisper.write(tmp_path / "without"), frames()), expected)


# Embeddings, tied and not


def tables(stored_marian: Stored) -> tuple[Tensor, Tensor]:
    shared = stored_marian.state["model.shared.weight"]
    return shared, torch.randn(shared.shape, generator=torch.Generator().manual_seed(1)) / 4


def test_a_tied_table_under_any_of_its_names(
    stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    expected = logits(load, stored_marian.write(tmp_path / "shared"))
    table = stored_marian.state.pop("model.shared.weight")
    names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    stored_marian.state |= {name: table.clone() for name in names}
    assert torch.equal(logits(load, stored_marian.write(tmp_path / "sides")), expected)
    stored_marian.state |= dict.fromkeys((*names, "lm_head.weight", "model.shared.weight"), table)
    assert torch.equal(logits(load, stored_marian.write(tmp_path / "all", "bin")), expected)


@pytest.mark.parametrize("head", ["absent", "present"])
def test_separate_tables_with_a_tied_head(
    head: str, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    from transformers import MarianMTModel

    source, target = tables(stored_marian)
    del stored_marian.state["model.shared.weight"]
    stored_marian.config["share_encoder_decoder_embeddings"] = False
    stored_marian.state["model.encoder.embed_tokens.weight"] = source
    stored_marian.state["model.decoder.embed_tokens.weight"] = target
    if head == "present":
        stored_marian.state["lm_head.weight"] = target.clone()
    folder = stored_marian.write(tmp_path)
    assert load(folder).architecture.separate_embeddings
    assert_as_transformers(MarianMTModel, folder, logits(load, folder))


def test_a_head_of_its_own(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    from transformers import MarianMTModel

    _, head = tables(stored_marian)
    stored_marian.config["tie_word_embeddings"] = False
    assert "the weights lack" in refused(load, stored_marian.write(tmp_path / "absent"))
    table = stored_marian.state.pop("model.shared.weight")
    stored_marian.state["model.encoder.embed_tokens.weight"] = table
    stored_marian.state["model.decoder.embed_tokens.weight"] = table.clone()
    stored_marian.state["model.shared.weight"] = table.clone()
    stored_marian.state["lm_head.weight"] = head
    folder = stored_marian.write(tmp_path / "present")
    assert_as_transformers(MarianMTModel, folder, logits(load, folder))


@pytest.mark.parametrize("head", ["tied", "absent", "own"])
def test_lm_head_of_whisper(head: str, stored_whisper: Stored, tmp_path: Path, load: Any) -> None:
    table = stored_whisper.state["model.decoder.embed_tokens.weight"]
    expected = logits(load, stored_whisper.write(tmp_path / "plain"), frames())
    if head == "tied":
        stored_whisper.state["proj_out.weight"] = table.clone()
    elif head == "own":
        stored_whisper.config["tie_word_embeddings"] = False
        stored_whisper.state["proj_out.weight"] = table * 2
        expected = expected * 2
    found = logits(load, stored_whisper.write(tmp_path / head), frames())
    assert torch.allclose(found, expected, atol=1e-5)


def test_no_logits_bias_counts_as_zero(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    bias = stored_marian.state["final_logits_bias"]
    expected = logits(load, stored_marian.write(tmp_path / "with")) - bias
    del stored_marian.state["final_logits_bias"]
    found = logits(load, stored_marian.write(tmp_path / "without"))
    assert torch.allclose(found, expected, atol=1e-5)


def test_missing_positions_are_computed(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    from transformers import MarianMTModel

    assert not [name for name in stored_marian.state if "embed_positions" in name]
    folder = stored_marian.write(tmp_path)
    assert_as_transformers(MarianMTModel, folder, logits(load, folder))


def assert_as_transformers(kind: Any, folder: Path, ours: Tensor) -> None:
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        theirs = model(
            input_ids=torch.tensor([SOURCE]), decoder_input_ids=torch.tensor([TARGET])
        ).logits[0]
    assert torch.allclose(ours, theirs, atol=1e-4), (ours - theirs).abs().max()
