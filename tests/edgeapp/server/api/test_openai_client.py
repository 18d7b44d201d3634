"""The `openai` package as a client: sync, async, streaming, errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.edgeapp.server.api.conftest import QUESTION, Api, recording

openai = pytest.importorskip("openai", reason="needs the package openai, of the extra 'test'")

pytestmark = pytest.mark.slow


@pytest.fixture
def client(api: Api) -> Any:
    with openai.OpenAI(base_url=f"{api.url}v1", api_key="unused", max_retries=0) as client:
        yield client


def test_transcriptions(client: Any) -> None:
    file = (QUESTION, recording())
    plain = client.audio.transcriptions.create(model="whisper-1", file=file)
    assert "train to Boston" in plain.text
    verbose = client.audio.transcriptions.create(
        model="demo",
        file=file,
        language="en",
        prompt="Trains.",
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        chunking_strategy={"type": "server_vad", "threshold": 0.5},
    )
    assert verbose.duration > 1
    assert [word.word for word in verbose.words] == verbose.text.split()
    assert verbose.segments[0].tokens
    assert verbose.usage.type == "duration"
    srt = client.audio.transcriptions.create(model="whisper-1", file=file, response_format="srt")
    assert srt.startswith("1\n00:00:0")


def test_streaming(client: Any) -> None:
    events = list(
        client.audio.transcriptions.create(
            model="whisper-1", file=("story.flac", recording("story.flac")), stream=True
        )
    )
    assert [event.type for event in events[-1:]] == ["transcript.text.done"]
    assert "".join(event.delta for event in events[:-1]) == events[-1].text


def test_logprobs_of_a_transcript_and_of_each_delta(client: Any) -> None:
    def joined(tokens: Any) -> str:
        assert "".join(token.token for token in tokens)
        assert all(token.logprob <= 0 for token in tokens)
        return b"".join(bytes(map(int, token.bytes)) for token in tokens).decode()

    create = client.audio.transcriptions.create
    wanted = {"model": "whisper-1", "file": ("story.flac", recording("story.flac")),
              "include": ["logprobs"]}  # fmt: skip
    plain = create(**wanted)
    assert joined(plain.logprobs) == plain.text
    *deltas, done = create(**wanted, stream=True)
    assert [joined(event.logprobs) for event in deltas] == [event.delta for event in deltas]
    whole = [token.to_dict() for event in deltas for token in event.logprobs]
    assert [token.to_dict() for token in done.logprobs] == whole
    assert [token.logprob for token in plain.logprobs] == [token["logprob"] for token in whole]
    assert create(model="whisper-1", file=wanted["file"]).logprobs is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of OpenAI's own models
def test_translations_and_models(client: Any) -> None:
    answer = client.audio.translations.create(model="whisper-1", file=(QUESTION, recording()))
    assert "train to Boston" in answer.text
    assert "demo" in [model.id for model in client.models.list()]
    assert client.models.retrieve("demo").id == "demo"


def test_errors_are_raised_as_the_clients_own(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(model="whisper-1", file=(QUESTION, b"x"))
    assert refused.value.code == "invalid_audio"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-4")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.APIError) as broken:
        list(
            client.audio.transcriptions.create(
                model="whisper-1", file=(QUESTION, b"x"), stream=True
            )
        )
    assert QUESTION in str(broken.value)


def test_the_async_client(api: Api) -> None:
    async def both() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{api.url}v1", api_key="unused") as client:
            create = client.audio.transcriptions.create
            answers = await asyncio.gather(
                *(create(model="whisper-1", file=(QUESTION, recording())) for _ in range(2))
            )
            return [answer.text for answer in answers]

    first, second = asyncio.run(both())
    assert first == second
    assert "train to Boston" in first
