"""OpenAI's REST interface: every field has an effect, or is refused by name."""

from __future__ import annotations

import io
import json
import re
import time
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from tests.edgeapp.server.api.conftest import QUESTION, Api, recording

pytestmark = pytest.mark.slow

SEGMENT_FIELDS = {
    "id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob",
    "compression_ratio", "no_speech_prob",
}  # fmt: skip


def spoken(api: Api) -> str:
    """What the recording says, as recognized."""
    answer = api.transcribe()
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


def test_json(api: Api) -> None:
    answer = api.transcribe(language="en")
    assert answer.status_code == 200
    content = answer.json()
    assert set(content) == {"text", "usage"}
    assert "train to boston" in content["text"].lower()
    assert content["usage"]["type"] == "duration"
    assert content["usage"]["seconds"] >= 1
    assert re.fullmatch(r"req_[0-9a-f]{24}", answer.headers["x-request-id"])


def test_verbose_json_has_every_field(api: Api) -> None:
    both = ["word", "segment"]
    content = api.transcribe(
        response_format="verbose_json", **{"timestamp_granularities[]": both}
    ).json()
    assert {"task", "language", "duration", "text", "segments", "words", "usage"} == set(content)
    assert content["task"] == "transcribe"
    assert content["language"] == "english"
    assert content["duration"] > 1
    for segment in content["segments"]:
        assert set(segment) == SEGMENT_FIELDS
        assert segment["tokens"]
    assert "".join(s["text"] for s in content["segments"]).strip() == content["text"]
    for word in content["words"]:
        assert set(word) == {"word", "start", "end"}
        assert 0 <= word["start"] <= word["end"] <= content["duration"] + 0.1
    assert " ".join(word["word"] for word in content["words"]) == content["text"]


def test_json_says_that_nothing_was_heard(api: Api) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, np.zeros(32_000), 16_000, format="FLAC")
    content = api.transcribe(sound.getvalue(), response_format="verbose_json").json()
    assert (content["text"], content["segments"]) == ("", [])
    assert content["warnings"] == ["no speech was found"]
    plain = {"text": "", "usage": {"type": "duration", "seconds": 2}}
    warnings = {"warnings": ["no speech was found"]}
    assert api.transcribe(sound.getvalue()).json() == plain | warnings


def test_both_speakers_of_a_call_are_written(api: Api) -> None:
    """One on each channel, at the same time."""
    left, rate = soundfile.read(io.BytesIO(recording()), dtype="float32")
    right, _ = soundfile.read(io.BytesIO(recording("story.flac")), dtype="float32")
    right = right[: 6 * rate]
    both = np.zeros((max(len(left) + rate, len(right) + 2 * rate), 2), np.float32)
    both[rate // 2 : rate // 2 + len(left), 0] = left
    both[2 * rate : 2 * rate + len(right), 1] = right
    sound = io.BytesIO()
    soundfile.write(sound, both, rate, format="WAV")
    content = api.transcribe(sound.getvalue(), language="en", response_format="verbose_json").json()

    def words(text: str) -> set[str]:
        return {"".join(filter(str.isalnum, word)).lower() for word in text.split()}

    alone = words(spoken(api))
    assert len(alone & words(content["text"])) >= 0.7 * len(alone)
    assert len(words(content["text"]) - alone) >= 4, "the story's words"
    starts = [segment["start"] for segment in content["segments"]]
    assert starts == sorted(starts)
    assert len(starts) >= 2


def test_granularities_choose_what_is_sent(api: Api) -> None:
    def parts(*values: str) -> set[str]:
        fields = {"timestamp_granularities[]": list(values)} if values else {}
        content = api.transcribe(response_format="verbose_json", **fields).json()
        return {"segments", "words"} & set(content)

    assert parts() == {"segments"}
    assert parts("word") == {"words"}


def test_text_srt_and_vtt(api: Api) -> None:
    text = spoken(api)
    assert api.transcribe(response_format="text").text == f"{text}\n"
    srt = api.transcribe(response_format="srt")
    assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\n", srt.text)
    vtt = api.transcribe(response_format="vtt")
    assert vtt.text.startswith("WEBVTT\n\n")
    assert vtt.headers["content-type"].startswith("text/vtt")
    for subtitles in (srt.text, vtt.text):
        assert "boston" in subtitles.lower()


def test_lists_of_words_name_the_recording(api: Api) -> None:
    lines = api.transcribe(response_format="ctm").text.splitlines()
    assert {line.split()[0] for line in lines} == {"question"}


def test_a_body_in_chunks_is_bounded_and_read(api: Api) -> None:
    """As npm's openai sends files: without a Content-Length."""
    head = (
        b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--x\r\n'
        b'content-disposition: form-data; name="file"; filename="a.flac"\r\n\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=x"}

    def send(*parts: bytes) -> httpx.Response:
        return api.post("v1/audio/transcriptions", content=iter(parts), headers=headers)

    answer = send(head, recording(), b"\r\n--x--\r\n")
    assert "train to Boston" in answer.json()["text"]
    block = bytes(1 << 20)
    answer = send(head, *[block] * 10, b"\r\n--x--\r\n")
    assert answer.status_code == 413
    assert answer.json()["error"]["param"] == "file"


def test_events_add_up_to_the_text(api: Api) -> None:
    answer = api.transcribe(recording("story.flac"), stream="true")
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in answer.text.split("\n\n") if block]
    assert blocks[-1] == ["data: [DONE]"]
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks[:-1]]
    assert [name for name, _ in blocks[:-1]] == [f"event: {event['type']}" for event in events]
    kinds = [event["type"] for event in events]
    assert kinds == ["transcript.text.delta"] * (len(kinds) - 1) + ["transcript.text.done"]
    done = events[-1]
    assert "".join(event["delta"] for event in events[:-1]) == done["text"]
    assert done["text"] == api.transcribe(recording("story.flac")).json()["text"]
    assert done["usage"]["seconds"] > 1


