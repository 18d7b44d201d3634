"""What a caller can choose about the decoding of a window."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipelines.asr import (
    Segment,
    SegmentDone,
    Transcriber,
    TranscriptEvent,
    Transcription,
    TranscriptionInfo,
)
from pipelines.asr.window import WindowDecoder
from pipelines.engine import Engine
from pipelines.errors import EngineError, NumericalError, OptionError, OutputError
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
    assert result.write(tmp_path / "a", "SRT").read_text("utf-8") == result.render("Srt")


def test_a_refused_file_costs_no_decoding(tmp_path: Path) -> None:
    result = Transcription(_events(failing=True))
    for name in ("a.doc", "a", "a.words.tsv"):
        with pytest.raises(OptionError, match="is not one of txt, vtt, srt"):
            result.write(tmp_path / name)
    with pytest.raises(OptionError, match="is not one of txt, vtt, srt"):
        result.render("doc")
    with pytest.raises(OutputError, match="there is no folder .*; create it"):
        result.write(tmp_path / "folder" / "a.srt")
    assert result.info.duration == 1.0, "no event was read"


def test_a_part_of_a_transcript_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    failing = Transcription(_events(failing=True))
    with pytest.raises(NumericalError):
        failing.write(path)
    with Transcription(_events()) as closed:
        next(closed)
    for result in (failing, closed):
        with pytest.raises(EngineError, match="failed or was closed before its end"):
            result.write(path)
        with pytest.raises(EngineError, match="failed or was closed before its end"):
            result.render("txt")
    assert path.read_text() == "old"
    with Transcription(_events()) as complete:
        list(complete)
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    complete.write(link)
    assert path.read_bytes() == b"Hello\nthere\n"
    assert set(tmp_path.iterdir()) == {path, link}


def test_segments_of_a_stream_are_kept_only_where_they_are_asked_for() -> None:
    assert Transcription(_events(duration=None)).text == "Hello there"
    stream = Transcription(_events(duration=None))
    first = weakref.ref(next(stream))
    assert first() is None
    with pytest.raises(EngineError, match="collect them while they are read"):
        list(stream.segments)
    assert [segment.text for segment in stream] == [" there"]


def _events(
    failing: bool = False, duration: float | None = 1.0
) -> Generator[TranscriptEvent, None, None]:
    yield TranscriptionInfo("en", None, duration)
    yield SegmentDone(Segment(0, 0, 0.0, 1.0, " Hello", (1,), 0.0, -0.1, 1.0, 0.0))
    if failing:
        raise NumericalError("NaN")
    yield SegmentDone(Segment(1, 0, 1.0, 2.0, " there", (1,), 0.0, -0.1, 1.0, 0.0))
