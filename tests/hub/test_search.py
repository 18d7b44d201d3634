"""The hub is searched when asked; its answer is bounded and not trusted."""

from __future__ import annotations

import json

import pytest

from edgeapp.cli import main
from pipelines.errors import ModelError, ModelNotFound, OptionError
from pipelines.hub import FoundModel, search_hub
from tests.fixtures.hub import Answer, Hub

_MOONSHINE = {"model_type": "moonshine", "architectures": ["MoonshineForConditionalGeneration"]}


@pytest.fixture
def stocked(hub: Hub) -> Hub:
    for name, config in {
        "openai/whisper-tiny": {"model_type": "whisper"},
        "UsefulSensors/moonshine-base": _MOONSHINE,
        "some/whisper-bert": {"model_type": "bert", "architectures": ["BertModel"]},
        "facebook/nllb-whisper": {"model_type": "m2m_100"},
    }.items():
        hub.host_files(name, {"config.json": json.dumps(config).encode()})
    return hub


def test_what_runs_here_is_found(stocked: Hub) -> None:
    assert search_hub("moonshine") == [FoundModel("UsefulSensors/moonshine-base", "asr", True, 28)]
    found = search_hub("Whisper")
    assert [model.repository for model in found] == ["openai/whisper-tiny", "facebook/nllb-whisper"]
    assert all(model.native for model in found)
    assert [model.task for model in search_hub("whisper", "translation")] == ["translation"]
    assert len(search_hub("whisper", limit=1)) == 1
    assert len(stocked.requests) == 4


@pytest.mark.parametrize(
    "body", [b"no json", b"{}", b"[" * 100_000, b"[" + b" " * (5 << 20) + b"]"]
)
def test_a_malformed_answer_is_refused(stocked: Hub, body: bytes) -> None:
    stocked.answers[""] = Answer(body=body)
    with pytest.raises(ModelError, match="list of models"):
        search_hub("x")


def test_no_page_after_the_first_is_asked_for(stocked: Hub) -> None:
    """There may be no end of them."""
    following = f'<{stocked.url}/api/models?page=2>; rel="next"'
    stocked.answers[""] = Answer(body=b"[]", headers={"Link": following})
    assert search_hub("x") == []
    assert len(stocked.requests) == 1


def test_malformed_entries_are_left_out(stocked: Hub) -> None:
    entries = [
        None, {"id": 5}, {"id": "../up", "config": _MOONSHINE}, {"id": "a/b", "config": []},
        {"id": "a/c", "config": _MOONSHINE, "downloads": "many"},
    ]  # fmt: skip
    stocked.listing = lambda _: entries
    assert search_hub("x") == [FoundModel("a/c", "asr", True, 0)]


def test_a_hub_that_refuses_or_is_away(stocked: Hub) -> None:
    stocked.answers[""] = Answer(status=404)
    with pytest.raises(ModelNotFound, match="cannot be searched"):
        search_hub("x")
    stocked.stop()
    with pytest.raises(ModelNotFound, match="cannot be searched"):
        search_hub("x")


def test_bad_questions_are_not_sent(stocked: Hub) -> None:
    for query, limit in ((" ", 5), ("x" * 300, 5), ("x", 0), ("x", 1000)):
        with pytest.raises(OptionError):
            search_hub(query, limit=limit)
    assert stocked.requests == []


def test_the_command(stocked: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    for flags, expected in (
        ((), "UsefulSensors/moonshine-base\tasr\tnative\t28\n"),
        (("--json",), None),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["models", "search", "moonshine", *flags])
        out, _ = capfd.readouterr()
        assert not stop.value.code
        assert out == expected or json.loads(out)["repository"] == "UsefulSensors/moonshine-base"
