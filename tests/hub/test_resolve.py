"""Which folder a name means, in which order, and what is said when it means none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipelines.errors import CheckpointError, ModelError, ModelNotFound, OptionError
from pipelines.hub import ResolvedModel, assets_folder, bundled_folder, resolve
from tests.hub.conftest import Cached, opus_files, whisper_files


def one_line(error: pytest.ExceptionInfo[ModelError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


# What ships


def test_bundled_models_in_a_wheel(bundled: Path) -> None:
    assert assets_folder() == bundled.parent
    assert resolve("demo") == ResolvedModel("demo", "asr", bundled / "demo", "bundled")
    assert resolve("demo-en-de").task == "translation"
    assert bundled_folder("demo-en-de") == bundled / "demo-en-de"


def test_bundled_models_in_a_checkout(bundled: Path, tmp_path: Path) -> None:
    (tmp_path / "site/pipelines/assets").rename(tmp_path / "site/assets")
    assert bundled_folder("demo") == tmp_path / "site/assets/models/demo"


def test_this_checkout_has_its_translator() -> None:
    model = resolve("demo-en-de")
    assert (model.task, model.source) == ("translation", "bundled")
    assert (model.folder / "model.safetensors").stat().st_size < 20e6
    assert (model.folder / "README.md").is_file()


def test_an_incomplete_installation_says_so(bundled: Path, tmp_path: Path) -> None:
    (bundled / "demo/config.json").unlink()
    with pytest.raises(ModelNotFound, match="incomplete.*demo is missing; install it again"):
        resolve("demo")
    (tmp_path / "site/pipelines/assets").rename(tmp_path / "gone")
    with pytest.raises(ModelNotFound, match="incomplete.*install it again"):
        resolve("demo-en-de")
    with pytest.raises(ModelNotFound, match="the bundled models are demo, demo-en-de"):
        bundled_folder("tiny")


# The cache


def test_short_names_and_hub_ids_mean_the_same_download(cached: Cached) -> None:
    folder = cached("openai/whisper-tiny", whisper_files())
    for name in ("tiny", "whisper-tiny", "openai/whisper-tiny"):
        assert resolve(name) == ResolvedModel("tiny", "asr", folder, "cache")


def test_a_translator_with_nothing_but_a_bin(cached: Cached) -> None:
    folder = cached("Helsinki-NLP/opus-mt-en-de", opus_files())
    expected = ResolvedModel("opus-mt-en-de", "translation", folder, "cache")
    assert resolve("opus-mt-en-de") == resolve("Helsinki-NLP/opus-mt-en-de") == expected


def test_a_hub_id_without_a_short_name(cached: Cached) -> None:
    folder = cached("someone/tuned-whisper", whisper_files())
    assert resolve("someone/tuned-whisper") == ResolvedModel(
        "someone/tuned-whisper", "asr", folder, "cache"
    )


def test_of_two_revisions_the_branchs_counts(cached: Cached) -> None:
    current = cached("openai/whisper-tiny", whisper_files(), "a" * 40)
    older = cached("openai/whisper-tiny", whisper_files(), "b" * 40, main=False)
    os.utime(older, (2e9, 2e9))
    assert resolve("tiny").folder == current
    # An update that did not finish does not hide the complete one.
    (current / "model.safetensors").unlink()
    (current / "pytorch_model.bin").unlink()
    assert resolve("tiny").folder == older


@pytest.mark.parametrize("name", ["tiny", "openai/whisper-tiny", "opus-mt-en-fr", "some/one"])
def test_what_is_not_here_is_said_with_where_and_what_to_download(
    name: str, hub_cache: Path
) -> None:
    with pytest.raises(ModelNotFound) as error:
        resolve(name)
    message = one_line(error)
    repository = {"tiny": "openai/whisper-tiny", "opus-mt-en-fr": f"Helsinki-NLP/{name}"}
    assert f"looked for {repository.get(name, name)} in " in message
    assert str(hub_cache) in message
    assert error.value.download == name


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (["model.safetensors", "pytorch_model.bin"], "it lacks weights"),
        (["tokenizer.json", "vocab.json"], "tokenizer.json and vocab.json"),
        (["tokenizer.json", "merges.txt"], "tokenizer.json and merges.txt"),
        (["config.json"], "config.json"),
    ],
)
def test_half_a_download_is_no_model(cached: Cached, missing: list[str], said: str) -> None:
    folder = cached("openai/whisper-tiny", whisper_files())
    for name in missing:
        (folder / name).unlink()
    with pytest.raises(ModelNotFound) as error:
        resolve("tiny")
    message = one_line(error)
    assert "only partly" in message
    assert said in message
    assert message.endswith("download the rest")
    assert error.value.download == "tiny"


def test_a_link_to_a_blob_that_never_came_is_no_file(cached: Cached) -> None:
    files = whisper_files()
    del files["pytorch_model.bin"]
    folder = cached("openai/whisper-tiny", files)
    blob = (folder / "model.safetensors").resolve()
    blob.rename(blob.with_name(f"{blob.name}.incomplete"))
    with pytest.raises(ModelNotFound, match="it lacks weights"):
        resolve("tiny")


def test_either_form_of_whispers_tokenizer_will_do(cached: Cached) -> None:
    folder = cached("openai/whisper-tiny", whisper_files())
    (folder / "tokenizer.json").unlink()
    assert resolve("tiny").folder == folder


def test_separate_vocabularies_need_both(cached: Cached) -> None:
    separate = {**opus_files(), "tokenizer_config.json": b'{"separate_vocabs": true}'}
    folder = cached("Helsinki-NLP/opus-mt-en-de", separate)
    with pytest.raises(ModelNotFound, match="it lacks target_vocab.json"):
        resolve("opus-mt-en-de")
    (folder / "target_vocab.json").write_text("{}")
    assert resolve("opus-mt-en-de").folder == folder


def test_shards_count_when_all_are_there(cached: Cached) -> None:
    files = whisper_files()
    del files["model.safetensors"], files["pytorch_model.bin"]
    index = b'{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}'
    files["model.safetensors.index.json"] = index
    files["model-1-of-2.safetensors"] = b"first"
    folder = cached("openai/whisper-large-v3", files)
    with pytest.raises(ModelNotFound, match="it lacks model-2-of-2.safetensors"):
        resolve("large-v3")
    (folder / "model-2-of-2.safetensors").write_bytes(b"second")
    assert resolve("large-v3").folder == folder
    for nonsense in ("[]", "not JSON", '{"weight_map": ["a"]}', "{}"):
        (folder / "model.safetensors.index.json").unlink()
        (folder / "model.safetensors.index.json").write_text(nonsense)
        with pytest.raises(ModelNotFound, match="a readable model.safetensors.index.json"):
            resolve("large-v3")


def test_another_kind_of_model_is_not_offered_again(cached: Cached) -> None:
    cached("openai/gpt2", {**opus_files(), "config.json": b'{"model_type": "gpt2"}'})
    with pytest.raises(CheckpointError) as error:
        resolve("openai/gpt2")
    message = one_line(error)
    assert "it has the model_type 'gpt2'; what runs here: whisper, marian, m2m_100" in message
    assert "pull" not in message


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("BartForSequenceClassification", "which generates no text"),
        ("BartForCausalLM", "a decoder alone, which reads no source"),
    ],
)
def test_a_model_that_generates_no_text_is_refused(cached: Cached, kind: str, reason: str) -> None:
    config = json.dumps({"model_type": "bart", "architectures": [kind]}).encode()
    cached("facebook/bart-large-mnli", {**opus_files(), "config.json": config})
    with pytest.raises(CheckpointError, match=f"it is a '{kind}', {reason}"):
        resolve("facebook/bart-large-mnli")


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [("speecht5", "SpeechT5ForTextToSpeech"), ("blip", "BlipForImageTextRetrieval")],
)
def test_another_class_of_a_family_that_transformers_runs_is_refused(
    cached: Cached, model_type: str, kind: str
) -> None:
    config = json.dumps({"model_type": model_type, "architectures": [kind]}).encode()
    cached("some/model", {**opus_files(), "config.json": config})
    with pytest.raises(CheckpointError, match=f"it is a '{kind}'; of its family runs here: "):
        resolve("some/model")


@pytest.mark.parametrize("names", [None, []])
def test_a_config_without_the_class_that_transformers_needs_says_so(
    cached: Cached, names: list[str] | None
) -> None:
    config = json.dumps({"model_type": "umt5", "architectures": names}).encode()
    cached("some/model", {**opus_files(), "config.json": config})
    said = "names no class in `architectures`; of its family runs here: UMT5ForConditional"
    with pytest.raises(CheckpointError, match=said):
        resolve("some/model")


# Nothing at all


@pytest.mark.parametrize("name", ["", "  ", "\n"])
def test_an_empty_name(name: str) -> None:
    with pytest.raises(OptionError, match="is empty"):
        resolve(name)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("tinny", "tiny"), ("large-v4", "large-v3"), ("dem", "demo"), ("opus-en-de", "opus-mt-en-de")],
)
def test_a_near_miss_is_answered_with_a_suggestion(typed: str, meant: str) -> None:
    with pytest.raises(ModelNotFound) as error:
        resolve(typed)
    message = one_line(error)
    assert f"no model is called {typed!r}" in message
    assert "did you mean" in message
    assert meant in message


@pytest.mark.parametrize(
    "name", ["quarterly report", "x" * 5000, "a/b/c/d", "tiny\0", "C:\\models"]
)
def test_what_is_near_nothing_is_told_where_to_look(name: str) -> None:
    with pytest.raises(ModelNotFound) as error:
        resolve(name)
    assert "did you mean" in one_line(error) or "on this machine are demo," in one_line(error)


@pytest.mark.parametrize(
    "name",
    ["openai/../../../etc", "a/..", "..", "../..", "models--a/b", "opus-mt-../../x", "a/.git"],
)
def test_no_name_leads_out_of_the_cache(
    name: str, cached: Cached, hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model beside the cache is found by its own path only."""
    cached("openai/whisper-tiny", whisper_files())
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with pytest.raises(ModelError):
        resolve(name)