def test_an_error_in_a_stream_is_openais_error_object(api: Api) -> None:
    answer = api.transcribe(b"no sound at all", stream="true")
    assert answer.status_code == 200, "the headers are sent before the recording is read"
    (line,) = [line for line in answer.text.split("\n\n") if line]
    error = json.loads(line.removeprefix("data: "))["error"]
    assert error["code"] == "invalid_audio"
    assert QUESTION in error["message"]


def test_temperature_prompt_keywords_and_chunking_have_an_effect() -> None:
    from edgeapp.server.api.transcription_request import TranscriptionRequest

    fields = [
        ("model", "whisper-1"), ("temperature", "0.4"), ("prompt", "Züge."), ("language", "German"),
        ("keywords[]", "Bahnhof"), ("keywords[]", "Gleis"),
        ("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "0.6"),
        ("chunking_strategy[silence_duration_ms]", "400"),
        ("chunking_strategy[prefix_padding_ms]", "100"),
    ]  # fmt: skip
    request = TranscriptionRequest.from_fields(fields, "transcriptions")
    options = request.options("transcribe", 3, times_words=True)
    assert options.temperatures == (0.4,)
    assert options.initial_prompt == "Züge."
    assert options.language == "de"
    assert options.hotwords == "Bahnhof, Gleis"
    assert options.vad.threshold == 0.6
    assert options.vad.min_silence_duration_ms == 400
    assert options.vad.speech_pad_ms == 100
    plain = TranscriptionRequest.from_fields([("model", "whisper-1")], "transcriptions")
    assert len(plain.options("transcribe", 3, times_words=True).temperatures) > 1, (
        "0 means fallback, as OpenAI's"
    )


@pytest.mark.parametrize("endpoint", ["transcriptions", "translations"])
def test_openai_whispers_rules_are_kept_on_request(endpoint: Any) -> None:
    from edgeapp.server.api.transcription_request import TranscriptionRequest

    for value, kept in (("true", True), ("false", False), (None, False)):
        fields = [("model", "whisper-1"), *([("openai_rules", value)] if value else [])]
        request = TranscriptionRequest.from_fields(fields, endpoint)
        assert request.options("transcribe", 3, times_words=True).openai_rules is kept


@pytest.mark.parametrize("subtitles", ["srt", "vtt"])
def test_words_of_subtitles_are_timed_where_the_model_does(subtitles: str) -> None:
    from edgeapp.server.api.transcription_request import TranscriptionRequest

    fields = [("model", "whisper-1"), ("response_format", subtitles)]
    request = TranscriptionRequest.from_fields(fields, "transcriptions")
    assert request.options("transcribe", 3, times_words=True).word_timestamps
    assert not request.options("transcribe", 3, times_words=False).word_timestamps
    assert not request.options("translate", 3, times_words=True).word_timestamps


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "2"}, "temperature"),
        ({"openai_rules": "maybe"}, "openai_rules"),
        ({"temperature": "nan"}, "temperature"),
        ({"language": "Klingon"}, "language"),
        ({"response_format": "yaml"}, "response_format"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"timestamp_granularities[]": "word", "response_format": "srt"},
         "timestamp_granularities"),
        ({"timestamp_granularities[]": "line", "response_format": "verbose_json"},
         "timestamp_granularities"),
        ({"include[]": "words"}, "include"),
        ({"include[]": "logprobs", "response_format": "verbose_json"}, "include"),
        ({"stream": "yes"}, "stream"),
        ({"stream": "true", "response_format": "srt"}, "stream"),
        ({"chunking_strategy": "loud"}, "chunking_strategy"),
        ({"chunking_strategy": '{"type": "server_vad", "threshold": 3}'}, "chunking_strategy"),
        ({"languages[]": "en"}, "languages"),
        ({"known_speaker_names[]": "anna"}, "known_speaker_names"),
        ({"vad_filter": "true"}, "vad_filter"),
        ({"model": ""}, "model"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(
    api: Api, fields: dict[str, Any], param: str
) -> None:
    answer = api.transcribe(b"x", **fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert param in error["message"]


def test_translations_take_no_language(api: Api) -> None:
    answer = api.transcribe(b"x", path="v1/audio/translations", language="de")
    assert answer.json()["error"]["param"] == "language"


def test_translation_of_english_is_the_transcript(api: Api) -> None:
    answer = api.transcribe(path="v1/audio/translations", response_format="verbose_json")
    assert answer.status_code == 200, answer.text
    assert answer.json()["task"] == "translate"
    assert answer.json()["language"] == "english"
    assert answer.json()["text"] == spoken(api)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", QUESTION),
        (b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n", QUESTION),
    ],
)
def test_what_is_no_recording_is_refused(api: Api, content: bytes, reason: str) -> None:
    answer = api.transcribe(content)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_audio"
    assert reason in answer.json()["error"]["message"]
    assert "/tmp" not in answer.text, "paths of this machine stay here"


def test_a_form_without_a_file(api: Api) -> None:
    for answer in (
        api.post("v1/audio/transcriptions", data={"model": "whisper-1"}),
        api.post("v1/audio/transcriptions", json={"model": "whisper-1"}),
        api.post("v1/audio/transcriptions", files={"sound": b"x"}, data={"model": "whisper-1"}),
    ):
        assert answer.status_code == 400
        assert "file" in answer.json()["error"]["message"]


def test_recordings_that_are_too_large_or_too_long(api: Api) -> None:
    answer = api.transcribe(bytes(10 << 20))
    assert answer.status_code == 413
    assert "8 MB" in answer.json()["error"]["message"]
    from tests.asr.audio.hostile import wav

    samples = bytes(2 * 8_000 * 150)  # two and a half minutes of 16 bits at 8 kHz
    answer = api.transcribe(wav(8_000, 1, samples))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "audio_too_long"


def test_models(api: Api) -> None:
    listed = api.get("v1/models").json()
    assert listed["object"] == "list"
    names = [model["id"] for model in listed["data"]]
    assert names[0] == "whisper-1"
    assert {"demo", "demo-en-de"} <= set(names)
    assert api.get("v1/models/demo").json()["object"] == "model"
    missing = api.get("v1/models/large-v3")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("name", ["large-v3", "openai/whisper-tiny", "/etc", "../demo", "nonsense"])
def test_a_model_that_is_not_here_is_not_downloaded(api: Api, name: str) -> None:
    answer = api.transcribe(b"x", model=name)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_a_translation_model_recognizes_no_speech(api: Api) -> None:
    answer = api.transcribe(b"x", model="demo-en-de")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "model"


def test_the_log_has_no_content(api: Api) -> None:
    sent = api.transcribe(prompt="a secret prompt").headers["x-request-id"]
    lines: list[str] = []
    while not lines:  # it is written after the reply
        time.sleep(0.01)
        lines = [line for line in api.log if json.loads(line)["request"] == sent]
    (line,) = lines
    fields = json.loads(line)
    assert fields["route"] == "/v1/audio/transcriptions"
    assert fields["status"] == 200
    assert fields["audio_s"] > 1
    assert "secret" not in line
    assert QUESTION not in line
    assert "Boston" not in line


def test_health_and_metrics(api: Api) -> None:
    api.transcribe()
    assert api.get("health").json() == {"status": "ok"}
    text = api.get("metrics").text
    route = 'route="/v1/audio/transcriptions",status="200"'
    assert re.search(rf"edgeapp_requests_total{{{route}}} \d+", text)
    cache = re.search(r"^edgeapp_cache_bytes (\S+)$", text, re.MULTILINE)
    assert cache is not None
    assert float(cache[1]) > 0
    for name in ("queue_seconds_count", "tokens_total", "real_time_factor_sum", "memory_bytes"):
        assert f"edgeapp_{name}" in text
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(r'\w+(\{[\w="./+,{}-]+\})? [-+.\w]+', line)
