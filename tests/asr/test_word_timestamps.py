"""Word times, against openai-whisper's on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from whisper import timing
from whisper.tokenizer import get_tokenizer

from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.word_timestamps import dynamic_time_warping, split_words
from tests.asr.conftest import Pair
from tests.asr.oracle import assert_same, of_openai
from tests.asr.recordings import RECORDINGS, samples_of

pytestmark = pytest.mark.oracle

TEXTS = {
    "en": ' Hello, world! (It\'s 9:30.) "Quoted" well-known, naïve… $5.',
    "de": " Grüße aus Köln: „Schön“, sagte er. Straße – 3,5 km.",
    "ja": "春の雨、🌧ですね。今日は",
    "ru": " Привет, как дела? Хорошо.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_words_are_split_as_in_openai_whisper(language: str, multilingual: Path) -> None:
    ours, theirs = WhisperTokenizer(multilingual), get_tokenizer(True, language=language)
    tokens = [*theirs.encode(TEXTS[language]), theirs.eot]
    words, ids = theirs.split_to_word_tokens(tokens)
    assert split_words(ours, tokens, language) == list(zip(words, ids, strict=True))
    # Cut inside a character, too.
    broken = tokens[: len(tokens) // 2]
    words, ids = theirs.split_to_word_tokens(broken)
    assert split_words(ours, broken, language) == list(zip(words, ids, strict=True))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (5, 40), (23, 80)])
def test_paths_are_the_same(shape: tuple[int, int]) -> None:
    generator = np.random.default_rng(0)
    for rounded in (False, True):  # with many ties
        cost = generator.standard_normal(shape).astype(np.float32)
        cost = cost.round() if rounded else cost
        rows, columns = dynamic_time_warping(cost)
        theirs = timing.dtw(torch.from_numpy(cost))
        assert rows.tolist() == theirs[0].tolist()
        assert columns.tolist() == theirs[1].tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("short", {}),
        ("german", {}),
        ("silence", {"condition_on_previous_text": False}),
        ("short", {"append_punctuations": "", "prepend_punctuations": ""}),
        ("short", {"without_timestamps": True, "language": "en"}),
        ("silence", {"hallucination_silence_threshold": 2.0, "clip_timestamps": (20.0, 45.0)}),
        # tests/asr/test_hallucinations.py compares the decisions.
        pytest.param(
            "silence", {"hallucination_silence_threshold": 2.0}, marks=pytest.mark.campaign
        ),
        pytest.param(
            "silence",
            {"hallucination_silence_threshold": 0.1, "no_speech_threshold": None},
            marks=pytest.mark.campaign,
        ),
        ("short", {"hallucination_silence_threshold": 0.5}),
    ],
)
def test_times_equal_openai_whisper(fitted: Pair, name: str, options: dict[str, Any]) -> None:
    heads = torch.zeros(fitted.theirs.dims.n_text_layer, fitted.theirs.dims.n_text_head)
    for layer, head in fitted.ours.recognizer.alignment_heads:
        heads[layer, head] = 1
    fitted.theirs.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    samples = samples_of(RECORDINGS[name])
    theirs = of_openai(fitted.theirs, samples, temperature=0.0, word_timestamps=True, **options)[
        "segments"
    ]
    ours = list(
        fitted.ours.transcribe(
            samples, temperature=0.0, word_timestamps=True, openai_rules=True, **options
        )
    )
    assert_same(ours, theirs)
    assert sum(len(segment.words) for segment in ours) > 3
    for mine, other in zip(ours, theirs, strict=True):
        assert [w.word for w in mine.words] == [w["word"] for w in other["words"]]
        for word, expected in zip(mine.words, other["words"], strict=True):
            assert (word.start, word.end) == (expected["start"], expected["end"])
            assert word.probability == pytest.approx(expected["probability"], abs=1e-4)


def test_words_are_computed_on_request_only(fitted: Pair) -> None:
    samples = samples_of(RECORDINGS["short"])
    segments = list(fitted.ours.transcribe(samples))
    assert segments
    assert not any(segment.words for segment in segments)
