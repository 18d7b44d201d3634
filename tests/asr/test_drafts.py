"""Drafts of a transcriber change nothing but the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.asr import LiveOptions, LiveTranscriber, SegmentDone, Transcriber
from pipelines.asr.audio.decode import load_audio
from pipelines.engine import Engine
from pipelines.errors import ModelError
from pipelines.hub import assets_folder, bundled_folder
from tests.asr.by_window import ByWindow
from tests.fixtures.checkpoints import write_whisper

pytestmark = pytest.mark.usefixtures("unpaused_drafts")

QUESTION = assets_folder() / "samples" / "question.flac"


def tokens(transcriber: Transcriber, batch_size: int = 1) -> list[tuple[int, ...]]:
    segments = transcriber.transcribe(QUESTION, language="en", batch_size=batch_size, seed=3)
    return [segment.tokens for segment in segments]


@pytest.fixture(scope="module")
def demo(engine: Engine) -> Transcriber:
    return Transcriber(bundled_folder("demo"), engine=engine)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4])
def test_ngrams_change_nothing(demo: Transcriber, engine: Engine, batch_size: int) -> None:
    drafted = Transcriber(bundled_folder("demo"), engine=engine, draft="ngram")
    before = drafted.draft_report
    plain = tokens(demo, batch_size)
    for _ in range(2):  # the second time all is known
        assert tokens(drafted, batch_size) == plain
    report = drafted.draft_report
    assert demo.draft_report is None
    assert before is not None
    assert report is not None
    assert report.accepted > before.accepted


@pytest.mark.slow
def test_live_captions_with_ngrams(demo: Transcriber, engine: Engine) -> None:
    drafted = Transcriber(bundled_folder("demo"), engine=engine, draft="ngram")
    samples, events = load_audio(QUESTION), []
    for transcriber in (demo, drafted):
        live = LiveTranscriber(transcriber, LiveOptions(min_chunk_s=2.0, drafts=False))
        events.append([*live.feed(samples[:40_000]), *live.feed(samples[40_000:]), *live.finish()])
    texts = [[getattr(event, "text", None) for event in each] for each in events]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_a_draft_model_gives_the_same(
    multilingual: Path, real: Transcriber, engine: Engine, tmp_path: Path
) -> None:
    """Of other weights, and with the model's own encoder, which is then run once."""
    small = write_whisper(tmp_path / "small", "tiny", seed=1, decoder_layers=1)
    plain = list(real.stream(QUESTION, language="en", temperature=0.0))
    for folder in (small, multilingual):
        drafted = ByWindow(multilingual, engine=engine, draft_model=folder)
        found = list(drafted.stream(QUESTION, language="en", temperature=0.0))
        done = [[e.segment.tokens for e in each if isinstance(e, SegmentDone)]
                for each in (plain, found)]  # fmt: skip
        assert done[0] == done[1]


@pytest.mark.slow
def test_a_draft_model_of_another_vocabulary_is_refused(
    multilingual: Path, english_only: Path, engine: Engine
) -> None:
    with pytest.raises(ModelError, match="cannot draft for .* another vocabulary"):
        Transcriber(multilingual, engine=engine, draft_model=english_only)
