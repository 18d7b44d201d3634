"""The npm package `openai` as a client, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.hub import assets_folder
from tests.edgeapp.server.api.conftest import QUESTION, Api
from tests.edgeapp.server.api.test_realtime import ITEM, pcm24

NODE = Path(__file__).resolve().parents[3] / "node"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not (NODE / "node_modules" / "openai").is_dir(),
        reason="needs node and `npm install --prefix tests/node`",
    ),
]


def test_rest_streaming_errors_and_realtime(api: Api, tmp_path: Path) -> None:
    pcm = tmp_path / "question.pcm"
    pcm.write_bytes(pcm24())
    done = subprocess.run(
        ["node", "openai_client.mjs", api.url, assets_folder() / "samples" / QUESTION, pcm],
        cwd=NODE, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"whisper-1", "demo"} <= set(found["models"])
    assert "train to Boston" in found["text"]
    assert found["words"] == len(found["text"].split())
    assert found["segments"] >= 1
    assert found["usage"]["type"] == "duration"
    assert found["srt"].startswith("1\n00:00:0")
    deltas = [event["delta"] for event in found["events"][:-1]]
    assert found["events"][-1]["type"] == "transcript.text.done"
    assert "".join(deltas) == found["events"][-1]["text"]
    assert "train to Boston" in found["translation"]
    assert found["error"] == {"status": 404, "code": "model_not_found", "param": "model"}
    assert found["realtime"]["events"][0] == "session.created"
    assert f"{ITEM}.delta" in found["realtime"]["events"]
    assert "train to Boston" in found["realtime"]["transcript"]
