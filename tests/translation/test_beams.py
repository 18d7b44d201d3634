"""Beam search equals that of transformers' `generate`."""

from __future__ import annotations

import pytest
import torch
from transformers.generation.utils import GenerationMixin

from pipelines.translation import TranslateOptions, Translator
from pipelines.translation.decode import SentenceRequest
from tests.engine.oracle import encoded, reference

pytestmark = pytest.mark.oracle

SENTENCES = [
    "Where is the station?",
    "I would like a cup of coffee, please.",
    "The children played in the garden until it began to rain.",
    "We will meet at 9:30 in front of the old house, and then take the train to Berlin.",
]


def test_translations_with_beams_equal_generate(demo: Translator) -> None:
    oracle = reference(demo.model.folder)
    defaults = demo._decoder.defaults
    options = TranslateOptions(beam_size=4)
    for text, ours in zip(SENTENCES, demo.translate(SENTENCES, options), strict=True):
        (job,) = demo._preprocessor(options, {}).requests(text)
        assert isinstance(job, SentenceRequest)
        with torch.inference_mode():
            theirs = GenerationMixin.generate(
                oracle,
                encoder_outputs=encoded(oracle, torch.tensor(job.source_ids)),
                decoder_input_ids=torch.tensor([[defaults.decoder_start_id]]),
                num_beams=4,
                max_new_tokens=60,
                bad_words_ids=[[defaults.decoder_start_id]],
                do_sample=False,
            )[0, 1:].tolist()
        (sentence,) = ours.sentences
        assert list(sentence.tokens) == theirs
