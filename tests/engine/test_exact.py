"""float32 ids equal transformers' `generate`, on every layout, alone and in ragged batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from pipelines.asr.audio.decode import load_audio
from pipelines.asr.audio.features import FileFeatures
from pipelines.engine import (
    EncodedSource,
    Engine,
    GenerationOptions,
    MinNewTokens,
    NoRepeatNgram,
    Request,
    SuppressTokens,
)
from pipelines.errors import ModelNotFound
from pipelines.hub import assets_folder, bundled_folder
from tests.conftest import Exactness
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.oracle import (
    NEAR_TIE,
    assert_same_choice,
    encoded,
    greedy,
    reference,
    teacher_forced,
)

pytestmark = pytest.mark.oracle

# "!" is the true shape; the others have true keys, vocabularies and windows, and small dimensions.
WHISPERS = [
    "whisper:tiny!",
    "whisper:tiny.en",
    "whisper:large-v3",
    "whisper:turbo",
    "whisper:distil",
]
MARIANS = [
    # tests/translation/test_exact.py compares the true shape, too.
    pytest.param("marian:opus-mt-en-de!", marks=pytest.mark.campaign),
    "marian:opus-mt-en-de",
    "marian:opus-mt-en-mul",
    "marian:opus-mt-tc-big-en-fr",
    "marian:separate-vocabs",
]
SENTENCES = [
    "Where is the station?",
    "I would like a cup of coffee, please.",
    "Yes.",
    "The children played in the garden until it began to rain.",
    "We will meet at 9:30 in front of the old house, and then take the train to Berlin.",
    "Could you tell me how much this costs?",
]


class Case:
    """One model in both implementations, and all comparisons of the two."""

    def __init__(self, engine: Engine, tally: Exactness, folder: Path) -> None:
        self.engine, self.tally = engine, tally
        self.model, self.oracle = engine.load(folder), reference(folder)
        tally.models += 1

    def check(
        self,
        sources: Sequence[Tensor],
        prompts: Sequence[Sequence[tuple[int, ...]]],
        options: GenerationOptions,
        **same: Any,
    ) -> None:
        """Generate from each source with each of its prompts: all in one batch, and one by one.

        same: what `options` are called in transformers.
        """
        audio = self.model.architecture.source == "audio"
        # Texts in one pass, so that padding is at work too.
        inputs = list(sources) if audio else [source.tolist() for source in sources]
        together = self.model.encode(inputs)
        crowd = self.engine.generate(
            [Request(m, p, options) for m, ps in zip(together, prompts, strict=True) for p in ps]
        )
        for number, source in enumerate(sources):
            theirs = encoded(self.oracle, source)
            encoding = self.model.encode([inputs[number]])[0]
            for prompt in prompts[number]:
                ids = greedy(self.oracle, theirs, prompt, options.max_new_tokens, **same)
                alone = self.engine.generate([Request(encoding, prompt, options)])[0]
                self._compare(theirs, together[number], prompt, ids, crowd.pop(0).tokens)
                self._compare(theirs, encoding, prompt, ids, alone.tokens)

    def _compare(
        self,
        theirs: BaseModelOutput,
        ours: EncodedSource,
        prompt: tuple[int, ...],
        expected: Sequence[int],
        chosen: Sequence[int],
    ) -> None:
        at = assert_same_choice(self.oracle, theirs, prompt, chosen, expected)
        self.tally.prompts += 1
        self.tally.tokens += at
        if at < len(expected):
            self.tally.ties += 1
            tokens = [*prompt, *expected[:at]]
            logits = teacher_forced(self.oracle, theirs, tokens)
            torch.testing.assert_close(
                self.model.score(ours, tokens), logits, atol=NEAR_TIE, rtol=0
            )


@pytest.fixture
def case(exactness: Exactness) -> Iterator[Callable[[Path], Case]]:
    """On an engine of its own: true shapes are given back, the models of other tests kept."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield partial(Case, engine, exactness)


@pytest.mark.parametrize("spec", WHISPERS)
def test_whisper_ids_equal_generate(
    spec: str, checkpoints: Folders, case: Callable[[Path], Case]
) -> None:
    it = case(checkpoints(spec))
    start, eos = it.model.architecture.start_id, it.model.architecture.eos_ids
    prompts = [(start,), (start, start + 1, start + 3), (eos[0], 11, 12, 13, start, start + 2)]
    sources = [mel_source(it.model, seed) for seed in range(2)]
    options = GenerationOptions(
        max_new_tokens=24, eos_ids=eos, logit_filters=(SuppressTokens((50, 60)),)
    )
    it.check(sources, [prompts] * 2, options, suppress_tokens=[50, 60])


@pytest.mark.parametrize("spec", MARIANS)
def test_marian_ids_equal_generate(
    spec: str, checkpoints: Folders, case: Callable[[Path], Case]
) -> None:
    it = case(checkpoints(spec))
    pad, eos = it.model.architecture.pad_id, it.model.architecture.eos_ids
    sources = [torch.tensor(ids) for ids in token_sources(it.model, [1, 5, 17, 33, 9])]
    prompts = [[(pad,)], [(pad,)], [(pad, 7, 8)], [(pad,)], [(pad, 11)]]
    plain = GenerationOptions(
        max_new_tokens=12, eos_ids=eos, logit_filters=(SuppressTokens((pad,)),)
    )
    it.check(sources, prompts, plain, bad_words_ids=[[pad]])
    # Random Marian weights like to repeat themselves; never the same token twice compares more.
    logit_filters = (SuppressTokens((pad,)), MinNewTokens(20, eos), NoRepeatNgram(1))
    varied = GenerationOptions(max_new_tokens=30, eos_ids=eos, logit_filters=logit_filters)
    same = {"bad_words_ids": [[pad]], "min_new_tokens": 20, "no_repeat_ngram_size": 1}
    it.check(sources, prompts, varied, **same)


def test_bundled_translator_equals_generate(case: Callable[[Path], Case]) -> None:
    folder = _bundled("demo-en-de")
    it = case(folder)
    pad, eos = it.model.architecture.pad_id, it.model.architecture.eos_ids
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    vocabulary = _vocabulary(folder)
    texts = [pieces.encode(sentence, out_type=str) for sentence in SENTENCES]
    ids = [
        [*(vocabulary.get(piece, vocabulary["<unk>"]) for piece in text), *eos] for text in texts
    ]
    ids.append([token for text in ids for token in text[:-1]] + [*eos])
    options = GenerationOptions(
        max_new_tokens=40, eos_ids=eos, logit_filters=(SuppressTokens((pad,)),)
    )
    sources = [torch.tensor(source) for source in ids]
    it.check(sources, [[(pad,)]] * len(ids), options, bad_words_ids=[[pad]])


def test_bundled_recognizer_equals_generate(case: Callable[[Path], Case]) -> None:
    it = case(_bundled("demo"))
    architecture = it.model.architecture
    start, eos = architecture.start_id, architecture.eos_ids
    frames = 2 * architecture.max_source_positions
    samples = load_audio(assets_folder() / "samples" / "talk.flac")
    features = FileFeatures(samples, architecture.num_mel_bins, frames)
    sources = [features.window(seek)[0] for seek in range(0, 3 * frames, frames)]
    options = GenerationOptions(max_new_tokens=40, eos_ids=eos)
    it.check(sources, [[(start,), (start, 11, 12)]] * len(sources), options)


def _bundled(name: str) -> Path:
    try:
        return bundled_folder(name)
    except ModelNotFound as reason:
        pytest.skip(str(reason))


def _vocabulary(folder: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    return found
