"""The text that a recording is said to begin with, and prompts beside hotwords."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.asr import LiveOptions, SegmentDone, TextDelta, TranscribeOptions, Transcriber
from pipelines.errors import OptionError
from tests.asr.scripted import Turn, scripted
from tests.asr.test_events import tokens_of

SOUND = np.random.default_rng(0).normal(0, 0.1, 31 * 16_000).astype(np.float32)


def test_the_result_begins_with_the_prefix(real: Transcriber) -> None:
    rest = Turn(tokens_of(real, " my fellow Americans.", 30.0))
    transcriber, script = scripted(real, [rest, Turn(tokens_of(real, 0.0, " Ask not.", 1.0))])
    events = list(transcriber.stream(SOUND, language="en", prefix="And so", word_timestamps=False))
    segments = [event.segment for event in events if isinstance(event, SegmentDone)]
    assert [segment.text for segment in segments] == [" And so my fellow Americans.", " Ask not."]
    assert (segments[0].start, segments[0].end) == (0.0, 30.0)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == " And so my fellow Americans. Ask not."
    begin = tokens_of(real, 0.0, " And so")
    assert script.calls[0].prompt[-len(begin) :] == begin
    assert segments[0].tokens[: len(begin)] == begin


def test_each_token_of_a_prefix_has_a_probability(real: Transcriber) -> None:
    transcriber, _ = scripted(real, [Turn(tokens_of(real, " my", 30.0))])
    (segment, *_) = transcriber.transcribe(
        SOUND, language="en", prefix="And so", token_logprobs=True
    )
    text = b"".join(bytes(each.utf8) for each in segment.token_logprobs)
    assert text.decode() == segment.text == " And so my"
    assert segment.token_logprobs[0].logprob == 0.0


def test_hotwords_leave_a_carried_prompt_whole(real: Transcriber) -> None:
    prompt = "word after word, " * 40
    turns = [Turn(tokens_of(real, 0.0, " One two three." * 20, 30.0))]
    transcriber, script = scripted(real, turns)
    list(
        transcriber.transcribe(
            np.tile(SOUND, 2),
            language="en",
            initial_prompt=prompt,
            carry_initial_prompt=True,
            hotwords="Köln, Mosel, Trier, Worms",
        )
    )
    carried = list(real.tokenizer.encode(" " + prompt.strip()))
    hotwords = list(real.tokenizer.encode(" Köln, Mosel, Trier, Worms"))
    for call in script.calls:
        given = list(call.prompt)
        assert given[1 : 1 + len(hotwords) + len(carried)] == [*hotwords, *carried]


@pytest.mark.parametrize(
    "choices",
    [
        {"temperature": 0.4},
        {"beam_size": 5},
        {"prefix": "And so"},
        {"beam_size": 2, "n_best": 2},
        {"forced_phrases": ("And so",)},
    ],
)
def test_live_speech_refuses_what_it_does_not_do(choices: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"^{next(iter(choices))} .*decoded greedily"):
        LiveOptions(TranscribeOptions(**choices))
