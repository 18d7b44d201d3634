"""What a caller can choose about the decoding of a window."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipelines.asr import Segment, Transcriber
from pipelines.asr.window import WindowDecoder
from pipelines.engine import Engine
from pipelines.errors import OptionError
from pipelines.hub import assets_folder, bundled_folder

QUESTION = assets_folder() / "samples" / "question.flac"
FILES = [f"a.{name}" for name in "txt srt vtt tsv json lrc csv ass ttml".split()]


@pytest.fixture(scope="module")
def demo(engine: Engine) -> Transcriber:
    return Transcriber(bundled_folder("demo"), engine=engine)


def segments(transcriber: Transcriber, **choices: Any) -> list[Segment]:
    return list(transcriber.transcribe(QUESTION, language="en", temperature=0.0, **choices))


def said(transcriber: Transcriber, **choices: Any) -> str:
    return "".join(segment.text for segment in segments(transcriber, **choices)).strip()


@pytest.mark.slow
def test_alternatives_are_those_of_the_window(demo: Transcriber) -> None:
    found = segments(demo, beam_size=4, n_best=3)
    by_window = {segment.seek: segment for segment in found}
    for segment in by_window.values():
        assert len(segment.alternatives) == 3
        scores = [alternative.score for alternative in segment.alternatives]
        assert scores == sorted(scores, reverse=True)
        texts = [s.text.strip() for s in found if s.seek == segment.seek]
        assert segment.alternatives[0].text.split() == " ".join(texts).split()
    assert not any(segment.alternatives for segment in segments(demo, beam_size=4))
    assert said(demo, beam_size=4, n_best=3) == said(demo, beam_size=4)


@pytest.mark.slow
def test_phrases(demo: Transcriber) -> None:
    plain = said(demo)
    assert "Boston" in plain
    assert "Boston" not in said(demo, suppress_phrases=("Boston",))
    forced = said(demo, forced_phrases=("my friend",))
    assert "my friend" in forced
    assert "Boston" in forced
    assert "my friend" not in plain


@pytest.mark.slow
def test_repetition(demo: Transcriber) -> None:
    for choices in ({"repetition_penalty": 5.0}, {"no_repeat_ngram_size": 1}):
        for segment in segments(demo, **choices, without_timestamps=True):
            assert len(set(segment.tokens)) == len(segment.tokens)
    plain = segments(demo, repetition_penalty=1.0, no_repeat_ngram_size=0)
    assert plain == segments(demo)


@pytest.mark.slow
def test_ones_own_filter(demo: Transcriber) -> None:
    banned = demo.tokenizer.encode(" Boston")[0]

    class Own:
        def bind(
            self, prompt: Sequence[int], vocab_size: int, device: object
        ) -> Callable[[Tensor, Sequence[int]], None]:
            def edit(logits: Tensor, generated: Sequence[int]) -> None:
                logits[banned] = -torch.inf

            return edit

    assert all(banned not in s.tokens for s in segments(demo, logit_filters=(Own(),)))
    assert any(banned in s.tokens for s in segments(demo))


def test_values_out_of_range_are_refused(demo: Transcriber) -> None:
    for wrong, message in (
        ({"n_best": 2}, "needs a beam_size of 2"),
        ({"n_best": 3, "temperature": 0.5, "best_of": 2}, "needs a best_of of 3"),
        ({"repetition_penalty": -1.0}, "repetition_penalty must be above 0"),
        ({"forced_phrases": ("(laughs)",)}, "symbols that suppress_tokens forbids"),
        ({"forced_phrases": ("",)}, "at least one character"),
    ):
        with pytest.raises(OptionError, match=message):
            demo.transcribe(QUESTION, **wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_log_probabilities_belong_to_their_tokens(
    demo: Transcriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[float] = []  # of the tokens of text
    original = WindowDecoder.decode

    def recorded(self: WindowDecoder, *arguments: Any) -> Any:
        result = yield from original(self, *arguments)
        pairs = zip(result.tokens, result.logprobs, strict=True)
        eot = self._tokenizer.special.eot
        decoded.extend(logprob for token, logprob in pairs if token < eot)
        return result

    monkeypatch.setattr(WindowDecoder, "decode", recorded)
    found = segments(demo, token_logprobs=True)
    assert found
    for segment in found:
        text = b"".join(bytes(token.utf8) for token in segment.token_logprobs)
        assert text.decode() == segment.text
    given = [token.logprob for segment in found for token in segment.token_logprobs]
    assert given == decoded
    assert max(given) <= 0
    assert not any(segment.token_logprobs for segment in segments(demo))


def test_a_transcript_is_written_in_the_format_of_its_file(
    demo: Transcriber, tmp_path: Path
) -> None:
    result = demo.transcribe(QUESTION)
    first = next(result)  # what was read is written, too
    written = {path: result.write(tmp_path / path).read_text("utf-8") for path in FILES}
    assert first.text.strip() in written["a.txt"]
    assert written["a.srt"].startswith("1\n00:00:0")
    assert written["a.vtt"].startswith("WEBVTT\n\n00:0")
    assert json.loads(written["a.json"])["text"].strip() == result.text
    assert all(first.text.split()[0] in text for text in written.values())
    assert result.write(tmp_path / "a", "srt").read_text("utf-8") == result.render("srt")
    for name in ("a.doc", "a"):
        with pytest.raises(OptionError, match="is not one of txt, vtt, srt"):
            result.write(tmp_path / name)
